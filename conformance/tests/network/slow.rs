//! Cables that are slow, or lose some packets: all goes on, later.

use std::sync::Arc;

use farsight::{Answers, EngineKind};

use crate::desk::{Desk, Remote, sequence_of, start_server, value_of};
use crate::namespaces::{Network, Way};

const SLOW: usize = 0;
const LOSSY: usize = 1;
const KEYS: u64 = 500;
const KILOBITS_PER_SECOND: u32 = 1000;
const LOSS_PERCENT: u32 = 5;

/// Writes keys of its own in one batch and one by one, reads all of them in one batch and some one by one.
fn work(desk: &mut Desk, first: u64) {
    let entries: Vec<_> = (first..first + KEYS).map(|key| (key, value_of(key, 1))).collect();
    let mut outcomes = Vec::new();
    desk.session.put_many(&entries, &mut outcomes).expect("a batch of puts");
    for key in (first..first + KEYS).step_by(50) {
        desk.put(key, 2).expect("a put");
    }
    let keys: Vec<u64> = (first..=first + KEYS).collect();
    let mut answers = Answers::default();
    desk.session.multi_get(&keys, &mut answers).expect("a batch of gets");
    for (key, answer) in keys.iter().zip(answers.iter()) {
        let expected = match *key {
            key if key == first + KEYS => None,
            key => Some(if (key - first).is_multiple_of(50) { 2 } else { 1 }),
        };
        assert_eq!(answer.map(|(value, _)| sequence_of(*key, value)), expected, "key {key}");
    }
    for key in (first..first + KEYS).step_by(100) {
        assert_eq!(desk.get(key).expect("a get"), Some(2));
    }
}

#[test]
fn slow_and_lossy_cables_cost_time_and_nothing_else() {
    let Some(network) = Network::with_clients(3) else { return };
    let network = Arc::new(network);
    let _server = start_server(&network, EngineKind::XSTORE);
    let clients: Vec<Remote> =
        (0..3).map(|client| Remote::start(&network, client, EngineKind::XSTORE)).collect();
    let queues = clients.iter().map(|remote| remote.ask(|desk| desk.session.epoch())).collect::<Vec<_>>();
    network.slow_down(SLOW, KILOBITS_PER_SECOND);
    network.lose(LOSSY, Way::ToServer, LOSS_PERCENT);
    network.lose(LOSSY, Way::ToClient, LOSS_PERCENT);
    let working: Vec<_> = clients
        .iter()
        .zip(0..)
        .map(|(remote, client)| remote.begin(move |desk| work(desk, client * 2 * KEYS)))
        .collect();
    for pending in working {
        pending.wait();
    }
    let lives = clients.iter().map(|remote| remote.ask(|desk| desk.session.epoch())).collect::<Vec<_>>();
    assert_eq!(queues, lives);
    // Nobody connected again, so nobody's time-outs took slowness for death.
    assert_eq!(clients[2].ask(Desk::clients), [3]);
}

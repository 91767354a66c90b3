//! Clients that lose their server, or only its answers, and find it again.

use std::sync::Arc;
use std::time::Instant;

use farsight::{EngineKind, WriteError};
use farsight_conformance::engine::harness::{PATIENCE, eventually};

use crate::desk::{Desk, Pending, Remote, start_server};
use crate::namespaces::{Network, Way};

/// Keys of a client: those that it writes while all is well, and from [`DOUBTFUL`] on the others.
const KEYS: u64 = 1000;
const WELL: u64 = 20;
const DOUBTFUL: u64 = 500;

/// Clients by what happens to their cables.
const CUT: usize = 0;
const UNHEARD: usize = 1;
const DEAF: usize = 2;
const BRIEFLY_CUT: usize = 3;
const WHOLE: usize = 4;

fn first_key(client: usize) -> u64 {
    client as u64 * KEYS
}

/// Writes while the server cannot be reached, until a write is known not to have been sent. Returns the keys
/// whose writes are in doubt and the key of the one that failed.
fn write_until_refused(desk: &mut Desk, client: usize) -> (Vec<u64>, u64) {
    let begun = Instant::now();
    let mut doubtful = Vec::new();
    for key in first_key(client) + DOUBTFUL.. {
        assert!(begun.elapsed() < PATIENCE, "the loss is not noticed; {} writes in doubt", doubtful.len());
        match desk.put(key, 1) {
            Err(WriteError::Indeterminate { entries: 1, .. }) => doubtful.push(key),
            Err(WriteError::Engine { .. } | WriteError::Reopen { .. }) => {
                assert!(desk.get(key).is_err(), "a read without a server");
                return (doubtful, key);
            }
            other => panic!("a write without a server: {other:?}"),
        }
    }
    unreachable!("keys do not end")
}

/// Checks that all is as it was before, and that writes go on. Returns which of the `doubtful` were executed.
fn check_recovered(desk: &mut Desk, client: usize, doubtful: &[u64], failed: Option<u64>) -> Vec<u64> {
    let first = first_key(client);
    assert_eq!(desk.get_at_last(first), Some(0), "client {client}");
    for key in first..first + WELL {
        assert_eq!(desk.get(key).expect("a get"), Some(0), "client {client}");
    }
    if let Some(failed) = failed {
        assert_eq!(
            desk.get(failed).expect("a get"),
            None,
            "client {client}: a write that failed was executed"
        );
    }
    desk.put(first + WELL, 2).expect("writes go on");
    assert_eq!(desk.get(first + WELL).expect("a get"), Some(2));
    let found = |desk: &mut Desk, key: u64| match desk.get(key).expect("a get") {
        None => false,
        Some(1) => true,
        Some(other) => panic!("client {client}: key {key} has {other}"),
    };
    doubtful.iter().copied().filter(|key| found(desk, *key)).collect()
}

#[test]
fn writes_without_an_answer_are_in_doubt_and_clients_come_back_by_themselves() {
    let Some(network) = Network::with_clients(5) else { return };
    let network = Arc::new(network);
    let server = start_server(&network, EngineKind::XSTORE);
    let clients: Vec<Remote> =
        (0..5).map(|client| Remote::start(&network, client, EngineKind::XSTORE)).collect();
    for (client, remote) in clients.iter().enumerate() {
        remote.ask(move |desk| {
            for key in first_key(client)..first_key(client) + WELL {
                desk.put(key, 0).expect("a put");
            }
        });
    }

    network.cut(CUT);
    network.lose(UNHEARD, Way::ToServer, 100);
    network.lose(DEAF, Way::ToClient, 100);
    network.cut(BRIEFLY_CUT);
    let lost = [CUT, UNHEARD, DEAF];
    let writing = lost.map(|client| clients[client].begin(move |desk| write_until_refused(desk, client)));
    let brief_key = first_key(BRIEFLY_CUT) + DOUBTFUL;
    let brief = clients[BRIEFLY_CUT].begin(move |desk| desk.put(brief_key, 1));

    // Others notice nothing, and see what the deaf client wrote while it does not know of it.
    eventually("the deaf client's write", || {
        clients[WHOLE].ask(|desk| desk.get(first_key(DEAF) + DOUBTFUL).expect("a get")) == Some(1)
    });
    clients[WHOLE].ask(|desk| {
        for client in [CUT, UNHEARD] {
            assert_eq!(
                desk.get(first_key(client) + DOUBTFUL).expect("a get"),
                None,
                "it cannot have arrived"
            );
        }
        desk.put(first_key(WHOLE) + DOUBTFUL, 1).expect("a put");
    });

    // Back before either side has given the connection up: the doubtful write's answer is nobody's now.
    assert!(matches!(brief.wait(), Err(WriteError::Indeterminate { .. })), "no answer came");
    network.heal(BRIEFLY_CUT);
    clients[BRIEFLY_CUT].ask(move |desk| check_recovered(desk, BRIEFLY_CUT, &[brief_key], None));

    let outcomes = writing.map(Pending::wait);
    for (client, (doubtful, _)) in lost.iter().zip(&outcomes) {
        assert!(
            !doubtful.is_empty(),
            "client {client}: the first write was sent, and none knows what became of it"
        );
    }
    for client in lost {
        network.heal(client);
    }
    for (client, (doubtful, failed)) in lost.into_iter().zip(outcomes) {
        let first = doubtful[0];
        let executed =
            clients[client].ask(move |desk| check_recovered(desk, client, &doubtful, Some(failed)));
        let was_executed = executed.contains(&first);
        assert_eq!(was_executed, client == DEAF, "client {client}: only answers were lost, or only requests");
    }
    // The server has let go of those that vanished.
    eventually("five clients", || clients[WHOLE].ask(Desk::clients) == [5]);
    drop(server);
}

/// A compute node is cut off in the middle of its writes, perhaps under a lock. Others in the same leaves go
/// on, what it was told stands, and it comes back under another number.
#[test]
fn a_compute_node_that_is_cut_off_holds_nobody_up() {
    const CUT: usize = 0;
    const OTHER: usize = 1;
    let Some(network) = Network::with_clients(2) else { return };
    let network = Arc::new(network);
    let _server = start_server(&network, EngineKind::ROLEX);
    let clients: Vec<Remote> =
        (0..2).map(|client| Remote::start(&network, client, EngineKind::ROLEX)).collect();
    // Odd keys are its own, even ones the other's. It writes them in turns, and says how many it was told of.
    let cut = clients[CUT].begin(|desk| {
        for sequence in 0.. {
            if let Err(error) = desk.put(sequence % WELL * 2 + 1, sequence) {
                return (sequence, error);
            }
        }
        unreachable!("sequences do not end")
    });
    eventually("writes", || {
        clients[OTHER].ask(|desk| desk.get(1).expect("a get")).is_some_and(|sequence| sequence > WELL)
    });
    network.cut(CUT);
    clients[OTHER].ask(|desk| {
        for sequence in 0..10 * WELL {
            desk.put(sequence % WELL * 2, sequence).expect("a put beside one who was cut off");
        }
    });
    let (doubtful, error) = cut.wait();
    assert!(!matches!(error, WriteError::Refused { .. }), "{error}");
    network.heal(CUT);
    let check = move |desk: &mut Desk| {
        assert!(desk.get_at_last(0).is_some());
        for place in 0..WELL {
            let found = desk.get(place * 2 + 1).expect("a get").expect("it was written");
            let told =
                (0..doubtful).rev().find(|sequence| sequence % WELL == place).expect("writes in turns");
            let is_doubtful = doubtful % WELL == place && found == doubtful;
            assert!(found == told || is_doubtful, "key {place}: {found}, {told} was acknowledged");
            assert_eq!(desk.get(place * 2).expect("a get"), Some(9 * WELL + place));
        }
    };
    clients[OTHER].ask(check);
    clients[CUT].ask(move |desk| {
        check(desk);
        desk.put(1, doubtful + WELL).expect("writes go on");
    });
    eventually("two compute nodes", || clients[OTHER].ask(Desk::clients) == [2, 2]);
}

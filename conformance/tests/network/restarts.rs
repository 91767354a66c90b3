//! A server that is killed and started again: its clients, on other hosts, find it by themselves.

use std::sync::Arc;
use std::time::Instant;

use farsight::{EngineKind, OpenError, WriteError};
use farsight_base::sync::{AtomicBool, Ordering};
use farsight_conformance::engine::harness::PATIENCE;

use crate::desk::{Desk, Remote, start_server};
use crate::namespaces::Network;

const CLIENTS: usize = 2;
const RESTARTS: u64 = 3;
/// Keys of a client, written again and again.
const KEYS: u64 = 64;

/// What a client saw of the server's lives.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    lives: u64,
    in_doubt: u64,
    not_sent: u64,
}

/// Writes until it is told to finish, and checks what it reads. In a life that has not its table it makes the
/// table again.
fn work(desk: &mut Desk, first: u64, finish: &AtomicBool, progress: &dyn Fn(Seen)) -> Seen {
    let mut seen = Seen { lives: 1, ..Seen::default() };
    let mut life = desk.session.epoch();
    // What each key was last set to in this life, for certain.
    let mut known = vec![None; KEYS as usize];
    let mut sequence = 0;
    let mut trouble_since: Option<Instant> = None;
    // Relaxed: the flag carries nothing with it.
    while !finish.load(Ordering::Relaxed) {
        sequence += 1;
        let place = sequence % KEYS;
        let written = desk.put(first + place, sequence);
        if desk.session.epoch() != life {
            life = desk.session.epoch();
            seen.lives += 1;
            known.fill(None);
        }
        match written {
            Ok(_) => {
                known[place as usize] = Some(sequence);
                trouble_since = None;
                progress(seen);
            }
            Err(WriteError::Indeterminate { .. }) => {
                known[place as usize] = None;
                seen.in_doubt += 1;
            }
            Err(WriteError::Reopen { source, .. }) if matches!(*source, OpenError::TableGone { .. }) => {
                desk.begin_anew();
                life = desk.session.epoch();
                seen.lives += 1;
                known.fill(None);
            }
            Err(WriteError::Engine { .. } | WriteError::Reopen { .. }) => {
                seen.not_sent += 1;
                let since = *trouble_since.get_or_insert_with(Instant::now);
                assert!(since.elapsed() < PATIENCE, "the server was not found again: {written:?}");
                continue;
            }
            Err(other) => panic!("a write over a restart: {other}"),
        }
        // Reads begin again by themselves; in another life there is nothing to compare with.
        let read = desk.get(first + place);
        if desk.session.epoch() == life
            && let (Some(expected), Ok(found)) = (known[place as usize], read)
        {
            assert_eq!(found, Some(expected), "an acknowledged write is gone");
        }
    }
    seen
}

#[test]
fn clients_outlive_their_server() {
    clients_outlive(EngineKind::XSTORE);
}

#[test]
fn compute_nodes_outlive_their_pool() {
    clients_outlive(EngineKind::ROLEX);
}

fn clients_outlive(engine: &'static EngineKind) {
    let Some(network) = Network::with_clients(CLIENTS) else { return };
    let network = Arc::new(network);
    let mut server = start_server(&network, engine);
    let clients: Vec<Remote> = (0..CLIENTS).map(|client| Remote::start(&network, client, engine)).collect();
    let finish = Arc::new(AtomicBool::new(false));
    let (sender, steps) = std::sync::mpsc::channel();
    let working: Vec<_> = clients
        .iter()
        .zip(0..)
        .map(|(remote, client)| {
            let (finish, sender) = (Arc::clone(&finish), sender.clone());
            remote.begin(move |desk| {
                work(desk, client * KEYS, &finish, &|seen| {
                    let _ = sender.send((client, seen));
                })
            })
        })
        .collect();
    let mut lives = [0; CLIENTS];
    for restart in 0..RESTARTS {
        // Each client has written in this life.
        let begun = Instant::now();
        while lives.iter().any(|lives| *lives <= restart) {
            let (client, seen): (u64, Seen) = steps.recv_timeout(PATIENCE).expect("clients go on");
            lives[client as usize] = seen.lives;
            assert!(begun.elapsed() < PATIENCE, "life {restart} is not found by all: {lives:?}");
        }
        server.kill();
        server = start_server(&network, engine);
    }
    finish.store(true, Ordering::Relaxed);
    for pending in working {
        let seen = pending.wait();
        assert!(seen.lives >= RESTARTS, "{seen:?}");
        assert!(seen.in_doubt <= RESTARTS, "one write is under way when a server dies: {seen:?}");
    }
    drop(server);
}

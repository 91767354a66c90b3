//! The runner: workers beside each other, sleep, shutdown, bugs.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::local_host::LocalHost;
use common::talk::{definition, value_of};
use farsight_node::{Node, NodeOptions, StartError};
use farsight_protocol::{ErrorCode, WriteOutcome};

fn options() -> NodeOptions {
    NodeOptions { table_memory_bytes: 8 << 20, ..NodeOptions::default() }
}

#[test]
fn workers_write_one_table_together() {
    const CLIENTS: u64 = 4;
    const KEYS: u64 = 8_000;
    let host = LocalHost::new();
    let _server = Node::start(vec![host.clone()], &NodeOptions { workers: 2, ..options() }).unwrap();
    let table = host.connect().create("shared", 8);
    std::thread::scope(|scope| {
        for start in 0..CLIENTS {
            let (client, table) = (host.connect(), table.clone());
            scope.spawn(move || {
                let keys: Vec<u64> = (0..KEYS).map(|index| index * CLIENTS + start).collect();
                let outcomes = client.put(&table, &keys);
                assert!(outcomes.iter().all(|outcome| matches!(outcome, WriteOutcome::Inserted(_))));
            });
        }
    });
    let client = host.connect();
    let keys: Vec<u64> = (0..CLIENTS * KEYS).collect();
    for keys in keys.chunks(500) {
        let values = client.get(&table, keys).unwrap();
        assert!(values.iter().zip(keys).all(|(value, key)| value.as_deref() == Some(&value_of(*key, 8)[..])));
    }
    let stats = client.stats();
    assert_eq!(stats.tables[0].part().tree.pairs, CLIENTS * KEYS);
    assert_eq!(stats.clients, 1);
}

#[test]
fn a_bug_in_one_worker_is_told_to_everybody_and_hangs_nobody() {
    let host = LocalHost::that_panics_beyond(2);
    let server = Node::start(vec![host.clone()], &NodeOptions { workers: 2, ..options() }).unwrap();
    let (first, second) = (host.connect(), host.connect());
    let table = first.create("fine", 8);
    assert_eq!(server.failure(), None);
    let error = first.create_as(definition("one-more", 8)).unwrap_err();
    assert_eq!(error.code, ErrorCode::Bug, "what became of this call is unknown");
    for word in ["worker 0", "this host has a bug", "Restart it"] {
        assert!(error.text.contains(word), "{:?} lacks {word:?}", error.text);
    }
    let failure = server.failure().expect("the server met a bug");
    assert!(error.text.ends_with(failure), "{error} lacks {failure:?}");
    for client in [&first, &second] {
        let later = client.get(&table, &[1]).unwrap_err();
        assert_eq!((later.code, later.text.as_str()), (ErrorCode::OutOfResources, failure), "every call");
    }
    let (told, heard) = std::sync::mpsc::channel();
    server.on_failure(move || told.send(()).unwrap());
    heard.recv_timeout(Duration::from_secs(5)).expect("the hook is called");
    let start = Instant::now();
    server.shutdown().unwrap();
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn shutdown_wakes_whoever_sleeps_and_so_does_a_drop() {
    for _ in 0..20 {
        let host = LocalHost::new();
        let server = Node::start(vec![host.clone()], &NodeOptions { workers: 3, ..options() }).unwrap();
        let start = Instant::now();
        server.shutdown().unwrap();
        drop(Node::start(vec![host.clone()], &options()).unwrap());
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        assert_eq!(Arc::strong_count(&host), 1, "no thread holds the host");
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for workers in [0, farsight_node::WORKERS_MAX + 1] {
        let refused = Node::start(vec![LocalHost::new()], &NodeOptions { workers, ..options() });
        assert!(matches!(refused, Err(StartError::Workers { got }) if got == workers));
    }
}

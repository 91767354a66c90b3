//! A memory node of a pool with replicas, killed or stopped for good under writers.
//!
//! What a writer was told stands, and nobody is held up for good: the pool goes on without that node, also if
//! it is the coordinator.

use std::time::Duration;

use farsight::{EngineKind, ServerUrl, TableOptions, ValueKind};
use farsight_conformance::engine::Seed;
use farsight_conformance::engine::harness::Directory;
use farsight_conformance::engine::pool::{over_shared_memory, over_tcp};
use farsight_conformance::engine::processes::Player;
use rustix::process::Signal;

use crate::SERVING;
use crate::compute_nodes::Writers;
use crate::pool::{TABLE, VALUE_BYTES, connect};

pub(crate) const NODES: usize = 3;

/// Memory nodes, each a process, with their addresses, and a table that has each pair on all of them.
pub(crate) fn start_replicated(
    directory: &Directory,
    url: impl Fn(&Directory, usize) -> ServerUrl,
) -> (Vec<Player>, String) {
    let start = |number| {
        let mut player = Player::start("server", &[("URL", url(directory, number).to_string())]);
        let heard = player.hear().expect("it starts");
        let url = heard.strip_prefix(SERVING).expect("its address").trim().to_owned();
        (player, url)
    };
    let (nodes, urls): (Vec<Player>, Vec<String>) = (0..NODES).map(start).unzip();
    let urls = urls.join(",");
    let options = TableOptions {
        engine: Some(EngineKind::FLEXKV),
        replicas: Some(NODES as u8),
        memory_bytes: Some(16 << 20),
        ..TableOptions::default()
    };
    let values = ValueKind::Fixed(VALUE_BYTES as u16);
    connect(&urls).create_table_of::<u64>(TABLE, values, &options).expect("a table");
    (nodes, urls)
}

fn lose_one(test: &str, url: impl Fn(&Directory, usize) -> ServerUrl, signal: Signal) {
    let mut random = Seed::new(test).random(0);
    let directory = Directory::new();
    let (mut nodes, urls) = start_replicated(&directory, url);
    let writers = Writers::new(&urls);
    let lost = random.below(NODES as u64) as usize;
    let pause = Duration::from_micros(random.below(50_000));
    println!("node {lost} is lost");
    writers.run(&mut random, || {
        writers.await_progress();
        std::thread::sleep(pause);
        nodes[lost].signal(signal);
        writers.await_progress();
        writers.await_progress();
    });
    nodes[lost].signal(Signal::KILL);
    nodes[lost].await_end();
    // Who comes now finds the pool as it is.
    let table = connect(&urls).table::<u64>(TABLE).expect("the table");
    let mut session = table.session(farsight::Options::default()).expect("a session");
    session.put(u64::MAX, &[7; VALUE_BYTES]).expect("a put");
    let found = session.get(u64::MAX).expect("a GET").expect("the pair");
    assert_eq!(found.value[..], [7; VALUE_BYTES]);
    for mut node in nodes.into_iter().enumerate().filter(|(node, _)| *node != lost).map(|(_, node)| node) {
        node.signal(Signal::KILL);
        node.await_end();
    }
}

/// One of three nodes is killed, and one that was started in its place is taken in under writers. Then
/// another one is killed.
fn repair_one(test: &str, url: impl Fn(&Directory, usize) -> ServerUrl, lost: Option<usize>) {
    let mut random = Seed::new(test).random(0);
    let lost = lost.unwrap_or(random.below(NODES as u64) as usize);
    let directory = Directory::new();
    let start = |url: String| {
        let mut player = Player::start("server", &[("URL", url)]);
        let heard = player.hear().expect("it starts");
        let url = heard.strip_prefix(SERVING).expect("its address").trim().to_owned();
        (player, url)
    };
    let started = (0..NODES).map(|number| start(url(&directory, number).to_string()));
    let (mut nodes, urls): (Vec<Player>, Vec<String>) = started.unzip();
    let all = urls.join(",");
    let options = TableOptions {
        engine: Some(EngineKind::FLEXKV),
        replicas: Some(NODES as u8),
        memory_bytes: Some(16 << 20),
        ..TableOptions::default()
    };
    let values = ValueKind::Fixed(VALUE_BYTES as u16);
    connect(&all).create_table_of::<u64>(TABLE, values, &options).expect("a table");
    let open = connect(&all);
    let table = open.table::<u64>(TABLE).expect("the table");
    let mut session = table.session(farsight::Options::default()).expect("a session");
    session.put(u64::MAX, &[7; VALUE_BYTES]).expect("a put");
    let writers = Writers::new(&all);
    let second = (lost + 1 + random.below(NODES as u64 - 1) as usize) % NODES;
    println!("node {lost} is lost and taken in, then node {second} is lost");
    writers.run(&mut random, || {
        writers.await_progress();
        nodes[lost].signal(Signal::KILL);
        nodes[lost].await_end();
        writers.await_progress();
        nodes[lost] = start(urls[lost].clone()).0;
        let addresses: farsight::Addresses = all.parse().expect("addresses");
        let repaired = farsight::repair(addresses, &farsight::ConnectOptions::default(), &mut |_| {});
        let repaired = repaired.expect("a repair");
        assert_eq!(repaired.iter().map(|one| one.place).collect::<Vec<_>>(), [lost]);
        writers.await_progress();
        nodes[second].signal(Signal::KILL);
        writers.await_progress();
        writers.await_progress();
    });
    nodes[second].await_end();
    let found = session.get(u64::MAX).expect("a GET").expect("the pair from before both losses");
    assert_eq!(found.value[..], [7; VALUE_BYTES]);
    let table = connect(&all).table::<u64>(TABLE).expect("the table");
    let mut session = table.session(farsight::Options::default()).expect("a session");
    let found = session.get(u64::MAX).expect("a GET").expect("the pair, to who comes now");
    assert_eq!(found.value[..], [7; VALUE_BYTES]);
    for mut node in nodes.into_iter().enumerate().filter(|(node, _)| *node != second).map(|(_, node)| node) {
        node.signal(Signal::KILL);
        node.await_end();
    }
}

#[test]
fn a_new_node_takes_a_killed_ones_place_over_tcp() {
    repair_one("a node is taken in, tcp", over_tcp, None);
}

#[test]
fn a_new_node_takes_the_first_ones_place_over_tcp() {
    repair_one("the first node is taken in, tcp", over_tcp, Some(0));
}

#[test]
fn a_new_node_takes_a_killed_ones_place_over_shared_memory() {
    repair_one("a node is taken in, shm", over_shared_memory, None);
}

#[test]
fn a_new_node_takes_the_first_ones_place_over_shared_memory() {
    repair_one("the first node is taken in, shm", over_shared_memory, Some(0));
}

#[test]
fn a_pool_goes_on_without_a_killed_node_over_shared_memory() {
    lose_one("a node is killed, shm", over_shared_memory, Signal::KILL);
}

#[test]
fn a_pool_goes_on_without_a_killed_node_over_tcp() {
    lose_one("a node is killed, tcp", over_tcp, Signal::KILL);
}

#[test]
fn a_pool_goes_on_without_a_stopped_node_over_tcp() {
    lose_one("a node is stopped, tcp", over_tcp, Signal::STOP);
}

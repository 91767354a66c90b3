//! Servers with directories of data, killed under writes that are repeated: each acts once, and none is in
//! doubt.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use farsight::{Client, EngineKind, Exchanges, Options, Table, TableOptions, ValueKind, WriteOutcome};

use crate::durability::{PATIENCE, WRITERS};
use crate::durable_pool::DurablePool;

/// Kills of one pool, one after the other.
const KILLS: u64 = 12;
/// Counters that all writers add to.
const COUNTERS: u64 = 6;
/// Additions of a batch: of several calls.
const BATCH: usize = 300;
/// Bytes of a value that no message carries.
const LONG_BYTES: usize = 150_000;
/// Of so many rounds one writes such a value.
const LONG_ONE_IN: u64 = 4;
/// Much longer than a restart takes.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// What a writer was told.
#[derive(Default)]
struct Told {
    /// Of each counter, what it was before each of the writer's additions.
    before: [BTreeSet<u64>; COUNTERS as usize],
    rounds: u64,
}

/// A counter's key: they are spread over the ranges of a pool.
fn key_of(counter: u64) -> u64 {
    counter * (u64::MAX / COUNTERS)
}

fn tables(client: &Client, nodes: usize) -> [Table<u64>; 2] {
    let engine = (nodes > 1).then_some(EngineKind::XSTORE_D);
    let options = TableOptions { engine, ..TableOptions::default() };
    let create = |name, values| client.create_table_of::<u64>(name, values, &options).expect("a table");
    [create("counted", ValueKind::Fixed(8)), create("long", ValueKind::blocks(2 * LONG_BYTES as u32))]
}

/// Adds to the counters, and replaces pairs of its own by compare-and-set, until `is_done`.
fn write([counted, long]: &[Table<u64>; 2], writer: u64, told: &Mutex<Told>, is_done: impl Fn() -> bool) {
    let mut counted = counted.session(Options::default()).expect("a session");
    let mut long = long.session(Options::default()).expect("a session");
    let mut exchanges = Exchanges::default();
    let own = key_of(writer) + 1;
    let [mut version, mut long_version] = [0; 2];
    for round in 0_u64.. {
        if is_done() {
            return;
        }
        let alone = round % COUNTERS;
        let added = counted.fetch_add(key_of(alone), 1).expect("an addition");
        let many: Vec<u64> = (0..BATCH as u64).map(|entry| (entry + round) % COUNTERS).collect();
        let additions: Vec<(u64, i64)> = many.iter().map(|counter| (key_of(*counter), 1)).collect();
        counted.fetch_add_many(&additions, &mut exchanges).expect("additions");
        let mut told = told.lock().expect("no panic");
        let before = many.iter().enumerate().map(|(index, counter)| (*counter, exchanges.old_integer(index)));
        for (counter, before) in before.chain([(alone, added.old)]) {
            let is_new = told.before[counter as usize].insert(before);
            assert!(is_new, "two additions of writer {writer} have met {before} in counter {counter}");
        }
        told.rounds += 1;
        drop(told);
        // Nobody else writes these: what differs was written by the same call before.
        version = stored(counted.compare_and_set(own, version, &round.to_le_bytes()), "a pair");
        if round % LONG_ONE_IN == 0 {
            let value = vec![round as u8; LONG_BYTES];
            long_version = stored(long.compare_and_set(own, long_version, &value), "a long value");
        }
    }
}

fn stored(outcome: Result<WriteOutcome, farsight::WriteError>, what: &str) -> u64 {
    match outcome.unwrap_or_else(|error| panic!("{what}: {error}")) {
        WriteOutcome::Inserted(version) | WriteOutcome::Replaced(version) => version,
        other => panic!("{what} acted twice: {other:?}"),
    }
}

/// Kills nodes under writers and rounds of snapshots, and starts them again.
fn kill_again_and_again(nodes: usize, number: u8, ack: &'static str) {
    let mut pool = DurablePool::start_many(nodes, "tcp://", number, ack);
    let told: Vec<Mutex<Told>> = (0..WRITERS).map(|_| Mutex::default()).collect();
    let is_done = Mutex::new(false);
    let rounds = || told.iter().map(|told| told.lock().expect("no panic").rounds).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        for (writer, told) in (0..).zip(&told) {
            let tables = tables(&pool.connect(RECONNECT_TIMEOUT), nodes);
            let is_done = &is_done;
            scope.spawn(move || write(&tables, writer, told, || *is_done.lock().expect("no panic")));
        }
        for kill in 0..KILLS {
            let before = rounds();
            std::thread::sleep(Duration::from_millis(50 + 30 * (kill % 5)));
            let deadline = Instant::now() + PATIENCE;
            let has_grown = || rounds().iter().zip(&before).all(|(now, before)| now > before);
            while !has_grown() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            if !has_grown() {
                break;
            }
            if kill % 3 == 1 {
                pool.connect(RECONNECT_TIMEOUT).snapshot().expect("a round");
            }
            for node in (0..nodes).filter(|node| kill % 4 == 3 || *node == kill as usize % nodes) {
                pool.come_back(node);
            }
        }
        let before = rounds();
        let deadline = Instant::now() + PATIENCE;
        while rounds().iter().zip(&before).any(|(now, before)| now == before) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        *is_done.lock().expect("no panic") = true;
    });
    check(&tables(&pool.connect(RECONNECT_TIMEOUT), nodes)[0], &told);
}

/// Each counter has the additions that were acknowledged, each of which has met another value.
fn check(counted: &Table<u64>, told: &[Mutex<Told>]) {
    let mut session = counted.session(Options::default()).expect("a session");
    for counter in 0..COUNTERS {
        let (mut met, mut additions) = (BTreeSet::new(), 0);
        for told in told {
            let before = &told.lock().expect("no panic").before[counter as usize];
            additions += before.len() as u64;
            met.extend(before.iter().copied());
        }
        let found = session.get(key_of(counter)).expect("an answer").expect("it was added to");
        let found = u64::from_le_bytes(found.value[..].try_into().expect("eight bytes"));
        assert_eq!(found, additions, "counter {counter}");
        assert_eq!(met.len() as u64, additions, "counter {counter}: two additions have met one value");
    }
    let rounds: u64 = told.iter().map(|told| told.lock().expect("no panic").rounds).sum();
    println!("{rounds} rounds of {} additions acted once", BATCH + 1);
    assert!(rounds > KILLS * WRITERS, "{rounds} rounds of all writers");
}

#[test]
fn writes_act_once_though_their_server_is_killed() {
    kill_again_and_again(1, 21, "durable");
}

#[test]
fn writes_act_once_though_their_server_is_killed_that_acknowledges_in_memory() {
    kill_again_and_again(1, 22, "memory");
}

#[test]
fn writes_act_once_though_nodes_of_their_pool_are_killed() {
    kill_again_and_again(3, 23, "durable");
}

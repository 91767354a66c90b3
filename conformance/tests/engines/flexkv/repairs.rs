//! A new node in the place of a lost one: nothing is lost with the next one, whichever nodes they are. Tables
//! without replicas have lost a part, and are named.

use farsight::{
    ConnectOptions, EngineKind, Options, PoolRepairError, RepairError, RepairProgress, Repaired, ServerUrl,
    Session, TableOptions, ValueKind, WriteError, WriteOutcome,
};
use farsight_base::LINE_BYTES;
use farsight_base::prng::SplitMix64;
use farsight_conformance::engine::harness::Directory;
use farsight_conformance::engine::pool::{Pool, over_shared_memory, over_tcp};

const NODES: usize = 3;
const TABLE_BYTES: u64 = 16 << 20;
const KEYS: u64 = 4_000;
const BATCH: usize = 256;
/// Losses of one batch of puts, each of which leaves open what became of it.
const LOSSES_MAX: usize = 3;
/// Of each so many pairs one is removed before the loss, and one is written without the lost node.
const EVERY: u64 = 7;

fn value(key: u64, round: u64) -> [u8; 8] {
    (key.rotate_left(17) ^ round).to_le_bytes()
}

fn repair(
    pool: &Pool,
    progress: &mut dyn FnMut(RepairProgress<'_>),
) -> Result<Vec<Repaired>, PoolRepairError> {
    farsight::repair(pool.addresses(), &ConnectOptions::default(), progress)
}

fn put(session: &mut Session<u64>, keys: impl Iterator<Item = u64>, round: u64) {
    let entries: Vec<(u64, [u8; 8])> = keys.map(|key| (key, value(key, round))).collect();
    let mut outcomes = Vec::new();
    for entries in entries.chunks(BATCH) {
        let mut put = || session.put_many(entries, &mut outcomes);
        let mut done = put();
        for _ in 0..LOSSES_MAX {
            // Nobody else writes: puts can be repeated.
            let Err(WriteError::Indeterminate { .. }) = done else { break };
            done = put();
        }
        done.expect("puts");
        let failed = outcomes.iter().find(|outcome| matches!(outcome, WriteOutcome::Failed(_)));
        assert_eq!(failed, None);
    }
}

/// All pairs, as they were written: the last of each key, some without the lost node.
fn check(session: &mut Session<u64>, who: &str) {
    for key in 0..KEYS {
        let found = session.get(key).unwrap_or_else(|error| panic!("{who}, key {key}: {error}"));
        let expected = match key % EVERY {
            0 => None,
            1 => Some(value(key, 1)),
            _ => Some(value(key, 0)),
        };
        assert_eq!(
            found.as_ref().map(|entry| &entry.value[..]),
            expected.as_ref().map(|value| &value[..]),
            "{who}, key {key}"
        );
    }
}

/// Writes a pair anew, so that its key has what it had, in other memory.
fn write_alike(session: &mut Session<u64>, key: u64) {
    match key % EVERY {
        0 => {
            put(session, key..=key, 3);
            session.remove(key).expect("a remove");
        }
        1 => put(session, key..=key, 1),
        _ => put(session, key..=key, 0),
    }
}

fn lose_and_repair(url: impl Fn(&Directory, usize) -> ServerUrl, lost: usize, second: usize) {
    let mut pool = Pool::start(NODES, TABLE_BYTES, url);
    let client = pool.connect();
    let options =
        |replicas| TableOptions { engine: Some(EngineKind::FLEXKV), replicas, ..TableOptions::default() };
    let values = ValueKind::Fixed(8);
    let table = client.create_table_of::<u64>("t", values, &options(Some(NODES as u8))).expect("a table");
    client.create_table_of::<u64>("alone", values, &options(None)).expect("a table");
    let mut session = table.session(Options::default()).expect("a session");
    put(&mut session, 0..KEYS, 0);
    for key in (0..KEYS).step_by(EVERY as usize) {
        session.remove(key).expect("a remove");
    }
    assert_eq!(repair(&pool, &mut |_| {}).expect("nothing to do"), []);

    pool.stop(lost);
    put(&mut session, (1..KEYS).step_by(EVERY as usize), 1);
    match repair(&pool, &mut |_| {}) {
        Err(PoolRepairError::Repair(RepairError::NotThere { place, .. })) => assert_eq!(place, lost),
        other => panic!("nobody stands in its place: {other:?}"),
    }
    pool.start_again(lost);
    let (mut heard, mut seed) = (0, SplitMix64::fresh());
    let repaired = repair(&pool, &mut |RepairProgress { place, table, done, of }| {
        assert_eq!((place, table), (lost, "t"));
        assert!(done <= of, "{done} of {of}");
        heard += 1;
        // Others go on until it has the objects that were there.
        if 2 * done < of && done % 8 == 0 {
            write_alike(&mut session, seed.below(KEYS));
        }
    });
    let repaired = repaired.expect("a repair");
    let [Repaired { ahead_bytes, rest_bytes, stood_for, .. }] = repaired[..] else { panic!("{repaired:?}") };
    let [tables, left] = ["t", "alone"].map(|name| vec![name.to_owned()]);
    let expected =
        Repaired { place: lost, tables, ahead_bytes, rest_bytes, stood_for, left, forgets_left: lost == 0 };
    assert_eq!(repaired, [expected]);
    assert!(heard > 0, "nobody heard of progress");
    // An object has a line. The rest is the index: 32 B a pair, and what was written meanwhile.
    let objects_bytes = (KEYS - KEYS / EVERY) * LINE_BYTES as u64 * 9 / 10;
    assert!(ahead_bytes > objects_bytes, "{ahead_bytes} B ahead");
    assert!(rest_bytes < ahead_bytes, "{ahead_bytes} B ahead, {rest_bytes} B behind");
    check(&mut session, "a session from before");
    assert_eq!(repair(&pool, &mut |_| {}).expect("nothing to do"), []);

    // What has lost a part goes everywhere, and tables are made again.
    let newcomer = pool.connect();
    if lost == 0 {
        assert!(newcomer.table::<u64>("alone").is_err(), "no name leads to it");
    } else {
        newcomer.drop_table("alone").expect("its end");
    }
    newcomer.create_table_of::<u64>("later", values, &options(Some(2))).expect("a table");
    for node in pool.nodes() {
        let mut names: Vec<String> =
            node.stats().tables.into_iter().map(|table| table.info.definition.name).collect();
        names.sort_unstable();
        assert_eq!(names, ["later", "t"]);
    }

    pool.stop(second);
    check(&mut session, "a session from before, without another node");
    let table = pool.connect().table::<u64>("t").expect("the table");
    let mut late = table.session(Options::default()).expect("a session");
    check(&mut late, "who comes last");
    put(&mut late, 0..KEYS, 2);
    let found = session.get(KEYS - 1).expect("a GET").expect("its pair");
    assert_eq!(found.value[..], value(KEYS - 1, 2));
}

#[test]
fn the_first_node_over_shared_memory() {
    lose_and_repair(over_shared_memory, 0, 1);
}

#[test]
fn another_node_over_shared_memory() {
    lose_and_repair(over_shared_memory, 1, 0);
}

#[test]
fn the_first_node_over_tcp() {
    lose_and_repair(over_tcp, 0, 2);
}

#[test]
fn another_node_over_tcp() {
    lose_and_repair(over_tcp, 2, 0);
}

//! A learned cache that is left behind by a million inserts, by removals and by reused blocks loses no key.
//!
//! The server of these tests trains when told to, which is once, after the load. So whatever a client fetches
//! is as old as what it has, and every key that moved must be found by siblings or by the server.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use farsight::{Access, Answers, CacheStats, Counters, Options, Pairs, Session, Table};
use farsight_base::prng::{SplitMix64, mix};
use farsight_conformance::engine::Seed;
use farsight_conformance::engine::harness::{Directory, PATIENCE, connect};
use farsight_conformance::engine::raw_table::UntrainedServer;
use farsight_oracles::sets;

const TABLE_BYTES: u64 = 256 << 20;
const BATCH: usize = 512;

fn value_of(key: u64) -> [u8; 8] {
    mix(key).to_le_bytes()
}

fn session(table: &Table<u64>) -> Session<u64> {
    table.session(Options { access: Access::OneSided }).expect("a session")
}

/// Loads `keys`, trains, and returns a session whose cache holds the whole model.
fn load(server: &mut UntrainedServer, socket: &Path, keys: &BTreeSet<u64>) -> Session<u64> {
    let table = connect(socket).create_table::<u64>("t", 8).expect("a table");
    let mut load = table.bulk_load().expect("a load");
    for key in keys {
        load.push(*key, &value_of(*key)).expect("ascending");
    }
    assert_eq!(load.finish().expect("the load"), keys.len() as u64);
    server.train();
    let mut stale = session(&connect(socket).table("t").expect("the table"));
    stale.prefill().expect("the model");
    stale
}

fn insert(session: &mut Session<u64>, keys: &[u64]) {
    let mut outcomes = Vec::new();
    for batch in keys.chunks(BATCH) {
        let pairs: Vec<(u64, [u8; 8])> = batch.iter().map(|key| (*key, value_of(*key))).collect();
        session.put_many(&pairs, &mut outcomes).expect("puts");
        let failed = outcomes.iter().find(|outcome| matches!(outcome, farsight::WriteOutcome::Failed(_)));
        assert_eq!(failed, None);
    }
}

fn remove(session: &mut Session<u64>, keys: &[u64]) {
    let mut outcomes = Vec::new();
    for batch in keys.chunks(BATCH) {
        session.remove_many(batch, &mut outcomes).expect("removes");
        let all_removed =
            outcomes.iter().all(|outcome| matches!(outcome, farsight::WriteOutcome::Removed(_)));
        assert!(all_removed, "{outcomes:?}");
    }
}

/// Every key of `wanted` is found if it is in `present`, and else not.
fn check(session: &mut Session<u64>, wanted: &[u64], present: &BTreeSet<u64>) {
    let mut answers = Answers::default();
    for batch in wanted.chunks(BATCH) {
        session.multi_get(batch, &mut answers).expect("gets");
        for (key, answer) in batch.iter().zip(answers.iter()) {
            let expected = present.contains(key).then(|| value_of(*key));
            assert_eq!(answer.map(|found| found.0), expected.as_ref().map(|value| &value[..]), "key {key}");
        }
    }
}

/// A scan of the whole table, and short ones from anywhere.
fn check_scans(session: &mut Session<u64>, random: &mut SplitMix64, present: &BTreeSet<u64>) {
    let scanned = session.scan(..).map(|pair| pair.expect("a scan").0);
    assert!(scanned.eq(present.iter().copied()), "the whole table, in order");
    let mut pairs = Pairs::default();
    for _ in 0..300 {
        let scans: Vec<(u64, usize)> =
            (0..8).map(|_| (random.next_u64(), random.below(100) as usize)).collect();
        session.scan_batch(&scans, &mut pairs).expect("scans");
        for (index, (from, limit)) in scans.iter().enumerate() {
            let expected = present.range(from..).take(*limit).copied();
            assert!(pairs.scan(index).map(|pair| pair.key).eq(expected), "{limit} pairs from {from}");
        }
    }
}

fn since(session: &Session<u64>, before: Counters) -> (u64, u64, u64) {
    let now = session.counters();
    (
        now.slow_path - before.slow_path,
        now.sibling_steps - before.sibling_steps,
        now.fallbacks - before.fallbacks,
    )
}

/// Random inserts all over, twelve for each key that the model knows.
#[test]
fn a_million_inserts_without_training_lose_no_key() {
    const LOADED: usize = 90_000;
    const INSERTED: usize = 1_100_000;
    let seed = Seed::new("a million inserts without training");
    let directory = Directory::new();
    let socket = directory.file("socket");
    let mut server = UntrainedServer::start(&socket, TABLE_BYTES);
    let mut random = seed.random(0);
    let mut keys: BTreeSet<u64> = sets::uniform(&mut random, LOADED).into_iter().map(|key| key.0).collect();
    keys.extend([0, u64::MAX, (1 << 53) - 1, 1 << 53, (1 << 53) + 1]);
    let mut stale = load(&mut server, &socket, &keys);
    let old: Vec<u64> = keys.iter().copied().collect();
    let start = stale.counters();
    check(&mut stale, &old, &keys);
    assert_eq!(since(&stale, start).2, 0, "fallbacks before the first insert");

    let mut writer = session(&connect(&socket).table("t").expect("the table"));
    let new: Vec<u64> = (0..INSERTED).map(|_| random.next_u64()).collect();
    let mut inserted = 0;
    // Looked at when few leaves have split, when all have, and when chains are long.
    for share in [20, 4, 1] {
        let until = INSERTED / share;
        insert(&mut writer, &new[inserted..until]);
        keys.extend(&new[inserted..until]);
        inserted = until;
        assert!(server.pending() > 0, "the server has nothing to train");
        let before = stale.counters();
        check(&mut stale, &new[..until], &keys);
        check(&mut stale, &old, &keys);
        let (slow_path, siblings, fallbacks) = since(&stale, before);
        println!(
            "after {until} inserts: {slow_path} by slow path, {siblings} sibling steps, {fallbacks} fallbacks"
        );
        assert!(slow_path > until as u64 / 4, "the cache was not stale: {slow_path} by the slow path");
        assert!(share > 1 || siblings > until as u64 / 2, "chains stayed short: {siblings} sibling steps");
        assert!(fallbacks < 1_000, "walks in the process's own memory end: {fallbacks} fallbacks");
        let absent: Vec<u64> = (0..100_000).map(|_| random.next_u64()).collect();
        check(&mut stale, &absent, &keys);
        let neighbours: Vec<u64> = old.iter().step_by(7).map(|key| key.wrapping_add(1)).collect();
        check(&mut stale, &neighbours, &keys);
    }
    check_scans(&mut stale, &mut random, &keys);

    // Once trained, the cache comes back to the straight way.
    server.train();
    stale.prefill().expect("the model");
    let before = stale.counters();
    check(&mut stale, &new, &keys);
    assert_eq!(since(&stale, before).2, 0, "fallbacks with a fresh model");
}

/// Ranges are removed, so their leaves' blocks are reclaimed and come back for other ranges, where keys one
/// apart are inserted: the model's table names leaves that hold other keys.
#[test]
fn reused_blocks_lose_no_key() {
    const LOADED: usize = 60_000;
    let seed = Seed::new("reused blocks");
    let directory = Directory::new();
    let socket = directory.file("socket");
    let mut server = UntrainedServer::start(&socket, TABLE_BYTES);
    let mut random = seed.random(0);
    let mut keys: BTreeSet<u64> = sets::uniform(&mut random, LOADED).into_iter().map(|key| key.0).collect();
    let mut stale = load(&mut server, &socket, &keys);
    let old: Vec<u64> = keys.iter().copied().collect();
    let mut writer = session(&connect(&socket).table("t").expect("the table"));
    let mut touched = old.clone();
    for _ in 0..6 {
        let current: Vec<u64> = keys.iter().copied().collect();
        let start = random.below(current.len() as u64 / 2) as usize;
        let removed = &current[start..start + current.len() / 3];
        remove(&mut writer, removed);
        assert!(removed.iter().all(|key| keys.remove(key)));
        let clusters = sets::clustered(&mut random, 40, 500);
        let clusters: Vec<u64> = clusters.into_iter().map(|key| key.0).collect();
        insert(&mut writer, &clusters);
        keys.extend(&clusters);
        touched.extend(&clusters);
        let before = stale.counters();
        check(&mut stale, &touched, &keys);
        let (slow_path, siblings, fallbacks) = since(&stale, before);
        println!(
            "{} keys: {slow_path} by the slow path, {siblings} sibling steps, {fallbacks} fallbacks",
            keys.len()
        );
        assert!(siblings > 0 && fallbacks > 0, "the cache was not stale: {siblings}, {fallbacks}");
        check_scans(&mut stale, &mut random, &keys);
    }
}

/// A leaf in ten is split, of which a session's cache knows nothing. Its scan of all leaves READs each new
/// one alone, when it comes there, and keeps what it has in flight.
#[test]
fn a_scan_keeps_what_it_has_in_flight_beside_leaves_that_it_does_not_know() {
    const LOADED: usize = 20_000;
    const KEYS_PER_SPLIT: usize = 120;
    let seed = Seed::new("scans beside splits");
    let directory = Directory::new();
    let socket = directory.file("socket");
    let mut server = UntrainedServer::start(&socket, TABLE_BYTES);
    let mut random = seed.random(0);
    let mut keys: BTreeSet<u64> =
        sets::uniform(&mut random, LOADED).into_iter().map(|key| key.0 & !0xff).collect();
    let mut stale = load(&mut server, &socket, &keys);
    let leaves = |keys: &BTreeSet<u64>| keys.len().div_ceil(12) as u64;
    let known = leaves(&keys);
    let new: Vec<u64> =
        keys.iter().step_by(KEYS_PER_SPLIT).flat_map(|key| (1..9).map(move |more| key + more)).collect();
    insert(&mut session(&connect(&socket).table("t").expect("the table")), &new);
    keys.extend(&new);

    let (meters, counters) = (stale.meters(), stale.counters());
    let mut pairs = Pairs::default();
    stale.scan_batch(&[(0, usize::MAX)], &mut pairs).expect("a scan");
    assert!(pairs.scan(0).map(|pair| pair.key).eq(keys.iter().copied()), "the whole table, in order");
    let (used, siblings) = (stale.meters() - meters, stale.counters().sibling_steps - counters.sibling_steps);
    println!("{known} leaves known, {siblings} siblings, {used:?}");
    let splits = (LOADED / KEYS_PER_SPLIT) as u64;
    assert!(siblings >= splits * 9 / 10, "the cache was not stale: {siblings} siblings of {splits}");
    assert!(used.reads <= known + siblings + known / 20, "{used:?}");
    assert!(used.doorbells <= siblings + known / 127 + 4 && used.calls <= 1, "{used:?}");
}

/// Two keys between each of `keys` and the next. Each leaf of the load gets twice what it has and is split
/// into a few. So no chain that grows from one is longer than a walk's bound, which random keys reach now and
/// then.
fn two_between_each(keys: &BTreeSet<u64>) -> Vec<u64> {
    let thirds = |(left, right): (&u64, &u64)| {
        let third = (right - left) / 3;
        assert!(third > 0, "no room between {left} and {right}");
        [left + third, right - third]
    };
    keys.iter().zip(keys.iter().skip(1)).flat_map(thirds).collect()
}

/// The table triples and is trained anew. A session finds every key by the generation before until the new
/// one's sub-models are there; then nothing is left of the one before.
#[test]
fn a_new_generation_is_fetched_without_a_fall_back() {
    const LOADED: usize = 40_000;
    let seed = Seed::new("a new generation");
    let directory = Directory::new();
    let socket = directory.file("socket");
    let mut server = UntrainedServer::start(&socket, TABLE_BYTES);
    let mut random = seed.random(0);
    // Far enough apart for two keys between any two.
    let mut keys: BTreeSet<u64> =
        sets::uniform(&mut random, LOADED).into_iter().map(|key| key.0 & !0xff).collect();
    drop(load(&mut server, &socket, &keys));
    let table = connect(&socket).table("t").expect("the table");
    let mut stale = session(&table);
    stale.prefill().expect("the model");
    let first = table.cache_stats();
    let mut writer = session(&connect(&socket).table("t").expect("the table"));
    let new = two_between_each(&keys);
    insert(&mut writer, &new);
    keys.extend(&new);
    let all: Vec<u64> = keys.iter().copied().collect();
    // However long the generation before is used below: by it each key is found within a walk's bound.
    let start = stale.counters();
    check(&mut stale, &all, &keys);
    assert_eq!(since(&stale, start).2, 0, "fallbacks by the generation before");
    server.train();

    let start = stale.counters();
    let is_fetched = |stats: &CacheStats| {
        stats.generation > first.generation && stats.sub_models_filled == stats.sub_models
    };
    let begun = Instant::now();
    while !is_fetched(&table.cache_stats()) {
        assert!(begun.elapsed() < PATIENCE, "{first:?}, and after {PATIENCE:?} {:?}", table.cache_stats());
        let wanted: Vec<u64> = (0..20_000).map(|_| all[random.below(all.len() as u64) as usize]).collect();
        check(&mut stale, &wanted, &keys);
    }
    check_scans(&mut stale, &mut random, &keys);
    let (slow_path, siblings, fallbacks) = since(&stale, start);
    println!("{slow_path} by the slow path, {siblings} sibling steps, {fallbacks} fallbacks");
    assert!(siblings > 0, "the cache was not stale");
    assert_eq!(fallbacks, 0);
    let other = connect(&socket).table("t").expect("the table");
    session(&other).prefill().expect("the model");
    let (kept, fresh) = (table.cache_stats(), other.cache_stats());
    assert!(fresh.sub_models > first.sub_models, "{first:?}, {fresh:?}");
    // What lies free between blocks depends on how they came.
    let kept_alike = CacheStats { memory_bytes: fresh.memory_bytes, ..kept };
    assert_eq!(kept_alike, fresh, "nothing is left of the generation before");
    assert!(kept.memory_bytes < fresh.memory_bytes + fresh.memory_bytes / 10, "{kept:?}, {fresh:?}");
}

//! Bulk loads of values of any length by the facade: long ones, by each address, and over two nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use farsight::{
    EngineKind, Lifetime, LoadError, Options, Table, TableOptions, ValueKind, WriteOutcome, with_causes,
};
use farsight_base::prng::SplitMix64;

use crate::long_values::{self, value};
use crate::store::TestStore;

const MEMORY_BYTES: u64 = 128 << 20;
const HOUR_MS: u64 = 3_600_000;

/// Pairs of which some do not fit into a message.
fn pairs(rng: &mut SplitMix64) -> BTreeMap<u64, Vec<u8>> {
    let cluster = rng.next_u64();
    let edges = [0, 1, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX - 1, u64::MAX];
    let mut pairs: BTreeMap<u64, Vec<u8>> = (0..1_500)
        .map(|index| {
            let key = if rng.below(2) == 0 { rng.next_u64() } else { cluster.wrapping_add(index) };
            let bytes = if rng.below(60) == 0 { long_values::length(rng) } else { rng.below(300) as usize };
            (key, value(rng, bytes))
        })
        .collect();
    for edge in edges {
        let bytes = rng.below(200_000) as usize;
        pairs.insert(edge, value(rng, bytes));
    }
    pairs
}

fn load(table: &Table<u64>, pairs: &BTreeMap<u64, Vec<u8>>) -> Result<u64, LoadError> {
    let mut load = table.bulk_load().expect("a load");
    for (key, value) in pairs {
        load.push(*key, value)?;
    }
    load.finish()
}

fn check(table: &Table<u64>, pairs: &BTreeMap<u64, Vec<u8>>) {
    let mut session = table.session(Options::default()).expect("a session");
    let found = session.scan(..).map(|pair| pair.expect("a pair"));
    let mut expected = pairs.iter();
    for (key, entry) in found {
        let (wanted, value) = expected.next().expect("no more pairs than were loaded");
        assert!(key == *wanted && entry.value == *value, "key {key}, expected {wanted}, {} B", value.len());
    }
    assert_eq!(expected.next(), None);
    let mut got = Vec::new();
    for (key, value) in pairs.iter().step_by(7) {
        let is_there = session.get_vec(*key, &mut got).expect("an answer").is_some();
        assert!(is_there && got == *value, "key {key}");
    }
}

/// A server by each of its addresses, or a pool.
fn a_load_shows_all_its_pairs_at_once(engine: &'static EngineKind) {
    let mut rng = SplitMix64::fresh();
    let store = TestStore::start(engine, MEMORY_BYTES);
    let client = store.connect();
    for values in [ValueKind::BLOCKS, ValueKind::BLOCKS.expiring(HOUR_MS)] {
        let options = TableOptions { engine: Some(engine), ..TableOptions::default() };
        let name = format!("t{}", values.deadline_bytes());
        let table = client.create_table_of::<u64>(&name, values, &options).expect("a table");
        let pairs = pairs(&mut rng);
        // One that nobody finishes leaves the table as it was.
        let mut left = table.bulk_load().expect("a load");
        for (key, value) in pairs.iter().take(700) {
            left.push(*key, value).expect("a pair");
        }
        assert_eq!(table.session(Options::default()).expect("a session").count(..).expect("a count"), 0);
        drop(left);
        assert_eq!(load(&table, &pairs).expect("the load"), pairs.len() as u64);
        check(&table, &pairs);
        let mut session = table.session(Options::default()).expect("a session");
        if values.expiry().is_some() {
            let found = session.time_to_live(u64::MAX).expect("an answer");
            let hour = Duration::from_millis(HOUR_MS);
            assert!(
                matches!(found, Some(Lifetime::For(left)) if left > hour / 2 && left <= hour),
                "{found:?}"
            );
        }
        let refused = with_causes(&load(&table, &pairs).expect_err("the table has pairs"));
        assert!(refused.contains("a bulk load needs a tree that is empty"), "{refused}");
        // What was loaded is written as any other pair.
        assert!(matches!(session.put(0, b"new").expect("a put"), WriteOutcome::Replaced(_)));
        let mut pairs = pairs;
        pairs.insert(0, b"new".to_vec());
        check(&table, &pairs);
        client.drop_table(&name).expect("dropped");
    }
}

#[test]
fn a_load_shows_all_its_pairs_at_once_on_xstore() {
    a_load_shows_all_its_pairs_at_once(EngineKind::XSTORE);
}

#[test]
fn a_load_shows_all_its_pairs_at_once_on_xstore_d() {
    a_load_shows_all_its_pairs_at_once(EngineKind::XSTORE_D);
}

#[test]
fn each_address_takes_a_load() {
    let mut rng = SplitMix64::fresh();
    let directory = tempfile::tempdir().expect("a directory");
    let server = long_values::start(&directory);
    let pairs = pairs(&mut rng);
    for (index, url) in server.urls().iter().enumerate() {
        let client = farsight::Client::connect(url).expect("a client");
        let name = format!("t{index}");
        let options = TableOptions::default();
        let table = client.create_table_of::<u64>(&name, ValueKind::BLOCKS, &options).expect("a table");
        load(&table, &pairs).expect("the load");
        check(&table, &pairs);
        client.drop_table(&name).expect("dropped");
    }
    server.shutdown().expect("it stops");
}

#[test]
fn pairs_that_may_not_follow_are_refused_by_name() {
    let store = TestStore::start(EngineKind::XSTORE, MEMORY_BYTES);
    let options = TableOptions::default();
    let values = ValueKind::blocks(1_000);
    let table = store.connect().create_table_of::<u64>("t", values, &options).expect("a table");
    let mut load = table.bulk_load().expect("a load");
    load.push(5, b"five").expect("a pair");
    let refused = load.push(5, b"five").expect_err("the same key");
    assert!(matches!(refused, LoadError::NotAscending { index: 1, previous: 5, key: 5 }), "{refused:?}");
    let refused = load.push(6, &[0; 1_001]).expect_err("too long");
    assert!(matches!(refused, LoadError::WrongValueSize { index: 1, got_bytes: 1_001, .. }), "{refused:?}");
    load.push(6, &[0; 1_000]).expect("the longest");
    assert_eq!(load.finish().expect("the load"), 2);
}

//! Every operation of the facade against `BTreeMap`, for each kind of key, each access and each engine, in
//! one process with an embedded server or memory nodes.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::{Duration, Instant};

use crate::server::TestServer;
use crate::store::{TestStore, on_every_engine};
use farsight::{Access, Answers, EngineKind, Key, Neighbour, Options, Pairs, Session, Table, WriteOutcome};
use farsight_base::prng::SplitMix64;

const MEMORY_BYTES: u64 = 32 << 20;

/// What a session should hold: encoded keys, so that every kind has an order.
type Model = BTreeMap<u64, Vec<u8>>;

fn random_value(random: &mut SplitMix64, value_bytes: usize) -> Vec<u8> {
    (0..value_bytes).map(|_| random.next_u64() as u8).collect()
}

/// A key from a small set, so that operations meet: the ends of the order, a dense run, and far apart ones.
fn random_key<K: Key>(random: &mut SplitMix64) -> K {
    K::decode(match random.below(4) {
        0 => random.below(3),
        1 => u64::MAX - random.below(3),
        2 => (1 << 63) - 100 + random.below(200),
        _ => random.below(64) << 58,
    })
}

fn bounds<K: Key>(random: &mut SplitMix64) -> (Bound<K>, Bound<K>) {
    let mut one = || match random.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(random_key(random)),
        _ => Bound::Excluded(random_key(random)),
    };
    (one(), one())
}

fn lies_within<K: Key>(range: (Bound<K>, Bound<K>), key: u64) -> bool {
    let above = match range.0 {
        Bound::Unbounded => true,
        Bound::Included(from) => key >= from.encode(),
        Bound::Excluded(from) => key > from.encode(),
    };
    let below = match range.1 {
        Bound::Unbounded => true,
        Bound::Included(to) => key <= to.encode(),
        Bound::Excluded(to) => key < to.encode(),
    };
    above && below
}

fn write_one<K: Key>(session: &mut Session<K>, model: &mut Model, random: &mut SplitMix64) {
    let key: K = random_key(random);
    let value = random_value(random, session.value_bytes());
    let present = model.contains_key(&key.encode());
    let outcome = match random.below(4) {
        0 => session.insert(key, &value),
        1 => session.update(key, &value),
        2 => session.put(key, &value),
        _ => session.remove(key),
    };
    match outcome.expect("a write succeeds") {
        WriteOutcome::Inserted(_) => assert!(!present && model.insert(key.encode(), value).is_none()),
        WriteOutcome::Replaced(_) => assert!(present && model.insert(key.encode(), value).is_some()),
        WriteOutcome::Removed(_) => assert!(present && model.remove(&key.encode()).is_some()),
        WriteOutcome::Exists(_) => assert!(present),
        WriteOutcome::Absent => assert!(!present),
        other @ (WriteOutcome::Differs(_) | WriteOutcome::Failed(_)) => {
            panic!("a single write returned {other:?} as an outcome")
        }
    }
}

fn check_reads<K: Key>(session: &mut Session<K>, model: &Model, random: &mut SplitMix64) {
    let keys: Vec<K> = (0..130).map(|_| random_key(random)).collect();
    let mut answers = Answers::default();
    session.multi_get(&keys, &mut answers).unwrap();
    assert_eq!(answers.len(), keys.len());
    for (key, answer) in keys.iter().zip(answers.iter()) {
        let expected = model.get(&key.encode()).map(Vec::as_slice);
        assert_eq!(answer.map(|(value, _)| value), expected);
        let single = session.get(*key).unwrap();
        assert_eq!(single.as_ref().map(|entry| &entry.value[..]), expected);
        assert_eq!(single.map(|entry| entry.version), answer.map(|(_, version)| version));
    }

    let range = bounds::<K>(random);
    let found: Vec<_> = session
        .scan(range)
        .map(|pair| pair.map(|(key, entry)| (key.encode(), entry.value.into_vec())).unwrap())
        .collect();
    let expected: Vec<_> = model
        .iter()
        .filter(|(key, _)| lies_within(range, **key))
        .map(|(key, value)| (*key, value.clone()))
        .collect();
    assert_eq!(found, expected);

    let down: Vec<_> = session.scan_descending(range).map(|pair| pair.unwrap().0.encode()).collect();
    assert!(down.iter().rev().eq(found.iter().map(|(key, _)| key)));
    let keys_up: Vec<_> = session.keys(range).map(|key| key.unwrap().encode()).collect();
    assert!(keys_up.iter().eq(found.iter().map(|(key, _)| key)));
    assert!(session.keys_descending(range).map(|key| key.unwrap().encode()).eq(down));
    assert_eq!(session.count(range).unwrap(), found.len() as u64);
    check_neighbours(session, model, &keys);

    let scans: Vec<(K, usize)> = (0..20).map(|_| (random_key(random), random.below(40) as usize)).collect();
    let mut pairs = Pairs::default();
    session.scan_batch(&scans, &mut pairs).unwrap();
    assert_eq!(pairs.scans(), scans.len());
    for (index, (from, limit)) in scans.iter().enumerate() {
        let found: Vec<_> = pairs.scan(index).map(|pair| (pair.key.encode(), pair.value)).collect();
        let expected: Vec<_> =
            model.range(from.encode()..).take(*limit).map(|(key, value)| (*key, &value[..])).collect();
        assert_eq!(found, expected, "a scan of {limit}");
    }
}

fn check_neighbours<K: Key>(session: &mut Session<K>, model: &Model, keys: &[K]) {
    let expected = |which: Neighbour, key: u64| match which {
        Neighbour::Lower => model.range(..key).next_back(),
        Neighbour::Floor => model.range(..=key).next_back(),
        Neighbour::Ceiling => model.range(key..).next(),
        Neighbour::Higher => model.range((Bound::Excluded(key), Bound::Unbounded)).next(),
    };
    let mut pairs = Pairs::default();
    for which in Neighbour::ALL {
        session.neighbours(which, keys, &mut pairs).unwrap();
        assert_eq!(pairs.scans(), keys.len());
        for (index, key) in keys.iter().enumerate() {
            let found = pairs.scan(index).next().map(|pair| (pair.key.encode(), pair.value));
            let expected = expected(which, key.encode()).map(|(key, value)| (*key, &value[..]));
            assert_eq!(found, expected, "{which:?} of {}", key.encode());
        }
    }
    for key in &keys[..5] {
        let singles = [session.lower(*key), session.floor(*key), session.ceiling(*key), session.higher(*key)];
        for (which, single) in Neighbour::ALL.into_iter().zip(singles) {
            let single = single.unwrap().map(|(key, entry)| (key.encode(), entry.value.into_vec()));
            let expected = expected(which, key.encode()).map(|(key, value)| (*key, value.clone()));
            assert_eq!(single, expected, "{which:?} of {}", key.encode());
        }
    }
    let ends = [session.first().unwrap(), session.last().unwrap()];
    let ends = ends.map(|pair| pair.map(|(key, _)| key.encode()));
    assert_eq!(ends, [model.first_key_value(), model.last_key_value()].map(|pair| pair.map(|(key, _)| *key)));
}

fn check<K: Key>(engine: &'static EngineKind, value_bytes: usize, access: Access, seed: u64) {
    let store = TestStore::start(engine, MEMORY_BYTES);
    let table = store.create_table::<K>("t", value_bytes);
    let mut session = table.session(Options { access }).unwrap();
    let mut random = SplitMix64::new(seed);
    let mut model = Model::new();
    for _ in 0..40 {
        for _ in 0..50 {
            write_one(&mut session, &mut model, &mut random);
        }
        check_reads(&mut session, &model, &mut random);
    }
    assert!(model.len() > 100, "the run has stored too little to say anything");
}

fn integers_one_sided(engine: &'static EngineKind) {
    check::<u64>(engine, 8, Access::OneSided, 1);
}

#[test]
fn integers_by_calls() {
    check::<u64>(EngineKind::XSTORE, 8, Access::Rpc, 2);
}

fn signed_integers(engine: &'static EngineKind) {
    check::<i64>(engine, 24, Access::OneSided, 3);
}

fn floats(engine: &'static EngineKind) {
    check::<f64>(engine, 256, Access::OneSided, 4);
}

fn eight_bytes(engine: &'static EngineKind) {
    check::<[u8; 8]>(engine, 13, Access::Rpc, 5);
}

on_every_engine!(
    integers_one_sided,
    signed_integers,
    floats,
    eight_bytes,
    a_long_scan_pages_through_the_table,
    pairs_written_between_two_pages_are_found_once,
    batches_longer_than_any_window_keep_their_order,
    versions_grow_and_survive_removal,
);

/// Long enough for several pages of every size and for many leaves.
const MANY: u64 = 30_000;

fn filled(table: Table<u64>) -> Table<u64> {
    let mut load = table.bulk_load().unwrap();
    for key in 0..MANY {
        load.push(3 * key, &key.to_le_bytes()).unwrap();
    }
    assert_eq!(load.finish().unwrap(), MANY);
    table
}

fn a_long_scan_pages_through_the_table(engine: &'static EngineKind) {
    let store = TestStore::start(engine, MEMORY_BYTES);
    let table = filled(store.create_table("many", 8));
    for access in [Access::OneSided, Access::Rpc] {
        let mut session = table.session(Options { access }).unwrap();
        let mut expected = 0u64;
        for pair in session.scan(..) {
            let (key, entry) = pair.unwrap();
            assert_eq!((key, entry.value.into_vec()), (3 * expected, expected.to_le_bytes().to_vec()));
            expected += 1;
        }
        assert_eq!(expected, MANY);
        assert_eq!(session.scan(3 * MANY..).count(), 0, "past the end");
        assert_eq!(session.scan(30..=60).count(), 11);
        assert_eq!(session.scan(31..33).count(), 0);
    }
}

fn pairs_written_between_two_pages_are_found_once(engine: &'static EngineKind) {
    let store = TestStore::start(engine, MEMORY_BYTES);
    let table = filled(store.create_table("many", 8));
    let mut writer = table.session(Options::default()).unwrap();
    let mut reader = table.session(Options::default()).unwrap();
    let mut scan = reader.scan(..);
    assert_eq!(scan.next().unwrap().unwrap().0, 0);
    // Behind the first page, so the scan has yet to come there.
    let late: Vec<(u64, [u8; 8])> = (MANY / 2..MANY / 2 + 1000).map(|key| (3 * key + 1, [7; 8])).collect();
    let mut outcomes = Vec::new();
    writer.insert_many(&late, &mut outcomes).unwrap();
    assert!(outcomes.iter().all(|outcome| matches!(outcome, WriteOutcome::Inserted(_))));
    let keys: Vec<u64> = scan.map(|pair| pair.unwrap().0).collect();
    assert!(keys.is_sorted_by(|a, b| a < b));
    assert_eq!(keys.len() as u64 + 1, MANY + 1000);
}

fn batches_longer_than_any_window_keep_their_order(engine: &'static EngineKind) {
    let store = TestStore::start(engine, MEMORY_BYTES);
    let table = store.create_table::<u64>("t", 8);
    let mut session = table.session(Options::default()).unwrap();
    let pairs: Vec<(u64, [u8; 8])> = (0..5000u64).map(|key| (key * 7919 % 5000, key.to_le_bytes())).collect();
    let mut outcomes = Vec::new();
    session.put_many(&pairs, &mut outcomes).unwrap();
    assert_eq!(outcomes.len(), pairs.len());
    assert!(outcomes.iter().all(|outcome| matches!(outcome, WriteOutcome::Inserted(_))));

    // Every second key again, and keys that are not there: outcomes tell them apart in order.
    let updates: Vec<(u64, [u8; 8])> = (0..3000u64).map(|key| (2 * key, [9; 8])).collect();
    session.update_many(&updates, &mut outcomes).unwrap();
    for ((key, _), outcome) in updates.iter().zip(&outcomes) {
        assert_eq!(matches!(outcome, WriteOutcome::Replaced(_)), *key < 5000, "key {key}");
        assert_eq!(matches!(outcome, WriteOutcome::Absent), *key >= 5000, "key {key}");
    }

    let keys: Vec<u64> = (0..5000).collect();
    session.remove_many(&keys, &mut outcomes).unwrap();
    assert!(outcomes.iter().all(|outcome| matches!(outcome, WriteOutcome::Removed(_))));
    assert_eq!(session.scan(..).count(), 0);
    session.put_many::<[u8; 8]>(&[], &mut outcomes).unwrap();
    assert!(outcomes.is_empty());
}

fn versions_grow_and_survive_removal(engine: &'static EngineKind) {
    let store = TestStore::start(engine, MEMORY_BYTES);
    let table = store.create_table::<i64>("t", 8);
    let mut session = table.session(Options::default()).unwrap();
    let mut last = 0;
    for _ in 0..10 {
        session.put(-1, b"whatever").unwrap();
        let version = session.get(-1).unwrap().unwrap().version;
        assert!(version > last);
        last = version;
        assert_eq!(session.remove(-1).unwrap(), WriteOutcome::Removed(last));
    }
}

/// A load is trained on in the background; before that the model is that of the empty table.
fn wait_until_trained(server: &TestServer) {
    let begun = Instant::now();
    let is_trained = || {
        let model = server.server.stats().tables[0].part().model;
        model.sub_models > 1 && model.pending == 0
    };
    while !is_trained() {
        assert!(begun.elapsed() < Duration::from_secs(60), "training does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn sessions_share_one_cache_and_threads_one_client() {
    let server = TestServer::start(MEMORY_BYTES);
    let table = filled(server.connect().create_table("many", 8).unwrap());
    wait_until_trained(&server);
    let mut first = table.session(Options::default()).unwrap();
    first.prefill().unwrap();
    let stats = table.cache_stats();
    assert!(stats.sub_models > 0 && stats.sub_models == stats.sub_models_filled, "{stats:?}");
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let table = table.clone();
            scope.spawn(move || {
                let mut session = table.session(Options::default()).unwrap();
                let keys: Vec<u64> = (0..MANY).filter(|key| key % 2 == thread).map(|key| 3 * key).collect();
                let mut answers = Answers::default();
                session.multi_get(&keys, &mut answers).unwrap();
                for (key, answer) in keys.iter().zip(answers.iter()) {
                    assert_eq!(answer.unwrap().0, (key / 3).to_le_bytes());
                }
                let counters = session.counters();
                assert_eq!((counters.gets, counters.sub_models_fetched), (keys.len() as u64, 0));
                assert!(session.meters().reads > 0);
            });
        }
    });
}

/// Keys of values of any length are read without the values.
#[test]
fn keys_alone_cost_no_blocks() {
    const VALUE_BYTES: usize = 2_000;
    let store = TestStore::start(EngineKind::XSTORE, MEMORY_BYTES);
    let table = store.connect().create_blocks_table::<u64>("t").unwrap();
    let mut session = table.session(Options::default()).unwrap();
    for key in 0..1_000 {
        session.put(key, &[7; VALUE_BYTES]).unwrap();
    }
    let read_bytes = |session: &mut Session<u64>, scan: &dyn Fn(&mut Session<u64>) -> usize| {
        let before = session.meters().read_bytes;
        assert_eq!(scan(session), 1_000);
        (session.meters().read_bytes - before) as usize
    };
    for _ in 0..2 {
        let of_keys = read_bytes(&mut session, &|session| session.keys(..).count());
        let of_pairs = read_bytes(&mut session, &|session| session.scan(..).count());
        assert!(of_pairs > 1_000 * VALUE_BYTES && of_keys < of_pairs / 10, "{of_keys} B, {of_pairs} B");
    }
    assert_eq!(session.count(250..).unwrap(), 750);
    assert!(session.keys_descending(..3).map(Result::unwrap).eq([2, 1, 0]));
}

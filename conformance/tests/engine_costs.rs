//! The prices of docs/costs.md, read off the meters.

use farsight::{Access, Answers, Counters, Meters, OpenError, Options, Pairs, Session, Table, WriteOutcome};
use farsight_base::prng::mix;
use farsight_conformance::engine::harness::{XStore, await_training};
use farsight_conformance::engine::{Seed, key_sets};

const KEYS: usize = 200_000;
const BATCH: usize = 64;
const KEY_PART_BYTES: u64 = 192;
const LINE_BYTES: u64 = 64;

struct Loaded {
    server: XStore,
    table: Table<u64>,
    keys: Vec<u64>,
    seed: Seed,
}

/// A table of `count` uniform keys, loaded, trained and at rest.
fn load(test: &str, count: usize, value_bytes: usize) -> Loaded {
    let seed = Seed::new(test);
    let server = XStore::start(1 << 30, 1);
    let keys = key_sets::uniform(&mut seed.random(0), count);
    let client = server.connect();
    let table = client.create_table::<u64>("t", value_bytes).expect("a table");
    let mut load = table.bulk_load().expect("a load");
    let mut value = vec![0; value_bytes];
    for key in &keys {
        value[..8].copy_from_slice(&mix(*key).to_le_bytes());
        load.push(*key, &value).expect("ascending");
    }
    load.finish().expect("the load");
    await_training(&client);
    Loaded { server, table, keys, seed }
}

impl Loaded {
    fn session(&self) -> Result<Session<u64>, OpenError> {
        self.table.session(Options { access: Access::OneSided })
    }

    /// A session whose process has the whole model.
    fn warm(&self) -> Session<u64> {
        let mut session = self.session().expect("a session");
        session.prefill().expect("the model");
        session
    }

    /// `count` keys of the table, anywhere.
    fn some(&self, count: usize) -> Vec<u64> {
        let mut random = self.seed.random(1);
        (0..count).map(|_| self.keys[random.below(self.keys.len() as u64) as usize]).collect()
    }
}

/// What `body` cost.
fn cost(session: &mut Session<u64>, body: impl FnOnce(&mut Session<u64>)) -> (Meters, Counters) {
    let (meters, counters) = (session.meters(), session.counters());
    body(session);
    let now = session.counters();
    let counters = Counters {
        fallbacks: now.fallbacks - counters.fallbacks,
        irregular: now.irregular - counters.irregular,
        sub_models_fetched: now.sub_models_fetched - counters.sub_models_fetched,
        ..Counters::default()
    };
    (session.meters() - meters, counters)
}

fn get_all(session: &mut Session<u64>, keys: &[u64], are_present: bool) {
    let mut answers = Answers::default();
    for batch in keys.chunks(BATCH) {
        session.multi_get(batch, &mut answers).expect("gets");
        assert!(answers.iter().all(|answer| answer.is_some() == are_present), "present or absent, as asked");
    }
}

fn per(total: u64, operations: usize) -> f64 {
    total as f64 / operations as f64
}

#[test]
fn a_get_is_two_reads_and_no_call() {
    let loaded = load("a get is two reads", KEYS, 8);
    let mut session = loaded.warm();
    let keys = loaded.some(KEYS);
    let operations = loaded.server.server().stats().operations;
    let (meters, counters) = cost(&mut session, |session| get_all(session, &keys, true));
    println!("{meters:?} {counters:?}");
    let reads = per(meters.reads, KEYS);
    assert!((2.0..=2.05).contains(&reads), "{reads} READs a GET");
    let bytes = per(meters.read_bytes, KEYS);
    let expected = (KEY_PART_BYTES + LINE_BYTES) as f64;
    assert!((expected..=expected * 1.025).contains(&bytes), "{bytes} B a GET");
    assert_eq!((meters.calls, meters.writes, meters.atomics), (0, 0, 0), "{meters:?}");
    assert_eq!((counters.fallbacks, counters.sub_models_fetched), (0, 0), "{counters:?}");
    let doorbells = per(meters.doorbells, KEYS.div_ceil(BATCH));
    // A batch in which hints tie rings again for the READs that follow: two more, or four.
    assert!((2.0..=2.5).contains(&doorbells), "{doorbells} doorbells a batch");
    assert_eq!(loaded.server.server().stats().operations, operations, "the server worked");
}

#[test]
fn a_batch_without_ties_rings_twice() {
    let loaded = load("a batch without ties", KEYS, 8);
    let mut session = loaded.warm();
    let mut straight = 0;
    for batch in loaded.some(1_000 * BATCH).chunks(BATCH) {
        let (meters, counters) = cost(&mut session, |session| get_all(session, batch, true));
        if counters.irregular == 0 {
            straight += 1;
            assert_eq!((meters.doorbells, meters.reads), (2, 2 * BATCH as u64), "{meters:?}");
        }
    }
    assert!(straight > 700, "only {straight} of 1,000 batches came out at first try");
}

#[test]
fn a_proved_miss_is_one_read() {
    let loaded = load("a proved miss", KEYS, 8);
    let mut session = loaded.warm();
    let absent: Vec<u64> = loaded.some(KEYS).into_iter().map(|key| key ^ 1).collect();
    let absent: Vec<u64> = absent.into_iter().filter(|key| loaded.keys.binary_search(key).is_err()).collect();
    let (meters, counters) = cost(&mut session, |session| get_all(session, &absent, false));
    println!("{meters:?} {counters:?}");
    let reads = per(meters.reads, absent.len());
    assert!((1.0..=1.05).contains(&reads), "{reads} READs a miss");
    assert_eq!((meters.calls, counters.fallbacks), (0, 0));
    assert!(meters.read_bytes == meters.reads * KEY_PART_BYTES, "{meters:?}");
}

#[test]
fn long_values_are_still_two_reads() {
    // One row for each number of lines that a value can have.
    for (value_bytes, lines) in [(16, 1), (48, 1), (49, 2), (105, 3), (161, 4), (256, 5)] {
        let loaded = load("long values", 5_000, value_bytes);
        let mut session = loaded.warm();
        let keys = loaded.some(20_000);
        let (meters, _) = cost(&mut session, |session| get_all(session, &keys, true));
        let reads = per(meters.reads, keys.len());
        assert!((2.0..=2.05).contains(&reads), "{reads} READs a GET of {value_bytes} B");
        let key_parts = meters.reads - keys.len() as u64;
        let expected = key_parts * KEY_PART_BYTES + keys.len() as u64 * lines * LINE_BYTES;
        assert_eq!(meters.read_bytes, expected, "bytes of GETs of {value_bytes} B");
        assert_eq!(meters.calls, 0);
    }
}

#[test]
fn a_single_get_of_a_short_value_is_one_read() {
    // Value bytes, READs a GET, lines a GET: a leaf of up to eleven lines is fetched whole.
    for (value_bytes, reads, lines) in [(8, 1, 7), (16, 1, 11), (17, 2, 4), (49, 2, 5), (256, 2, 8)] {
        let loaded = load("single gets", 5_000, value_bytes);
        let mut session = loaded.warm();
        let keys = loaded.some(20_000);
        let mut value = vec![0; value_bytes];
        let mut straight = 0;
        let (all, _) = cost(&mut session, |session| {
            for key in keys {
                let (meters, counters) = cost(session, |session| {
                    session.get_into(key, &mut value).expect("a get").expect("every key is stored");
                });
                assert_eq!(value[..8], mix(key).to_le_bytes(), "the value of {key}");
                if counters.irregular == 0 {
                    straight += 1;
                    let expected = Meters {
                        reads,
                        read_bytes: lines * LINE_BYTES,
                        doorbells: reads,
                        ..Meters::default()
                    };
                    assert_eq!(meters, expected, "a GET of {value_bytes} B");
                }
            }
        });
        assert!(straight > 19_500, "{straight} of 20,000 GETs of {value_bytes} B came out at first try");
        assert_eq!(all.calls, 0);
    }
}

#[test]
fn a_get_costs_the_same_at_ten_times_the_keys() {
    let costs = [20_000, 200_000].map(|count| {
        let loaded = load("ten times the keys", count, 8);
        let mut session = loaded.warm();
        let keys = loaded.some(100_000);
        let (meters, _) = cost(&mut session, |session| get_all(session, &keys, true));
        (per(meters.reads, keys.len()), per(meters.read_bytes, keys.len()))
    });
    println!("{costs:?}");
    let [(few_reads, few_bytes), (many_reads, many_bytes)] = costs;
    assert!((few_reads - many_reads).abs() < 0.02, "{costs:?}");
    assert!((few_bytes - many_bytes).abs() < 4.0, "{costs:?}");
}

#[test]
fn a_scan_reads_its_leaves_in_one_doorbell() {
    const LEAF_BYTES: u64 = 448;
    const SCANS: usize = 4_000;
    const GROUP: usize = 8;
    let loaded = load("scans", KEYS, 8);
    let mut session = loaded.warm();
    let mut random = loaded.seed.random(2);
    let mut leaves_planned = 0;
    let (meters, counters) = cost(&mut session, |session| {
        let mut pairs = Pairs::default();
        for group in loaded.some(SCANS).chunks(GROUP) {
            let scans: Vec<(u64, usize)> =
                group.iter().map(|from| (*from, 1 + random.below(100) as usize)).collect();
            leaves_planned += scans.iter().map(|scan| scan.1.div_ceil(12) as u64 + 1).sum::<u64>();
            session.scan_batch(&scans, &mut pairs).expect("scans");
        }
    });
    println!("{meters:?} {counters:?}, {leaves_planned} leaves planned");
    assert_eq!((meters.calls, counters.fallbacks), (0, 0));
    assert_eq!(meters.read_bytes, meters.reads * LEAF_BYTES);
    // At the table's end fewer leaves stand than were planned; where hints tie, one is not enough.
    assert!(meters.reads as f64 <= 1.02 * leaves_planned as f64, "{} READs", meters.reads);
    let doorbells = per(meters.doorbells, SCANS / GROUP);
    assert!((1.0..=1.2).contains(&doorbells), "{doorbells} doorbells a group of {GROUP} scans");
}

#[test]
fn writes_are_one_call_for_128_entries() {
    const WRITES: usize = 1_280;
    let loaded = load("writes", 50_000, 8);
    let mut session = loaded.warm();
    let keys: Vec<u64> = loaded.keys.iter().step_by(30).take(WRITES).copied().collect();
    let pairs: Vec<(u64, [u8; 8])> = keys.iter().map(|key| (*key, [7; 8])).collect();
    let new: Vec<(u64, [u8; 8])> = keys.iter().map(|key| (key ^ 1, [7; 8])).collect();
    let mut outcomes: Vec<WriteOutcome> = Vec::new();
    let mut measure = |name: &str, write: &mut dyn FnMut(&mut Session<u64>, &mut Vec<WriteOutcome>)| {
        let (meters, counters) = cost(&mut session, |session| write(session, &mut outcomes));
        assert_eq!(outcomes.len(), WRITES);
        assert_eq!(meters.calls, WRITES as u64 / 128, "calls of {name}: {meters:?}");
        assert_eq!(meters.doorbells, meters.calls, "doorbells of {name}");
        assert_eq!((meters.reads, meters.writes, meters.atomics), (0, 0, 0), "verbs of {name}");
        assert_eq!(counters.fallbacks, 0);
    };
    measure("insert", &mut |session, outcomes| session.insert_many(&new, outcomes).expect("inserts"));
    measure("update", &mut |session, outcomes| session.update_many(&pairs, outcomes).expect("updates"));
    measure("put", &mut |session, outcomes| session.put_many(&pairs, outcomes).expect("puts"));
    measure("remove", &mut |session, outcomes| session.remove_many(&keys, outcomes).expect("removes"));
    let tree = loaded.server.server().stats().tables[0].tree;
    assert!(tree.hint_hits as f64 > 0.9 * (4 * WRITES) as f64, "hints led to their leaves: {tree:?}");

    let (meters, _) = cost(&mut session, |session| {
        session.put(keys[0], &[1; 8]).expect("a put");
    });
    assert_eq!((meters.calls, meters.doorbells, meters.reads), (1, 1, 0), "{meters:?}");
}

#[test]
fn access_by_calls_reads_nothing() {
    let loaded = load("access by calls", 10_000, 8);
    let mut session = loaded.table.session(Options { access: Access::Rpc }).expect("a session");
    let keys = loaded.some(64 * 100);
    let (meters, counters) = cost(&mut session, |session| get_all(session, &keys, true));
    assert_eq!((meters.reads, meters.calls, meters.doorbells), (0, 100, 100), "{meters:?}");
    assert_eq!(counters.fallbacks, 0, "what was asked for is no fall-back");
}

#[test]
fn a_cache_filled_on_demand_costs_a_call_a_sub_model() {
    let loaded = load("filled on demand", 50_000, 8);
    let mut session = loaded.session().expect("a session");
    let keys = loaded.some(100_000);
    let (_, first) = cost(&mut session, |session| get_all(session, &keys, true));
    let stats = loaded.table.cache_stats();
    println!("{first:?} {stats:?}");
    // Keys of one batch may ask for the same sub-model at once.
    assert!(stats.sub_models_filled <= stats.sub_models, "{stats:?}");
    assert!(first.fallbacks >= stats.sub_models_filled, "{first:?} {stats:?}");
    assert!(first.fallbacks <= 2 * stats.sub_models + BATCH as u64, "{first:?} {stats:?}");
    let (meters, again) = cost(&mut session, |session| get_all(session, &keys, true));
    assert_eq!((meters.calls, again.fallbacks), (0, 0), "what was asked for is there: {meters:?}");
}

#[test]
fn the_cache_of_a_million_keys_is_small() {
    const MILLION: usize = 1_000_000;
    let loaded = load("the cache of a million keys", MILLION, 8);
    let mut session = loaded.warm();
    let stats = loaded.table.cache_stats();
    println!("{stats:?}");
    assert_eq!(stats.sub_models_filled, stats.sub_models, "the whole model was fetched");
    let models = per(stats.model_bytes, MILLION);
    let all = per(stats.model_bytes + stats.table_bytes, MILLION);
    assert!(models <= 0.15, "{models} B a key for models");
    assert!(all <= 0.9, "{all} B a key");
    let keys = loaded.some(100_000);
    let (meters, _) = cost(&mut session, |session| get_all(session, &keys, true));
    let reads = per(meters.reads, keys.len());
    assert!(reads <= 2.05 && meters.calls == 0, "{reads} READs a GET, {} calls", meters.calls);
}

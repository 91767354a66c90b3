//! XStore over TCP: one round trip for many GETs, whole leaves in it, and the same answers as a map gives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use farsight_base::prng::SplitMix64;
use farsight_client::{Access, Client, ClientOptions, Direction, ScanRequest, Session};
use farsight_fabric_tcp::{ConnectOptions, ListenOptions, TcpConnection, TcpHost};
use farsight_index::{Answers, Pairs};
use farsight_layout::FORMAT_VERSION;
use farsight_node::{Node, NodeHandle, NodeOptions};
use farsight_protocol::{KeyKind, TableDefinition, WriteOperation};

const KEYS: u64 = 20_000;

/// A server over TCP, and a client of it.
fn serve() -> (NodeHandle, Client) {
    let options = ListenOptions::new(FORMAT_VERSION);
    let host = Arc::new(TcpHost::listen("127.0.0.1:0", &options).expect("a host"));
    let address = host.local_address().to_string();
    let options = NodeOptions { table_memory_bytes: 64 << 20, ..NodeOptions::default() };
    let server = Node::start(vec![host], &options).expect("a server");
    let connection = TcpConnection::connect(&address, ConnectOptions::new(FORMAT_VERSION));
    let client = Client::new(connection.expect("a connection"), ClientOptions::default());
    (server, client.expect("a client"))
}

fn value_of(key: u64, value_bytes: usize) -> Vec<u8> {
    (0..value_bytes).map(|index| (key.wrapping_mul(31) + index as u64) as u8).collect()
}

/// Asks for `keys` and compares with the map; returns READs, their bytes and doorbells.
fn check(session: &mut Session, keys: &[u64], expected: &BTreeMap<u64, Vec<u8>>) -> (u64, u64, u64) {
    let before = session.meters();
    let mut answers = Answers::default();
    session.multi_get(keys, &mut answers).expect("answers");
    for (index, key) in keys.iter().enumerate() {
        let found = answers.get(index).map(|(value, _)| value.to_vec());
        assert_eq!(found.as_ref(), expected.get(key), "key {key}");
    }
    let used = session.meters() - before;
    (used.reads, used.read_bytes, used.doorbells)
}

/// Values of `value_bytes`, and lines of a leaf if that is fetched whole.
fn run(value_bytes: u16, whole_lines: Option<u64>) {
    let (_server, client) = serve();
    let definition = TableDefinition::new("t", KeyKind::U64, value_bytes);
    let table = client.create_table(definition).expect("a table");
    let mut session = table.session(Access::OneSided).expect("a session");
    let mut random = SplitMix64::new(11);
    let mut expected = BTreeMap::new();
    let mut outcomes = Vec::new();
    for _ in 0..KEYS / 100 {
        let pairs: Vec<(u64, Vec<u8>)> = (0..100)
            .map(|_| {
                let key = random.next_u64();
                (key, value_of(key, usize::from(value_bytes)))
            })
            .collect();
        let entries = pairs.iter().map(|(key, value)| (*key, &value[..]));
        session.write(WriteOperation::Put, entries, &mut outcomes).expect("writes");
        expected.extend(pairs);
    }
    // Whatever the state of model and cache, answers are right.
    let stored: Vec<u64> = expected.keys().copied().collect();
    check(&mut session, &stored, &expected);
    farsight_conformance::engine::harness::eventually("training", || {
        client.pending_training().expect("an answer") == 0
    });
    let mut fresh = table.session(Access::OneSided).expect("a session");
    fresh.prefill().expect("the model");
    let some = |count: u64, random: &mut SplitMix64| -> Vec<u64> {
        (0..count).map(|_| stored[random.below(stored.len() as u64) as usize]).collect()
    };
    for count in [1, 63, 64, 65, 256, 257, 1024, 3000] {
        let keys = some(count, &mut random);
        let (reads, read_bytes, doorbells) = check(&mut fresh, &keys, &expected);
        if let Some(lines) = whole_lines {
            assert!(reads <= count + count / 20 + 1, "{reads} READs for {count} keys");
            assert!(read_bytes <= (count + count / 20 + 1) * lines * 64, "{read_bytes} B for {count} keys");
            // One for each piece, and perhaps a few for ties of hints.
            assert!(doorbells <= count.div_ceil(256) + 12, "{doorbells} doorbells for {count} keys");
        } else {
            assert!(reads >= 2 * count, "{reads} READs for {count} keys");
        }
    }
    let absent: Vec<u64> = (0..500).map(|_| random.next_u64()).collect();
    check(&mut fresh, &absent, &expected);
    let removed: Vec<u64> = stored.iter().copied().step_by(7).collect();
    for keys in removed.chunks(100) {
        let entries = keys.iter().map(|key| (*key, &[][..]));
        session.write(WriteOperation::Remove, entries, &mut outcomes).expect("removes");
    }
    expected.retain(|key, _| removed.binary_search(key).is_err());
    check(&mut fresh, &stored, &expected);
}

/// Looking for the next pair READs the next leaf only from near a leaf's end, and answers are a map's all
/// the same.
#[test]
fn short_scans_read_one_leaf_where_that_should_do() {
    const SCANS: usize = 640;
    let (_server, client) = serve();
    let definition = TableDefinition::new("t", KeyKind::U64, 8);
    let table = client.create_table(definition).expect("a table");
    let mut random = SplitMix64::new(12);
    let stored: BTreeSet<u64> = (0..KEYS).map(|_| random.next_u64()).collect();
    let mut load = table.bulk_load().expect("a load");
    for key in &stored {
        load.push(*key, &value_of(*key, 8)).expect("a pair");
    }
    load.finish().expect("a table");
    farsight_conformance::engine::harness::eventually("training", || {
        client.pending_training().expect("an answer") == 0
    });
    let mut session = table.session(Access::OneSided).expect("a session");
    session.prefill().expect("the model");
    for limit in [1, 3, 9, 12] {
        let scans: Vec<ScanRequest> =
            (0..SCANS).map(|_| ScanRequest { from: random.next_u64(), limit }).collect();
        let before = session.meters();
        let mut pairs = Pairs::default();
        session.scan_batch(Direction::Ascending, &scans, &mut pairs).expect("answers");
        let reads = (session.meters() - before).reads as usize;
        for (index, scan) in scans.iter().enumerate() {
            let found: Vec<u64> = pairs.scan(index).map(|pair| pair.key).collect();
            let expected: Vec<u64> = stored.range(scan.from..).take(limit).copied().collect();
            assert_eq!(found, expected, "{limit} from {}", scan.from);
        }
        // One leaf of three quarters of the keys, two of the others.
        let most = if limit == 1 { SCANS * 14 / 10 } else { SCANS * 21 / 10 };
        assert!(reads >= SCANS && reads <= most, "{reads} READs for {SCANS} scans of {limit}");
    }
}

/// A scan of thousands of pairs is one round trip, and few if the cache knows nothing.
#[test]
fn a_long_scan_is_one_doorbell() {
    let (_server, client) = serve();
    let definition = TableDefinition::new("t", KeyKind::U64, 8);
    let table = client.create_table(definition).expect("a table");
    let mut random = SplitMix64::new(13);
    let stored: BTreeSet<u64> = (0..KEYS).map(|_| random.next_u64()).collect();
    let mut load = table.bulk_load().expect("a load");
    for key in &stored {
        load.push(*key, &value_of(*key, 8)).expect("a pair");
    }
    load.finish().expect("a table");
    farsight_conformance::engine::harness::eventually("training", || {
        client.pending_training().expect("an answer") == 0
    });
    let keys: Vec<u64> = stored.iter().copied().collect();
    let mut session = table.session(Access::OneSided).expect("a session");
    let mut scan = |first: usize, limit: usize| {
        let before = session.meters();
        let mut pairs = Pairs::default();
        session
            .scan_batch(Direction::Ascending, &[ScanRequest { from: keys[first], limit }], &mut pairs)
            .expect("answers");
        let found: Vec<u64> = pairs.scan(0).map(|pair| pair.key).collect();
        assert!(found == keys[first..][..limit.min(keys.len() - first)], "{limit} pairs from {first}");
        session.meters() - before
    };
    let cold = scan(3_000, 5_000);
    println!("{cold:?}");
    assert!(cold.reads <= 500 && cold.doorbells <= 12, "{cold:?}");
    for first in [3_000, 4_711, 5_000] {
        let warm = scan(first, 5_000);
        assert!(warm.reads <= 418 && (warm.doorbells, warm.calls) == (1, 0), "{warm:?}");
    }
    // The window of a scan without a limit is all of the slots, half of which go round.
    scan(0, usize::MAX);
    let all = scan(0, usize::MAX);
    assert!(all.reads <= KEYS / 12 + 20 && all.doorbells <= 4, "{all:?}");
}

/// The server searches for a session that wants it so, whatever a one-sided session put into their cache.
#[test]
fn access_by_calls_reads_nothing_beside_one_sided() {
    for value_bytes in [8_u16, 200] {
        let (_server, client) = serve();
        let definition = TableDefinition::new("t", KeyKind::U64, value_bytes);
        let table = client.create_table(definition).expect("a table");
        let size = usize::from(value_bytes);
        let mut load = table.bulk_load().expect("a load");
        let stored: BTreeMap<u64, Vec<u8>> =
            (0..KEYS).map(|key| (3 * key, value_of(3 * key, size))).collect();
        for (key, value) in &stored {
            load.push(*key, value).expect("a pair");
        }
        load.finish().expect("a table");
        farsight_conformance::engine::harness::eventually("training", || {
            client.pending_training().expect("an answer") == 0
        });
        let early = table.session(Access::Rpc).expect("a session");
        let mut beside = table.session(Access::OneSided).expect("a session");
        beside.prefill().expect("the model");
        let late = table.session(Access::Rpc).expect("a session");
        let keys: Vec<u64> = (0..64).map(|index| 900 * index).collect();
        assert!(check(&mut beside, &keys, &stored).0 > 0, "the cache is filled");
        for mut session in [early, late] {
            check(&mut session, &keys, &stored);
            let mut value = vec![0; size];
            for key in &keys {
                assert!(session.get(*key, &mut value).expect("an answer").is_some(), "key {key}");
                assert_eq!(&value, &stored[key]);
            }
            let scans: Vec<ScanRequest> =
                keys.iter().map(|from| ScanRequest { from: *from, limit: 30 }).collect();
            let mut pairs = Pairs::default();
            session.scan_batch(Direction::Ascending, &scans, &mut pairs).expect("answers");
            assert!((0..scans.len()).all(|scan| pairs.scan(scan).len() == 30));
            let entries = keys.iter().map(|key| (*key, &stored[key][..]));
            session.write(WriteOperation::Update, entries, &mut Vec::new()).expect("writes");
            let meters = session.meters();
            assert_eq!((meters.reads, meters.read_bytes), (0, 0), "{meters:?}");
        }
    }
}

#[test]
fn short_values_come_with_their_keys() {
    run(8, Some(7));
}

#[test]
fn values_of_a_line_come_with_their_keys() {
    run(48, Some(19));
}

#[test]
fn long_values_take_a_second_round_trip() {
    run(200, None);
}

/// A cache that has room for the top model alone: sub-models are READ, and no call is made.
#[test]
fn a_cache_of_the_top_model_alone_makes_no_calls() {
    for (value_bytes, doorbells) in [(8_u16, 2), (100, 3)] {
        let (_server, client) = serve();
        let table = client.create_table(TableDefinition::new("t", KeyKind::U64, value_bytes));
        let table = table.expect("a table");
        let expected: BTreeMap<u64, Vec<u8>> =
            (0..KEYS).map(|key| (key << 30, value_of(key, usize::from(value_bytes)))).collect();
        let mut load = table.bulk_load().expect("a load");
        for (key, value) in &expected {
            load.push(*key, value).expect("ascending");
        }
        load.finish().expect("the load");
        let begun = std::time::Instant::now();
        while client.pending_training().expect("an answer") > 0 {
            assert!(begun.elapsed() < std::time::Duration::from_secs(60), "training does not end");
            std::thread::yield_now();
        }
        assert!(table.set_cache_bytes(0).expect("a budget"));
        let mut session = table.session(Access::OneSided).expect("a session");
        let mut random = SplitMix64::new(5);
        // The top model, and the root line.
        check(&mut session, &[0], &expected);
        check(&mut session, &[0], &expected);
        let calls = session.meters().calls;
        for count in [1, 64, 200] {
            let keys: Vec<u64> = (0..count).map(|_| random.below(KEYS + 20) << 30).collect();
            let (reads, _, rung) = check(&mut session, &keys, &expected);
            // A sub-model that is longer than a slot takes a READ and a doorbell more, and so do ties.
            assert!(reads <= 4 * count + 2, "{reads} READs of {count} keys");
            // Whole leaves go together, others by batches.
            let batches = if doorbells == 2 { 1 } else { count.div_ceil(64) };
            let rings = doorbells * batches..=(doorbells + 3) * batches;
            assert!(rings.contains(&rung), "{rung} doorbells for {count} keys");
        }
        let counters = session.counters();
        assert_eq!((session.meters().calls, counters.fallbacks), (calls, 1), "{counters:?}");
        assert_eq!(table.cache_stats().sub_models_filled, 0);
    }
}

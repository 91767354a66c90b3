//! Bulk loads of values of any length: in pieces, long values in parts, visible at the end. One that ends
//! early leaves neither a pair nor a block. In memory and behind a log.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::local_host::{LocalClient, LocalHost, MESSAGE_BYTES_MAX};
use common::talk::{definition, value_of};
use farsight_base::LeafNumber;
use farsight_base::prng::SplitMix64;
use farsight_durability::LogOptions;
use farsight_durability::disk::SimulatedDisk;
use farsight_node::{DataOptions, Node, NodeHandle, NodeOptions};
use farsight_protocol::{
    Ack, ErrorCode, PIECE_HEAD_BYTES, Reply, Request, ServerError, TableDefinition, TableInfo, ValueEntries,
    ValueKind, ValuePiece, WriteEntry, WriteOperation, WriteOutcome,
};

const LIMIT_BYTES: u32 = 200_000;
const PART_BYTES: usize = (MESSAGE_BYTES_MAX - PIECE_HEAD_BYTES) / 8 * 8;
/// The longest value that an answer carries.
const SHORT_BYTES: usize = MESSAGE_BYTES_MAX - 64;

fn start(disk: Option<&SimulatedDisk>) -> (NodeHandle, Arc<LocalHost>) {
    let host = LocalHost::new();
    let data = disk.map(|disk| DataOptions {
        ack: Ack::Durable,
        log: LogOptions { segment_bytes: 64 << 10 },
        snapshot_bytes: 1 << 20,
        ..DataOptions::new(Arc::new(disk.clone()))
    });
    let options = NodeOptions { table_memory_bytes: 8 << 20, data, ..NodeOptions::default() };
    (Node::start(vec![host.clone()], &options).expect("a node"), host)
}

fn create(client: &LocalClient, name: &str) -> TableInfo {
    let values = ValueKind::blocks(LIMIT_BYTES);
    client.create_as(TableDefinition { values, ..definition(name, 8) }).expect("a table")
}

/// A load, as a client sends it.
struct Load<'a> {
    client: &'a LocalClient,
    table: &'a TableInfo,
    piece: u32,
}

impl<'a> Load<'a> {
    fn new(client: &'a LocalClient, table: &'a TableInfo) -> Self {
        Self { client, table, piece: 0 }
    }

    fn call(&mut self, frame: &[u8]) -> Result<u64, ServerError> {
        assert!(frame.len() <= MESSAGE_BYTES_MAX, "a message of {} B", frame.len());
        let reply = self.client.call(frame);
        let reply = Reply::decode(&reply).expect("a reply")?;
        self.piece += 1;
        Ok(reply.argument)
    }

    fn push(&mut self, pairs: &[(u64, Vec<u8>)], last: bool) -> Result<u64, ServerError> {
        let mut frame = Vec::new();
        Request::begin_load_values(&mut frame, self.table.id, last, self.piece, pairs.len());
        for (key, value) in pairs {
            ValueEntries::push(&mut frame, WriteEntry { key: *key, hint: LeafNumber::NONE, value });
        }
        self.call(&frame)
    }

    fn push_part(
        &mut self,
        key: u64,
        value_bytes: usize,
        offset: usize,
        piece: &[u8],
    ) -> Result<u64, ServerError> {
        let [value_bytes, offset] = [value_bytes, offset].map(|bytes| bytes as u32);
        let part = ValuePiece { number: self.piece.into(), key, value_bytes, offset, piece };
        let mut frame = Vec::new();
        Request::load_long(&mut frame, self.table.id, part);
        self.call(&frame)
    }

    fn push_long(&mut self, key: u64, value: &[u8]) -> Result<u64, ServerError> {
        let mut loaded = 0;
        for (index, piece) in value.chunks(PART_BYTES).enumerate() {
            loaded = self.push_part(key, value.len(), index * PART_BYTES, piece)?;
        }
        Ok(loaded)
    }

    /// Pairs in pieces of random sizes.
    fn push_all(&mut self, rng: &mut SplitMix64, pairs: &BTreeMap<u64, Vec<u8>>) -> Result<u64, ServerError> {
        let (mut waiting, mut bytes, mut loaded) = (Vec::new(), 0, 0);
        for (key, value) in pairs {
            let entry_bytes = ValueEntries::entry_bytes(value.len());
            let is_long = entry_bytes > MESSAGE_BYTES_MAX - 16;
            if is_long || rng.below(40) == 0 || bytes + entry_bytes > MESSAGE_BYTES_MAX - 16 {
                self.push(&waiting, false)?;
                waiting.clear();
                bytes = 0;
            }
            if is_long {
                loaded = self.push_long(*key, value)?;
            } else {
                waiting.push((*key, value.clone()));
                bytes += entry_bytes;
            }
        }
        if !waiting.is_empty() {
            loaded = self.push(&waiting, false)?;
        }
        Ok(loaded)
    }
}

/// Keys of all kinds, and lengths up to long ones.
fn pairs(rng: &mut SplitMix64, count: u64) -> BTreeMap<u64, Vec<u8>> {
    let cluster = rng.next_u64();
    let mut pairs = BTreeMap::new();
    for index in 0..count {
        let key = match rng.below(8) {
            0 => [0, 1, u64::MAX, u64::MAX - 1, 1 << 63][rng.below(5) as usize],
            1..4 => cluster.wrapping_add(index),
            4 => index << 40,
            _ => rng.next_u64(),
        };
        let length = match rng.below(100) {
            0 => rng.below(LIMIT_BYTES.into()),
            1..4 => MESSAGE_BYTES_MAX as u64 - 80 + rng.below(100),
            4..20 => rng.below(3_000),
            _ => rng.below(100),
        };
        pairs.insert(key, value_of(key.rotate_left(9) ^ length, length as usize));
    }
    pairs
}

fn blocks_live_bytes(client: &LocalClient) -> u64 {
    client.stats().tables[0].blocks.expect("blocks").live_bytes
}

/// Bytes of leaves and live blocks.
fn held_bytes(client: &LocalClient) -> (u64, u64) {
    (client.stats().tables[0].leaves.used, blocks_live_bytes(client))
}

fn assert_is_empty(client: &LocalClient, table: &TableInfo) {
    assert_eq!(held_bytes(client), (1, 0), "one leaf, no block");
    assert_eq!(client.scan(table, 0, 10).expect("a scan"), (Vec::new(), None));
}

fn assert_holds_exactly(client: &LocalClient, table: &TableInfo, pairs: &BTreeMap<u64, Vec<u8>>) {
    let (mut found, mut from) = (Vec::new(), Some(0));
    while let Some(key) = from {
        let (piece, next) = client.scan(table, key, u16::MAX).expect("a scan");
        found.extend(piece.into_iter().map(|(key, _, _)| key));
        from = next;
    }
    assert!(found.iter().eq(pairs.keys()), "{} keys, expected {}", found.len(), pairs.len());
    for (key, value) in pairs.iter().filter(|(_, value)| value.len() <= SHORT_BYTES) {
        let got = client.get_value(table, *key).expect("an answer").expect("present").1;
        assert!(got == *value, "key {key}: {} B, expected {}", got.len(), value.len());
    }
}

fn await_empty(client: &LocalClient, table: &TableInfo) {
    let begun = Instant::now();
    while held_bytes(client) != (1, 0) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?} are still held", held_bytes(client));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_is_empty(client, table);
}

#[track_caller]
fn assert_refused(result: Result<u64, ServerError>, code: ErrorCode, words: &[&str]) {
    let error = result.expect_err("a refusal");
    assert_eq!(error.code, code, "{error}");
    for word in words {
        assert!(error.text.contains(word), "{:?} lacks {word:?}", error.text);
    }
}

#[test]
fn a_load_shows_at_once_what_was_pushed() {
    let mut rng = SplitMix64::fresh();
    for disk in [None, Some(SimulatedDisk::default())] {
        let (_node, host) = start(disk.as_ref());
        let client = host.connect();
        let table = create(&client, "t");
        let count = 1 + rng.below(900);
        let pairs = pairs(&mut rng, count);
        let mut load = Load::new(&client, &table);
        assert_eq!(load.push_all(&mut rng, &pairs).expect("pieces"), pairs.len() as u64);
        assert_eq!(client.scan(&table, 0, 10).expect("a scan").0, []);
        assert_eq!(load.push(&[], true).expect("the last piece"), pairs.len() as u64);
        assert_holds_exactly(&client, &table, &pairs);
        let stats = client.stats();
        let blocks = stats.tables[0].blocks.expect("blocks");
        assert_eq!(stats.tables[0].part.expect("a part").tree.pairs, pairs.len() as u64);
        // What was loaded is written and removed as any other.
        for (key, value) in pairs.iter().take(50) {
            let short = vec![7; value.len() % 90];
            let outcome = client.put_values(&table, &[(*key, short.clone())]);
            assert!(matches!(outcome[..], [WriteOutcome::Replaced(_)]), "{outcome:?}");
            assert_eq!(client.get_value(&table, *key).expect("an answer").expect("present").1, short);
        }
        let entries: Vec<_> = pairs.keys().map(|key| (*key, LeafNumber::NONE, Vec::new())).collect();
        for some in entries.chunks(64) {
            let outcomes = client.write(table.id, WriteOperation::Remove, some).expect("outcomes");
            assert!(
                outcomes.iter().all(|outcome| matches!(outcome, WriteOutcome::Removed(_))),
                "{outcomes:?}"
            );
        }
        assert_eq!(blocks_live_bytes(&client), 0, "of {} B", blocks.live_bytes);
    }
}

#[test]
fn a_load_that_is_refused_gives_every_block_back() {
    let mut rng = SplitMix64::fresh();
    let (_node, host) = start(None);
    let client = host.connect();
    let table = create(&client, "t");
    let first = |rng: &mut SplitMix64| {
        let mut load = Load::new(&client, &table);
        let mut pairs = pairs(rng, 300);
        pairs.remove(&u64::MAX);
        load.push_all(rng, &pairs).expect("pieces");
        assert!(blocks_live_bytes(&client) > 0);
        load
    };
    let pair = |key| (key, vec![1; 20]);
    assert_refused(first(&mut rng).push(&[pair(0)], true), ErrorCode::BadLoad, &["ascending", "key 0"]);
    assert_is_empty(&client, &table);
    let long = vec![(u64::MAX, Vec::new()), pair(u64::MAX)];
    assert_refused(first(&mut rng).push(&long, false), ErrorCode::BadLoad, &["came twice"]);
    assert_is_empty(&client, &table);
    let mut load = first(&mut rng);
    load.piece += 1;
    assert_refused(load.push(&[], true), ErrorCode::BadLoad, &["expected piece"]);
    assert_is_empty(&client, &table);

    // Parts that do not follow.
    let part = vec![3; PART_BYTES];
    for (key, value_bytes, offset) in [(7, 50_000, 8), (7, 50_001, PART_BYTES), (8, 50_000, PART_BYTES)] {
        let mut load = Load::new(&client, &table);
        load.push_part(7, 50_000, 0, &part).expect("a part");
        let words = ["part of key 7 of 50000 B", &format!("key {key} of {value_bytes} B from byte {offset}")];
        let refused = load.push_part(key, value_bytes, offset, &part);
        assert_refused(refused, ErrorCode::BadLoad, &words);
        assert_refused(load.push(&[], true), ErrorCode::BadLoad, &["no load is under way"]);
    }
    for last in [false, true] {
        let mut load = Load::new(&client, &table);
        load.push_part(7, 50_000, 0, &part).expect("a part");
        let words = [&format!("key 7 from byte {PART_BYTES} of 50000")[..]];
        assert_refused(load.push(&[], last), ErrorCode::BadLoad, &words);
    }
    let mut load = Load::new(&client, &table);
    let refused = load.push_part(7, LIMIT_BYTES as usize + 1, 0, &part);
    assert_refused(refused, ErrorCode::WrongValueSize, &["200001 B"]);
    assert_is_empty(&client, &table);

    // Values of one size do not go there, nor these elsewhere.
    let fixed = TableInfo { definition: definition("t", 8), ..table.clone() };
    let refused = client.load_piece(&fixed, 0, true, &[1]);
    assert_refused(refused, ErrorCode::WrongValueSize, &["values of any length"]);
    let other = client.create("fixed", 8);
    let refused = Load::new(&client, &other).push(&[pair(1)], true);
    assert_refused(refused, ErrorCode::WrongValueSize, &["values of one size"]);

    // A load after all of these.
    let pairs = pairs(&mut rng, 300);
    let mut load = Load::new(&client, &table);
    load.push_all(&mut rng, &pairs).expect("pieces");
    load.push(&[], true).expect("the last piece");
    assert_holds_exactly(&client, &table, &pairs);
    let refused = Load::new(&client, &table).push(&[], false);
    assert_refused(refused, ErrorCode::BadLoad, &["a bulk load needs a tree that is empty"]);
    assert_holds_exactly(&client, &table, &pairs);
}

#[test]
fn a_load_larger_than_the_space_is_refused_and_gives_everything_back() {
    let (_node, host) = start(None);
    let client = host.connect();
    let table = create(&client, "t");
    for length in [3_000, 100_000] {
        let mut load = Load::new(&client, &table);
        let mut key = 0;
        let error = loop {
            key += 1;
            let value = value_of(key, length);
            let pushed = if length > SHORT_BYTES {
                load.push_long(key, &value)
            } else {
                load.push(&[(key, value)], false)
            };
            match pushed {
                Ok(loaded) => assert_eq!(loaded, key),
                Err(error) => break error,
            }
            assert!(key < 10_000, "8 MiB hold more than that");
        };
        assert_eq!(error.code, ErrorCode::RegionFull, "{error}");
        assert!(error.text.contains(&format!("key {key}")), "{error}");
        assert_is_empty(&client, &table);
    }
}

#[test]
fn a_load_ends_with_its_client_or_by_a_write_and_leaves_no_block() {
    let mut rng = SplitMix64::fresh();
    for disk in [None, Some(SimulatedDisk::default())] {
        let (_node, host) = start(disk.as_ref());
        let client = host.connect();
        let table = create(&client, "t");
        let pairs = pairs(&mut rng, 400);
        let loader = host.connect();
        let mut load = Load::new(&loader, &table);
        load.push_all(&mut rng, &pairs).expect("pieces");
        // In the middle of a value, too.
        let _ = load.push_part(u64::MAX, 100_000, 0, &vec![1; PART_BYTES]);
        assert!(blocks_live_bytes(&client) > 0);
        drop(loader);
        await_empty(&client, &table);

        // A removal changes nothing, and yet is a write.
        let absent = [(5, LeafNumber::NONE, Vec::new())];
        let mut load = Load::new(&client, &table);
        load.push_all(&mut rng, &pairs).expect("pieces");
        client.write(table.id, WriteOperation::Remove, &absent).expect("an outcome");
        assert_refused(load.push(&[], true), ErrorCode::BadLoad, &["a write to the table"]);
        assert_is_empty(&client, &table);
        let mut load = Load::new(&client, &table);
        load.push_all(&mut rng, &pairs).expect("pieces");
        client.put_values(&table, &[(5, b"five".to_vec())]);
        assert_refused(load.push(&[], true), ErrorCode::BadLoad, &["a write to the table"]);
        assert_holds_exactly(&client, &table, &BTreeMap::from([(5, b"five".to_vec())]));
    }
}

#[test]
fn a_load_in_a_log_is_there_whole_or_not_at_all() {
    let mut rng = SplitMix64::fresh();
    let disk = SimulatedDisk::default();
    let (_node, host) = start(Some(&disk));
    let client = host.connect();
    let table = create(&client, "t");
    let pairs = pairs(&mut rng, 500);
    let mut load = Load::new(&client, &table);
    load.push_all(&mut rng, &pairs).expect("pieces");
    let (_early, early_host) = start(Some(&disk.crash(rng.next_u64())));
    assert_is_empty(&early_host.connect(), &table);
    load.push(&[], true).expect("the last piece");
    let (_late, late_host) = start(Some(&disk.crash(rng.next_u64())));
    let late = late_host.connect();
    assert_holds_exactly(&late, &table, &pairs);
    for (key, value) in pairs.iter().filter(|(_, value)| value.len() <= SHORT_BYTES) {
        let [before, after] = [&client, &late].map(|client| client.get_value(&table, *key).expect("a pair"));
        assert_eq!(before, after, "key {key} of {} B: versions, too", value.len());
    }
    assert_eq!(held_bytes(&late).1, held_bytes(&client).1, "as many blocks");
}

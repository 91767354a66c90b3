//! Damaged blocks of tables with a log: the directory of data has what memory has lost.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::local_host::LocalHost;
use common::stepped::SteppedNode;
use common::talk::definition;
use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicBool, Ordering};
use farsight_base::{LeafNumber, RegionId};
use farsight_durability::disk::SimulatedDisk;
use farsight_durability::{LogOptions, SnapshotPiece, Store};
use farsight_fabric::Region;
use farsight_node::{DataOptions, Node, NodeOptions, PASS_PAUSE};
use farsight_protocol::{
    ControlRequest, ErrorCode, Reply, Request, TableDefinition, TableInfo, ValueEntries, ValueKind,
    WriteEntry, WriteOperation,
};

const KEYS: u64 = 200;
/// The longest wait for repairs that take a tenth of a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// The region of the blocks of the first table.
const BLOCKS: RegionId = RegionId(1);

fn options(disk: &SimulatedDisk) -> NodeOptions {
    let data = DataOptions::new(Arc::new(disk.clone()));
    NodeOptions { table_memory_bytes: 8 << 20, data: Some(data), ..NodeOptions::default() }
}

fn blocks() -> TableDefinition {
    TableDefinition { values: ValueKind::blocks(300), ..definition("blocks", 8) }
}

/// The word that a value consists of: of no other key or round.
fn word(key: u64, round: u64) -> u64 {
    ((key + 1) << 32) | (round + 1)
}

fn value(key: u64, round: u64) -> Vec<u8> {
    word(key, round).to_le_bytes().repeat(8)
}

/// Flips a bit of each block of a value.
fn damage(host: &LocalHost, value: &[u8]) {
    let word = u64::from_le_bytes(value[..8].try_into().expect("a word"));
    let region = host.region(BLOCKS);
    let mut are_flipped = false;
    // Relaxed: a test's own memory.
    for at in region.words().iter().filter(|at| at.load(Ordering::Relaxed) == word) {
        at.fetch_xor(1 << 63, Ordering::Relaxed);
        are_flipped = true;
    }
    assert!(are_flipped, "no block has {word:#x}");
}

fn put(node: &mut SteppedNode, table: &TableInfo, pairs: &[(u64, Vec<u8>)]) {
    let mut frame = Vec::new();
    Request::begin_write_values(&mut frame, table.id, WriteOperation::Put, pairs.len());
    for (key, value) in pairs {
        ValueEntries::push(&mut frame, WriteEntry { key: *key, hint: LeafNumber::NONE, value });
    }
    assert!(Reply::decode(&node.call(&frame)).expect("a reply").is_ok());
}

/// What a call for a key says of the damage.
fn refusal(node: &mut SteppedNode, table: &TableInfo, key: u64) -> Option<ErrorCode> {
    let mut frame = Vec::new();
    Request::get_values(&mut frame, table.id, &[key]);
    Reply::decode(&node.call(&frame)).expect("a reply").err().map(|error| error.code)
}

/// Writes, snapshots and damage as a seed has them. Whatever is damaged comes back as it was.
fn damage_comes_back() {
    let mut random = SplitMix64::fresh();
    let mut node = SteppedNode::start(&options(&SimulatedDisk::default()));
    let table = node.create(blocks());
    let mut rounds = BTreeMap::new();
    let mut damaged = 0;
    for round in 0..8 {
        // The first round writes all, so each key has several versions in the log.
        let keys = (0..KEYS).filter(|_| round < 2 || random.below(3) == 0);
        let pairs: Vec<(u64, Vec<u8>)> = keys.map(|key| (key, value(key, round))).collect();
        rounds.extend(pairs.iter().map(|(key, _)| (*key, round)));
        for pairs in pairs.chunks(20) {
            put(&mut node, &table, pairs);
        }
        if random.below(3) == 0 {
            node.make_snapshots();
        }
        let before: Vec<_> = (0..KEYS).map(|key| node.stored(&table, key)).collect();
        let struck: Vec<u64> = (0..KEYS).filter(|_| random.below(20) == 0).collect();
        for key in &struck {
            damage(&node.host, &value(*key, rounds[key]));
        }
        damaged += struck.len() as u64;
        if round % 2 == 0 {
            for key in &struck {
                assert_eq!(refusal(&mut node, &table, *key), Some(ErrorCode::Damaged), "key {key}");
            }
        } else {
            // A pass that scrubs meets them, too.
            // The first step says when the pass begins.
            (0..2).for_each(|_| node.rest(2 * PASS_PAUSE));
        }
        // The pause after the look before it may not have passed.
        for _ in 0..1_000 {
            node.step_snapshots();
            if node.state.stats(node.now).data.expect("a directory").repaired == damaged {
                break;
            }
            sleep(Duration::from_millis(5));
        }
        let after: Vec<_> = (0..KEYS).map(|key| node.stored(&table, key)).collect();
        assert!(after == before, "versions and values, round {round}");
        for (key, stored) in (0..).zip(&after) {
            assert_eq!(stored.as_ref().map(|(_, value)| &value[..]), Some(&value(key, rounds[&key])[..]));
        }
    }
    let data = node.state.stats(node.now).data.expect("a directory");
    assert_eq!((data.repaired, data.unrepaired), (damaged, 0));
}

#[test]
fn damaged_blocks_come_back_as_they_were() {
    damage_comes_back();
}

/// A write overtakes the repair of its key: the value that it replaces does not come back.
#[test]
fn a_write_of_a_damaged_key_counts() {
    let mut node = SteppedNode::start(&options(&SimulatedDisk::default()));
    let table = node.create(blocks());
    put(&mut node, &table, &[(1, value(1, 0)), (2, value(2, 0))]);
    damage(&node.host, &value(1, 0));
    assert_eq!(refusal(&mut node, &table, 1), Some(ErrorCode::Damaged));
    put(&mut node, &table, &[(1, value(1, 1))]);
    node.step_snapshots();
    assert_eq!(node.stored(&table, 1).map(|(_, value)| value), Some(value(1, 1)));
    assert_eq!(node.state.stats(node.now).data.expect("a directory").repaired, 0);
}

/// Bytes of a piece of twenty pairs.
const PIECE_BYTES: u64 = 20 * (8 + 64);

/// Which piece of the only table has this key.
fn piece_of(disk: &SimulatedDisk, key: u64) -> SnapshotPiece {
    let catalogue = Store::read(disk).expect("a catalogue").expect("it is there");
    catalogue.pieces().copied().filter(|piece| piece.first_key <= key).last().expect("a piece")
}

/// What is said of the last round of snapshots.
fn failure_of_round(node: &mut SteppedNode) -> Option<String> {
    let round = node.state.stats(node.now).data.expect("a directory").snapshot_rounds;
    let mut frame = Vec::new();
    Request::control(&mut frame, &ControlRequest::AreSnapshotsMade { round });
    Reply::decode(&node.call(&frame)).expect("a reply").err().map(|error| error.text)
}

/// A pair is damaged in memory and in its file, as a seed has it. Rounds of snapshots leave its piece alone,
/// and the log keeps what was written to that piece. A restart finds all, once the file is whole.
fn damage_holds_back_its_piece() {
    let mut random = SplitMix64::fresh();
    let disk = SimulatedDisk::default();
    let log = LogOptions { segment_bytes: 8 << 10 };
    let data = DataOptions { log, piece_bytes: PIECE_BYTES, ..DataOptions::new(Arc::new(disk.clone())) };
    let options = NodeOptions { table_memory_bytes: 8 << 20, data: Some(data), ..NodeOptions::default() };
    let mut node = SteppedNode::start(&options);
    let table = node.create(blocks());
    let stats = |node: &SteppedNode| node.state.stats(node.now).data.expect("a directory");
    let put_all = |node: &mut SteppedNode, round: u64, but: Option<u64>| {
        let keys = (0..KEYS).filter(|key| Some(*key) != but);
        let pairs: Vec<_> = keys.map(|key| (key, value(key, round))).collect();
        pairs.chunks(20).for_each(|pairs| put(node, &table, pairs));
    };
    put_all(&mut node, 0, None);
    node.make_snapshots();
    assert_eq!((stats(&node).pieces, stats(&node).segments), (10, 1));

    // Of these keys no segment is left.
    let struck = random.below(100);
    let left = piece_of(&disk, struck);
    let (file, bit) = (format!("snapshot-{:016x}", left.number), random.below(1024) as usize + 512);
    disk.flip(&file, bit);
    damage(&node.host, &value(struck, 0));
    for round in 1..4 {
        put_all(&mut node, round, Some(struck));
        node.make_snapshots();
        let text = failure_of_round(&mut node).expect("a piece was not written");
        assert!(text.contains("\"blocks\"") && text.contains(&format!("key {struck}")), "{text}");
        assert!(text.contains(&format!("keys {} to {}", left.first_key, left.first_key + 19)), "{text}");
        assert_eq!((stats(&node).pieces_left, stats(&node).unrepaired), (1, 1));
        assert!(stats(&node).segments > 1, "the log has what was written to the piece");
        for key in 0..KEYS {
            let piece = piece_of(&disk, key);
            assert_eq!(piece == left, (left.first_key..left.first_key + 20).contains(&key), "key {key}");
            assert!(piece == left || piece.position > left.position, "key {key}");
        }
    }
    let expected = |key: u64| value(key, if key == struck { 0 } else { 3 });

    // The disk reads well again, and the node has crashed.
    let image = disk.crash(random.next_u64());
    image.flip(&file, bit);
    let data = DataOptions { disk: Arc::new(image.clone()), ..options.data.clone().expect("a directory") };
    let mut later = SteppedNode::start(&NodeOptions { data: Some(data), ..options.clone() });
    for key in 0..KEYS {
        assert_eq!(later.stored(&table, key).map(|(_, value)| value), Some(expected(key)), "key {key}");
    }
    later.make_snapshots();
    assert_eq!((stats(&later).pieces_left, stats(&later).segments), (0, 0));

    // As the text says: the key is written again.
    put(&mut node, &table, &[(struck, value(struck, 3))]);
    node.make_snapshots();
    assert_eq!(failure_of_round(&mut node), None);
    assert_eq!((stats(&node).pieces_left, stats(&node).segments), (0, 1));
}

#[test]
fn a_damaged_pair_that_no_file_has_holds_back_its_piece_alone() {
    damage_holds_back_its_piece();
}

/// Threads that write, also the damaged keys, beside those that repair. Each reads what it wrote last.
#[test]
fn repairs_beside_writers_lose_no_write() {
    let (node, host) = {
        let host = LocalHost::new();
        (Node::start(vec![host.clone()], &options(&SimulatedDisk::default())).expect("a node"), host)
    };
    let table = host.connect().create_as(blocks()).expect("a table");
    let client = host.connect();
    for key in 0..KEYS {
        client.put_values(&table, &[(key, value(key, 0))]);
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (host, table, is_over) = (&host, &table, &is_over);
            scope.spawn(move || {
                let client = host.connect();
                // A quarter of all keys each. Others are damaged, and not written.
                for round in 1.. {
                    // The log stays short, so looking through it, too.
                    sleep(Duration::from_millis(2));
                    for key in (0..KEYS).filter(|key| key % 4 == writer) {
                        client.put_values(table, &[(key, value(key, round))]);
                        if let Ok(found) = client.get_value(table, key) {
                            assert_eq!(found.expect("it is there").1, value(key, round), "key {key}");
                        }
                    }
                    // Relaxed: a flag.
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        for _ in 0..4 {
            for key in (0..KEYS).filter(|key| key % 4 >= 2) {
                damage(&host, &value(key, 0));
                // Of a key that is written, whichever block it has now.
                if let Ok(Some((_, found))) = client.get_value(&table, key - 2) {
                    let word = u64::from_le_bytes(found[..8].try_into().expect("a word"));
                    let region = host.region(BLOCKS);
                    let newest = region.words().iter().find(|at| at.load(Ordering::Relaxed) == word);
                    newest.map(|at| at.fetch_xor(1 << 63, Ordering::Relaxed));
                }
            }
            // All are met before one is waited for.
            (0..KEYS).for_each(|key| _ = client.get_value(&table, key));
            for key in (0..KEYS).filter(|key| key % 4 >= 2) {
                let deadline = Instant::now() + PATIENCE;
                let found = loop {
                    match client.get_value(&table, key) {
                        Ok(found) => break found.expect("it is there"),
                        Err(error) => assert!(Instant::now() < deadline, "key {key}: {error:?}"),
                    }
                    sleep(Duration::from_millis(1));
                };
                assert_eq!(found.1, value(key, 0), "key {key}");
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(node.stats().data.expect("a directory").repaired >= KEYS / 2);
    assert_eq!(node.failure(), None);
}

/// The checkers checked. `RUSTFLAGS="--cfg injected" cargo test`.
#[cfg(injected)]
mod injected {
    use farsight_base::injection::assert_found;

    use super::*;

    #[test]
    fn a_repair_by_any_version() {
        assert_found(&farsight_node::injected::REPAIRED_BY_ANY_VERSION, damage_comes_back);
    }

    #[test]
    fn a_piece_left_for_damage_that_loses_its_log() {
        assert_found(&farsight_node::injected::LEFT_PIECE_ADVANCED, damage_holds_back_its_piece);
    }
}

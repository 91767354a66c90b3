//! Pieces of snapshots: what a round writes, and what a restart finds of them.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::stepped::SteppedNode;
use common::talk::definition;
use farsight_base::LeafNumber;
use farsight_base::prng::SplitMix64;
use farsight_durability::LogOptions;
use farsight_durability::disk::{Disk, SimulatedDisk};
use farsight_node::{DataOptions, NodeOptions};
use farsight_protocol::{
    DataStats, Reply, Request, SnapshotStats, TableDefinition, TableInfo, ValueEntries, ValueKind,
    WriteEntry, WriteOperation,
};

/// Bytes of a value.
const VALUE_BYTES: u64 = 100;
/// The same of a pair, with its key.
const PAIR_BYTES: u64 = VALUE_BYTES + 8;
/// Bytes of a piece.
const PIECE_BYTES: u64 = 50 * PAIR_BYTES;

fn options(disk: &SimulatedDisk) -> NodeOptions {
    let log = LogOptions { segment_bytes: 16 << 10 };
    let data = DataOptions { log, piece_bytes: PIECE_BYTES, ..DataOptions::new(Arc::new(disk.clone())) };
    NodeOptions { table_memory_bytes: 8 << 20, data: Some(data), ..NodeOptions::default() }
}

fn create(node: &mut SteppedNode) -> TableInfo {
    node.create(TableDefinition { values: ValueKind::blocks(300), ..definition("pairs", 8) })
}

fn write(node: &mut SteppedNode, table: &TableInfo, operation: WriteOperation, pairs: &[(u64, Vec<u8>)]) {
    let mut frame = Vec::new();
    if operation == WriteOperation::Put {
        Request::begin_write_values(&mut frame, table.id, operation, pairs.len());
        for (key, value) in pairs {
            ValueEntries::push(&mut frame, WriteEntry { key: *key, hint: LeafNumber::NONE, value });
        }
    } else {
        Request::begin_write(&mut frame, table.id, operation, pairs.len(), 0);
        for (key, _) in pairs {
            let entry = WriteEntry { key: *key, hint: LeafNumber::NONE, value: &[] };
            farsight_protocol::WriteEntries::push(&mut frame, entry);
        }
    }
    assert!(Reply::decode(&node.call(&frame)).expect("a reply").is_ok());
}

fn put(node: &mut SteppedNode, table: &TableInfo, keys: impl IntoIterator<Item = u64>, round: u8) {
    let pairs: Vec<_> = keys.into_iter().map(|key| (key, vec![round; VALUE_BYTES as usize])).collect();
    for pairs in pairs.chunks(10) {
        write(node, table, WriteOperation::Put, pairs);
    }
}

fn data(node: &SteppedNode) -> DataStats {
    node.state.stats(node.now).data.expect("a directory")
}

fn files(disk: &SimulatedDisk) -> BTreeSet<String> {
    let names = disk.list().expect("names");
    names.into_iter().filter(|name| name.starts_with("snapshot-")).collect()
}

/// A thousand pairs, twenty pieces: a few writes in one place cost a piece, and none cost nothing.
#[test]
fn a_round_writes_what_was_touched() {
    let disk = SimulatedDisk::default();
    let mut node = SteppedNode::start(&options(&disk));
    let table = create(&mut node);
    put(&mut node, &table, 0..1_000, 0);
    node.make_snapshots();
    let first = data(&node);
    let counts = |data: &DataStats| (data.pieces, data.pieces_written, data.piece_bytes_written);
    assert_eq!(counts(&first), (20, 20, 1_000 * PAIR_BYTES));
    assert_eq!(first.segments, 1, "no piece needs the segments before");
    assert!((1..=16 << 10).contains(&first.replay_bytes), "what that one has: {}", first.replay_bytes);
    let snapshot = node.state.stats(node.now).tables[0].snapshot;
    assert_eq!(snapshot, Some(SnapshotStats { pieces: 20, ..SnapshotStats::default() }));
    let files_before = files(&disk);
    assert_eq!(files_before.len(), 20);

    node.make_snapshots();
    assert_eq!(counts(&data(&node)), counts(&first), "nothing was written, and nothing is");
    assert_eq!(files(&disk), files_before);

    // The piece had fifty pairs, so it is cut into two.
    put(&mut node, &table, [500, 501, 520], 1);
    node.make_snapshots();
    assert_eq!(counts(&data(&node)), (21, 22, 1_050 * PAIR_BYTES));
    assert_eq!(files(&disk).intersection(&files_before).count(), 19, "the other files stay");

    // Segments go although nothing was written to most pieces.
    for round in 2..6 {
        put(&mut node, &table, (0..200).map(|key| 500 + key % 20), round);
        node.make_snapshots();
        assert_eq!(data(&node).segments, 1);
    }
    let last = data(&node);
    assert_eq!(last.pieces, 21);
    let bytes = last.piece_bytes_written - 1_050 * PAIR_BYTES;
    assert_eq!(bytes, 4 * 29 * PAIR_BYTES, "the lower part of the piece each time, a half and an eighth");

    let image = disk.crash(1);
    let mut node = SteppedNode::start(&options(&image));
    for key in 0..1_000 {
        let round = match key {
            500..520 => 5,
            520 => 1,
            _ => 0,
        };
        let found = node.stored(&table, key).map(|(_, value)| value);
        assert_eq!(found, Some(vec![round; VALUE_BYTES as usize]), "key {key}");
    }
    node.make_snapshots();
    assert_eq!(data(&node).pieces_written, 0, "the marks of a life before are those of the log");
}

/// Writes, removals, rounds of snapshots and crashes as a seed has them: pieces split and merge, and each
/// restart finds what was acknowledged, with its versions.
fn rounds_and_crashes() {
    let mut random = SplitMix64::fresh();
    let mut disk = SimulatedDisk::default();
    let mut node = SteppedNode::start(&options(&disk));
    let table = create(&mut node);
    let mut model: BTreeMap<u64, u8> = BTreeMap::new();
    for round in 0..60_u8 {
        // Keys of a place, or of all places.
        let (place, width) = if random.below(4) == 0 { (0, 1_000) } else { (random.below(900), 100) };
        let keys: Vec<u64> = (0..random.below(120)).map(|_| place + random.below(width)).collect();
        if random.below(3) == 0 {
            let pairs: Vec<_> = keys.iter().map(|key| (*key, Vec::new())).collect();
            pairs.chunks(10).for_each(|pairs| write(&mut node, &table, WriteOperation::Remove, pairs));
            model.retain(|key, _| !keys.contains(key));
        } else {
            // Some take the place of the value before, and some need memory of another size.
            let value = |key: u64| vec![round; 1 + (key % 3 * u64::from(round) % 290) as usize];
            let pairs: Vec<_> = keys.iter().map(|key| (*key, value(*key))).collect();
            pairs.chunks(10).for_each(|pairs| write(&mut node, &table, WriteOperation::Put, pairs));
            model.extend(keys.iter().map(|key| (*key, round)));
        }
        if random.below(2) == 0 {
            node.make_snapshots();
        }
        if random.below(4) == 0 {
            let before: Vec<_> = (0..1_000).map(|key| node.stored(&table, key)).collect();
            disk = disk.crash(random.next_u64());
            disk.set_readers(1 + random.below(4) as usize);
            node = SteppedNode::start(&options(&disk));
            let after: Vec<_> = (0..1_000).map(|key| node.stored(&table, key)).collect();
            assert!(after == before, "versions and values after a restart in round {round}");
        }
        for key in 0..1_000 {
            let found = node.stored(&table, key).map(|(_, value)| value[0]);
            assert_eq!(found, model.get(&key).copied(), "key {key} in round {round}");
        }
    }
    // Two rounds without a write: neighbours that are small stay, and no file is left that nothing names.
    node.make_snapshots();
    assert_eq!(files(&disk).len() as u64, data(&node).pieces);
}

#[test]
fn pieces_split_and_merge_and_come_back() {
    rounds_and_crashes();
}

/// Pieces of a table that shrinks are merged, as far as something is written to them.
#[test]
fn pieces_merge_when_a_table_shrinks() {
    let disk = SimulatedDisk::default();
    let mut node = SteppedNode::start(&options(&disk));
    let table = create(&mut node);
    put(&mut node, &table, 0..1_000, 0);
    node.make_snapshots();
    let removed: Vec<_> = (0..1_000).filter(|key| key % 50 != 0).map(|key| (key, Vec::new())).collect();
    removed.chunks(10).for_each(|pairs| write(&mut node, &table, WriteOperation::Remove, pairs));
    node.make_snapshots();
    assert_eq!(data(&node).pieces, 1, "twenty pairs are left");
    let mut node = SteppedNode::start(&options(&disk.crash(1)));
    let left = (0..1_000).filter(|key| node.stored(&table, *key).is_some()).count();
    assert_eq!(left, 20);
}

/// The checkers checked. `RUSTFLAGS="--cfg injected" cargo test`.
#[cfg(injected)]
mod injected {
    use farsight_base::injection::assert_found;

    use super::*;

    #[test]
    fn a_touched_piece_that_is_kept() {
        assert_found(&farsight_node::injected::TOUCHED_PIECE_KEPT, rounds_and_crashes);
    }
}

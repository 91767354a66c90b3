//! Prints what a restart costs a node, a record of the log: processor time of all its threads, and time.
//! Updates of uniform keys are logged in a directory, whose files stay in the system's memory.
//!
//! `cargo run --release -p farsight-node --example recovery_speed [-- KEYS RECORDS [BYTES_OF_BLOCKS]]`

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::time::Instant;

use common::stepped::SteppedNode;
use common::talk::{definition, value_of};
use farsight_base::LeafNumber;
use farsight_base::prng::SplitMix64;
use farsight_durability::disk::RealDisk;
use farsight_node::{DataOptions, NodeOptions};
use farsight_protocol::{
    Ack, Reply, Request, TableDefinition, TableInfo, ValueEntries, ValueKind, WriteEntries, WriteEntry,
    WriteOperation,
};

/// Entries of a call, and calls that come together.
const ENTRIES: usize = 128;
const CALLS: usize = 8;

/// Processor time of this process.
fn processor_ns() -> f64 {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    usage.tv_sec as f64 * 1e9 + usage.tv_nsec as f64
}

/// A call that puts pairs of these keys.
fn call(table: &TableInfo, keys: &[u64], block_bytes: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    if block_bytes > 0 {
        Request::begin_write_values(&mut frame, table.id, WriteOperation::Put, keys.len());
    } else {
        Request::begin_write(&mut frame, table.id, WriteOperation::Put, keys.len(), 8);
    }
    for key in keys {
        let value = value_of(*key, block_bytes.max(8));
        let entry = WriteEntry { key: *key, hint: LeafNumber::NONE, value: &value };
        if block_bytes > 0 {
            ValueEntries::push(&mut frame, entry);
        } else {
            WriteEntries::push(&mut frame, entry);
        }
    }
    frame
}

fn put(node: &mut SteppedNode, table: &TableInfo, keys: &[u64], block_bytes: usize) {
    for keys in keys.chunks(ENTRIES * CALLS) {
        let frames: Vec<_> = keys.chunks(ENTRIES).map(|keys| call(table, keys, block_bytes)).collect();
        for reply in node.call_together(&frames) {
            assert!(Reply::decode(&reply).expect("a reply").is_ok(), "a call that puts");
        }
    }
}

/// The least processor time that a start took, and the least time, of three.
fn least(start: impl Fn() -> SteppedNode) -> (f64, f64) {
    let mut least = (f64::MAX, f64::MAX);
    for _ in 0..3 {
        let (begin, begin_ns) = (Instant::now(), processor_ns());
        let node = start();
        let took = (processor_ns() - begin_ns, begin.elapsed().as_secs_f64() * 1e9);
        drop(node);
        least = (took.0.min(least.0), took.1.min(least.1));
    }
    least
}

fn main() {
    let arguments: Vec<usize> =
        std::env::args().skip(1).map(|argument| argument.parse().expect("a number")).collect();
    let argument = |index: usize, default: usize| arguments.get(index).copied().unwrap_or(default);
    let (keys, records, block_bytes) = (argument(0, 1_000_000), argument(1, 4_000_000), argument(2, 0));
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    // A node of tests has its memory from the start. Each pair has room for several.
    let table_memory_bytes = (64 << 20) + (keys * (150 + 4 * block_bytes.next_multiple_of(64))) as u64;
    let start = || {
        let disk = RealDisk::make(directory.path()).expect("a directory");
        let data = DataOptions::new(Arc::new(disk));
        let data = DataOptions { ack: Ack::Memory, snapshot_bytes: u64::MAX / 2, ..data };
        SteppedNode::start(&NodeOptions { table_memory_bytes, data: Some(data), ..NodeOptions::default() })
    };
    let mut node = start();
    let values =
        if block_bytes > 0 { ValueKind::blocks(block_bytes as u32) } else { definition("t", 8).values };
    let table = node.create(TableDefinition { values, ..definition("t", 8) });
    let mut random = SplitMix64::new(7);
    let all: Vec<u64> = (0..keys).map(|_| random.next_u64()).collect();
    put(&mut node, &table, &all, block_bytes);
    node.make_snapshots();
    drop(node);
    let (without_ns, without_time) = least(start);
    let mut node = start();
    let before = node.state.stats(node.now).data.expect("a log").log_bytes;
    let logged: Vec<u64> = (0..records).map(|_| all[random.below(keys as u64) as usize]).collect();
    put(&mut node, &table, &logged, block_bytes);
    let log_bytes = (node.state.stats(node.now).data.expect("a log").log_bytes - before) as f64;
    drop(node);
    let (ns, time) = least(start);
    println!("without a log: {:.2} s of processor time in {:.2} s", without_ns / 1e9, without_time / 1e9);
    let (ns, time) = (ns - without_ns, time - without_time);
    let of_record = records as f64;
    println!(
        "its log: {:.0} ns of processor time a record, {:.0} ns; {:.1} B a record, {:.0} MB/s",
        ns / of_record,
        time / of_record,
        log_bytes / of_record,
        log_bytes * 1e3 / time
    );
}

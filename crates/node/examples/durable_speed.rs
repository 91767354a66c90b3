//! Prints what an update costs a node's processor: in a table in memory, in one that is logged, and in a
//! durable one. One thread takes the steps of worker and sequencer, so nothing waits and nobody is woken.
//! Its disk keeps nothing of the log, so what the system does for a disk is not in it.
//!
//! `cargo run --release -p farsight-node --example durable_speed [-- KEYS ROUNDS]`

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::io;
use std::sync::Arc;

use common::stepped::SteppedNode;
use common::talk::{definition, value_of};
use farsight_base::LeafNumber;
use farsight_base::prng::SplitMix64;
use farsight_durability::disk::{Disk, DiskFile, SimulatedDisk};
use farsight_node::{DataOptions, NodeOptions};
use farsight_protocol::{
    Ack, Reply, Request, TableInfo, WriteEntries, WriteEntry, WriteOperation, WriteOutcome,
};

/// Entries of a call, as clients send them.
const ENTRIES: usize = 128;
/// Calls that come together.
const CALLS: usize = 8;

/// A disk that keeps nothing of the log: what it is told costs nobody anything.
#[derive(Default)]
struct ForgetfulDisk(SimulatedDisk);

struct NoFile;

impl Disk for ForgetfulDisk {
    fn place(&self, name: &str) -> String {
        self.0.place(name)
    }

    fn lock(&self) -> io::Result<()> {
        self.0.lock()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.0.open(name)
    }

    fn create(&self, name: &str, length_bytes: u64) -> io::Result<Box<dyn DiskFile>> {
        if name.starts_with("log-") { Ok(Box::new(NoFile)) } else { self.0.create(name, length_bytes) }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.0.sync_directory()
    }
}

impl DiskFile for NoFile {
    fn length_bytes(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn read_at(&self, _offset: u64, _into: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    fn write_at(&self, _offset: u64, bytes: &[u8]) -> io::Result<()> {
        black_box(bytes);
        Ok(())
    }

    fn truncate(&self, _length_bytes: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Processor time of this thread: other processes on the machine do not count.
fn processor_ns() -> f64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    schedstat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds first")
}

/// A call that writes these keys, with these hints.
fn call(table: &TableInfo, operation: WriteOperation, entries: &[(u64, LeafNumber)]) -> Vec<u8> {
    let mut frame = Vec::new();
    Request::begin_write(&mut frame, table.id, operation, entries.len(), 8);
    for (key, hint) in entries {
        let value = value_of(*key, 8);
        WriteEntries::push(&mut frame, WriteEntry { key: *key, hint: *hint, value: &value });
    }
    frame
}

/// The outcomes of a call, and how many of its hints were wrong.
fn outcomes(reply: &[u8], count: usize) -> (Vec<WriteOutcome>, usize) {
    let reply = Reply::decode(reply).expect("a reply").expect("an answer");
    let sent: Vec<_> = reply.outcomes(count).expect("as many").map(|sent| sent.expect("one")).collect();
    let wrong = sent.iter().filter(|sent| sent.is_hint_wrong).count();
    (sent.iter().map(|sent| sent.outcome).collect(), wrong)
}

/// The leaves of these keys, found by hints that are tried one after the other.
fn leaves_of(node: &mut SteppedNode, table: &TableInfo, keys: &[u64]) -> Vec<LeafNumber> {
    let mut leaves = vec![LeafNumber::NONE; keys.len()];
    for (place, key) in keys.iter().enumerate() {
        let about = place as u32 / 12;
        let found = (0..4).map(|behind| LeafNumber(about + behind)).find(|hint| {
            let reply = node.call(&call(table, WriteOperation::Update, &[(*key, *hint)]));
            outcomes(&reply, 1).1 == 0
        });
        leaves[place] = found.expect("a leaf, as bulk loads fill them");
    }
    leaves
}

fn run(name: &str, data: Option<Ack>, keys: usize, rounds: usize) -> f64 {
    let data = data.map(|ack| DataOptions { ack, ..DataOptions::new(Arc::new(ForgetfulDisk::default())) });
    let snapshot_bytes = u64::MAX / 2;
    let data = data.map(|data| DataOptions { snapshot_bytes, ..data });
    let mut node = SteppedNode::start(&NodeOptions { data, ..NodeOptions::default() });
    let table = node.create(definition("t", 8));
    let all: Vec<u64> = (0..keys as u64).map(|key| key * 1000).collect();
    for (piece, part) in all.chunks(256).enumerate() {
        let (mut frame, is_last) = (Vec::new(), (piece + 1) * 256 >= keys);
        Request::begin_bulk_load(&mut frame, table.id, is_last, piece as u32, part.len(), 8);
        for key in part {
            let value = value_of(*key, 8);
            WriteEntries::push(&mut frame, WriteEntry { key: *key, hint: LeafNumber::NONE, value: &value });
        }
        let reply = node.call(&frame);
        assert!(Reply::decode(&reply).expect("a reply").is_ok(), "a piece of the load");
    }
    let leaves = leaves_of(&mut node, &table, &all);
    let mut random = SplitMix64::new(7);
    let frames: Vec<Vec<u8>> = (0..256)
        .map(|_| {
            let places = (0..ENTRIES).map(|_| random.below(keys as u64) as usize);
            let entries: Vec<_> = places.map(|place| (all[place], leaves[place])).collect();
            call(&table, WriteOperation::Update, &entries)
        })
        .collect();
    let begin = processor_ns();
    let mut wrong = 0;
    for round in 0..rounds {
        let first = round * CALLS % frames.len();
        let replies = node.call_together(&frames[first..first + CALLS]);
        if round == 0 {
            for reply in replies {
                let (outcomes, wrong_hints) = outcomes(&reply, ENTRIES);
                assert!(outcomes.iter().all(|outcome| matches!(outcome, WriteOutcome::Replaced(_))));
                wrong += wrong_hints;
            }
        }
    }
    assert_eq!(wrong, 0, "hints that led elsewhere");
    let ns = (processor_ns() - begin) / (rounds * CALLS * ENTRIES) as f64;
    println!("{name:<24}{ns:>8.1} ns an update");
    ns
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().expect("a number"));
    let keys = arguments.next().unwrap_or(200_000);
    let rounds = arguments.next().unwrap_or(2_000);
    let in_memory = run("in memory", None, keys, rounds);
    for (name, ack) in [("logged", Ack::Memory), ("durable", Ack::Durable)] {
        println!("{:>33.2} times that in memory", run(name, Some(ack), keys, rounds) / in_memory);
    }
}

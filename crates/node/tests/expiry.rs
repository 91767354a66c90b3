//! Pairs with deadlines: what writes see of them, in memory and behind a log; what a restart finds; and what
//! the background gives back.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::stepped::SteppedNode;
use common::talk::definition;
use farsight_base::LeafNumber;
use farsight_base::clock::UnixTime;
use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_durability::LogOptions;
use farsight_durability::disk::{RealDisk, SimulatedDisk};
use farsight_index::{Decision, HeldPair, NewValue, decide_parts};
use farsight_layout::Deadline;
use farsight_node::{DataOptions, NodeOptions};
use farsight_protocol::{
    Ack, ControlRequest, ErrorCode, Operand, Reply, Request, TableDefinition, TableInfo, ValueEntries,
    ValueKind, WriteEntries, WriteEntry, WriteOperation, WriteOutcome,
};

/// A clock that a test sets.
#[derive(Debug)]
struct SetClock(AtomicU64);

impl SetClock {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(1_000_000)))
    }

    fn advance(&self, by_ms: u64) {
        self.0.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl UnixTime for SetClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

fn options(clock: &Arc<SetClock>, disk: Option<&SimulatedDisk>) -> NodeOptions {
    let data = disk.map(|disk| DataOptions {
        ack: Ack::Durable,
        log: LogOptions { segment_bytes: 16 << 10 },
        snapshot_bytes: 64 << 10,
        ..DataOptions::new(Arc::new(disk.clone()))
    });
    let unix_time = Arc::clone(clock) as Arc<dyn UnixTime>;
    NodeOptions { table_memory_bytes: 8 << 20, data, unix_time, ..NodeOptions::default() }
}

fn expiring(name: &str) -> TableDefinition {
    TableDefinition { values: ValueKind::blocks(1_000).expiring(0), ..definition(name, 8) }
}

/// One write, and the value before.
fn write(
    node: &mut SteppedNode,
    table: &TableInfo,
    (operation, key, operand): (WriteOperation, u64, &[u8]),
) -> (WriteOutcome, Option<Vec<u8>>) {
    let (mut frame, entry) = (Vec::new(), WriteEntry { key, hint: LeafNumber::NONE, value: operand });
    if operation.has_value() {
        Request::begin_write_values(&mut frame, table.id, operation, 1);
        ValueEntries::push(&mut frame, entry);
    } else {
        Request::begin_write(&mut frame, table.id, operation, 1, operand.len());
        WriteEntries::push(&mut frame, entry);
    }
    let reply = node.call(&frame);
    let reply = Reply::decode(&reply).expect("a reply").expect("an answer");
    if operation.returns_value() {
        let (sent, old) = reply.exchanged_values(1).expect("one").next().expect("one").expect("an outcome");
        let is_replaced = matches!(sent.outcome, WriteOutcome::Replaced(_));
        return (sent.outcome, is_replaced.then(|| old.to_vec()));
    }
    (reply.outcomes(1).expect("one").next().expect("one").expect("an outcome").outcome, None)
}

/// What a table should hold: version, deadline and value.
type Model = BTreeMap<u64, (u64, Deadline, Vec<u8>)>;

struct Run {
    random: SplitMix64,
    clock: Arc<SetClock>,
    model: Model,
    version_max: u64,
}

impl Run {
    fn any_value(&mut self) -> Vec<u8> {
        let length = [0, 8, 8, 8, 30, 200][self.random.below(6) as usize];
        vec![self.random.next_u64() as u8; length]
    }

    /// Mostly soon.
    fn any_deadline(&mut self) -> Deadline {
        let now_ms = self.clock.now_ms();
        Deadline(match self.random.below(8) {
            0 => 0,
            1 => now_ms.saturating_sub(self.random.below(3)),
            2 => u64::MAX,
            _ => now_ms + 1 + self.random.below(40),
        })
    }

    /// A write as a client sends it, and its operand's parts without the deadline.
    fn any_write(&mut self, key: u64) -> (WriteOperation, Vec<u8>, Vec<u8>, Vec<u8>) {
        let operation = WriteOperation::ALL[self.random.below(9) as usize];
        let is_right = self.random.below(4) > 0;
        let held = self.model.get(&key).filter(|_| is_right).cloned();
        let argument = match operation {
            WriteOperation::CompareAndSet | WriteOperation::RemoveIf => {
                held.map_or(0, |(version, ..)| version).to_le_bytes().to_vec()
            }
            WriteOperation::CompareAndSetValue => {
                held.map_or_else(|| self.any_value(), |(_, _, value)| value)
            }
            WriteOperation::FetchAdd => self.random.next_u64().to_le_bytes().to_vec(),
            _ => Vec::new(),
        };
        let stores_value = operation.has_value() && operation != WriteOperation::FetchAdd;
        let value = if stores_value { self.any_value() } else { Vec::new() };
        let mut operand = Vec::new();
        if operation == WriteOperation::CompareAndSetValue {
            Operand::push_compare_value(&mut operand, &argument, &value);
        } else {
            operand = [&argument[..], &value].concat();
        }
        (operation, operand, argument, value)
    }

    /// Does one write and judges its outcome.
    fn step(&mut self, node: &mut SteppedNode, table: &TableInfo, key: u64) {
        let (operation, operand, argument, value) = self.any_write(key);
        let (deadline, now_ms) = (self.any_deadline(), self.clock.now_ms());
        let mut sent = Vec::new();
        Operand::push_with_deadline(&mut sent, operation, &operand, deadline).expect("an operand");
        let (outcome, old) = write(node, table, (operation, key, &sent));
        let held = self.model.get(&key).filter(|(_, deadline, _)| !deadline.is_past(now_ms)).cloned();
        let pair = held.as_ref().map(|(version, _, value)| HeldPair { version: *version, value });
        let what = format!("{operation:?} of key {key} at {now_ms}, held {held:?}: {outcome:?}");
        if operation == WriteOperation::FetchAdd && pair.is_some_and(|pair| pair.value.len() != 8) {
            assert_eq!(outcome, WriteOutcome::Failed(ErrorCode::NotInteger), "{what}");
            return;
        }
        match decide_parts(operation, Operand { argument: &argument, value: &value }, pair) {
            Decision::Leave(expected) => assert_eq!(outcome, expected, "{what}"),
            Decision::Remove => {
                assert_eq!(Some(outcome), pair.map(|pair| WriteOutcome::Removed(pair.version)), "{what}");
                self.model.remove(&key);
            }
            Decision::Store(stored) => {
                let ((WriteOutcome::Inserted(version), None) | (WriteOutcome::Replaced(version), Some(_))) =
                    (outcome, pair)
                else {
                    panic!("{what}");
                };
                assert!(version > self.version_max, "{what}");
                self.version_max = version;
                if operation.returns_value() {
                    assert_eq!(old.as_deref(), pair.map(|pair| pair.value), "{what}");
                }
                let is_sum = matches!(stored, NewValue::Sum(_));
                let kept = held.as_ref().filter(|_| is_sum).map(|(_, deadline, _)| *deadline);
                let bytes = stored.bytes().to_vec();
                self.model.insert(key, (version, kept.unwrap_or(deadline), bytes));
            }
        }
    }

    /// A write of some key; then now and then time passes, and the background works.
    fn write_and_wait(&mut self, node: &mut SteppedNode, table: &TableInfo) {
        let key = self.random.below(KEYS);
        self.step(node, table, key);
        if self.random.below(10) == 0 {
            self.clock.advance(self.random.below(20));
        }
        if self.random.below(100) == 0 {
            node.rest(Duration::from_secs(2));
        }
    }

    /// What the table has is what was written last; what has ended may be gone.
    fn check(&self, node: &mut SteppedNode, table: &TableInfo, keys: u64) {
        let now_ms = self.clock.now_ms();
        for key in 0..keys {
            let found = node.stored(table, key);
            let expected = self
                .model
                .get(&key)
                .map(|(version, deadline, value)| (*version, [&deadline.to_bytes()[..], value].concat()));
            let may_be_gone = self.model.get(&key).is_none_or(|(_, deadline, _)| deadline.is_past(now_ms));
            assert!(
                found == expected || found.is_none() && may_be_gone,
                "key {key}: {found:?}, not {expected:?}"
            );
        }
    }
}

const KEYS: u64 = 60;

fn fresh_run(clock: &Arc<SetClock>) -> Run {
    Run { random: SplitMix64::fresh(), clock: Arc::clone(clock), model: Model::new(), version_max: 0 }
}

#[test]
fn every_write_finds_a_pair_absent_from_its_deadline_on() {
    write_at_random();
}

fn write_at_random() {
    let clock = SetClock::new();
    let mut run = fresh_run(&clock);
    let mut node = SteppedNode::start(&options(&clock, None));
    let table = node.create(expiring("ending"));
    for step in 0..20_000 {
        run.write_and_wait(&mut node, &table);
        if step % 1_000 == 999 {
            run.check(&mut node, &table, KEYS);
        }
    }
    let counted = node.state.stats(node.now).tables[0].part().tree;
    assert!(counted.expired > 500, "{counted:?}");
}

#[test]
fn deadlines_come_back_after_a_restart() {
    restart_at_random();
}

fn restart_at_random() {
    let clock = SetClock::new();
    let mut run = fresh_run(&clock);
    let mut disk = SimulatedDisk::default();
    let mut node = SteppedNode::start(&options(&clock, Some(&disk)));
    let table = node.create(expiring("ending"));
    for life in 0..6 {
        for _ in 0..600 {
            run.write_and_wait(&mut node, &table);
        }
        run.check(&mut node, &table, KEYS);
        drop(node);
        disk = disk.crash(life);
        // Some time passes meanwhile.
        clock.advance(run.random.below(60));
        node = SteppedNode::start(&options(&clock, Some(&disk)));
        run.check(&mut node, &table, KEYS);
    }
}

/// The machine's clock is set back by an hour between two lives: what had ended does not come back.
#[test]
fn a_clock_that_was_set_back_sets_no_pair_back() {
    const HOUR_MS: u64 = 3_600_000;
    let directory = tempfile::tempdir().expect("a directory");
    let options = |clock_ms: u64| {
        let disk = RealDisk::make(directory.path()).expect("a disk");
        let clock: Arc<dyn UnixTime> = Arc::new(SetClock(AtomicU64::new(clock_ms)));
        let data = Some(DataOptions::new(Arc::new(disk)));
        NodeOptions { table_memory_bytes: 8 << 20, data, unix_time: clock, ..NodeOptions::default() }
    };
    let now_ms = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as u64;
    let time = |node: &mut SteppedNode| -> u64 {
        let mut frame = Vec::new();
        Request::control(&mut frame, &ControlRequest::Time);
        let reply = node.call(&frame);
        Reply::decode(&reply).expect("a reply").expect("a time").control().expect("a number")
    };
    let mut node = SteppedNode::start(&options(now_ms));
    let table = node.create(expiring("ending"));
    let stored = |deadline: Deadline| [&deadline.to_bytes()[..], b"value"].concat();
    let ended = stored(Deadline(now_ms - 500));
    assert!(matches!(
        write(&mut node, &table, (WriteOperation::Put, 1, &ended)).0,
        WriteOutcome::Inserted(_)
    ));
    drop(node);
    let mut node = SteppedNode::start(&options(now_ms - HOUR_MS));
    // Files have times of the machine, some of it coarse.
    assert!(time(&mut node) + 1_000 > now_ms, "it goes on behind the life before");
    let lasting = stored(Deadline::NEVER);
    let outcome = write(&mut node, &table, (WriteOperation::Update, 1, &lasting)).0;
    assert_eq!(outcome, WriteOutcome::Absent, "it has ended");
    let earlier = time(&mut node);
    std::thread::sleep(Duration::from_millis(20));
    assert!(time(&mut node) >= earlier + 20, "it goes on");
}

#[test]
fn operands_without_deadlines_are_refused() {
    let mut node = SteppedNode::start(&options(&SetClock::new(), None));
    let with = node.create(expiring("with"));
    let values = ValueKind::blocks(1_000);
    let without = node.create(TableDefinition { values, ..definition("without", 8) });
    let mut refused = |table: &TableInfo, operation: WriteOperation, operand: &[u8]| {
        let mut frame = Vec::new();
        Request::begin_write_values(&mut frame, table.id, operation, 1);
        ValueEntries::push(&mut frame, WriteEntry { key: 1, hint: LeafNumber::NONE, value: operand });
        Reply::decode(&node.call(&frame)).expect("a reply").expect_err("no write").to_string()
    };
    let short = refused(&with, WriteOperation::Put, b"short");
    assert!(short.contains("pairs with deadlines, got a Put without one, 5 B in all"), "{short}");
    let sum = refused(&with, WriteOperation::FetchAdd, &[1; 8]);
    assert!(sum.contains("a FetchAdd without one"), "{sum}");
    let sum = refused(&without, WriteOperation::FetchAdd, &[1; 16]);
    assert!(sum.contains("pairs without deadlines, got a FetchAdd with one"), "{sum}");
    let long = refused(&with, WriteOperation::Put, &[1; 1_009]);
    assert!(long.contains("got one of 1001 B"), "{long}");
    let put = write(&mut node, &with, (WriteOperation::Put, 1, &[0; 1_008])).0;
    assert!(matches!(put, WriteOutcome::Inserted(_)), "the longest: {put:?}");
}

#[test]
fn the_background_gives_back_what_has_ended() {
    let clock = SetClock::new();
    let mut node = SteppedNode::start(&options(&clock, None));
    let table = node.create(expiring("ending"));
    let deadline = Deadline(clock.now_ms() + 100);
    for keys in (0..6_000_u64).collect::<Vec<_>>().chunks(100) {
        let mut frame = Vec::new();
        Request::begin_write_values(&mut frame, table.id, WriteOperation::Put, keys.len());
        for key in keys {
            let deadline = if key % 3 == 0 { Deadline::NEVER } else { deadline };
            let value = [&deadline.to_bytes()[..], &[7; 100]].concat();
            ValueEntries::push(&mut frame, WriteEntry { key: *key, hint: LeafNumber::NONE, value: &value });
        }
        Reply::decode(&node.call(&frame)).expect("a reply").expect("outcomes");
    }
    let mut counts_later = || {
        node.rest(Duration::from_secs(10));
        let table = &node.state.stats(node.now).tables[0];
        let (tree, blocks) = (table.part().tree, table.blocks.expect("blocks"));
        (tree.pairs, tree.expired, blocks.live_bytes, tree.leaves)
    };
    let before = counts_later();
    assert_eq!((before.0, before.1), (6_000, 0), "none has ended");
    clock.advance(99);
    assert_eq!(counts_later(), before, "a millisecond before");
    clock.advance(1);
    let after = counts_later();
    assert_eq!((after.0, after.1, after.2), (2_000, 4_000, before.2 / 3));
    assert!(after.3 < before.3 * 2 / 3, "leaves are merged: {after:?} of {before:?}");
}

/// The checkers checked. `RUSTFLAGS="--cfg injected" cargo test`.
#[cfg(injected)]
mod injected {
    use farsight_base::injection::assert_found;

    use super::*;

    #[test]
    fn a_writer_that_counts_a_pair_that_has_ended() {
        assert_found(&farsight_index_xstore::injected::ENDED_PAIR_COUNTED, write_at_random);
    }

    #[test]
    fn a_sequencer_that_does() {
        assert_found(&farsight_node::injected::ENDED_PAIR_DECIDED, restart_at_random);
    }
}

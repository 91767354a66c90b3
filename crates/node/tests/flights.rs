//! Groups of writes that are decided while the sync of the group before is under way: what they see of it,
//! and what becomes of both.

mod common;

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::local_host::{LocalClient, LocalHost};
use common::talk::{definition, value_of};
use farsight_base::LeafNumber;
use farsight_durability::disk::{Disk, DiskFile, SimulatedDisk};
use farsight_node::{DataOptions, Node, NodeHandle, NodeOptions};
use farsight_protocol::{
    Ack, ControlRequest, ErrorCode, Reply, Request, ServerError, TableDefinition, TableInfo, ValueEntries,
    ValueKind, WriteEntries, WriteEntry, WriteOperation, WriteOutcome,
};

/// The longest wait for something that must happen.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Pairs of a full leaf whose values have 8 B.
const PAIRS_A_LEAF: u64 = 16;

/// How syncs of files are held back.
#[derive(Default)]
struct Hold {
    state: Mutex<HoldState>,
    changed: Condvar,
}

#[derive(Default)]
struct HoldState {
    is_held: bool,
    /// Those that have come so far.
    come: usize,
    /// So many pass all the same.
    passes: usize,
    /// Those that are let go fail.
    fails: bool,
    /// The threads that have written to files.
    writers: BTreeSet<String>,
    /// The least time of a sync.
    takes: Duration,
    /// The threads that have synced files since the test looked last.
    syncing: BTreeSet<String>,
}

/// A disk whose syncs a test holds back.
struct HeldDisk {
    disk: SimulatedDisk,
    hold: Arc<Hold>,
}

struct HeldFile {
    file: Box<dyn DiskFile>,
    hold: Arc<Hold>,
}

impl Hold {
    fn change<T>(&self, change: impl FnOnce(&mut HoldState) -> T) -> T {
        let changed = change(&mut self.state.lock().expect("no panic"));
        self.changed.notify_all();
        changed
    }

    /// Holds all back from now on. Returns how many have come so far.
    fn hold(&self) -> usize {
        self.change(|state| {
            state.is_held = true;
            state.come
        })
    }

    /// Waits until so many have come.
    fn wait_for(&self, count: usize) {
        let state = self.state.lock().expect("no panic");
        let waiting = self.changed.wait_timeout_while(state, WAIT_MAX, |state| state.come < count);
        assert!(!waiting.expect("no panic").1.timed_out(), "a sync is begun");
    }

    /// Lets all syncs go, those to come too.
    fn let_go(&self, fails: bool) {
        self.change(|state| (state.is_held, state.fails) = (false, fails));
    }

    fn pass(&self) -> io::Result<()> {
        let takes = self.change(|state| {
            state.come += 1;
            state.syncing.insert(thread::current().name().unwrap_or_default().to_owned());
            state.takes
        });
        let begin = Instant::now();
        while begin.elapsed() < takes {
            std::hint::spin_loop();
        }
        let state = self.state.lock().expect("no panic");
        let is_held = |state: &mut HoldState| state.is_held && state.passes == 0;
        let mut state = self.changed.wait_timeout_while(state, WAIT_MAX, is_held).expect("no panic").0;
        state.passes = state.passes.saturating_sub(1);
        if state.fails { Err(io::Error::other("an injected fault")) } else { Ok(()) }
    }
}

impl HeldDisk {
    fn file(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(HeldFile { file, hold: Arc::clone(&self.hold) })
    }
}

impl Disk for HeldDisk {
    fn place(&self, name: &str) -> String {
        self.disk.place(name)
    }

    fn lock(&self) -> io::Result<()> {
        self.disk.lock()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.file(self.disk.open(name)?))
    }

    fn create(&self, name: &str, length_bytes: u64) -> io::Result<Box<dyn DiskFile>> {
        if name == "spare" {
            // Its syncs are none of those that tests count.
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(self.file(self.disk.create(name, length_bytes)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.disk.sync_directory()
    }
}

impl DiskFile for HeldFile {
    fn length_bytes(&self) -> io::Result<u64> {
        self.file.length_bytes()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let thread = thread::current();
        self.hold.change(|state| state.writers.insert(thread.name().unwrap_or_default().to_owned()));
        self.file.write_at(offset, bytes)
    }

    fn truncate(&self, length_bytes: u64) -> io::Result<()> {
        self.file.truncate(length_bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.hold.pass()?;
        self.file.sync()
    }
}

/// A node on a disk whose syncs are held back at will, and two clients of it.
struct Held {
    disk: SimulatedDisk,
    hold: Arc<Hold>,
    node: NodeHandle,
    client: LocalClient,
    /// Looks while the other one waits.
    watcher: LocalClient,
    /// A table of the node.
    other: TableInfo,
}

impl Held {
    fn start(table_memory_bytes: u64) -> Self {
        let (disk, hold) = (SimulatedDisk::default(), Arc::<Hold>::default());
        let slow = HeldDisk { disk: disk.clone(), hold: Arc::clone(&hold) };
        let (node, host) = start(Arc::new(slow), table_memory_bytes);
        let (client, watcher) = (host.connect(), host.connect());
        let other = client.create("other", 8);
        // It begins a segment, which is synced by itself.
        client.put(&other, &[0]);
        Self { disk, hold, node, client, watcher, other }
    }

    /// Sends writes of one group, and waits until the sequencer has taken them.
    fn send(&self, frames: &[Vec<u8>]) {
        for frame in frames {
            self.client.send(frame);
        }
        // The worker takes calls in their order, so those before this one wait for the sequencer.
        let begin = Instant::now();
        while self.watcher.stats().data.expect("a directory").waiting_bytes > 0 {
            assert!(begin.elapsed() < WAIT_MAX, "the sequencer takes what waits");
            thread::yield_now();
        }
    }

    /// Lets these writes fly as one group: its sync has begun.
    fn fly(&self, frames: &[Vec<u8>]) {
        let come = self.hold.hold();
        // While this one flies, those come together.
        self.send(&[write(&self.other, WriteOperation::Put, 0, &[0; 8])]);
        self.hold.wait_for(come + 1);
        self.send(frames);
        self.hold.change(|state| state.passes = 1);
        self.hold.wait_for(come + 2);
        version_of(self.outcome().expect("a put"));
    }

    fn outcome(&self) -> Result<WriteOutcome, ServerError> {
        let reply = self.client.receive();
        let reply = Reply::decode(&reply).expect("a reply")?;
        Ok(reply.outcomes(1).expect("one").next().expect("one").expect("an outcome").outcome)
    }

    /// What became of an exchange, and the value before.
    fn exchanged(&self, table: &TableInfo) -> (WriteOutcome, Vec<u8>) {
        let reply = self.client.receive();
        let reply = Reply::decode(&reply).expect("a reply").expect("an answer");
        let (sent, old) = if table.definition.values.are_blocks() {
            reply.exchanged_values(1).expect("one").next().expect("one").expect("an outcome")
        } else {
            reply.exchanged(1, 8).expect("one").next().expect("one").expect("an outcome")
        };
        (sent.outcome, old.to_vec())
    }
}

fn start(disk: Arc<dyn Disk>, table_memory_bytes: u64) -> (NodeHandle, Arc<LocalHost>) {
    let host = LocalHost::new();
    let options =
        NodeOptions { table_memory_bytes, data: Some(DataOptions::new(disk)), ..NodeOptions::default() };
    (Node::start(vec![host.clone()], &options).expect("a node"), host)
}

/// A write of one key.
fn write(table: &TableInfo, operation: WriteOperation, key: u64, operand: &[u8]) -> Vec<u8> {
    let (mut frame, entry) = (Vec::new(), WriteEntry { key, hint: LeafNumber::NONE, value: operand });
    if table.definition.values.are_blocks() && operation.has_value() {
        Request::begin_write_values(&mut frame, table.id, operation, 1);
        ValueEntries::push(&mut frame, entry);
    } else {
        let value_bytes = if operation.has_value() { table.definition.values.leaf_bytes() } else { 0 };
        Request::begin_write(&mut frame, table.id, operation, 1, value_bytes);
        WriteEntries::push(&mut frame, entry);
    }
    frame
}

fn compare_and_set(table: &TableInfo, key: u64, version: u64, value: &[u8]) -> Vec<u8> {
    write(table, WriteOperation::CompareAndSet, key, &[&version.to_le_bytes()[..], value].concat())
}

fn version_of(outcome: WriteOutcome) -> u64 {
    match outcome {
        WriteOutcome::Inserted(version) | WriteOutcome::Replaced(version) => version,
        other => panic!("{other:?}"),
    }
}

fn integer(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("8 B"))
}

/// Each conditional write of the second group is decided as if the first had taken place; nobody is told
/// anything, nor sees anything, before that one's sync has ended.
#[test]
fn a_group_sees_what_flies_and_nobody_else_does() {
    use WriteOperation::{FetchAdd, Insert, Put, Remove, Swap, Update};
    let held = Held::start(4 << 20);
    for (name, values) in [("fixed", ValueKind::Fixed(8)), ("blocks", ValueKind::blocks(100))] {
        let table = held.client.create_as(TableDefinition { values, ..definition(name, 8) });
        let table = table.expect("a table");
        let value = |number: u64| number.to_le_bytes();
        held.client.send(&write(&table, Put, 4, &value(40)));
        let first = version_of(held.outcome().expect("a put"));
        held.client.send(&write(&table, Put, 5, &value(50)));
        let second = version_of(held.outcome().expect("a put"));

        held.fly(&[
            write(&table, Insert, 1, &value(10)),
            write(&table, FetchAdd, 2, &value(7)),
            write(&table, Put, 3, &value(30)),
            write(&table, Update, 4, &value(41)),
            write(&table, Remove, 5, &[]),
        ]);
        // Versions are drawn in order.
        let [inserted, updated] = [second + 1, second + 4];
        held.send(&[
            write(&table, Insert, 1, &value(11)),
            write(&table, FetchAdd, 2, &value(5)),
            write(&table, Remove, 3, &[]),
            write(&table, Insert, 3, &value(31)),
            compare_and_set(&table, 4, first, &value(42)),
            compare_and_set(&table, 4, updated, &value(43)),
            write(&table, Update, 5, &value(51)),
            write(&table, Insert, 5, &value(52)),
            write(&table, Swap, 1, &value(12)),
        ]);
        assert_eq!(held.client.try_receive(), None, "nothing is durable");
        let find = |key: u64| {
            if values.are_blocks() {
                held.watcher.get_value(&table, key).expect("an answer").map(|(_, value)| integer(&value))
            } else {
                held.watcher.get(&table, &[key]).expect("an answer")[0].as_deref().map(integer)
            }
        };
        assert_eq!([1, 2, 3, 4, 5].map(find), [None, None, None, Some(40), Some(50)]);
        let syncs = held.disk.syncs();
        held.hold.let_go(false);

        assert_eq!(held.outcome().expect("the first"), WriteOutcome::Inserted(inserted));
        assert_eq!(held.exchanged(&table).0, WriteOutcome::Inserted(inserted + 1));
        assert_eq!(version_of(held.outcome().expect("a put")), inserted + 2);
        assert_eq!(held.outcome().expect("an update"), WriteOutcome::Replaced(updated));
        assert!(matches!(held.outcome().expect("a removal"), WriteOutcome::Removed(_)));

        assert_eq!(held.outcome().expect("an insert"), WriteOutcome::Exists(inserted));
        let (outcome, before) = held.exchanged(&table);
        assert!(matches!(outcome, WriteOutcome::Replaced(_)), "{outcome:?}");
        assert_eq!(integer(&before), 7);
        assert!(matches!(held.outcome().expect("a removal"), WriteOutcome::Removed(_)));
        assert!(matches!(held.outcome().expect("an insert"), WriteOutcome::Inserted(_)));
        assert_eq!(held.outcome().expect("an answer"), WriteOutcome::Differs(updated));
        assert!(matches!(held.outcome().expect("an answer"), WriteOutcome::Replaced(_)));
        assert_eq!(held.outcome().expect("an update"), WriteOutcome::Absent);
        assert!(matches!(held.outcome().expect("an insert"), WriteOutcome::Inserted(_)));
        assert_eq!(integer(&held.exchanged(&table).1), 10);
        assert_eq!([1, 2, 3, 4, 5].map(find), [12, 12, 31, 43, 52].map(Some));
        assert_eq!(held.disk.syncs() - syncs, 2, "one of each group");
    }
}

/// What a write is told that changes nothing waits for what it has seen.
#[test]
fn a_group_without_writes_waits_for_what_it_has_seen() {
    let held = Held::start(4 << 20);
    let table = held.client.create("table", 8);
    held.fly(&[write(&table, WriteOperation::Insert, 1, &value_of(1, 8))]);
    held.send(&[write(&table, WriteOperation::Insert, 1, &value_of(2, 8))]);
    assert_eq!(held.client.try_receive(), None, "nobody was told that there is a pair");
    held.hold.let_go(false);
    let inserted = version_of(held.outcome().expect("an insert"));
    assert_eq!(held.outcome().expect("an answer"), WriteOutcome::Exists(inserted));
}

#[test]
fn a_sync_that_fails_answers_neither_its_group_nor_the_next() {
    let held = Held::start(4 << 20);
    let table = held.client.create("table", 8);
    held.client.put(&table, &[1]);
    held.fly(&[write(&table, WriteOperation::Put, 2, &value_of(2, 8))]);
    held.send(&[
        write(&table, WriteOperation::Put, 3, &value_of(3, 8)),
        write(&table, WriteOperation::Insert, 2, &value_of(2, 8)),
    ]);
    assert_eq!(held.client.try_receive(), None);
    held.hold.let_go(true);
    assert_eq!(held.outcome().expect_err("nobody knows").code, ErrorCode::Bug);
    for _ in 0..2 {
        assert_eq!(held.outcome().expect_err("never written").code, ErrorCode::OutOfResources);
    }
    assert!(held.node.failure().expect("the disk failed").contains("an injected fault"));
    held.hold.let_go(false);
    held.client.send(&write(&table, WriteOperation::Put, 4, &value_of(4, 8)));
    assert!(held.outcome().is_err(), "no later sync counts");
    for seed in 0..4 {
        let (_node, host) = start(Arc::new(held.disk.crash(seed)), 4 << 20);
        let found = host.connect().get(&table, &[1, 3, 4]).expect("pairs");
        assert_eq!(found, [Some(value_of(1, 8)), None, None], "nothing behind it was written");
    }
}

#[test]
fn calls_to_tables_of_memory_pass_what_flies() {
    let held = Held::start(4 << 20);
    let table = held.client.create("safe", 8);
    let quick = TableDefinition { ack: Some(Ack::Memory), ..definition("quick", 8) };
    let quick = held.client.create_as(quick).expect("a table");
    held.fly(&[write(&table, WriteOperation::Put, 1, &value_of(1, 8))]);
    held.send(&[write(&table, WriteOperation::Put, 2, &value_of(2, 8))]);
    held.watcher.put(&quick, &[7]);
    assert_eq!(held.watcher.get(&quick, &[7]).expect("a pair"), [Some(value_of(7, 8))]);
    assert_eq!(held.watcher.get(&table, &[1, 2]).expect("none"), [None, None]);
    assert_eq!(held.client.try_receive(), None);
    held.hold.let_go(false);
    version_of(held.outcome().expect("a put"));
    version_of(held.outcome().expect("a put"));
    held.watcher.put(&quick, &[8]);
    let found = held.watcher.get(&table, &[1, 2]).expect("pairs");
    assert_eq!(found, [1, 2].map(|key| Some(value_of(key, 8))));
}

/// Writes are logged by the worker that they came to, where its step waits for nothing, and all are answered.
#[test]
fn a_worker_takes_the_place_of_the_sequencer() {
    /// In each of them the sequencer's own thread might be the first.
    const CALLS_MAX: u64 = 10_000;
    let held = Held::start(4 << 20);
    let in_memory = TableDefinition { ack: Some(Ack::Memory), ..definition("in-memory", 8) };
    for table in [held.client.create_as(in_memory).expect("a table"), held.other.clone()] {
        held.client.put(&table, &[7]);
        held.hold.change(|state| state.writers.clear());
        let helped = (0..CALLS_MAX).find(|_| {
            assert!(matches!(held.client.put(&table, &[7])[0], WriteOutcome::Replaced(_)));
            held.hold.change(|state| state.writers.contains("worker 0"))
        });
        assert!(helped.is_some(), "none of {CALLS_MAX} calls was logged by its worker");
    }
}

/// Another table does not wait for the sync; its first write waits for what flies, which is applied by the
/// catalogue from before.
#[test]
fn tables_come_and_go_while_a_group_flies() {
    let held = Held::start(4 << 20);
    let [first, gone] = ["first", "gone"].map(|name| held.client.create(name, 8));
    held.fly(&[
        write(&first, WriteOperation::Put, 1, &value_of(1, 8)),
        write(&gone, WriteOperation::Put, 1, &value_of(1, 8)),
    ]);
    held.send(&[write(&gone, WriteOperation::Put, 2, &value_of(2, 8))]);
    // Changes of the catalogue are synced as files of their own, so they are let go here.
    held.hold.let_go(false);
    let drop = ControlRequest::DropTable("gone".into());
    held.watcher.control::<()>(&drop).expect("dropped");
    let new = held.watcher.create("new", 8);
    held.watcher.put(&new, &[5]);
    for _ in 0..2 {
        version_of(held.outcome().expect("a put"));
    }
    // By then the table may be gone.
    let _ = held.outcome();
    assert_eq!(held.watcher.get(&first, &[1]).expect("pairs"), [Some(value_of(1, 8))]);
    assert_eq!(held.node.failure(), None);
    let (_node, host) = start(Arc::new(held.disk.crash(1)), 4 << 20);
    assert_eq!(host.connect().get(&new, &[5]).expect("pairs"), [Some(value_of(5, 8))]);
}

/// Two groups that have room one by one, and not together: each insert splits a leaf of its own.
#[test]
fn room_that_a_flying_group_takes_is_not_given_again() {
    let held = Held::start(64 << 10);
    let table = held.client.create("full", 8);
    let leaves = u64::from(table.capacity_leaves());
    // Ascending keys fill leaves to their end.
    let keys: Vec<u64> = (0..leaves * 6 / 10 * PAIRS_A_LEAF).map(|key| key * 2).collect();
    held.client.put(&table, &keys);
    let stats = held.client.stats();
    let used = stats.tables.iter().find(|stats| stats.info.id == table.id).expect("it").part().tree.leaves;
    let free = leaves - used;
    let each = free * 7 / 10;
    assert!(2 * each > free && 2 * each < used, "{free} of {leaves} leaves are free");
    // One call, hence one group.
    let inserts = |numbers: Range<u64>| {
        let mut frame = Vec::new();
        let count = (numbers.end - numbers.start) as usize;
        Request::begin_write(&mut frame, table.id, WriteOperation::Insert, count, 8);
        for number in numbers {
            let key = number * 2 * PAIRS_A_LEAF + 1;
            let value = value_of(key, 8);
            WriteEntries::push(&mut frame, WriteEntry { key, hint: LeafNumber::NONE, value: &value });
        }
        frame
    };
    let inserted = || {
        let reply = held.client.receive();
        let reply = Reply::decode(&reply).expect("a reply").expect("outcomes");
        let outcomes = reply.outcomes(each as usize).expect("outcomes");
        let is_inserted = |outcome| matches!(outcome, WriteOutcome::Inserted(_));
        outcomes.filter(|sent| is_inserted(sent.as_ref().expect("an outcome").outcome)).count() as u64
    };
    held.fly(&[inserts(0..each)]);
    held.send(&[inserts(each..2 * each)]);
    held.hold.let_go(false);
    assert_eq!(inserted(), each);
    let rest = inserted();
    assert!(rest <= free - each && rest + 4 > free - each, "{rest} of {free} less {each}");
    assert_eq!(held.node.failure(), None);
}

/// Writes one after the other are synced by the worker, which nobody else needs. With calls of another client
/// in between they are not. The disk's syncs take longer than those that everybody does in place.
#[test]
fn a_worker_syncs_a_write_that_is_alone_and_gives_it_up_in_company() {
    let held = Held::start(4 << 20);
    held.hold.change(|state| state.takes = Duration::from_micros(30));
    let syncing = || held.hold.change(|state| std::mem::take(&mut state.syncing));
    let put = |key: u64| {
        held.client.send(&write(&held.other, WriteOperation::Put, key, &[0; 8]));
        version_of(held.outcome().expect("a put"));
    };
    let begin = Instant::now();
    // On a busy machine a sync may take long now and then.
    let mut key = 0;
    let is_worker = |name: &str| name.starts_with("worker");
    while !syncing().iter().any(|name| is_worker(name)) {
        assert!(begin.elapsed() < WAIT_MAX, "a worker syncs for one that waits alone");
        put(key);
        key += 1;
    }
    // The first of these may be alone yet, by what its worker has seen.
    held.watcher.get(&held.other, &[0]).expect("an answer");
    put(0);
    syncing();
    for key in 0..200 {
        held.watcher.get(&held.other, &[key]).expect("an answer");
        put(key);
    }
    let names = syncing();
    assert!(!names.is_empty() && !names.iter().any(|name| is_worker(name)), "{names:?}");
}

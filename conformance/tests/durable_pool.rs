//! Pools of XStore-D whose nodes have directories of data, against a model: crashes of one node or of all
//! between operations, and at any operation of one node's disk.
//!
//! Invariant: whatever was answered is there when the nodes are back. What a crash met took place or not: a
//! table is there with all of its pairs, or nowhere. Of a batch each pair is the old one or the new one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use farsight::{Access, Answers, WriteOperation, WriteOutcome};
use farsight_base::prng::SplitMix64;
use farsight_client::{
    CatalogueError, Client, ClientOptions, Direction, EngineKind, NewTable, PoolClient, ScanRequest,
};
use farsight_conformance::fabric::FabricUnderTest;
use farsight_conformance::fabric::shm::Shm;
use farsight_conformance::fabric::tcp::Tcp;
use farsight_durability::LogOptions;
use farsight_durability::disk::{Fault, SimulatedDisk};
use farsight_index::Pairs;
use farsight_layout::FORMAT_VERSION;
use farsight_node::{DataOptions, Node, NodeHandle, NodeOptions};
use farsight_protocol::{KeyKind, TableDefinition};

const NODES: usize = 3;
/// Programs of a run.
const PROGRAMS: u64 = 3;
const STEPS: usize = 120;
const KEYS: u64 = 60;
const NAMES: u64 = 5;
const VALUE_BYTES: usize = 8;
/// Operations of a disk within which an armed crash comes.
const CRASH_WITHIN: u64 = 24;
/// Steps at most until an armed crash has come: its node has no more operations if nothing writes there.
const ARMED_STEPS_MAX: usize = 12;

/// For how long a client tries to connect again.
const PATIENCE: Duration = Duration::from_secs(30);

/// Values and versions by key. The version of a write that was not answered is zero.
type Model = BTreeMap<u64, (u64, u64)>;
/// Pairs by the table's name.
type Tables = BTreeMap<String, Model>;

struct DurablePool<F> {
    subjects: Vec<F>,
    disks: Vec<SimulatedDisk>,
    nodes: Vec<Option<NodeHandle>>,
}

/// A program that knows what the pool must hold.
struct Program<F: FabricUnderTest> {
    pool: DurablePool<F>,
    client: PoolClient<F::Connection>,
    random: SplitMix64,
    tables: Tables,
    written: u64,
}

impl<F: FabricUnderTest> DurablePool<F> {
    fn new(subjects: Vec<F>) -> Self {
        let disks = subjects.iter().map(|_| SimulatedDisk::default()).collect();
        let nodes = subjects.iter().map(|_| None).collect();
        let mut pool = Self { subjects, disks, nodes };
        for node in 0..NODES {
            pool.start(node);
        }
        pool
    }

    fn start(&mut self, node: usize) {
        let log = LogOptions { segment_bytes: 16 << 10 };
        let data = DataOptions {
            log,
            snapshot_bytes: 64 << 10,
            ..DataOptions::new(Arc::new(self.disks[node].clone()))
        };
        let options = NodeOptions { table_memory_bytes: 1 << 20, data: Some(data), ..NodeOptions::default() };
        let host = Arc::new(self.subjects[node].listen(FORMAT_VERSION));
        self.nodes[node] = Some(Node::start(vec![host], &options).expect("a node"));
    }

    /// The machine of a node stops, and starts again.
    fn crash(&mut self, node: usize, seed: u64) {
        self.disks[node] = self.disks[node].crash(seed);
        // A node whose disk has failed may have threads that have ended with it.
        drop(self.nodes[node].take());
        self.start(node);
    }

    fn connect(&self) -> PoolClient<F::Connection> {
        let connections = self.subjects.iter().map(|subject| subject.connect(FORMAT_VERSION));
        let connections = connections.collect::<Result<Vec<_>, _>>().expect("connections");
        // Nodes are back before the next call. On a busy machine one may not answer at once.
        let options = ClientOptions { reconnect_timeout: PATIENCE };
        PoolClient::of_pool(connections, options).expect("a client")
    }
}

/// A key at any of the nodes.
fn key_of(index: u64) -> u64 {
    index * (u64::MAX / KEYS)
}

/// All pairs of a table, by a scan and by GETs.
fn pairs_of(client: &Client, name: &str) -> Model {
    let table = client.open_table(name).expect("the table");
    let mut session = table.session(Access::OneSided).expect("a session");
    let mut pairs = Pairs::default();
    let all = ScanRequest { from: 0, limit: 2 * KEYS as usize };
    session.scan_batch(Direction::Ascending, &[all], &mut pairs).expect("pairs");
    let number = |value: &[u8]| u64::from_le_bytes(value.try_into().expect("8 B"));
    let scanned = (0..pairs.len()).map(|at| pairs.pair(at));
    let scanned: Model = scanned.map(|pair| (pair.key, (number(pair.value), pair.version))).collect();
    let (keys, mut answers) = ((0..KEYS).map(key_of).collect::<Vec<_>>(), Answers::default());
    session.multi_get(&keys, &mut answers).expect("answers");
    let found = keys.iter().zip(answers.iter()).filter_map(|(key, answer)| Some((*key, answer?)));
    let found: Model = found.map(|(key, (value, version))| (key, (number(value), version))).collect();
    assert_eq!(scanned, found, "{name}: a scan and GETs");
    scanned
}

/// What a call that failed leaves.
enum Doubt {
    /// The tables as before, or these.
    Whole(Tables),
    /// Each pair as before, or as here.
    Pairs(Tables),
}

impl<F: FabricUnderTest> Program<F> {
    fn new(subjects: Vec<F>, random: SplitMix64) -> Self {
        let pool = DurablePool::new(subjects);
        let client = pool.connect();
        Self { pool, client, random, tables: Tables::new(), written: 0 }
    }

    fn run(&mut self) {
        for _ in 0..STEPS {
            match self.random.below(10) {
                0 => self.crash_some(),
                1 => self.crash_within_operations(),
                _ => {
                    let done = self.step();
                    assert!(done.is_none(), "a call failed, and no disk did");
                }
            }
        }
        self.crash(&(0..NODES).collect::<Vec<_>>());
        self.compare(None);
    }

    /// A crash of one node, or of all, between two calls.
    fn crash_some(&mut self) {
        let all = self.random.below(4) == 0;
        let nodes = if all { (0..NODES).collect() } else { vec![self.random.below(NODES as u64) as usize] };
        self.crash(&nodes);
        self.compare(None);
    }

    /// A crash at some operation of a node's disk, and of the others at the same time or not.
    fn crash_within_operations(&mut self) {
        let node = self.random.below(NODES as u64) as usize;
        self.pool.disks[node].set_faults(&[Fault::CrashAt(self.random.below(CRASH_WITHIN))]);
        let doubt = (0..ARMED_STEPS_MAX).find_map(|_| self.step());
        let all = self.random.below(4) == 0;
        self.crash(&if all { (0..NODES).collect::<Vec<_>>() } else { vec![node] });
        self.compare(doubt);
    }

    fn crash(&mut self, nodes: &[usize]) {
        for node in nodes {
            let seed = self.random.next_u64();
            self.pool.crash(*node, seed);
        }
        // Sometimes the client is another one.
        if self.random.below(2) == 0 {
            self.client = self.pool.connect();
        }
    }

    /// Reads all, and takes it for what is there from now on.
    ///
    /// # Panics
    /// If it is not what may be there.
    fn compare(&mut self, doubt: Option<Doubt>) {
        self.client.node_stats().expect("all nodes are back");
        let names = self.client.tables().expect("tables").into_iter().map(|info| info.definition.name);
        let found: Tables = names.map(|name| (name.clone(), pairs_of(&self.client, &name))).collect();
        match doubt {
            None => assert_eq!(found, self.tables),
            Some(Doubt::Whole(after)) => {
                let before = &self.tables;
                assert!(found == *before || found == after, "{found:?} is neither {before:?} nor {after:?}");
            }
            Some(Doubt::Pairs(after)) => {
                assert!(found.keys().eq(self.tables.keys()), "{found:?}, {:?}", self.tables);
                for (name, pairs) in &found {
                    for key in (0..KEYS).map(key_of) {
                        let (before, after) = (self.tables[name].get(&key), after[name].get(&key));
                        let got = pairs.get(&key);
                        let is_after = got.map(|pair| pair.0) == after.map(|pair| pair.0);
                        assert!(got == before || is_after, "{name} {key}: {got:?} of {before:?}, {after:?}");
                    }
                }
            }
        }
        self.tables = found;
        if !self.tables.is_empty() {
            self.check_parts();
        }
    }

    /// Who opened a table has told all nodes what was dropped: none has more tables than the coordinator.
    fn check_parts(&self) {
        let stats = self.client.node_stats().expect("statistics");
        let numbers: Vec<BTreeSet<u32>> =
            stats.iter().map(|node| node.tables.iter().map(|table| table.info.id.0).collect()).collect();
        assert!(numbers.iter().all(|part| *part == numbers[0]), "{numbers:?}");
    }

    /// Does something, and says what is in doubt if it failed.
    fn step(&mut self) -> Option<Doubt> {
        let (name, other) = (self.name(), self.name());
        match self.random.below(12) {
            0 => self.create(&name),
            1 if self.random.below(2) == 0 => self.drop_table(&name),
            2 => self.rename(&name, &other),
            3 => self.swap(&name, &other),
            4 if self.random.below(3) == 0 => {
                // Nothing is in doubt, whatever comes of it.
                let made = self.client.snapshot();
                made.is_err().then(|| Doubt::Whole(self.tables.clone()))
            }
            _ => self.write(&name),
        }
    }

    fn name(&mut self) -> String {
        format!("t{}", self.random.below(NAMES))
    }

    fn create(&mut self, name: &str) -> Option<Doubt> {
        let definition = TableDefinition::new(name, KeyKind::U64, VALUE_BYTES as u16);
        let new = NewTable { definition, engine: Some(EngineKind::XSTORE_D), sample: Vec::new() };
        let created = self.client.create_table(new).map(drop);
        let mut after = self.tables.clone();
        after.entry(name.to_owned()).or_default();
        self.changed(&created, after)
    }

    fn drop_table(&mut self, name: &str) -> Option<Doubt> {
        self.tables.contains_key(name).then_some(())?;
        let dropped = self.client.drop_table(name);
        let mut after = self.tables.clone();
        after.remove(name);
        self.changed(&dropped, after)
    }

    fn rename(&mut self, from: &str, to: &str) -> Option<Doubt> {
        (self.tables.contains_key(from) && !self.tables.contains_key(to)).then_some(())?;
        let renamed = self.client.rename_table(from, to);
        let mut after = self.tables.clone();
        let pairs = after.remove(from).expect("it is there");
        after.insert(to.to_owned(), pairs);
        self.changed(&renamed, after)
    }

    fn swap(&mut self, first: &str, second: &str) -> Option<Doubt> {
        (first != second).then_some(())?;
        let (one, other) = (self.tables.get(first)?.clone(), self.tables.get(second)?.clone());
        let swapped = self.client.swap_tables(first, second);
        let mut after = self.tables.clone();
        after.insert(first.to_owned(), other);
        after.insert(second.to_owned(), one);
        self.changed(&swapped, after)
    }

    fn changed(&mut self, done: &Result<(), CatalogueError>, after: Tables) -> Option<Doubt> {
        if done.is_err() {
            return Some(Doubt::Whole(after));
        }
        self.tables = after;
        None
    }

    /// A batch over all nodes.
    fn write(&mut self, name: &str) -> Option<Doubt> {
        self.tables.contains_key(name).then_some(())?;
        let is_removal = self.random.below(4) == 0;
        let keys: BTreeSet<u64> = (0..=self.random.below(8)).map(|_| self.random.below(KEYS)).collect();
        let mut after = self.tables.clone();
        let pairs = after.get_mut(name).expect("it is there");
        let mut entries = Vec::new();
        for key in keys.into_iter().map(key_of) {
            self.written += 1;
            if is_removal {
                pairs.remove(&key);
            } else {
                pairs.insert(key, (self.written, 0));
            }
            entries.push((key, if is_removal { Vec::new() } else { self.written.to_le_bytes().to_vec() }));
        }
        let operation = if is_removal { WriteOperation::Remove } else { WriteOperation::Put };
        let mut outcomes = Vec::new();
        let opened = self.client.open_table(name).ok().and_then(|table| table.session(Access::OneSided).ok());
        let Some(mut session) = opened else { return Some(Doubt::Pairs(after)) };
        let sent = entries.iter().map(|(key, value)| (*key, &value[..]));
        let written = session.write(operation, sent, &mut outcomes);
        let is_failed = |outcome: &WriteOutcome| matches!(outcome, WriteOutcome::Failed(_));
        if written.is_err() || outcomes.iter().any(is_failed) {
            return Some(Doubt::Pairs(after));
        }
        let pairs = after.get_mut(name).expect("it is there");
        for ((key, _), outcome) in entries.iter().zip(&outcomes) {
            if let WriteOutcome::Inserted(version) | WriteOutcome::Replaced(version) = outcome {
                pairs.get_mut(key).expect("it was put").1 = *version;
            }
        }
        self.tables = after;
        None
    }
}

fn crash_again_and_again<F: FabricUnderTest>(programs: u64, subject: impl Fn() -> F) {
    let mut random = SplitMix64::fresh();
    for _ in 0..programs {
        let subjects = (0..NODES).map(|_| subject()).collect();
        Program::new(subjects, SplitMix64::new(random.next_u64())).run();
    }
}

/// A table is dropped while another node's disk fails, and then all machines stop.
fn missed_drops<F: FabricUnderTest>(subject: impl Fn() -> F) {
    let mut random = SplitMix64::fresh();
    let subjects = (0..NODES).map(|_| subject()).collect();
    let mut program = Program::new(subjects, SplitMix64::new(random.next_u64()));
    // Who opens the other table tells all nodes what was dropped.
    assert!(program.create("t1").is_none());
    for node in 1..NODES {
        assert!(program.create("t0").is_none() && program.write("t0").is_none());
        program.pool.disks[node].set_faults(&[Fault::CrashAt(0)]);
        let doubt = program.drop_table("t0");
        assert!(doubt.is_some(), "a node did not hear of it");
        program.crash(&(0..NODES).collect::<Vec<_>>());
        program.compare(doubt);
        assert!(!program.tables.contains_key("t0"), "the coordinator had dropped it");
    }
}

/// Disks as they were at any time in the past are refused, unless all nodes have them: then nothing has
/// happened since.
fn old_copies<F: FabricUnderTest>(subject: impl Fn() -> F) {
    let mut random = SplitMix64::fresh();
    let subjects = (0..NODES).map(|_| subject()).collect();
    let mut program = Program::new(subjects, SplitMix64::new(random.next_u64()));
    assert!(program.create("t0").is_none());
    for node in 0..NODES {
        assert!(program.write("t0").is_none());
        let old = program.pool.disks[node].crash(random.next_u64());
        program.crash(&[node]);
        // Only who works with a life lets the others meet it.
        assert!(program.write("t0").is_none());
        let newest = program.pool.disks[node].clone();
        program.pool.disks[node] = old;
        for _ in 0..=random.below(3) {
            program.pool.crash(node, random.next_u64());
            let refused = program.pool.connect().open_table("t0").err().map(|error| error.to_string());
            assert!(refused.is_some_and(|error| error.contains("an old copy of its directory")));
        }
        program.pool.disks[node] = newest;
        program.pool.crash(node, random.next_u64());
        program.client = program.pool.connect();
        program.compare(None);
    }
}

#[test]
fn an_old_copy_of_a_disk_is_refused() {
    old_copies(Shm::new);
}

#[test]
fn pools_come_back_over_shared_memory() {
    crash_again_and_again(PROGRAMS, Shm::new);
}

#[test]
fn pools_come_back_over_tcp() {
    crash_again_and_again(PROGRAMS, Tcp::default);
}

#[test]
fn a_drop_that_a_node_missed_is_made_up_for() {
    missed_drops(Shm::new);
}

/// The checkers checked. `RUSTFLAGS="--cfg injected" cargo test`.
#[cfg(injected)]
mod injected {
    use farsight_base::injection::assert_found;

    use super::*;

    #[test]
    fn an_old_copy_that_is_taken_for_the_newest() {
        assert_found(&farsight_client::injected::LIVES_NOT_COMPARED, || old_copies(Shm::new));
    }
}

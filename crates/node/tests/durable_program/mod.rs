//! A node with a directory of data whose steps one thread takes, beside what a map knows of its tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use farsight_base::clock::MonotonicNs;
use farsight_base::prng::SplitMix64;
use farsight_base::{LINE_BYTES, LeafNumber};
use farsight_durability::LogOptions;
use farsight_durability::disk::{Fault, SimulatedDisk};
use farsight_layout::value_block::block_lines;
use farsight_node::{DataOptions, NodeOptions, NodeState, Sequencer, Snapshots, Worker};
use farsight_protocol::{
    ControlRequest, Direction, ErrorCode, PairsReader, Reply, Request, ServerError, TableDefinition, TableId,
    TableInfo, TableStats, ValueEntries, ValueKind, WriteEntries, WriteEntry, WriteOperation, WriteOutcome,
};

use crate::common::local_host::{LocalClient, LocalHost};
use crate::common::stepped::beside_log;
use crate::common::talk::{create_at, definition, value_of};

const STEPS: usize = 14;
const KEYS: u64 = 20;
const VALUE_BYTES: usize = 8;
const FIXED: ValueKind = ValueKind::Fixed(VALUE_BYTES as u16);
/// The longest value of a table of blocks, and one more.
const BLOCK_VALUE_BYTES: u64 = 300;
const BLOCKS: ValueKind = ValueKind::blocks(BLOCK_VALUE_BYTES as u32);
const BUDGET: usize = 64;
/// Bytes of a piece of a snapshot: tables have several.
const PIECE_BYTES: u64 = 200;

/// Values by key.
type Pairs = BTreeMap<u64, Vec<u8>>;
/// Pairs by the table's name.
type Tables = BTreeMap<String, Pairs>;

/// The node, and what it holds.
pub(crate) struct Program {
    state: Arc<NodeState>,
    worker: Worker,
    sequencer: Sequencer,
    snapshots: Snapshots,
    client: LocalClient,
    /// Reads while calls of the other one wait.
    reader: LocalClient,
    tables: BTreeMap<String, TableInfo>,
    random: SplitMix64,
    acknowledged: Tables,
    /// What it holds if the first ones of the groups under way took place.
    between: Vec<Tables>,
    /// What it holds if what was under way took place.
    perhaps: Tables,
    /// The greatest version of each table that was told.
    versions: BTreeMap<TableId, u64>,
}

/// Runs programs until they crash at each operation of the disk in turn, and looks what is left.
pub(crate) fn crash_everywhere(programs: u64) {
    let given = std::env::var("FARSIGHT_SEED").ok().and_then(|text| text.parse().ok());
    let seed =
        given.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos() as u64);
    println!("crash_everywhere: FARSIGHT_SEED={seed}");
    for number in 0..programs {
        let disk = SimulatedDisk::default();
        let mut program = Program::start(&disk, seed ^ number);
        assert!(program.run().is_ok(), "without a fault");
        program.check(&disk.crash(seed), "at its end");
        for at in 0..disk.operations() {
            let disk = SimulatedDisk::new(&[Fault::CrashAt(at)]);
            let Some(mut program) = Program::try_start(&disk, seed ^ number) else { continue };
            // It ends where the machine does.
            let _ = program.run();
            program.check(&disk.crash(seed ^ at), &format!("program {number}, crash at operation {at}"));
        }
    }
}

impl Program {
    pub(crate) fn start(disk: &SimulatedDisk, seed: u64) -> Self {
        Self::try_start(disk, seed).expect("a disk without faults")
    }

    fn try_start(disk: &SimulatedDisk, seed: u64) -> Option<Self> {
        let host = LocalHost::new();
        let log = LogOptions { segment_bytes: 8 << 10 };
        let data = DataOptions { log, piece_bytes: PIECE_BYTES, ..DataOptions::new(Arc::new(disk.clone())) };
        let options = NodeOptions { table_memory_bytes: 1 << 20, data: Some(data), ..NodeOptions::default() };
        let state = NodeState::new(vec![host.clone()], &options, MonotonicNs(0)).ok()?;
        let sequencer = state.recover().ok()?.expect("there is a directory");
        let worker = Worker::open(&state, 0, "the worker").expect("a worker");
        let (client, reader) = (host.connect(), host.connect());
        Some(Self {
            snapshots: state.snapshots().expect("there is a directory"),
            state,
            worker,
            sequencer,
            client,
            reader,
            tables: BTreeMap::new(),
            random: SplitMix64::new(seed),
            acknowledged: Tables::new(),
            between: Vec::new(),
            perhaps: Tables::new(),
            versions: BTreeMap::new(),
        })
    }

    /// Why the node refuses everything, if it does.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.state.failure()
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.next_u64() % end
    }

    fn run(&mut self) -> Result<(), ServerError> {
        self.try_create("t0", FIXED)?;
        self.try_create("b0", BLOCKS)?;
        for step in 0..STEPS {
            match self.below(14) {
                0 => {
                    let values = if self.below(2) == 0 { FIXED } else { BLOCKS };
                    self.try_create(&format!("t{}", step + 1), values)?;
                }
                1 => self.drop_some()?,
                2 => self.rename_some(&format!("r{step}"))?,
                3 => self.load_new(&format!("l{step}"))?,
                4 | 5 => self.round()?,
                _ => self.group()?,
            }
        }
        Ok(())
    }

    /// Makes a table.
    pub(crate) fn create(&mut self, name: &str) {
        self.try_create(name, FIXED).expect("a new table");
    }

    /// Makes a table of values of any length.
    pub(crate) fn create_blocks(&mut self, name: &str) {
        self.try_create(name, BLOCKS).expect("a new table");
    }

    fn try_create(&mut self, name: &str, values: ValueKind) -> Result<(), ServerError> {
        self.perhaps.insert(name.to_owned(), Pairs::new());
        let definition = TableDefinition { values, ..definition(name, 8) };
        let info: TableInfo = self.control(&create_at(self.state.epoch().0, definition))?;
        self.tables.insert(name.to_owned(), info);
        self.acknowledge();
        Ok(())
    }

    fn drop_some(&mut self) -> Result<(), ServerError> {
        let Some(name) = self.some_table() else { return Ok(()) };
        self.perhaps.remove(&name);
        self.control::<()>(&ControlRequest::DropTable(name.clone()))?;
        self.tables.remove(&name);
        self.acknowledge();
        Ok(())
    }

    fn rename_some(&mut self, to: &str) -> Result<(), ServerError> {
        let Some(from) = self.some_table() else { return Ok(()) };
        let pairs = self.perhaps.remove(&from).expect("a table");
        self.perhaps.insert(to.to_owned(), pairs);
        self.control::<()>(&ControlRequest::RenameTable { from: from.clone(), to: to.to_owned() })?;
        let info = self.tables.remove(&from).expect("a table");
        self.tables.insert(to.to_owned(), info);
        self.acknowledge();
        Ok(())
    }

    fn load_new(&mut self, name: &str) -> Result<(), ServerError> {
        self.try_create(name, FIXED)?;
        let table = self.tables[name].id;
        let keys: Vec<u64> = (0..KEYS).map(|key| key * 3).collect();
        for (piece, keys) in keys.chunks(8).enumerate() {
            let is_last = (piece + 1) * 8 >= KEYS as usize;
            let mut frame = Vec::new();
            Request::begin_bulk_load(&mut frame, table, is_last, piece as u32, keys.len(), VALUE_BYTES);
            for key in keys {
                let value = value_of(*key, VALUE_BYTES);
                WriteEntries::push(
                    &mut frame,
                    WriteEntry { key: *key, hint: LeafNumber::NONE, value: &value },
                );
            }
            if is_last {
                let loaded = (0..KEYS).map(|key| (key * 3, value_of(key * 3, VALUE_BYTES))).collect();
                self.perhaps.insert(name.to_owned(), loaded);
            }
            self.client.send(&frame);
            self.steps();
            let reply = self.client.receive();
            Reply::decode(&reply).expect("a reply")?;
        }
        self.acknowledge();
        Ok(())
    }

    /// A round of snapshots. Nothing that clients see changes by it.
    fn round(&mut self) -> Result<(), ServerError> {
        let round: u64 = self.control(&ControlRequest::BeginSnapshots)?;
        let (sequencer, snapshots) = (&mut self.sequencer, &mut self.snapshots);
        let made = beside_log(sequencer, || snapshots.step(&|| false));
        made.map_err(|error| ServerError::new(ErrorCode::Bug, format!("round {round}: {error}")))
    }

    /// Several calls that wait together. Sometimes those that come first fly when others come.
    fn group(&mut self) -> Result<(), ServerError> {
        let mut sent = Vec::new();
        for _ in 0..=self.below(4) {
            let Some(name) = self.some_table() else { break };
            let operation =
                [WriteOperation::Insert, WriteOperation::Update, WriteOperation::Put, WriteOperation::Remove]
                    [self.below(4) as usize];
            let entries = (0..=self.below(4)).map(|_| (self.below(KEYS), self.random.next_u64()));
            let entries: Vec<(u64, u64)> = entries.collect();
            sent.push(self.send(&name, operation, &entries));
            if self.below(2) == 0 {
                self.fly(&name);
            }
        }
        self.steps();
        for (table, expected) in sent {
            self.receive(table, &expected)?;
        }
        self.acknowledge();
        Ok(())
    }

    /// The sequencer takes what waits, and leaves it under way. Nobody sees anything of it yet.
    fn fly(&mut self, name: &str) {
        self.worker.step(MonotonicNs(1), BUDGET);
        self.sequencer.advance();
        self.between.push(self.perhaps.clone());
        if self.failure().is_none() {
            let info = self.tables[name].clone();
            self.send_scan(&info);
            self.worker.step(MonotonicNs(2), BUDGET);
            let (pairs, _) = self.receive_pairs(&info);
            assert_eq!(pairs, self.acknowledged[name], "a sync is under way, and its group is seen");
        }
    }

    /// Puts one pair.
    pub(crate) fn put(&mut self, name: &str, key: u64, value: u64) -> Result<(), ServerError> {
        let before = self.perhaps.clone();
        let (table, expected) = self.send(name, WriteOperation::Put, &[(key, value)]);
        self.steps();
        let received = self.receive(table, &expected);
        match &received {
            Ok(()) => self.acknowledge(),
            Err(error) if error.code != ErrorCode::Bug => self.perhaps = before,
            Err(_) => {}
        }
        received
    }

    /// Sends a call, and says which kinds of outcomes are due.
    fn send(
        &mut self,
        name: &str,
        operation: WriteOperation,
        entries: &[(u64, u64)],
    ) -> (TableId, Vec<WriteOutcome>) {
        let (table, values) = (self.tables[name].id, self.tables[name].definition.values);
        let has_blocks = values.are_blocks() && operation.has_value();
        let mut frame = Vec::new();
        if has_blocks {
            Request::begin_write_values(&mut frame, table, operation, entries.len());
        } else {
            Request::begin_write(&mut frame, table, operation, entries.len(), VALUE_BYTES);
        }
        let mut expected = Vec::new();
        let pairs = self.perhaps.get_mut(name).expect("a table");
        for (key, value) in entries {
            let length = if values.are_blocks() { (value % BLOCK_VALUE_BYTES) as usize } else { VALUE_BYTES };
            let value = value_of(*value, length);
            let sent = if operation.has_value() { &value[..] } else { &[] };
            let entry = WriteEntry { key: *key, hint: LeafNumber::NONE, value: sent };
            let push = if has_blocks { ValueEntries::push } else { WriteEntries::push };
            push(&mut frame, entry);
            let is_there = pairs.contains_key(key);
            expected.push(match (operation, is_there) {
                (WriteOperation::Insert, true) => WriteOutcome::Exists(0),
                (WriteOperation::Update | WriteOperation::Remove, false) => WriteOutcome::Absent,
                (WriteOperation::Remove, true) => {
                    pairs.remove(key);
                    WriteOutcome::Removed(0)
                }
                _ => match pairs.insert(*key, value) {
                    Some(_) => WriteOutcome::Replaced(0),
                    None => WriteOutcome::Inserted(0),
                },
            });
        }
        self.client.send(&frame);
        (table, expected)
    }

    fn receive(&mut self, table: TableId, expected: &[WriteOutcome]) -> Result<(), ServerError> {
        let reply = self.client.receive();
        let reply = Reply::decode(&reply).expect("a reply")?;
        let outcomes =
            reply.outcomes(expected.len()).expect("outcomes").map(|sent| sent.expect("one").outcome);
        for (outcome, expected) in outcomes.zip(expected) {
            assert_eq!(std::mem::discriminant(&outcome), std::mem::discriminant(expected), "{outcome:?}");
            if let WriteOutcome::Inserted(version) | WriteOutcome::Replaced(version) = outcome {
                let greatest = self.versions.entry(table).or_insert(0);
                assert!(version > *greatest, "version {version} of {table:?} after {greatest}");
                *greatest = version;
            }
        }
        Ok(())
    }

    fn control<T: serde::de::DeserializeOwned>(
        &mut self,
        request: &ControlRequest,
    ) -> Result<T, ServerError> {
        let mut frame = Vec::new();
        Request::control(&mut frame, request);
        self.client.send(&frame);
        self.steps();
        let reply = self.client.receive();
        let reply = Reply::decode(&reply).expect("a reply")?;
        Ok(reply.control().expect("an answer of the right type"))
    }

    /// The worker hands over, the sequencer works, the worker answers.
    fn steps(&mut self) {
        self.worker.step(MonotonicNs(1), BUDGET);
        self.sequencer.step();
        self.worker.step(MonotonicNs(2), BUDGET);
    }

    fn acknowledge(&mut self) {
        self.between.clear();
        self.acknowledged.clone_from(&self.perhaps);
    }

    fn some_table(&mut self) -> Option<String> {
        let names: Vec<String> = self.tables.keys().cloned().collect();
        let at = self.below(names.len().max(1) as u64);
        names.get(at as usize).cloned()
    }

    /// Starts a node on `disk`, and compares.
    ///
    /// # Panics
    /// If it holds anything else than what was acknowledged, with or without what was under way; or gives a
    /// version again.
    pub(crate) fn check(&self, disk: &SimulatedDisk, what: &str) {
        let mut after = Self::start(disk, 1);
        let infos: Vec<TableInfo> =
            after.control(&ControlRequest::ListTables { from: TableId(0) }).expect("tables");
        let mut found = Tables::new();
        for info in &infos {
            let (pairs, next) = after.scan(info);
            assert_eq!(next, 0, "all pairs in one page");
            found.insert(info.definition.name.clone(), pairs);
        }
        let possible: Vec<&Tables> =
            [&self.acknowledged, &self.perhaps].into_iter().chain(&self.between).collect();
        assert!(possible.contains(&&found), "{what}: found {found:#?}, possible {possible:#?}");
        after.perhaps = found;
        for info in infos {
            let name = info.definition.name.clone();
            if let Some(greatest) = self.versions.get(&info.id) {
                after.versions.insert(info.id, *greatest);
            }
            after.tables.insert(name.clone(), info);
            after.put(&name, KEYS * 9, 1).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        after.check_blocks(what);
    }

    /// Compares the memory of blocks with that of the pairs that there are.
    ///
    /// # Panics
    /// If some is lost, or counted twice.
    pub(crate) fn check_blocks(&mut self, what: &str) {
        let stats: Vec<TableStats> =
            self.control(&ControlRequest::TableStats { from: TableId(0) }).expect("statistics");
        for TableStats { info, blocks, .. } in stats {
            let name = &info.definition.name;
            let lines = self.perhaps[name].values().map(|value| block_lines(size_of::<u64>(), value.len()));
            let expected =
                info.definition.values.are_blocks().then(|| (lines.sum::<usize>() * LINE_BYTES) as u64);
            assert_eq!(blocks.map(|blocks| blocks.live_bytes), expected, "{what}: blocks of {name:?}");
        }
    }

    fn scan(&mut self, table: &TableInfo) -> (Pairs, u64) {
        self.send_scan(table);
        self.steps();
        self.receive_pairs(table)
    }

    fn send_scan(&mut self, table: &TableInfo) {
        let are_blocks = table.definition.values.are_blocks();
        let mut frame = Vec::new();
        let scan = if are_blocks { Request::scan_values } else { Request::scan };
        scan(&mut frame, table.id, Direction::Ascending, 0, 60);
        self.reader.send(&frame);
    }

    fn receive_pairs(&mut self, table: &TableInfo) -> (Pairs, u64) {
        let are_blocks = table.definition.values.are_blocks();
        let reply = self.reader.receive();
        let reply = Reply::decode(&reply).expect("a reply").expect("pairs");
        let words = reply.words().expect("words");
        let mut reader =
            if are_blocks { PairsReader::of_any_length(words) } else { PairsReader::new(words, VALUE_BYTES) };
        let mut pairs = Pairs::new();
        while let Some(pair) = reader.pair().expect("a pair") {
            pairs.insert(pair.key, pair.value.to_vec());
        }
        (pairs, reply.argument)
    }
}

//! XStore over shared memory as the suite sees it: a server of this process, clients that share nothing.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use farsight::{
    Access, Answers, Client, Counters, Exchanges, Meters, Options, Pairs, Server, Session, Table,
    TableOptions, ValueKind, WriteError, WriteOperation, WriteOutcome,
};
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_oracles::EightBytes;
use farsight_protocol::Direction;

use super::blocks::HasBlocks;
use super::contended::OneClient;
use super::costs::MeteredSession;
use super::expected::Operands;
use super::{EngineUnderTest, SessionUnderTest, Stored, TableUnderTest};

/// What no wait of a passing test comes near.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A directory for one test, removed afterwards.
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// A new one.
    ///
    /// # Panics
    /// If the file system refuses.
    #[expect(clippy::new_without_default, reason = "making a directory is no default")]
    #[must_use]
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the counter only has to differ.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("farsight-engine-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("a new directory");
        Self { path }
    }

    /// The path of a file in it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// A client of the server at `socket`.
///
/// # Panics
/// If it cannot connect.
#[must_use]
pub fn connect(socket: &Path) -> Client {
    farsight::connect(&format!("shm://{}", socket.display())).expect("a connection")
}

/// Waits until `reached` is true.
///
/// # Panics
/// If that takes longer than [`PATIENCE`].
pub fn eventually(what: &str, mut reached: impl FnMut() -> bool) {
    let started = Instant::now();
    while !reached() {
        assert!(started.elapsed() < PATIENCE, "{what}: not reached in time");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until the models of the server's tables have caught up with the writes.
///
/// # Panics
/// If that takes longer than [`PATIENCE`].
pub fn await_training(client: &Client) {
    eventually("training", || client.pending_training().expect("an answer") == 0);
}

/// The engine under test: a server with as many tables as the tests make.
pub struct XStore {
    server: Server,
    directory: Directory,
    tables: AtomicU64,
}

impl XStore {
    /// A server whose tables hold up to `table_memory_bytes`.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(table_memory_bytes: u64, workers: usize) -> Self {
        let directory = Directory::new();
        let builder = Server::builder().socket(directory.file("socket")).workers(workers);
        let server = builder.table_memory_bytes(table_memory_bytes).start().expect("a server");
        Self { server, directory, tables: AtomicU64::new(0) }
    }

    /// The server.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Where it listens.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.file("socket")
    }

    /// A path for a file of the test.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.file(name)
    }

    /// A new client.
    #[must_use]
    pub fn connect(&self) -> Client {
        connect(&self.socket())
    }
}

impl EngineUnderTest for XStore {
    type Embedding = EightBytes;
    type Table = XStoreTable;

    fn table(&self, value_bytes: usize) -> XStoreTable {
        // Relaxed: the number only has to differ.
        let name = format!("t{}", self.tables.fetch_add(1, Ordering::Relaxed));
        let client = self.connect();
        client.create_table::<u64>(&name, value_bytes).expect("a new table");
        XStoreTable { socket: self.socket(), name, client }
    }
}

impl HasBlocks for XStore {
    fn block_table(&self, values: ValueKind) -> XStoreTable {
        // Relaxed: the number only has to differ.
        let name = format!("t{}", self.tables.fetch_add(1, Ordering::Relaxed));
        let client = self.connect();
        let options = TableOptions::<u64>::default();
        client.create_table_of(&name, values, &options).expect("a new table");
        XStoreTable { socket: self.socket(), name, client }
    }
}

/// A table of the engine under test.
pub struct XStoreTable {
    socket: PathBuf,
    name: String,
    client: Client,
}

impl XStoreTable {
    /// The table, opened by a client of its own.
    ///
    /// # Panics
    /// If it cannot be opened.
    #[must_use]
    pub fn open(&self) -> Table<u64> {
        connect(&self.socket).table(&self.name).expect("the table exists")
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl OneClient for XStoreTable {
    fn sessions_of_one_client(&self, accesses: &[Access]) -> Vec<XStoreSession> {
        let table = self.client.table::<u64>(&self.name).expect("the table");
        let session = |access: &Access| table.session(Options { access: *access }).expect("a session");
        accesses.iter().map(session).map(XStoreSession::new).collect()
    }
}

impl TableUnderTest for XStoreTable {
    type Session = XStoreSession;

    fn session(&self, access: Access) -> XStoreSession {
        let table = self.open();
        let session = XStoreSession::new(table.session(Options { access }).expect("a session"));
        let operands = if table.values().are_blocks() { Operands::OfAnyLength } else { Operands::OfOneSize };
        XStoreSession { operands, ..session }
    }

    fn await_training(&self) {
        await_training(&self.client);
    }
}

/// A session of the engine under test.
pub struct XStoreSession {
    session: Session<u64>,
    /// How its table takes operands.
    operands: Operands,
    answers: Answers,
    pairs: Pairs<u64>,
}

impl XStoreSession {
    /// The suite's view of `session`, whose table has values of one size.
    #[must_use]
    pub fn new(session: Session<u64>) -> Self {
        let operands = Operands::OfOneSize;
        Self { session, operands, answers: Answers::default(), pairs: Pairs::default() }
    }

    /// What it is a view of.
    pub fn session(&mut self) -> &mut Session<u64> {
        &mut self.session
    }
}

impl MeteredSession for XStoreSession {
    fn prefill(&mut self) {
        self.session.prefill().expect("the model");
    }

    fn meters(&self) -> Meters {
        self.session.meters().without_checks()
    }

    fn counters(&self) -> Counters {
        self.session.counters()
    }
}

/// The outcome of a single write, with refusals as batches report them.
fn single(result: Result<WriteOutcome, WriteError>) -> WriteOutcome {
    match result {
        Ok(outcome) => outcome,
        Err(WriteError::Refused { code, .. }) => WriteOutcome::Failed(code),
        Err(error) => panic!("a write failed: {error}"),
    }
}

/// An integer as operands have it.
fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

/// The outcome of a write that stores a value whatever it finds.
fn stored(version: u64, old: Option<Vec<u8>>) -> (WriteOutcome, Option<Vec<u8>>) {
    match old {
        Some(old) => (WriteOutcome::Replaced(version), Some(old)),
        None => (WriteOutcome::Inserted(version), None),
    }
}

impl XStoreSession {
    /// A conditional write by the method for one.
    fn exchange_one(
        &mut self,
        operation: WriteOperation,
        key: u64,
        operand: &[u8],
    ) -> (WriteOutcome, Option<Vec<u8>>) {
        let session = &mut self.session;
        match operation {
            WriteOperation::CompareAndSet => {
                let (expected, value) = operand.split_at(8);
                (single(session.compare_and_set(key, word(expected), value)), None)
            }
            WriteOperation::CompareAndSetValue => {
                let (expected, value) = self.operands.compared(operand);
                (single(session.compare_and_set_value(key, expected, value)), None)
            }
            WriteOperation::RemoveIf => (single(session.remove_if(key, word(operand))), None),
            WriteOperation::FetchAdd => {
                let added = match session.fetch_add(key, word(operand).cast_signed()) {
                    Err(WriteError::Refused { code, .. }) => return (WriteOutcome::Failed(code), None),
                    added => added.expect("an addition"),
                };
                stored(added.version, (!added.is_inserted).then(|| added.old.to_le_bytes().to_vec()))
            }
            WriteOperation::Swap => {
                let swapped = session.swap(key, operand).expect("a swap");
                stored(swapped.version, swapped.old.map(Vec::from))
            }
            other => unreachable!("{other:?} has a method of its own"),
        }
    }

    /// Conditional writes by the method for many.
    fn exchange_many(
        &mut self,
        operation: WriteOperation,
        entries: &[(u64, Vec<u8>)],
    ) -> Vec<(WriteOutcome, Option<Vec<u8>>)> {
        let (session, operands) = (&mut self.session, self.operands);
        let (mut outcomes, mut exchanges) = (Vec::new(), Exchanges::default());
        match operation {
            WriteOperation::CompareAndSet => {
                let writes: Vec<_> =
                    entries.iter().map(|(key, bytes)| (*key, word(&bytes[..8]), &bytes[8..])).collect();
                session.compare_and_set_many(&writes, &mut outcomes)
            }
            WriteOperation::CompareAndSetValue => {
                let halves = |(key, bytes): &(u64, Vec<u8>)| {
                    let (expected, value) = operands.compared(bytes);
                    (*key, expected.to_vec(), value.to_vec())
                };
                let writes: Vec<_> = entries.iter().map(halves).collect();
                session.compare_and_set_value_many(&writes, &mut outcomes)
            }
            WriteOperation::RemoveIf => {
                let writes: Vec<_> = entries.iter().map(|(key, bytes)| (*key, word(bytes))).collect();
                session.remove_if_many(&writes, &mut outcomes)
            }
            WriteOperation::FetchAdd => {
                let writes: Vec<_> =
                    entries.iter().map(|(key, bytes)| (*key, word(bytes).cast_signed())).collect();
                session.fetch_add_many(&writes, &mut exchanges)
            }
            WriteOperation::Swap => session.swap_many(entries, &mut exchanges),
            other => unreachable!("{other:?} has a method of its own"),
        }
        .expect("a batch of writes");
        if operation.returns_value() {
            return exchanges
                .outcomes()
                .iter()
                .enumerate()
                .map(|(index, outcome)| (*outcome, exchanges.old(index).map(<[u8]>::to_vec)))
                .collect();
        }
        outcomes.into_iter().map(|outcome| (outcome, None)).collect()
    }
}

impl SessionUnderTest for XStoreSession {
    type Key = u64;

    fn write(&mut self, operation: WriteOperation, entries: &[(u64, Vec<u8>)]) -> Vec<WriteOutcome> {
        let session = &mut self.session;
        if let [(key, value)] = entries {
            return vec![single(match operation {
                WriteOperation::Insert => session.insert(*key, value),
                WriteOperation::Update => session.update(*key, value),
                WriteOperation::Put => session.put(*key, value),
                WriteOperation::Remove => session.remove(*key),
                other => panic!("{other:?} returns more than an outcome"),
            })];
        }
        let mut outcomes = Vec::new();
        match operation {
            WriteOperation::Insert => session.insert_many(entries, &mut outcomes),
            WriteOperation::Update => session.update_many(entries, &mut outcomes),
            WriteOperation::Put => session.put_many(entries, &mut outcomes),
            WriteOperation::Remove => {
                let keys: Vec<u64> = entries.iter().map(|entry| entry.0).collect();
                session.remove_many(&keys, &mut outcomes)
            }
            other => panic!("{other:?} returns more than an outcome"),
        }
        .expect("a batch of writes");
        outcomes
    }

    fn exchange(
        &mut self,
        operation: WriteOperation,
        entries: &[(u64, Vec<u8>)],
    ) -> Vec<(WriteOutcome, Option<Vec<u8>>)> {
        match (operation, entries) {
            (
                WriteOperation::Insert
                | WriteOperation::Update
                | WriteOperation::Put
                | WriteOperation::Remove,
                _,
            ) => self.write(operation, entries).into_iter().map(|outcome| (outcome, None)).collect(),
            (_, [(key, operand)]) => vec![self.exchange_one(operation, *key, operand)],
            _ => self.exchange_many(operation, entries),
        }
    }

    fn get(&mut self, key: u64) -> Option<Stored> {
        self.session.get(key).expect("a get").map(|entry| (entry.value.into(), entry.version))
    }

    fn multi_get(&mut self, keys: &[u64]) -> Vec<Option<Stored>> {
        self.session.multi_get(keys, &mut self.answers).expect("a batch of gets");
        self.answers.iter().map(|answer| answer.map(|(value, version)| (value.to_vec(), version))).collect()
    }

    fn scan_batch(&mut self, direction: Direction, scans: &[(u64, usize)]) -> Vec<Vec<(u64, Stored)>> {
        let pairs = &mut self.pairs;
        let scanned = match direction {
            Direction::Ascending => self.session.scan_batch(scans, pairs),
            Direction::Descending => self.session.scan_batch_descending(scans, pairs),
        };
        scanned.expect("a batch of scans");
        assert_eq!(self.pairs.scans(), scans.len(), "scans in the batch");
        let scan = |index| self.pairs.scan(index).map(|pair| (pair.key, (pair.value.to_vec(), pair.version)));
        (0..scans.len()).map(|index| scan(index).collect()).collect()
    }

    fn scan_keys(&mut self, direction: Direction, from: u64, limit: usize) -> Vec<u64> {
        let keys = match direction {
            Direction::Ascending => self.session.keys(from..),
            Direction::Descending => self.session.keys_descending(..=from),
        };
        keys.take(limit).map(|key| key.expect("a scan of keys")).collect()
    }

    fn scan_all(&mut self, direction: Direction, from: u64) -> Vec<(u64, Stored)> {
        let scan = match direction {
            Direction::Ascending => self.session.scan(from..),
            Direction::Descending => self.session.scan_descending(..=from),
        };
        let pairs = scan.map(|pair| pair.expect("a scan"));
        pairs.map(|(key, entry)| (key, (entry.value.into(), entry.version))).collect()
    }
}

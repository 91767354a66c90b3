//! XStore as the suite sees it without the facade: over whichever fabric is the subject.

use std::marker::PhantomData;
use std::sync::Arc;

use farsight::{Access, Answers, Counters, Meters, WriteOperation, WriteOutcome};
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_client::{
    Client, ClientOptions, Direction, ScanCursor, ScanRequest, Session, SessionKey, Table, WriteError,
};
use farsight_fabric::{Host, Listener};
use farsight_index::{OldValues, Pairs};
use farsight_layout::FORMAT_VERSION;
use farsight_node::{Node, NodeHandle, NodeOptions};
use farsight_oracles::EightBytes;
use farsight_protocol::{KeyKind, TableDefinition, ValueKind};

use super::blocks::HasBlocks;
use super::contended::OneClient;
use super::costs::MeteredSession;
use super::harness::eventually;
use super::{EngineUnderTest, SessionUnderTest, Stored, TableUnderTest};
use crate::fabric::FabricUnderTest;

/// A server over `F` with as many tables as the tests make.
pub struct DirectStore<F: FabricUnderTest> {
    /// Where it listens.
    pub subject: Arc<F>,
    server: NodeHandle,
    tables: AtomicU64,
}

impl<F: FabricUnderTest> DirectStore<F> {
    /// A server whose tables hold up to `table_memory_bytes`.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(subject: Arc<F>, table_memory_bytes: u64) -> Self {
        let listener: Arc<dyn Listener> = Arc::new(subject.listen(FORMAT_VERSION));
        Self::over(subject, vec![listener], table_memory_bytes)
    }

    /// A server that `first` reaches too, and whose regions are its.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start_beside(first: impl Host + 'static, subject: Arc<F>, table_memory_bytes: u64) -> Self {
        let second: Arc<dyn Listener> = Arc::new(subject.listen(FORMAT_VERSION));
        Self::over(subject, vec![Arc::new(first), second], table_memory_bytes)
    }

    fn over(subject: Arc<F>, listeners: Vec<Arc<dyn Listener>>, table_memory_bytes: u64) -> Self {
        let options = NodeOptions { table_memory_bytes, ..NodeOptions::default() };
        let server = Node::start(listeners, &options).expect("a server");
        Self { subject, server, tables: AtomicU64::new(0) }
    }

    /// A client of its own.
    #[must_use]
    pub fn connect(&self) -> Client {
        connect(&*self.subject)
    }

    /// The server.
    #[must_use]
    pub fn server(&self) -> &NodeHandle {
        &self.server
    }

    /// Stops it.
    ///
    /// # Panics
    /// If a thread of it does not end.
    pub fn stop(self) {
        self.server.shutdown().expect("its threads end");
    }
}

/// A client of the server of `subject`.
///
/// # Panics
/// If it cannot connect.
pub fn connect<F: FabricUnderTest>(subject: &F) -> Client {
    let connection = subject.connect(FORMAT_VERSION).expect("a connection");
    Client::new(connection, ClientOptions::default()).expect("a client")
}

impl<F: FabricUnderTest> EngineUnderTest for DirectStore<F> {
    type Embedding = EightBytes;
    type Table = DirectTable<F>;

    fn rounds(&self, usual: usize) -> usize {
        self.subject.rounds(usual)
    }

    fn pairs(&self, usual: usize) -> usize {
        self.subject.pairs(usual)
    }

    fn table(&self, value_bytes: usize) -> DirectTable<F> {
        // Relaxed: the number only has to differ.
        let name = format!("t{}", self.tables.fetch_add(1, Ordering::Relaxed));
        DirectTable::create(&self.subject, name, value_bytes)
    }
}

impl<F: FabricUnderTest> HasBlocks for DirectStore<F> {
    fn block_table(&self, values: ValueKind) -> DirectTable<F> {
        // Relaxed: the number only has to differ.
        let name = format!("t{}", self.tables.fetch_add(1, Ordering::Relaxed));
        let definition = TableDefinition { values, ..TableDefinition::new(name, KeyKind::U64, 8) };
        DirectTable::of(&self.subject, definition)
    }
}

/// A table of it.
pub struct DirectTable<F: FabricUnderTest> {
    subject: Arc<F>,
    client: Client,
    table: Table,
}

impl<F: FabricUnderTest> OneClient for DirectTable<F> {
    fn sessions_of_one_client(&self, accesses: &[Access]) -> Vec<SessionView> {
        let session = |access: &Access| self.table.session(*access).expect("a session");
        accesses.iter().map(session).map(SessionView::new).collect()
    }
}

impl<F: FabricUnderTest> TableUnderTest for DirectTable<F> {
    type Session = SessionView;

    fn session(&self, access: Access) -> SessionView {
        let table = connect(&*self.subject).open_table(self.table.name()).expect("the table");
        SessionView::new(table.session(access).expect("a session"))
    }

    fn await_training(&self) {
        eventually("training", || self.client.pending_training().expect("an answer") == 0);
    }
}

impl<F: FabricUnderTest> DirectTable<F> {
    /// A new table of this name, of the server that listens at `subject`.
    ///
    /// # Panics
    /// If the server does not make it.
    #[must_use]
    pub fn create(subject: &Arc<F>, name: String, value_bytes: usize) -> Self {
        let value_bytes = u16::try_from(value_bytes).expect("a short value");
        Self::of(subject, TableDefinition::new(name, KeyKind::U64, value_bytes))
    }

    fn of(subject: &Arc<F>, definition: TableDefinition) -> Self {
        let client = connect(&**subject);
        let table = client.create_table(definition).expect("a new table");
        Self { subject: Arc::clone(subject), client, table }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.table.name()
    }
}

/// The suite's view of a session, whatever its peers are, on a table with such keys.
pub struct SessionView<K = u64> {
    session: Session,
    answers: Answers,
    pairs: Pairs,
    key: PhantomData<K>,
}

/// A key as the suite has it, and as sessions take it.
pub trait ViewedKey {
    /// For a session.
    type Ref<'k>: SessionKey
    where
        Self: 'k;

    /// The key for a session.
    fn borrowed(&self) -> Self::Ref<'_>;
}

impl ViewedKey for u64 {
    type Ref<'k> = Self;

    fn borrowed(&self) -> Self {
        *self
    }
}

impl ViewedKey for Vec<u8> {
    type Ref<'k> = &'k [u8];

    fn borrowed(&self) -> &[u8] {
        self
    }
}

impl<K: ViewedKey> SessionView<K> {
    /// Of `session`.
    #[must_use]
    pub fn new(session: Session) -> Self {
        Self { session, answers: Answers::default(), pairs: Pairs::default(), key: PhantomData }
    }

    /// What it is a view of.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    fn write_all(&mut self, operation: WriteOperation, entries: &[(K, Vec<u8>)]) -> Vec<WriteOutcome> {
        if let [(key, value)] = entries {
            return vec![match self.session.write_one(operation, key.borrowed(), value) {
                Ok(outcome) => outcome,
                Err(WriteError::Refused { code, .. }) => WriteOutcome::Failed(code),
                Err(error) => panic!("a write failed: {error}"),
            }];
        }
        let mut outcomes = Vec::new();
        let pairs = entries.iter().map(|(key, value)| (key.borrowed(), value.as_slice()));
        self.session.write(operation, pairs, &mut outcomes).expect("a batch of writes");
        outcomes
    }

    fn exchange_all(
        &mut self,
        operation: WriteOperation,
        entries: &[(K, Vec<u8>)],
    ) -> Vec<(WriteOutcome, Option<Vec<u8>>)> {
        let (mut outcomes, mut old_values) = (Vec::new(), OldValues::default());
        if let [(key, operand)] = entries {
            let done = self.session.exchange_one(operation, key.borrowed(), operand, &mut old_values);
            outcomes.push(match done {
                Err(WriteError::Refused { code, .. }) => WriteOutcome::Failed(code),
                done => done.expect("a write"),
            });
        } else {
            let entries = entries.iter().map(|(key, operand)| (key.borrowed(), operand.as_slice()));
            let done = self.session.exchange(operation, entries, &mut outcomes, &mut old_values);
            done.expect("a batch of writes");
        }
        with_old(operation, outcomes, &old_values)
    }

    fn get_one(&mut self, key: &K) -> Option<Stored> {
        let mut value = Vec::new();
        let version = self.session.get_into(key.borrowed(), &mut value).expect("a get");
        version.map(|version| (value, version))
    }

    fn get_all(&mut self, keys: &[K]) -> Vec<Option<Stored>> {
        let keys: Vec<K::Ref<'_>> = keys.iter().map(K::borrowed).collect();
        self.session.multi_get(&keys, &mut self.answers).expect("a batch of gets");
        self.answers.iter().map(|answer| answer.map(|(value, version)| (value.to_vec(), version))).collect()
    }
}

impl MeteredSession for SessionView {
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

impl SessionUnderTest for SessionView {
    type Key = u64;

    fn write(&mut self, operation: WriteOperation, entries: &[(u64, Vec<u8>)]) -> Vec<WriteOutcome> {
        self.write_all(operation, entries)
    }

    fn exchange(
        &mut self,
        operation: WriteOperation,
        entries: &[(u64, Vec<u8>)],
    ) -> Vec<(WriteOutcome, Option<Vec<u8>>)> {
        self.exchange_all(operation, entries)
    }

    fn get(&mut self, key: u64) -> Option<Stored> {
        self.get_one(&key)
    }

    fn multi_get(&mut self, keys: &[u64]) -> Vec<Option<Stored>> {
        self.get_all(keys)
    }

    fn scan_batch(&mut self, direction: Direction, scans: &[(u64, usize)]) -> Vec<Vec<(u64, Stored)>> {
        let requests: Vec<ScanRequest> =
            scans.iter().map(|(from, limit)| ScanRequest { from: *from, limit: *limit }).collect();
        self.session.scan_batch(direction, &requests, &mut self.pairs).expect("a batch of scans");
        let scan = |index| self.pairs.scan(index).map(|pair| (pair.key, (pair.value.to_vec(), pair.version)));
        (0..scans.len()).map(|index| scan(index).collect()).collect()
    }

    fn scan_keys(&mut self, direction: Direction, from: u64, limit: usize) -> Vec<u64> {
        let scans = [ScanRequest { from, limit }];
        self.session.scan_keys(direction, &scans, &mut self.pairs).expect("a scan of keys");
        self.pairs.scan(0).map(|pair| pair.key).collect()
    }

    fn is_ordered(&self) -> bool {
        self.session.table().engine().is_ordered
    }

    fn scan_all(&mut self, direction: Direction, from: u64) -> Vec<(u64, Stored)> {
        let last = if direction == Direction::Ascending { u64::MAX } else { 0 };
        let mut cursor = ScanCursor::new(direction, from, last);
        let mut all = Vec::new();
        while let Some(pair) = cursor.next(&mut self.session).expect("a scan") {
            all.push((pair.key, (pair.value.to_vec(), pair.version)));
        }
        all
    }
}

impl SessionUnderTest for SessionView<Vec<u8>> {
    type Key = Vec<u8>;

    fn write(&mut self, operation: WriteOperation, entries: &[(Vec<u8>, Vec<u8>)]) -> Vec<WriteOutcome> {
        self.write_all(operation, entries)
    }

    fn exchange(
        &mut self,
        operation: WriteOperation,
        entries: &[(Vec<u8>, Vec<u8>)],
    ) -> Vec<(WriteOutcome, Option<Vec<u8>>)> {
        self.exchange_all(operation, entries)
    }

    fn get(&mut self, key: Vec<u8>) -> Option<Stored> {
        self.get_one(&key)
    }

    fn multi_get(&mut self, keys: &[Vec<u8>]) -> Vec<Option<Stored>> {
        self.get_all(keys)
    }

    fn scan_batch(&mut self, _: Direction, _: &[(Vec<u8>, usize)]) -> Vec<Vec<(Vec<u8>, Stored)>> {
        unreachable!("keys of bytes have no order")
    }

    fn scan_keys(&mut self, _: Direction, _: Vec<u8>, _: usize) -> Vec<Vec<u8>> {
        unreachable!("keys of bytes have no order")
    }

    fn is_ordered(&self) -> bool {
        false
    }

    fn scan_all(&mut self, _: Direction, _: Vec<u8>) -> Vec<(Vec<u8>, Stored)> {
        unreachable!("keys of bytes have no order")
    }
}

/// The outcomes, each with the value before if the operation returns it and there was one.
pub(super) fn with_old(
    operation: WriteOperation,
    outcomes: Vec<WriteOutcome>,
    old_values: &OldValues,
) -> Vec<(WriteOutcome, Option<Vec<u8>>)> {
    let returned = if operation.returns_value() { outcomes.len() } else { 0 };
    assert_eq!(old_values.len(), returned, "{operation:?}");
    let old = |(index, outcome)| {
        let value = old_values.get(index).filter(|_| matches!(outcome, WriteOutcome::Replaced(_)));
        (outcome, value.map(<[u8]>::to_vec))
    };
    outcomes.into_iter().enumerate().map(old).collect()
}

//! XStore-D as the suite sees it: memory nodes with threads of their own, over any fabric.

use std::sync::Arc;

use farsight::Access;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_client::{ClientOptions, Nodes, PoolClient, PoolTable};
use farsight_fabric::Connection;
use farsight_layout::FORMAT_VERSION;
use farsight_memory_node::{MemoryNode, MemoryNodeHandle, MemoryNodeOptions};
use farsight_protocol::{KeyKind, TableDefinition};

use super::direct::SessionView;
use super::harness::eventually;
use super::{EngineUnderTest, TableUnderTest};
use crate::fabric::FabricUnderTest;

/// Memory nodes over `F`, with as many tables as the tests make.
pub struct PartStore<F: FabricUnderTest> {
    subjects: Arc<Vec<F>>,
    nodes: Vec<MemoryNodeHandle>,
    sample: Vec<u64>,
    tables: AtomicU64,
}

impl<F: FabricUnderTest<Connection: 'static>> PartStore<F> {
    /// A memory node a subject, whose parts hold up to `table_memory_bytes` each and begin at 0 and at
    /// `boundaries`.
    ///
    /// # Panics
    /// If one does not start.
    #[must_use]
    pub fn start(subjects: impl IntoIterator<Item = F>, boundaries: &[u64], table_memory_bytes: u64) -> Self {
        let subjects: Vec<F> = subjects.into_iter().collect();
        assert_eq!(subjects.len(), boundaries.len() + 1, "a boundary between two nodes");
        let options = MemoryNodeOptions { workers: 1, table_memory_bytes };
        let start = |subject: &F| {
            let host = Arc::new(subject.listen(FORMAT_VERSION));
            MemoryNode::start(vec![host], &options).expect("a memory node")
        };
        let nodes = subjects.iter().map(start).collect();
        // As many keys as nodes: each of them begins a range.
        let sample = [0].iter().chain(boundaries).copied().collect();
        Self { subjects: Arc::new(subjects), nodes, sample, tables: AtomicU64::new(0) }
    }

    /// A client of its own.
    #[must_use]
    pub fn connect(&self) -> PoolClient<F::Connection> {
        connect(&self.subjects)
    }

    /// The nodes.
    #[must_use]
    pub fn nodes(&self) -> &[MemoryNodeHandle] {
        &self.nodes
    }

    /// A new table of this name.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn create(&self, name: &str, value_bytes: usize) -> PoolTable<F::Connection> {
        let value_bytes = u16::try_from(value_bytes).expect("a short value");
        let definition = TableDefinition { name: name.to_owned(), key_kind: KeyKind::U64, value_bytes };
        self.connect().create_x_store_d(&definition, &self.sample).expect("a new table")
    }
}

fn connect<F: FabricUnderTest<Connection: 'static>>(subjects: &[F]) -> PoolClient<F::Connection> {
    let connection = |subject: &F| subject.connect(FORMAT_VERSION).expect("a connection");
    let connections = subjects.iter().map(connection).collect();
    PoolClient::of_pool(connections, ClientOptions::default()).expect("a client")
}

impl<F: FabricUnderTest<Connection: 'static>> EngineUnderTest for PartStore<F> {
    type Table = PartTable<F>;

    fn rounds(&self, usual: usize) -> usize {
        self.subjects[0].rounds(usual)
    }

    fn pairs(&self, usual: usize) -> usize {
        self.subjects[0].pairs(usual)
    }

    fn table(&self, value_bytes: usize) -> PartTable<F> {
        // Relaxed: the number only has to differ.
        let name = format!("t{}", self.tables.fetch_add(1, Ordering::Relaxed));
        drop(self.create(&name, value_bytes));
        PartTable { subjects: Arc::clone(&self.subjects), client: self.connect(), name }
    }
}

/// A table of it.
pub struct PartTable<F: FabricUnderTest<Connection: 'static>> {
    subjects: Arc<Vec<F>>,
    client: PoolClient<F::Connection>,
    name: String,
}

impl<F: FabricUnderTest<Connection: 'static>> TableUnderTest for PartTable<F> {
    type Session = SessionView<Nodes<F::Connection>>;

    fn session(&self, access: Access) -> Self::Session {
        let table = connect(&self.subjects).open_table(&self.name).expect("the table");
        SessionView::new(table.session(access).expect("a session"))
    }

    fn await_training(&self) {
        await_training(&self.client);
    }
}

/// Waits until the models of all parts have caught up with the writes.
///
/// # Panics
/// If that takes longer than [`PATIENCE`](super::harness::PATIENCE).
pub fn await_training<C: Connection + 'static>(client: &PoolClient<C>) {
    eventually("training", || client.pending_training().expect("an answer") == 0);
}

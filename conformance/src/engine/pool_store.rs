//! Nodes as the suite sees them: with threads of their own, over any fabric, and tables of any engine.

use std::sync::Arc;
use std::time::Duration;

use farsight::{Access, ReadsByOthers};
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_client::{Client, ClientOptions, EngineKind, GroupSizes, NewTable, PoolClient, Table};
use farsight_durability::disk::SimulatedDisk;
use farsight_index::Registered;
use farsight_layout::FORMAT_VERSION;
use farsight_node::{DataOptions, Node, NodeEngines, NodeHandle, NodeOptions};
use farsight_oracles::EightBytes;
use farsight_protocol::{KeyKind, ServedWork, TableDefinition, ValueKind};

use super::blocks::{HasBlocks, VALUE_BYTES_MAX};
use super::contended::OneClient;
use super::direct::SessionView;
use super::harness::eventually;
use super::served::Served;
use super::{EngineUnderTest, TableUnderTest};
use crate::fabric::{FabricUnderTest, HasUrl};
use crate::reference::later::AnsweringLater;
use crate::reference::{Engines, Reference};

/// Steps that no training takes.
const STEPS_MAX: usize = 10_000;
/// What a lock lasts, on every fabric.
const LEASE: Duration = Duration::from_millis(500);
/// Groups that a step trains.
const GROUPS_A_STEP: usize = 64;

/// Memory nodes over `F`, with as many tables as the tests make.
pub struct PoolStore<F: FabricUnderTest> {
    /// Writes for others. It ends before the nodes.
    served: Option<Served<F>>,
    /// What that does for GETs.
    reads_by_others: ReadsByOthers,
    subjects: Arc<Vec<F>>,
    nodes: Vec<NodeHandle>,
    /// What its tables are of.
    kind: &'static EngineKind,
    /// Keys that tell ranges apart, of XStore-D.
    sample: Vec<u64>,
    have_deadlines: bool,
    replicas: Option<u8>,
    tables: AtomicU64,
}

impl<F: FabricUnderTest> PoolStore<F> {
    /// A memory node a subject, with up to `table_memory_bytes` of each table, which are of ROLEX.
    ///
    /// # Panics
    /// If one does not start.
    #[must_use]
    pub fn rolex(subjects: impl IntoIterator<Item = F>, table_memory_bytes: u64) -> Self {
        Self::start(subjects.into_iter().collect(), EngineKind::ROLEX, Vec::new(), table_memory_bytes)
    }

    /// The same, whose tables are of FlexKV.
    ///
    /// # Panics
    /// If one does not start.
    #[must_use]
    pub fn flexkv(subjects: impl IntoIterator<Item = F>, table_memory_bytes: u64) -> Self {
        Self::start(subjects.into_iter().collect(), EngineKind::FLEXKV, Vec::new(), table_memory_bytes)
    }

    /// The same, of whose tables so many nodes have each pair.
    ///
    /// # Panics
    /// If one does not start.
    #[must_use]
    pub fn replicated(subjects: impl IntoIterator<Item = F>, replicas: u8, table_memory_bytes: u64) -> Self {
        Self { replicas: Some(replicas), ..Self::flexkv(subjects, table_memory_bytes) }
    }

    /// One node, whose tables are of the [reference engine](crate::reference).
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn reference(subject: F, table_memory_bytes: u64) -> Self {
        Self::start(vec![subject], Reference::KIND, Vec::new(), table_memory_bytes)
    }

    /// One node with tables of XStore that it keeps on a simulated disk: each write is durable before it is
    /// visible.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn durable(subject: F, table_memory_bytes: u64) -> Self {
        let data = DataOptions::new(Arc::new(SimulatedDisk::default()));
        let options = NodeOptions { table_memory_bytes, data: Some(data), ..NodeOptions::default() };
        Self::start_with(vec![subject], EngineKind::XSTORE, Vec::new(), options)
    }

    /// The same, where writes are [answered later](crate::reference::later).
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn answering_later(subject: F, table_memory_bytes: u64) -> Self {
        Self::start(vec![subject], AnsweringLater::KIND, Vec::new(), table_memory_bytes)
    }

    /// The same with tables of XStore-D, whose parts begin at 0 and at `boundaries`.
    ///
    /// # Panics
    /// If a node does not start.
    #[must_use]
    pub fn x_store_d(
        subjects: impl IntoIterator<Item = F>,
        boundaries: &[u64],
        table_memory_bytes: u64,
    ) -> Self {
        let subjects: Vec<F> = subjects.into_iter().collect();
        assert_eq!(subjects.len(), boundaries.len() + 1, "a boundary between two nodes");
        // As many keys as nodes: each of them begins a range.
        let sample = [0].iter().chain(boundaries).copied().collect();
        Self::start(subjects, EngineKind::XSTORE_D, sample, table_memory_bytes)
    }

    fn start(subjects: Vec<F>, kind: &'static EngineKind, sample: Vec<u64>, table_memory_bytes: u64) -> Self {
        Self::start_with(subjects, kind, sample, NodeOptions { table_memory_bytes, ..NodeOptions::default() })
    }

    fn start_with(
        subjects: Vec<F>,
        kind: &'static EngineKind,
        sample: Vec<u64>,
        options: NodeOptions,
    ) -> Self {
        let options = NodeOptions { lease: Some(LEASE), engines: Engines::hosting, ..options };
        let start = |subject: &F| {
            let host = Arc::new(subject.listen(FORMAT_VERSION));
            Node::start(vec![host], &options).expect("a memory node")
        };
        let nodes = subjects.iter().map(start).collect();
        let tables = AtomicU64::new(0);
        Self {
            served: None,
            reads_by_others: ReadsByOthers::None,
            subjects: Arc::new(subjects),
            nodes,
            kind,
            sample,
            have_deadlines: false,
            replicas: None,
            tables,
        }
    }

    /// Its tables of blocks have deadlines. Pairs stay until they are removed, unless their writer says
    /// otherwise. The suite does not, so deadlines change nothing.
    #[must_use]
    pub fn with_deadlines(self) -> Self {
        Self { have_deadlines: true, ..self }
    }

    /// Beside its nodes a compute node listens at `place`, which writes for all clients of its tables, and
    /// does so much for their GETs.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn served(self, place: F, reads_by_others: ReadsByOthers) -> Self
    where
        F: HasUrl,
    {
        let served = Served::start(place, &self.connect());
        Self { served: Some(served), reads_by_others, ..self }
    }

    /// What the compute node beside it did for others.
    #[must_use]
    pub fn served_work(&self) -> ServedWork {
        self.served.as_ref().map_or_else(ServedWork::default, Served::work)
    }

    /// How clients open a table of this name.
    pub(super) fn opening(&self, name: String) -> Opening<F> {
        Opening { subjects: Arc::clone(&self.subjects), name, reads_by_others: self.reads_by_others }
    }

    /// A client of its own.
    #[must_use]
    pub fn connect(&self) -> PoolClient<F::Connection> {
        connect(&self.subjects)
    }

    /// Where they listen.
    #[must_use]
    pub fn subjects(&self) -> Arc<Vec<F>> {
        Arc::clone(&self.subjects)
    }

    /// Where the first of them listens.
    #[must_use]
    pub fn subject(&self) -> &F {
        &self.subjects[0]
    }

    /// The nodes.
    #[must_use]
    pub fn nodes(&self) -> &[NodeHandle] {
        &self.nodes
    }

    /// A new table of this name.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn create(&self, name: &str, value_bytes: usize) -> Table {
        self.create_as(self.new_table(name, value_bytes))
    }

    /// A new table as a client says.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn create_as(&self, new: NewTable) -> Table {
        let table = self.connect().create_table(new).expect("a new table");
        if let Some(served) = &self.served {
            served.offer();
        }
        table
    }

    /// What a client says of a table of this name.
    ///
    /// # Panics
    /// If no table has values as long.
    #[must_use]
    pub fn new_table(&self, name: &str, value_bytes: usize) -> NewTable {
        let value_bytes = u16::try_from(value_bytes).expect("a short value");
        let definition = TableDefinition {
            replicas: self.replicas,
            ..TableDefinition::new(name, KeyKind::U64, value_bytes)
        };
        NewTable { definition, engine: Some(self.kind), sample: self.sample.clone() }
    }
}

/// A client of the nodes that listen there.
///
/// # Panics
/// If it cannot connect.
#[must_use]
pub fn connect<F: FabricUnderTest>(subjects: &[F]) -> PoolClient<F::Connection> {
    let connection = |subject: &F| subject.connect(FORMAT_VERSION).expect("a connection");
    let connections = subjects.iter().map(connection).collect();
    PoolClient::with_engines::<Engines>(connections, ClientOptions::default()).expect("a client")
}

impl<F: FabricUnderTest> EngineUnderTest for PoolStore<F> {
    type Embedding = EightBytes;
    type Table = StoredTable<F>;

    fn rounds(&self, usual: usize) -> usize {
        self.subjects[0].rounds(usual)
    }

    fn pairs(&self, usual: usize) -> usize {
        self.subjects[0].pairs(usual)
    }

    fn table(&self, value_bytes: usize) -> StoredTable<F> {
        self.table_of(ValueKind::Fixed(u16::try_from(value_bytes).expect("a short value")))
    }

    fn value_bytes_max(&self) -> u32 {
        VALUE_BYTES_MAX.min(self.kind.block_value_bytes_max as u32)
    }
}

impl<F: FabricUnderTest> HasBlocks for PoolStore<F> {
    fn block_table(&self, values: ValueKind) -> StoredTable<F> {
        self.table_of(if self.have_deadlines { values.expiring(0) } else { values })
    }
}

impl<F: FabricUnderTest> PoolStore<F> {
    fn table_of(&self, values: ValueKind) -> StoredTable<F> {
        // Relaxed: the number only has to differ.
        let name = format!("t{}", self.tables.fetch_add(1, Ordering::Relaxed));
        let mut new = self.new_table(&name, 8);
        new.definition.values = values;
        drop(self.create_as(new));
        let opening = self.opening(name);
        StoredTable { opening, client: self.connect(), kind: self.kind }
    }
}

/// A table of it.
pub struct StoredTable<F: FabricUnderTest> {
    opening: Opening<F>,
    client: PoolClient<F::Connection>,
    kind: &'static EngineKind,
}

/// How clients open a table.
pub(super) struct Opening<F> {
    subjects: Arc<Vec<F>>,
    pub(super) name: String,
    reads_by_others: ReadsByOthers,
}

impl<F: FabricUnderTest> Opening<F> {
    /// The table, opened by a client.
    pub(super) fn by(&self, client: &Client) -> Table {
        let table = client.open_table(&self.name).expect("the table");
        table.set_reads_by_others(self.reads_by_others).expect("an open table");
        table
    }

    /// The table, opened by a client of its own.
    pub(super) fn anew(&self) -> Table {
        self.by(&connect(&self.subjects))
    }
}

impl<F: FabricUnderTest> OneClient for StoredTable<F> {
    fn sessions_of_one_client(&self, accesses: &[Access]) -> Vec<SessionView> {
        let table = self.opening.by(&self.client);
        let session = |access: &Access| table.session(*access).expect("a session");
        accesses.iter().map(session).map(SessionView::new).collect()
    }
}

impl<F: FabricUnderTest> TableUnderTest for StoredTable<F> {
    type Session = SessionView;

    fn session(&self, access: Access) -> Self::Session {
        SessionView::new(self.opening.anew().session(access).expect("a session"))
    }

    fn await_training(&self) {
        if self.kind.nodes_train {
            return await_training(&self.client);
        }
        let mut trainer = self.client.trainer(&self.opening.name, GroupSizes::USUAL).expect("a trainer");
        trainer.catch_up(STEPS_MAX, GROUPS_A_STEP).expect("training");
    }
}

/// Waits until the models of all parts of XStore-D tables have caught up with the writes.
///
/// # Panics
/// If that takes longer than [`PATIENCE`](super::harness::PATIENCE).
pub fn await_training(client: &Client) {
    eventually("training", || client.pending_training().expect("an answer") == 0);
}

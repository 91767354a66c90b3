//! The suite of the engine contract over XStore on the simulated fabric: one thread, the real server and
//! client, READs that take their lines from many moments.

use std::time::Duration;

use farsight::Access;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_client::{Client, Table};
use farsight_conformance::engine::blocks::HasBlocks;
use farsight_conformance::engine::direct::SessionView;
use farsight_conformance::engine::{EngineUnderTest, TableUnderTest};
use farsight_fabric::FabricError;
use farsight_fabric_sim::{Kind, ReliableConnection, Simulation, Timing, Weakest};
use farsight_node::NodeOptions;
use farsight_oracles::EightBytes;
use farsight_protocol::{KeyKind, TableDefinition, ValueKind};
use farsight_sim::Node;

/// Virtual time that training may take.
const PATIENCE: Duration = Duration::from_secs(60);

struct SimStore<K: Kind> {
    node: Node<K>,
    tables: AtomicU64,
}

impl<K: Kind> SimStore<K> {
    fn start(seed: u64) -> Self {
        let simulation = Simulation::new(seed, Timing::default(), Vec::new());
        let options = NodeOptions { workers: 2, table_memory_bytes: 16 << 20, ..NodeOptions::default() };
        Self { node: Node::start(&simulation, "sim://server", &options, seed), tables: AtomicU64::new(0) }
    }

    fn create(&self, definition: TableDefinition) -> SimTable {
        let client = self.node.connect().expect("a client");
        let table = client.create_table(definition).expect("a new table");
        let connect = farsight_sim::connect::<K>;
        SimTable { simulation: self.node.simulation().clone(), table, connect }
    }
}

impl<K: Kind> EngineUnderTest for SimStore<K> {
    type Embedding = EightBytes;
    type Table = SimTable;

    fn table(&self, value_bytes: usize) -> SimTable {
        // Relaxed: the number only has to differ.
        let name = format!("t{}", self.tables.fetch_add(1, Ordering::Relaxed));
        let value_bytes = u16::try_from(value_bytes).expect("a short value");
        self.create(TableDefinition::new(name, KeyKind::U64, value_bytes))
    }
}

impl<K: Kind> HasBlocks for SimStore<K> {
    fn block_table(&self, values: ValueKind) -> SimTable {
        // Relaxed: the number only has to differ.
        let name = format!("t{}", self.tables.fetch_add(1, Ordering::Relaxed));
        let definition = TableDefinition { values, ..TableDefinition::new(name, KeyKind::U64, 8) };
        self.create(definition)
    }
}

struct SimTable {
    simulation: Simulation,
    table: Table,
    connect: fn(&Simulation, &str) -> Result<Client, FabricError>,
}

impl TableUnderTest for SimTable {
    type Session = SessionView;

    fn session(&self, access: Access) -> SessionView {
        let client = (self.connect)(&self.simulation, "sim://server").expect("a client");
        let table = client.open_table(self.table.name()).expect("the table");
        SessionView::new(table.session(access).expect("a session"))
    }

    fn await_training(&self) {
        let deadline = self.simulation.now().plus(PATIENCE);
        let client = (self.connect)(&self.simulation, "sim://server").expect("a client");
        while client.pending_training().expect("an answer") > 0 {
            assert!(self.simulation.now() < deadline, "training does not end");
            self.simulation.sleep(Duration::from_millis(1));
        }
    }
}

mod weakest {
    use super::{SimStore, Weakest};

    farsight_conformance::engine_suite!(SimStore::<Weakest>::start(1));
}

mod reliable_connection {
    use super::{ReliableConnection, SimStore};

    farsight_conformance::engine_suite!(SimStore::<ReliableConnection>::start(2));
}

mod blocks {
    use super::{SimStore, Weakest};

    farsight_conformance::block_suite!(SimStore::<Weakest>::start(3));
}

#[test]
fn by_narrower_vectors() {
    farsight_conformance::widths::run_narrower("weakest", "by_narrower_vectors");
}

//! XStore on simulated cards that have prices, as meters see it: one thread, the real server and client.

use std::time::Duration;

use farsight::{Access, CacheStats, NodeStats};
use farsight_client::{Client, Table};
use farsight_fabric_sim::{Profile, ReliableConnection, Simulation};
use farsight_node::NodeOptions;
use farsight_protocol::{KeyKind, TableDefinition};
use farsight_sim::Node;

use super::costs::LoadedTable;
use super::direct::SessionView;

const ADDRESS: &str = "sim://server";
/// Virtual time that training may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// A core's time of a call: meters do not see it.
const CALL_PS: u64 = 1_000_000;

/// Waits until the models of the server's tables have caught up with the writes.
fn await_training(simulation: &Simulation, client: &Client) {
    let deadline = simulation.now().plus(PATIENCE);
    while client.pending_training().expect("an answer") > 0 {
        assert!(simulation.now() < deadline, "training does not end");
        simulation.sleep(Duration::from_millis(1));
    }
}

/// A table on cards that have prices, as meters see it.
pub struct PricedTable {
    table: Table,
    client: Client,
    node: Node<ReliableConnection>,
}

impl LoadedTable for PricedTable {
    type Session = SessionView;

    fn load(pairs: impl Iterator<Item = (u64, Vec<u8>)>, value_bytes: usize) -> Self {
        let profile = Profile::load("cx4x2").expect("an own profile");
        let simulation = Simulation::priced(profile.prices(), |_, _| CALL_PS);
        let options = NodeOptions { workers: 1, table_memory_bytes: 1 << 30, ..NodeOptions::default() };
        let node = Node::start(&simulation, ADDRESS, &options, 1);
        let client = node.connect().expect("a client");
        let value_bytes = u16::try_from(value_bytes).expect("a short value");
        let definition = TableDefinition::new("t", KeyKind::U64, value_bytes);
        let table = client.create_table(definition).expect("a new table");
        let mut load = table.bulk_load().expect("a load");
        for (key, value) in pairs {
            load.push(key, &value).expect("ascending");
        }
        load.finish().expect("the load");
        await_training(&simulation, &client);
        Self { table, client, node }
    }

    fn session(&self, access: Access) -> Self::Session {
        SessionView::new(self.table.session(access).expect("a session"))
    }

    fn await_training(&self) {
        await_training(self.node.simulation(), &self.client);
    }

    fn set_cache_bytes(&self, bytes: u64) {
        assert!(self.table.set_cache_bytes(bytes).expect("a budget"), "XStore's cache has one");
    }

    fn cache_stats(&self) -> CacheStats {
        self.table.cache_stats()
    }

    fn server_stats(&self) -> NodeStats {
        self.node.stats()
    }
}

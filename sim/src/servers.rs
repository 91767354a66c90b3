//! The server of a scenario and its successors, and who starts them.
//!
//! Invariant: one server at a time listens; one that died stays until the end, because its card may still
//! answer. Each life begins without memory: the table is made anew, and some of it written again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farsight_base::prng::SplitMix64;
use farsight_client::CatalogueError;
use farsight_fabric_sim::{Kind, Simulation};
use farsight_node::NodeOptions;
use farsight_protocol::{KeyKind, TableDefinition, ValueKind};

use crate::cluster::connect;
use crate::node::Node;

/// The longest time for which nobody listens.
const AWAY_NS_MAX: u64 = 400_000;

/// What servers of a scenario are started with.
pub(crate) struct Setting {
    pub(crate) simulation: Simulation,
    pub(crate) address: &'static str,
    pub(crate) table: &'static str,
    pub(crate) options: NodeOptions,
    pub(crate) values: ValueKind,
    /// The last version that a table leaves out.
    pub(crate) versions_left_out: u64,
    /// Of the calls, one in so many is answered later.
    pub(crate) parks_one_in: Option<u64>,
    pub(crate) seed: u64,
}

/// The servers of a scenario.
pub(crate) struct Servers<K: Kind> {
    setting: Setting,
    nodes: Mutex<Vec<Arc<Node<K>>>>,
}

impl<K: Kind> Servers<K> {
    /// The first server, listening.
    pub(crate) fn start(setting: Setting) -> Self {
        let servers = Self { setting, nodes: Mutex::default() };
        servers.start_next();
        servers
    }

    /// The newest server.
    pub(crate) fn current(&self) -> Arc<Node<K>> {
        Arc::clone(self.nodes().last().expect("the first was started with this"))
    }

    /// Servers so far.
    pub(crate) fn lives(&self) -> usize {
        self.nodes().len()
    }

    /// If the newest server is dead, waits a little and starts another. True if it did.
    pub(crate) fn succeed(&self) -> bool {
        if self.current().is_alive() {
            return false;
        }
        let mut random = SplitMix64::new(self.setting.seed ^ self.lives() as u64);
        self.setting.simulation.sleep(Duration::from_nanos(random.below(AWAY_NS_MAX)));
        self.start_next();
        true
    }

    /// Makes the table on the newest server, in later lives perhaps as another one than the first: then
    /// numbers that a client kept name something else.
    pub(crate) fn make_table(&self) -> Result<(), CatalogueError> {
        let definition =
            |name: &str, values| TableDefinition { values, ..TableDefinition::new(name, KeyKind::U64, 8) };
        let client = connect::<K>(&self.setting.simulation, self.setting.address)?;
        let life = self.lives() as u64;
        if life > 1 && SplitMix64::new(self.setting.seed ^ life << 8).below(2) == 0 {
            client.create_table(definition("other", ValueKind::Fixed(24)))?;
        }
        client.create_table(definition(self.setting.table, self.setting.values))?;
        self.current().leave_out_versions(self.setting.table, self.setting.versions_left_out);
        Ok(())
    }

    fn start_next(&self) {
        let Setting { simulation, address, options, seed, parks_one_in, .. } = &self.setting;
        let seed = seed ^ (self.lives() as u64) << 16;
        let node = Node::<K>::start_parking(simulation, address, options, seed, *parks_one_in);
        if self.setting.values.are_blocks() {
            // What they had under way is given back.
            node.hear_departed(seed);
        }
        self.nodes().push(Arc::new(node));
    }

    fn nodes(&self) -> MutexGuard<'_, Vec<Arc<Node<K>>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

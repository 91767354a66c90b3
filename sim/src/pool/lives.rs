//! The memory nodes of a scenario and their successors, and who starts them.
//!
//! Invariant: a pool lives as long as all of its nodes. Once one has died its tables are gone. A successor at
//! its address begins empty and is no node of that pool, and clients that connect are told so. Then all nodes
//! are started again, and the table is made anew.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_client::{CatalogueError, NewTable};
use farsight_fabric_sim::{Kind, Simulation};
use farsight_node::NodeOptions;
use farsight_protocol::{KeyKind, TableDefinition};

use crate::client::Plan;
use crate::cluster::{Cluster, MemoryPool};
use crate::node::Node;
use crate::run::TABLE;
use crate::scenario::PoolEngine;

/// The longest time between two steps of the operator that starts nodes again.
const AWAY_NS_MAX: u64 = 400_000;

/// What memory nodes of a scenario are started with.
pub(super) struct PoolSetting {
    pub(super) simulation: Simulation,
    pub(super) addresses: &'static [&'static str],
    pub(super) options: NodeOptions,
    pub(super) key_kind: KeyKind,
    pub(super) value_bytes: u16,
    pub(super) engine: PoolEngine,
    /// Keys by which an XStore-D table's ranges are cut.
    pub(super) sample: Vec<u64>,
    /// On how many nodes each pair is.
    pub(super) replicas: u8,
    pub(super) seed: u64,
}

/// The memory nodes of a scenario.
pub(super) struct Pools<K: Kind> {
    setting: PoolSetting,
    /// The newest at each address; a dead one stays until it has a successor.
    nodes: Mutex<Vec<Arc<Node<K>>>>,
    /// Nodes started.
    starts: AtomicU64,
}

impl<K: Kind> Pools<K> {
    /// The first pool, listening.
    pub(super) fn start(setting: PoolSetting) -> Self {
        let count = setting.addresses.len();
        let pools = Self { setting, nodes: Mutex::default(), starts: AtomicU64::new(0) };
        let nodes = (0..count).map(|node| pools.start_node(node)).collect();
        *pools.nodes() = nodes;
        pools
    }

    /// The newest node at each address.
    pub(super) fn current(&self) -> Vec<Arc<Node<K>>> {
        self.nodes().clone()
    }

    /// If a node is dead, waits a little and starts all of them again; perhaps the dead ones alone first.
    /// True if it did. `plan` is that of who does it.
    pub(super) fn succeed<C: Cluster>(&self, plan: &Plan<C>) -> bool {
        let is_dead = |node: &usize| !self.nodes()[*node].is_alive();
        let dead: Vec<usize> = (0..self.setting.addresses.len()).filter(is_dead).collect();
        if dead.is_empty() {
            return false;
        }
        // Relaxed, here and below: all of it happens on one thread.
        let mut random = SplitMix64::new(self.setting.seed ^ self.starts.load(Ordering::Relaxed));
        let mut wait = || self.setting.simulation.sleep(Duration::from_nanos(random.below(AWAY_NS_MAX)));
        wait();
        if dead.len() < self.setting.addresses.len() {
            for node in dead {
                self.replace(node);
            }
            wait();
            self.expect_refusal(plan);
        }
        (0..self.setting.addresses.len()).for_each(|node| self.replace(node));
        true
    }

    /// Makes the table, as who looks after the pool.
    pub(super) fn make_table(&self) -> Result<(), CatalogueError> {
        let PoolSetting { simulation, addresses, key_kind, value_bytes, sample, .. } = &self.setting;
        let PoolSetting { engine, replicas, .. } = &self.setting;
        let definition = TableDefinition {
            replicas: Some(*replicas),
            ..TableDefinition::new(TABLE, *key_kind, *value_bytes)
        };
        let client = MemoryPool::<K>::connect(simulation, addresses)?;
        let (engine, sample) = (Some(engine.kind()), sample.clone());
        client.create_table(NewTable { definition, engine, sample }).map(drop)
    }

    /// A pool one of whose nodes has lost its memory is nobody's any more.
    fn expect_refusal<C: Cluster>(&self, plan: &Plan<C>) {
        let PoolSetting { simulation, addresses, .. } = &self.setting;
        let opened = MemoryPool::<K>::connect(simulation, addresses).and_then(|pool| pool.open_table(TABLE));
        match opened {
            Ok(_) => plan.journal.complain("a node lost its memory, and its pool can be opened".to_owned()),
            Err(error) => plan.complain_of("opening the table", &error, plan.allowed.catalogue(&error)),
        }
    }

    /// Ends the node at an address, if it lives, and starts another.
    pub(super) fn replace(&self, node: usize) {
        let former = Arc::clone(&self.nodes()[node]);
        former.end();
        let next = self.start_node(node);
        self.nodes()[node] = next;
    }

    fn start_node(&self, node: usize) -> Arc<Node<K>> {
        let PoolSetting { simulation, addresses, options, seed, .. } = &self.setting;
        let start = self.starts.fetch_add(1, Ordering::Relaxed);
        let seed = seed ^ (start << 16);
        let node = Node::start(simulation, addresses[node], options, seed);
        node.hear_departed(seed);
        Arc::new(node)
    }

    fn nodes(&self) -> MutexGuard<'_, Vec<Arc<Node<K>>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

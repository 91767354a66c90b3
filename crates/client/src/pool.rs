//! A client of a memory pool: connections to all of its nodes, and the catalogue of its tables.
//!
//! Invariant: connections and caches belong to one life of every node ([`nodes`]). When one of them is lost,
//! the next call connects to all of them again; if a node came back without its memory, every call from then
//! on fails and names it.

mod backend;
mod bulk_load;
mod error;
mod given_up;
mod loads;
mod nodes;
mod parts_load;
mod rolex;
mod trainer;

use std::sync::Arc;

use farsight_base::Epoch;
use farsight_fabric::Connection;
use farsight_fabric::lane::NODES_MAX;
use farsight_index_rolex::{ComputeNodeLocks, GroupSizes, RolexCache};
use farsight_protocol::{
    ControlRequest, MemoryNodeStats, POOL_NODES_MAX, PoolRequest, PoolTableInfo, TableDefinition, TableEngine,
};

use crate::client::{Client, ClientOptions};
use crate::table::Table;
use crate::{CatalogueError, OpenError};

pub use error::PoolError;
pub use loads::PoolBulkLoad;
pub use nodes::Nodes;
pub use trainer::PoolTrainer;

const _: () = assert!(NODES_MAX == POOL_NODES_MAX, "a lane reaches every node of a pool");

/// What it takes to work on a table of a pool below sessions: queue pairs of its own, one a node.
pub struct PoolLinks<Q> {
    /// To each node, home first; the table's regions are attached.
    pub queues: Vec<Q>,
    /// What each node says of its part.
    pub infos: Vec<PoolTableInfo>,
    /// What this process's sessions share.
    pub cache: Arc<RolexCache>,
    /// Home's life, which is the pool's.
    pub home: Epoch,
    /// The lock values of this process among the pool's compute nodes, for as long as these connections
    /// live.
    pub locks: ComputeNodeLocks,
}

impl<C: Connection + 'static> Table<Nodes<C>> {
    /// Begins a bulk load of ascending keys into this table, which must be empty; of ROLEX, never have held a
    /// pair.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn bulk_load(&self) -> Result<PoolBulkLoad<C>, OpenError> {
        PoolBulkLoad::new(self)
    }
}

impl<C: Connection + 'static> Client<Nodes<C>> {
    /// A client over connections to a pool's nodes, home first and in the order that all clients use.
    ///
    /// # Errors
    /// [`PoolError::Count`], and as [`Connection::open_queue`].
    pub fn of_pool(connections: Vec<C>, options: ClientOptions) -> Result<Self, CatalogueError> {
        if !(1..=NODES_MAX).contains(&connections.len()) {
            return Err(PoolError::Count { max: NODES_MAX, got: connections.len() }.into());
        }
        Ok(Self::over(Nodes::new(connections)?, options))
    }

    /// Makes an XStore-D table, or finds the one of the same definition: with ranges that have the same
    /// number of a sample's keys each.
    ///
    /// # Errors
    /// As [`Client::create_table`], which makes a ROLEX table.
    pub fn create_x_store_d(
        &self,
        definition: &TableDefinition,
        sample: &[u64],
    ) -> Result<Table<Nodes<C>>, CatalogueError> {
        self.table(|nodes| {
            let engine = TableEngine::x_store_d(sample.to_vec(), nodes.count());
            nodes.create_table(definition, engine)
        })
    }

    /// How the table of this name is worked with.
    ///
    /// # Errors
    /// As [`Client::open_table`].
    pub fn table_engine(&self, name: &str) -> Result<TableEngine, CatalogueError> {
        self.shared().in_a_life(|nodes| Ok(nodes.open_table(name)?.infos[0].definition.engine.clone()))
    }

    /// Sub-models that wait to be retrained by the memory nodes, over all XStore-D tables.
    ///
    /// # Errors
    /// Failures of the fabric.
    pub fn pending_training(&self) -> Result<u64, CatalogueError> {
        let pending = |nodes: &Arc<Nodes<C>>| {
            (0..nodes.count()).map(|node| nodes.control::<u64>(node, &ControlRequest::PendingTraining)).sum()
        };
        self.shared().in_a_life(pending)
    }

    /// Looks at the newest connection to each node, for what only its fabric offers.
    pub fn with_connections<T>(&self, mut look: impl FnMut(&C) -> T) -> Vec<T> {
        let nodes = self.shared().current();
        (0..nodes.count()).map(|node| look(nodes.connection(node))).collect()
    }

    /// What it takes to work on the table of this name below sessions.
    ///
    /// # Errors
    /// As [`Client::open_table`]; no file descriptors left.
    pub fn links(&self, name: &str) -> Result<PoolLinks<C::Queue>, CatalogueError> {
        self.shared().in_a_life(|nodes| nodes.pool_links(name))
    }

    /// A trainer of the table of this name, of which groups have these sizes; all of its trainers have the
    /// same.
    ///
    /// # Errors
    /// As [`Client::links`].
    pub fn trainer(&self, name: &str, sizes: GroupSizes) -> Result<PoolTrainer<C::Queue>, CatalogueError> {
        self.shared().in_a_life(|nodes| PoolTrainer::of(nodes, name, sizes))
    }

    /// Asks one node, by its index, and waits for its answer.
    ///
    /// # Errors
    /// Failures of the fabric, and what the node refuses.
    pub fn ask<T: serde::de::DeserializeOwned>(
        &self,
        node: usize,
        request: &PoolRequest,
    ) -> Result<T, CatalogueError> {
        self.shared().current().ask(node, request)
    }

    /// The statistics of each node.
    ///
    /// # Errors
    /// Failures of the fabric.
    pub fn stats(&self) -> Result<Vec<MemoryNodeStats>, CatalogueError> {
        self.shared()
            .in_a_life(|nodes| (0..nodes.count()).map(|node| nodes.ask(node, &PoolRequest::Stats)).collect())
    }
}

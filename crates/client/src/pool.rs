//! A client of a memory pool: connections to all of its nodes, and the catalogue of its tables.
//!
//! Invariant: connections and caches belong to one life of every node ([`nodes`]). When one of them is lost,
//! the next call connects to all of them again; if a node came back without its memory, every call from then
//! on fails and names it.

mod bulk_load;
mod engine;
mod error;
mod nodes;
mod trainer;

use std::sync::Arc;

use farsight_base::Epoch;
use farsight_fabric::lane::NODES_MAX;
use farsight_fabric::{Connection, QueuePair};
use farsight_index_rolex::{RolexCache, RolexSession};
use farsight_protocol::{ComputeNode, MemoryNodeStats, POOL_NODES_MAX, PoolRequest, PoolTableInfo};

use crate::client::{Client, ClientOptions};
use crate::table::Table;
use crate::{CatalogueError, OpenError};

pub use bulk_load::PoolBulkLoad;
pub use error::PoolError;
pub(crate) use nodes::Nodes;
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
    /// This process among the pool's compute nodes, for as long as these connections live.
    pub compute_node: ComputeNode,
}

impl<C: Connection + 'static> Table<Nodes<C>> {
    /// Begins a bulk load of ascending keys into this table, which must never have held a pair.
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
    /// [`PoolError::Count`], [`PoolError::Fabric`], and as [`Connection::open_queue`].
    pub fn of_pool(connections: Vec<C>, options: ClientOptions) -> Result<Self, CatalogueError> {
        if !(1..=NODES_MAX).contains(&connections.len()) {
            return Err(PoolError::Count { max: NODES_MAX, got: connections.len() }.into());
        }
        if !RolexSession::is_served_by(&C::Queue::GUARANTEES) {
            return Err(PoolError::Fabric { name: C::Queue::GUARANTEES.name }.into());
        }
        Ok(Self::over(Nodes::new(connections)?, options))
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

    /// A trainer of the table of this name.
    ///
    /// # Errors
    /// As [`Client::links`].
    pub fn trainer(&self, name: &str) -> Result<PoolTrainer<C::Queue>, CatalogueError> {
        self.links(name).map(PoolTrainer::new)
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

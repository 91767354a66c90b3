//! A client of a memory pool: connections to all of its nodes, and the catalogue of its tables.
//!
//! Invariant: connections and caches belong to one life of every node ([`nodes`]). When one of them is lost,
//! the next call connects to all of them again; if a node came back without its memory, every call from then
//! on fails and names it.

mod error;
mod nodes;

use std::sync::Arc;

use farsight_base::Epoch;
use farsight_fabric::Connection;
use farsight_fabric::lane::NODES_MAX;
use farsight_layout::FORMAT_VERSION;
use farsight_layout::pool::BlockGeometry;
use farsight_protocol::{
    ComputeNode, MemoryNodeStats, POOL_NODES_MAX, PoolDefinition, PoolRequest, PoolTableInfo, TableDefinition,
};

use crate::reconnect::Shared;
use crate::{CatalogueError, ClientOptions};

pub use error::PoolError;
use nodes::Nodes;

const _: () = assert!(NODES_MAX == POOL_NODES_MAX, "a lane reaches every node of a pool");

/// A client of a pool. Clones share the connections and the caches.
pub struct PoolClient<C: Connection> {
    shared: Arc<Shared<Nodes<C>>>,
}

/// What it takes to work on a table of a pool: queue pairs of its own, one a node.
pub struct PoolLinks<Q> {
    /// To each node, home first; the table's regions are attached.
    pub queues: Vec<Q>,
    /// What each node says of its part.
    pub infos: Vec<PoolTableInfo>,
    /// Home's life, which is the pool's.
    pub home: Epoch,
    /// This process among the pool's compute nodes, for as long as these connections live.
    pub compute_node: ComputeNode,
}

impl<C: Connection> Clone for PoolClient<C> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<C: Connection> PoolClient<C> {
    /// A client over connections to a pool's nodes, home first and in the order that all clients use.
    ///
    /// # Errors
    /// [`PoolError::Count`], and as [`Connection::open_queue`].
    pub fn new(connections: Vec<C>, options: ClientOptions) -> Result<Self, CatalogueError> {
        if !(1..=NODES_MAX).contains(&connections.len()) {
            return Err(PoolError::Count { max: NODES_MAX, got: connections.len() }.into());
        }
        let peers: Vec<&str> = connections.iter().map(Connection::peer).collect();
        let peer = peers.join(",");
        Ok(Self { shared: Arc::new(Shared::new(peer, Nodes::new(connections)?, options)) })
    }

    /// The nodes' addresses, as the user gave them, with commas between.
    #[must_use]
    pub fn peer(&self) -> &str {
        &self.shared.peer
    }

    /// Home's life, which is the pool's.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.shared.current().connection(0).epoch()
    }

    /// Looks at the newest connection to each node, for what only its fabric offers.
    pub fn with_connections<T>(&self, mut look: impl FnMut(&C) -> T) -> Vec<T> {
        let nodes = self.shared.current();
        (0..nodes.count()).map(|node| look(nodes.connection(node))).collect()
    }

    /// Makes a table on every node, or finds the one of the same definition. Returns what each node says of
    /// its part, home first.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] for a bad name, a value size outside the format's limits, a table of that
    /// name with another definition, or a node out of memory.
    pub fn create_table(&self, table: TableDefinition) -> Result<Vec<PoolTableInfo>, CatalogueError> {
        let geometry = BlockGeometry::new(usize::from(table.value_bytes))
            .map_err(|source| CatalogueError::ValueSize { table: table.name.clone(), source })?;
        let block_lines = geometry.lines() as u16;
        let definition = PoolDefinition { table, block_lines, format_version: FORMAT_VERSION };
        self.shared.in_a_life(|nodes| Ok(nodes.create(&definition)?.infos.clone()))
    }

    /// What each node says of the table of this name, home first.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] if there is none.
    pub fn describe_table(&self, name: &str) -> Result<Vec<PoolTableInfo>, CatalogueError> {
        self.shared.in_a_life(|nodes| Ok(nodes.open(name)?.infos.clone()))
    }

    /// Queue pairs for one session on the table of this name.
    ///
    /// # Errors
    /// As [`PoolClient::describe_table`]; no file descriptors left.
    pub fn links(&self, name: &str) -> Result<PoolLinks<C::Queue>, CatalogueError> {
        self.shared.in_a_life(|nodes| nodes.links(name))
    }

    /// All tables, as home knows them.
    ///
    /// # Errors
    /// Failures of the fabric, [`CatalogueError::Pool`].
    pub fn tables(&self) -> Result<Vec<PoolTableInfo>, CatalogueError> {
        self.shared.in_a_life(|nodes| {
            nodes.epochs()?;
            nodes.ask(0, &PoolRequest::ListTables)
        })
    }

    /// The statistics of each node.
    ///
    /// # Errors
    /// Failures of the fabric.
    pub fn stats(&self) -> Result<Vec<MemoryNodeStats>, CatalogueError> {
        self.shared
            .in_a_life(|nodes| (0..nodes.count()).map(|node| nodes.ask(node, &PoolRequest::Stats)).collect())
    }
}

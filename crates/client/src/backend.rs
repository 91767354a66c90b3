//! What a client is connected to: a server, or the memory nodes of a pool.
//!
//! Invariant: a value of such a type is one epoch of each node, and everything that was learned in it: nothing
//! of it is used with another. It knows no operation: those are the engine's, which a session has from here.

use std::sync::Arc;
use std::time::Duration;

use farsight_base::Epoch;
use farsight_fabric::{FabricError, QueuePair};
use farsight_index::{Access, CacheStats, Ordered};
use farsight_protocol::{TableDefinition, TableInfo};

use crate::CatalogueError;

/// Connections in one epoch of each node, and the tables that were opened over them.
pub trait Backend: Sized + Send + Sync {
    /// A table in this epoch.
    type Open: Send + Sync;
    /// A queue pair to a node.
    type Queue: QueuePair + Send;

    /// The nodes, as the user named them.
    fn peer(&self) -> String;

    /// The epoch to which the tables belong.
    fn epoch(&self) -> Epoch;

    /// Whether a client whose connections ended so goes on by new ones.
    #[must_use]
    fn is_loss(error: &FabricError) -> bool {
        matches!(error, FabricError::Disconnected { .. })
    }

    /// Fails once one of the connections is lost.
    ///
    /// # Errors
    /// As [`Connection::check`](farsight_fabric::Connection::check).
    fn check(&self) -> Result<(), FabricError>;

    /// Other connections to the same addresses, tried once: perhaps to other epochs.
    ///
    /// # Errors
    /// As [`Connection::reconnect`](farsight_fabric::Connection::reconnect).
    fn reconnect(&self, timeout: Duration) -> Result<Self, FabricError>;

    /// Makes a table, or finds the one of the same definition.
    ///
    /// # Errors
    /// [`CatalogueError`].
    fn create(&self, definition: &TableDefinition) -> Result<Arc<Self::Open>, CatalogueError>;

    /// Opens the table of this name.
    ///
    /// # Errors
    /// [`CatalogueError`].
    fn open(&self, name: &str) -> Result<Arc<Self::Open>, CatalogueError>;

    /// The table of this name, if it was opened in this epoch.
    fn opened(&self, name: &str) -> Option<Arc<Self::Open>>;

    /// What the nodes say of the table of this name.
    ///
    /// # Errors
    /// [`CatalogueError`].
    fn describe(&self, name: &str) -> Result<TableInfo, CatalogueError>;

    /// All tables.
    ///
    /// # Errors
    /// [`CatalogueError`].
    fn list(&self) -> Result<Vec<TableInfo>, CatalogueError>;

    /// What the nodes said of a table when it was opened.
    fn info(open: &Self::Open) -> &Arc<TableInfo>;

    /// What the shared cache of a table holds.
    fn cache_stats(open: &Self::Open) -> CacheStats;

    /// Queue pairs for one session on a table, one a node of it.
    ///
    /// # Errors
    /// As [`Connection::open_queue`](farsight_fabric::Connection::open_queue).
    fn queues(&self, open: &Self::Open) -> Result<Vec<Self::Queue>, FabricError>;

    /// The engine of one session on a table.
    ///
    /// # Errors
    /// [`CatalogueError`].
    fn engine(
        self: &Arc<Self>,
        open: &Arc<Self::Open>,
        access: Access,
    ) -> Result<Box<dyn Ordered<Self::Queue>>, CatalogueError>;

    /// Fails if the queue pairs are known to be lost, or this epoch to be over for this client. Free where
    /// they are not.
    ///
    /// # Errors
    /// As [`QueuePair::poll`].
    fn poll(&self, queues: &mut [Self::Queue]) -> Result<(), FabricError> {
        // Nothing is in flight between two calls: to poll is to look whether the queue lives.
        queues.iter_mut().try_for_each(|queue| queue.poll().map(drop))
    }
}

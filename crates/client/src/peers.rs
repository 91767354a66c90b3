//! What a client is connected to: a server, or the memory nodes of a pool.
//!
//! Invariant: a value of such a type is one life of each peer, and everything that was learned in it.
//! Sessions name their engine by it, so nothing is chosen at run time between a session's call and its
//! engine.

use std::sync::Arc;
use std::time::Duration;

use farsight_base::Epoch;
use farsight_fabric::{FabricError, Meters};
use farsight_index::{Answers, Counters, Pairs};
use farsight_index_xstore::client::{Access, CacheStats, ScanRequest};
use farsight_protocol::{TableDefinition, TableInfo, WriteOperation, WriteOutcome};

use crate::{CatalogueError, EngineError};

/// Connections in one life of each peer, the tables that were opened there, and the engine for them.
pub trait Peers: Sized + Send + Sync {
    /// A table in this life.
    type Open: Send + Sync;
    /// A session's queue pairs.
    type Links: Send;
    /// What executes a session's operations.
    type Engine: Send;

    /// The peers, as the user named them.
    fn peer(&self) -> String;

    /// The life to which the tables belong.
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

    /// Other connections to the same addresses, tried once: perhaps to other lives.
    ///
    /// # Errors
    /// As [`Connection::reconnect`](farsight_fabric::Connection::reconnect).
    fn again(&self, timeout: Duration) -> Result<Self, FabricError>;

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

    /// The table of this name, if it was opened in this life.
    fn opened(&self, name: &str) -> Option<Arc<Self::Open>>;

    /// What the peers say of the table of this name.
    ///
    /// # Errors
    /// [`CatalogueError`].
    fn describe(&self, name: &str) -> Result<TableInfo, CatalogueError>;

    /// All tables.
    ///
    /// # Errors
    /// [`CatalogueError`].
    fn list(&self) -> Result<Vec<TableInfo>, CatalogueError>;

    /// What the peers said of a table when it was opened.
    fn info(open: &Self::Open) -> &Arc<TableInfo>;

    /// What the shared cache of a table holds.
    fn cache_stats(open: &Self::Open) -> CacheStats;

    /// Queue pairs for one session on a table.
    ///
    /// # Errors
    /// As [`Connection::open_queue`](farsight_fabric::Connection::open_queue).
    fn links(&self, open: &Self::Open) -> Result<Self::Links, FabricError>;

    /// The engine of one session on a table.
    ///
    /// # Errors
    /// [`CatalogueError`].
    fn engine(
        self: &Arc<Self>,
        open: &Arc<Self::Open>,
        access: Access,
    ) -> Result<Self::Engine, CatalogueError>;

    /// Fails if the links are known to be lost, or this life to be given up. Free where they are not.
    ///
    /// # Errors
    /// As [`QueuePair::poll`](farsight_fabric::QueuePair::poll).
    fn poll(&self, links: &mut Self::Links) -> Result<(), FabricError>;

    /// What went over the links.
    fn meters(links: &Self::Links) -> Meters;

    /// What the engine counted.
    fn counters(engine: &Self::Engine) -> Counters;

    /// As [`Session::get`](crate::Session::get).
    ///
    /// # Errors
    /// [`EngineError`].
    fn get(
        engine: &mut Self::Engine,
        links: &mut Self::Links,
        key: u64,
        value: &mut [u8],
    ) -> Result<Option<u64>, EngineError>;

    /// As [`Session::multi_get`](crate::Session::multi_get).
    ///
    /// # Errors
    /// [`EngineError`].
    fn multi_get(
        engine: &mut Self::Engine,
        links: &mut Self::Links,
        keys: &[u64],
        answers: &mut Answers,
    ) -> Result<(), EngineError>;

    /// As [`Session::scan_batch`](crate::Session::scan_batch).
    ///
    /// # Errors
    /// [`EngineError`].
    fn scan_batch(
        engine: &mut Self::Engine,
        links: &mut Self::Links,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), EngineError>;

    /// As [`Session::write`](crate::Session::write): appends the outcomes that are known.
    ///
    /// # Errors
    /// [`EngineError`].
    fn write<'v>(
        engine: &mut Self::Engine,
        links: &mut Self::Links,
        operation: WriteOperation,
        entries: impl ExactSizeIterator<Item = (u64, &'v [u8])> + Clone,
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<(), EngineError>;

    /// As [`Session::prefill`](crate::Session::prefill).
    ///
    /// # Errors
    /// [`EngineError`].
    fn prefill(engine: &mut Self::Engine, links: &mut Self::Links) -> Result<(), EngineError>;
}

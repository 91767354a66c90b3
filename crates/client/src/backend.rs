//! What a client is connected to, whatever the fabric.
//!
//! Invariant: a value of such a type is one epoch of each node, and everything that was learned in it.
//! Nothing of it is used with another epoch. A backend knows no operation: those are the engine's.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::Epoch;
use farsight_base::clock::Clock;
use farsight_fabric::FabricError;
use farsight_index::{Access, CachePolicy, CacheStats, EngineKind, ReadsByOthers, ValueCache};
use farsight_protocol::{
    NodeStats, Proxy, ProxyLease, ProxyOffer, ProxyPace, TableDefinition, TableId, TableInfo,
};

use crate::CatalogueError;
use crate::attached::Operations;
use crate::bulk_load::BulkLoad;
use crate::engine::AwaitRecalls;
use crate::server_time::ServerTime;

/// A table to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewTable {
    /// Its definition.
    pub definition: TableDefinition,
    /// Its engine; without one the [usual](farsight_index::Registry::usual) one.
    pub engine: Option<&'static EngineKind>,
    /// Keys as they will come, in any order: of an engine with ranges the nodes' have the same number of them
    /// each. With fewer keys than nodes they are of the same width.
    pub sample: Vec<u64>,
}

impl From<TableDefinition> for NewTable {
    fn from(definition: TableDefinition) -> Self {
        Self { definition, engine: None, sample: Vec::new() }
    }
}

/// Connections in one epoch of each node, and the tables that were opened over them.
pub(crate) trait Backend: Any + Send + Sync {
    /// The nodes, as the user named them.
    fn peer(&self) -> String;

    /// By which each node of the pool is reached, also one that is lost: in their order.
    fn addresses(&self) -> Vec<String>;

    /// The epoch to which the tables belong.
    fn epoch(&self) -> Epoch;

    /// Fails as a loss if the peers are not those, by now, to which this is connected.
    fn agree_on_view(&self) -> Result<(), FabricError>;

    /// Who each node is, in their order, once they were asked: a node with a directory of data is the same in
    /// all lives of that.
    fn identities(&self) -> Option<&[u64]>;

    /// Each connection, of the fabric's own type.
    fn connections(&self) -> Vec<&dyn Any>;

    /// Whether a client whose connections ended so goes on by new ones.
    fn is_loss(&self, error: &FabricError) -> bool;

    /// Takes note of a loss that a session saw. After one that the connections cannot notice by themselves,
    /// nothing begins over them any more.
    fn note_loss(&self, error: &FabricError);

    /// Fails once one of the connections is lost.
    ///
    /// # Errors
    /// As [`Connection::check`](farsight_fabric::Connection::check).
    fn check(&self) -> Result<(), FabricError>;

    /// Fails once this client may begin nothing any more in this epoch, although its connections stand.
    ///
    /// # Errors
    /// [`FabricError::Disconnected`].
    fn check_usable(&self) -> Result<(), FabricError>;

    /// The same before something is written: gets a compute node its next number, if that is due.
    ///
    /// # Errors
    /// As [`Backend::check_usable`]; a connection that is lost meanwhile.
    fn prepare_to_write(&self) -> Result<(), FabricError>;

    /// Other connections to the same addresses, tried once: perhaps to other epochs.
    ///
    /// # Errors
    /// As [`Connection::reconnect`](farsight_fabric::Connection::reconnect).
    fn reconnect(&self, timeout: Duration) -> Result<Arc<dyn Backend>, FabricError>;

    /// Makes a table, or finds the one of the same definition.
    ///
    /// # Errors
    /// [`CatalogueError`].
    fn create(self: Arc<Self>, table: &NewTable) -> Result<Arc<dyn OpenTable>, CatalogueError>;

    /// Opens the table of this name.
    ///
    /// # Errors
    /// [`CatalogueError`].
    fn open(self: Arc<Self>, name: &str) -> Result<Arc<dyn OpenTable>, CatalogueError>;

    /// Ends the table of this name.
    ///
    /// # Errors
    /// [`CatalogueError`].
    fn drop_table(&self, name: &str) -> Result<(), CatalogueError>;

    /// Gives the table called `from` the name `to`.
    ///
    /// # Errors
    /// [`CatalogueError`].
    fn rename_table(&self, from: &str, to: &str) -> Result<(), CatalogueError>;

    /// Lets two tables exchange their names.
    ///
    /// # Errors
    /// [`CatalogueError`].
    fn swap_tables(&self, first: &str, second: &str) -> Result<(), CatalogueError>;

    /// How often names have come to lead elsewhere, as far as this process has heard.
    ///
    /// # Errors
    /// Failures of the fabric.
    fn heard_name_changes(&self) -> Result<u64, FabricError>;

    /// The same now or little before, where the coordinator has to be asked.
    ///
    /// # Errors
    /// [`CatalogueError`].
    fn asked_name_changes(&self) -> Result<u64, CatalogueError>;

    /// The nodes' time of day, by the clocks by which pairs end. They are asked now and then; while none
    /// answers, it goes on.
    ///
    /// # Errors
    /// [`CatalogueError`].
    fn time(&self) -> Result<ServerTime, CatalogueError>;

    /// The table of this name, if it was opened in this epoch.
    fn opened(self: Arc<Self>, name: &str) -> Option<Arc<dyn OpenTable>>;

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

    /// Offers the coordinator to write for others.
    ///
    /// # Errors
    /// [`CatalogueError`].
    fn offer_proxy(&self, offer: &ProxyOffer) -> Result<ProxyLease, CatalogueError>;

    /// The compute nodes that write for others in the table of this number. Tells nothing of this process.
    ///
    /// # Errors
    /// [`CatalogueError`].
    fn proxies(&self, table: TableId) -> Result<Vec<Proxy>, CatalogueError>;

    /// Sub-models that wait to be retrained by the nodes, over all tables.
    ///
    /// # Errors
    /// [`CatalogueError`].
    fn pending_training(&self) -> Result<u64, CatalogueError>;

    /// Makes a snapshot of each table of each node, and waits for them.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] by a node without a directory of data, or where that failed.
    fn snapshot(&self) -> Result<(), CatalogueError>;

    /// The statistics of each node, the coordinator first.
    ///
    /// # Errors
    /// Failures of the fabric.
    fn node_stats(&self) -> Result<Vec<NodeStats>, CatalogueError>;
}

/// A table in one epoch of its backend.
pub(crate) trait OpenTable: Send + Sync {
    /// What the nodes said of it when it was opened.
    fn info(&self) -> &Arc<TableInfo>;

    /// Its engine.
    fn kind(&self) -> &'static EngineKind;

    /// What the cache holds that all sessions share.
    fn cache_stats(&self) -> CacheStats;

    /// As [`Sharing::set_cache_bytes`](crate::Sharing::set_cache_bytes).
    ///
    /// # Errors
    /// As there.
    fn set_cache_bytes(&self, bytes: u64) -> Result<bool, CatalogueError>;

    /// As [`Sharing::set_value_cache`](crate::Sharing::set_value_cache).
    fn set_value_cache(&self, cache: ValueCache) -> bool;

    /// As [`Sharing::set_cache_policy`](crate::Sharing::set_cache_policy).
    fn set_cache_policy(&self, policy: CachePolicy) -> bool;

    /// As [`Sharing::set_reads_by_others`](crate::Sharing::set_reads_by_others).
    fn set_reads_by_others(&self, reads: ReadsByOthers);

    /// As [`Sharing::set_proxy_pace`](crate::Sharing::set_proxy_pace).
    fn set_proxy_pace(&self, pace: ProxyPace);

    /// As [`Sharing::recalls`](crate::Sharing::recalls).
    ///
    /// # Errors
    /// As there.
    fn recalls(&self, node: usize) -> Result<Option<Box<dyn AwaitRecalls>>, CatalogueError>;

    /// A clock for what its users wait for.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Queue pairs and an engine for one session.
    ///
    /// # Errors
    /// As [`Connection::open_queue`](farsight_fabric::Connection::open_queue).
    fn attach(&self, access: Access) -> Result<Box<dyn Operations>, CatalogueError>;

    /// The same for a session that has nobody else execute its operations.
    ///
    /// # Errors
    /// As [`OpenTable::attach`].
    fn attach_fixed(&self) -> Result<Box<dyn Operations>, CatalogueError>;

    /// Begins a bulk load.
    ///
    /// # Errors
    /// As [`OpenTable::attach`].
    fn bulk_load(&self) -> Result<BulkLoad, CatalogueError>;

    /// What trains it from here; `None` for one that its nodes train.
    ///
    /// # Errors
    /// As [`OpenTable::attach`].
    fn training(&self) -> Result<Option<Box<dyn Training>>, CatalogueError>;
}

/// Training of one table by a client.
pub trait Training: Send {
    /// Trains a little. True if there was something to train.
    ///
    /// # Errors
    /// Whatever the engine's trainer fails with; what it has published stays.
    fn step(&mut self) -> Result<bool, Box<dyn std::error::Error + Send + Sync>>;

    /// What the last step left for later because the pool's first node has no memory for it: groups of
    /// leaves, each of which readers reach by walking.
    fn full(&self) -> usize;
}

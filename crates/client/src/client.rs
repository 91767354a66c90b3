//! A client: where its peers are, and the catalogue of tables.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::Epoch;
use farsight_fabric::{Connection, FabricError};
use farsight_index::Engines;
use farsight_protocol::{NodeStats, Proxy, ProxyLease, ProxyOffer, TableId, TableInfo};

use crate::CatalogueError;
use crate::backend::{Backend, NewTable, OpenTable, Training};
use crate::engine::Lookup;
use crate::nodes::Nodes;
use crate::reconnect::Shared;
use crate::table::{Opened, Table};

/// Settings of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientOptions {
    /// How long calls wait for a server that has gone, from the moment at which the first of them noticed it.
    /// Afterwards each call tries once to connect, and fails at once. Default: 3 s. Zero: no call waits.
    pub reconnect_timeout: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { reconnect_timeout: Duration::from_secs(3) }
    }
}

/// A client of one server, or of one pool. Clones share the connections and the caches.
///
/// When a peer is gone it connects again by itself, in the next call that needs it and for all clones,
/// tables and sessions together. What is there then may be in another epoch ([`Client::epoch`]): caches begin
/// empty, and tables are opened again by name.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

impl Client {
    /// A client of the server at the other end of `connection`.
    ///
    /// # Errors
    /// As [`Connection::open_queue`].
    pub fn new<C: Connection>(connection: C, options: ClientOptions) -> Result<Self, FabricError> {
        Ok(Self::over(Arc::new(Nodes::new(vec![connection], Lookup::of::<Engines>())?), options))
    }

    /// The peers, as the user named them.
    #[must_use]
    pub fn peer(&self) -> &str {
        &self.shared.peer
    }

    /// By which addresses this client reaches the nodes of its pool, in their order; also one that is lost.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.shared.current().addresses()
    }

    /// The epoch to which the newest connection belongs, a pool's coordinator's. It changes when the
    /// client connects again to peers that were started again.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.shared.current().epoch()
    }

    /// Makes a table, or finds the one of the same definition.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] for a bad name, a value size outside the format's limits, a table of that
    /// name with another definition, or a peer out of memory.
    pub fn create_table(&self, table: impl Into<NewTable>) -> Result<Table, CatalogueError> {
        let table = table.into();
        self.table(|backend| Arc::clone(backend).create(&table))
    }

    /// Opens the table of this name.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] if there is none.
    pub fn open_table(&self, name: &str) -> Result<Table, CatalogueError> {
        self.table(|backend| Arc::clone(backend).open(name))
    }

    /// Drops the table of this name: all that it holds is gone, and its memory, once nobody has it open any
    /// more. Its sessions, wherever they are, fail with [`OpenError::TableGone`](crate::OpenError::TableGone)
    /// within a second, or go on with a table that is made under its name.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] if there is none. After a failure of the fabric it may be dropped or not.
    pub fn drop_table(&self, name: &str) -> Result<(), CatalogueError> {
        self.shared.connected()?.drop_table(name)
    }

    /// Gives the table called `from` the name `to`. Sessions follow the name with which they were opened:
    /// those of `from` find it gone within a second.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] if there is none, for a bad name, or if `to` is another table's. After a
    /// failure of the fabric it may be renamed or not.
    pub fn rename_table(&self, from: &str, to: &str) -> Result<(), CatalogueError> {
        self.shared.connected()?.rename_table(from, to)
    }

    /// Lets two tables exchange their names, at one instant. Sessions follow the name with which they were
    /// opened: each of their batches is of one table, and of the other one within a second.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] if there is no such table. After a failure of the fabric they may be
    /// swapped or not.
    pub fn swap_tables(&self, first: &str, second: &str) -> Result<(), CatalogueError> {
        self.shared.connected()?.swap_tables(first, second)
    }

    /// What the peers say of the table of this name.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] if there is none.
    pub fn describe_table(&self, name: &str) -> Result<TableInfo, CatalogueError> {
        self.shared.in_one_epoch(|backend| backend.describe(name))
    }

    /// All tables.
    ///
    /// # Errors
    /// Failures of the fabric.
    pub fn tables(&self) -> Result<Vec<TableInfo>, CatalogueError> {
        self.shared.in_one_epoch(|backend| backend.list())
    }

    /// The statistics of each node, the coordinator first.
    ///
    /// # Errors
    /// Failures of the fabric.
    pub fn node_stats(&self) -> Result<Vec<NodeStats>, CatalogueError> {
        self.shared.in_one_epoch(|backend| backend.node_stats())
    }

    /// The statistics of the first node: of a server, all there are.
    ///
    /// # Errors
    /// Failures of the fabric.
    pub fn stats(&self) -> Result<NodeStats, CatalogueError> {
        Ok(self.node_stats()?.swap_remove(0))
    }

    /// Makes a snapshot of each table in each node's directory of data, and waits until they are durable. The
    /// log before them goes.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] by a node without a directory, or where that failed.
    pub fn snapshot(&self) -> Result<(), CatalogueError> {
        self.shared.in_one_epoch(|backend| backend.snapshot())
    }

    /// Offers the coordinator to write for others, or renews that.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] if there is no such table, or none for which others write.
    pub fn offer_proxy(&self, offer: &ProxyOffer) -> Result<ProxyLease, CatalogueError> {
        self.shared.in_one_epoch(|backend| backend.offer_proxy(offer))
    }

    /// The compute nodes that write for others in the table of this number, and their partitions.
    ///
    /// # Errors
    /// As [`Client::offer_proxy`].
    pub fn proxies(&self, table: TableId) -> Result<Vec<Proxy>, CatalogueError> {
        self.shared.in_one_epoch(|backend| backend.proxies(table))
    }

    /// Sub-models that wait to be retrained by server or memory nodes, over all tables. ROLEX's tables are
    /// not among them: their trainers keep no queue.
    ///
    /// # Errors
    /// Failures of the fabric.
    pub fn pending_training(&self) -> Result<u64, CatalogueError> {
        self.shared.in_one_epoch(|backend| backend.pending_training())
    }

    /// The number of the table of this name, and what trains it from here; `None` for one that its nodes
    /// train.
    ///
    /// # Errors
    /// As [`Client::open_table`].
    pub fn training(&self, name: &str) -> Result<(TableId, Option<Box<dyn Training>>), CatalogueError> {
        self.shared.in_one_epoch(|backend| {
            let open = Arc::clone(backend).open(name)?;
            Ok((open.info().id, open.training()?))
        })
    }

    /// Looks at the newest connection to each node, for what only its fabric offers; at none if they are of
    /// another fabric.
    pub fn with_connections<C: Connection, T>(&self, look: impl FnMut(&C) -> T) -> Vec<T> {
        let backend = self.shared.current();
        let connections = backend.connections();
        connections.into_iter().filter_map(<dyn Any>::downcast_ref).map(look).collect()
    }

    pub(crate) fn over(backend: Arc<dyn Backend>, options: ClientOptions) -> Self {
        Self { shared: Arc::new(Shared::new(backend, options)) }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    fn table(
        &self,
        open: impl Fn(&Arc<dyn Backend>) -> Result<Arc<dyn OpenTable>, CatalogueError>,
    ) -> Result<Table, CatalogueError> {
        let opened = self.shared.in_one_epoch(|backend| {
            let open = open(backend)?;
            let (info, kind) = (Arc::clone(open.info()), open.kind());
            Ok::<_, CatalogueError>(Opened { info, kind, epoch: backend.epoch() })
        });
        Ok(Table::new(Arc::clone(&self.shared), opened?))
    }
}

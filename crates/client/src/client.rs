//! A connection with its catalogue of tables.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use farsight_base::Epoch;
use farsight_fabric::{Connection, FabricError, QueuePair};
use farsight_index_xstore::client::XCache;
use farsight_layout::FORMAT_VERSION;
use farsight_protocol::{ControlRequest, Reply, Request, ServerStats, TableDefinition, TableId, TableInfo};
use serde::de::DeserializeOwned;

use crate::call::call;
use crate::{CatalogueError, Table};

/// A client of one server. Clones share the connection and the caches.
///
/// It does not reconnect: when the server is gone every call fails with [`FabricError::Disconnected`], and a
/// new client is made from a new connection.
pub struct Client<C: Connection> {
    shared: Arc<Shared<C>>,
}

/// What the clones of a client, its tables and their sessions share.
pub(crate) struct Shared<C: Connection> {
    pub(crate) connection: C,
    control: Mutex<Control<C::Queue>>,
    caches: Mutex<HashMap<TableId, Arc<XCache>>>,
}

/// The queue pair for control calls, with buffers that are reused.
struct Control<Q> {
    queue: Q,
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl<C: Connection> Clone for Client<C> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<C: Connection> Client<C> {
    /// A client over `connection`.
    ///
    /// # Errors
    /// As [`Connection::open_queue`].
    pub fn new(connection: C) -> Result<Self, FabricError> {
        let queue = connection.open_queue()?;
        let control = Mutex::new(Control { queue, request: Vec::new(), reply: Vec::new() });
        Ok(Self { shared: Arc::new(Shared { connection, control, caches: Mutex::default() }) })
    }

    /// The server, as the user named it.
    #[must_use]
    pub fn peer(&self) -> &str {
        self.shared.connection.peer()
    }

    /// The connection, for what only its fabric offers.
    #[must_use]
    pub fn connection(&self) -> &C {
        &self.shared.connection
    }

    /// The server's life that this client belongs to.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.shared.connection.epoch()
    }

    /// Makes a table, or finds the one of the same definition.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] for a bad name, a value size outside the format's limits, a table of that
    /// name with another definition, or a server out of memory.
    pub fn create_table(&self, definition: TableDefinition) -> Result<Table<C>, CatalogueError> {
        let info = self.control(&ControlRequest::CreateTable(definition))?;
        self.table(info)
    }

    /// Opens the table of this name.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] if there is none.
    pub fn open_table(&self, name: &str) -> Result<Table<C>, CatalogueError> {
        let info = self.describe_table(name)?;
        self.table(info)
    }

    /// What the server says of the table of this name.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] if there is none.
    pub fn describe_table(&self, name: &str) -> Result<TableInfo, CatalogueError> {
        self.control(&ControlRequest::OpenTable(name.to_owned()))
    }

    /// All tables of the server.
    ///
    /// # Errors
    /// Failures of the fabric.
    pub fn tables(&self) -> Result<Vec<TableInfo>, CatalogueError> {
        self.control(&ControlRequest::ListTables)
    }

    /// The server's statistics.
    ///
    /// # Errors
    /// Failures of the fabric.
    pub fn stats(&self) -> Result<ServerStats, CatalogueError> {
        self.control(&ControlRequest::Stats)
    }

    /// Sub-models that wait to be retrained, over all tables.
    ///
    /// # Errors
    /// Failures of the fabric.
    pub fn pending_training(&self) -> Result<u64, CatalogueError> {
        self.control(&ControlRequest::PendingTraining)
    }

    fn table(&self, info: TableInfo) -> Result<Table<C>, CatalogueError> {
        if info.format_version != FORMAT_VERSION {
            return Err(CatalogueError::FormatVersion {
                peer: self.peer().to_owned(),
                table: info.definition.name,
                expected: FORMAT_VERSION,
                got: info.format_version,
            });
        }
        let cache = self.cache(&info)?;
        Ok(Table::new(Arc::clone(&self.shared), info, cache))
    }

    /// The cache of `info`'s table: one for all sessions of this client.
    fn cache(&self, info: &TableInfo) -> Result<Arc<XCache>, CatalogueError> {
        let mut caches = self.shared.caches.lock().expect("no holder of the caches panics");
        if let Some(cache) = caches.get(&info.id) {
            return Ok(Arc::clone(cache));
        }
        let region_bytes = self.shared.control().queue.attach(info.region())?;
        let cache = XCache::new(info, region_bytes)
            .map_err(|source| CatalogueError::Engine { table: info.definition.name.clone(), source })?;
        caches.insert(info.id, Arc::clone(&cache));
        Ok(cache)
    }

    fn control<T: DeserializeOwned>(&self, request: &ControlRequest) -> Result<T, CatalogueError> {
        let mut control = self.shared.control();
        let Control { queue, request: frame, reply } = &mut *control;
        Request::control(frame, request);
        call(queue, frame, reply)?;
        let refused = |source| CatalogueError::Refused { peer: self.peer().to_owned(), source };
        let unintelligible = |source| CatalogueError::Decode { peer: self.peer().to_owned(), source };
        Reply::decode(reply).map_err(unintelligible)?.map_err(refused)?.control().map_err(unintelligible)
    }
}

impl<C: Connection> Shared<C> {
    fn control(&self) -> MutexGuard<'_, Control<C::Queue>> {
        self.control.lock().expect("no control call panics")
    }
}

//! One connection to a server, and what was learned over it.
//!
//! Invariant: everything here belongs to one life of the server. Nothing of it is used with another: a new
//! connection begins with nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use farsight_base::Epoch;
use farsight_fabric::{Connection, FabricError, QueuePair};
use farsight_index::{Access, CacheStats, Ordered};
use farsight_index_xstore::client::{XCache, XParts};
use farsight_layout::FORMAT_VERSION;
use farsight_protocol::{ControlRequest, NodeKind, Request, TableDefinition, TableInfo};
use serde::de::DeserializeOwned;

use crate::CatalogueError;
use crate::ask::Asker;
use crate::backend::Backend;

/// A client within one connection.
pub struct Life<C: Connection> {
    pub(crate) connection: C,
    asker: Asker<C>,
    /// By name.
    tables: Mutex<HashMap<String, Arc<OpenTable>>>,
}

/// A table in one life: what the server says of it, and the cache that all sessions share.
pub struct OpenTable {
    pub(crate) info: Arc<TableInfo>,
    pub(crate) cache: Arc<XCache>,
}

impl<C: Connection> Life<C> {
    pub(crate) fn new(connection: C) -> Result<Self, FabricError> {
        Ok(Self { asker: Asker::new(&connection, NodeKind::Server)?, connection, tables: Mutex::default() })
    }

    /// Asks the server and waits for its answer.
    pub(crate) fn control<T: DeserializeOwned>(&self, request: &ControlRequest) -> Result<T, CatalogueError> {
        self.asker.ask(&self.connection, |frame| Request::control(frame, request))
    }

    /// The table of this description, opened once.
    fn adopt(&self, info: TableInfo) -> Result<Arc<OpenTable>, CatalogueError> {
        if info.format_version != FORMAT_VERSION {
            return Err(CatalogueError::FormatVersion {
                peer: self.connection.peer().to_owned(),
                table: info.definition.name,
                expected: FORMAT_VERSION,
                got: info.format_version,
            });
        }
        let region_bytes = self.asker.with_queue(&self.connection, |queue| queue.attach(info.region()))?;
        let mut tables = self.tables();
        if let Some(open) = tables.get(&info.definition.name) {
            return Ok(Arc::clone(open));
        }
        let cache = XCache::new(&info, region_bytes).map_err(|source| CatalogueError::Engine {
            table: info.definition.name.clone(),
            source: source.into(),
        })?;
        let name = info.definition.name.clone();
        let open = Arc::new(OpenTable { info: Arc::new(info), cache });
        tables.insert(name, Arc::clone(&open));
        Ok(open)
    }

    fn tables(&self) -> MutexGuard<'_, HashMap<String, Arc<OpenTable>>> {
        self.tables.lock().expect("no holder of the tables panics")
    }
}

impl<C: Connection> Backend for Life<C> {
    type Open = OpenTable;
    type Queue = C::Queue;

    fn peer(&self) -> String {
        self.connection.peer().to_owned()
    }

    fn epoch(&self) -> Epoch {
        self.connection.epoch()
    }

    fn check(&self) -> Result<(), FabricError> {
        self.connection.check()
    }

    fn reconnect(&self, timeout: Duration) -> Result<Self, FabricError> {
        self.connection.reconnect(timeout).and_then(Self::new)
    }

    fn create(&self, definition: &TableDefinition) -> Result<Arc<OpenTable>, CatalogueError> {
        self.adopt(self.control(&ControlRequest::CreateTable(definition.clone()))?)
    }

    fn open(&self, name: &str) -> Result<Arc<OpenTable>, CatalogueError> {
        self.adopt(self.describe(name)?)
    }

    fn opened(&self, name: &str) -> Option<Arc<OpenTable>> {
        self.tables().get(name).cloned()
    }

    fn describe(&self, name: &str) -> Result<TableInfo, CatalogueError> {
        self.control(&ControlRequest::OpenTable(name.to_owned()))
    }

    fn list(&self) -> Result<Vec<TableInfo>, CatalogueError> {
        self.control(&ControlRequest::ListTables)
    }

    fn info(open: &OpenTable) -> &Arc<TableInfo> {
        &open.info
    }

    fn cache_stats(open: &OpenTable) -> CacheStats {
        open.cache.stats()
    }

    fn queues(&self, open: &OpenTable) -> Result<Vec<C::Queue>, FabricError> {
        let mut queue = self.connection.open_queue()?;
        queue.attach(open.info.region())?;
        Ok(vec![queue])
    }

    fn engine(
        self: &Arc<Self>,
        open: &Arc<OpenTable>,
        access: Access,
    ) -> Result<Box<dyn Ordered<C::Queue>>, CatalogueError> {
        // A server is one part, without a boundary.
        Ok(Box::new(XParts::new(Arc::default(), std::slice::from_ref(&open.cache), access)))
    }
}

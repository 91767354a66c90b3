//! One connection to a server, and what was learned over it.
//!
//! Invariant: everything here belongs to one life of the server. Nothing of it is used with another: a new
//! connection begins with nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use farsight_base::Epoch;
use farsight_fabric::{Connection, FabricError, Meters, QueuePair};
use farsight_index::{Answers, Counters, Pairs};
use farsight_index_xstore::client::{Access, CacheStats, ScanRequest, XCache, XClient};
use farsight_layout::FORMAT_VERSION;
use farsight_protocol::{
    ControlRequest, NodeKind, Request, TableDefinition, TableInfo, WriteOperation, WriteOutcome,
};
use serde::de::DeserializeOwned;

use crate::ask::Asker;
use crate::peers::Peers;
use crate::{CatalogueError, EngineError};

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
        let cache = XCache::new(&info, region_bytes)
            .map_err(|source| CatalogueError::Engine { table: info.definition.name.clone(), source })?;
        let name = info.definition.name.clone();
        let open = Arc::new(OpenTable { info: Arc::new(info), cache });
        tables.insert(name, Arc::clone(&open));
        Ok(open)
    }

    fn tables(&self) -> MutexGuard<'_, HashMap<String, Arc<OpenTable>>> {
        self.tables.lock().expect("no holder of the tables panics")
    }
}

impl<C: Connection> Peers for Life<C> {
    type Open = OpenTable;
    type Links = C::Queue;
    type Engine = XClient;

    fn peer(&self) -> String {
        self.connection.peer().to_owned()
    }

    fn epoch(&self) -> Epoch {
        self.connection.epoch()
    }

    fn check(&self) -> Result<(), FabricError> {
        self.connection.check()
    }

    fn again(&self, timeout: Duration) -> Result<Self, FabricError> {
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

    fn links(&self, open: &OpenTable) -> Result<C::Queue, FabricError> {
        let mut queue = self.connection.open_queue()?;
        queue.attach(open.info.region())?;
        Ok(queue)
    }

    fn engine(self: &Arc<Self>, open: &Arc<OpenTable>, access: Access) -> Result<XClient, CatalogueError> {
        Ok(XClient::new(Arc::clone(&open.cache), access))
    }

    fn poll(&self, queue: &mut C::Queue) -> Result<(), FabricError> {
        // Nothing is in flight between two calls: to poll is to look whether the queue lives.
        queue.poll().map(drop)
    }

    fn meters(queue: &C::Queue) -> Meters {
        queue.meters()
    }

    fn counters(engine: &XClient) -> Counters {
        engine.counters()
    }

    #[inline]
    fn get(
        engine: &mut XClient,
        queue: &mut C::Queue,
        key: u64,
        value: &mut [u8],
    ) -> Result<Option<u64>, EngineError> {
        engine.get(queue, key, value).map_err(EngineError::from)
    }

    #[inline]
    fn multi_get(
        engine: &mut XClient,
        queue: &mut C::Queue,
        keys: &[u64],
        answers: &mut Answers,
    ) -> Result<(), EngineError> {
        engine.multi_get(queue, keys, answers).map_err(EngineError::from)
    }

    #[inline]
    fn scan_batch(
        engine: &mut XClient,
        queue: &mut C::Queue,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), EngineError> {
        engine.scan_batch(queue, scans, pairs).map_err(EngineError::from)
    }

    fn write<'v>(
        engine: &mut XClient,
        queue: &mut C::Queue,
        operation: WriteOperation,
        entries: impl ExactSizeIterator<Item = (u64, &'v [u8])> + Clone,
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<(), EngineError> {
        engine.write(queue, operation, entries, outcomes).map_err(EngineError::from)
    }

    fn prefill(engine: &mut XClient, queue: &mut C::Queue) -> Result<(), EngineError> {
        engine.prefill(queue).map_err(EngineError::from)
    }
}

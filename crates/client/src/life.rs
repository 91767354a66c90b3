//! One connection to a server, and what was learned over it.
//!
//! Invariant: everything here belongs to one life of the server. Nothing of it is used with another: a new
//! connection begins with nothing.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use farsight_base::Epoch;
use farsight_fabric::{Connection, FabricError, QueuePair};
use farsight_index::{Access, CacheStats};
use farsight_index_xstore::client::{XCache, XParts};
use farsight_layout::FORMAT_VERSION;
use farsight_protocol::{ControlRequest, Engine, NodeKind, Request, ServerStats, TableInfo};
use serde::de::DeserializeOwned;

use crate::ask::Asker;
use crate::attached::{Attached, Operations};
use crate::backend::{Backend, NewTable, OpenTable, Training};
use crate::bulk_load::{Load, PartsLoad};
use crate::{CatalogueError, PoolError};

/// A client within one connection.
pub(crate) struct Life<C: Connection> {
    pub(crate) connection: C,
    asker: Asker<C>,
    /// By name.
    tables: Mutex<HashMap<String, Arc<Known>>>,
}

/// What the server says of a table, and the cache that all sessions share.
struct Known {
    info: Arc<TableInfo>,
    cache: Arc<XCache>,
}

/// A server's table.
struct ServerTable<C: Connection> {
    known: Arc<Known>,
    life: Arc<Life<C>>,
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
    fn adopt(self: Arc<Self>, info: TableInfo) -> Result<Arc<dyn OpenTable>, CatalogueError> {
        if info.format_version != FORMAT_VERSION {
            return Err(CatalogueError::FormatVersion {
                peer: self.connection.peer().to_owned(),
                table: info.definition.name,
                expected: FORMAT_VERSION,
                got: info.format_version,
            });
        }
        let region_bytes = self.asker.with_queue(&self.connection, |queue| queue.attach(info.region()))?;
        let name = info.definition.name.clone();
        let known = self.tables().get(&name).cloned();
        if let Some(known) = known {
            return Ok(Arc::new(ServerTable { known, life: self }));
        }
        let cache = XCache::new(&info, region_bytes)
            .map_err(|error| CatalogueError::Engine { table: name.clone(), source: error.into() })?;
        let known = Arc::new(Known { info: Arc::new(info), cache });
        let known = Arc::clone(self.tables().entry(name).or_insert(known));
        Ok(Arc::new(ServerTable { known, life: self }))
    }

    fn tables(&self) -> MutexGuard<'_, HashMap<String, Arc<Known>>> {
        self.tables.lock().expect("no holder of the tables panics")
    }
}

impl<C: Connection> Backend for Life<C> {
    fn peer(&self) -> String {
        self.connection.peer().to_owned()
    }

    fn epoch(&self) -> Epoch {
        self.connection.epoch()
    }

    fn connections(&self) -> Vec<&dyn Any> {
        vec![&self.connection]
    }

    fn check(&self) -> Result<(), FabricError> {
        self.connection.check()
    }

    fn reconnect(&self, timeout: Duration) -> Result<Arc<dyn Backend>, FabricError> {
        Ok(Arc::new(Self::new(self.connection.reconnect(timeout)?)?))
    }

    fn create(self: Arc<Self>, table: &NewTable) -> Result<Arc<dyn OpenTable>, CatalogueError> {
        if table.engine.is_some_and(Engine::is_pooled) {
            return Err(PoolError::NoPool { peer: self.peer() }.into());
        }
        let info = self.control(&ControlRequest::CreateTable(table.definition.clone()))?;
        self.adopt(info)
    }

    fn open(self: Arc<Self>, name: &str) -> Result<Arc<dyn OpenTable>, CatalogueError> {
        let info = self.describe(name)?;
        self.adopt(info)
    }

    fn opened(self: Arc<Self>, name: &str) -> Option<Arc<dyn OpenTable>> {
        let known = self.tables().get(name).cloned()?;
        Some(Arc::new(ServerTable { known, life: self }))
    }

    fn describe(&self, name: &str) -> Result<TableInfo, CatalogueError> {
        self.control(&ControlRequest::OpenTable(name.to_owned()))
    }

    fn list(&self) -> Result<Vec<TableInfo>, CatalogueError> {
        self.control(&ControlRequest::ListTables)
    }

    fn pending_training(&self) -> Result<u64, CatalogueError> {
        self.control(&ControlRequest::PendingTraining)
    }

    fn stats(&self) -> Result<ServerStats, CatalogueError> {
        self.control(&ControlRequest::Stats)
    }

    fn training(self: Arc<Self>, _name: &str) -> Result<Option<Box<dyn Training>>, CatalogueError> {
        Err(PoolError::NoPool { peer: self.peer() }.into())
    }
}

impl<C: Connection> ServerTable<C> {
    fn queue(&self) -> Result<C::Queue, FabricError> {
        let mut queue = self.life.connection.open_queue()?;
        queue.attach(self.known.info.region())?;
        Ok(queue)
    }
}

impl<C: Connection> OpenTable for ServerTable<C> {
    fn info(&self) -> &Arc<TableInfo> {
        &self.known.info
    }

    fn cache_stats(&self) -> CacheStats {
        self.known.cache.stats()
    }

    fn attach(&self, access: Access) -> Result<Box<dyn Operations>, CatalogueError> {
        // A server is one part, without a boundary.
        let engine = XParts::new(Arc::default(), std::slice::from_ref(&self.known.cache), access);
        let (queues, life) = (vec![self.queue()?], Arc::clone(&self.life));
        Ok(Box::new(Attached { queues, engine, backend: life }))
    }

    fn bulk_load(&self) -> Result<Box<dyn Load>, CatalogueError> {
        let (info, queues) = (&self.known.info, vec![self.queue()?]);
        let life = Arc::clone(&self.life);
        Ok(Box::new(PartsLoad::new(info, std::slice::from_ref(&**info), Arc::default(), queues, life)))
    }
}

//! One connection, and what was learned over it.
//!
//! Invariant: everything here belongs to one life of the server. Nothing of it is used with another: a new
//! connection begins with nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use farsight_base::Epoch;
use farsight_fabric::{Connection, FabricError, QueuePair};
use farsight_index_xstore::client::XCache;
use farsight_layout::FORMAT_VERSION;
use farsight_protocol::{ControlRequest, ErrorCode, Request, TableInfo};
use serde::de::DeserializeOwned;

use crate::ask::Asker;
use crate::reconnect::Alive;
use crate::{CatalogueError, OpenError};

/// A client within one connection.
pub(crate) struct Life<C: Connection> {
    pub(crate) connection: C,
    asker: Asker<C>,
    /// By name.
    tables: Mutex<HashMap<String, Arc<OpenTable>>>,
}

/// A table in one life: what the server says of it, and the cache that all sessions share.
pub(crate) struct OpenTable {
    pub(crate) info: Arc<TableInfo>,
    pub(crate) cache: Arc<XCache>,
}

/// A table as it was when it was opened first.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) info: Arc<TableInfo>,
    pub(crate) epoch: Epoch,
}

impl<C: Connection> Alive for Life<C> {
    fn check(&self) -> Result<(), FabricError> {
        self.connection.check()
    }

    fn again(&self, timeout: Duration) -> Result<Self, FabricError> {
        self.connection.reconnect(timeout).and_then(Self::new)
    }
}

impl<C: Connection> Life<C> {
    pub(crate) fn new(connection: C) -> Result<Self, FabricError> {
        Ok(Self { asker: Asker::new(&connection)?, connection, tables: Mutex::default() })
    }

    /// Asks the server and waits for its answer.
    pub(crate) fn control<T: DeserializeOwned>(&self, request: &ControlRequest) -> Result<T, CatalogueError> {
        self.asker.ask(&self.connection, |frame| Request::control(frame, request))
    }

    /// The table of this description, opened once.
    pub(crate) fn adopt(&self, info: TableInfo) -> Result<Arc<OpenTable>, CatalogueError> {
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

    /// The table called `name`, if it was opened in this life.
    pub(crate) fn opened(&self, name: &str) -> Option<Arc<OpenTable>> {
        self.tables().get(name).cloned()
    }

    /// The table that was `opened`, perhaps in another life, as it is in this one.
    pub(crate) fn reopen(&self, opened: &Opened) -> Result<Arc<OpenTable>, OpenError> {
        let expected = &opened.info.definition;
        let open = match self.opened(&expected.name) {
            Some(open) => open,
            None => self.adopt(self.describe(opened)?)?,
        };
        let got = &open.info.definition;
        if got == expected {
            return Ok(open);
        }
        Err(OpenError::OtherDefinition {
            peer: self.connection.peer().to_owned(),
            expected: Box::new(expected.clone()),
            got: Box::new(got.clone()),
        })
    }

    fn describe(&self, opened: &Opened) -> Result<TableInfo, OpenError> {
        let name = &opened.info.definition.name;
        match self.control(&ControlRequest::OpenTable(name.clone())) {
            Err(CatalogueError::Refused { peer, source })
                if source.code == ErrorCode::UnknownTable && self.connection.epoch() != opened.epoch =>
            {
                let (table, was, is) = (name.clone(), opened.epoch, self.connection.epoch());
                Err(OpenError::TableGone { peer, table, was, is, source })
            }
            described => Ok(described?),
        }
    }

    fn tables(&self) -> MutexGuard<'_, HashMap<String, Arc<OpenTable>>> {
        self.tables.lock().expect("no holder of the tables panics")
    }
}

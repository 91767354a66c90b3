//! One connection, and what was learned over it.
//!
//! Invariant: everything here belongs to one life of the server. Nothing of it is used with another: a new
//! connection begins with nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use farsight_base::Epoch;
use farsight_fabric::{Connection, FabricError, QueuePair};
use farsight_index_xstore::client::XCache;
use farsight_layout::FORMAT_VERSION;
use farsight_protocol::{ControlRequest, ErrorCode, Reply, Request, TableInfo};
use serde::de::DeserializeOwned;

use crate::call::call;
use crate::{CatalogueError, OpenError};

/// A client within one connection.
pub(crate) struct Life<C: Connection> {
    pub(crate) connection: C,
    /// The queue pair for control calls while no call uses it. Calls beside another open their own, and close
    /// it again.
    idle: Mutex<Option<Control<C::Queue>>>,
    /// By name.
    tables: Mutex<HashMap<String, Arc<OpenTable>>>,
}

/// A queue pair for control calls, with buffers that are reused.
struct Control<Q> {
    queue: Q,
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl<Q> Control<Q> {
    fn new(queue: Q) -> Self {
        Self { queue, request: Vec::new(), reply: Vec::new() }
    }
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

impl<C: Connection> Life<C> {
    pub(crate) fn new(connection: C) -> Result<Self, FabricError> {
        let control = Control::new(connection.open_queue()?);
        Ok(Self { connection, idle: Mutex::new(Some(control)), tables: Mutex::default() })
    }

    /// Asks the server and waits for its answer.
    pub(crate) fn control<T: DeserializeOwned>(&self, request: &ControlRequest) -> Result<T, CatalogueError> {
        // Before the lock, which a forked child may find taken for ever.
        self.connection.check()?;
        let mut control = self.idle_control()?;
        let Control { queue, request: frame, reply } = &mut control;
        Request::control(frame, request);
        // No lock is held meanwhile: whoever waits for an answer lets others ask. A queue pair whose call
        // failed is not used again.
        call(queue, frame, reply)?;
        let peer = || self.connection.peer().to_owned();
        let refused = |source| CatalogueError::Refused { peer: peer(), source };
        let unintelligible = |source| CatalogueError::Decode { peer: peer(), source };
        let answer = Reply::decode(reply)
            .map_err(unintelligible)
            .and_then(|reply| reply.map_err(refused)?.control().map_err(unintelligible));
        self.idle().get_or_insert(control);
        answer
    }

    fn idle_control(&self) -> Result<Control<C::Queue>, FabricError> {
        let idle = self.idle().take();
        match idle {
            Some(control) => Ok(control),
            None => Ok(Control::new(self.connection.open_queue()?)),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Option<Control<C::Queue>>> {
        self.idle.lock().expect("no holder of the idle queue pair panics")
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
        let mut control = self.idle_control()?;
        let region_bytes = control.queue.attach(info.region())?;
        self.idle().get_or_insert(control);
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

//! A table as a client knows it.

use std::sync::Arc;

use farsight_fabric::{Connection, QueuePair};
use farsight_index_xstore::client::{Access, CacheStats};
use farsight_protocol::TableInfo;

use crate::life::{Life, OpenTable, Opened};
use crate::reconnect::Shared;
use crate::{BulkLoad, OpenError, Session};

/// An open table. Clones, and clients that opened the same table from clones of one client, share its cache.
///
/// It outlives a life of its server: what is done with it afterwards finds the table by name in the next.
pub struct Table<C: Connection> {
    shared: Arc<Shared<Life<C>>>,
    opened: Opened,
}

/// What it takes to work on a table in one life of its server.
pub(crate) struct Place<C: Connection> {
    pub(crate) queue: C::Queue,
    pub(crate) open: Arc<OpenTable>,
    /// The queue ends with it.
    pub(crate) life: Arc<Life<C>>,
}

impl<C: Connection> Clone for Table<C> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), opened: self.opened.clone() }
    }
}

impl<C: Connection> Table<C> {
    pub(crate) fn new(shared: Arc<Shared<Life<C>>>, opened: Opened) -> Self {
        Self { shared, opened }
    }

    /// What the server said of the table when it was opened. Its definition holds for as long as the table is
    /// used; number, region and capacity were those of that life of the server.
    #[must_use]
    pub fn info(&self) -> &TableInfo {
        &self.opened.info
    }

    /// The table's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.opened.info.definition.name
    }

    /// Bytes of each value.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        usize::from(self.opened.info.definition.value_bytes)
    }

    /// What the shared cache of this table holds; nothing after the server was lost, until the table is used.
    #[must_use]
    pub fn cache_stats(&self) -> CacheStats {
        self.shared.current().opened(self.name()).map(|open| open.cache.stats()).unwrap_or_default()
    }

    /// A session on this table for one thread, with a queue pair of its own.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn session(&self, access: Access) -> Result<Session<C>, OpenError> {
        Ok(Session::new(self.clone(), self.place()?, access))
    }

    /// Begins a bulk load of ascending keys into this table, which must be empty.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn bulk_load(&self) -> Result<BulkLoad<C>, OpenError> {
        Ok(BulkLoad::new(self.clone(), self.place()?))
    }

    pub(crate) fn shared(&self) -> &Shared<Life<C>> {
        &self.shared
    }

    fn place(&self) -> Result<Place<C>, OpenError> {
        self.shared.in_a_life(|life| self.place_in(life))
    }

    pub(crate) fn place_in(&self, life: &Arc<Life<C>>) -> Result<Place<C>, OpenError> {
        let open = life.reopen(&self.opened)?;
        let mut queue = life.connection.open_queue()?;
        queue.attach(open.info.region())?;
        Ok(Place { queue, open, life: Arc::clone(life) })
    }
}

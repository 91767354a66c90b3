//! A table as a client knows it.

use std::sync::Arc;

use farsight_fabric::{Connection, FabricError, QueuePair};
use farsight_index_xstore::client::{Access, CacheStats, XCache};
use farsight_protocol::TableInfo;

use crate::client::Shared;
use crate::{BulkLoad, Session};

/// An open table. Clones, and clients that opened the same table from clones of one client, share its cache.
pub struct Table<C: Connection> {
    shared: Arc<Shared<C>>,
    info: Arc<TableInfo>,
    cache: Arc<XCache>,
}

impl<C: Connection> Clone for Table<C> {
    fn clone(&self) -> Self {
        let Self { shared, info, cache } = self;
        Self { shared: Arc::clone(shared), info: Arc::clone(info), cache: Arc::clone(cache) }
    }
}

impl<C: Connection> Table<C> {
    pub(crate) fn new(shared: Arc<Shared<C>>, info: TableInfo, cache: Arc<XCache>) -> Self {
        Self { shared, info: Arc::new(info), cache }
    }

    /// What the server says of the table.
    #[must_use]
    pub fn info(&self) -> &TableInfo {
        &self.info
    }

    /// The table's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.info.definition.name
    }

    /// Bytes of each value.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        usize::from(self.info.definition.value_bytes)
    }

    /// What the shared cache of this table holds.
    #[must_use]
    pub fn cache_stats(&self) -> CacheStats {
        self.cache.stats()
    }

    /// A session on this table for one thread, with a queue pair of its own.
    ///
    /// # Errors
    /// As [`Connection::open_queue`] and [`QueuePair::attach`].
    pub fn session(&self, access: Access) -> Result<Session<C>, FabricError> {
        let queue = self.queue()?;
        Ok(Session::new(self.clone(), queue, Arc::clone(&self.cache), access))
    }

    /// Begins a bulk load of ascending keys into this table, which must be empty.
    ///
    /// # Errors
    /// As [`Connection::open_queue`].
    pub fn bulk_load(&self) -> Result<BulkLoad<C>, FabricError> {
        Ok(BulkLoad::new(self.clone(), self.queue()?))
    }

    fn queue(&self) -> Result<C::Queue, FabricError> {
        let mut queue = self.shared.connection.open_queue()?;
        queue.attach(self.info.region())?;
        Ok(queue)
    }
}

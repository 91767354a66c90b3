//! A table as a client knows it.

use std::sync::Arc;

use farsight_base::Epoch;
use farsight_fabric::Connection;
use farsight_index::{Access, CacheStats};
use farsight_protocol::{ErrorCode, TableInfo};

use crate::backend::Backend;
use crate::life::Life;
use crate::reconnect::Shared;
use crate::session::Session;
use crate::{BulkLoad, CatalogueError, OpenError};

/// An open table. Clones, and clients that opened the same table from clones of one client, share its cache.
///
/// It outlives a life of its peers: what is done with it afterwards finds the table by name in the next.
pub struct Table<B: Backend> {
    shared: Arc<Shared<B>>,
    opened: Opened,
}

/// A table as it was when it was opened first.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) info: Arc<TableInfo>,
    pub(crate) epoch: Epoch,
}

/// What it takes to work on a table in one life of its peers.
pub(crate) struct Place<B: Backend> {
    /// One a node.
    pub(crate) queues: Vec<B::Queue>,
    pub(crate) open: Arc<B::Open>,
    /// The queue pairs end with it.
    pub(crate) life: Arc<B>,
}

impl<B: Backend> Clone for Table<B> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), opened: self.opened.clone() }
    }
}

impl<B: Backend> Table<B> {
    pub(crate) fn new(shared: Arc<Shared<B>>, opened: Opened) -> Self {
        Self { shared, opened }
    }

    /// What the peers said of the table when it was opened. Its definition holds for as long as the table is
    /// used; number, region and capacity were those of that life.
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

    /// What the shared cache of this table holds; nothing after a peer was lost, until the table is used.
    #[must_use]
    pub fn cache_stats(&self) -> CacheStats {
        self.shared.current().opened(self.name()).map(|open| B::cache_stats(&open)).unwrap_or_default()
    }

    /// A session on this table for one thread, with queue pairs of its own.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn session(&self, access: Access) -> Result<Session<B>, OpenError> {
        let (place, engine) = self.shared.in_a_life(|life| {
            let place = self.place_in(life)?;
            let engine = life.engine(&place.open, access)?;
            Ok::<_, OpenError>((place, engine))
        })?;
        Ok(Session::new(self.clone(), place, engine, access))
    }

    pub(crate) fn shared(&self) -> &Shared<B> {
        &self.shared
    }

    pub(crate) fn place(&self) -> Result<Place<B>, OpenError> {
        self.shared.in_a_life(|life| self.place_in(life))
    }

    pub(crate) fn place_in(&self, life: &Arc<B>) -> Result<Place<B>, OpenError> {
        let open = self.open_in(life)?;
        let queues = life.queues(&open)?;
        Ok(Place { queues, open, life: Arc::clone(life) })
    }

    /// The table that was opened, perhaps in another life, as it is in this one.
    fn open_in(&self, life: &B) -> Result<Arc<B::Open>, OpenError> {
        let expected = &self.opened.info.definition;
        let open = match life.opened(&expected.name) {
            Some(open) => open,
            None => life.open(&expected.name).map_err(|error| self.gone(life, error))?,
        };
        let got = &B::info(&open).definition;
        if got == expected {
            return Ok(open);
        }
        Err(OpenError::OtherDefinition {
            peer: self.shared.peer.clone(),
            expected: Box::new(expected.clone()),
            got: Box::new(got.clone()),
        })
    }

    /// What it means that the table cannot be opened in this life.
    fn gone(&self, life: &B, error: CatalogueError) -> OpenError {
        match error {
            CatalogueError::Refused { kind, peer, source }
                if source.code == ErrorCode::UnknownTable && life.epoch() != self.opened.epoch =>
            {
                let (was, is) = (self.opened.epoch, life.epoch());
                OpenError::TableGone { kind, peer, table: self.name().to_owned(), was, is, source }
            }
            other => other.into(),
        }
    }
}

impl<C: Connection> Table<Life<C>> {
    /// Begins a bulk load of ascending keys into this table, which must be empty.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn bulk_load(&self) -> Result<BulkLoad<C>, OpenError> {
        Ok(BulkLoad::new(self.place()?))
    }
}

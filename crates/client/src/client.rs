//! A client: where its peers are, and the catalogue of tables.

use std::sync::Arc;
use std::time::Duration;

use farsight_base::Epoch;
use farsight_fabric::{Connection, FabricError};
use farsight_protocol::{ControlRequest, ServerStats, TableDefinition, TableInfo};

use crate::CatalogueError;
use crate::backend::Backend;
use crate::life::Life;
use crate::reconnect::Shared;
use crate::table::{Opened, Table};

/// Settings of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientOptions {
    /// How long calls wait for a server that has gone, counted from the moment at which the first of them
    /// noticed it; afterwards each call tries once to connect and fails at once. Default: 3 s. Zero: no call
    /// waits.
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
/// tables and sessions together. What is there then may be another life ([`Client::epoch`]): caches begin
/// empty, and tables are opened again by name.
pub struct Client<B: Backend> {
    shared: Arc<Shared<B>>,
}

impl<B: Backend> Clone for Client<B> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<B: Backend> Client<B> {
    /// The peers, as the user named them.
    #[must_use]
    pub fn peer(&self) -> &str {
        &self.shared.peer
    }

    /// The life to which the newest connection belongs, a pool's home's. It changes when the client connects
    /// again to peers that were started again.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.shared.current().epoch()
    }

    /// Makes a table, or finds the one of the same definition.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] for a bad name, a value size outside the format's limits, a table of that
    /// name with another definition, or a peer out of memory.
    pub fn create_table(&self, definition: TableDefinition) -> Result<Table<B>, CatalogueError> {
        self.table(move |life| life.create(&definition))
    }

    /// Opens the table of this name.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] if there is none.
    pub fn open_table(&self, name: &str) -> Result<Table<B>, CatalogueError> {
        self.table(|life| life.open(name))
    }

    /// What the peers say of the table of this name.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] if there is none.
    pub fn describe_table(&self, name: &str) -> Result<TableInfo, CatalogueError> {
        self.shared.in_a_life(|life| life.describe(name))
    }

    /// All tables.
    ///
    /// # Errors
    /// Failures of the fabric.
    pub fn tables(&self) -> Result<Vec<TableInfo>, CatalogueError> {
        self.shared.in_a_life(|life| life.list())
    }

    pub(crate) fn over(life: B, options: ClientOptions) -> Self {
        Self { shared: Arc::new(Shared::new(life, options)) }
    }

    pub(crate) fn shared(&self) -> &Shared<B> {
        &self.shared
    }

    pub(crate) fn table(
        &self,
        open: impl Fn(&B) -> Result<Arc<B::Open>, CatalogueError>,
    ) -> Result<Table<B>, CatalogueError> {
        let opened = self.shared.in_a_life(|life| {
            let open = open(life)?;
            Ok::<_, CatalogueError>(Opened { info: Arc::clone(B::info(&open)), epoch: life.epoch() })
        });
        Ok(Table::new(Arc::clone(&self.shared), opened?))
    }
}

impl<C: Connection> Client<Life<C>> {
    /// A client of the server at the other end of `connection`.
    ///
    /// # Errors
    /// As [`Connection::open_queue`].
    pub fn new(connection: C, options: ClientOptions) -> Result<Self, FabricError> {
        Ok(Self::over(Life::new(connection)?, options))
    }

    /// Looks at the newest connection, for what only its fabric offers.
    pub fn with_connection<T>(&self, look: impl FnOnce(&C) -> T) -> T {
        look(&self.shared.current().connection)
    }

    /// The server's statistics.
    ///
    /// # Errors
    /// Failures of the fabric.
    pub fn stats(&self) -> Result<ServerStats, CatalogueError> {
        self.shared.in_a_life(|life| life.control(&ControlRequest::Stats))
    }

    /// Sub-models that wait to be retrained, over all tables.
    ///
    /// # Errors
    /// Failures of the fabric.
    pub fn pending_training(&self) -> Result<u64, CatalogueError> {
        self.shared.in_a_life(|life| life.control(&ControlRequest::PendingTraining))
    }
}

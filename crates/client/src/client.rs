//! A client: where its server is, and the catalogue of tables.

use std::sync::Arc;
use std::time::Duration;

use farsight_base::Epoch;
use farsight_fabric::{Connection, FabricError};
use farsight_protocol::{ControlRequest, ServerStats, TableDefinition, TableInfo};
use serde::de::DeserializeOwned;

use crate::life::{Life, Opened};
use crate::reconnect::Shared;
use crate::{CatalogueError, Table};

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

/// A client of one server. Clones share the connection and the caches.
///
/// When the server is gone it connects again by itself, in the next call that needs it and for all clones,
/// tables and sessions together. What is there then is another life of the server ([`Client::epoch`]): caches
/// begin empty, and tables are opened again by name.
pub struct Client<C: Connection> {
    shared: Arc<Shared<Life<C>>>,
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
    pub fn new(connection: C, options: ClientOptions) -> Result<Self, FabricError> {
        let peer = connection.peer().to_owned();
        Ok(Self { shared: Arc::new(Shared::new(peer, Life::new(connection)?, options)) })
    }

    /// The server, as the user named it.
    #[must_use]
    pub fn peer(&self) -> &str {
        &self.shared.peer
    }

    /// Looks at the newest connection, for what only its fabric offers.
    pub fn with_connection<T>(&self, look: impl FnOnce(&C) -> T) -> T {
        look(&self.shared.current().connection)
    }

    /// The server's life to which the newest connection belongs. It changes when the client connects again to
    /// a server that was started again.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.shared.current().connection.epoch()
    }

    /// Makes a table, or finds the one of the same definition.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] for a bad name, a value size outside the format's limits, a table of that
    /// name with another definition, or a server out of memory.
    pub fn create_table(&self, definition: TableDefinition) -> Result<Table<C>, CatalogueError> {
        let request = ControlRequest::CreateTable(definition);
        self.table(|life| life.control(&request))
    }

    /// Opens the table of this name.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] if there is none.
    pub fn open_table(&self, name: &str) -> Result<Table<C>, CatalogueError> {
        let request = ControlRequest::OpenTable(name.to_owned());
        self.table(|life| life.control(&request))
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

    fn table(
        &self,
        ask: impl Fn(&Life<C>) -> Result<TableInfo, CatalogueError>,
    ) -> Result<Table<C>, CatalogueError> {
        let opened = self.shared.in_a_life(|life| {
            let open = life.adopt(ask(life)?)?;
            Ok::<_, CatalogueError>(Opened { info: Arc::clone(&open.info), epoch: life.connection.epoch() })
        });
        Ok(Table::new(Arc::clone(&self.shared), opened?))
    }

    /// Asks the server. Whatever is asked here can be repeated.
    fn control<T: DeserializeOwned>(&self, request: &ControlRequest) -> Result<T, CatalogueError> {
        self.shared.in_a_life(|life| life.control(request))
    }
}

//! A connected client, whatever the fabric.

use farsight_base::Epoch;
use farsight_client::{CatalogueError, ClientOptions};
use farsight_fabric_shm::{ConnectOptions, ShmConnection};
use farsight_layout::{FORMAT_VERSION, VALUE_BYTES_MAX, VALUE_BYTES_MIN};
use farsight_protocol::{ServerStats, TableDefinition, TableInfo};

use crate::table::ProviderTable;
use crate::{ConnectError, Key, ServerUrl, Table, TableError};

/// A client of one server. Cheap to clone and shared by threads; each thread opens a [`crate::Session`] of
/// its own.
///
/// When its server is gone, the next call connects again, for all clones, tables and sessions, and tables are
/// found by their names in the server's new life: see [Restarts](crate#restarts). A client belongs to one
/// process: calls in a forked child fail by name.
#[derive(Clone)]
pub struct Client {
    provider: ProviderClient,
}

/// The client of each fabric. Every call matches once and is monomorphic behind it.
#[derive(Clone)]
enum ProviderClient {
    Shm(farsight_client::Client<ShmConnection>),
}

/// Connects to the server at `url`, as in `shm:///run/farsight.sock`.
///
/// # Errors
/// [`ConnectError`]: a URL that is none, no server at its path, another user's, or one of another version.
pub fn connect(url: &str) -> Result<Client, ConnectError> {
    Client::connect(&url.parse()?)
}

impl Client {
    /// Connects to the server at `url`.
    ///
    /// # Errors
    /// [`ConnectError::Fabric`].
    pub fn connect(url: &ServerUrl) -> Result<Self, ConnectError> {
        Self::connect_with(url, ClientOptions::default())
    }

    /// Connects to the server at `url`, with other settings than the default ones.
    ///
    /// # Errors
    /// [`ConnectError::Fabric`].
    pub fn connect_with(url: &ServerUrl, options: ClientOptions) -> Result<Self, ConnectError> {
        let ServerUrl::Shm(socket) = url;
        let connection = ShmConnection::connect(socket, ConnectOptions { format_version: FORMAT_VERSION })?;
        let client = farsight_client::Client::new(connection, options)?;
        Ok(Self { provider: ProviderClient::Shm(client) })
    }

    /// Makes a table for keys of type `K` and values of `value_bytes` (8 to 256), or opens the one that is
    /// already defined so.
    ///
    /// # Errors
    /// [`TableError`]: a bad name, a size out of range, a table of that name with another definition.
    pub fn create_table<K: Key>(&self, name: &str, value_bytes: usize) -> Result<Table<K>, TableError> {
        if !(VALUE_BYTES_MIN..=VALUE_BYTES_MAX).contains(&value_bytes) {
            return Err(TableError::ValueSize {
                table: name.to_owned(),
                got_bytes: value_bytes,
                min_bytes: VALUE_BYTES_MIN,
                max_bytes: VALUE_BYTES_MAX,
            });
        }
        let definition =
            TableDefinition { name: name.to_owned(), key_kind: K::KIND, value_bytes: value_bytes as u16 };
        let ProviderClient::Shm(client) = &self.provider;
        Table::new(ProviderTable::Shm(client.create_table(definition)?))
    }

    /// Opens the table of this name.
    ///
    /// # Errors
    /// [`TableError::Catalogue`] if there is none, [`TableError::KeyKind`] if its keys are not `K`.
    pub fn table<K: Key>(&self, name: &str) -> Result<Table<K>, TableError> {
        let ProviderClient::Shm(client) = &self.provider;
        Table::new(ProviderTable::Shm(client.open_table(name)?))
    }

    /// What the server says of the table of this name: for programs that do not know its kind beforehand.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] if there is none.
    pub fn describe_table(&self, name: &str) -> Result<TableInfo, CatalogueError> {
        let ProviderClient::Shm(client) = &self.provider;
        client.describe_table(name)
    }

    /// All tables of the server.
    ///
    /// # Errors
    /// Failures of the fabric.
    pub fn tables(&self) -> Result<Vec<TableInfo>, CatalogueError> {
        let ProviderClient::Shm(client) = &self.provider;
        client.tables()
    }

    /// The server's statistics.
    ///
    /// # Errors
    /// Failures of the fabric.
    pub fn stats(&self) -> Result<ServerStats, CatalogueError> {
        let ProviderClient::Shm(client) = &self.provider;
        client.stats()
    }

    /// Sub-models that wait to be retrained, over all tables: zero when the model has caught up with the
    /// writes.
    ///
    /// # Errors
    /// Failures of the fabric.
    pub fn pending_training(&self) -> Result<u64, CatalogueError> {
        let ProviderClient::Shm(client) = &self.provider;
        client.pending_training()
    }

    /// Asks for huge pages under the tables that this process has opened, in its own mapping of them, so that
    /// READs miss the TLB less. Returns the bytes that lie on huge pages afterwards. Costs up to milliseconds
    /// a 2 MiB piece, once.
    #[must_use]
    pub fn collapse_to_huge_pages(&self) -> u64 {
        let ProviderClient::Shm(client) = &self.provider;
        client.with_connection(ShmConnection::collapse_to_huge_pages)
    }

    /// The life of the server that this client is connected to, or was last. It differs after the server was
    /// started again and the client has connected again.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        let ProviderClient::Shm(client) = &self.provider;
        client.epoch()
    }

    /// The server's address, as it was given.
    #[must_use]
    pub fn peer(&self) -> &str {
        let ProviderClient::Shm(client) = &self.provider;
        client.peer()
    }
}

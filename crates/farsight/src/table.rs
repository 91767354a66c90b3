//! A table with typed keys.

use std::marker::PhantomData;

use farsight_client::{Access, CacheStats, OpenError};
use farsight_fabric_shm::ShmConnection;
use farsight_protocol::TableInfo;

use crate::session::ProviderSession;
use crate::{AsyncError, AsyncTable, BulkLoad, Key, Session, TableError};

/// An open table whose keys are `K`. Cheap to clone and shared by threads. All sessions of the process on it
/// share one cache of the model.
pub struct Table<K> {
    provider: ProviderTable,
    key: PhantomData<fn(K) -> K>,
}

/// The table of each fabric.
#[derive(Clone)]
pub(crate) enum ProviderTable {
    Shm(farsight_client::Table<ShmConnection>),
}

/// How a session works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Who searches the table: the client by one-sided READs (the default), or the server by calls.
    pub access: Access,
}

impl Default for Options {
    fn default() -> Self {
        Self { access: Access::OneSided }
    }
}

impl<K> Clone for Table<K> {
    fn clone(&self) -> Self {
        Self { provider: self.provider.clone(), key: PhantomData }
    }
}

impl<K: Key> Table<K> {
    pub(crate) fn new(provider: ProviderTable) -> Result<Self, TableError> {
        let ProviderTable::Shm(table) = &provider;
        let got = table.info().definition.key_kind;
        if got != K::KIND {
            return Err(TableError::KeyKind { table: table.name().to_owned(), expected: K::KIND, got });
        }
        Ok(Self { provider, key: PhantomData })
    }

    /// The table's name.
    #[must_use]
    pub fn name(&self) -> &str {
        let ProviderTable::Shm(table) = &self.provider;
        table.name()
    }

    /// Bytes of each value.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        let ProviderTable::Shm(table) = &self.provider;
        table.value_bytes()
    }

    /// What the server said of the table when it was opened.
    #[must_use]
    pub fn info(&self) -> &TableInfo {
        let ProviderTable::Shm(table) = &self.provider;
        table.info()
    }

    /// What this process's cache of the table holds.
    #[must_use]
    pub fn cache_stats(&self) -> CacheStats {
        let ProviderTable::Shm(table) = &self.provider;
        table.cache_stats()
    }

    /// A session for one thread.
    ///
    /// # Errors
    /// [`OpenError`]: a server that cannot be reached, or that was started again without this table; no file
    /// descriptors left.
    pub fn session(&self, options: Options) -> Result<Session<K>, OpenError> {
        let ProviderTable::Shm(table) = &self.provider;
        Ok(Session::new(ProviderSession::Shm(table.session(options.access)?)))
    }

    /// The table for asynchronous programs: operations that are futures, executed by a thread that this
    /// starts.
    ///
    /// # Errors
    /// As [`Table::session`], and [`AsyncError::Thread`] if no thread can be started.
    pub fn asynchronous(&self, options: Options) -> Result<AsyncTable<K>, AsyncError> {
        let ProviderTable::Shm(table) = &self.provider;
        AsyncTable::new(self.name(), ProviderSession::Shm(table.session(options.access)?))
    }

    /// Begins a bulk load of ascending keys into this table, which must be empty.
    ///
    /// # Errors
    /// As [`Table::session`].
    pub fn bulk_load(&self) -> Result<BulkLoad<K>, OpenError> {
        let ProviderTable::Shm(table) = &self.provider;
        Ok(BulkLoad::new(table.bulk_load()?))
    }
}

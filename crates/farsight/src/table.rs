//! A table with typed keys.

use std::marker::PhantomData;

use farsight_base::report::report;
use farsight_client::{Access, CachePolicy, CacheStats, EngineKind, OpenError, ReadsByOthers, ValueCache};
use farsight_protocol::{TableInfo, ValueKind};

use crate::{AsyncError, AsyncTable, BulkLoad, Key, KeyType, Session, TableError};

/// An open table whose keys are `K`. Cheap to clone and shared by threads. All sessions of the process on it
/// share one cache of the model.
pub struct Table<K: ?Sized> {
    inner: farsight_client::Table,
    key: PhantomData<fn(&K)>,
}

/// The name of the threads that hear which kept values count no more, one a node.
const KEEPER_THREAD: &str = "farsight-keeper";

/// How a session works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Who searches the table: the client by one-sided READs (the default), or the server by calls. A ROLEX
    /// table is searched by the client alone, whatever this says.
    pub access: Access,
}

impl Default for Options {
    fn default() -> Self {
        Self { access: Access::OneSided }
    }
}

impl<K: ?Sized> Clone for Table<K> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), key: PhantomData }
    }
}

impl<K: KeyType + ?Sized> Table<K> {
    pub(crate) fn new(table: farsight_client::Table) -> Result<Self, TableError> {
        let table = Self { inner: table, key: PhantomData };
        let got = table.info().definition.key_kind;
        if got != K::KEY_KIND {
            return Err(TableError::KeyKind { table: table.name().to_owned(), expected: K::KEY_KIND, got });
        }
        Ok(table)
    }

    /// The table's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// What its values are.
    #[must_use]
    pub fn values(&self) -> ValueKind {
        self.inner.values()
    }

    /// Bytes of each value; of the longest, if they have any length.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        self.inner.value_bytes()
    }

    /// Its engine.
    #[must_use]
    pub fn engine(&self) -> &'static EngineKind {
        self.inner.engine()
    }

    /// What the server said of the table when it was opened.
    #[must_use]
    pub fn info(&self) -> &TableInfo {
        self.inner.info()
    }

    /// What this process's cache of the table holds.
    #[must_use]
    pub fn cache_stats(&self) -> CacheStats {
        self.inner.cache_stats()
    }

    /// Makes `bytes` what this process's cache of the table may take from now on. `u64::MAX` is as much as it
    /// needs. Sub-models that are used little are then driven out, and fetched again on demand. The top model
    /// stays, whatever it takes. A cache that has to shrink begins anew; its memory goes back once each
    /// session has done something.
    ///
    /// False if this engine's cache (ROLEX's) takes what it needs.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn set_cache_bytes(&self, bytes: u64) -> Result<bool, OpenError> {
        self.inner.set_cache_bytes(bytes)
    }

    /// Says what this process may keep of the table's values from now on. At first that is nothing. What is
    /// kept is coherent: a GET that it answers has no other answer than one that asks the peers. A write of a
    /// value that any process keeps waits for all who keep values of the table: a call or two, and ten
    /// milliseconds if one does not answer. This starts threads that answer, one a node. A table that was
    /// dropped, or whose name leads elsewhere, may be read for eight milliseconds more.
    ///
    /// False if nothing of this table is kept, whatever is said: values of FlexKV's tables alone are.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn set_value_cache(&self, cache: ValueCache) -> Result<bool, OpenError> {
        let are_kept = self.inner.set_value_cache(cache)?;
        for keeper in if are_kept { self.inner.keepers()? } else { Vec::new() } {
            let thread = std::thread::Builder::new().name(KEEPER_THREAD.to_owned());
            // Without it, writers wait until leases are over.
            if let Err(error) = thread.spawn(move || keeper.run(|| true)) {
                report(format_args!("starting the thread {KEEPER_THREAD:?}: {error}"));
            }
        }
        Ok(are_kept)
    }

    /// Says which entries full caches of addresses and values let go from now on. At first that is
    /// [`CachePolicy::Sieve`]. What they hold is forgotten if that changes. False if the engine's caches have
    /// no choice: FlexKV's have.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn set_cache_policy(&self, policy: CachePolicy) -> Result<bool, OpenError> {
        self.inner.set_cache_policy(policy)
    }

    /// Says what compute nodes that serve do for this process's GETs from now on. At first that is nothing:
    /// they write alone. Only FlexKV's tables are served.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn set_reads_by_others(&self, reads: ReadsByOthers) -> Result<(), OpenError> {
        self.inner.set_reads_by_others(reads)
    }

    /// A session for one thread.
    ///
    /// # Errors
    /// [`OpenError`]: a server that cannot be reached, or that was started again without this table; no file
    /// descriptors left.
    pub fn session(&self, options: Options) -> Result<Session<K>, OpenError> {
        self.inner.session(options.access).map(Session::new)
    }

    /// The table for asynchronous programs: operations that are futures, executed by a thread that this
    /// starts.
    ///
    /// # Errors
    /// As [`Table::session`], and [`AsyncError::Thread`] if no thread can be started.
    pub fn asynchronous(&self, options: Options) -> Result<AsyncTable<K>, AsyncError> {
        AsyncTable::new(self.name(), self.inner.session(options.access)?)
    }
}

impl<K: Key> Table<K> {
    /// Begins a bulk load of ascending keys into this table, which must be empty. Pairs that may end stay as
    /// long as the table says.
    ///
    /// # Errors
    /// As [`Table::session`].
    pub fn bulk_load(&self) -> Result<BulkLoad<K>, OpenError> {
        self.inner.bulk_load().map(BulkLoad::new)
    }
}

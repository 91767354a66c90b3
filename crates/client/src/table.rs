//! A table as a client knows it.

use std::sync::Arc;

use farsight_base::Epoch;
use farsight_index::{Access, CachePolicy, CacheStats, EngineKind, ReadsByOthers, ValueCache};
use farsight_protocol::{ErrorCode, ProxyPace, TableInfo, ValueKind};

use crate::attached::Working;
use crate::backend::{Backend, OpenTable};
use crate::fixed_session::FixedSession;
use crate::keeper::Keeper;
use crate::reconnect::Shared;
use crate::session::Session;
use crate::{BulkLoad, CatalogueError, OpenError};

/// An open table. Clones, and clients that opened the same table from clones of one client, share its cache.
///
/// It outlives an epoch of its peers: what is done with it afterwards finds the table by name in the next.
#[derive(Clone)]
pub struct Table {
    shared: Arc<Shared>,
    opened: Opened,
}

/// A table as it was when it was opened first.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) info: Arc<TableInfo>,
    pub(crate) kind: &'static EngineKind,
    pub(crate) epoch: Epoch,
}

impl Table {
    pub(crate) fn new(shared: Arc<Shared>, opened: Opened) -> Self {
        Self { shared, opened }
    }

    /// What the peers said of the table when it was opened. Its definition holds for as long as the table is
    /// used; number, region and capacity were those of that epoch.
    #[must_use]
    pub fn info(&self) -> &TableInfo {
        &self.opened.info
    }

    /// Its engine.
    #[must_use]
    pub fn engine(&self) -> &'static EngineKind {
        self.opened.kind
    }

    /// The table's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.opened.info.definition.name
    }

    /// What its values are.
    #[must_use]
    #[inline]
    pub fn values(&self) -> ValueKind {
        self.opened.info.definition.values
    }

    /// Bytes of each value; of the longest, if they have any length.
    #[must_use]
    #[inline]
    pub fn value_bytes(&self) -> usize {
        self.values().bytes_max()
    }

    /// What the shared cache of this table holds; nothing after a peer was lost, until the table is used.
    #[must_use]
    pub fn cache_stats(&self) -> CacheStats {
        let open = self.shared.current().opened(self.name());
        open.map(|open| open.cache_stats()).unwrap_or_default()
    }

    /// Makes `bytes` what the shared cache of this table may take from now on, also in later epochs of the
    /// peers. `u64::MAX` is as much as it needs. Over several nodes each has its part. Sub-models that are
    /// used little are then driven out, and fetched again on demand. The top model stays, whatever it takes.
    /// A cache that has to shrink begins anew; its memory goes back once each session has done something.
    ///
    /// False if this engine's cache (ROLEX's) takes what it needs.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn set_cache_bytes(&self, bytes: u64) -> Result<bool, OpenError> {
        self.shared.keep_cache_bytes(self.name(), bytes);
        self.shared.in_one_epoch(|backend| Ok::<_, OpenError>(self.open_in(backend)?.set_cache_bytes(bytes)?))
    }

    /// Says what this process may keep of the table's values from now on, also in later epochs of the peers.
    /// At first that is nothing. What is kept is coherent: a GET that it answers has no other answer than one
    /// that asks the peers. A write of a value that any process keeps takes some ten milliseconds more,
    /// unless those who keep values answer earlier ([`Table::keepers`]). A table that was dropped, or whose
    /// name leads elsewhere, may be read for eight milliseconds more.
    ///
    /// False if nothing of this table is kept, whatever is said: values of FlexKV's tables alone are.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn set_value_cache(&self, cache: ValueCache) -> Result<bool, OpenError> {
        self.shared.keep_value_cache(self.name(), cache);
        self.shared.in_one_epoch(|backend| Ok::<_, OpenError>(self.open_in(backend)?.set_value_cache(cache)))
    }

    /// Says which entries full caches of addresses and values let go from now on. At first that is
    /// [`CachePolicy::Sieve`]. What they hold is forgotten if that changes. False if the engine's caches have
    /// no choice: FlexKV's have.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn set_cache_policy(&self, policy: CachePolicy) -> Result<bool, OpenError> {
        self.shared.keep_cache_policy(self.name(), policy);
        self.shared
            .in_one_epoch(|backend| Ok::<_, OpenError>(self.open_in(backend)?.set_cache_policy(policy)))
    }

    /// Says what compute nodes that serve do for this process's GETs from now on. At first that is nothing:
    /// they write alone. Only FlexKV's tables are served.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn set_reads_by_others(&self, reads: ReadsByOthers) -> Result<(), OpenError> {
        self.shared.keep_reads_by_others(self.name(), reads);
        self.shared.in_one_epoch(|backend| {
            self.open_in(backend)?.set_reads_by_others(reads);
            Ok::<_, OpenError>(())
        })
    }

    /// Says how fast this process hears which compute nodes write for it, until it connects anew. The nodes
    /// of its pool need the same. At first it is the usual pace.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn set_proxy_pace(&self, pace: ProxyPace) -> Result<(), OpenError> {
        self.shared.in_one_epoch(|backend| {
            self.open_in(backend)?.set_proxy_pace(pace);
            Ok::<_, OpenError>(())
        })
    }

    /// What hears, of each node, which of the values that this process keeps count no more. Each is to be run
    /// by a thread of its own, for as long as the table is used. Without them writers wait for values that
    /// this process keeps until its leases are over. Empty if they were handed out before.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn keepers(&self) -> Result<Vec<Keeper>, OpenError> {
        let clock = self.shared.in_one_epoch(|backend| Ok::<_, OpenError>(self.open_in(backend)?.clock()))?;
        if !self.shared.begin_keeping(self.name()) {
            return Ok(Vec::new());
        }
        let nodes = self.info().place.epochs.len();
        let keeper = |node| Keeper::new(Arc::downgrade(&self.shared), self.name(), node, Arc::clone(&clock));
        Ok((0..nodes).map(keeper).collect())
    }

    /// A session on this table for one thread, with queue pairs of its own.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn session(&self, access: Access) -> Result<Session, OpenError> {
        let working = self.shared.in_one_epoch(|backend| self.attach(backend, access, 0))?;
        Ok(Session::new(self.clone(), access, working))
    }

    /// A session on this table that neither follows its name nor has others execute its writes: for a
    /// process that executes them for others.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn fixed_session(&self) -> Result<FixedSession, OpenError> {
        self.shared.in_one_epoch(|backend| {
            let open = self.open_in(backend)?;
            let (info, engine) = (Arc::clone(open.info()), open.attach_fixed()?);
            Ok(FixedSession::new(&info, engine, Arc::clone(backend)))
        })
    }

    /// Begins a bulk load of ascending keys into this table, which must be empty; of ROLEX, never have held a
    /// pair.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn bulk_load(&self) -> Result<BulkLoad, OpenError> {
        self.shared.in_one_epoch(|backend| Ok::<_, OpenError>(self.open_in(backend)?.bulk_load()?))
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// What a session works with in this epoch that has heard of `name_changes`.
    pub(crate) fn attach(
        &self,
        backend: &Arc<dyn Backend>,
        access: Access,
        name_changes: u64,
    ) -> Result<Working, OpenError> {
        // Heard first: what changes afterwards is heard again.
        let name_changes = backend.heard_name_changes()?.max(name_changes);
        let open = self.open_in(backend)?;
        let (info, engine) = (Arc::clone(open.info()), open.attach(access)?);
        Ok(Working { info, name_changes, engine, backend: Arc::clone(backend) })
    }

    /// The table to which the name leads in this epoch.
    pub(crate) fn open_in(&self, backend: &Arc<dyn Backend>) -> Result<Arc<dyn OpenTable>, OpenError> {
        let expected = &self.opened.info.definition;
        let open = Arc::clone(backend).open(&expected.name).map_err(|error| self.gone(&**backend, error))?;
        let got = &open.info().definition;
        if got.is_alike(expected) {
            if let Some(bytes) = self.shared.cache_bytes(self.name()) {
                open.set_cache_bytes(bytes)?;
            }
            if let Some(cache) = self.shared.value_cache(self.name()) {
                open.set_value_cache(cache);
            }
            if let Some(policy) = self.shared.cache_policy(self.name()) {
                open.set_cache_policy(policy);
            }
            if let Some(reads) = self.shared.reads_by_others(self.name()) {
                open.set_reads_by_others(reads);
            }
            return Ok(open);
        }
        Err(OpenError::OtherDefinition {
            peer: self.shared.peer.clone(),
            expected: Box::new(expected.clone()),
            got: Box::new(got.clone()),
        })
    }

    /// What it means that the table cannot be opened in this epoch.
    fn gone(&self, backend: &dyn Backend, error: CatalogueError) -> OpenError {
        match error {
            CatalogueError::Refused { peer, source } if source.code == ErrorCode::UnknownTable => {
                let (was, is) = (self.opened.epoch, backend.epoch());
                OpenError::TableGone { peer, table: self.name().to_owned(), was, is, source }
            }
            other => other.into(),
        }
    }
}

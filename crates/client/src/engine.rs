//! The contract between a client and the engines of its tables.
//!
//! Invariant: nothing else in this crate asks which engine a table has. The client connects, names tables and
//! checks what nodes say of them. What a process's sessions share of a table, and how one works with it, is
//! its engine's ([`Sharing`]). An engine of this crate has a file here.

pub(crate) mod flexkv;
pub(crate) mod rolex;
pub(crate) mod unordered;
mod x_store;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::Epoch;
use farsight_fabric::{Connection, FabricError};
use farsight_index::{
    Access, CachePolicy, CacheStats, Engine, EngineKind, Ordered, ReadsByOthers, Registered, Registry,
    UnknownEngine, ValueCache,
};
use farsight_protocol::{KeyKind, ProxyPace, TableInfo, TableLayout};

use crate::CatalogueError;
use crate::attached::{Attached, Operations};
use crate::backend::{Backend, Training};
use crate::bulk_load::{CallsLoad, Load};
use crate::expiry::LoadDeadlines;
use crate::nodes::{Known, Nodes};
use crate::writes_load::WritesLoad;
use unordered::Unordered;

/// An engine with whose tables clients can work.
pub trait ClientEngine: Registered {
    /// What this process's sessions share of a table of this layout, at first, whose parts are described so.
    ///
    /// # Errors
    /// [`CatalogueError`] for a table with which this client cannot work.
    fn sharing<C: Connection>(
        layout: &TableLayout,
        parts: &[TableInfo],
    ) -> Result<Arc<dyn Sharing<C>>, CatalogueError>;
}

/// Engines with whose tables clients can work.
pub trait ClientEngines: Registry {
    /// The engine of this name; `None` if there is none.
    fn find<C: Connection>(name: &str) -> Option<FoundEngine<C>>;
}

type Share<C> = fn(&TableLayout, &[TableInfo]) -> Result<Arc<dyn Sharing<C>>, CatalogueError>;

/// An engine of a list, and how a table of it is shared.
pub struct FoundEngine<C: Connection> {
    /// The engine.
    pub(crate) kind: &'static EngineKind,
    pub(crate) share: Share<C>,
}

impl ClientEngines for () {
    fn find<C: Connection>(_: &str) -> Option<FoundEngine<C>> {
        None
    }
}

impl<E: ClientEngine, Rest: ClientEngines> ClientEngines for (E, Rest) {
    fn find<C: Connection>(name: &str) -> Option<FoundEngine<C>> {
        if E::KIND.name == name {
            return Some(FoundEngine { kind: E::KIND, share: E::sharing::<C> });
        }
        Rest::find(name)
    }
}

/// What a client looks engines up by.
pub(crate) struct Lookup<C: Connection> {
    find: fn(&str) -> Option<FoundEngine<C>>,
    kinds: fn() -> Vec<&'static EngineKind>,
    /// The usual engine over so many nodes, of tables with such keys.
    pub(crate) usual: fn(usize, KeyKind) -> Option<&'static EngineKind>,
    /// What an engine is called over so many nodes.
    pub(crate) over: fn(&'static EngineKind, usize) -> &'static EngineKind,
}

impl<C: Connection> Clone for Lookup<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C: Connection> Copy for Lookup<C> {}

impl<C: Connection> Lookup<C> {
    /// The engines of this list.
    pub(crate) fn of<E: ClientEngines>() -> Self {
        Self { find: E::find::<C>, kinds: E::kinds, usual: E::usual, over: E::over }
    }

    /// The engine of this name.
    pub(crate) fn find(&self, name: &str) -> Result<FoundEngine<C>, UnknownEngine> {
        (self.find)(name).ok_or_else(|| UnknownEngine { got: name.to_owned(), known: (self.kinds)() })
    }
}

/// What the sessions of this process share of a table, and how they work with it.
pub trait Sharing<C: Connection>: Any + Send + Sync {
    /// What the cache holds.
    fn cache_stats(&self) -> CacheStats;

    /// Whether it serves other connections to the same epochs of the nodes: it only says where to look first,
    /// and has nothing of a connection.
    fn outlives_connections(&self) -> bool {
        false
    }

    /// Makes `bytes` what the cache may take. False if this engine's cache takes what it needs, whatever is
    /// said.
    ///
    /// # Errors
    /// If there is no memory.
    fn set_cache_bytes(&self, _bytes: u64, _table: &TableInfo) -> Result<bool, CatalogueError> {
        Ok(false)
    }

    /// Says what may be kept of the table's values. False if this engine keeps none of such a table.
    fn set_value_cache(&self, _cache: ValueCache) -> bool {
        false
    }

    /// Says which entries full caches let go. False if they have no choice.
    fn set_cache_policy(&self, _policy: CachePolicy) -> bool {
        false
    }

    /// Says what other compute nodes do for this one's GETs.
    fn set_reads_by_others(&self, _reads: ReadsByOthers) {}

    /// Says how fast it is heard which compute nodes write for this one.
    fn set_proxy_pace(&self, _pace: ProxyPace) {}

    /// What one node tells who keeps values; `None` if there is no such node, or nothing is kept of such a
    /// table.
    ///
    /// # Errors
    /// As [`OpenedTable::attach`].
    fn recalls(
        &self,
        _table: &OpenedTable<'_, C>,
        _node: usize,
    ) -> Result<Option<Box<dyn AwaitRecalls>>, CatalogueError> {
        Ok(None)
    }

    /// Queue pairs and an engine for one session.
    ///
    /// # Errors
    /// As [`OpenedTable::attach`].
    fn attach(&self, table: &OpenedTable<'_, C>, access: Access) -> Result<Attachment, CatalogueError>;

    /// The same for a session that has nobody else execute its operations.
    ///
    /// # Errors
    /// As [`OpenedTable::attach`].
    fn attach_fixed(&self, table: &OpenedTable<'_, C>) -> Result<Attachment, CatalogueError> {
        self.attach(table, Access::OneSided)
    }

    /// Begins a bulk load.
    ///
    /// # Errors
    /// As [`OpenedTable::attach`].
    fn bulk_load(&self, table: &OpenedTable<'_, C>) -> Result<Box<dyn Load>, CatalogueError>;

    /// What trains the table from here; `None` for one that its nodes train.
    ///
    /// # Errors
    /// As [`OpenedTable::attach`].
    fn training(&self, _table: &OpenedTable<'_, C>) -> Result<Option<Box<dyn Training>>, CatalogueError> {
        Ok(None)
    }
}

/// What a node tells who keeps values: which of them count no more.
pub trait AwaitRecalls: Send {
    /// Waits for that for so long, and lets go of them. False: there was nothing.
    ///
    /// # Errors
    /// [`CatalogueError`]; then nothing more is heard this way.
    fn attend(&mut self, within: Duration) -> Result<bool, CatalogueError>;
}

/// A table in one epoch of each of its nodes, to be worked with.
pub struct OpenedTable<'a, C: Connection> {
    pub(crate) nodes: &'a Arc<Nodes<C>>,
    pub(crate) known: &'a Arc<Known<C>>,
}

/// A session's engine with its queue pairs.
pub struct Attachment(pub(crate) Box<dyn Operations>);

impl<C: Connection> OpenedTable<'_, C> {
    /// The table as its parts make it up.
    #[must_use]
    pub fn info(&self) -> &Arc<TableInfo> {
        &self.known.info
    }

    /// What each node says of its part, the first node's first.
    #[must_use]
    pub fn parts(&self) -> &[TableInfo] {
        &self.known.infos
    }

    /// The epoch to which the table belongs.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.nodes.epoch()
    }

    /// A session's `engine`, over queue pairs of its own, one a node, to which the table's regions are
    /// attached.
    ///
    /// # Errors
    /// As [`Connection::open_queue`], and as `attach` of a queue pair.
    pub fn attach<E: Ordered<C::Queue> + 'static>(&self, engine: E) -> Result<Attachment, CatalogueError> {
        let backend = Arc::clone(self.nodes);
        Ok(Attachment(Box::new(Attached { queues: self.queues()?, engine, backend })))
    }

    /// The same of an engine that keeps no order: its scans are refused.
    ///
    /// # Errors
    /// As [`OpenedTable::attach`].
    pub fn attach_unordered<E: Engine<C::Queue> + 'static>(
        &self,
        engine: E,
    ) -> Result<Attachment, CatalogueError> {
        self.attach(Unordered { engine, kind: self.known.kind })
    }

    /// A bulk load by calls, each pair to the node in whose range it is.
    ///
    /// # Errors
    /// As [`OpenedTable::attach`].
    pub fn load_by_calls(&self, boundaries: Arc<[u64]>) -> Result<Box<dyn Load>, CatalogueError> {
        let backend = Arc::clone(self.nodes);
        Ok(Box::new(CallsLoad::new(self.parts(), self.deadlines()?, boundaries, self.queues()?, backend)))
    }

    /// A load by writes of an engine that keeps no order, for tables that take no other. Pairs show as they
    /// are written.
    ///
    /// # Errors
    /// As [`OpenedTable::attach`].
    pub fn load_unordered<E: Engine<C::Queue> + 'static>(
        &self,
        engine: E,
    ) -> Result<Box<dyn Load>, CatalogueError> {
        let Attachment(operations) = self.attach_unordered(engine)?;
        Ok(Box::new(WritesLoad::new(self.info(), self.deadlines()?, operations)))
    }

    /// When pairs of a load end, if they have deadlines.
    fn deadlines(&self) -> Result<Option<LoadDeadlines>, CatalogueError> {
        let expiry = self.info().definition.values.expiry();
        expiry.map(|expiry| Ok(LoadDeadlines { expiry, time: self.nodes.time()? })).transpose()
    }

    fn queues(&self) -> Result<Vec<C::Queue>, FabricError> {
        self.nodes.queues(self.known)
    }
}

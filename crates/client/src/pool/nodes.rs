//! The memory nodes of a pool, in one life of each.
//!
//! Invariant: everything here belongs to these lives. Whoever finds one of them over begins with a new set of
//! connections, under another compute node's number: so a fence that is meant for the old set never meets the
//! new one.
//!
//! Protocol: the lives are asked for once, and compared with what each node knows of its pool. A node that
//! stands elsewhere in its own pool's list, or a pool one of whose nodes has another life now, is refused
//! before anything is read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

#[cfg(injected)]
use farsight_base::sync::injected::{Bug, is_injected};
use farsight_base::{Epoch, LINE_BYTES, RegionId};
use farsight_fabric::{Connection, FabricError, QueuePair};
use farsight_index_rolex::{ComputeNodeLocks, MetaRegion, PoolTable, RolexCache, RolexSession};
use farsight_index_xstore::client::XCache;
use farsight_layout::pool::BlockGeometry;
use farsight_layout::{FORMAT_VERSION, Geometry};
use farsight_protocol::{
    ComputeNode, ControlRequest, ErrorCode, NodeKind, PoolDefinition, PoolHello, PoolPlace, PoolRequest,
    PoolTableInfo, Request, TableDefinition, TableEngine, TableInfo,
};
use serde::de::DeserializeOwned;

use super::poisoned::Poisoned;
use super::{PoolError, PoolLinks};
use crate::CatalogueError;
use crate::ask::Asker;

/// Connections to all nodes.
pub(crate) struct Nodes<C: Connection> {
    all: Vec<Node<C>>,
    epochs: OnceLock<Vec<u64>>,
    /// The lock values of this process, once it has asked for its number.
    locks: OnceLock<ComputeNodeLocks>,
    /// By name.
    tables: Mutex<HashMap<String, Arc<Known>>>,
    /// Whether anything may begin here any more.
    poisoned: Poisoned,
}

struct Node<C: Connection> {
    connection: C,
    asker: Asker<C>,
}

/// A table in these lives: what each node says of its part.
pub(crate) struct Known {
    /// Each node's part, home first.
    pub(crate) infos: Vec<PoolTableInfo>,
    /// The whole.
    pub(crate) info: Arc<TableInfo>,
    pub(crate) caches: Caches,
}

/// What this process's sessions share of a table, by its engine.
pub(crate) enum Caches {
    /// ROLEX: one cache of all nodes' leaves.
    Rolex(Arc<RolexCache>),
    /// XStore-D: one a node, and where their ranges begin.
    XStoreD(Vec<Arc<XCache>>, Arc<[u64]>),
}

impl Known {
    /// The cache of a ROLEX table.
    pub(crate) fn rolex_cache(&self) -> Result<&Arc<RolexCache>, PoolError> {
        match &self.caches {
            Caches::Rolex(cache) => Ok(cache),
            Caches::XStoreD(..) => Err(PoolError::NotRolex { table: self.info.definition.name.clone() }),
        }
    }
}

impl<C: Connection> Nodes<C> {
    pub(crate) fn new(connections: Vec<C>) -> Result<Self, FabricError> {
        let node =
            |connection: C| Ok(Node { asker: Asker::new(&connection, NodeKind::MemoryNode)?, connection });
        let all = connections.into_iter().map(node).collect::<Result<_, FabricError>>()?;
        let (epochs, locks) = (OnceLock::new(), OnceLock::new());
        Ok(Self { all, epochs, locks, tables: Mutex::default(), poisoned: Poisoned::default() })
    }

    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn connection(&self, node: usize) -> &C {
        &self.all[node].connection
    }

    pub(crate) fn peer(&self, node: usize) -> &str {
        self.connection(node).peer()
    }

    /// Whether this compute node is poisoned.
    pub(super) fn poisoned(&self) -> &Poisoned {
        &self.poisoned
    }

    /// Fails if this compute node is poisoned, or has to stop because its lock values run out.
    pub(super) fn standing(&self) -> Result<(), FabricError> {
        let peer = Nodes::peer(self, 0);
        self.poisoned.check(peer)?;
        if !self.locks.get().is_some_and(ComputeNodeLocks::are_running_out) {
            return Ok(());
        }
        let reason =
            "the lock values of this compute node run out: it goes on under another number".to_owned();
        Err(FabricError::Disconnected { peer: peer.to_owned(), reason })
    }

    /// Asks one node and waits for its answer.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        node: usize,
        request: &PoolRequest,
    ) -> Result<T, CatalogueError> {
        let Node { connection, asker } = &self.all[node];
        let answer = asker.ask(connection, |frame| Request::pool(frame, request));
        answer.map_err(|error| self.why_refused(node, error))
    }

    /// Why a node refused a request: perhaps it is none.
    #[cold]
    fn why_refused(&self, node: usize, error: CatalogueError) -> CatalogueError {
        let CatalogueError::Refused { source, .. } = &error else { return error };
        if source.code != ErrorCode::BadRequest {
            return error;
        }
        match self.control(node, &ControlRequest::Identify) {
            Ok(NodeKind::Server) => PoolError::NoPool { peer: self.peer(node).to_owned() }.into(),
            _ => error,
        }
    }

    /// Asks one node what servers are asked, too.
    pub(crate) fn control<T: DeserializeOwned>(
        &self,
        node: usize,
        request: &ControlRequest,
    ) -> Result<T, CatalogueError> {
        let Node { connection, asker } = &self.all[node];
        asker.ask(connection, |frame| Request::control(frame, request))
    }

    /// The nodes' lives, in their order.
    pub(crate) fn epochs(&self) -> Result<&[u64], CatalogueError> {
        if let Some(epochs) = self.epochs.get() {
            return Ok(epochs);
        }
        let hello = |node| self.ask::<PoolHello>(node, &PoolRequest::Hello);
        let hellos = (0..self.count()).map(hello).collect::<Result<Vec<_>, _>>()?;
        let epochs: Vec<u64> = hellos.iter().map(|hello| hello.epoch).collect();
        for (node, epoch) in epochs.iter().enumerate() {
            if let Some(twin) = epochs[..node].iter().position(|other| other == epoch) {
                let (first, second) = (self.peer(twin).to_owned(), self.peer(node).to_owned());
                return Err(PoolError::SameNode { first, second }.into());
            }
        }
        for (node, hello) in hellos.iter().enumerate() {
            if let Some(place) = &hello.place {
                self.compare(node, place, &epochs)?;
            }
        }
        Ok(self.epochs.get_or_init(|| epochs))
    }

    /// Refuses a list of lives other than that of the pool to which a node belongs.
    fn compare(&self, node: usize, place: &PoolPlace, epochs: &[u64]) -> Result<(), CatalogueError> {
        if usize::from(place.index) == node && place.epochs == epochs {
            return Ok(());
        }
        #[cfg(injected)]
        if is_injected(Bug::LivesNotCompared) {
            return Ok(());
        }
        let is_known = |epoch: &u64| place.epochs.contains(epoch);
        let strangers: Vec<usize> = (0..epochs.len()).filter(|other| !is_known(&epochs[*other])).collect();
        if let (&[other], true) = (&strangers[..], place.epochs.len() == epochs.len()) {
            let peer = self.peer(other).to_owned();
            let (was, is) = (Epoch(place.epochs[other]), Epoch(epochs[other]));
            return Err(PoolError::NodeRestarted { peer, was, is }.into());
        }
        let other = PoolError::OtherList {
            peer: self.peer(node).to_owned(),
            index: place.index.into(),
            count: place.epochs.len(),
            got_index: node,
            got_count: epochs.len(),
        };
        Err(other.into())
    }

    /// The lock values of this compute node, which all nodes know then.
    pub(crate) fn locks(&self) -> Result<ComputeNodeLocks, CatalogueError> {
        let home = self.epochs()?[0];
        if let Some(locks) = self.locks.get() {
            return Ok(locks.clone());
        }
        // No lock is held while an answer is awaited: of several that ask, all are told the same number.
        let compute_node: ComputeNode = self.ask(0, &PoolRequest::Register)?;
        for node in 1..self.count() {
            self.ask::<()>(node, &PoolRequest::Announce { home, compute_node })?;
        }
        Ok(self.locks.get_or_init(|| ComputeNodeLocks::new(compute_node.0)).clone())
    }

    /// Makes a table on all nodes, or finds the one of the same definition.
    pub(crate) fn create_table(
        &self,
        table: &TableDefinition,
        engine: TableEngine,
    ) -> Result<Arc<Known>, CatalogueError> {
        let value_bytes = usize::from(table.value_bytes);
        let lines = match engine {
            TableEngine::Rolex => BlockGeometry::new(value_bytes).map(|geometry| geometry.lines()),
            TableEngine::XStoreD { .. } => Geometry::new(value_bytes).map(|geometry| geometry.leaf_lines()),
        };
        let lines =
            lines.map_err(|source| CatalogueError::ValueSize { table: table.name.clone(), source })?;
        let (table, block_lines, format_version) = (table.clone(), lines as u16, FORMAT_VERSION);
        let definition = PoolDefinition { table, engine, block_lines, format_version };
        let home = self.part(0, &definition, None)?;
        self.adopt(home)
    }

    /// The table of this name, if it was opened in these lives.
    pub(crate) fn known_table(&self, name: &str) -> Option<Arc<Known>> {
        lock(&self.tables).get(name).cloned()
    }

    /// Opens the table of this name, and completes it where whoever made it did not.
    pub(crate) fn open_table(&self, name: &str) -> Result<Arc<Known>, CatalogueError> {
        self.epochs()?;
        self.adopt(self.ask(0, &PoolRequest::OpenTable(name.to_owned()))?)
    }

    /// All tables, as home knows them.
    pub(crate) fn table_infos(&self) -> Result<Vec<TableInfo>, CatalogueError> {
        self.epochs()?;
        let infos: Vec<PoolTableInfo> = self.ask(0, &PoolRequest::ListTables)?;
        Ok(infos.iter().map(|info| whole(std::slice::from_ref(info))).collect())
    }

    /// Queue pairs for one session, one a node.
    pub(crate) fn queues(&self, open: &Known) -> Result<Vec<C::Queue>, FabricError> {
        let queue = |(node, info): (usize, &PoolTableInfo)| {
            let mut queue = self.connection(node).open_queue()?;
            for (region, _) in regions(info, node) {
                queue.attach(region)?;
            }
            Ok(queue)
        };
        open.infos.iter().enumerate().map(queue).collect()
    }

    /// What it takes to work on a table below the engine.
    pub(crate) fn pool_links(&self, name: &str) -> Result<PoolLinks<C::Queue>, CatalogueError> {
        let open = self.open_table(name)?;
        let cache = Arc::clone(open.rolex_cache()?);
        let queues = self.queues(&open)?;
        let (home, locks) = (Epoch(self.epochs()?[0]), self.locks()?);
        Ok(PoolLinks { queues, infos: open.infos.clone(), cache, home, locks })
    }

    fn part(
        &self,
        node: usize,
        definition: &PoolDefinition,
        home: Option<&PoolTableInfo>,
    ) -> Result<PoolTableInfo, CatalogueError> {
        let place = PoolPlace { epochs: self.epochs()?.to_vec(), index: node as u8 };
        let id = home.map(|info| info.id);
        let request = PoolRequest::CreateTable { definition: definition.clone(), place, id };
        let info: PoolTableInfo = self.ask(node, &request)?;
        self.check_part(node, &info, definition, home)?;
        Ok(info)
    }

    fn adopt(&self, home: PoolTableInfo) -> Result<Arc<Known>, CatalogueError> {
        let definition = home.definition.clone();
        if !definition.engine.is_sound(self.count()) {
            let (peer, table) = (self.peer(0).to_owned(), definition.table.name);
            return Err(PoolError::Unsound { peer, table }.into());
        }
        self.check_part(0, &home, &definition, None)?;
        let mut infos = vec![home];
        for node in 1..self.count() {
            infos.push(self.part(node, &definition, Some(&infos[0]))?);
        }
        let caches = Self::caches(&definition, &infos)?;
        let mut tables = lock(&self.tables);
        let open = tables.entry(definition.table.name).or_insert_with(|| {
            let info = Arc::new(whole(&infos));
            Arc::new(Known { infos, info, caches })
        });
        Ok(Arc::clone(open))
    }

    /// Empty caches of a table whose parts these are.
    fn caches(definition: &PoolDefinition, infos: &[PoolTableInfo]) -> Result<Caches, CatalogueError> {
        let name = || definition.table.name.clone();
        match &definition.engine {
            TableEngine::Rolex => {
                if !RolexSession::is_served_by(&C::Queue::GUARANTEES) {
                    return Err(PoolError::Fabric { name: C::Queue::GUARANTEES.name }.into());
                }
                let geometry = BlockGeometry::new(usize::from(definition.table.value_bytes))
                    .map_err(|source| CatalogueError::ValueSize { table: name(), source })?;
                let leaves: Vec<_> = infos.iter().map(|info| regions(info, 1)[0]).collect();
                let meta = MetaRegion { region: infos[0].meta(), lines: infos[0].meta_lines };
                Ok(Caches::Rolex(RolexCache::new(PoolTable::new(geometry, &leaves), meta)))
            }
            TableEngine::XStoreD { boundaries } => {
                let cache = |info: &PoolTableInfo| XCache::new(&info.part(), regions(info, 1)[0].1);
                let caches = infos.iter().map(cache).collect::<Result<_, _>>();
                let caches = caches
                    .map_err(|source| CatalogueError::Engine { table: name(), source: source.into() })?;
                Ok(Caches::XStoreD(caches, boundaries.as_slice().into()))
            }
        }
    }

    /// Refuses what a node says of a table if it cannot be.
    fn check_part(
        &self,
        node: usize,
        info: &PoolTableInfo,
        definition: &PoolDefinition,
        home: Option<&PoolTableInfo>,
    ) -> Result<(), CatalogueError> {
        let Node { connection, asker } = &self.all[node];
        // Where ranges begin, home says.
        let is_as_asked = match home {
            None => info.definition.is_wanted(definition),
            Some(home) => info.definition == *definition && home.id == info.id,
        };
        let mut are_sound =
            is_as_asked && usize::from(info.place.index) == node && info.place.epochs == self.epochs()?;
        for (region, bytes) in regions(info, node) {
            are_sound &= asker.with_queue(connection, |queue| queue.attach(region))? >= bytes;
        }
        if are_sound {
            return Ok(());
        }
        let (peer, table) = (self.peer(node).to_owned(), definition.table.name.clone());
        Err(PoolError::Unsound { peer, table }.into())
    }
}

/// The regions of a node's part, and the bytes that each has at least: leaves, and at a ROLEX table's home
/// directory and models.
fn regions(info: &PoolTableInfo, node: usize) -> Vec<(RegionId, u64)> {
    let mut regions = vec![(info.leaves(), u64::from(info.capacity_leaves) * info.block_bytes())];
    if node == 0 && info.definition.engine == TableEngine::Rolex {
        regions.push((info.meta(), u64::from(info.meta_lines) * LINE_BYTES as u64));
    }
    regions
}

/// A table as its parts make it up.
fn whole(infos: &[PoolTableInfo]) -> TableInfo {
    TableInfo {
        id: infos[0].id,
        definition: infos[0].definition.table.clone(),
        format_version: infos[0].definition.format_version,
        leaf_region: infos[0].leaf_region,
        capacity_leaves: infos.iter().fold(0, |sum: u32, info| sum.saturating_add(info.capacity_leaves)),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is ever half done under these.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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
use std::time::Duration;

use farsight_base::Epoch;
use farsight_fabric::{Connection, FabricError, QueuePair};
use farsight_protocol::{
    ComputeNode, PoolDefinition, PoolHello, PoolPlace, PoolRequest, PoolTableInfo, Request,
};
use serde::de::DeserializeOwned;

use super::{PoolError, PoolLinks};
use crate::CatalogueError;
use crate::ask::Asker;
use crate::reconnect::Alive;

/// Connections to all nodes.
pub(crate) struct Nodes<C: Connection> {
    all: Vec<Node<C>>,
    epochs: OnceLock<Vec<u64>>,
    /// This process, once it has asked for its number.
    compute_node: Mutex<Option<ComputeNode>>,
    /// By name.
    tables: Mutex<HashMap<String, Arc<OpenTable>>>,
}

struct Node<C: Connection> {
    connection: C,
    asker: Asker<C>,
}

/// A table in these lives: what each node says of its part.
pub(crate) struct OpenTable {
    pub(crate) infos: Vec<PoolTableInfo>,
}

impl<C: Connection> Alive for Nodes<C> {
    fn check(&self) -> Result<(), FabricError> {
        self.all.iter().try_for_each(|node| node.connection.check())
    }

    fn again(&self, timeout: Duration) -> Result<Self, FabricError> {
        let connections = self.all.iter().map(|node| node.connection.reconnect(timeout));
        Self::new(connections.collect::<Result<_, _>>()?)
    }
}

impl<C: Connection> Nodes<C> {
    pub(crate) fn new(connections: Vec<C>) -> Result<Self, FabricError> {
        let node = |connection: C| Ok(Node { asker: Asker::new(&connection)?, connection });
        let all = connections.into_iter().map(node).collect::<Result<_, FabricError>>()?;
        let (compute_node, tables) = (Mutex::default(), Mutex::default());
        Ok(Self { all, epochs: OnceLock::new(), compute_node, tables })
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

    /// Asks one node and waits for its answer.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        node: usize,
        request: &PoolRequest,
    ) -> Result<T, CatalogueError> {
        let Node { connection, asker } = &self.all[node];
        asker.ask(connection, |frame| Request::pool(frame, request))
    }

    /// The nodes' lives, in their order.
    pub(crate) fn epochs(&self) -> Result<&[u64], CatalogueError> {
        if let Some(epochs) = self.epochs.get() {
            return Ok(epochs);
        }
        let hello = |node| self.ask::<PoolHello>(node, &PoolRequest::Hello);
        let hellos = (0..self.count()).map(hello).collect::<Result<Vec<_>, _>>()?;
        let epochs: Vec<u64> = hellos.iter().map(|hello| hello.epoch).collect();
        for (node, hello) in hellos.iter().enumerate() {
            if let Some(twin) = epochs[..node].iter().position(|epoch| *epoch == hello.epoch) {
                let (first, second) = (self.peer(twin).to_owned(), self.peer(node).to_owned());
                return Err(PoolError::SameNode { first, second }.into());
            }
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

    /// The number of this compute node, known to all nodes.
    pub(crate) fn compute_node(&self) -> Result<ComputeNode, CatalogueError> {
        let home = self.epochs()?[0];
        let mut known = lock(&self.compute_node);
        if let Some(compute_node) = *known {
            return Ok(compute_node);
        }
        let compute_node: ComputeNode = self.ask(0, &PoolRequest::Register)?;
        for node in 1..self.count() {
            self.ask::<()>(node, &PoolRequest::Announce { home, compute_node })?;
        }
        *known = Some(compute_node);
        Ok(compute_node)
    }

    /// Makes a table on all nodes, or finds the one of the same definition.
    pub(crate) fn create(&self, definition: &PoolDefinition) -> Result<Arc<OpenTable>, CatalogueError> {
        let home = self.part(0, definition, None)?;
        self.adopt(home)
    }

    /// Opens the table of this name, and completes it where whoever made it did not.
    pub(crate) fn open(&self, name: &str) -> Result<Arc<OpenTable>, CatalogueError> {
        if let Some(open) = lock(&self.tables).get(name) {
            return Ok(Arc::clone(open));
        }
        self.epochs()?;
        self.adopt(self.ask(0, &PoolRequest::OpenTable(name.to_owned()))?)
    }

    /// Queue pairs for one session.
    pub(crate) fn links(&self, name: &str) -> Result<PoolLinks<C::Queue>, CatalogueError> {
        let open = self.open(name)?;
        let mut queues = Vec::with_capacity(self.count());
        for (node, info) in open.infos.iter().enumerate() {
            let mut queue = self.connection(node).open_queue()?;
            queue.attach(info.leaves())?;
            if node == 0 {
                queue.attach(info.meta())?;
            }
            queues.push(queue);
        }
        let (infos, compute_node) = (open.infos.clone(), self.compute_node()?);
        Ok(PoolLinks { queues, infos, home: Epoch(self.epochs()?[0]), compute_node })
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
        self.check(node, &info, definition, home)?;
        Ok(info)
    }

    fn adopt(&self, home: PoolTableInfo) -> Result<Arc<OpenTable>, CatalogueError> {
        let definition = home.definition.clone();
        self.check(0, &home, &definition, None)?;
        let mut infos = vec![home];
        for node in 1..self.count() {
            infos.push(self.part(node, &definition, Some(&infos[0]))?);
        }
        let open = Arc::new(OpenTable { infos });
        let mut tables = lock(&self.tables);
        Ok(Arc::clone(tables.entry(definition.table.name).or_insert(open)))
    }

    /// Refuses what a node says of a table if it cannot be.
    fn check(
        &self,
        node: usize,
        info: &PoolTableInfo,
        definition: &PoolDefinition,
        home: Option<&PoolTableInfo>,
    ) -> Result<(), CatalogueError> {
        let Node { connection, asker } = &self.all[node];
        let mut regions = vec![(info.leaves(), u64::from(info.capacity_leaves) * info.block_bytes())];
        if node == 0 {
            regions.push((info.meta(), u64::from(info.meta_lines) * farsight_base::LINE_BYTES as u64));
        }
        let mut are_sound = info.definition == *definition
            && usize::from(info.place.index) == node
            && info.place.epochs == self.epochs()?
            && home.is_none_or(|home| home.id == info.id);
        for (region, bytes) in regions {
            are_sound &= asker.with_queue(connection, |queue| queue.attach(region))? >= bytes;
        }
        if are_sound {
            return Ok(());
        }
        let (peer, table) = (self.peer(node).to_owned(), definition.table.name.clone());
        Err(PoolError::Unsound { peer, table }.into())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is ever half done under these.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

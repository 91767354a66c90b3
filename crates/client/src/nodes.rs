//! The nodes that a client is connected to, in one epoch of each.
//!
//! Invariant: everything here belongs to these epochs. A client that finds one of them over begins with a new
//! set of connections, under another compute node's number. So a fence that is meant for the old set never
//! meets the new one. Caches that have nothing of a connection go along: to tables that every node describes
//! as before, its epoch included.
//!
//! Protocol: the client requests the epochs once and compares them with what each node knows of its pool. A
//! node that stands elsewhere in its own pool's list, or a pool one of whose nodes has another epoch now, is
//! refused before anything is read. A node with a directory of data has one epoch in all of its lives here;
//! [`lives`] tells whether the directory is the newest.

mod backend;
mod catalogue;
mod lives;
mod map;
mod name_changes;
mod names;
mod numbers;
mod poisoned;
mod reach;
mod taking_in;
mod time;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use farsight_base::Epoch;
use farsight_base::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use farsight_fabric::{Connection, FabricError, QueuePair};
use farsight_index::EngineKind;
use farsight_index_rolex::ComputeNodeLocks;
use farsight_protocol::{
    ComputeNode, ControlRequest, ErrorCode, Fenced, LockSeen, LostNodes, NodeHello, NodeLife, PoolPlace,
    TableId, TableInfo,
};
use serde::de::DeserializeOwned;

use crate::ask::Asker;
use crate::connect::Dial;
use crate::engine::{Lookup, Sharing};
#[cfg(injected)]
use crate::injected;
use crate::server_time::ServerTime;
use crate::{CatalogueError, PoolError};
use name_changes::NameChanges;
use poisoned::Poisoned;
use reach::Believed;

/// Connections to all nodes.
pub(crate) struct Nodes<C: Connection> {
    all: Vec<Node<C>>,
    /// Their places in their pool's list, and how many nodes that has.
    places: Vec<usize>,
    pool_size: usize,
    /// The others, without which the pool goes on.
    lost: LostNodes,
    /// Why one of them was not reached, if nobody has agreed yet that it is lost.
    failure: Option<FabricError>,
    /// The former connections to those, where there were any: to be tried again.
    missing: Vec<(usize, Arc<C>)>,
    /// A way to those to which there never was a connection.
    dial: Option<Dial<C>>,
    /// Nodes that know no addresses.
    untold: AtomicU64,
    /// Places whose nodes are elsewhere than where there was a connection to them.
    moved: AtomicU64,
    /// Those of the lost ones that others have said are lost, and how many nodes their pool had taken in by
    /// then.
    told: (LostNodes, u32),
    /// Those that others have said are lost since, and those of which they do not say so any more.
    said_lost: AtomicU64,
    came_back: AtomicU64,
    /// How many nodes the pool has taken in, as its nodes have said.
    term: AtomicU32,
    /// What names the pool.
    pool: OnceLock<u64>,
    /// A table that was opened here, or over the connections before, has replicas.
    has_replicas: AtomicBool,
    /// Until when reads are believed.
    believed: Believed,
    /// The engines with whose tables it can work.
    engines: Lookup<C>,
    epochs: OnceLock<Vec<u64>>,
    /// The lives of the nodes, if it is several that have directories of data.
    lives: OnceLock<Option<Vec<NodeLife>>>,
    /// Set once all nodes were told of them.
    met: OnceLock<()>,
    /// This process has requested its number. So its nodes may know it as a compute node, and end it as one.
    has_requested: AtomicBool,
    /// The lock values of this process, once it has its number.
    locks: OnceLock<ComputeNodeLocks>,
    tables: Mutex<Tables<C>>,
    name_changes: NameChanges,
    /// Their time of day, once it was needed.
    server_time: Mutex<Option<ServerTime>>,
    /// Whether anything may begin here any more.
    poisoned: Poisoned,
}

struct Node<C: Connection> {
    connection: Arc<C>,
    asker: Asker<C>,
}

/// The tables that were opened in these epochs.
struct Tables<C: Connection> {
    by_id: HashMap<TableId, Arc<Known<C>>>,
    /// Those that were opened over the connections before, and not yet over these.
    former: HashMap<TableId, Arc<Known<C>>>,
    /// The count of name changes at which those were let go last that are dropped.
    let_go_at: u64,
}

/// A table in these epochs, under a name that it had.
pub(crate) struct Known<C: Connection> {
    /// What each node says of its part, the coordinator first.
    pub(crate) infos: Vec<TableInfo>,
    /// The whole.
    pub(crate) info: Arc<TableInfo>,
    /// Its engine.
    pub(crate) kind: &'static EngineKind,
    /// What this process's sessions share of it.
    pub(crate) sharing: Arc<dyn Sharing<C>>,
}

impl<C: Connection> Nodes<C> {
    pub(crate) fn new(connections: Vec<C>, engines: Lookup<C>) -> Result<Self, FabricError> {
        let nodes = connections.len();
        Self::over(connections.into_iter().enumerate().collect(), nodes, engines)
    }

    /// Connections to some of a pool's nodes, by their places. It goes on without the others.
    pub(crate) fn over(
        connections: Vec<(usize, C)>,
        pool_nodes: usize,
        engines: Lookup<C>,
    ) -> Result<Self, FabricError> {
        let places: Vec<usize> = connections.iter().map(|(place, _)| *place).collect();
        let lost = LostNodes::of((0..pool_nodes).filter(|place| !places.contains(place)));
        let believed = Believed::default();
        let node = |(_, connection): (usize, C)| {
            Ok(Node { asker: Asker::new(&connection)?, connection: Arc::new(connection) })
        };
        let all = connections.into_iter().map(node).collect::<Result<_, FabricError>>()?;
        let (epochs, lives, met, locks) =
            (OnceLock::new(), OnceLock::new(), OnceLock::new(), OnceLock::new());
        let tables = Tables { by_id: HashMap::new(), former: HashMap::new(), let_go_at: 0 };
        let tables = Mutex::new(tables);
        let (name_changes, poisoned) = (NameChanges::default(), Poisoned::default());
        let (said_lost, came_back, term) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU32::new(0));
        let (failure, has_replicas, server_time) = (None, AtomicBool::new(false), Mutex::default());
        Ok(Self {
            all,
            places,
            pool_size: pool_nodes,
            lost,
            failure,
            missing: Vec::new(),
            dial: None,
            untold: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            told: (LostNodes::default(), 0),
            said_lost,
            came_back,
            term,
            pool: OnceLock::new(),
            has_replicas,
            believed,
            engines,
            epochs,
            lives,
            met,
            has_requested: AtomicBool::new(false),
            locks,
            tables,
            name_changes,
            server_time,
            poisoned,
        })
    }

    /// The same, with a way to those that were not reached.
    pub(crate) fn with_dial(self, dial: Option<Dial<C>>) -> Self {
        Self { dial, ..self }
    }

    /// The ways to all of them, if they are known.
    pub(crate) fn dial(&self) -> Option<&Dial<C>> {
        self.dial.as_ref()
    }

    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// How many nodes the pool has, with those that are left out.
    pub(crate) fn pool_nodes(&self) -> usize {
        self.pool_size
    }

    pub(crate) fn connection(&self, node: usize) -> &C {
        &self.all[node].connection
    }

    /// The same, for who outlives these nodes.
    pub(crate) fn shared_connection(&self, node: usize) -> Arc<C> {
        Arc::clone(&self.all[node].connection)
    }

    pub(crate) fn peer(&self, node: usize) -> &str {
        self.connection(node).peer()
    }

    /// Whether this compute node is poisoned.
    pub(crate) fn poisoned(&self) -> &Poisoned {
        &self.poisoned
    }

    /// Fails if this compute node is poisoned, or has to stop because its lock values run
    /// out and it got no other number.
    pub(crate) fn check_usable(&self) -> Result<(), FabricError> {
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
        request: &ControlRequest,
    ) -> Result<T, CatalogueError> {
        let Node { connection, asker } = &self.all[node];
        asker.ask(connection, request)
    }

    /// The nodes' epochs, in their order.
    pub(crate) fn epochs(&self) -> Result<&[u64], CatalogueError> {
        if let Some(epochs) = self.epochs.get() {
            return Ok(epochs);
        }
        let hello = |node| self.ask::<NodeHello>(node, &ControlRequest::Hello);
        let hellos = (0..self.count()).map(hello).collect::<Result<Vec<_>, _>>()?;
        self.note_untold(&hellos);
        self.leave_out_restarted(&hellos)?;
        self.agree(&hellos)?;
        if let Some(name) = hellos.iter().find_map(|hello| hello.pool) {
            self.pool.get_or_init(|| name);
        }
        if self.lost.count() > 0 {
            let epochs = self.epochs_of_pool(&hellos)?;
            self.lives.get_or_init(|| None);
            return Ok(self.epochs.get_or_init(|| epochs));
        }
        let epochs: Vec<u64> = hellos.iter().map(|hello| hello.epoch).collect();
        for (node, epoch) in epochs.iter().enumerate() {
            if let Some(twin) = epochs[..node].iter().position(|other| other == epoch) {
                let (first, second) = (self.peer(twin).to_owned(), self.peer(node).to_owned());
                return Err(PoolError::SameNode { first, second }.into());
            }
        }
        let lives = if self.count() > 1 { self.ask_lives()? } else { Vec::new() };
        let own_lives = self.own_lives(&lives)?.filter(|own| !own.is_empty());
        for (node, hello) in hellos.iter().enumerate() {
            if let Some(place) = &hello.place {
                self.compare(node, place, &epochs, own_lives.is_some())?;
            }
        }
        self.check_lives(&lives)?;
        self.lives.get_or_init(|| own_lives);
        Ok(self.epochs.get_or_init(|| epochs))
    }

    /// What names the pool: the epoch of the coordinator that it had first.
    pub(crate) fn pool_name(&self) -> Result<u64, CatalogueError> {
        let first = self.epochs()?[0];
        Ok(self.pool.get().copied().unwrap_or(first))
    }

    /// The same, if they were asked.
    pub(crate) fn asked_epochs(&self) -> Option<&[u64]> {
        self.epochs.get().map(Vec::as_slice)
    }

    /// Refuses a list of epochs other than that of the pool to which a node belongs.
    fn compare(
        &self,
        node: usize,
        place: &PoolPlace,
        epochs: &[u64],
        have_directories: bool,
    ) -> Result<(), CatalogueError> {
        if usize::from(place.index) == node && place.epochs == epochs {
            return Ok(());
        }
        #[cfg(injected)]
        if injected::EPOCHS_NOT_COMPARED.is_injected() {
            return Ok(());
        }
        let is_known = |epoch: &u64| place.epochs.contains(epoch);
        let strangers: Vec<usize> = (0..epochs.len()).filter(|other| !is_known(&epochs[*other])).collect();
        if let (&[other], true) = (&strangers[..], place.epochs.len() == epochs.len()) {
            let peer = self.peer(other).to_owned();
            let (was, is) = (Epoch(place.epochs[other]), Epoch(epochs[other]));
            let other = if have_directories {
                PoolError::OtherDirectory { peer, was, is }
            } else {
                PoolError::NodeRestarted { peer, was, is }
            };
            return Err(other.into());
        }
        // One that stands at its place may know which does not.
        let is_in_place = usize::from(place.index) == node && place.epochs.len() == epochs.len();
        let index_of = |epoch: &u64| place.epochs.iter().position(|known| known == epoch);
        let mut moved = epochs.iter().enumerate().filter(|(at, epoch)| place.epochs.get(*at) != Some(*epoch));
        let moved = moved.find_map(|(at, epoch)| Some((at, index_of(epoch)?)));
        let (got_index, index) = moved.filter(|_| is_in_place).unwrap_or((node, place.index.into()));
        let other = PoolError::OtherList {
            peer: self.peer(got_index).to_owned(),
            index,
            count: place.epochs.len(),
            got_index,
            got_count: epochs.len(),
        };
        Err(other.into())
    }

    /// The lock values of this compute node, which all nodes know then.
    pub(crate) fn locks(&self) -> Result<ComputeNodeLocks, CatalogueError> {
        let coordinator = self.pool_name()?;
        if let Some(locks) = self.locks.get() {
            return Ok(locks.clone());
        }
        // No lock is held while an answer is awaited: of several that ask, all are told the same number.
        let registered = match self.register_when_open(coordinator) {
            Err(CatalogueError::Refused { source, .. }) if source.code == ErrorCode::Fenced => {
                // Somebody has begun to leave out a node that this client reaches, and has not ended it.
                self.leave_out()?;
                self.register_when_open(coordinator)
            }
            registered => registered,
        };
        let compute_node = registered.map_err(|error| self.of_view(error))?;
        Ok(self.locks.get_or_init(|| ComputeNodeLocks::new(compute_node.0)).clone())
    }

    fn register(&self, coordinator: u64) -> Result<ComputeNode, CatalogueError> {
        let lost = self.lost;
        // Relaxed: who finds a connection ended was answered, or sent something, behind this.
        self.has_requested.store(true, Ordering::Relaxed);
        let compute_node = self.ask(0, &ControlRequest::Register { lost })?;
        for node in 1..self.count() {
            self.ask::<()>(node, &ControlRequest::Announce { coordinator, compute_node, lost })?;
        }
        Ok(compute_node)
    }

    /// Ends every connection of a compute node with any node: because of a lock that was seen at one of them,
    /// or since it has ended at one.
    pub(crate) fn fence(
        &self,
        compute_node: ComputeNode,
        seen: Option<(usize, LockSeen)>,
    ) -> Result<Fenced, CatalogueError> {
        let coordinator = self.pool_name()?;
        let first = seen.map(|(node, _)| node);
        let others = (0..self.count()).filter(|node| Some(*node) != first);
        for node in first.into_iter().chain(others) {
            let seen = seen.filter(|(at, _)| *at == node).map(|(_, lock)| lock);
            match self.ask(node, &ControlRequest::Fence { coordinator, compute_node, seen })? {
                Fenced::Done => {}
                wait @ Fenced::Wait { .. } => return Ok(wait),
            }
        }
        Ok(Fenced::Done)
    }

    /// True once this process may have a number among the compute nodes: it has requested one.
    pub(crate) fn is_registered(&self) -> bool {
        self.has_requested.load(Ordering::Relaxed)
    }

    /// Queue pairs for one session, one a node.
    pub(crate) fn queues(&self, known: &Known<C>) -> Result<Vec<C::Queue>, FabricError> {
        let queue = |(node, info): (usize, &TableInfo)| {
            let mut queue = self.connection(node).open_queue()?;
            for region in &info.regions {
                queue.attach(region.id())?;
            }
            Ok(queue)
        };
        known.infos.iter().enumerate().map(queue).collect()
    }
}

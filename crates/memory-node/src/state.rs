//! What the threads of one memory node share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::{ClientId, Epoch};
use farsight_fabric::Listener;
use farsight_node::{Failure, Listeners, Service, StartError, WORKERS_MAX, process};
use farsight_protocol::{ComputeNode, ErrorCode, MemoryNodeStats, ServerError};
use farsight_server::{ServerOptions, ServerState};

use crate::MemoryNodeOptions;
use crate::call::Calls;
use crate::compute_nodes::{ComputeNodes, Identity};
use crate::leases::Leases;
use crate::tables::Tables;

/// Bytes that a host's messages must carry at least: the statistics of all tables.
pub(crate) const MESSAGE_BYTES_MIN: usize = 32 << 10;
const _: () = assert!(MESSAGE_BYTES_MIN >= ServerState::MESSAGE_BYTES_MIN, "a part's writes are answered");

/// A memory node without its threads: tables, compute nodes, and the hosts underneath.
pub struct NodeState {
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) tables: Tables,
    /// The parts of XStore-D tables: a server without listeners of its own.
    pub(crate) parts: Arc<ServerState>,
    pub(crate) failure: Arc<Failure>,
    epoch: Epoch,
    compute_nodes: Mutex<ComputeNodes>,
    /// Held by whoever fences: two fences whose clients wait for each other must not.
    pub(crate) fencing: Mutex<Leases>,
    lease: Duration,
    started: MonotonicNs,
    calls: AtomicU64,
}

impl NodeState {
    /// A memory node without tables that listens at all `listeners`, started `now`.
    ///
    /// # Errors
    /// [`StartError`] for options or a host that no memory node can work with.
    pub fn new(
        listeners: Vec<Arc<dyn Listener>>,
        options: &MemoryNodeOptions,
        now: MonotonicNs,
    ) -> Result<Arc<Self>, StartError> {
        if !(1..=WORKERS_MAX).contains(&options.workers) {
            return Err(StartError::Workers { got: options.workers });
        }
        let listeners = Arc::new(Listeners::new(listeners, MESSAGE_BYTES_MIN)?);
        let lease = options.lease(listeners.end_processes())?;
        // One life for all addresses, whichever a compute node came by.
        let epoch = listeners.get(0).epoch();
        let failure: Arc<Failure> = Arc::default();
        let parts =
            ServerOptions { table_memory_bytes: options.table_memory_bytes, ..ServerOptions::default() };
        let parts = ServerState::beside(Arc::clone(&listeners), Arc::clone(&failure), &parts, now);
        Ok(Arc::new(Self {
            listeners,
            tables: Tables::new(epoch, options.table_memory_bytes),
            parts,
            failure,
            epoch,
            compute_nodes: Mutex::default(),
            fencing: Mutex::new(Leases::new(lease)),
            lease,
            started: now,
            calls: AtomicU64::new(0),
        }))
    }

    /// This life of the memory node, whichever address it is reached by.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// How long a leaf's lock must have stood before its holder can be fenced, if fences may end processes
    /// here.
    #[must_use]
    pub(crate) fn lease_of_processes(&self) -> Option<Duration> {
        self.listeners.end_processes().then_some(self.lease)
    }

    /// The parts of XStore-D tables, whose training is their background's
    /// ([`farsight_server::Background`]).
    #[must_use]
    pub fn parts(&self) -> &Arc<ServerState> {
        &self.parts
    }

    /// The memory node's statistics at `now`.
    #[must_use]
    pub fn stats(&self, now: MonotonicNs) -> MemoryNodeStats {
        let compute_nodes = self.compute_nodes();
        MemoryNodeStats {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process_id: std::process::id(),
            uptime_s: now.since(self.started).as_secs_f64(),
            cpu_s: process::cpu_s(),
            listeners: self.listeners.stats(),
            // Relaxed: statistics.
            calls: self.calls.load(Ordering::Relaxed),
            compute_nodes: compute_nodes.connected(),
            fenced: compute_nodes.fenced(),
            place: self.tables.place().cloned(),
            tables: self.tables.iter().map(|table| table.stats(&self.parts, now)).collect(),
        }
    }

    /// Why the node refuses every call, if a bug made it so.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.failure.text()
    }

    pub(crate) fn compute_nodes(&self) -> MutexGuard<'_, ComputeNodes> {
        // Each change is complete, or a bug that ends all answers.
        self.compute_nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count_call(&self) {
        // Relaxed: statistics.
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// The compute node whose client this is, of the pool to which this node's tables belong.
    pub(crate) fn owner(&self, client: ClientId) -> Result<ComputeNode, ServerError> {
        let identity = self.compute_nodes().of(client)?;
        match self.tables.place() {
            Some(place) if place.home() != identity.home => {
                let text = format!("this node's pool has home {}, not {}", place.home(), identity.home);
                Err(ServerError::new(ErrorCode::OtherPool, text))
            }
            _ => Ok(identity.compute_node),
        }
    }

    /// Refuses compute nodes of another pool than this node's, and of none.
    pub(crate) fn check_home(&self, home: Epoch) -> Result<(), ServerError> {
        let text = match self.tables.place() {
            Some(place) if place.home() == home => return Ok(()),
            Some(place) => format!("this node's pool has home {}, not {home}", place.home()),
            None => "this node belongs to no pool yet: a table is made first".to_owned(),
        };
        Err(ServerError::new(ErrorCode::OtherPool, text))
    }

    fn end(&self, identity: Identity) {
        if self.tables.place().is_none_or(|place| place.home() != identity.home) {
            return;
        }
        self.tables.iter().for_each(|table| table.end(identity.compute_node));
    }
}

impl Service for NodeState {
    type Calls = Calls;

    fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    fn failure(&self) -> &Arc<Failure> {
        &self.failure
    }

    fn calls(self: &Arc<Self>, listener: usize, name: &str) -> Calls {
        Calls::new(Arc::clone(self), listener, name.to_owned())
    }

    /// Whatever their compute nodes had and nobody wrote can be given out again.
    fn note_departed(&self, clients: Vec<ClientId>) {
        for client in &clients {
            let ended = self.compute_nodes().forget(*client);
            if let Some(identity) = ended {
                self.end(identity);
            }
        }
        self.parts.note_departed(clients);
    }
}

//! What the threads of one memory node share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use farsight_base::clock::MonotonicNs;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::{ClientId, Epoch};
use farsight_fabric::Listener;
use farsight_node::{Failure, Listeners, StartError, WORKERS_MAX, process};
use farsight_protocol::{ComputeNode, ErrorCode, MemoryNodeStats, ServerError};

use crate::MemoryNodeOptions;
use crate::compute_nodes::{ComputeNodes, Identity};
use crate::tables::Tables;

/// Bytes that a host's messages must carry at least: the longest list of blocks.
const MESSAGE_BYTES_MIN: usize = 16 << 10;

/// A memory node without its threads: tables, compute nodes, and the hosts underneath.
pub struct NodeState {
    pub(crate) listeners: Listeners,
    pub(crate) tables: Tables,
    pub(crate) failure: Arc<Failure>,
    epoch: Epoch,
    compute_nodes: Mutex<ComputeNodes>,
    /// Held by whoever fences: two fences whose clients wait for each other must not.
    fencing: Mutex<()>,
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
        let listeners = Listeners::new(listeners, MESSAGE_BYTES_MIN)?;
        // One life for all addresses, whichever a compute node came by.
        let epoch = listeners.get(0).epoch();
        Ok(Arc::new(Self {
            listeners,
            tables: Tables::new(epoch, options.table_memory_bytes),
            failure: Arc::default(),
            epoch,
            compute_nodes: Mutex::default(),
            fencing: Mutex::default(),
            started: now,
            calls: AtomicU64::new(0),
        }))
    }

    /// This life of the memory node, whichever address it is reached by.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
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
            tables: self.tables.iter().map(crate::table::Table::stats).collect(),
        }
    }

    /// Why the node refuses every call, if a bug made it so.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.failure.text()
    }

    /// Notes clients that have ended: whatever their compute nodes had and nobody wrote can be given out
    /// again.
    pub fn note_departed(&self, clients: &[ClientId]) {
        for client in clients {
            let ended = self.compute_nodes().forget(*client);
            if let Some(identity) = ended {
                self.end(identity);
            }
        }
    }

    /// Ends every connection of a compute node; returns when none of its verbs can execute here.
    pub(crate) fn fence(&self, identity: Identity) -> Result<(), ServerError> {
        let _fencing = match self.fencing.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let text = "another fence is under way at this node: ask again";
                return Err(ServerError::new(ErrorCode::Contended, text));
            }
        };
        let clients = self.compute_nodes().begin_fence(identity)?;
        for client in clients {
            self.listeners.fence(client).map_err(|error| {
                let text = format!("{} could not be fenced: {error}", identity.compute_node);
                ServerError::new(ErrorCode::Contended, text)
            })?;
            self.note_departed(&[client]);
        }
        Ok(())
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

    fn end(&self, identity: Identity) {
        if self.tables.place().is_none_or(|place| place.home() != identity.home) {
            return;
        }
        self.tables.iter().for_each(|table| table.end(identity.compute_node));
    }
}

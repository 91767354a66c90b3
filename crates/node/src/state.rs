//! What the threads of one node share.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use farsight_base::clock::{LaterUnixTime, MonotonicNs};
use farsight_base::report::report;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::{ClientId, Epoch};
use farsight_fabric::Listener;
use farsight_protocol::{
    ComputeNode, ErrorCode, HEADER_BYTES, NodeStats, OPERATIONS_MAX, POOL_NODES_MAX, ServerError, TableStats,
};

use crate::authors::Authors;
use crate::call::Calls;
use crate::compute_nodes::{ComputeNodes, Connected, Identity};
use crate::durable::Durable;
use crate::leases::Leases;
use crate::memory_limit::MemoryLimit;
use crate::pool_view::PoolView;
use crate::signal::Signal;
use crate::table::Table;
use crate::tables::Tables;
use crate::{Failure, Listeners, NodeOptions, Service, StartError, WORKERS_MAX, process};

/// A node without its threads: tables, compute nodes, and the hosts underneath.
pub struct NodeState {
    /// One a fabric and address, at least one; the first creates the regions.
    pub(crate) listeners: Listeners,
    pub(crate) tables: Tables,
    /// What keeps them on a disk, if anything does.
    pub(crate) durable: Option<Arc<Durable>>,
    /// What became of the calls that may be repeated.
    pub(crate) authors: Arc<Authors>,
    pub(crate) failure: Arc<Failure>,
    /// Raised when there is work for the background.
    pub(crate) background: Signal,
    /// Raised when there may be more, or less, to train in tables that compute nodes write.
    pub(crate) own_pool: Arc<Signal>,
    epoch: Epoch,
    compute_nodes: Mutex<ComputeNodes>,
    pub(crate) pool_view: Mutex<PoolView>,
    /// Held by a worker that fences: two fences whose clients wait for each other must not.
    pub(crate) fencing: Mutex<Leases>,
    lease: Duration,
    /// Set once the lease was said.
    lease_said: OnceLock<()>,
    /// Clients that have ended, for the background.
    departed: Mutex<Vec<ClientId>>,
    pub(crate) started: MonotonicNs,
    calls: AtomicU64,
    operations: AtomicU64,
    damage_found: AtomicU64,
}

impl NodeState {
    /// Bytes that a host's messages must carry at least: the outcomes of the largest write, which must never
    /// be refused once they are executed.
    pub const MESSAGE_BYTES_MIN: usize = HEADER_BYTES + 8 * OPERATIONS_MAX;

    /// A node without tables that listens at all `listeners`, started `now`.
    ///
    /// # Errors
    /// [`StartError`] for options or a host that no node can work with.
    pub fn new(
        listeners: Vec<Arc<dyn Listener>>,
        options: &NodeOptions,
        now: MonotonicNs,
    ) -> Result<Arc<Self>, StartError> {
        if !(1..=WORKERS_MAX).contains(&options.workers) {
            return Err(StartError::Workers { got: options.workers });
        }
        let listeners = Listeners::new(listeners, Self::MESSAGE_BYTES_MIN)?;
        let lease = options.lease(listeners.end_processes())?;
        // One epoch for all addresses, whichever a client came by.
        let epoch = listeners.get(0).epoch();
        let memory = MemoryLimit::of_process(options.memory_limit_bytes);
        let limited = Arc::clone(&memory);
        listeners
            .limit_queues(&(Arc::new(move |held_bytes, bytes| limited.of_queue(held_bytes, bytes)) as _));
        let durable = options
            .data
            .as_ref()
            .map(|data| Durable::open(data, epoch, memory.bounded_bytes()))
            .transpose()?;
        // In pools it is one node in all of its lives.
        let own = durable.as_ref().map_or(epoch, |durable| durable.origin());
        let mut options = options.clone();
        let (believed, pool) = (options.believed, options.pool.clone());
        pool.check(pool.0.len().min(POOL_NODES_MAX)).map_err(StartError::Pool)?;
        let author_secret = options.author_secret;
        if let Some(durable) = &durable {
            let before_ms = durable.last_change_ms();
            options.unix_time = Arc::new(LaterUnixTime::new(options.unix_time, before_ms));
        }
        Ok(Arc::new(Self {
            listeners,
            tables: Tables::new(own, options, Arc::clone(&memory), durable.clone()),
            durable,
            authors: Arc::new(Authors::new(author_secret, epoch, memory.bounded_bytes())),
            failure: Arc::default(),
            background: Signal::default(),
            own_pool: Arc::default(),
            epoch,
            compute_nodes: Mutex::default(),
            pool_view: Mutex::new(PoolView::new(believed, pool)),
            fencing: Mutex::new(Leases::new(lease)),
            lease,
            lease_said: OnceLock::new(),
            departed: Mutex::default(),
            started: now,
            calls: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            damage_found: AtomicU64::new(0),
        }))
    }

    /// This epoch of the node, whichever address it is reached by.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Says on stderr, once, for how long a process may hold a lock here, if fences may end processes.
    pub(crate) fn report_lease(&self) {
        if self.listeners.end_processes() && self.lease_said.set(()).is_ok() {
            report(format_args!(
                "a process over shared memory that holds a lock for {:?} (--lease) while others wait for it, and then does \
                 not answer, loses its write access; it is killed where its kernel lets nobody take that (no userfaultfd)",
                self.lease
            ));
        }
    }

    /// Notes how often passes have met damage that they could not repair.
    pub(crate) fn note_damage(&self, found: u64) {
        // Relaxed: statistics.
        self.damage_found.store(found, Ordering::Relaxed);
        self.want_repairs();
    }

    /// Has damaged pairs repaired that somebody has met, if a log has them.
    pub(crate) fn want_repairs(&self) {
        self.durable.iter().for_each(|durable| durable.want_repairs());
    }

    /// Wakes the background, if it sleeps.
    pub fn wake_background(&self) {
        self.background.raise();
    }

    /// The node's statistics at `now`, with those of all tables.
    #[must_use]
    pub fn stats(&self, now: MonotonicNs) -> NodeStats {
        let tables = self.tables.all().iter().map(|table| self.table_stats(table, now)).collect();
        NodeStats { tables, ..self.stats_without_tables(now) }
    }

    /// A table's statistics at `now`, with what the directory of data has of it.
    pub(crate) fn table_stats(&self, table: &Table, now: MonotonicNs) -> TableStats {
        let snapshot = self.durable.as_ref().and_then(|durable| durable.snapshot_stats(table.id()));
        TableStats { snapshot, ..table.stats(now) }
    }

    /// The node's statistics at `now`.
    pub(crate) fn stats_without_tables(&self, now: MonotonicNs) -> NodeStats {
        let listeners = self.listeners.stats();
        let memory = self.tables.memory();
        let lost = self.pool_view().lost;
        let compute_nodes = self.compute_nodes();
        NodeStats {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process_id: std::process::id(),
            uptime_s: now.since(self.started).as_secs_f64(),
            cpu_s: process::cpu_s(),
            memory_bytes: memory.bytes().map_or_else(process::memory_bytes, |_| Some(memory.used_bytes())),
            memory_limit_bytes: memory.bytes(),
            memory: memory.stats(self.authors.replies_bytes()),
            clients: listeners.iter().map(|listener| listener.clients).sum(),
            listeners,
            // Relaxed: statistics.
            calls: self.calls.load(Ordering::Relaxed),
            operations: self.operations.load(Ordering::Relaxed),
            damage_found: self.damage_found.load(Ordering::Relaxed),
            compute_nodes: compute_nodes.connected(),
            fenced: compute_nodes.fenced(),
            data: self.durable.as_ref().map(|durable| durable.stats()),
            place: self.tables.place().as_deref().cloned(),
            lost,
            tables: Vec::new(),
        }
    }

    /// Lets `table` give no version up to `last` from now on, so that pairs which are stored anew go on
    /// behind the versions that they had.
    ///
    /// # Errors
    /// [`ServerError`] if there is no such table, or clients version its pairs.
    pub fn leave_out_versions(&self, table: &str, last: u64) -> Result<(), ServerError> {
        let table = self.tables.open(table)?;
        if table.hosted().leave_out_versions(last) {
            return Ok(());
        }
        let text =
            format!("table {:?} is of {}: its clients give versions", table.name(), table.info().engine);
        Err(ServerError::new(ErrorCode::BadRequest, text))
    }

    /// Why the node refuses every call, if a bug made it so.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.failure.text()
    }

    /// Gives back what tables kept for clients that have ended.
    pub(crate) fn forget_departed(&self) {
        let departed = std::mem::take(&mut *self.departed.lock().unwrap_or_else(PoisonError::into_inner));
        if departed.is_empty() {
            return;
        }
        if let Some(durable) = &self.durable {
            for client in &departed {
                durable.forget(*client);
            }
        }
        for table in self.tables.all() {
            for client in &departed {
                table.hosted().forget(*client);
            }
        }
    }

    pub(crate) fn compute_nodes(&self) -> MutexGuard<'_, ComputeNodes> {
        // Each change is complete, or a bug that ends all answers.
        self.compute_nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one call and the operations executed in it.
    pub(crate) fn count_call(&self, operations: u64) {
        // Relaxed: statistics.
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.operations.fetch_add(operations, Ordering::Relaxed);
    }

    /// The compute node whose client this is, of the pool to which this node's tables belong.
    pub(crate) fn owner(&self, client: ClientId) -> Result<ComputeNode, ServerError> {
        let identity = self.compute_nodes().of_living(client)?;
        match self.tables.pool() {
            Some(pool) if pool != identity.coordinator => {
                let text = format!("this node's pool has coordinator {pool}, not {}", identity.coordinator);
                Err(ServerError::new(ErrorCode::OtherPool, text))
            }
            _ => Ok(identity.compute_node),
        }
    }

    /// Which compute nodes may use what they have read at the nodes of the pool.
    pub(crate) fn who_may_read(&self, now: MonotonicNs) -> Connected {
        let believed = self.pool_view().believed_here();
        self.compute_nodes().readers(now, believed)
    }

    /// Refuses compute nodes of another pool than this node's, and of none.
    pub(crate) fn check_coordinator(&self, coordinator: Epoch) -> Result<(), ServerError> {
        let text = match self.tables.pool() {
            Some(pool) if pool == coordinator => return Ok(()),
            Some(pool) => format!("this node's pool has coordinator {pool}, not {coordinator}"),
            None => "this node belongs to no pool yet: a table is made first".to_owned(),
        };
        Err(ServerError::new(ErrorCode::OtherPool, text))
    }

    fn end(&self, identity: Identity) {
        if self.tables.pool() != Some(identity.coordinator) {
            return;
        }
        for table in self.tables.all() {
            table.hosted().end(identity.compute_node);
        }
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

    /// What their compute nodes had and nobody wrote can be given out again; the background gives back what
    /// else was kept for them.
    fn note_departed(&self, clients: Vec<ClientId>) {
        for client in &clients {
            let ended = self.compute_nodes().forget(*client);
            if let Some(identity) = ended {
                self.end(identity);
            }
        }
        self.departed.lock().unwrap_or_else(PoisonError::into_inner).extend(clients);
        self.wake_background();
        // They may have left blocks, which a trainer gives back.
        self.own_pool.raise();
    }
}

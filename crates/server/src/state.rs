//! What the threads of one server share.

use std::sync::{Arc, Mutex, PoisonError};

use farsight_base::ClientId;
use farsight_base::clock::MonotonicNs;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_fabric::Listener;
use farsight_node::{Failure, Listeners, Service, process};
use farsight_protocol::{
    HEADER_BYTES, OPERATIONS_MAX, ServerError, ServerStats, TableDefinition, TableId, TableInfo, TableStats,
};

use crate::call::Calls;
use crate::signal::Signal;
use crate::tables::Tables;
use crate::{ServerOptions, StartError};

/// A server without its threads: tables, counters, and the hosts underneath.
pub struct ServerState {
    /// One a fabric and address, at least one; the first creates the regions.
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) tables: Tables,
    pub(crate) failure: Arc<Failure>,
    /// Raised when there is work for the background.
    pub(crate) background: Signal,
    departed: Mutex<Vec<ClientId>>,
    started: MonotonicNs,
    calls: AtomicU64,
    operations: AtomicU64,
}

impl ServerState {
    /// Bytes that a host's messages must carry at least: the outcomes of the largest write, which must never
    /// be refused once they are executed.
    pub const MESSAGE_BYTES_MIN: usize = HEADER_BYTES + 8 * OPERATIONS_MAX;

    /// A server without tables that listens at all `listeners`, started `now`.
    ///
    /// # Errors
    /// [`StartError`] for options or a host that no server can work with.
    pub fn new(
        listeners: Vec<Arc<dyn Listener>>,
        options: &ServerOptions,
        now: MonotonicNs,
    ) -> Result<Arc<Self>, StartError> {
        if !(1..=ServerOptions::WORKERS_MAX).contains(&options.workers) {
            return Err(StartError::Workers { got: options.workers });
        }
        let listeners = Arc::new(Listeners::new(listeners, Self::MESSAGE_BYTES_MIN)?);
        Ok(Self::beside(listeners, Arc::default(), options, now))
    }

    /// The tables that a memory node of a pool hosts in the same way, behind its own listeners, whose
    /// messages are long enough ([`ServerState::MESSAGE_BYTES_MIN`]), and its own failure.
    #[must_use]
    pub fn beside(
        listeners: Arc<Listeners>,
        failure: Arc<Failure>,
        options: &ServerOptions,
        now: MonotonicNs,
    ) -> Arc<Self> {
        Arc::new(Self {
            listeners,
            tables: Tables::new(options.table_memory_bytes, options.training),
            failure,
            background: Signal::default(),
            departed: Mutex::default(),
            started: now,
            calls: AtomicU64::new(0),
            operations: AtomicU64::new(0),
        })
    }

    /// Makes a table under a number that somebody else gave, or finds the one of the same definition.
    ///
    /// # Errors
    /// As a client's request for a new table; [`ServerError`] if the number is another table's.
    pub fn create_numbered(
        &self,
        id: TableId,
        definition: &TableDefinition,
    ) -> Result<&TableInfo, ServerError> {
        let table = self.tables.create(&self.listeners, definition, Some(id))?;
        self.wake_background();
        Ok(table.info())
    }

    /// What the table of this number counts, if there is one.
    #[must_use]
    pub fn table_stats(&self, id: TableId, now: MonotonicNs) -> Option<TableStats> {
        self.tables.get(id).ok().map(|table| table.stats(now))
    }

    /// Wakes the background, if it sleeps.
    pub fn wake_background(&self) {
        self.background.raise();
    }

    /// The server's statistics at `now`.
    #[must_use]
    pub fn stats(&self, now: MonotonicNs) -> ServerStats {
        let listeners = self.listeners.stats();
        ServerStats {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process_id: std::process::id(),
            uptime_s: now.since(self.started).as_secs_f64(),
            cpu_s: process::cpu_s(),
            clients: listeners.iter().map(|listener| listener.clients).sum(),
            listeners,
            // Relaxed: statistics.
            calls: self.calls.load(Ordering::Relaxed),
            operations: self.operations.load(Ordering::Relaxed),
            tables: self.tables.iter().map(|table| table.stats(now)).collect(),
        }
    }

    /// Lets `table` give no version up to `last` from now on, so that pairs which are stored anew go on
    /// behind the versions that they had.
    ///
    /// # Errors
    /// [`ServerError`] if there is no such table.
    pub fn leave_out_versions(&self, table: &str, last: u64) -> Result<(), ServerError> {
        self.tables.open(table).map(|table| table.leave_out_versions(last))
    }

    /// Why the server refuses every call, if a bug made it so.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.failure.text()
    }

    /// Gives back what was kept for clients that have ended.
    pub(crate) fn forget_departed(&self) {
        let departed = std::mem::take(&mut *self.departed.lock().unwrap_or_else(PoisonError::into_inner));
        for client in departed {
            self.tables.iter().for_each(|table| table.forget(client));
        }
    }

    /// Counts one call and the operations executed in it.
    pub(crate) fn count_call(&self, operations: u64) {
        // Relaxed: statistics.
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.operations.fetch_add(operations, Ordering::Relaxed);
    }
}

impl Service for ServerState {
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

    /// For the background to give back what was kept for them.
    fn note_departed(&self, clients: Vec<ClientId>) {
        self.departed.lock().unwrap_or_else(PoisonError::into_inner).extend(clients);
        self.wake_background();
    }
}

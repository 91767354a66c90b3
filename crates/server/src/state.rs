//! What the threads of one server share.

use std::sync::{Arc, Mutex, PoisonError};

use farsight_base::ClientId;
use farsight_base::clock::MonotonicNs;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_fabric::Host;
use farsight_protocol::{HEADER_BYTES, OPERATIONS_MAX, ServerStats};

use crate::failure::Failure;
use crate::signal::Signal;
use crate::tables::Tables;
use crate::{ServerOptions, StartError, process};

/// Bytes that a host's messages must carry at least: the outcomes of the largest write, which must never be
/// refused once they are executed.
const MESSAGE_BYTES_MIN: usize = HEADER_BYTES + 8 * OPERATIONS_MAX;

/// A server without its threads: tables, counters, and the host underneath.
pub struct ServerState<H: Host> {
    pub(crate) host: Arc<H>,
    pub(crate) tables: Tables,
    pub(crate) failure: Failure,
    /// Raised when there is work for the background.
    pub(crate) background: Signal,
    departed: Mutex<Vec<ClientId>>,
    started: MonotonicNs,
    calls: AtomicU64,
    operations: AtomicU64,
}

impl<H: Host> ServerState<H> {
    /// A server without tables, started `now`.
    ///
    /// # Errors
    /// [`StartError`] for options or a host that no server can work with.
    pub fn new(host: Arc<H>, options: &ServerOptions, now: MonotonicNs) -> Result<Arc<Self>, StartError> {
        if !(1..=ServerOptions::WORKERS_MAX).contains(&options.workers) {
            return Err(StartError::Workers { got: options.workers });
        }
        if host.message_bytes_max() < MESSAGE_BYTES_MIN {
            let got = host.message_bytes_max();
            return Err(StartError::MessagesTooShort { got, expected: MESSAGE_BYTES_MIN });
        }
        Ok(Arc::new(Self {
            host,
            tables: Tables::new(options.table_memory_bytes, options.training),
            failure: Failure::default(),
            background: Signal::default(),
            departed: Mutex::default(),
            started: now,
            calls: AtomicU64::new(0),
            operations: AtomicU64::new(0),
        }))
    }

    /// The server's statistics at `now`.
    #[must_use]
    pub fn stats(&self, now: MonotonicNs) -> ServerStats {
        ServerStats {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process_id: std::process::id(),
            uptime_s: now.since(self.started).as_secs_f64(),
            cpu_s: process::cpu_s(),
            clients: self.host.client_count() as u64,
            // Relaxed: statistics.
            calls: self.calls.load(Ordering::Relaxed),
            operations: self.operations.load(Ordering::Relaxed),
            tables: self.tables.iter().map(|table| table.stats(now)).collect(),
        }
    }

    /// Why the server refuses every call, if a bug made it so.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.failure.text()
    }

    /// Notes clients that have ended, for the background to give back what was kept for them.
    pub(crate) fn note_departed(&self, clients: Vec<ClientId>) {
        if !clients.is_empty() {
            self.departed.lock().unwrap_or_else(PoisonError::into_inner).extend(clients);
            self.background.raise();
        }
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

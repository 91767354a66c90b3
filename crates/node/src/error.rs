//! Why a process that serves did not start, or did not stop.

use std::time::Duration;

use farsight_fabric::FabricError;
use farsight_protocol::ServerError;

use crate::{LISTENERS_MAX, WORKERS_MAX};

/// Why a server or memory node did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A number of workers that makes no sense.
    #[error("1 to {WORKERS_MAX} worker threads serve each address, not {got}")]
    Workers {
        /// The number requested.
        got: usize,
    },
    /// Its directory of data cannot be used.
    #[error(transparent)]
    Data(farsight_durability::DurabilityError),
    /// A lease that is shorter than a busy machine's pauses, or longer than anybody waits.
    #[error("a lease lasts {min:?} to {max:?}, not {got:?}")]
    Lease {
        /// The shortest.
        min: Duration,
        /// The longest.
        max: Duration,
        /// The one requested.
        got: Duration,
    },
    /// Addresses that no pool's nodes have.
    #[error("these are no addresses of a pool's nodes: {0}")]
    Pool(ServerError),
    /// A number of listeners that makes no sense.
    #[error("one process listens at 1 to {LISTENERS_MAX} addresses, not {got}")]
    Listeners {
        /// The number requested.
        got: usize,
    },
    /// A fabric whose messages cannot carry one pair.
    #[error("the fabric of {address} carries messages of {got} B, at least {expected} B are needed")]
    MessagesTooShort {
        /// The listener's address.
        address: String,
        /// What the fabric carries.
        got: usize,
        /// What is needed.
        expected: usize,
    },
    /// It cannot accept clients.
    #[error(transparent)]
    Listen(FabricError),
    /// More memory is to be taken at the start than there is.
    #[error(
        "{wanted_bytes} B of memory are to be taken at the start, and {available_bytes} B are available: take less, or \
         end what uses the rest"
    )]
    Memory {
        /// All that is to be taken.
        wanted_bytes: u64,
        /// What the system can still give.
        available_bytes: u64,
    },
    /// The program that starts the server ended that while memory was taken.
    #[error("the start was ended when {taken_bytes} of {wanted_bytes} B of memory were taken")]
    Ended {
        /// What was taken.
        taken_bytes: u64,
        /// All that was to be taken.
        wanted_bytes: u64,
    },
    /// A region whose memory is to be taken at the start could not be made.
    #[error("memory for a table of {length_bytes} B cannot be taken at the start: {source}")]
    Region {
        /// Its length.
        length_bytes: u64,
        /// The fabric's error.
        source: FabricError,
    },
    /// A worker's port could not be opened.
    #[error("the port of {worker} cannot be opened: {source}")]
    Port {
        /// The worker's name.
        worker: String,
        /// The fabric's error.
        source: FabricError,
    },
    /// A thread could not be started.
    #[error("thread {thread} cannot be started: {source}. Are processes or threads limited (ulimit -u)?")]
    Thread {
        /// The thread's name.
        thread: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// The threads of a server or memory node did not all end in time.
#[derive(Debug, thiserror::Error)]
#[error("after {waited:?} these threads still run: {threads}")]
pub struct ShutdownError {
    /// Their names.
    pub threads: String,
    /// How long they were waited for.
    pub waited: Duration,
}

//! What can go wrong with a benchmark.

use std::{io, path::PathBuf};

use farsight::{CatalogueError, ConnectError, EngineKind, FabricError, LoadError, ReadError};
use farsight::{OpenError, TableError, WriteError};
use farsight_fabric_shm::ListenError;

use crate::{machine::MachineError, workload::WorkloadError};

/// Why a benchmark has no result.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// It was told to end.
    #[error("interrupted")]
    Cancelled,
    /// The directory for the server's socket could not be made.
    #[error("cannot make a directory for the server's socket in {}", path.display())]
    Directory {
        /// Where.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The server's process could not be started.
    #[error("cannot start a server as {}", program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The server's process ended, or said nothing, before it was ready.
    #[error("the server did not become ready: {evidence}")]
    NotReady {
        /// What it said instead.
        evidence: String,
    },
    /// The process that fills a cache did not say what that takes.
    #[error("a cache was not filled: {evidence}")]
    NotFilled {
        /// What it said instead.
        evidence: String,
    },
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Clients were to ask by RPC where nobody answers.
    #[error("{peer} are memory nodes, which search nothing: access by RPC has no meaning there")]
    NobodySearches {
        /// Their addresses.
        peer: String,
    },
    /// Values were to be kept of an engine's tables that has no such cache.
    #[error("nobody keeps values of {engine}'s tables")]
    NoValuesKept {
        /// The engine.
        engine: &'static EngineKind,
    },
    /// A cache was to obey a budget that has none.
    #[error("the cache of {engine}'s tables takes what it needs: it has no budget")]
    NoBudget {
        /// Their engine.
        engine: &'static EngineKind,
    },
    /// No table.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The server could not be asked.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The table could not be filled.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The server went on training or collapsing pages.
    #[error("the server does not come to rest: {seconds} s after the load {evidence}")]
    Restless {
        /// How long it was waited for.
        seconds: u64,
        /// What it was still doing.
        evidence: String,
    },
    /// A session could not be had.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The memory for the limits could not be had.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The memory for the limits has no place to listen at.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A read failed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Writes failed, or one of them.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The operations could not be drawn.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The kernel could not be asked or obeyed.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// More threads than the simulated machines have cores for.
    #[error("{threads} threads a machine are more than the {cores} cores of profile {profile}")]
    TooManyThreads {
        /// Threads requested.
        threads: usize,
        /// Cores of a client machine.
        cores: usize,
        /// The profile.
        profile: String,
    },
    /// The store answered wrongly.
    #[error("workload {workload}: wrong answers: {count} of {operations} operations; the first: {first}")]
    WrongAnswers {
        /// The workload.
        workload: &'static str,
        /// Wrong answers.
        count: u64,
        /// Operations executed.
        operations: u64,
        /// What, where, expected, got.
        first: String,
    },
}

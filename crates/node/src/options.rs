//! What a node is told before it starts.

use std::sync::Arc;
use std::time::Duration;

use farsight_base::clock::{SystemUnixTime, UnixTime};
use farsight_model::TrainOptions;
use farsight_protocol::{LEASE_MAX, PoolAddresses, ProxyPace};

use crate::engine::{self, FindHosting};
use crate::{DataOptions, StartError, process};

/// The lease where a fence ends connections at most.
const LEASE_OF_CONNECTIONS: Duration = Duration::from_millis(500);
/// The lease where a fence may end a process: longer than a debugger's look, or a control group's pause.
const LEASE_OF_PROCESSES: Duration = Duration::from_secs(5);
/// How long compute nodes believe what they read.
const BELIEVED: Duration = Duration::from_millis(400);
/// The shortest lease.
const LEASE_MIN: Duration = Duration::from_millis(10);

/// Settings of a node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Worker threads at each listener, 1 to [`WORKERS_MAX`](crate::WORKERS_MAX).
    pub workers: usize,
    /// Bytes of each table's leaves on this node: the most that the table can ever hold here. The coordinator
    /// has an eighth more for directory and models of a ROLEX table, and each node for those of an XStore
    /// table. Pages cost nothing until they are
    /// written. Default: a quarter of the machine's memory.
    pub table_memory_bytes: u64,
    /// Bytes that the process may have, all together: tables that would grow beyond get errors. Default: no
    /// limit.
    pub memory_limit_bytes: Option<u64>,
    /// Memory that is taken at the start, on huge pages, instead of when it is first written. So many bytes
    /// of the first XStore table, of the second, and so on; at most all of each. Default: none.
    pub prefault_bytes: Vec<u64>,
    /// How the models of XStore tables are trained.
    pub training: TrainOptions,
    /// Publish the sub-models of XStore tables for clients to READ. Without, what a client's cache lacks
    /// costs a call. Default: so.
    pub publishes_models: bool,
    /// How long a leaf's lock must have been seen to stand here before its holder can be fenced, from 10 ms
    /// to [`LEASE_MAX`]. Default: 5 s at a node with a listener that may have to end processes (shared
    /// memory), else 500 ms.
    pub lease: Option<Duration>,
    /// How long compute nodes may believe what they read of a table with replicas, before they ask whether
    /// the pool goes on as it did. A node that is lost is left out when this is over, and a quarter more.
    pub believed: Duration,
    /// Why clients cannot write this node's memory one-sided, if they cannot: then no ROLEX table is made.
    pub read_only: Option<String>,
    /// How clients reach the nodes of its pool, in their order. Default: nobody has said, and the client that
    /// makes the first table does.
    pub pool: PoolAddresses,
    /// Where it keeps its tables, if they are to be there after a restart. Default: nowhere.
    pub data: Option<DataOptions>,
    /// The clock by which pairs end that have deadlines. Default: the machine's.
    pub unix_time: Arc<dyn UnixTime>,
    /// What the numbers of its calls' authors are drawn from in each of its lives, where runs have to be
    /// alike. Clients must not know it. Default: something that nobody knows.
    pub author_secret: Option<u64>,
    /// How fast it decides which compute nodes write for others. Default: as usual.
    pub proxy_pace: ProxyPace,
    /// The engines whose tables it can have. Default: those of [`Engines`](farsight_index::Engines).
    pub engines: FindHosting,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            workers: 1,
            table_memory_bytes: process::machine_memory_bytes() / 4,
            memory_limit_bytes: None,
            prefault_bytes: Vec::new(),
            training: TrainOptions::default(),
            publishes_models: true,
            lease: None,
            believed: BELIEVED,
            read_only: None,
            pool: PoolAddresses::default(),
            data: None,
            unix_time: Arc::new(SystemUnixTime::new()),
            author_secret: None,
            proxy_pace: ProxyPace::default(),
            engines: engine::REGISTERED,
        }
    }
}

impl NodeOptions {
    /// The lease at a node whose fences end processes or not.
    pub(crate) fn lease(&self, ends_processes: bool) -> Result<Duration, StartError> {
        let usual = if ends_processes { LEASE_OF_PROCESSES } else { LEASE_OF_CONNECTIONS };
        let lease = self.lease.unwrap_or(usual);
        if (LEASE_MIN..=LEASE_MAX).contains(&lease) {
            return Ok(lease);
        }
        Err(StartError::Lease { min: LEASE_MIN, max: LEASE_MAX, got: lease })
    }
}

//! Farsight: an in-memory, ordered key-value store whose clients read the data where it lies.
//!
//! A client predicts with a small learned model where a key is and reads exactly those bytes out of the
//! server's memory. The server's processor takes part in writes only. Over shared memory, the fabric of one
//! host, a batch of reads costs little more than its cache misses.
//!
//! ```
//! use farsight::{Answers, Options, Server, WriteOutcome};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let socket = directory.path().join("example.sock");
//! // A server: in a program of its own (`farsight serve`), or embedded in yours.
//! let server = Server::builder().socket(&socket).table_memory_bytes(64 << 20).start()?;
//!
//! // A client, in this process or any other on the host.
//! let client = farsight::connect(&server.url().to_string())?;
//! let prices = client.create_table::<u64>("prices", 8)?;
//!
//! // A session: one a thread.
//! let mut session = prices.session(Options::default())?;
//! session.put(100, b"8 bytes.")?;
//! session.put(200, b"another.")?;
//! assert_eq!(session.get(100)?.unwrap().value, b"8 bytes.");
//! assert_eq!(session.get(150)?, None);
//! assert!(matches!(session.insert(100, b"present.")?, WriteOutcome::Exists(_)));
//!
//! // Only if nobody has written the key meanwhile.
//! let read = session.get(200)?.unwrap();
//! let written = session.compare_and_set(200, read.version, b"a third.")?;
//! assert!(matches!(written, WriteOutcome::Replaced(_)));
//!
//! // Many keys at once: the fast way.
//! let mut answers = Answers::default();
//! session.multi_get(&[100, 150, 200], &mut answers)?;
//! assert!(answers.get(0).is_some() && answers.get(1).is_none());
//!
//! // In key order.
//! for pair in session.scan(150..) {
//!     let (key, entry) = pair?;
//!     println!("{key}: {:?}, version {}", entry.value, entry.version);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What is promised
//!
//! - Operations on one key are linearizable: a read sees every write that was acknowledged before it began.
//! - A conditional write ([`Session::compare_and_set`] and its siblings, [`Session::fetch_add`],
//!   [`Session::swap`]) looks at its key and changes it in one step. No other write comes between.
//! - A scan returns pairs that were each there at an instant during it, none skipped, none twice.
//! - A write acts once, however often its connection is lost.
//! - A client never waits for ever. A server's death is noticed within a second; a write of which nobody
//!   knows any more what became is [`WriteError::Indeterminate`], which says what that means.
//! - Bytes of a broken or hostile peer end in an error, not in undefined behaviour.
//!
//! Values have one size a table, 8 to 256 bytes, or any length. Keys are [`Key`]s, or bytes of any length
//! ([`KeyType`]). Tables live in the server's memory and end with it, unless it has a directory of data.
//!
//! # Restarts
//!
//! When the server is gone, the next call that needs it connects again. It tries for at most
//! [`ConnectOptions::reconnect_timeout`], counted from the moment at which the loss was noticed. Calls after
//! that try once and fail at once, until one of them finds the server back. All clones, tables and sessions
//! of a client share the new connection.
//!
//! - Reads are begun again by themselves. Each answers from one epoch of the server.
//! - A write that was sent is repeated as the same write: the server executes it once, and tells what became
//!   of it. That holds for single writes and batches, conditional ones too, in tables of XStore and XStore-D,
//!   over TCP and RDMA. A server that was started again with its directory of data knows it still. Without
//!   such a directory, or without a connection in time, it is [`WriteError::Indeterminate`]. So it is over
//!   shared memory, and in tables of other engines. One that was not sent waits for the new connection as a
//!   read does.
//! - A restarted server has another [`Epoch`] ([`Client::epoch`], [`Session::epoch`]), in
//!   which tables are found by name. One that is not there (a server without a
//!   directory of data has lost its tables) is
//!   [`OpenError::TableGone`], one that is defined otherwise [`OpenError::OtherDefinition`]. A session goes
//!   on once the table is there again.
//! - A [`Scan`] that had begun ends with [`ReadError::ScanCut`] in another epoch of the server, because its
//!   pairs would be of two. After a loss of nothing but the connection it goes on where it was. A
//!   [`BulkLoad`] ends.
//! - A table may be dropped or renamed, or exchange its name with another's ([`Client::swap_tables`]).
//!   Sessions follow the name. Within a second they go on with the table to which it leads, or fail with
//!   [`OpenError::TableGone`]; each batch is of one table. A scan that had begun ends with
//!   [`ReadError::ScanMoved`], a [`BulkLoad`] into a dropped table with a refusal.
//! - A client that its server fenced ([`FabricError::Dismissed`]) or that was forked stays out. One of a
//!   memory pool whose nodes fenced it, because others waited for a lock of it, goes on as after a loss.
//!
//! A session that is not used after its server's death keeps the dead server's memory mapped until it is used
//! again or dropped.
//!
//! # Threads and processes
//!
//! [`Client`] and [`Table`] are shared and cheap to clone; a [`Session`] belongs to one thread. All sessions
//! of a process on a table share one cache of its model. Asynchronous programs clone an [`AsyncTable`] into
//! their tasks. A client does not survive `fork`: connect in the
//! child.

#![forbid(unsafe_code)]

mod addresses;
mod all_pairs;
mod asynchronous;
mod bulk_load;
mod client;
mod compute_node;
mod conditional;
mod copies;
mod data;
mod default_socket;
mod engine;
mod error;
mod expiry;
mod key;
mod neighbours;
mod pairs;
mod registered;
mod repair;
mod resolve;
mod scan;
mod server;
mod session;
mod table;
mod training;
mod url;
mod value;

/// The programs that the project's README shows.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}

pub use addresses::Addresses;
pub use all_pairs::{AllPairs, IntoPairs};
pub use asynchronous::{AsyncError, AsyncTable};
pub use bulk_load::BulkLoad;
pub use client::{Client, ConnectOptions, connect};
pub use compute_node::{ComputeNode, ComputeNodeError, ComputeNodeOptions};
pub use conditional::{Added, Exchanges, Swapped};
pub use copies::{CopiesError, ImportOptions, TableCopied, export_tables, import_tables};
pub use data::{
    BackupReport, DataRecord, DataReport, DataTable, back_up_data, directory_archive, read_data, restore_data,
};
pub use default_socket::{DefaultSocketError, default_socket};
pub use engine::TableOptions;
pub use error::{ConnectError, PoolRepairError, TableError};
pub use farsight_base::Epoch;
#[doc(hidden)]
pub use farsight_base::report::report;
pub use farsight_base::report::with_causes;
pub use farsight_base::vectors::{UnknownVectors, Vectors};
pub use farsight_client::{
    Access, CachePolicy, CacheStats, CatalogueError, EngineError, Lifetime, LoadError, OpenError, Origin,
    PoolError, ReadError, ReadsByOthers, RepairError, RepairProgress, Repaired, ValueCache, WriteError,
};
pub use farsight_cluster::{
    ClusterError, ClusterUrl, ClusterUrlError, Etcd, EtcdOptions, Known, MapRecord, without_password,
};
pub use farsight_durability::{Archive, DurabilityError, Pieces};
pub use farsight_fabric::{FabricError, Meters};
pub use farsight_fabric_shm::check_write_protection;
pub use farsight_fabric_tcp::{Tls, TlsError, Waiting};
pub use farsight_fabric_verbs::{DeviceReport as RdmaDevice, devices as rdma_devices};
pub use farsight_index::{Answers, Counters, EngineKind, UnfitTable, UnknownEngine};
pub use farsight_layout::{FORMAT_VERSION, VALUE_BYTES_MAX, VALUE_BYTES_MIN};
pub use farsight_node::ShutdownError;
pub use farsight_protocol::{
    Ack, BlockSpaceStats, DataStats, ErrorCode, Expiry, HashIndexStats, KeyKind, ListenerStats, MemoryStats,
    ModelStats, NodeStats, Operand, POOL_NODES_MAX, PartStats, Proxy, RegionInfo, ServerError, SnapshotStats,
    Space, SpaceStats, TableDefinition, TableEngine, TableId, TableInfo, TableStats, TreeStats, ValueKind,
    WriteOperation, WriteOutcome,
};
pub use key::{Key, KeyType};
pub use neighbours::Neighbour;
pub use pairs::{Pair, Pairs};
pub use repair::repair;
pub use scan::{Keys, Scan};
pub use server::{Server, ServerBuilder, StartError};
pub use session::{Entry, Session};
pub use table::{Options, Table};
pub use training::PoolTraining;
pub use url::{Endpoint, EndpointProblem, ServerUrl, UrlError};
pub use value::Value;

/// For the program `farsight` alone.
#[doc(hidden)]
pub use farsight_base::report::say;

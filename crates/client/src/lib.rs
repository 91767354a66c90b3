//! A client of one server. A [`Client`] has connection and catalogue, a [`Table`] the cache that all sessions
//! of a process share. One thread reads and writes with a [`Session`].
//!
//! Invariant: connection, queue pairs and caches belong to one epoch of the server ([`nodes`]). Whatever is
//! cached was learned in that epoch, so nothing needs invalidating when a server is started again. The
//! connection is lost, and the next call makes a new one ([`reconnect`]). There the caches begin empty,
//! but for those of ROLEX tables whose nodes live in the same epochs. Keys are `u64` here; the facade encodes
//! other kinds.
//!
//! Protocol: rare requests (tables, statistics) go as control calls over a queue pair that the client keeps
//! behind a lock. A session owns a queue pair of its own and takes no lock. A write call whose connection was
//! lost is repeated, and acts once (docs/protocol/repeats.md). One of which no node can tell what became is
//! [`WriteError::Indeterminate`].

#![forbid(unsafe_code)]

mod ask;
mod attached;
mod backend;
mod bulk_load;
mod call;
mod client;
mod connect;
mod engine;
mod error;
mod expiry;
mod find_pool;
mod fixed_session;
#[cfg(injected)]
pub mod injected;
mod keeper;
mod nodes;
mod pairs_cursor;
mod pool;
mod reconnect;
mod repair;
mod repeat;
mod scan_cursor;
mod server_time;
mod session;
mod session_key;
mod table;
mod writes_load;

pub use backend::{NewTable, Training};
pub use bulk_load::{BulkLoad, Load};
pub use client::{Client, ClientOptions};
pub use connect::{Dial, DialTo, connect};
pub use engine::rolex::PoolTrainer;
pub use engine::unordered::NoOrder;
pub use engine::{Attachment, AwaitRecalls, ClientEngine, ClientEngines, FoundEngine, OpenedTable, Sharing};
pub use error::{CatalogueError, LoadError, OpenError, ReadError, WriteError};
pub use expiry::Lifetime;
pub use farsight_index::{
    Access, CachePolicy, CacheStats, Direction, EngineError, EngineKind, ReadsByOthers, ScanRequest,
    ValueCache,
};
pub use farsight_index_rolex::{GroupSizes, Reclaimed, Trained};
pub use farsight_protocol::TableEngine;
pub use find_pool::{FoundPool, find_pool};
pub use fixed_session::FixedSession;
pub use keeper::Keeper;
pub use pairs_cursor::{PairsCursor, TablePair};
pub use pool::{PoolClient, PoolError, PoolLinks};
pub use repair::{RepairError, RepairProgress, Repaired, repair};
pub use scan_cursor::ScanCursor;
pub use session::{Origin, Session};
pub use session_key::SessionKey;
pub use table::Table;

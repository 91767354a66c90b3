//! A client of one server: the connection and catalogue ([`Client`]), a table with the learned cache that all
//! of a process's sessions share ([`Table`]), and what a thread reads and writes with ([`Session`]).
//!
//! Invariant: a client lives within one epoch of its server. Whatever it caches was learned in that epoch, so
//! nothing needs invalidating when a server restarts: the connection is lost, every call says so, and a new
//! client starts with empty caches. Keys are `u64` here; the facade encodes other kinds.
//!
//! Protocol: rare requests (tables, statistics) go as control calls over a queue pair that the client keeps
//! behind a lock. A session owns a queue pair of its own and takes no lock. A write whose reply was lost is
//! reported as [`WriteError::Indeterminate`] and never repeated by itself.

#![forbid(unsafe_code)]

mod bulk_load;
mod call;
mod client;
mod error;
mod scan_cursor;
mod session;
mod table;

pub use bulk_load::BulkLoad;
pub use client::Client;
pub use error::{CatalogueError, LoadError, ReadError, WriteError};
pub use farsight_index_xstore::client::{Access, CacheStats, ScanRequest};
pub use scan_cursor::ScanCursor;
pub use session::Session;
pub use table::Table;

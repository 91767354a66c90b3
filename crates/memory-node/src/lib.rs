//! A memory node of a pool: it owns regions that compute nodes read and write one-sided, and answers rare
//! requests.
//!
//! Invariants:
//! - a block is given to one compute node at a time, and to another only after it was freed, or after its
//!   owner's verbs can execute no more;
//! - a number that home gave to a table or a compute node is never given again in home's life;
//! - a table belongs to one pool: the lives of all its nodes, in one order. A node never serves a table for
//!   another;
//! - a process is ended only for a lock that was seen to stand for a lease, and never one that serves memory;
//! - of a ROLEX table no request is on the data path: what a processor does here is done once in hundreds of
//!   operations. An XStore-D table's part is a server's table ([`farsight_server`]), and so are its requests.
//!
//! The protocols are docs/protocol/pool.md and docs/protocol/xstore-d.md.

#![forbid(unsafe_code)]

mod blocks;
mod call;
mod compute_nodes;
mod fence;
mod leases;
mod memory_node;
mod options;
mod runs;
mod state;
mod table;
mod tables;

pub use farsight_node::{ShutdownError, StartError};
pub use memory_node::{MemoryNode, MemoryNodeHandle};
pub use options::MemoryNodeOptions;
pub use state::NodeState;
pub use tables::TABLES_MAX;

/// A worker of a memory node.
pub type Worker = farsight_node::Worker<NodeState>;

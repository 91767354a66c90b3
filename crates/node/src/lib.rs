//! A node: it hosts tables by engine in regions that clients read, and write, one-sided; it executes calls,
//! gives out blocks, trains models and fences.
//!
//! A node alone is a server. Several nodes, in an order that all their clients use, are a pool; the first of
//! them is *the coordinator*, which numbers tables and compute nodes. docs/protocol/pool.md has the steps.
//!
//! Invariants:
//! - every request gets one reply, whatever its bytes, and no reply is longer than its client can receive;
//! - what a call found stays valid for as long as the call uses it, whatever becomes of the table;
//! - a number that the coordinator gave to a table or a compute node is never given again in the
//!   coordinator's epoch;
//! - a table belongs to one list of nodes. A node never serves a table for another list;
//! - a block is given to one compute node at a time, and to another only after it was freed, or after its
//!   owner's verbs can execute no more;
//! - a process is ended only for a lock that was seen to stand for a lease, and never one that serves memory;
//! - a bug met by any thread (a panic) is written to stderr once and turns every later call into a refusal
//!   that says so. The threads go on, so nobody waits for an answer that never comes. The call that met it is
//!   answered by a code of its own, because what it changed is unknown;
//! - a node with nothing to do sleeps: workers in their ports, training on its signal, control threads in
//!   their sockets.
//!
//! All work is done in steps ([`Worker::step`], [`Background::step`], [`Host::step`]) that take the time and
//! never start a thread; [`Node::start`] is the runner that gives each of them one.
//!
//! [`Host::step`]: farsight_fabric::Host::step

#![forbid(unsafe_code)]

mod answer;
mod authors;
mod background;
mod bulk_load;
mod call;
mod compute_nodes;
mod deadline_pass;
mod durable;
mod engine;
mod error;
mod failure;
mod fence;
mod flexkv;
#[cfg(any(loom, shuttle, injected))]
pub mod injected;
mod late_reply;
mod leases;
mod listeners;
mod logged;
mod memory_limit;
mod new_table;
mod node;
mod options;
mod own_map;
mod own_pool;
mod pool_view;
mod prefault;
pub mod process;
mod rolex;
mod scrub;
mod service;
mod signal;
mod state;
mod table;
mod table_name;
mod tables;
mod taking_in;
mod threads;
mod worker;
mod x_store;

pub use answer::answer;
pub use background::{Background, BackgroundState};
pub use bulk_load::{Loader, Loading, Piece};
pub use call::Calls;
pub use durable::{DataOptions, Sequencer, Snapshots};
pub use engine::{
    BackgroundWork, Call, Executed, FindHosting, HostedStats, HostedTable, Hosting, NodeEngine, NodeEngines,
    Scratch,
};
pub use error::{ShutdownError, StartError};
pub use failure::Failure;
pub use late_reply::LateReply;
pub use listeners::Listeners;
pub use logged::{LoggedTable, PairVisitor, VersionedLoad};
pub use new_table::NewTable;
pub use node::{Node, NodeHandle};
pub use options::NodeOptions;
pub use own_map::OwnMap;
pub use own_pool::OwnPool;
pub use rolex::PooledTable;
pub use scrub::{Checked, PASS_PAUSE};
pub use service::{Executor, Service};
pub use signal::Signal;
pub use state::NodeState;
pub use table_name::TableName;
pub use tables::TABLES_MAX;
pub use threads::{Stop, Threads};
pub use worker::Worker;

/// Addresses of one process at most.
pub const LISTENERS_MAX: usize = 16;
/// Worker threads at one address at most.
pub const WORKERS_MAX: usize = 256;

//! ROLEX: a learned index in a memory pool that compute nodes read and write one-sided.
//!
//! Invariant: the leaf decides. Lock, fences and right sibling stand in the leaf. Whatever else says where a
//! key may be is a hint, and a wrong one costs time only.

#![forbid(unsafe_code)]

mod buffers;
mod bulk_load;
mod cache;
mod engine;
mod error;
mod gate;
mod get;
mod get_in_two;
mod get_staged;
#[cfg(any(loom, shuttle, injected))]
pub mod injected;
mod locking;
mod member;
mod overtaken;
mod place;
mod plan;
mod repair;
mod rooms;
mod scan;
mod session;
mod together;
mod train;
mod transfer;
mod turns;
mod walk;
mod write;
mod write_staged;

pub use bulk_load::{BulkLoadError, BulkLoaded, BulkLoader};
pub use cache::{
    CANDIDATES_MAX, CacheBytes, CacheSession, Candidates, ERROR_BOUND, Group, GroupId, LearnedError,
    MetaRegion, PostedSplit, RolexCache,
};
pub use engine::RolexEngine;
pub use error::RolexError;
pub use member::{CallResult, ComputeNodeLocks, LOCKS_A_NUMBER, NextNumber, PoolCalls};
pub use place::{LeafPlace, NODES_MAX, NodeLeaves, PoolTable};
pub use plan::{Planned, Write, plan};
pub use session::RolexSession;
pub use train::{
    CoordinatorLines, GroupSizes, LineSource, LinesError, Reclaimed, TrainError, Trained, Trainer,
};
pub use walk::FoundLeaf;

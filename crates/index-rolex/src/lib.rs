//! ROLEX: a learned index in a memory pool that compute nodes read and write one-sided.
//!
//! Invariant: the leaf decides. Lock, fences and right sibling stand in the leaf; whatever else says where a
//! key may be is a hint, and a wrong one costs time only.

#![forbid(unsafe_code)]

mod cache;
mod place;
mod plan;
mod train;
mod transfer;

pub use cache::{
    CANDIDATES_MAX, CacheBytes, CacheSession, Candidates, ERROR_BOUND, Group, GroupId, LearnedError,
    MetaRegion, PostedSplit, RolexCache,
};
pub use place::{LeafPlace, NODES_MAX, NodeLeaves, PoolTable};
pub use plan::{Planned, Write, plan};
pub use train::{GROUP_LEAVES, HomeLines, LineSource, LinesError, TrainError, Trained, Trainer};

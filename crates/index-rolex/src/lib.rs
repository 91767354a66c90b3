//! ROLEX: a learned index in a memory pool that compute nodes read and write one-sided.
//!
//! Invariant: the leaf decides. Lock, fences and right sibling stand in the leaf; whatever else says where a
//! key may be is a hint, and a wrong one costs time only.

#![forbid(unsafe_code)]

mod place;
mod plan;

pub use place::{LeafPlace, NODES_MAX, NodeLeaves, PoolTable};
pub use plan::{Planned, Write, plan};

//! The server's half of XStore: a concurrent B+tree, and the training of models. The tree's leaves lie in a
//! region that clients READ, and find by those models.
//!
//! Invariants:
//! - the leaves' fences tile the key space: every key belongs to exactly one leaf of the chain, and its own
//!   bytes say so. Neither the inner nodes nor a hint nor a model are needed for that; they only lead there;
//! - a leaf is written under its latch alone, by this process alone; it is read without one by everybody;
//! - versions come from one counter, taken under the latch of the key's leaf: those of a key only grow.
//!
//! Protocol of a write: find the leaf (by a client's hint, or down the tree), latch it, check its fences,
//! write. Of a read: go down the tree without a lock, read the leaf as a client would. A leaf that is full
//! splits (`split.rs`), one with few pairs is merged with a neighbour (`merge.rs`), and so are inner nodes
//! with few children (`rebalance.rs`). Latches are taken from left to right, inner nodes are locked after
//! latches, and every wait has a bound.
//!
//! A `LeafListener` hears of every leaf whose incarnation changed; the models that name it are trained again.

mod arena;
mod block_copy;
mod block_draft;
mod block_exchange;
mod block_leaf;
mod block_staged;
mod block_tree;
mod block_versioned;
mod bulk_load;
mod collect;
mod conditional;
mod descend;
mod error;
mod expiry;
mod get;
mod insert;
mod latch;
mod leaf;
mod merge;
mod model_store;
mod model_tree;
#[cfg(all(test, shuttle))]
mod models;
mod node;
mod parent;
mod pieces;
mod published;
mod put;
mod rebalance;
mod remove;
mod scan;
mod scrub;
mod split;
mod stats;
mod train;
mod tree;
mod update;
mod versioned;
mod write_many;

pub use block_exchange::Exchanged;
pub use block_leaf::{BlockLeaf, LatchedBlockLeaf};
pub use block_staged::{DraftWrite, StagedValue};
pub use block_tree::{BlockReadError, BlockRoom, BlockTree, BlockWriteError, ShortValue};
pub use block_versioned::StagedReference;
pub use bulk_load::{BulkLoaded, BulkLoader};
pub use collect::CollectedLeaves;
pub use error::{BulkLoadError, WriteError};
pub use expiry::Swept;
pub use get::Sighting;
pub use leaf::{LatchedXStoreLeaf, XStoreLeaf};
pub use model_store::{ModelStore, PublishedModel};
pub use model_tree::{Branch, ModelPath, ModelSlot, SubModelImage};
pub use train::{Trainer, TrainingError, TrainingStep};
pub use tree::XTree;
pub use versioned::{Applied, VersionedWrite};

//! A leaf of a memory pool: XStore's leaf, and behind it the control lines that its writers share.
//!
//! Invariants:
//! - a reader needs the leaf's own lines alone, by the same rules as in XStore; control lines are read and
//!   written under the lock;
//! - a writer that changes a leaf holds its lock. It plans the change on a private copy of the whole block as
//!   a list of ordered WRITEs ([`Writes`]). After any prefix of them, cut inside a WRITE at any word, a
//!   reader sees a legal leaf. From there [`LockedLeaf::repair`] makes the leaf before or the leaf after;
//! - what cannot be undone or redone from the leaf alone stands in the journal before its first WRITE.

mod block;
mod journal;
mod lock;
mod locked;
mod rewrite;
mod search;
mod writes;

pub use block::BlockGeometry;
pub use journal::{
    ANCHOR_BIT, CHECK_WORD, FLOOR_WORD, Journal, JournalWords, Neighbour, Rewrite, ValueWords,
};
pub use lock::{CLOSED_BIT, COMPUTE_NODE_BITS, LOCK_SEQUENCE_BITS, LockWord};
pub use locked::LockedLeaf;
pub use search::{BlockSearch, hit_in_block, lock_of, miss_in_block, search_block};
pub use writes::Writes;

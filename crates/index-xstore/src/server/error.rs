//! What can go wrong in a tree. Every error leaves the tree as it was.

use farsight_index::{Contended, RegionFull, Undecided};
use farsight_layout::PAIR_VERSION_BITS;
use farsight_protocol::INTEGER_BYTES;

/// A write that could not be done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WriteError {
    /// The value, with what the write expects, has another size than in this table.
    #[error("key {key}: the write brings {got} B, this table's bring {expected} B")]
    ValueSize {
        /// The key.
        key: u64,
        /// The size of such a write's operand in the table.
        expected: usize,
        /// The size that came.
        got: usize,
    },
    /// There is nothing to add to.
    #[error(
        "key {key}: fetch-and-add wants integers of {INTEGER_BYTES} B, the table's values have {value_bytes} B"
    )]
    NotInteger {
        /// The key.
        key: u64,
        /// The table's size.
        value_bytes: usize,
    },
    /// The write could not look at the pair that is there.
    #[error("key {key}: {source}")]
    Undecided {
        /// The key.
        key: u64,
        /// Why.
        source: Undecided,
    },
    /// The leaf must split and the region has no block left.
    #[error("key {key}: {full}")]
    RegionFull {
        /// The key.
        key: u64,
        /// The region.
        full: RegionFull,
    },
    /// All versions were given out.
    #[error(
        "key {key}: all 2^{PAIR_VERSION_BITS} versions of the table are used up; load it into a new table"
    )]
    VersionsExhausted {
        /// The key.
        key: u64,
    },
    /// A wait came to its bound.
    #[error(transparent)]
    Contended(#[from] Contended),
}

/// A bulk load that could not be done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BulkLoadError {
    /// The tree holds pairs, or held more than its first leaf.
    #[error(
        "a bulk load needs a tree that is empty and never had a second leaf; this one has {pairs} pairs in \
         {leaves} leaves"
    )]
    NotEmpty {
        /// Pairs in the tree.
        pairs: u64,
        /// Leaves in the tree.
        leaves: u64,
    },
    /// A key is below the one before it.
    #[error(
        "pair {index}: key {key} is below the key before it, {previous}; a bulk load wants ascending keys"
    )]
    Unsorted {
        /// Which pair, from zero.
        index: u64,
        /// Its key.
        key: u64,
        /// The key before it.
        previous: u64,
    },
    /// A key equals the one before it.
    #[error("pair {index}: key {key} came twice; a bulk load wants each key once")]
    Duplicate {
        /// Which pair, from zero.
        index: u64,
        /// Its key.
        key: u64,
    },
    /// A pair could not be stored.
    #[error("pair {index}: {error}")]
    Write {
        /// Which pair, from zero.
        index: u64,
        /// Why.
        error: WriteError,
    },
}

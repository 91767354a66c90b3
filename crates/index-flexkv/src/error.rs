//! What can go wrong in an operation.

use std::error::Error;
use std::sync::Arc;

use farsight_fabric::FabricError;
use farsight_index::{Key, OwnedKey, Undecided};
use farsight_layout::hash_index::HASH_SPLIT_BITS;

use crate::EnumerationFault;

/// A failure of one operation. But for [`FlexError::Indeterminate`], a write that ends so changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum FlexError {
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// A write was under way when the fabric failed: it may have happened or not.
    #[error("whether the write of key {key} happened is unknown: {source}")]
    Indeterminate {
        /// The key.
        key: OwnedKey,
        /// What failed.
        source: FabricError,
    },
    /// Others changed the key's slots each time.
    #[error("key {key}: its slots changed under each of {attempts} attempts. Try again")]
    Contended {
        /// The key.
        key: OwnedKey,
        /// Attempts.
        attempts: u32,
    },
    /// It was not known in time what the write changes.
    #[error("key {key}: the write came too late to be decided. Nothing changed")]
    Late {
        /// The key.
        key: OwnedKey,
    },
    /// All slots in which the key may stand are others', and the node has no units to split their subtable.
    #[error(
        "key {key}: all slots in which it may stand are used. The index of the pool's memory node {} has {units} \
         units of subtables, of which {resting} rest until other compute nodes end: give the table more memory",
        node + 1
    )]
    Full {
        /// The key.
        key: OwnedKey,
        /// The node's index.
        node: usize,
        /// Its units.
        units: u32,
        /// Of those, units with subtables that were split.
        resting: u32,
    },
    /// All slots in which the key may stand are others', and their subtable was split as often as any is.
    #[error(
        "key {key}: all slots in which it may stand are used, and their subtable was split {splits} times, \
         at most {HASH_SPLIT_BITS}: give the table more memory, or choose keys whose hashes differ more"
    )]
    Deepest {
        /// The key.
        key: OwnedKey,
        /// How often it was split.
        splits: u32,
    },
    /// A directory has a word that nobody writes.
    #[error(
        "key {key}: the directory of partition {partition} of the pool's memory node {}: expected two units \
         below {units}, got {got:#018x}",
        node + 1
    )]
    Directory {
        /// The key.
        key: OwnedKey,
        /// The node's index.
        node: usize,
        /// The partition.
        partition: usize,
        /// Units of the node.
        units: u32,
        /// The word.
        got: u64,
    },
    /// A slot names an object that is damaged.
    #[error("key {key}: the object at line {line} of the pool's memory node {} is damaged: {source}", node + 1)]
    Damaged {
        /// The key of the operation.
        key: OwnedKey,
        /// The node's index.
        node: usize,
        /// The object's first line.
        line: u32,
        /// What is wrong with it.
        source: farsight_layout::value_block::BlockFault,
    },
    /// The value is longer than an object holds, or the operand none of this operation.
    #[error("key {key}: {got_bytes} B are no operand of this write, whose values have at most {max_bytes} B")]
    Operand {
        /// The key.
        key: OwnedKey,
        /// Bytes of the operand.
        got_bytes: usize,
        /// Bytes of a value at most.
        max_bytes: usize,
    },
    /// What is stored of a value has no room for its deadline: no compute node writes such an object.
    #[error("key {key}: {got_bytes} B are stored of its value, fewer than its deadline has")]
    NoDeadline {
        /// The key.
        key: OwnedKey,
        /// What is stored.
        got_bytes: usize,
    },
    /// The value does not suit the write.
    #[error("key {key}: {source}")]
    Undecided {
        /// The key.
        key: OwnedKey,
        /// Why.
        source: Undecided,
    },
    /// There is no such version.
    #[error(
        "version {version} is above the greatest, 2^48 - 1: make a new table, with clocks that are right"
    )]
    NoVersions {
        /// The version.
        version: u64,
    },
    /// The write that stood for this one and others of its key failed.
    #[error(transparent)]
    Absorbed(Arc<FlexError>),
    /// An enumeration cannot go on.
    #[error(transparent)]
    Enumeration(#[from] EnumerationFault),
    /// A node refused a request of the operation. What the fabric failed in is [`FlexError::Fabric`].
    #[error("memory for objects: {source}")]
    Call {
        /// Its answer.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl FlexError {
    /// What a write failed in that stood for others, to one of those.
    pub(crate) fn of_all(error: &Arc<Self>) -> Self {
        match &**error {
            Self::Fabric(source) => Self::Fabric(source.clone()),
            Self::Indeterminate { key, source } => {
                Self::Indeterminate { key: key.clone(), source: source.clone() }
            }
            _ => Self::Absorbed(Arc::clone(error)),
        }
    }

    /// What failed, of whichever write: the error behind [`FlexError::Absorbed`], else this one.
    #[must_use]
    pub fn failed_in(&self) -> &Self {
        if let Self::Absorbed(error) = self { error.failed_in() } else { self }
    }

    /// What a failed request means to the operation that made it.
    pub(crate) fn of_call(source: Box<dyn Error + Send + Sync>) -> Self {
        match source.downcast::<FabricError>() {
            Ok(error) => Self::Fabric(*error),
            Err(source) => Self::Call { source },
        }
    }

    /// What it means if the compare-and-swap that failed would have changed no pair.
    pub(crate) fn unchanged(self) -> Self {
        match self {
            Self::Indeterminate { source, .. } => Self::Fabric(source),
            error => error,
        }
    }

    /// What a failed compare-and-swap means to the write of `key`.
    pub(crate) fn of_swap(key: Key<'_>, source: FabricError) -> Self {
        match source {
            // It was refused.
            FabricError::RegionWithdrawn { .. } | FabricError::UnknownRegion { .. } => Self::Fabric(source),
            source => Self::Indeterminate { key: key.into(), source },
        }
    }
}

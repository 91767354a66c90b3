//! The tree itself: what it consists of, and how an empty one begins.

use std::sync::Arc;

use farsight_base::LeafNumber;
use farsight_base::sync::{AtomicU32, AtomicU64, Ordering};
use farsight_fabric::Region;
use farsight_index::{
    Backoff, Contended, LatchedLeaf, LeafFormat, LeafListener, LeafSpan, RegionFull, Slab, Waited,
};
use farsight_layout::{Fences, PAIR_VERSION_BITS};
use farsight_protocol::{INTEGER_BYTES, WriteOperation};

use super::arena::NodeArena;
use super::error::WriteError;
use super::stats::Counters;

/// The fences of a tree's only leaf.
pub(super) const ALL_KEYS: Fences = Fences { low: 0, high: None };
/// Attempts at a latch before the thread that wants it looks again whether it is the right one.
pub(super) const LATCH_ATTEMPTS: usize = 128;

/// A concurrent B+tree over leaves of one format. All of its methods may be called by any thread at any time.
pub struct XTree<F> {
    pub(super) format: F,
    pub(super) slab: Slab,
    pub(super) arena: NodeArena,
    pub(super) root: AtomicU32,
    /// Bulk loads under way: while there is one, some leaves are complete and not yet in the tree.
    pub(super) loads: AtomicU32,
    pub(super) counters: Counters,
    pub(super) listener: Arc<dyn LeafListener>,
    /// The leaf that was written last: where an ascending run goes on.
    pub(super) last_leaf: AtomicU32,
    pub(super) versions_taken: AtomicU64,
}

impl<F: LeafFormat> XTree<F> {
    /// An empty tree in an unused `region`. `listener` hears of each leaf whose incarnation changes.
    ///
    /// # Errors
    /// [`RegionFull`] if the region does not hold a single leaf.
    pub fn new(
        format: F,
        region: Arc<dyn Region>,
        listener: Arc<dyn LeafListener>,
    ) -> Result<Self, RegionFull> {
        let slab = Slab::new(region, format.leaf_words());
        let first = slab.allocate()?;
        let arena = NodeArena::new();
        let (root, node) = arena.allocate();
        node.fill(0, &[], &[first.0]);
        drop(node);
        let tree = Self {
            format,
            slab,
            arena,
            root: AtomicU32::new(root),
            loads: AtomicU32::new(0),
            counters: Counters::default(),
            listener,
            last_leaf: AtomicU32::new(LeafNumber::NONE.0),
            versions_taken: AtomicU64::new(0),
        };
        let mut leaf = tree.format.latch(tree.block(first), 1).expect("an unused block has no latch");
        leaf.fill(LeafSpan { fences: ALL_KEYS, next: LeafNumber::NONE }, &[], &[], &[]);
        drop(leaf);
        Ok(tree)
    }

    /// The format of the leaves.
    #[must_use]
    pub fn format(&self) -> &F {
        &self.format
    }

    /// Where the leaves stand.
    #[must_use]
    pub fn slab(&self) -> &Slab {
        &self.slab
    }

    /// The words of a leaf that the tree or its chain names.
    #[inline]
    pub(super) fn block(&self, leaf: LeafNumber) -> &[AtomicU64] {
        self.slab.block(leaf).expect("the tree names leaves of its region only")
    }

    /// Takes the next version. Called under the latch of the key's leaf, so that a key's versions only grow.
    #[inline]
    pub(super) fn next_version(&self, key: u64) -> Result<u64, WriteError> {
        self.take_versions(1).ok_or(WriteError::VersionsExhausted { key })
    }

    /// Takes `count` versions in a row and returns the first.
    #[inline]
    pub(super) fn take_versions(&self, count: u64) -> Option<u64> {
        // Relaxed: the latch of the key's leaf orders a key's versions; between keys there is no order.
        let taken = self.versions_taken.fetch_add(count, Ordering::Relaxed);
        // The counter has room for 2^16 times as many failures as there are versions.
        (taken + count < 1 << PAIR_VERSION_BITS).then_some(taken + 1)
    }

    /// Gives no version up to `last` from now on: pairs that are stored anew go on behind their old versions.
    pub fn leave_out_versions(&self, last: u64) {
        // Relaxed: as in `take_versions`.
        self.versions_taken.fetch_max(last, Ordering::Relaxed);
    }

    /// Latches a block that neither the tree nor the chain names. Only the holder of a mistaken hint can be
    /// in the way, who waits for nothing; but it may have been preempted.
    pub(super) fn latch_unnamed(&self, key: u64, leaf: LeafNumber) -> Result<F::Latched<'_>, Contended> {
        let mut backoff = Backoff::new();
        loop {
            if let Some(latched) = self.format.latch(self.block(leaf), LATCH_ATTEMPTS) {
                return Ok(latched);
            }
            backoff.pause(key, Waited::Leaf(leaf))?;
        }
    }

    pub(super) fn check_value(&self, key: u64, value: &[u8]) -> Result<(), WriteError> {
        let (expected, got) = (self.format.value_bytes(), value.len());
        if got == expected { Ok(()) } else { Err(WriteError::ValueSize { key, expected, got }) }
    }

    /// Refuses an operand that `operation` does not have in this tree.
    pub(super) fn check_operand(
        &self,
        operation: WriteOperation,
        key: u64,
        operand: &[u8],
    ) -> Result<(), WriteError> {
        let value_bytes = self.format.value_bytes();
        let (expected, got) = (self.format.operand_bytes(operation), operand.len());
        if let Some(expected) = expected.filter(|expected| *expected != got) {
            return Err(WriteError::ValueSize { key, expected, got });
        }
        if operation == WriteOperation::FetchAdd && value_bytes != INTEGER_BYTES {
            return Err(WriteError::NotInteger { key, value_bytes });
        }
        Ok(())
    }
}

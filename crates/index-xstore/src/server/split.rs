//! Making room in a leaf that has none: compaction, or a split.
//!
//! Protocol of a split, all under the left leaf's latch:
//! 1. a block for the right leaf is allocated and latched; the parent is locked and has room;
//! 2. right is filled, then left is rewritten under its next incarnation ([`LatchedLeaf::split`]);
//! 3. the separator goes into the parent, which is unlocked; then both latches are free.
//!
//! Everything that can fail fails in step 1, when nothing has changed. No writer enters right before left
//! shows the split. The latch keeps out writers that come by an old hint to right's block. The lock keeps out
//! those that come down the tree, and left's own lines those that come along the chain. Inner nodes are
//! locked last, and a thread that holds one waits for no latch, so these waits form no circle. The parent's
//! lock spans step 2 (half a microsecond). So a parent whose version did not change names exactly the leaves
//! that there are.

use farsight_base::LeafNumber;
use farsight_base::sync::Ordering;
use farsight_index::{LatchedLeaf, LeafFormat};
use farsight_layout::Fences;

use super::error::WriteError;
use super::latch::LatchedPlace;
use super::stats::Tally;
use super::tree::XTree;

/// Removed slots that make a compaction worth its cost: it pays for as many inserts.
const COMPACTED_SLOTS_MIN: usize = 4;

impl<F: LeafFormat> XTree<F> {
    /// Adds the vacant `key` to a held leaf whose slots are all spent.
    pub(super) fn add_to_full<'t>(
        &'t self,
        latched: LatchedPlace<'t, F>,
        key: u64,
        version: u64,
        value: &[u8],
        tally: &mut Tally,
    ) -> Result<(), WriteError> {
        let removed = latched.leaf.removed_slots();
        if removed >= COMPACTED_SLOTS_MIN {
            self.compact_and_add(latched, key, version, value);
            return Ok(());
        }
        match self.slab.allocate() {
            Ok(right) => self.split_and_add(latched, right, key, version, value, tally),
            // A region without a block still has the slots of removed pairs.
            Err(_) if removed > 0 => {
                self.compact_and_add(latched, key, version, value);
                Ok(())
            }
            Err(full) => Err(WriteError::RegionFull { key, full }),
        }
    }

    fn compact_and_add<'t>(&'t self, mut latched: LatchedPlace<'t, F>, key: u64, version: u64, value: &[u8]) {
        latched.leaf.compact();
        assert!(latched.leaf.insert(key, version, value), "{} has room after its compaction", latched.number);
        self.counters.compactions.fetch_add(1, Ordering::Relaxed);
    }

    fn split_and_add<'t>(
        &'t self,
        latched: LatchedPlace<'t, F>,
        right_number: LeafNumber,
        key: u64,
        version: u64,
        value: &[u8],
        tally: &mut Tally,
    ) -> Result<(), WriteError> {
        let LatchedPlace { leaf: mut left, route, .. } = latched;
        self.format.prefetch_leaf(self.block(right_number));
        let span = left.span();
        let mut right = match self.latch_unnamed(key, right_number) {
            Ok(right) => right,
            Err(contended) => {
                self.slab.free(right_number);
                return Err(contended.into());
            }
        };
        let parent = match self.lock_parent(key, route) {
            Ok(parent) => parent,
            Err(contended) => {
                drop(right);
                self.slab.free(right_number);
                return Err(contended.into());
            }
        };
        let separator = left.split(&mut right, right_number, key);
        parent.insert(separator, right_number.0);
        drop(parent);
        let (mut home, other) = if key < separator {
            (left, right)
        } else {
            tally.last_leaf = right_number;
            (right, left)
        };
        drop(other);
        assert!(home.insert(key, version, value), "a leaf has room after its split");
        drop(home);
        self.counters.leaves.fetch_add(1, Ordering::Relaxed);
        self.counters.splits.fetch_add(1, Ordering::Relaxed);
        // What left keeps is found there, as before.
        tally.changed.extend(span.map(|span| Fences { low: separator, ..span.fences }));
        Ok(())
    }
}

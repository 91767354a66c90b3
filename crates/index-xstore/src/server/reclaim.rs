//! Giving back an empty leaf: its left neighbour takes over its range, its block returns to the slab.
//!
//! Protocol:
//! 1. Latch left, latch the empty leaf, and look again: they are neighbours, and the leaf is still empty.
//!    Lock the parent that both share.
//! 2. Rewrite left with the wider fences under its next incarnation.
//! 3. Make the empty block no leaf, under its next incarnation.
//! 4. Take it out of the parent. Unlock, unlatch, free.
//!
//! Until step 3 the block truthfully answers "absent" for its range, because a writer that would insert there
//! waits for left's latch.
//!
//! It is an attempt. A latch or a lock that is not free, or a parent that changed, leaves the empty leaf
//! where it is, which is harmless. So does a leaf that is its parent's first child: at most one empty leaf a
//! parent stays, and inner nodes are never given back. A table whose keys move on for ever (ascending
//! inserts, the oldest removed) leaves one leaf and one inner node behind for each two hundred pairs.

use farsight_base::LeafNumber;
use farsight_base::sync::Ordering;
use farsight_index::{LatchedLeaf, LeafFormat};
use farsight_layout::Fences;

use super::tree::{LATCH_ATTEMPTS, XTree};

impl<F: LeafFormat> XTree<F> {
    /// Tries to give back the leaf that begins at `low`, if it is empty.
    pub(super) fn reclaim(&self, low: u64) {
        let Some((empty, fences)) = self.try_reclaim(low) else { return };
        self.slab.free(empty);
        self.counters.leaves.fetch_sub(1, Ordering::Relaxed);
        self.counters.reclaimed.fetch_add(1, Ordering::Relaxed);
        self.listener.leaves_changed(&[fences]);
    }

    /// Returns the block that holds no leaf any more, and the fences of the leaf that took its place.
    fn try_reclaim(&self, low: u64) -> Option<(LeafNumber, Fences)> {
        let route = self.descend(low).ok()?;
        let parent = self.arena.node(route.parent)?;
        let index = parent.child_index(low);
        let left_index = index.checked_sub(1)?;
        let left_number = LeafNumber(parent.child(left_index));
        if !parent.is_unchanged(route.version) {
            return None;
        }
        let mut left = self.format.latch(self.slab.block(left_number)?, LATCH_ATTEMPTS)?;
        let mut empty = self.format.latch(self.slab.block(route.leaf)?, LATCH_ATTEMPTS)?;
        let (left_span, empty_span) = (left.span()?, empty.span()?);
        let are_neighbours = left_span.next == route.leaf && left_span.fences.high == Some(low);
        if !are_neighbours || empty_span.fences.low != low || empty.pair_count() > 0 {
            return None;
        }
        let locked = parent.try_lock(route.version)?;
        left.absorb(&mut empty);
        locked.remove(index);
        drop(locked);
        Some((route.leaf, Fences { low: left_span.fences.low, high: empty_span.fences.high }))
    }
}

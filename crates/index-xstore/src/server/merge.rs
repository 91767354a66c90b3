//! Merging two leaves that hold few pairs: the left one takes over the right one's pairs and range, the right
//! one's block returns to the slab.
//!
//! Two neighbours under one parent are merged once one of them has few pairs and both together leave room for
//! inserts, as after a bulk load. A split is then several inserts away. An empty leaf is merged with any
//! neighbour. The inner nodes see to it that a leaf has a neighbour under its parent (`rebalance.rs`).
//!
//! Protocol:
//! 1. Latch left, latch right, and look again: they are neighbours, and their pairs fit. Lock the parent that
//!    both share, under the version of the descent.
//! 2. Rewrite left with the pairs of both and the wider fences, under its next incarnation.
//! 3. Make right's block no leaf, under its next incarnation. It names left, which a reader goes on to.
//! 4. Take right out of the parent. Unlock, unlatch, free the block.
//!
//! Between steps 2 and 3 both leaves hold right's pairs, and either answers for right's range. Both answer
//! truthfully, because nobody changes that range: a writer needs left's latch or right's. Right is no leaf
//! before left's latch is free. So a reader that still finds a line of right's old incarnation reads it
//! before the first write to what left took over.
//!
//! It is an attempt. A latch or a lock that is not free, or a parent that changed, leaves both leaves as they
//! are. The next removal from either tries again, and an empty leaf goes with its neighbour.

use farsight_base::LeafNumber;
use farsight_base::sync::Ordering;
use farsight_index::{LatchedLeaf, LeafFormat};

use super::descend::DescentEnd;
use super::rebalance::CHILDREN_MIN;
use super::stats::Tally;
use super::tree::{LATCH_ATTEMPTS, XTree};

/// Attempts after one removal: the inner nodes may have to be rebalanced first, and a leaf that two empty
/// neighbours have taken over still has few pairs.
const ATTEMPTS_MAX: usize = 4;

/// Two neighbours under one parent.
struct Neighbours {
    left: LeafNumber,
    right: LeafNumber,
    /// Which child right is.
    right_index: usize,
}

/// A merge that is done.
struct Merged {
    /// Pairs in the leaf.
    pairs: usize,
}

impl<F: LeafFormat> XTree<F> {
    /// Merges the leaf that begins at `low` and has few pairs with a neighbour, if both together are one
    /// leaf's.
    #[cold]
    pub(super) fn merge(&self, low: u64, tally: &mut Tally) {
        for _ in 0..ATTEMPTS_MAX {
            let Ok(route) = self.descend(low) else { return };
            let merged = self.try_merge(low, route, tally);
            let few_children =
                self.arena.node(route.parent).is_some_and(|node| node.child_count() < CHILDREN_MIN);
            let is_rebalanced = few_children && self.rebalance(low);
            let goes_on = match merged {
                Some(Merged { pairs }) => pairs <= self.format.few_pairs(),
                None => is_rebalanced,
            };
            if !goes_on {
                return;
            }
        }
    }

    fn try_merge(&self, low: u64, route: DescentEnd, tally: &mut Tally) -> Option<Merged> {
        let parent = self.arena.node(route.parent)?;
        let Neighbours { left: left_number, right: right_number, right_index } = self.choose(low, route)?;
        let mut left = self.format.latch(self.slab.block(left_number)?, LATCH_ATTEMPTS)?;
        let mut right = self.format.latch(self.slab.block(right_number)?, LATCH_ATTEMPTS)?;
        let (left_span, right_span) = (left.span()?, right.span()?);
        let are_neighbours =
            left_span.next == right_number && left_span.fences.high == Some(right_span.fences.low);
        if !are_neighbours || !self.are_one(left.pair_count(), right.pair_count()) {
            return None;
        }
        let locked = parent.try_lock(route.version)?;
        left.absorb(left_number, &mut right);
        locked.remove(right_index);
        drop(locked);
        let pairs = left.pair_count();
        drop((left, right));
        self.slab.free(right_number);
        self.counters.leaves.fetch_sub(1, Ordering::Relaxed);
        self.counters.merges.fetch_add(1, Ordering::Relaxed);
        // Left's own range is found in left, as before.
        tally.changed.push(right_span.fences);
        tally.last_leaf = left_number;
        Some(Merged { pairs })
    }

    /// The leaf of `route` and the neighbour with which it makes one leaf, by a look without a latch. The
    /// smaller one of two.
    fn choose(&self, low: u64, route: DescentEnd) -> Option<Neighbours> {
        let parent = self.arena.node(route.parent)?;
        let index = parent.child_index(low);
        let child = |index: usize| LeafNumber(parent.child(index));
        let before = index.checked_sub(1).map(|left| (left, child(left)));
        let behind = (index < parent.separator_count()).then(|| (index, child(index + 1)));
        if !parent.is_unchanged(route.version) {
            return None;
        }
        let seen = |leaf| self.slab.block(leaf).map(|words| self.format.pairs_seen(words));
        let own_pairs = seen(route.leaf)?;
        let neighbours = [before, behind].into_iter().flatten();
        let fitting = neighbours.filter_map(|(left_index, neighbour)| {
            let pairs = seen(neighbour)?;
            self.are_one(own_pairs, pairs).then_some((pairs, left_index))
        });
        let (_, left_index) = fitting.min()?;
        let [left, right] = [left_index, left_index + 1].map(child);
        Some(Neighbours { left, right, right_index: left_index + 1 })
    }

    /// True if neighbours with so many pairs are better one leaf.
    fn are_one(&self, left_pairs: usize, right_pairs: usize) -> bool {
        left_pairs + right_pairs <= self.format.bulk_load_pairs() || left_pairs == 0 || right_pairs == 0
    }
}

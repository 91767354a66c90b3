//! Inner nodes with few children: each is merged with a neighbour, or gets some of the neighbour's children.
//! A root with a single child gives way to it.
//!
//! Invariant: while nobody writes, every inner node but the root has [`CHILDREN_MIN`] children or more. (A
//! bulk load leaves one a level with fewer.) So every leaf but a tree's only one has a neighbour under the
//! same parent.
//!
//! Protocol, the same on every level:
//! 1. Lock the parent, the left node and the right node, in this order, each under the version that the walk
//!    saw.
//! 2. Give left all children of both, or half of them; then right has the others.
//! 3. Take right out of the parent, or change the separator between the two.
//! 4. Unlock the nodes that stay. Give right back to the arena, still locked, if left has all.
//!
//! A descent that is in one of these nodes finds it locked or of another version, and begins again. No
//! child's range changes, so nothing below is touched. Nobody waits for a lock here: a node that is not free
//! stays as it is until the next leaf below it has few pairs.

use farsight_base::sync::Ordering;
use farsight_index::LeafFormat;

use super::descend::DescentStep;
use super::node::CHILDREN_MAX;
use super::tree::XTree;

/// Children of two nodes that are better one: as many as a bulk load gives to a node, so that the next split
/// is far.
const MERGED_CHILDREN_MAX: usize = CHILDREN_MAX * 3 / 4;
/// Children that an inner node should have.
pub(super) const CHILDREN_MIN: usize = MERGED_CHILDREN_MAX / 2;
/// Steps of one rebalancing. A tree has nine levels at most, and a merge leaves one node a level with few
/// children.
const STEPS_MAX: usize = 16;

impl<F: LeafFormat> XTree<F> {
    /// Rebalances the inner nodes over `key`, as far as nobody else has them locked. True if any has changed.
    #[cold]
    pub(super) fn rebalance(&self, key: u64) -> bool {
        (0..STEPS_MAX).take_while(|_| self.try_rebalance(key).is_some()).count() > 0
    }

    /// Rebalances the highest node over `key` that has few children. `None`: there is none, or a node was in
    /// the way.
    fn try_rebalance(&self, key: u64) -> Option<()> {
        let mut parent = self.begin_at_root()?;
        if parent.node.level() > 0 && parent.node.child_count() == 1 {
            return self.shrink(parent);
        }
        while parent.node.level() > 0 {
            let index = parent.node.child_index(key);
            let child = self.step_to(parent, parent.node.child(index))?;
            if child.node.child_count() < CHILDREN_MIN && parent.node.child_count() > 1 {
                return self.relieve(parent, index.saturating_sub(1));
            }
            parent = child;
        }
        None
    }

    /// Makes the root's only child the root.
    fn shrink(&self, root: DescentStep<'_>) -> Option<()> {
        let locked = root.node.try_lock(root.version)?;
        // Release: the child's contents, for a reader that learns its number here. Partner: the Acquire loads
        // of `root`. The old root is still locked: a reader that is in it notices.
        self.root.store(root.node.child(0), Ordering::Release);
        self.arena.free(root.number, locked);
        Some(())
    }

    /// Makes one node of child `left_index` and the next, or shares their children evenly.
    fn relieve(&self, parent: DescentStep<'_>, left_index: usize) -> Option<()> {
        let [left, right] = [left_index, left_index + 1].map(|index| parent.node.child(index));
        let (left, right) = (self.step_to(parent, left)?, self.step_to(parent, right)?);
        let locked_parent = parent.node.try_lock(parent.version)?;
        let locked_left = left.node.try_lock(left.version)?;
        let locked_right = right.node.try_lock(right.version)?;
        let separator = parent.node.separator(left_index);
        if left.node.child_count() + right.node.child_count() > MERGED_CHILDREN_MAX {
            locked_parent.replace_separator(left_index, locked_left.share(&locked_right, separator));
            return Some(());
        }
        locked_left.absorb(&locked_right, separator);
        locked_parent.remove(left_index + 1);
        self.arena.free(right.number, locked_right);
        Some(())
    }
}

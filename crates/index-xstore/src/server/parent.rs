//! Locking a leaf's parent with room for one more child.
//!
//! Protocol: a walk splits full nodes on the way down before it passes them, so a parent always has room for
//! what a child's split hands up. It locks two nodes together only as parent and child, in this order. Nobody
//! waits while holding a lock: one that is not free sends the walk back to the root. (Nodes with few children
//! are the business of `rebalance.rs`.)

use farsight_base::sync::Ordering;
use farsight_index::{Backoff, Contended, LeafFormat, Waited};

use super::descend::DescentEnd;
use super::node::{LockedNode, Node};
use super::tree::XTree;

impl<F: LeafFormat> XTree<F> {
    /// Locks the parent of the leaf that covers `key`, whose latch the caller holds. `route` is a descent to
    /// that leaf, if there was one: while its parent has not changed, it need not be sought.
    pub(super) fn lock_parent(
        &self,
        key: u64,
        route: Option<DescentEnd>,
    ) -> Result<LockedNode<'_>, Contended> {
        if let Some(route) = route
            && let Some(node) = self.arena.node(route.parent)
            && !node.is_full()
            && let Some(locked) = node.try_lock(route.version)
        {
            return Ok(locked);
        }
        let mut backoff = Backoff::new();
        loop {
            if let Some(locked) = self.try_lock_parent(key) {
                return Ok(locked);
            }
            backoff.pause(key, Waited::InnerNodes)?;
        }
    }

    /// One walk from the root; `None` if a node was in the way, or was split: walk again.
    fn try_lock_parent(&self, key: u64) -> Option<LockedNode<'_>> {
        // Acquire: the root's contents. Partners: the Release stores of `root` in `grow`, `shrink` and
        // bulk load.
        let number = self.root.load(Ordering::Acquire);
        let mut node = self.arena.node(number)?;
        let mut version = node.begin_read()?;
        if self.root.load(Ordering::Acquire) != number {
            return None;
        }
        if node.is_full() {
            self.grow(number, node, version);
            return None;
        }
        while node.level() > 0 {
            let child = self.arena.node(node.child(node.child_index(key)))?;
            let child_version = child.begin_read()?;
            if !node.is_unchanged(version) {
                return None;
            }
            if child.is_full() {
                self.split_child(node.try_lock(version)?, child, child_version);
                return None;
            }
            (node, version) = (child, child_version);
        }
        // Locked under the version that showed room: there is room.
        node.try_lock(version)
    }

    /// Splits a full root and puts a new one above it.
    fn grow(&self, number: u32, root: &Node, version: u64) {
        let Some(locked) = root.try_lock(version) else { return };
        let (right_number, right) = self.arena.allocate();
        let separator = locked.split(&right);
        drop(right);
        let (new_number, new_root) = self.arena.allocate();
        new_root.fill(root.level() + 1, &[separator], &[number, right_number]);
        drop(new_root);
        // Release: the new nodes' contents. Partner: the Acquire loads of `root`. Before the old root is
        // unlocked, so who reads the old root under its next version sees that it is no longer the root.
        self.root.store(new_number, Ordering::Release);
        drop(locked);
    }

    /// Splits a full child of a locked node that has room.
    fn split_child(&self, parent: LockedNode<'_>, child: &Node, child_version: u64) {
        let Some(locked) = child.try_lock(child_version) else { return };
        let (right_number, right) = self.arena.allocate();
        let separator = locked.split(&right);
        drop(right);
        parent.insert(separator, right_number);
        // The parent first: who finds the child unlocked finds the right half in the parent, too.
        drop(parent);
        drop(locked);
    }
}

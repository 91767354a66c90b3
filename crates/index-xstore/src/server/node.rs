//! An inner node: separators and children, read without a lock.
//!
//! Invariants:
//! - child `i` covers the keys from separator `i - 1` (or the node's own lower bound) up to separator `i`;
//! - a node's level and bounds change only while it is locked, as its contents do;
//! - a node's contents belong together if its version was even before they were read and the same after;
//! - a version only grows, also when the node is given back and used again.
//!
//! Protocol, a seqlock a node whose version is the lock. A writer makes the even version odd by
//! compare-and-swap, changes the contents, makes it even. A reader that decides by what it read asks
//! [`Node::is_unchanged`] first. A node that is not in the tree is locked: before its first use, and from
//! the moment when it is given back until it is used again.
//!
//! Whatever a reader meets in between leads nowhere bad. A child's number may be that of a node, of a leaf or
//! of nothing: the arena and the slab know their numbers. Positions are cut to the node's size.

use farsight_base::sync::{AtomicU64, Ordering, fence};
use farsight_base::words::prefetch;

/// Separators of a node: one less than a power of two, so that the search is a fixed number of halvings. Of
/// 15, 31 and 63, 31 measured best for inserts into ten million keys. With 15 the tree has one level more.
/// With 63 a descent fetches twice the lines of the lowest level and a split moves twice the separators.
pub(super) const SEPARATORS_MAX: usize = 31;
/// Children of a node.
pub(super) const CHILDREN_MAX: usize = SEPARATORS_MAX + 1;

/// A node, at home in the arena.
#[repr(C, align(64))]
pub(super) struct Node {
    version: AtomicU64,
    /// Level (0: its children are leaves) in the high half, separators in the low one.
    shape: AtomicU64,
    separators: [AtomicU64; SEPARATORS_MAX],
    /// Two a word: what has eight bytes can be prefetched.
    children: [AtomicU64; CHILDREN_MAX / 2],
}

impl Node {
    /// A node that nobody uses yet: locked.
    pub(super) fn new() -> Self {
        Self {
            version: AtomicU64::new(1),
            shape: AtomicU64::new(0),
            separators: std::array::from_fn(|_| AtomicU64::new(0)),
            children: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// The version under which reading may begin; `None` while the node is locked.
    #[inline]
    pub(super) fn begin_read(&self) -> Option<u64> {
        // Acquire: the contents are read after the version. Partner: the Release store in `LockedNode::drop`.
        let version = self.version.load(Ordering::Acquire);
        (version & 1 == 0).then_some(version)
    }

    /// True if nothing changed since the version was `version`.
    #[inline]
    pub(super) fn is_unchanged(&self, version: u64) -> bool {
        // Acquire: the version is read after the contents. Partners: the Release fences in `try_lock` and
        // `take_unused`: who saw a changed word sees the odd version or a later one.
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version
    }

    /// Locks the node if nothing changed since the version was `version`.
    #[inline]
    pub(super) fn try_lock(&self, version: u64) -> Option<LockedNode<'_>> {
        debug_assert!(version & 1 == 0, "version {version} is a locked node's");
        // Acquire: what the last holder wrote is seen. Partner: the Release store in `LockedNode::drop`.
        self.version.compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // Release: no change is seen before the odd version. Partner: the Acquire fence in `is_unchanged`.
        fence(Ordering::Release);
        Some(LockedNode { node: self, version })
    }

    /// Holds a node that is not in the tree, on its way there. The arena gives it to one thread alone.
    pub(super) fn take_unused(&self) -> LockedNode<'_> {
        // Relaxed: the arena's lock hands the node from who gave it back to who takes it.
        let version = self.version.load(Ordering::Relaxed);
        assert!(version & 1 == 1, "version {version} is that of a node in the tree");
        // Release: as in `try_lock`, for readers who came while the node was in the tree.
        fence(Ordering::Release);
        LockedNode { node: self, version: version - 1 }
    }

    /// The node's level: 0 if its children are leaves.
    #[inline]
    pub(super) fn level(&self) -> u32 {
        (self.shape.load(Ordering::Relaxed) >> 32) as u32
    }

    /// Separators in the node.
    #[inline]
    pub(super) fn separator_count(&self) -> usize {
        (self.shape.load(Ordering::Relaxed) as u32 as usize).min(SEPARATORS_MAX)
    }

    /// Children of the node.
    #[inline]
    pub(super) fn child_count(&self) -> usize {
        self.separator_count() + 1
    }

    /// True if another child does not fit.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.separator_count() == SEPARATORS_MAX
    }

    /// Separator `index`.
    #[inline]
    pub(super) fn separator(&self, index: usize) -> u64 {
        self.separators[index].load(Ordering::Relaxed)
    }

    /// Child `index`.
    #[inline]
    pub(super) fn child(&self, index: usize) -> u32 {
        (self.children[index / 2].load(Ordering::Relaxed) >> (32 * (index % 2))) as u32
    }

    /// The child that covers `key`: how many separators are not above it. Halves without a branch; separators
    /// beyond the count are skipped by the cut at the end, because they never lie below those before them.
    #[inline]
    pub(super) fn child_index(&self, key: u64) -> usize {
        let mut position = 0;
        let mut half = CHILDREN_MAX / 2;
        while half > 0 {
            let is_right = self.separators[position + half - 1].load(Ordering::Relaxed) <= key;
            position += if is_right { half } else { 0 };
            half /= 2;
        }
        position.min(self.separator_count())
    }

    /// Asks for all of the node's lines.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch(&self.version);
        for word in (6..SEPARATORS_MAX).step_by(8) {
            prefetch(&self.separators[word]);
        }
        for word in (0..CHILDREN_MAX / 2).step_by(8) {
            prefetch(&self.children[word]);
        }
        prefetch(&self.children[CHILDREN_MAX / 2 - 1]);
    }

    fn fill(&self, level: u32, separators: &[u64], children: &[u32]) {
        assert_eq!(children.len(), separators.len() + 1, "children, and separators between them");
        // Unused separators are the greatest key: the search's halvings need ascending words.
        for index in 0..SEPARATORS_MAX {
            let separator = separators.get(index).copied().unwrap_or(u64::MAX);
            self.separators[index].store(separator, Ordering::Relaxed);
        }
        for (index, child) in children.iter().enumerate() {
            self.store_child(index, *child);
        }
        self.store_shape(level, separators.len());
    }

    fn store_child(&self, index: usize, child: u32) {
        let shift = 32 * (index % 2);
        let word = &self.children[index / 2];
        let other = word.load(Ordering::Relaxed) & !(0xffff_ffff << shift);
        word.store(other | u64::from(child) << shift, Ordering::Relaxed);
    }

    fn store_shape(&self, level: u32, separators: usize) {
        self.shape.store(u64::from(level) << 32 | separators as u64, Ordering::Relaxed);
    }
}

/// A locked node; dropping it unlocks.
pub(super) struct LockedNode<'a> {
    node: &'a Node,
    version: u64,
}

impl LockedNode<'_> {
    /// Gives the node these contents.
    pub(super) fn fill(&self, level: u32, separators: &[u64], children: &[u32]) {
        self.node.fill(level, separators, children);
    }

    /// Puts `child` to the right of the child that covers `separator`, from `separator` on.
    pub(super) fn insert(&self, separator: u64, child: u32) {
        let node = self.node;
        let (count, index) = (node.separator_count(), node.child_index(separator));
        for moved in (index..count).rev() {
            node.separators[moved + 1].store(node.separator(moved), Ordering::Relaxed);
            node.store_child(moved + 2, node.child(moved + 1));
        }
        node.separators[index].store(separator, Ordering::Relaxed);
        node.store_child(index + 1, child);
        node.store_shape(node.level(), count + 1);
    }

    /// Takes child `index` out; its left neighbour covers its keys from then on.
    pub(super) fn remove(&self, index: usize) {
        assert!(index > 0, "the first child has no left neighbour here");
        let (mut separators, mut children) = self.contents();
        separators.remove(index - 1);
        children.remove(index);
        self.node.fill(self.node.level(), &separators, &children);
    }

    /// Moves the upper half of the children into `right`, which is not in the tree yet; returns the separator
    /// between the two.
    pub(super) fn split(&self, right: &LockedNode<'_>) -> u64 {
        let (separators, children) = self.contents();
        self.cut(right, &separators, &children)
    }

    /// Takes over the children of `right`, the right neighbour from `separator` on.
    pub(super) fn absorb(&self, right: &LockedNode<'_>, separator: u64) {
        let (separators, children) = self.contents_with(right, separator);
        self.fill(self.node.level(), &separators, &children);
    }

    /// Shares the children of both evenly with `right`, the right neighbour from `separator` on; returns the
    /// separator between the two from then on.
    pub(super) fn share(&self, right: &LockedNode<'_>, separator: u64) -> u64 {
        let (separators, children) = self.contents_with(right, separator);
        self.cut(right, &separators, &children)
    }

    /// Moves the border between child `index` and the next.
    pub(super) fn replace_separator(&self, index: usize, separator: u64) {
        self.node.separators[index].store(separator, Ordering::Relaxed);
    }

    /// Gives this node the lower half of the children and `right` the upper one.
    fn cut(&self, right: &LockedNode<'_>, separators: &[u64], children: &[u32]) -> u64 {
        let kept = children.len() / 2;
        right.fill(self.node.level(), &separators[kept..], &children[kept..]);
        self.fill(self.node.level(), &separators[..kept - 1], &children[..kept]);
        separators[kept - 1]
    }

    fn contents_with(&self, right: &LockedNode<'_>, separator: u64) -> (Vec<u64>, Vec<u32>) {
        let (mut separators, mut children) = self.contents();
        let (right_separators, right_children) = right.contents();
        separators.push(separator);
        separators.extend(right_separators);
        children.extend(right_children);
        (separators, children)
    }

    /// Leaves the node locked: it is no longer in the tree.
    pub(super) fn retire(self) {
        std::mem::forget(self);
    }

    fn contents(&self) -> (Vec<u64>, Vec<u32>) {
        let count = self.node.separator_count();
        let separators = (0..count).map(|index| self.node.separator(index)).collect();
        let children = (0..=count).map(|index| self.node.child(index)).collect();
        (separators, children)
    }
}

impl Drop for LockedNode<'_> {
    fn drop(&mut self) {
        // Release: the changes are seen before the even version. Partners: the Acquire load in `begin_read`
        // and the Acquire exchange in `try_lock`.
        self.node.version.store(self.version + 2, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_counts_separators_not_above_the_key() {
        let node = Node::new();
        for count in 0..=SEPARATORS_MAX {
            let separators: Vec<u64> = (0..count as u64).map(|index| u64::MAX - 200 + 4 * index).collect();
            node.fill(0, &separators, &(0..=count as u32).collect::<Vec<_>>());
            for key in [0, u64::MAX - 1, u64::MAX].into_iter().chain(u64::MAX - 204..u64::MAX) {
                let expected = separators.iter().filter(|separator| **separator <= key).count();
                assert_eq!(node.child_index(key), expected, "{count} separators, key {key}");
                assert_eq!(node.child(expected), expected as u32);
            }
        }
    }

    #[test]
    fn insert_split_and_remove_keep_children_beside_their_separators() {
        let (node, right) = (Node::new(), Node::new());
        node.take_unused().fill(0, &[], &[100]);
        for index in (1..=SEPARATORS_MAX as u32).rev() {
            node.try_lock(node.begin_read().unwrap()).unwrap().insert(u64::from(index) * 10, 100 + index);
        }
        assert!(node.is_full());
        let before = node.begin_read().unwrap();
        let separator = node.try_lock(before).unwrap().split(&right.take_unused());
        assert!(!node.is_unchanged(before) && node.try_lock(before).is_none());
        assert_eq!(separator, 160);
        for key in 0..320_u64 {
            let side = if key < separator { &node } else { &right };
            assert_eq!(side.child(side.child_index(key)), 100 + (key / 10) as u32, "key {key}");
        }
        right.try_lock(2).unwrap().remove(3);
        assert_eq!([185, 195, 205].map(|key| right.child(right.child_index(key))), [118, 118, 120]);
    }

    #[test]
    fn neighbours_share_or_absorb_children_with_their_separators() {
        for (left_count, right_count) in [(1, 1), (1, 31), (12, 12), (11, 14), (30, 2)] {
            let (left, right) = (Node::new(), Node::new());
            let border = 10 * left_count;
            let filled = |node: &Node, from: u64, count: u64| {
                let separators: Vec<u64> = (from + 1..from + count).map(|child| 10 * child).collect();
                let children: Vec<u32> = (from..from + count).map(|child| child as u32).collect();
                node.take_unused().fill(3, &separators, &children);
            };
            filled(&left, 0, left_count);
            filled(&right, left_count, right_count);
            let (held, held_right) = (left.try_lock(2).unwrap(), right.try_lock(2).unwrap());
            let shared = held.share(&held_right, border);
            assert_eq!(left.child_count() as u64, left_count.midpoint(right_count));
            for key in 0..10 * (left_count + right_count) {
                let side = if key < shared { &left } else { &right };
                assert_eq!(side.child(side.child_index(key)), (key / 10) as u32, "key {key}");
            }
            held.absorb(&held_right, shared);
            for key in 0..10 * (left_count + right_count) {
                assert_eq!(left.child(left.child_index(key)), (key / 10) as u32, "key {key}");
            }
            assert_eq!((left.level(), right.level()), (3, 3));
        }
    }

    #[test]
    fn a_locked_node_is_not_read() {
        let node = Node::new();
        assert!(node.begin_read().is_none(), "a node without contents");
        drop(node.take_unused());
        let locked = node.try_lock(2).unwrap();
        assert!(node.begin_read().is_none() && node.try_lock(2).is_none());
        drop(locked);
        assert_eq!(node.begin_read(), Some(4));
        node.try_lock(4).unwrap().retire();
        assert!(node.begin_read().is_none());
        drop(node.take_unused());
        assert_eq!(node.begin_read(), Some(6), "a version comes once");
    }
}

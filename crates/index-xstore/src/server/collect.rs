//! Collecting leaves for training: low fences, numbers and incarnations in key order, from the lowest inner
//! level.
//!
//! The separators of that level *are* the leaves' low fences. So the trainer need not walk the chain, each
//! step of which would wait for memory. Of a leaf itself it reads only one word, its incarnation. It
//! prefetches those of a node's children together while it reads the node before.
//!
//! What a table made of this promises: a leaf whose fences differ from those collected shows another
//! incarnation than the one collected. For a node's children, (1) the trainer reads their incarnations after
//! the node, (2) then it finds the node unchanged. A split or merge holds the node locked while it changes
//! leaves. So at (2) no fence had changed since the node was read, and each incarnation belongs to the fences
//! that the node shows. A later change of the fences changes the incarnation.
//!
//! Nodes and leaves may be merged while the trainer is between two nodes. Then the next node, or its first
//! leaf, begins below where the one before ended. What the trainer appended of these keys before is
//! overtaken: it gives way to what the newer node says, so that the fences ascend.

use farsight_base::LeafNumber;
use farsight_index::{Backoff, Contended, LeafFormat, Waited};

use super::descend::BATCH_MAX;
use super::node::{CHILDREN_MAX, Node};
use super::tree::XTree;

/// Leaves in key order.
#[derive(Clone, Debug, Default)]
pub struct CollectedLeaves {
    /// The low fence of each.
    pub low_fences: Vec<u64>,
    /// Number and incarnation of each.
    pub leaves: Vec<(LeafNumber, u32)>,
}

/// A copy of one node of the lowest level.
struct Parent<'t> {
    node: &'t Node,
    version: u64,
    /// The next node's low fence; `None`: this is the last.
    high: Option<u64>,
    count: usize,
    low_fences: [u64; CHILDREN_MAX],
    leaves: [LeafNumber; CHILDREN_MAX],
}

impl<F: LeafFormat> XTree<F> {
    /// Appends the leaves that meet the keys `low..=high`, until there are at least `enough`. Returns the key
    /// from which to go on, or `None` if nothing is left.
    ///
    /// # Errors
    /// [`Contended`]; what was appended is right, but ends early.
    pub fn collect_leaves(
        &self,
        low: u64,
        high: u64,
        enough: usize,
        into: &mut CollectedLeaves,
    ) -> Result<Option<u64>, Contended> {
        let target = into.leaves.len().saturating_add(enough);
        let mut backoff = Backoff::new();
        let mut cursor = Some(low);
        let mut ahead: Option<Parent<'_>> = None;
        loop {
            let copied = cursor.map(|key| self.copy_parent(key)).transpose()?;
            if let Some(parent) = ahead.take() {
                if !self.append_leaves(&parent, low, high, into) {
                    backoff.pause(low, Waited::InnerNodes)?;
                    cursor = Some(parent.low_fences[0].max(low));
                    continue;
                }
                backoff = Backoff::new();
                let rest = parent.high.filter(|next| *next <= high);
                if rest.is_none() || into.leaves.len() >= target {
                    return Ok(rest);
                }
            }
            cursor = copied.as_ref().and_then(|parent| parent.high).filter(|next| *next <= high);
            ahead = copied;
        }
    }

    /// Asks for what [`XTree::collect_leaves`] will read of ranges whose `ends` these are, least and greatest
    /// key of each in turn, of ranges that two nodes of the lowest level cover.
    pub(super) fn prefetch_ranges(&self, ends: &[u64]) {
        let mut routes = [None; BATCH_MAX];
        self.descend_many(ends, &mut routes);
        for (range, routes) in ends.chunks_exact(2).zip(routes.chunks_exact(2)) {
            for route in routes.iter().flatten() {
                let Some(node) = self.arena.node(route.parent) else { continue };
                for index in node.child_index(range[0])..=node.child_index(range[1]) {
                    if let Some(words) = self.slab.block(LeafNumber(node.child(index))) {
                        self.format.prefetch_incarnation(words);
                    }
                }
            }
        }
    }

    /// Copies the node of the lowest level that covers `key`, and asks for its leaves' incarnations.
    fn copy_parent(&self, key: u64) -> Result<Parent<'_>, Contended> {
        let mut backoff = Backoff::new();
        loop {
            if let Some(parent) = self.try_copy_parent(key) {
                for leaf in &parent.leaves[..parent.count] {
                    if let Some(words) = self.slab.block(*leaf) {
                        self.format.prefetch_incarnation(words);
                    }
                }
                return Ok(parent);
            }
            backoff.pause(key, Waited::InnerNodes)?;
        }
    }

    fn try_copy_parent(&self, key: u64) -> Option<Parent<'_>> {
        let mut step = self.begin_at_root()?;
        let (mut low, mut high) = (0, None);
        while step.node.level() > 0 {
            let index = step.node.child_index(key);
            if index > 0 {
                low = step.node.separator(index - 1);
            }
            if index < step.node.separator_count() {
                high = Some(step.node.separator(index));
            }
            step = self.step_to(step, step.node.child(index))?;
        }
        let node = step.node;
        let count = node.separator_count() + 1;
        let mut low_fences = [low; CHILDREN_MAX];
        let mut leaves = [LeafNumber::NONE; CHILDREN_MAX];
        for index in 0..count {
            leaves[index] = LeafNumber(node.child(index));
            if index > 0 {
                low_fences[index] = node.separator(index - 1);
            }
        }
        let version = step.version;
        node.is_unchanged(version).then_some(Parent { node, version, high, count, low_fences, leaves })
    }

    /// Appends the parent's leaves that meet `low..=high`, in place of those from the first one's low fence
    /// on; false, and nothing changed, if the parent has changed.
    fn append_leaves(&self, parent: &Parent<'_>, low: u64, high: u64, into: &mut CollectedLeaves) -> bool {
        let collected = into.leaves.len();
        for index in 0..parent.count {
            let next =
                if index + 1 < parent.count { Some(parent.low_fences[index + 1]) } else { parent.high };
            if parent.low_fences[index] <= high && next.is_none_or(|next| next > low) {
                let leaf = parent.leaves[index];
                #[cfg(injected)]
                let parent = &self.with_lowest_key(parent, index);
                into.low_fences.push(parent.low_fences[index]);
                into.leaves.push((leaf, self.format.incarnation(self.block(leaf))));
            }
        }
        let is_unchanged = parent.node.is_unchanged(parent.version);
        if !is_unchanged {
            into.low_fences.truncate(collected);
            into.leaves.truncate(collected);
        } else if let Some(first) = into.low_fences.get(collected) {
            let overtaken = into.low_fences[..collected].partition_point(|low| low < first)..collected;
            into.low_fences.drain(overtaken.clone());
            into.leaves.drain(overtaken);
        }
        is_unchanged
    }

    /// The parent with the leaf's lowest key for its low fence, where that bug is injected.
    #[cfg(injected)]
    fn with_lowest_key<'t>(&self, parent: &Parent<'t>, index: usize) -> Parent<'t> {
        use farsight_index::{Direction, Pairs, ScanRequest};
        let mut pairs = Pairs::default();
        pairs.reset(self.format.value_bytes());
        let mut parent = Parent { ..*parent };
        let (block, one) = (self.block(parent.leaves[index]), ScanRequest { from: 0, limit: 1 });
        if crate::injected::TRAINED_ON_KEYS.is_injected()
            && parent.low_fences[index] > 0
            && self.format.read_pairs(block, Direction::Ascending, one, &mut pairs).is_some()
            && pairs.len() == 1
        {
            parent.low_fences[index] = pairs.pair(0).key;
        }
        parent
    }
}

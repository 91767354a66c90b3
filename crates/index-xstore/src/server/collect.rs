//! Collecting leaves for training: low fences and numbers in key order, from the lowest inner level.
//!
//! The separators of that level *are* the leaves' low fences. So the trainer need not walk the chain, each
//! step of which would wait for memory, and reads no leaf. A node's children and separators are of one
//! moment: the trainer finds the node unchanged after it has read them. A split or merge holds the node
//! locked while it changes leaves, and marks what it changed behind that.
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
    /// The number of each.
    pub leaves: Vec<LeafNumber>,
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
                if !append_leaves(&parent, low, high, into) {
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

    /// Asks for what [`XTree::collect_leaves`] will read of ranges whose `ends` these are, of ranges that two
    /// nodes of the lowest level cover.
    pub(super) fn prefetch_ranges(&self, ends: &[u64]) {
        self.descend_many(ends, &mut [None; BATCH_MAX]);
    }

    /// Copies the node of the lowest level that covers `key`.
    fn copy_parent(&self, key: u64) -> Result<Parent<'_>, Contended> {
        let mut backoff = Backoff::new();
        loop {
            if let Some(parent) = self.try_copy_parent(key) {
                #[cfg(injected)]
                let parent = self.with_lowest_keys(parent);
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

    /// The parent with the leaves' lowest keys for their low fences, where that bug is injected.
    #[cfg(injected)]
    fn with_lowest_keys<'t>(&self, mut parent: Parent<'t>) -> Parent<'t> {
        use farsight_index::{Direction, Pairs, ScanRequest};
        if !crate::injected::TRAINED_ON_KEYS.is_injected() {
            return parent;
        }
        let mut pairs = Pairs::default();
        for (low, leaf) in parent.low_fences.iter_mut().zip(&parent.leaves[..parent.count]) {
            pairs.reset(self.format.value_bytes());
            let one = ScanRequest { from: 0, limit: 1 };
            if *low > 0
                && self.format.read_pairs(self.block(*leaf), Direction::Ascending, one, &mut pairs).is_some()
                && pairs.len() == 1
            {
                *low = pairs.pair(0).key;
            }
        }
        parent
    }
}

/// Appends the parent's leaves that meet `low..=high`, in place of those from the first one's low fence
/// on; false, and nothing changed, if the parent has changed.
fn append_leaves(parent: &Parent<'_>, low: u64, high: u64, into: &mut CollectedLeaves) -> bool {
    let collected = into.leaves.len();
    for index in 0..parent.count {
        let next = if index + 1 < parent.count { Some(parent.low_fences[index + 1]) } else { parent.high };
        if parent.low_fences[index] <= high && next.is_none_or(|next| next > low) {
            into.low_fences.push(parent.low_fences[index]);
            into.leaves.push(parent.leaves[index]);
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

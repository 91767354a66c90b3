//! What the tree counts of itself.

use farsight_base::sync::{AtomicU64, Ordering};
use farsight_index::LeafFormat;
use farsight_protocol::TreeStats;

use super::tree::XTree;

/// Running counts. Relaxed everywhere: they are statistics, and nothing is decided by them.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) pairs: AtomicU64,
    /// Leaves in the chain besides the first.
    pub(super) leaves: AtomicU64,
    pub(super) splits: AtomicU64,
    pub(super) compactions: AtomicU64,
    pub(super) reclaimed: AtomicU64,
    pub(super) hint_hits: AtomicU64,
    pub(super) descents: AtomicU64,
}

impl<F: LeafFormat> XTree<F> {
    /// The tree's counts, of about one moment.
    #[must_use]
    pub fn stats(&self) -> TreeStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let root = self.arena.node(self.root.load(Ordering::Acquire));
        TreeStats {
            pairs: count(&self.counters.pairs),
            leaves: self.leaf_count(),
            inner_nodes: u64::from(self.arena.count()),
            inner_levels: root.map_or(0, |root| root.level() + 1),
            splits: count(&self.counters.splits),
            compactions: count(&self.counters.compactions),
            hint_hits: count(&self.counters.hint_hits),
            descents: count(&self.counters.descents),
        }
    }

    /// Leaves in the chain.
    #[must_use]
    pub fn leaf_count(&self) -> u64 {
        self.counters.leaves.load(Ordering::Relaxed) + 1
    }

    /// Empty leaves given back to the slab.
    #[must_use]
    pub fn reclaimed_leaves(&self) -> u64 {
        self.counters.reclaimed.load(Ordering::Relaxed)
    }

    /// Bytes of the inner nodes, allocated ahead included.
    #[must_use]
    pub fn inner_bytes(&self) -> u64 {
        self.arena.bytes()
    }
}

//! What the tree counts of itself.

use farsight_base::LeafNumber;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_index::LeafFormat;
use farsight_layout::Fences;
use farsight_protocol::{TreeStats, WriteOutcome};

use super::tree::XTree;

/// Running counts. Relaxed everywhere: they are statistics, and nothing is decided by them.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) pairs: AtomicU64,
    /// Leaves in the chain besides the first.
    pub(super) leaves: AtomicU64,
    pub(super) splits: AtomicU64,
    pub(super) compactions: AtomicU64,
    pub(super) merges: AtomicU64,
    pub(super) scrubbed: AtomicU64,
    pub(super) expired: AtomicU64,
    pub(super) hint_hits: AtomicU64,
    pub(super) descents: AtomicU64,
}

/// What a batch of writes did, counted privately: shared counters cost more than the counting.
pub(super) struct Tally {
    pub(super) inserted: u64,
    pub(super) removed: u64,
    pub(super) hint_hits: u64,
    pub(super) descents: u64,
    /// Pairs removed because their deadlines had passed.
    pub(super) expired: u64,
    /// The fences between which keys went to another leaf, by splits and merges.
    pub(super) changed: Vec<Fences>,
    /// The leaf that was written last, or [`LeafNumber::NONE`].
    pub(super) last_leaf: LeafNumber,
    /// The value that the last conditional write found.
    pub(super) old_value: Vec<u8>,
}

impl Tally {
    pub(super) fn begin(last_leaf: LeafNumber) -> Self {
        Self {
            inserted: 0,
            removed: 0,
            hint_hits: 0,
            descents: 0,
            expired: 0,
            changed: Vec::new(),
            last_leaf,
            old_value: Vec::new(),
        }
    }

    /// Begins the next batch.
    pub(super) fn go_on(&mut self) {
        self.changed.clear();
        (self.inserted, self.removed, self.hint_hits, self.descents) = (0, 0, 0, 0);
        self.expired = 0;
    }

    #[inline]
    pub(super) fn note(&mut self, outcome: WriteOutcome) {
        self.inserted += u64::from(matches!(outcome, WriteOutcome::Inserted(_)));
        self.removed += u64::from(matches!(outcome, WriteOutcome::Removed(_)));
    }
}

impl Counters {
    pub(super) fn add(&self, tally: &Tally) {
        // Wrapping: what was removed may have been inserted by a batch that is not counted yet.
        self.pairs.fetch_add(tally.inserted.wrapping_sub(tally.removed), Ordering::Relaxed);
        self.hint_hits.fetch_add(tally.hint_hits, Ordering::Relaxed);
        self.descents.fetch_add(tally.descents, Ordering::Relaxed);
        if tally.expired > 0 {
            self.expired.fetch_add(tally.expired, Ordering::Relaxed);
        }
    }
}

impl<F: LeafFormat> XTree<F> {
    /// The tree's counts, of about one moment.
    #[must_use]
    pub fn stats(&self) -> TreeStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let root = self.arena.node(self.root.load(Ordering::Acquire));
        TreeStats {
            // Never negative but for a moment between two batches.
            pairs: (count(&self.counters.pairs) as i64).max(0) as u64,
            leaves: self.leaf_count(),
            inner_nodes: u64::from(self.arena.used_nodes()),
            inner_levels: root.map_or(0, |root| root.level() + 1),
            splits: count(&self.counters.splits),
            merges: count(&self.counters.merges),
            compactions: count(&self.counters.compactions),
            hint_hits: count(&self.counters.hint_hits),
            descents: count(&self.counters.descents),
            scrubbed: count(&self.counters.scrubbed),
            expired: count(&self.counters.expired),
        }
    }

    /// Leaves in the chain.
    #[must_use]
    pub fn leaf_count(&self) -> u64 {
        self.counters.leaves.load(Ordering::Relaxed) + 1
    }

    /// Bytes of the inner nodes, those allocated ahead and those given back included.
    #[must_use]
    pub fn inner_bytes(&self) -> u64 {
        self.arena.bytes()
    }
}

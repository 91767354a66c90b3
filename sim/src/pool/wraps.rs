//! Leaves whose counters are near their ends: as if each block had been a leaf many times before.
//!
//! Invariant: a block that is no leaf is closed, as those are that come back from a chain.

use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::{Stamp, WORDS_PER_LINE};
use farsight_fabric::Region as _;
use farsight_fabric_sim::{Kind, SimRegion};
use farsight_layout::OWNER_WORD;
use farsight_layout::pool::LockWord;

use crate::Scenario;
use crate::node::Node;

impl Scenario {
    /// Whether a region of a ROLEX table has its leaves. That of directory and models has another size.
    pub(super) fn has_leaves(&self, region: &SimRegion) -> bool {
        region.words().len() as u64 * 8 == self.pool_table_bytes()
    }

    /// Gives every line of a table's leaves, which nobody has used yet, the scenario's first stamp. The
    /// coordinator's first block is the table's first leaf.
    pub(super) fn age_leaves<K: Kind>(&self, node: &Node<K>, is_coordinator: bool) {
        let block_words = self.leaf_lines() * WORDS_PER_LINE;
        for region in node.regions().iter().filter(|region| self.has_leaves(region)) {
            // Relaxed, here and below: all of it happens on one thread.
            for block in region.words().chunks_exact(block_words) {
                self.stamps(block).for_each(|stamp| stamp.store(self.first_stamp.0, Ordering::Relaxed));
            }
            let owners = region.words().iter().skip(OWNER_WORD).step_by(block_words);
            owners.skip(usize::from(is_coordinator)).for_each(|owner| {
                owner.store(LockWord::CLOSED.0, Ordering::Relaxed);
            });
        }
    }

    /// The stamps of a block: each line of the leaf has one, the control lines have none.
    fn stamps<'b>(&self, block: &'b [AtomicU64]) -> impl Iterator<Item = &'b AtomicU64> + use<'b> {
        block.iter().step_by(WORDS_PER_LINE).take(self.geometry().leaf_lines())
    }

    /// Lines of a table's leaves whose counters have begun again.
    pub(super) fn wrapped_leaf_lines<K: Kind>(&self, node: &Node<K>) -> u64 {
        let first = self.first_stamp;
        let has_wrapped = |word: u64| {
            Stamp(word).version() < first.version() || Stamp(word).incarnation() < first.incarnation()
        };
        let block_words = self.leaf_lines() * WORDS_PER_LINE;
        let wrapped = |region: &SimRegion| {
            let stamps = region.words().chunks_exact(block_words).flat_map(|block| self.stamps(block));
            stamps.filter(|word| has_wrapped(word.load(Ordering::Relaxed))).count() as u64
        };
        node.regions().iter().filter(|region| self.has_leaves(region)).map(|region| wrapped(region)).sum()
    }
}

//! Scrubbing a leaf that memory has lost a bit of.
//!
//! Protocol: a thread that waits for a leaf longer than any writer that runs takes, latches it and looks. If
//! it gets the latch and lines still say that they are being written, or do not belong together, nobody is
//! writing them. The thread makes their stamps anew under the next incarnation. It takes what the lines hold
//! as it is; a flipped bit of that shows nowhere (docs/faults.md).

use farsight_base::LeafNumber;
use farsight_base::sync::Ordering;
use farsight_index::{LatchedLeaf, LeafFormat};

use super::tree::{LATCH_ATTEMPTS, XTree};

impl<F: LeafFormat> XTree<F> {
    /// Scrubs `leaf` if it is damaged and its latch is free.
    #[cold]
    pub(super) fn scrub(&self, leaf: LeafNumber) {
        let latched = self.slab.block(leaf).and_then(|words| self.format.latch(words, LATCH_ATTEMPTS));
        let Some(mut latched) = latched else { return };
        if !latched.scrub() {
            return;
        }
        let span = latched.span();
        drop(latched);
        self.counters.scrubbed.fetch_add(1, Ordering::Relaxed);
        // Its incarnation is another one.
        if let Some(span) = span {
            self.listener.leaves_changed(&[span.fences]);
        }
    }
}

//! REMOVE: takes a present key out.

use farsight_base::LeafNumber;
use farsight_index::{LatchedLeaf, LeafFormat, Place};
use farsight_protocol::{WriteEntry, WriteOperation, WriteOutcome};

use super::error::WriteError;
use super::latch::LatchedPlace;
use super::stats::Tally;
use super::tree::XTree;

impl<F: LeafFormat> XTree<F> {
    /// Removes a pair: [`WriteOutcome::Removed`] with its last version, or [`WriteOutcome::Absent`]. `hint`
    /// as in
    /// [`XTree::insert`].
    ///
    /// # Errors
    /// [`WriteError::Contended`].
    pub fn remove(&self, key: u64, hint: LeafNumber) -> Result<WriteOutcome, WriteError> {
        self.write_one(WriteOperation::Remove, WriteEntry { key, hint, value: &[] })
    }

    #[inline]
    pub(super) fn remove_latched<'t>(
        &'t self,
        mut latched: LatchedPlace<'t, F>,
        tally: &mut Tally,
    ) -> WriteOutcome {
        let Place::Here(slot) = latched.place else { return WriteOutcome::Absent };
        let last_version = latched.leaf.version(slot);
        latched.leaf.remove(slot);
        // By lines that are at hand: only a leaf with few pairs looks at others.
        let has_few = latched.leaf.pair_count() <= self.format.few_pairs();
        let span = if has_few { latched.leaf.span() } else { None };
        drop(latched);
        if let Some(span) = span {
            self.merge(span.fences.low, tally);
        }
        WriteOutcome::Removed(last_version)
    }
}

//! REMOVE: takes a present key out.

use farsight_base::LeafNumber;
use farsight_index::{LatchedLeaf, LeafFormat, Place};
use farsight_protocol::{WriteEntry, WriteOperation, WriteOutcome};

use super::error::WriteError;
use super::hold::Held;
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
    pub(super) fn remove_held<'t>(&'t self, mut held: Held<'t, F>) -> WriteOutcome {
        let Place::Here(slot) = held.place else { return WriteOutcome::Absent };
        let last_version = held.leaf.version(slot);
        held.leaf.remove(slot);
        let emptied = if held.leaf.pair_count() == 0 { held.leaf.span() } else { None };
        drop(held);
        if let Some(span) = emptied {
            self.reclaim(span.fences.low);
        }
        WriteOutcome::Removed(last_version)
    }
}

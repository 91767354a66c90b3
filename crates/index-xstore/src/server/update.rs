//! UPDATE: replaces the value of a key that is present.

use farsight_base::LeafNumber;
use farsight_index::{LatchedLeaf, LeafFormat, Place};
use farsight_protocol::{WriteEntry, WriteOperation, WriteOutcome};

use super::error::WriteError;
use super::latch::LatchedPlace;
use super::tree::XTree;

impl<F: LeafFormat> XTree<F> {
    /// Replaces a value: [`WriteOutcome::Replaced`], or [`WriteOutcome::Absent`] and nothing changed. `hint`
    /// as in
    /// [`XTree::insert`].
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn update(&self, key: u64, value: &[u8], hint: LeafNumber) -> Result<WriteOutcome, WriteError> {
        self.write_one(WriteOperation::Update, WriteEntry { key, hint, value })
    }

    #[inline]
    pub(super) fn update_latched<'t>(
        &'t self,
        mut latched: LatchedPlace<'t, F>,
        key: u64,
        value: &[u8],
    ) -> Result<WriteOutcome, WriteError> {
        let Place::Here(slot) = latched.place else { return Ok(WriteOutcome::Absent) };
        let version = self.next_version(key)?;
        latched.leaf.update(slot, version, value);
        Ok(WriteOutcome::Replaced(version))
    }
}

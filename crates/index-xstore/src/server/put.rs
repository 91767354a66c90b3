//! PUT: stores a pair whether its key is present or not.

use farsight_base::LeafNumber;
use farsight_index::{LeafFormat, Place};
use farsight_protocol::{WriteEntry, WriteOperation, WriteOutcome};

use super::error::WriteError;
use super::latch::LatchedPlace;
use super::stats::Tally;
use super::tree::XTree;

impl<F: LeafFormat> XTree<F> {
    /// Stores a pair: [`WriteOutcome::Inserted`] or [`WriteOutcome::Replaced`]. `hint` as in
    /// [`XTree::insert`].
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn put(&self, key: u64, value: &[u8], hint: LeafNumber) -> Result<WriteOutcome, WriteError> {
        self.write_one(WriteOperation::Put, WriteEntry { key, hint, value })
    }

    #[inline]
    pub(super) fn put_latched<'t>(
        &'t self,
        latched: LatchedPlace<'t, F>,
        key: u64,
        value: &[u8],
        tally: &mut Tally,
    ) -> Result<WriteOutcome, WriteError> {
        match latched.place {
            Place::Here(_) => self.update_latched(latched, key, value),
            _ => self.insert_latched(latched, key, value, tally),
        }
    }
}

//! Writes that look at the pair before they change it: compare-and-set, conditional removal, fetch-and-add,
//! swap.
//!
//! Protocol: the writer reads the pair under the leaf's latch, decides, and changes it under the same latch.
//! So no other write comes between look and change.

use farsight_index::{Decision, LatchedLeaf, LeafFormat, Place};
use farsight_protocol::{WriteEntry, WriteOperation, WriteOutcome};

use super::error::WriteError;
use super::stats::Tally;
use super::tree::XTree;
use super::write_many::AccessPath;

impl<F: LeafFormat> XTree<F> {
    /// A conditional write. The value before is left in `tally`. It is no part of its caller, whose other
    /// writes would pay for that.
    #[inline(never)]
    pub(super) fn write_conditionally(
        &self,
        operation: WriteOperation,
        entry: WriteEntry<'_>,
        access_path: AccessPath,
        tally: &mut Tally,
    ) -> Result<WriteOutcome, WriteError> {
        let WriteEntry { key, value: operand, .. } = entry;
        self.check_operand(operation, key, operand)?;
        let mut latched = self.latch_counted(key, access_path, tally)?;
        latched.end_past(key, tally);
        let mut room = std::mem::take(&mut tally.old_value);
        room.resize(self.format.value_bytes(), 0);
        let slot = match latched.place {
            Place::Here(slot) => Some(slot),
            _ => None,
        };
        let decided = latched.leaf.decide(operation, (key, slot), operand, &mut room);
        let outcome = match decided.map_err(|source| WriteError::Undecided { key, source }) {
            Err(error) => Err(error),
            Ok(Decision::Leave(outcome)) => Ok(outcome),
            Ok(Decision::Remove) => self.write_latched(WriteOperation::Remove, latched, key, &[], tally),
            Ok(Decision::Store(stored)) => {
                self.write_latched(WriteOperation::Put, latched, key, stored.bytes(), tally)
            }
        };
        tally.old_value = room;
        outcome
    }
}

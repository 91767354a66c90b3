//! Writes that look at the pair before they change it: compare-and-set, conditional removal, fetch-and-add,
//! swap.
//!
//! Protocol: the writer reads the pair under the leaf's latch, decides, and changes it under the same latch.
//! So no other write comes between look and change.

use farsight_index::{Decision, HeldPair, LatchedLeaf, LeafFormat, Place, decide};
use farsight_protocol::{WriteOperation, WriteOutcome};

use super::error::WriteError;
use super::latch::LatchedPlace;
use super::stats::Tally;
use super::tree::XTree;

impl<F: LeafFormat> XTree<F> {
    /// Does what `operation` with this operand does to the pair of the latched leaf. The value before is left
    /// in `tally`.
    #[inline(never)]
    pub(super) fn decide_latched<'t>(
        &'t self,
        latched: LatchedPlace<'t, F>,
        operation: WriteOperation,
        (key, operand): (u64, &[u8]),
        tally: &mut Tally,
    ) -> Result<WriteOutcome, WriteError> {
        let mut room = std::mem::take(&mut tally.old_value);
        let held = match latched.place {
            Place::Here(slot) => {
                room.resize(self.format.value_bytes(), 0);
                Some(HeldPair { version: latched.leaf.pair(slot, &mut room), value: &room })
            }
            _ => None,
        };
        let outcome = match decide(operation, operand, held) {
            Decision::Leave(outcome) => Ok(outcome),
            Decision::Remove => Ok(self.remove_latched(latched, tally)),
            Decision::Store(value) => self.put_latched(latched, key, value.bytes(), tally),
        };
        tally.old_value = room;
        outcome
    }
}

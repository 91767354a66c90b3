//! Writes that look at the pair before they change it: compare-and-set, conditional removal, fetch-and-add,
//! swap.
//!
//! Protocol: the writer reads the pair under the leaf's latch, decides, and changes it under the same latch.
//! So no other write comes between look and change.

use farsight_index::{Decision, HeldPair, LatchedLeaf, LeafFormat, Place, decide};
use farsight_protocol::WriteOperation;

use super::latch::LatchedPlace;
use super::stats::Tally;
use super::tree::XTree;

impl<F: LeafFormat> XTree<F> {
    /// What `operation` with this operand does to the pair of the latched leaf. The value before is left in
    /// `tally`. It is no part of its only caller, whose other writes would pay for that.
    #[inline(never)]
    pub(super) fn decide_latched<'v>(
        &self,
        latched: &LatchedPlace<'_, F>,
        operation: WriteOperation,
        operand: &'v [u8],
        tally: &mut Tally,
    ) -> Decision<'v> {
        let room = &mut tally.old_value;
        let held = match latched.place {
            Place::Here(slot) => {
                room.resize(self.format.value_bytes(), 0);
                Some(HeldPair { version: latched.leaf.pair(slot, room), value: room })
            }
            _ => None,
        };
        decide(operation, operand, held)
    }
}

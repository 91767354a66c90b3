//! Inserts that are wrong on purpose.

use super::{LEAF_SLOTS, LeafWriter, nibble};
use crate::injected::{KEY_SHOWN_FIRST, SLOT_REUSED};
use crate::{KeyLines, LeafSlot};

impl LeafWriter<'_> {
    /// What a bug in place does before an insert, or instead of it: then the slot that it took.
    pub(super) fn insert_wrongly(&mut self, key: u64, version: u64, value: &[u8]) -> Option<LeafSlot> {
        let spent = self.spent();
        if KEY_SHOWN_FIRST.is_injected() && spent < LEAF_SLOTS {
            self.write_key_line(nibble(self.permutation(), spent), key, None);
        }
        let slot = if SLOT_REUSED.is_injected() { self.first_removed() } else { None }?;
        self.write_value(slot, version, value);
        self.write_key_line(slot, key, None);
        Some(slot)
    }

    fn first_removed(&self) -> Option<LeafSlot> {
        let lines = self.key_lines();
        let mut spent = (0..self.spent()).map(|position| nibble(self.permutation(), position));
        spent.find(|slot| !KeyLines(&lines).is_occupied(*slot))
    }
}

//! A slot's word.

use super::{SLOT_REMOVED_BITS, SLOT_REMOVED_SHIFT};
use crate::value_block::BlockRef;

/// A slot. A word of zeros was never used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct HashSlot(pub u64);

/// What a slot says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotState {
    /// No key stands here, and none did.
    Unused,
    /// A key stood here until then, in ms since the pool began.
    Removed {
        /// When it was removed.
        at_ms: u64,
    },
    /// A block stands there.
    Live(BlockRef),
    /// Nobody who keeps to the format wrote this word.
    Corrupt,
}

/// A time that a slot has no bits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("time of a removal: expected below 2^{SLOT_REMOVED_BITS} ms, got {got_ms} ms")]
pub struct TooLate {
    /// The time.
    pub got_ms: u64,
}

impl HashSlot {
    /// The slot of a block. The reference is live.
    ///
    /// # Panics
    /// If it is not.
    #[must_use]
    pub fn live(reference: BlockRef) -> Self {
        assert!(reference.is_live(), "a slot of no block: {reference:?}");
        Self(reference.0)
    }

    /// The slot of a key that was removed at that time, which is later than the pool's beginning.
    ///
    /// # Errors
    /// [`TooLate`].
    pub fn removed(at_ms: u64) -> Result<Self, TooLate> {
        // A slot of zeros would be one that was never used.
        let at_ms = at_ms.max(1);
        if at_ms >> SLOT_REMOVED_BITS == 0 {
            Ok(Self(at_ms << SLOT_REMOVED_SHIFT))
        } else {
            Err(TooLate { got_ms: at_ms })
        }
    }

    /// What it says.
    #[inline]
    #[must_use]
    pub fn state(self) -> SlotState {
        let reference = BlockRef(self.0);
        if reference.is_live() {
            return SlotState::Live(reference);
        }
        match (self.0 >> SLOT_REMOVED_SHIFT, self.0 & ((1 << SLOT_REMOVED_SHIFT) - 1)) {
            (0, 0) => SlotState::Unused,
            (at_ms, 0) => SlotState::Removed { at_ms },
            _ => SlotState::Corrupt,
        }
    }

    /// Whether another key may take it at `now_ms`, where addresses of slots count for at most `lease_ms`
    /// after their last use, clocks' difference included.
    #[must_use]
    pub fn is_free(self, now_ms: u64, lease_ms: u64) -> bool {
        match self.state() {
            SlotState::Unused => true,
            SlotState::Removed { at_ms } => now_ms > at_ms.saturating_add(lease_ms),
            SlotState::Live(_) | SlotState::Corrupt => false,
        }
    }
}

//! Memory under a model checker, whose atomics are not of a word's size: there is none. A model has words of
//! its own.

use farsight_base::sync::AtomicU64;

/// In place of [`farsight_base::heap::HeapWords`].
pub(super) enum HeapWords {}

impl HeapWords {
    pub(super) fn zeroed_for_growth(_line_count: usize) -> Option<Self> {
        None
    }

    pub(super) fn words(&self) -> &[AtomicU64] {
        match *self {}
    }

    pub(super) fn touched_bytes(&self) -> u64 {
        match *self {}
    }
}

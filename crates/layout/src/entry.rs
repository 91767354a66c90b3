//! The translation table's entry: logical position to leaf, in eight bytes.

use farsight_base::LeafNumber;

use crate::{ENTRY_HINT_BITS, ENTRY_LEAF_BITS};

/// `{leaf number 32, fence hint 16}`, lowest bits first; the rest is zero, and nobody looks at it.
///
/// Never a proof: the leaf's own fences are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableEntry(pub u64);

impl TableEntry {
    /// The entry of these fields.
    #[inline]
    #[must_use]
    pub fn new(leaf: LeafNumber, hint: u16) -> Self {
        const { assert!(ENTRY_LEAF_BITS + ENTRY_HINT_BITS <= u64::BITS) };
        Self(u64::from(leaf.0) | u64::from(hint) << ENTRY_LEAF_BITS)
    }

    /// The leaf.
    #[inline]
    #[must_use]
    pub fn leaf(self) -> LeafNumber {
        LeafNumber(self.0 as u32)
    }

    /// The leaf's low fence, quantized against its sub-model's range.
    #[inline]
    #[must_use]
    pub fn hint(self) -> u16 {
        (self.0 >> ENTRY_LEAF_BITS) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back() {
        let entry = TableEntry::new(LeafNumber(0xdead_beef), 0x1234);
        assert_eq!((entry.leaf(), entry.hint()), (LeafNumber(0xdead_beef), 0x1234));
        assert_eq!(entry.0 >> (ENTRY_LEAF_BITS + ENTRY_HINT_BITS), 0);
    }
}

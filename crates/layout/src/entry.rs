//! The translation table's entry: logical position to leaf, in eight bytes.

use farsight_base::LeafNumber;

use crate::{ENTRY_HINT_BITS, ENTRY_INCARNATION_BITS, ENTRY_LEAF_BITS};

/// `{leaf number 32, incarnation 16, fence hint 16}`, lowest bits first.
///
/// Valid for as long as the leaf keeps its incarnation. Never a proof: the leaf's own fences are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableEntry(pub u64);

impl TableEntry {
    /// The entry of these fields; the incarnation is cut to 16 bits.
    #[inline]
    #[must_use]
    pub fn new(leaf: LeafNumber, incarnation: u32, hint: u16) -> Self {
        let incarnation = u64::from(incarnation) & ((1 << ENTRY_INCARNATION_BITS) - 1);
        Self(
            u64::from(leaf.0)
                | incarnation << ENTRY_LEAF_BITS
                | u64::from(hint) << (ENTRY_LEAF_BITS + ENTRY_INCARNATION_BITS),
        )
    }

    /// The leaf.
    #[inline]
    #[must_use]
    pub fn leaf(self) -> LeafNumber {
        LeafNumber(self.0 as u32)
    }

    /// The low 16 bits of the incarnation that the leaf had at training.
    #[inline]
    #[must_use]
    pub fn incarnation(self) -> u16 {
        (self.0 >> ENTRY_LEAF_BITS) as u16
    }

    /// The leaf's low fence, quantized against its sub-model's range.
    #[inline]
    #[must_use]
    pub fn hint(self) -> u16 {
        (self.0 >> (u64::BITS - ENTRY_HINT_BITS)) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back() {
        let entry = TableEntry::new(LeafNumber(0xdead_beef), 0xab_cdef, 0x1234);
        assert_eq!(
            (entry.leaf(), entry.incarnation(), entry.hint()),
            (LeafNumber(0xdead_beef), 0xcdef, 0x1234)
        );
    }
}

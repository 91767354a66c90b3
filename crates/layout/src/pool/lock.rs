//! The lock word of a pool's leaf: who may change it.
//!
//! Invariant: a value that was ever a lock's is no other lock's, in any session of any compute node. So a
//! session that finds the same word twice has found the same holder all the time. One that exchanges the word
//! for its own has taken the lock from that holder alone.

/// Bits of the sequence in a lock word.
pub const LOCK_SEQUENCE_BITS: u32 = 31;
/// Bits of the compute node's number in a lock word.
pub const COMPUTE_NODE_BITS: u32 = 32;
/// The bit of the lock word of a block outside the chain of leaves: nobody locks it, no reader believes it.
pub const CLOSED_BIT: u32 = 63;

const _: () = assert!(LOCK_SEQUENCE_BITS + COMPUTE_NODE_BITS == CLOSED_BIT && CLOSED_BIT == u64::BITS - 1);

/// The word that says who may change a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockWord(pub u64);

impl LockWord {
    /// Nobody.
    pub const FREE: Self = Self(0);
    /// Nobody: the block is no leaf of the chain, not yet or no more.
    pub const CLOSED: Self = Self(1 << CLOSED_BIT);

    /// A session of `compute_node`, for the lock that it counts as `sequence`; that is not 0.
    ///
    /// # Panics
    /// If `sequence` is 0 or has more than [`LOCK_SEQUENCE_BITS`].
    #[must_use]
    pub fn of(compute_node: u32, sequence: u64) -> Self {
        assert!(sequence != 0 && sequence >> LOCK_SEQUENCE_BITS == 0, "lock sequence {sequence:#x}");
        Self(u64::from(compute_node) << LOCK_SEQUENCE_BITS | sequence)
    }

    /// The compute node whose session holds the lock, if one does.
    #[must_use]
    pub fn owner(self) -> Option<u32> {
        let is_held = self != Self::FREE && self.0 >> CLOSED_BIT == 0;
        is_held.then_some((self.0 >> LOCK_SEQUENCE_BITS) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_come_back_and_nobody_is_nobody() {
        assert_eq!(LockWord::of(0, 1).owner(), Some(0));
        let last = LockWord::of(u32::MAX, (1 << LOCK_SEQUENCE_BITS) - 1);
        assert_eq!((last.owner(), last.0 >> CLOSED_BIT), (Some(u32::MAX), 0));
        assert_eq!(LockWord::of(u32::MAX, 1).owner(), Some(u32::MAX));
        assert_eq!(LockWord::FREE.owner(), None);
        assert_eq!(LockWord::CLOSED.owner(), None);
    }
}

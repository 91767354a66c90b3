//! Who goes when a set is full: SIEVE (Zhang et al., NSDI'24) in a few bits.
//!
//! Invariant: addresses stand from the newest to the oldest. The hand goes from old to new, past those that
//! were used since it came by, and takes the first that was not. A new address is the newest, and unused.
//! Where uses are not marked, the hand stays at the oldest: that is FIFO.

/// Addresses of a set.
pub(super) const WAYS: usize = 7;

const HAND_SHIFT: u32 = 4;
const USED_SHIFT: u32 = 8;

/// How many addresses there are, where the hand is, and which were used.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Order {
    count: u8,
    hand: u8,
    used: u8,
}

impl Order {
    /// Bits that it takes.
    pub(super) const BITS: u32 = 16;

    /// The order in the lowest bits of a word.
    pub(super) fn from_bits(word: u64) -> Self {
        let count = (word & 0xf) as u8;
        let hand = (word >> HAND_SHIFT & 0xf) as u8;
        Self { count, hand, used: (word >> USED_SHIFT) as u8 }
    }

    pub(super) fn bits(self) -> u64 {
        let Self { count, hand, used } = self;
        u64::from(count) | u64::from(hand) << HAND_SHIFT | u64::from(used) << USED_SHIFT
    }

    /// The bit that says that the address at `index` was used.
    pub(super) fn use_bit(index: usize) -> u64 {
        1 << (USED_SHIFT as usize + index)
    }

    pub(super) fn count(self) -> usize {
        self.count.into()
    }

    pub(super) fn is_used(self, index: usize) -> bool {
        self.used >> index & 1 == 1
    }

    /// Makes room for a new address at 0. Returns the index at which those that were newer than that one
    /// end: the addresses before it move by one.
    pub(super) fn push(&mut self) -> usize {
        // Where the hand goes on once the new one stands first: at the oldest, until one had to go.
        let last = if self.count() < WAYS { self.count() } else { self.make_room() };
        self.hand = if self.count() < WAYS - 1 || last > 0 { last as u8 } else { WAYS as u8 - 1 };
        self.used <<= 1;
        self.count += 1;
        last
    }

    /// Forgets the one whose place a new one takes.
    fn make_room(&mut self) -> usize {
        let mut hand = usize::from(self.hand);
        // Passes each once at most, for that makes it unused.
        while self.is_used(hand) {
            self.used &= !(1 << hand);
            hand = if hand == 0 { WAYS - 1 } else { hand - 1 };
        }
        self.forget(hand);
        hand
    }

    /// Forgets an address: those behind it move by one. The hand begins at the oldest again.
    pub(super) fn remove(&mut self, index: usize) {
        self.forget(index);
        self.hand = self.count.saturating_sub(1);
    }

    fn forget(&mut self, index: usize) {
        let newer = (1 << index) - 1;
        self.used = self.used & newer | self.used >> 1 & !newer;
        self.count -= 1;
    }
}

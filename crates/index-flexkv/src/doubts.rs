//! Addresses that writes doubt: of keys that others write all the time.
//!
//! Invariant: a doubt says how a write begins. What it does follows from what it finds.
//!
//! A write that trusts an address swaps at once. If somebody else wrote the key since, that swap is in vain,
//! and the write needs another one: a card executes few swaps. A write that doubts looks first, for two
//! round trips. So each session predicts, as a processor predicts branches: by counters of two bits, which
//! keys share by their hashes.

use std::cell::Cell;

use farsight_layout::hash_index::KeyHash;

/// Counters, a power of two.
const COUNTERS: usize = 8192;
/// The bit of a hash with which a counter's number begins. Lower ones choose a key's memory and its set.
const SHIFT: u32 = 24;
/// A counter's greatest value, and from where on a write doubts.
const MOST: u8 = 3;
const DOUBTFUL: u8 = 2;

/// What a session has seen of addresses by which it wrote.
pub(crate) struct Doubts(Box<[Cell<u8>]>);

impl Default for Doubts {
    fn default() -> Self {
        Self(vec![Cell::new(0); COUNTERS].into())
    }
}

impl Doubts {
    /// True if a write should look before it swaps.
    pub(crate) fn is_doubtful(&self, hash: KeyHash) -> bool {
        self.counter(hash).get() >= DOUBTFUL
    }

    /// Notes whether the key's slot had the remembered word when a write came to it.
    pub(crate) fn note(&self, hash: KeyHash, was_right: bool) {
        let counter = self.counter(hash);
        let before = counter.get();
        counter.set(if was_right { before.saturating_sub(1) } else { (before + 1).min(MOST) });
    }

    fn counter(&self, hash: KeyHash) -> &Cell<u8> {
        &self.0[(hash.0 >> SHIFT) as usize % COUNTERS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_doubted_while_most_swaps_are_in_vain() {
        let doubts = Doubts::default();
        let [popular, other] = [1, 2].map(|number: u64| KeyHash(number << SHIFT));
        let after = |was_right| {
            doubts.note(popular, was_right);
            doubts.is_doubtful(popular)
        };
        assert_eq!([false, false, false, false].map(after), [false, true, true, true]);
        assert_eq!([true, false, true, true, true].map(after), [true, true, true, false, false]);
        assert!(!after(false), "one swap in vain is chance");
        assert!(!doubts.is_doubtful(other));
    }
}

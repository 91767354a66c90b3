//! A set of addresses in shared words, which one thread changes at a time and others read meanwhile.
//!
//! Invariant: what a reader takes stood in the set at one moment. The header has a sequence number, odd while
//! the set changes. A reader that finds it odd, or other than before, has found nothing. Nobody waits: a
//! thread that wants to change a set that is changing leaves it, for addresses are hints.
//!
//! Protocol of a change:
//! 1. Compare the header and swap it for one of an odd number.
//! 2. Store the words that are new.
//! 3. Store the header, of the next even number.

use farsight_base::WORDS_PER_LINE;
use farsight_base::sync::{AtomicU64, Ordering, fence};
use farsight_index::CachePolicy;
use farsight_layout::hash_index::{HashSlot, SlotPlace};

use super::Address;
use super::order::{Order, WAYS};

/// Lines of a set: header and keys, then addresses.
pub(super) const SET_LINES: usize = 4;
/// Words of a set.
pub(super) const SET_WORDS: usize = SET_LINES * WORDS_PER_LINE;
/// Words of an address.
const ADDRESS_WORDS: usize = 3;
/// Where keys begin, and addresses.
const KEYS: usize = 1;
const ADDRESSES: usize = WORDS_PER_LINE;

/// Bit of the header where the sequence number begins; below it is the order.
const SEQUENCE_SHIFT: u32 = Order::BITS;
/// Swaps of a header that others mark meanwhile, at most.
const TRIES: u32 = 4;

const _: () = assert!(KEYS + WAYS == ADDRESSES && ADDRESSES + WAYS * ADDRESS_WORDS <= SET_WORDS);

/// A set, whose words are zero at first.
#[derive(Clone, Copy)]
pub(super) struct Set<'w> {
    words: &'w [AtomicU64; SET_WORDS],
}

impl<'w> Set<'w> {
    pub(super) fn new(words: &'w [AtomicU64; SET_WORDS]) -> Self {
        Self { words }
    }

    /// The address of a key, and a mark that it was used, if uses are marked.
    pub(super) fn get(self, key: u64, policy: CachePolicy) -> Option<Address> {
        // Acquire: what the last change stored is seen. Partner: the Release in `end`.
        let before = self.words[0].load(Ordering::Acquire);
        let order = Order::from_bits(before);
        let index = (0..order.count()).find(|index| self.key(*index) == key)?;
        let address = self.address(index);
        // Acquire: if a word above is of a change, its odd number is seen below. Partner: `begin`'s fence.
        fence(Ordering::Acquire);
        // Relaxed: the fence orders it.
        let now = self.words[0].load(Ordering::Relaxed);
        if is_changing(before) || before >> SEQUENCE_SHIFT != now >> SEQUENCE_SHIFT {
            return None;
        }
        if policy.marks_uses() && !order.is_used(index) {
            // Relaxed: a mark says nothing of the words. One that comes too late is left out.
            let marked = now | Order::use_bit(index);
            let _ = self.words[0].compare_exchange(now, marked, Ordering::Relaxed, Ordering::Relaxed);
        }
        Some(address)
    }

    /// Puts a key's address there. True if another one had to go.
    pub(super) fn put(self, key: u64, address: Address) -> bool {
        let Some(before) = self.begin() else { return false };
        let mut order = Order::from_bits(before);
        let is_full = order.count() == WAYS;
        if let Some(index) = self.index(order, key) {
            self.store(index, key, address);
            self.end(before, order);
            return false;
        }
        let last = order.push();
        (0..last).rev().for_each(|index| self.move_to(index, index + 1));
        self.store(0, key, address);
        self.end(before, order);
        is_full
    }

    /// Forgets a key's address, if its word is this one.
    pub(super) fn remove(self, key: u64, word: HashSlot) {
        let Some(before) = self.begin() else { return };
        let mut order = Order::from_bits(before);
        let known = self.index(order, key);
        if let Some(index) = known.filter(|index| self.address(*index).word == word) {
            (index + 1..order.count()).for_each(|index| self.move_to(index, index - 1));
            order.remove(index);
        }
        self.end(before, order);
    }

    fn index(self, order: Order, key: u64) -> Option<usize> {
        (0..order.count()).find(|index| self.key(*index) == key)
    }

    /// Makes the set this thread's; `None` if it is another's.
    fn begin(self) -> Option<u64> {
        for _ in 0..TRIES {
            // Relaxed: the swap decides.
            let header = self.words[0].load(Ordering::Relaxed);
            if is_changing(header) {
                return None;
            }
            let changing = header.wrapping_add(1 << SEQUENCE_SHIFT);
            // Acquire: what the change before stored is seen. Partner: the Release in `end`.
            let swapped =
                self.words[0].compare_exchange(header, changing, Ordering::Acquire, Ordering::Relaxed);
            if swapped.is_ok() {
                // Release: who sees a word that is stored from here on sees the odd number. Partner: `get`'s
                // fence.
                fence(Ordering::Release);
                return Some(header);
            }
        }
        None
    }

    /// Ends a change. `before` is what [`Set::begin`] gave.
    fn end(self, before: u64, order: Order) {
        let sequence = (before >> SEQUENCE_SHIFT).wrapping_add(2);
        // Release: who sees the even number sees the words. Partners: the Acquires in `get` and `begin`.
        self.words[0].store(sequence << SEQUENCE_SHIFT | order.bits(), Ordering::Release);
    }

    fn key(self, index: usize) -> u64 {
        // Relaxed, here and below: header and fences order them.
        self.words[KEYS + index].load(Ordering::Relaxed)
    }

    fn address(self, index: usize) -> Address {
        let word = |part: usize| self.words[ADDRESSES + index * ADDRESS_WORDS + part].load(Ordering::Relaxed);
        let place = word(0);
        Address {
            place: SlotPlace { line: place as u32, slot: (place >> 32) as u8 },
            word: HashSlot(word(1)),
            version: word(2),
        }
    }

    fn store(self, index: usize, key: u64, Address { place, word, version }: Address) {
        let place = u64::from(place.line) | u64::from(place.slot) << 32;
        self.words[KEYS + index].store(key, Ordering::Relaxed);
        for (part, value) in [place, word.0, version].into_iter().enumerate() {
            self.words[ADDRESSES + index * ADDRESS_WORDS + part].store(value, Ordering::Relaxed);
        }
    }

    fn move_to(self, from: usize, to: usize) {
        self.store(to, self.key(from), self.address(from));
    }
}

/// True if the number in this header is odd.
fn is_changing(header: u64) -> bool {
    header >> SEQUENCE_SHIFT & 1 == 1
}

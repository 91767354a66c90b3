//! The checked view of a leaf's key part: three lines as one READ returned them.
//!
//! Invariant: a *hit* is proved by the one line that holds the key: its version is even and the key's
//! occupancy bit is set. A *miss* is proved by all three lines: even, of one incarnation, and the key within
//! the fences that they hold. Nothing else decides, neither the model nor what a client cached, so a wrong
//! guess costs time only.
//!
//! Why lines of different moments prove a miss: within an incarnation fences do not change and no slot is
//! used twice. So a key that was here all the time was in one slot, whose line shows it. One that was removed
//! and inserted again meanwhile was absent in between.

use farsight_base::words::Stamp;
use farsight_base::{LeafNumber, Line, WORDS_PER_LINE};

use crate::checks::prove_miss;
use crate::simd::{equal_words, in_order};
use crate::{
    HIGH_FENCE_WORD, INFINITE_FLAG_BIT, KEY_LINES, LEAF_SLOTS, LOW_FENCE_WORD, LeafSlot, NEXT_WORD,
    PERMUTATION_WORD,
};

/// What a key part says about one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeySearch {
    /// The key is here.
    Hit {
        /// Its slot.
        slot: LeafSlot,
        /// The incarnation under which its value must be found.
        incarnation: u32,
    },
    /// The key belongs here and is not stored.
    Absent,
    /// The key belongs to the right; this is the right sibling (or [`LeafNumber::NONE`]).
    Right(LeafNumber),
    /// The key belongs to the left.
    Left,
    /// The lines changed under the READ, or belong to different incarnations: READ again.
    Changing,
    /// The lines are even and agree, and are no leaf: an unused block or garbage.
    Foreign,
}

/// The keys that belong to a leaf: `low <= key`, and `key < high` unless `high` is `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fences {
    /// The least key that belongs here.
    pub low: u64,
    /// The least key that belongs to the right; `None`: there is none.
    pub high: Option<u64>,
}

impl Fences {
    /// The greatest key that belongs between these fences, which are a leaf's.
    #[inline(always)]
    #[must_use]
    pub fn last_key(&self) -> u64 {
        // A leaf's high fence is above its low one.
        self.high.map_or(u64::MAX, |high| high.wrapping_sub(1))
    }

    /// True if `key` belongs between these fences.
    #[inline]
    #[must_use]
    pub fn contain(&self, key: u64) -> bool {
        key >= self.low && self.high.is_none_or(|high| key < high)
    }
}

/// A private copy of a key part, unchecked; every answer is checked.
#[derive(Clone, Copy, Debug)]
pub struct KeyLines<'a>(pub &'a [Line; KEY_LINES]);

impl KeyLines<'_> {
    /// Looks `key` up.
    #[inline]
    #[must_use]
    pub fn search(&self, key: u64) -> KeySearch {
        match self.hit(key) {
            Some((slot, incarnation)) => KeySearch::Hit { slot, incarnation },
            None if self.found(key) != 0 => KeySearch::Changing,
            None => prove_miss(*self, key),
        }
    }

    /// The slot of `key` and the incarnation under which its value must be found, if it is here: the only
    /// part of [`KeyLines::search`] that most keys need.
    #[inline(always)]
    #[must_use]
    pub fn hit(&self, key: u64) -> Option<(LeafSlot, u32)> {
        let found = self.found(key);
        if found == 0 {
            return None;
        }
        let word = found.trailing_zeros() as usize;
        let stamp = self.0[word / WORDS_PER_LINE].stamp();
        (!stamp.is_changing()).then(|| (LeafSlot::of_key_word(word), stamp.incarnation()))
    }

    /// The occupied words that hold `key`, one bit each.
    #[inline(always)]
    fn found(self, key: u64) -> u32 {
        let [first, second, third] = self.0;
        found_words(equal_words(self.0, key), [first.stamp(), second.stamp(), third.stamp()])
    }

    /// The incarnation that all three lines agree on, or `None` while they change.
    #[inline]
    #[must_use]
    pub fn incarnation(&self) -> Option<u32> {
        let first = self.0[0].stamp();
        are_of_one(self.0, first.incarnation()).then(|| first.incarnation())
    }

    /// The leaf's fences, of line 0 alone; `None` if they are no leaf's. Means something once
    /// [`KeyLines::incarnation`] has agreed.
    #[inline]
    #[must_use]
    pub fn fences(&self) -> Option<Fences> {
        let words = &self.0[0].0;
        let (next, low, high) = (words[NEXT_WORD], words[LOW_FENCE_WORD], words[HIGH_FENCE_WORD]);
        let high = (next >> INFINITE_FLAG_BIT & 1 == 0).then_some(high);
        high.is_none_or(|high| low < high).then_some(Fences { low, high })
    }

    /// True if no slot is occupied, as far as these lines are of one moment.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|line| line.stamp().occupancy() == 0)
    }

    /// The right sibling, of line 0 alone.
    #[inline]
    #[must_use]
    pub fn next(&self) -> LeafNumber {
        LeafNumber(self.0[0].0[NEXT_WORD] as u32)
    }

    /// True if `slot` holds a key.
    #[inline]
    #[must_use]
    pub fn is_occupied(&self, slot: LeafSlot) -> bool {
        self.0[slot.key_line()].stamp().occupancy() & slot.occupancy_bit() != 0
    }

    /// The key in `slot`, if it is occupied.
    #[inline]
    #[must_use]
    pub fn key(&self, slot: LeafSlot) -> Option<u64> {
        let word = slot.key_word();
        self.is_occupied(slot).then(|| self.0[word / WORDS_PER_LINE].0[word % WORDS_PER_LINE])
    }

    /// The slots in the order of their keys, four bits each, as the leaf's writer left it; a hint. Leaves of
    /// a memory pool have none: [`KeyLines::order`].
    #[inline(always)]
    #[must_use]
    pub fn permutation(self) -> u64 {
        self.0[0].0[PERMUTATION_WORD]
    }

    /// The occupied slots in the order of their keys, four bits each, by comparing them all.
    #[inline]
    #[must_use]
    pub fn order(self) -> u64 {
        let keys = std::array::from_fn(|number| {
            let word = LeafSlot::of_number(number).key_word();
            self.0[word / WORDS_PER_LINE].0[word % WORDS_PER_LINE]
        });
        in_order::order_of(&keys, self.occupied_slots() as u16)
    }

    /// The slots that hold keys, one bit each.
    #[inline(always)]
    pub(crate) fn occupied_slots(self) -> u32 {
        let words =
            self.0.iter().rev().fold(0, |words, line| words << 8 | u32::from(line.stamp().occupancy()));
        // Slots stand in words 5 to 7, 9 to 15 and 17 to 22.
        words >> 5 & 0b111 | (words >> 9 & 0x7f) << 3 | (words >> 17 & 0x3f) << 10
    }

    /// Calls `visit` with the occupied slots and their keys in the order of a permutation. True if that is
    /// all of them, keys ascending; otherwise the permutation belongs to another moment than the keys.
    #[inline(always)]
    pub(crate) fn visit_in_order(self, mut permutation: u64, mut visit: impl FnMut(u64, LeafSlot)) -> bool {
        let (mut missing, mut least) = (self.occupied_slots(), Some(0));
        for _ in 0..LEAF_SLOTS {
            if missing == 0 {
                break;
            }
            let slot = LeafSlot::new((permutation & 15) as usize).expect("four bits are a slot");
            permutation >>= 4;
            if missing >> slot.number() & 1 == 0 {
                continue;
            }
            missing &= !(1 << slot.number());
            let word = slot.key_word();
            let key = self.0[word / WORDS_PER_LINE].0[word % WORDS_PER_LINE];
            if least.is_none_or(|least| key < least) {
                return false;
            }
            least = key.checked_add(1);
            visit(key, slot);
        }
        missing == 0
    }

    /// The occupied slots and their keys in key order; of equal keys (removed and inserted again while the
    /// lines were read) one of the slots. Returns how many of `into` were filled.
    pub fn sorted(&self, into: &mut [(u64, LeafSlot); LEAF_SLOTS]) -> usize {
        let mut count = 0;
        let is_ordered = self.visit_in_order(self.permutation(), |key, slot| {
            into[count] = (key, slot);
            count += 1;
        });
        if is_ordered {
            return count;
        }
        // Sort without the permutation.
        count = 0;
        for slot in LeafSlot::all() {
            if let Some(key) = self.key(slot) {
                into[count] = (key, slot);
                count += 1;
            }
        }
        into[..count].sort_unstable();
        let mut kept = 0;
        for index in 0..count {
            if index + 1 == count || into[index].0 != into[index + 1].0 {
                into[kept] = into[index];
                kept += 1;
            }
        }
        kept
    }
}

/// What one line of a key part proves of a key. It proves the slot and the incarnation under which the key's
/// value must be found, if `line` holds the key in the key part's word `word`.
#[inline]
#[must_use]
pub fn hit_in_line(line: &Line, word: usize, key: u64) -> Option<(LeafSlot, u32)> {
    let (stamp, place) = (line.stamp(), word % WORDS_PER_LINE);
    let is_hit = word < KEY_LINES * WORDS_PER_LINE
        && KEY_WORDS_MASK >> word & 1 == 1
        && line.0[place] == key
        && stamp.occupancy() >> place & 1 == 1
        && !stamp.is_changing();
    is_hit.then(|| (LeafSlot::of_key_word(word), stamp.incarnation()))
}

/// True if all of these lines are even and of this incarnation. One compare for all: of one for each the
/// compiler makes a branch for each.
#[inline(always)]
pub(crate) fn are_of_one<const LINES: usize>(lines: &[Line; LINES], incarnation: u32) -> bool {
    let expected = Stamp::new(0, incarnation, 0).0;
    let differing = lines.iter().fold(0, |differing, line| differing | line.0[0] ^ expected);
    differing & STAMP_CONSISTENT == 0
}

/// The bits of a stamp that an even line of an incarnation agrees on: the version's lowest, the incarnation.
const STAMP_CONSISTENT: u64 = 1 | 0xff_ffff << 32;

/// Of words that equal a key, those that are occupied, by their lines' stamps.
#[inline(always)]
pub(crate) fn found_words(equal: u32, [first, second, third]: [Stamp; KEY_LINES]) -> u32 {
    let occupied = first.0 >> 56 | second.0 >> 56 << 8 | third.0 >> 56 << 16;
    equal & occupied as u32 & KEY_WORDS_MASK
}

/// The words of the key part that hold keys, a bit each, the first line's first word lowest.
pub const KEY_WORDS_MASK: u32 = 0b0111_1110_1111_1110_1110_0000;

#[cfg(test)]
mod tests {
    use super::*;
    use farsight_base::prng::SplitMix64;

    #[test]
    fn the_mask_is_the_slots_words() {
        let words = LeafSlot::all().fold(0, |mask, slot| mask | 1_u32 << slot.key_word());
        assert_eq!(words, KEY_WORDS_MASK);
    }

    #[test]
    fn occupied_slots_are_those_that_are_occupied() {
        let mut random = SplitMix64::new(4);
        for _ in 0..1_000 {
            let mut lines = [Line::ZERO; KEY_LINES];
            for line in &mut lines {
                line.0[0] = random.next_u64();
            }
            let view = KeyLines(&lines);
            let expected = LeafSlot::all().filter(|slot| view.is_occupied(*slot));
            let expected = expected.fold(0, |slots, slot| slots | 1 << slot.number());
            assert_eq!(view.occupied_slots(), expected);
        }
    }

    #[test]
    fn an_unused_block_is_foreign() {
        let lines = [Line::ZERO; KEY_LINES];
        assert_eq!(KeyLines(&lines).search(0), KeySearch::Foreign);
        assert_eq!(KeyLines(&lines).search(u64::MAX), KeySearch::Foreign);
    }

    /// One line says what the whole key part says of a hit.
    #[test]
    fn a_line_alone_proves_its_hits() {
        let mut random = SplitMix64::new(5);
        for _ in 0..2_000 {
            let mut lines = [Line::ZERO; KEY_LINES];
            for word in lines.iter_mut().flat_map(|line| &mut line.0) {
                *word = random.next_u64();
            }
            for word in 0..40 {
                let key = if word < 24 { lines[word / 8].0[word % 8] } else { 7 };
                let alone = lines.get(word / 8).and_then(|line| hit_in_line(line, word, key));
                let is_key = KEY_WORDS_MASK.checked_shr(word as u32).is_some_and(|mask| mask & 1 == 1);
                assert_eq!(alone, if is_key { KeyLines(&lines).hit(key) } else { None }, "word {word}");
                assert_eq!(hit_in_line(&lines[0], word, 3), None);
            }
        }
    }

    #[test]
    fn garbage_never_panics() {
        let mut random = SplitMix64::new(3);
        for _ in 0..20_000 {
            let mut lines = [Line::ZERO; KEY_LINES];
            for word in lines.iter_mut().flat_map(|line| &mut line.0) {
                *word = random.next_u64() & random.next_u64();
            }
            let key = if random.below(2) == 0 { lines[1].0[3] } else { random.next_u64() };
            let _ = KeyLines(&lines).search(key);
            let mut sorted = [(0, LeafSlot::new(0).unwrap()); LEAF_SLOTS];
            let count = KeyLines(&lines).sorted(&mut sorted);
            assert!(sorted[..count].windows(2).all(|pair| pair[0].0 < pair[1].0));
        }
    }
}

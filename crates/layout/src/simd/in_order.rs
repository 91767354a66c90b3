//! The slots of a private copy of a leaf, in the order that a permutation gives. Keys, versions and values of
//! one word come each by a handful of vector permutations.
//!
//! Invariant: whatever lines and permutation hold, the slots taken are all occupied slots whose keys are at
//! or above a bound, each once, keys ascending. None is above a second bound. Anything else is refused.
//! Proof: the permutation's positions that are taken are occupied, their keys at or above the bound and
//! strictly ascending, hence different slots. They are as many as there are such slots.

#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
use std::arch::x86_64::{
    __m512i, _mm512_alignr_epi64, _mm512_and_si512, _mm512_cmplt_epu64_mask, _mm512_loadu_si512,
    _mm512_mask_add_epi64, _mm512_maskz_permutex2var_epi16, _mm512_maskz_permutex2var_epi32,
    _mm512_maskz_sllv_epi64, _mm512_or_si512, _mm512_permutex2var_epi64, _mm512_reduce_or_epi64,
    _mm512_set1_epi64, _mm512_setzero_si512, _mm512_slli_epi64, _mm512_srlv_epi64, _mm512_storeu_si512,
    _mm512_test_epi64_mask,
};

use farsight_base::Line;
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
use farsight_base::words::Moves;

use crate::{LEAF_SLOTS, SHORT_LEAF_LINES};

// The permutations below take sixteen slots, three lines of keys and four of values.
const _: () = assert!(LEAF_SLOTS == 16 && SHORT_LEAF_LINES == 7);

/// Where things stand in a leaf, as numbers for vector permutations. Each counts in a pair of neighbouring
/// lines: one pair for the first eight slots, one for the others. Each vector of them is a line: one that
/// reached into two would take as long as two to load.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Places {
    /// Words of the keys, of lines 0 and 1, then of lines 1 and 2.
    pub(crate) keys: [u64; LEAF_SLOTS],
    /// Words of the values, of lines 3 and 4, then of lines 5 and 6, as the versions' parts.
    pub(crate) values: [u64; LEAF_SLOTS],
    /// Half words of the versions' low 32 bits.
    pub(crate) versions_low: [u64; LEAF_SLOTS],
    /// Quarter words of the versions' high 16 bits.
    pub(crate) versions_high: [u64; LEAF_SLOTS],
}

/// Room for what is taken; all of it may be overwritten.
pub struct Room<'a> {
    /// Keys.
    pub keys: &'a mut [u64; LEAF_SLOTS],
    /// Versions.
    pub versions: &'a mut [u64; LEAF_SLOTS],
    /// Values.
    pub values: &'a mut [[u8; 8]; LEAF_SLOTS],
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(
    not(all(target_arch = "x86_64", not(any(miri, portable_words)))),
    expect(dead_code, reason = "without such instructions nothing is taken")
)]
pub(crate) enum Outcome {
    /// There are no such instructions, or the operator chose narrower ones.
    Unavailable,
    /// The occupied slots do not come first in the permutation, ascending: one was removed, or the
    /// permutation is of another moment than the keys, or garbage.
    Refused,
    /// So many slots stand in the room.
    Taken {
        /// Slots.
        count: usize,
        /// Those of them whose version is not zero, one bit each.
        written: u32,
    },
}

/// Takes into `into` the slots of `occupied` (a bit each) with keys from `from` on, in the order of
/// `permutation` (four bits each). Keys above `until` are refused.
#[inline(always)]
#[must_use]
pub(crate) fn take(
    places: &Places,
    lines: &[Line; SHORT_LEAF_LINES],
    occupied: u16,
    permutation: u64,
    (from, until): (u64, u64),
    into: &mut Room<'_>,
) -> Outcome {
    #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
    if Moves::are_widest() {
        // SAFETY: AVX-512 F and BW and POPCNT were detected.
        return unsafe { take_avx512(places, lines, occupied, permutation, (from, until), into) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, portable_words)))))]
    let _ = (places, lines, occupied, permutation, from, until, into);
    Outcome::Unavailable
}

/// The permutation of the slots of `occupied` (a bit each) that puts their keys in order, four bits a slot.
/// Means nothing if two of them are equal.
#[inline]
#[must_use]
pub(crate) fn order_of(keys: &[u64; LEAF_SLOTS], occupied: u16) -> u64 {
    #[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
    if Moves::are_widest() {
        // SAFETY: AVX-512F was detected.
        return unsafe { order_avx512(keys, occupied) };
    }
    order_by_words(keys, occupied)
}

fn order_by_words(keys: &[u64; LEAF_SLOTS], occupied: u16) -> u64 {
    let slots = || (0..LEAF_SLOTS).filter(|slot| occupied >> slot & 1 == 1);
    slots().fold(0, |order, slot| {
        let place = slots().filter(|other| keys[*other] < keys[slot]).count();
        order | (slot as u64) << (4 * place)
    })
}

/// [`order_by_words`], all slots side by side: a key's place is how many keys are less.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
#[target_feature(enable = "avx512f")]
fn order_avx512(keys: &[u64; LEAF_SLOTS], occupied: u16) -> u64 {
    let is_occupied = [occupied as u8, (occupied >> 8) as u8];
    let all = halves(keys);
    let four = _mm512_set1_epi64(4);
    let mut shifts = [_mm512_setzero_si512(); 2];
    for (slot, key) in keys.iter().enumerate() {
        let key = _mm512_set1_epi64(*key as i64);
        let counts = 0_u8.wrapping_sub((occupied >> slot & 1) as u8);
        for half in 0..2 {
            let greater = _mm512_cmplt_epu64_mask(key, all[half]) & counts;
            shifts[half] = _mm512_mask_add_epi64(shifts[half], greater, shifts[half], four);
        }
    }
    let [first, second] = halves(&SLOT_NUMBERS);
    let first = _mm512_maskz_sllv_epi64(is_occupied[0], first, shifts[0]);
    let second = _mm512_maskz_sllv_epi64(is_occupied[1], second, shifts[1]);
    _mm512_reduce_or_epi64(_mm512_or_si512(first, second)) as u64
}

#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
const SLOT_NUMBERS: [u64; LEAF_SLOTS] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
#[target_feature(enable = "avx512f,avx512bw,popcnt")]
fn take_avx512(
    places: &Places,
    lines: &[Line; SHORT_LEAF_LINES],
    occupied: u16,
    permutation: u64,
    (from, until): (u64, u64),
    into: &mut Room<'_>,
) -> Outcome {
    let [k0, k1, k2] = [load(&lines[0].0), load(&lines[1].0), load(&lines[2].0)];
    let [v0, v1, v2, v3] = [load(&lines[3].0), load(&lines[4].0), load(&lines[5].0), load(&lines[6].0)];
    // Slots in their own order, eight and eight.
    let [first, second] = halves(&places.keys);
    let keys = [_mm512_permutex2var_epi64(k0, first, k1), _mm512_permutex2var_epi64(k1, second, k2)];
    let [first, second] = halves(&places.values);
    let values = [_mm512_permutex2var_epi64(v0, first, v1), _mm512_permutex2var_epi64(v2, second, v3)];
    let (lows, highs) = (halves(&places.versions_low), halves(&places.versions_high));
    let versions = [version(v0, v1, lows[0], highs[0]), version(v2, v3, lows[1], highs[1])];

    // The positions from the first key on that is not below the bound.
    let bound = _mm512_set1_epi64(from as i64);
    let skipped = (are_below(keys, [bound; 2]) & u32::from(occupied)).count_ones();
    let count = occupied.count_ones() - skipped;
    let order = nibbles_of(permutation.rotate_right(4 * skipped));
    let (keys, values, versions) = (ordered(keys, order), ordered(values, order), ordered(versions, order));

    let is_occupied = bits_at(occupied, order);
    let next = [_mm512_alignr_epi64::<1>(keys[1], keys[0]), _mm512_alignr_epi64::<1>(keys[1], keys[1])];
    let is_ascending = are_below(keys, next);
    let is_below = u32::from(_mm512_cmplt_epu64_mask(keys[0], bound));
    let taken = (1_u32 << count) - 1;
    let is_beyond = are_below([_mm512_set1_epi64(until as i64); 2], keys);
    let is_wrong = !is_occupied | is_beyond;
    if (taken & is_wrong) | (taken >> 1 & !is_ascending) | (taken & 1 & is_below) != 0 {
        return Outcome::Refused;
    }
    store(into.keys.as_chunks_mut().0, keys);
    store(into.versions.as_chunks_mut().0, versions);
    store(into.values.as_chunks_mut().0, values);
    let written = are_set(versions, versions);
    Outcome::Taken { count: count as usize, written }
}

// Helpers below are functions, never closures given to `map`. `map` has no vector instructions of its own, so
// without link-time optimization each closure would stay a call, and a scan take four times as long.

/// Which of sixteen numbers are less than their counterparts, one bit each.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
#[target_feature(enable = "avx512f")]
#[inline]
fn are_below(numbers: [__m512i; 2], bounds: [__m512i; 2]) -> u32 {
    both(_mm512_cmplt_epu64_mask(numbers[0], bounds[0]), _mm512_cmplt_epu64_mask(numbers[1], bounds[1]))
}

/// Which of sixteen words share a bit with their counterparts, one bit each.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
#[target_feature(enable = "avx512f")]
#[inline]
fn are_set(words: [__m512i; 2], bits: [__m512i; 2]) -> u32 {
    both(_mm512_test_epi64_mask(words[0], bits[0]), _mm512_test_epi64_mask(words[1], bits[1]))
}

/// The sixteen nibbles of `permutation`, a word each.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
#[target_feature(enable = "avx512f")]
#[inline]
fn nibbles_of(permutation: u64) -> [__m512i; 2] {
    let (nibbles, fifteen) = (_mm512_set1_epi64(permutation as i64), _mm512_set1_epi64(15));
    let [first, second] = halves(&NIBBLE_SHIFTS.0);
    let first = _mm512_and_si512(_mm512_srlv_epi64(nibbles, first), fifteen);
    [first, _mm512_and_si512(_mm512_srlv_epi64(nibbles, second), fifteen)]
}

/// The words of `slots` at the places that `order` names.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
#[target_feature(enable = "avx512f")]
#[inline]
fn ordered(slots: [__m512i; 2], order: [__m512i; 2]) -> [__m512i; 2] {
    let first = _mm512_permutex2var_epi64(slots[0], order[0], slots[1]);
    [first, _mm512_permutex2var_epi64(slots[0], order[1], slots[1])]
}

/// The bits of `bits` at the places that `order` names.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
#[target_feature(enable = "avx512f")]
#[inline]
fn bits_at(bits: u16, order: [__m512i; 2]) -> u32 {
    let (bits, one) = (_mm512_set1_epi64(i64::from(bits)), _mm512_set1_epi64(1));
    are_set([_mm512_srlv_epi64(bits, order[0]), _mm512_srlv_epi64(bits, order[1])], [one; 2])
}

/// How far each nibble of a word stands from its end.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
static NIBBLE_SHIFTS: Aligned = Aligned([0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60]);

/// Numbers of which each vector is a line.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
#[repr(C, align(64))]
struct Aligned([u64; LEAF_SLOTS]);

/// The versions of eight slots: half words and quarter words of two lines, put together.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn version(first: __m512i, second: __m512i, low: __m512i, high: __m512i) -> __m512i {
    // Each number stands in its word's lowest lane; the high part goes to the lane of bits 32 to 47.
    let low = _mm512_maskz_permutex2var_epi32(0x5555, first, low, second);
    let high = _mm512_slli_epi64::<32>(high);
    let high = _mm512_maskz_permutex2var_epi16(0x4444_4444, first, high, second);
    _mm512_or_si512(low, high)
}

#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
#[inline]
fn both(low: u8, high: u8) -> u32 {
    u32::from(low) | u32::from(high) << 8
}

#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
#[target_feature(enable = "avx512f")]
#[inline]
fn load(words: &[u64; 8]) -> __m512i {
    // SAFETY: 64 readable bytes; the move needs no alignment.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
#[target_feature(enable = "avx512f")]
#[inline]
fn halves(words: &[u64; LEAF_SLOTS]) -> [__m512i; 2] {
    let (halves, _) = words.as_chunks();
    [load(&halves[0]), load(&halves[1])]
}

/// Stores eight words and eight.
#[cfg(all(target_arch = "x86_64", not(any(miri, portable_words))))]
#[target_feature(enable = "avx512f")]
#[inline]
fn store<Word>(into: &mut [[Word; 8]], words: [__m512i; 2]) {
    const { assert!(size_of::<Word>() == 8, "eight words of eight bytes") };
    for (into, words) in into.iter_mut().zip(words) {
        // SAFETY: eight words of eight bytes are 64 writable bytes, in which any bits may stand: the words
        // are integers or bytes. The move needs no alignment.
        unsafe { _mm512_storeu_si512(into.as_mut_ptr().cast(), words) };
    }
}

#[cfg(test)]
mod tests {
    use farsight_base::prng::SplitMix64;

    use super::*;

    #[test]
    fn the_order_is_that_of_the_keys() {
        let mut random = SplitMix64::new(3);
        for round in 0..10_000 {
            let bits = 64 - random.below(58) as u32;
            let mut keys: [u64; LEAF_SLOTS] = std::array::from_fn(|_| random.next_u64() >> (64 - bits));
            if round % 3 == 0 {
                keys[random.below(16) as usize] = [0, u64::MAX][random.below(2) as usize];
            }
            let occupied = random.next_u64() as u16;
            let mut slots: Vec<usize> = (0..LEAF_SLOTS).filter(|slot| occupied >> slot & 1 == 1).collect();
            slots.sort_by_key(|slot| keys[*slot]);
            if slots.windows(2).any(|pair| keys[pair[0]] == keys[pair[1]]) {
                continue;
            }
            let expected = slots.iter().rev().fold(0, |order, slot| order << 4 | *slot as u64);
            assert_eq!(order_of(&keys, occupied), expected, "{keys:?} {occupied:#x}");
            assert_eq!(order_by_words(&keys, occupied), expected, "{keys:?} {occupied:#x}");
        }
    }
}

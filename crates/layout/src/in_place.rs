//! A key looked up in a leaf where it lies, for a fabric that has the leaf in its own memory.
//!
//! Invariant: an answer is proved by the same lines as one from copies
//! ([`KeyLines::hit`](crate::KeyLines::hit), [`read_short_value`](crate::read_short_value)). The key's line
//! and the value's were each unchanged while it was looked at, and are of one incarnation. Anything else is
//! no answer; the caller READs copies.

use farsight_base::WORDS_PER_LINE;
use farsight_base::words::{SharedLine, Widest, read_stamped_words};

use crate::simd::equal_words_unchecked;
use crate::value::{short_version_of, short_version_word};
use crate::{KEY_LINES, KEY_WORDS_MASK, LeafSlot, SHORT_LEAF_LINES, SHORT_VALUES_PER_LINE};

/// A pair whose value is one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShortPair {
    /// The version.
    pub version: u64,
    /// The value's word.
    pub value: u64,
}

/// The pair of `key`, if it is in this leaf, in the first of the words that hold the key, and its lines are
/// consistent.
#[inline(always)]
#[must_use]
pub fn find_short(lines: &[SharedLine; SHORT_LEAF_LINES], key: u64, widest: Widest) -> Option<ShortPair> {
    let (key_lines, value_lines) = lines.split_first_chunk::<KEY_LINES>()?;
    let (slot, incarnation) = find_key(key_lines, key, widest)?;
    let line = slot.number() / SHORT_VALUES_PER_LINE;
    read_short(&value_lines[line % (SHORT_LEAF_LINES - KEY_LINES)], slot, incarnation)
}

/// The slot of `key` and the incarnation under which its value must be found. `None` unless the key is in
/// this key part, in the first of the words that hold it, and its line is consistent.
///
/// A search of all lines without looking at their stamps says where the key would be. The key and its
/// occupancy are then read from that line alone, between two looks at its stamp. So few instructions wait for
/// the lines, and what a processor does ahead of them is the next GET's.
#[inline(always)]
#[must_use]
pub fn find_key(lines: &[SharedLine; KEY_LINES], key: u64, widest: Widest) -> Option<(LeafSlot, u32)> {
    let equal = equal_words_unchecked(lines.as_flattened().first_chunk()?, key, widest) & KEY_WORDS_MASK;
    if equal == 0 {
        return None;
    }
    // Of several words all but one are of pairs that were removed, or of none. If the first is such a word,
    // there is no answer.
    let word = equal.trailing_zeros() as usize;
    let line = &lines[word / WORDS_PER_LINE % KEY_LINES];
    let (stamp, [again]) = read_stamped_words(line, [word % WORDS_PER_LINE])?;
    let is_hit = again == key && stamp.occupancy() >> (word % WORDS_PER_LINE) & 1 == 1;
    is_hit.then(|| (LeafSlot::of_key_word(word), stamp.incarnation()))
}

/// The pair in `slot`, whose value's line this is, if the line is consistent and of this incarnation.
#[inline(always)]
#[must_use]
pub fn read_short(line: &SharedLine, slot: LeafSlot, incarnation: u32) -> Option<ShortPair> {
    let index = slot.number() % SHORT_VALUES_PER_LINE;
    let low = short_version_word(index);
    let (stamp, [value, version_low, version_high]) = read_stamped_words(line, [1 + index, low, 7])?;
    let version = short_version_of([version_low, version_high], index);
    // Zero: not written in this incarnation.
    (stamp.incarnation() == incarnation && version != 0).then_some(ShortPair { version, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fences, Geometry, KeyLines, LeafImage, LeafWriter, read_short_value};
    use farsight_base::sync::{AtomicU64, Ordering};
    use farsight_base::words::{Moves, Stamp};
    use farsight_base::{LeafNumber, Line};

    fn leaf() -> [SharedLine; SHORT_LEAF_LINES] {
        std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0)))
    }

    #[test]
    fn it_finds_what_a_search_of_copies_finds() {
        let _ = Moves::detect();
        let Some(widest) = Widest::if_known() else {
            println!("NOT RUN: this needs AVX-512");
            return;
        };
        let geometry = Geometry::new(8).unwrap();
        for pairs in 0..=16 {
            let leaf = leaf();
            let fences = Fences { low: 0, high: None };
            let mut image = LeafImage::new(&geometry, 5, LeafNumber::NONE, fences);
            for pair in 0..pairs {
                image.push(10 * pair, (pair + 1) << 20 | 3, &(pair * 7 + 1).to_le_bytes());
            }
            LeafWriter::latch(leaf.as_flattened(), &geometry, 5).expect("nobody else writes").rewrite(&image);
            for key in 0..200 {
                let copy: Vec<Line> = leaf
                    .iter()
                    .map(|line| Line(line.each_ref().map(|word| word.load(Ordering::Relaxed))))
                    .collect();
                let expected = KeyLines(copy.first_chunk().unwrap()).hit(key).map(|(slot, incarnation)| {
                    let mut value = [0; 8];
                    let line = &copy[geometry.value_place(slot).line];
                    let version = read_short_value(line, slot, incarnation, &mut value).unwrap();
                    ShortPair { version, value: u64::from_le_bytes(value) }
                });
                assert_eq!(expected.is_some(), key % 10 == 0 && key / 10 < pairs);
                assert_eq!(find_short(&leaf, key, widest), expected, "{key} of {pairs} pairs");
            }
        }
    }

    #[test]
    fn what_is_inconsistent_or_of_another_incarnation_is_no_answer() {
        let _ = Moves::detect();
        let Some(widest) = Widest::if_known() else {
            println!("NOT RUN: this needs AVX-512");
            return;
        };
        let geometry = Geometry::new(8).unwrap();
        let fences = Fences { low: 0, high: None };
        let mut image = LeafImage::new(&geometry, 5, LeafNumber::NONE, fences);
        image.push(10, 1, &77_u64.to_le_bytes());
        let spoiled = |spoil: &dyn Fn(&[SharedLine; SHORT_LEAF_LINES])| {
            let leaf = leaf();
            LeafWriter::latch(leaf.as_flattened(), &geometry, 5).expect("nobody else writes").rewrite(&image);
            spoil(&leaf);
            find_short(&leaf, 10, widest)
        };
        let with_stamp = |line: usize, change: fn(Stamp) -> Stamp| {
            spoiled(&|leaf| {
                let stamp = Stamp(leaf[line][0].load(Ordering::Relaxed));
                leaf[line][0].store(change(stamp).0, Ordering::Relaxed);
            })
        };
        assert_eq!(spoiled(&|_| {}), Some(ShortPair { version: 1, value: 77 }));
        assert_eq!(with_stamp(0, Stamp::changing), None, "the key's line is being written");
        assert_eq!(with_stamp(0, |stamp| stamp.with_occupancy(0)), None, "the slot is empty");
        assert_eq!(with_stamp(KEY_LINES, Stamp::changing), None, "the value's line is being written");
        assert_eq!(with_stamp(KEY_LINES, |stamp| stamp.with_incarnation(6)), None, "another incarnation");
        assert_eq!(
            with_stamp(KEY_LINES + 1, Stamp::changing).map(|pair| pair.value),
            Some(77),
            "another line"
        );
        let low = short_version_word(0);
        assert_eq!(spoiled(&|leaf| leaf[KEY_LINES][low].store(0, Ordering::Relaxed)), None, "not written");
    }
}

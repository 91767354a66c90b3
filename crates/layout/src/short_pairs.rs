//! The pairs of a whole leaf whose values are one word each, in key order: what a scan takes.
//!
//! Invariant: all or nothing. The pairs are right by the same rules as those that
//! [`KeyLines`](crate::KeyLines) and [`Geometry::read_value`] give one by one. An inconsistent leaf gives
//! none, and the caller takes the slow path. A leaf is inconsistent if a line is changing or of another
//! incarnation, keys are out of the permutation's order, or a slot is not written.

use farsight_base::{Line, WORDS_PER_LINE};

use crate::key_lines::are_of_one;
use crate::simd::in_order::{self, Outcome, Places};
use crate::value::short_version;
use crate::{Geometry, KEY_LINES, KeyLines, LEAF_SLOTS, LeafSlot, SHORT_VALUE_BYTES, SHORT_VALUES_PER_LINE};

/// Lines of a leaf whose values are one word each.
pub const SHORT_LEAF_LINES: usize = KEY_LINES + LEAF_SLOTS / SHORT_VALUES_PER_LINE;

/// Where such a leaf holds what: docs/format.md in numbers for vector permutations.
static PLACES: Places = {
    let zero = [0; LEAF_SLOTS];
    let mut places = Places { keys: zero, values: zero, versions_low: zero, versions_high: zero };
    let mut number = 0;
    while number < LEAF_SLOTS {
        let slot = LeafSlot::of_number(number);
        let (second_half, index) = (number / (LEAF_SLOTS / 2), number % SHORT_VALUES_PER_LINE);
        places.keys[number] = (slot.key_word() - second_half * WORDS_PER_LINE) as u64;
        // The first or the second line of its pair.
        let first_word = number / SHORT_VALUES_PER_LINE % 2 * WORDS_PER_LINE;
        places.values[number] = (first_word + 1 + index) as u64;
        places.versions_low[number] = (2 * (first_word + 5) + index) as u64;
        places.versions_high[number] = (4 * (first_word + 7) + index) as u64;
        number += 1;
    }
    places
};

/// Room for the pairs of one leaf.
pub type PairsRoom<'a> = in_order::Room<'a>;

impl Geometry {
    /// Copies the pairs with keys from `from` on, in the order of `permutation` (four bits a slot), and
    /// returns how many. Returns `None`, with the room half-written, if the leaf is not consistent, its
    /// values are not one word, or the permutation is not that of its keys. So it does if a key is above
    /// `until`. Of more than `limit` pairs those behind need not have been written.
    #[inline]
    pub fn short_pairs(
        &self,
        lines: &[Line],
        incarnation: u32,
        permutation: u64,
        (from, until): (u64, u64),
        limit: usize,
        into: &mut PairsRoom<'_>,
    ) -> Option<usize> {
        let lines = self.consistent_lines(lines, incarnation)?;
        let key_lines = KeyLines(lines.first_chunk().expect("a leaf has a key part"));
        let occupied = key_lines.occupied_slots() as u16;
        match in_order::take(&PLACES, lines, occupied, permutation, (from, until), into) {
            Outcome::Taken { count, written } => {
                let wanted = (1_u32 << count.min(limit)) - 1;
                (wanted & !written == 0).then_some(count)
            }
            // Some slot was removed, its place in the order is still there; or the leaf is not consistent.
            Outcome::Refused | Outcome::Unavailable => {
                pairs_by_words(lines, permutation, (from, until), limit, into)
            }
        }
    }
}

impl Geometry {
    /// The lines of a whole leaf, if its values are one word and all lines are even and of this incarnation.
    #[inline(always)]
    fn consistent_lines<'a>(
        &self,
        lines: &'a [Line],
        incarnation: u32,
    ) -> Option<&'a [Line; SHORT_LEAF_LINES]> {
        let is_short = self.value_bytes() == SHORT_VALUE_BYTES;
        let lines: &[Line; SHORT_LEAF_LINES] = lines.try_into().ok().filter(|_| is_short)?;
        are_of_one(lines, incarnation).then_some(lines)
    }
}

/// [`Geometry::short_pairs`] of a consistent leaf, pair by pair.
fn pairs_by_words(
    lines: &[Line; SHORT_LEAF_LINES],
    permutation: u64,
    (from, until): (u64, u64),
    limit: usize,
    into: &mut PairsRoom<'_>,
) -> Option<usize> {
    let key_lines = KeyLines(lines.first_chunk().expect("a leaf has a key part"));
    let (mut count, mut all_written, mut all_within) = (0, true, true);
    let is_ordered = key_lines.visit_in_order(permutation, |key, slot| {
        if key < from {
            return;
        }
        let words = &lines[KEY_LINES + slot.number() / SHORT_VALUES_PER_LINE].0;
        let index = slot.number() % SHORT_VALUES_PER_LINE;
        let version = short_version(words, index);
        all_within &= key <= until;
        all_written &= version != 0 || count >= limit;
        into.keys[count] = key;
        into.versions[count] = version;
        into.values[count] = words[(1 + index) % WORDS_PER_LINE].to_le_bytes();
        count += 1;
    });
    (is_ordered && all_written && all_within).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fences, LeafImage, LeafSlot, LeafWriter};
    use farsight_base::LeafNumber;
    use farsight_base::prng::SplitMix64;
    use farsight_base::sync::AtomicU64;
    use farsight_base::words::copy_stamped;

    type Pair = (u64, u64, [u8; 8]);

    /// What the long way finds: `None` if a value is refused.
    fn one_by_one(lines: &[Line], incarnation: u32, from: u64, limit: usize) -> Option<Vec<Pair>> {
        let geometry = Geometry::new(8).unwrap();
        let mut sorted = [(0, LeafSlot::FIRST); LEAF_SLOTS];
        let count = KeyLines(lines.first_chunk().unwrap()).sorted(&mut sorted);
        let wanted = sorted[..count].iter().filter(|(key, _)| *key >= from).take(limit);
        wanted
            .map(|(key, slot)| {
                let (place, mut value) = (geometry.value_place(*slot), [0; 8]);
                let value_lines = &lines[place.line..=place.line];
                let version = geometry.read_value(value_lines, place, incarnation, &mut value).ok()?;
                Some((*key, version, value))
            })
            .collect()
    }

    /// What processors without vector permutations do.
    fn by_words(
        geometry: &Geometry,
        lines: &[Line],
        permutation: u64,
        keys: (u64, u64),
        limit: usize,
        into: &mut PairsRoom<'_>,
    ) -> Option<usize> {
        pairs_by_words(geometry.consistent_lines(lines, 5)?, permutation, keys, limit, into)
    }

    /// A leaf after inserts in any order, updates and removes.
    fn leaf(random: &mut SplitMix64) -> Vec<Line> {
        let geometry = Geometry::new(8).unwrap();
        let words: Vec<AtomicU64> = (0..geometry.leaf_words()).map(|_| AtomicU64::new(0)).collect();
        let mut writer = LeafWriter::latch(&words, &geometry, 1).unwrap();
        let fences = Fences { low: 0, high: None };
        writer.rewrite(&LeafImage::new(&geometry, 5, LeafNumber::NONE, fences));
        let mut slots = Vec::new();
        for _ in 0..random.below(17) {
            let key = random.below(1 << 20) << 8 | slots.len() as u64;
            slots.extend(writer.insert(key, 1 + random.below(1 << 47), &random.next_u64().to_le_bytes()));
        }
        for slot in slots {
            if random.below(4) == 0 {
                writer.remove(slot);
            }
        }
        drop(writer);
        let mut lines = vec![Line::ZERO; geometry.leaf_lines()];
        copy_stamped(&words, &mut lines);
        lines
    }

    #[test]
    fn the_short_way_finds_what_the_long_way_finds() {
        let geometry = Geometry::new(8).unwrap();
        let mut random = SplitMix64::new(6);
        let (mut taken, mut beyond) = ([0, 0], 0);
        for round in 0..20_000 {
            let mut lines = leaf(&mut random);
            let is_damaged = round % 2 == 1;
            if is_damaged {
                // Another moment, garbage, or a bit of the stamp.
                let (line, word) = (random.below(7) as usize, random.below(8) as usize);
                let damage = [random.next_u64(), 1 << random.below(64)];
                lines[line].0[word] ^= damage[random.below(2) as usize];
            }
            let from = if random.below(3) == 0 { random.below(1 << 28) } else { 0 };
            let limit = 1 + random.below(16) as usize;
            let until = if random.below(4) == 0 { random.below(1 << 28) } else { u64::MAX };
            let (mut keys, mut versions, mut values) = ([0; 16], [0; 16], [[0; 8]; 16]);
            let into = &mut PairsRoom { keys: &mut keys, versions: &mut versions, values: &mut values };
            let view = KeyLines(lines.first_chunk().unwrap());
            // The writer's, or one found by comparing.
            let permutation = if round % 8 < 4 { view.permutation() } else { view.order() };
            let short = if round % 4 < 2 {
                geometry.short_pairs(&lines, 5, permutation, (from, until), limit, into)
            } else {
                by_words(&geometry, &lines, permutation, (from, until), limit, into)
            };
            let long = one_by_one(&lines, 5, from, limit);
            let Some(count) = short else {
                let is_beyond = one_by_one(&lines, 5, from, 16)
                    .is_some_and(|pairs| pairs.last() > Some(&(until, u64::MAX, [255; 8])));
                beyond += usize::from(is_beyond && !is_damaged);
                assert!(is_damaged || is_beyond, "a consistent leaf was refused, round {round}");
                continue;
            };
            assert!(keys[..count].iter().all(|key| *key <= until), "round {round}");
            taken[usize::from(is_damaged)] += 1;
            let found: Vec<Pair> =
                (0..count.min(limit)).map(|at| (keys[at], versions[at], values[at])).collect();
            assert_eq!(Some(found), long, "round {round}");
        }
        assert!(taken[0] + beyond == 10_000 && taken[1] > 1_000 && beyond > 1_000, "{taken:?} {beyond}");
    }
}

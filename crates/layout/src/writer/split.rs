//! The two halves of a split: the upper pairs move to a block without a leaf, the others stay in their slots.
//!
//! Invariant: each half makes all lines odd before the first word changes, and even under the next
//! incarnation. The caller does the right one first, so that right is whole before left shows it. What stays
//! keeps its slot, so of left only stamps, the header and the versions of slots that become free again are
//! written.

use farsight_base::LeafNumber;
use farsight_base::sync::Ordering;
use farsight_base::words::{begin_write, end_write, next_incarnation};

use super::{IDENTITY_PERMUTATION, LeafWriter, nibble};
#[cfg(injected)]
use crate::injected;
use crate::value::body_place;
use crate::{HIGH_FENCE_WORD, KEY_LINES, LEAF_SLOTS, LOW_FENCE_WORD, LeafSlot, NEXT_WORD, PERMUTATION_WORD};

/// A pair of a latched leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SortedPair {
    /// Its key.
    pub key: u64,
    /// Its version.
    pub version: u64,
    /// Its slot.
    pub slot: LeafSlot,
}

impl LeafWriter<'_> {
    /// The leaf's pairs in key order; how many there are.
    #[must_use]
    pub fn sorted(&self) -> ([SortedPair; LEAF_SLOTS], usize) {
        let mut pairs = [SortedPair { key: 0, version: 0, slot: LeafSlot::FIRST }; LEAF_SLOTS];
        let mut count = 0;
        let permutation = self.permutation();
        for position in 0..self.spent() {
            let slot = nibble(permutation, position);
            // Unconditionally, and counted if it is one: which slots were removed no predictor knows.
            let key = self.words[slot.key_word()].load(Ordering::Relaxed);
            pairs[count] = SortedPair { key, version: self.version(slot), slot };
            count += usize::from(self.stamp(slot.key_line()).occupancy() & slot.occupancy_bit() != 0);
        }
        (pairs, count)
    }

    /// The first half of a split: this block without a leaf becomes the leaf from `separator` on, with these
    /// pairs of `left`.
    pub fn receive(&mut self, left: &LeafWriter<'_>, pairs: &[SortedPair], separator: u64) {
        self.begin_lines();
        // Relaxed, here and below: between `begin_lines` and `end_lines`; left is latched.
        for word in [NEXT_WORD, HIGH_FENCE_WORD] {
            self.words[word].store(left.words[word].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.words[LOW_FENCE_WORD].store(separator, Ordering::Relaxed);
        self.words[PERMUTATION_WORD].store(IDENTITY_PERMUTATION, Ordering::Relaxed);
        let mut occupancies = [0; KEY_LINES];
        for (pair, to) in pairs.iter().zip(LeafSlot::all()) {
            occupancies[to.key_line()] |= to.occupancy_bit();
            self.words[to.key_word()].store(pair.key, Ordering::Relaxed);
            self.copy_value(left, pair.slot, to);
            self.store_version(to, pair.version);
        }
        for slot in LeafSlot::all().skip(pairs.len()) {
            self.store_version(slot, 0);
        }
        self.end_lines(occupancies);
        self.set_spent(pairs.len());
    }

    /// The second half: this leaf ends at `separator`, where leaf `right_number` begins, and keeps these of
    /// its pairs.
    pub fn keep(&mut self, pairs: &[SortedPair], separator: u64, right_number: LeafNumber) {
        self.begin_lines();
        // Finite: without the flag of an infinite fence.
        self.words[NEXT_WORD].store(u64::from(right_number.0), Ordering::Relaxed);
        self.words[HIGH_FENCE_WORD].store(separator, Ordering::Relaxed);
        let mut occupancies = [0; KEY_LINES];
        let (mut permutation, mut length, mut kept) = (0, 0, 0_u32);
        let mut append = |slot: LeafSlot| {
            permutation |= (slot.number() as u64) << (4 * length);
            length += 1;
        };
        for SortedPair { slot, .. } in pairs {
            occupancies[slot.key_line()] |= slot.occupancy_bit();
            kept |= 1 << slot.number();
            append(*slot);
        }
        for slot in LeafSlot::all().filter(|slot| kept >> slot.number() & 1 == 0) {
            self.store_version(slot, 0);
            append(slot);
        }
        debug_assert_eq!(length, LEAF_SLOTS, "every slot once");
        self.words[PERMUTATION_WORD].store(permutation, Ordering::Relaxed);
        self.end_lines(occupancies);
        self.set_spent(pairs.len());
    }

    /// Makes every line odd.
    pub(super) fn begin_lines(&self) {
        for index in 0..self.geometry.leaf_lines() {
            #[cfg(injected)]
            if index >= KEY_LINES && injected::OPENED_IN_PART.is_injected() {
                continue;
            }
            begin_write(self.line(index));
        }
    }

    /// Makes every line even, under the next incarnation; key lines get these occupancies.
    fn end_lines(&self, occupancies: [u8; KEY_LINES]) {
        let own = self.stamp(0).incarnation();
        let incarnation = next_incarnation(own);
        #[cfg(injected)]
        let incarnation = if injected::INCARNATION_KEPT.is_injected() && own > 0 { own } else { incarnation };
        for index in 0..self.geometry.leaf_lines() {
            let occupancy = occupancies.get(index).copied().unwrap_or(0);
            let stamp = self.stamp(index).with_incarnation(incarnation).with_occupancy(occupancy);
            end_write(self.line(index), stamp);
        }
    }

    /// Copies a value, without its version, between `begin_write` and `end_write` of its lines.
    fn copy_value(&self, from: &LeafWriter<'_>, source: LeafSlot, target: LeafSlot) {
        let words = self.geometry.value_words();
        let (source_place, target_place) =
            (self.geometry.value_place(source), self.geometry.value_place(target));
        if words == 1 {
            let value = from.line(source_place.line)[1 + source_place.index].load(Ordering::Relaxed);
            self.line(target_place.line)[1 + target_place.index].store(value, Ordering::Relaxed);
            return;
        }
        for word in 1..=words {
            let (source_line, source_word) = body_place(from.first_body_word(source) + word);
            let (target_line, target_word) = body_place(self.first_body_word(target) + word);
            let content = from.line(source_place.line + source_line)[source_word].load(Ordering::Relaxed);
            self.line(target_place.line + target_line)[target_word].store(content, Ordering::Relaxed);
        }
    }
}

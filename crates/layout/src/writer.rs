//! The one writer of a leaf's bytes. The holder of a [`LeafWriter`] holds the leaf's latch.
//!
//! Invariants:
//! - a value is in place before its key's line shows it (insert), and every line shows a new incarnation
//!   before any slot means something else (rewrite);
//! - a slot is used once in an incarnation: *spent* counts upwards and a removed key's slot stays spent;
//! - all lines of a value of several lines have the same version.
//!
//! The latch is a bit of the leaf's owner word, which only threads of the server's process touch. It dies
//! with them; no lease is needed because no other process can hold it.

#[cfg(injected)]
mod injected;
mod scrub;
mod split;

use std::mem::ManuallyDrop;

use farsight_base::sync::{AtomicU64, Ordering, spin_loop};
use farsight_base::words::{CopyMode, Widest, begin_write, copy_lines, end_write};
use farsight_base::{Line, Stamp, WORDS_PER_LINE};

use crate::simd::words_below_unchecked;
use crate::value::{body_place, short_version_of, short_version_word, with_short_version};
use crate::{
    Fences, Geometry, HIGH_FENCE_WORD, INFINITE_FLAG_BIT, KEY_LINES, LEAF_SLOTS, LOW_FENCE_WORD, LeafImage,
    LeafSlot, NEXT_WORD, OWNER_WORD, PAIR_VERSION_BITS, PERMUTATION_WORD,
};

pub use split::SortedPair;

const LATCH_BIT: u64 = 1;
const SPENT_SHIFT: u32 = 8;
/// Slots in ascending order: the permutation of a leaf without pairs.
const IDENTITY_PERMUTATION: u64 = 0xfedc_ba98_7654_3210;

/// A latch was not free within the attempts allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LatchTimeout;

/// A latched leaf; dropping it unlatches.
#[derive(Debug)]
pub struct LeafWriter<'a> {
    words: &'a [AtomicU64],
    geometry: &'a Geometry,
}

impl<'a> LeafWriter<'a> {
    /// Latches the leaf in `words`, trying `attempts` times.
    ///
    /// # Errors
    /// [`LatchTimeout`].
    ///
    /// # Panics
    /// If `words` is not one leaf of `geometry`.
    pub fn latch(
        words: &'a [AtomicU64],
        geometry: &'a Geometry,
        attempts: usize,
    ) -> Result<Self, LatchTimeout> {
        assert_eq!(words.len(), geometry.leaf_words(), "words of a leaf");
        let owner = &words[OWNER_WORD];
        for _ in 0..attempts {
            let seen = owner.load(Ordering::Relaxed);
            // Acquire: what the last holder wrote is seen. Partner: the Release store in `drop`.
            if seen & LATCH_BIT == 0
                && owner
                    .compare_exchange_weak(seen, seen | LATCH_BIT, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return Ok(Self { words, geometry });
            }
            spin_loop();
        }
        Err(LatchTimeout)
    }

    /// A copy of the key part; nothing changes under the latch.
    #[must_use]
    pub fn key_lines(&self) -> [Line; KEY_LINES] {
        let mut lines = [Line::ZERO; KEY_LINES];
        copy_lines(&self.words[..KEY_LINES * WORDS_PER_LINE], &mut lines, CopyMode::Plain);
        lines
    }

    /// Copies the lines of `slot`'s value into `lines` ([`Geometry::lines_per_value`] of them).
    pub fn value_lines(&self, slot: LeafSlot, lines: &mut [Line]) {
        let first = self.geometry.value_place(slot).line * WORDS_PER_LINE;
        copy_lines(&self.words[first..first + lines.len() * WORDS_PER_LINE], lines, CopyMode::Plain);
    }

    /// True if a slot is occupied by a pair of this key.
    #[inline]
    #[must_use]
    pub fn is_at(&self, key: u64, slot: LeafSlot) -> bool {
        // Relaxed: as in `spent`.
        self.words[slot.key_word()].load(Ordering::Relaxed) == key
            && self.stamp(slot.key_line()).occupancy() & slot.occupancy_bit() != 0
    }

    /// The version of the pair in an occupied slot.
    #[inline]
    #[must_use]
    pub fn version(&self, slot: LeafSlot) -> u64 {
        let place = self.geometry.value_place(slot);
        let line = self.line(place.line);
        // Relaxed: as in `spent`.
        let word = |word: usize| line[word].load(Ordering::Relaxed);
        if self.geometry.value_words() == 1 {
            return short_version_of([short_version_word(place.index), 7].map(word), place.index);
        }
        // Its line is the value's first one: what is behind it has the value.
        word(body_place(self.first_body_word(slot)).1)
    }

    /// Slots used in this incarnation, removed ones included.
    #[must_use]
    pub fn spent(&self) -> usize {
        // Relaxed: written under the latch alone.
        (self.words[OWNER_WORD].load(Ordering::Relaxed) >> SPENT_SHIFT & 0xff) as usize
    }

    /// Inserts an absent key. Returns `None` if every slot is spent.
    #[inline]
    pub fn insert(&mut self, key: u64, version: u64, value: &[u8]) -> Option<LeafSlot> {
        #[cfg(injected)]
        if let Some(slot) = self.insert_wrongly(key, version, value) {
            return Some(slot);
        }
        let spent = self.spent();
        if spent == LEAF_SLOTS {
            return None;
        }
        let permutation = self.permutation();
        let slot = nibble(permutation, spent);
        self.write_value(slot, version, value);
        let permutation = moved(permutation, spent, self.rank(permutation, spent, key));
        if slot.key_line() == 0 {
            self.write_key_line(slot, key, Some(permutation));
        } else {
            self.write_permutation(permutation);
            self.write_key_line(slot, key, None);
        }
        self.set_spent(spent + 1);
        Some(slot)
    }

    /// Replaces the value in an occupied slot.
    pub fn update(&mut self, slot: LeafSlot, version: u64, value: &[u8]) {
        self.write_value(slot, version, value);
    }

    /// Removes the key in `slot`; the slot stays spent.
    pub fn remove(&mut self, slot: LeafSlot) {
        let line = self.line(slot.key_line());
        let stamp = begin_write(line);
        end_write(line, stamp.with_occupancy(stamp.occupancy() & !slot.occupancy_bit()));
    }

    /// Replaces everything: all lines are odd before the first word changes, and have the image's incarnation
    /// when they are even again.
    ///
    /// # Panics
    /// If the image's values are not of this leaf's size.
    pub fn rewrite(&mut self, image: &LeafImage) {
        self.rewrite_lines(image);
        self.set_spent(image.len());
    }

    /// As [`LeafWriter::rewrite`], of a block whose latch somebody else may hold who does not write it, and
    /// keeps the latch. How many slots were spent stays, too: `image` is without pairs, so nobody asks.
    ///
    /// # Panics
    /// If `words` is not one leaf of `geometry`, or `image` has pairs.
    pub fn empty_unlatched(words: &'a [AtomicU64], geometry: &'a Geometry, image: &LeafImage) {
        assert_eq!(words.len(), geometry.leaf_words(), "words of a leaf");
        assert_eq!(image.len(), 0, "pairs of an image without any");
        // Not dropped: that would unlatch.
        ManuallyDrop::new(Self { words, geometry }).rewrite_lines(image);
    }

    fn rewrite_lines(&self, image: &LeafImage) {
        self.begin_lines();
        self.store_header(image);
        let mut occupancies = [0_u8; KEY_LINES];
        for slot in LeafSlot::all() {
            let (key, version, value) =
                if slot.number() < image.len() { image.pair(slot.number()) } else { (0, 0, [].as_slice()) };
            if version != 0 {
                assert_eq!(value.len(), self.geometry.value_bytes(), "bytes of a value");
                occupancies[slot.key_line()] |= slot.occupancy_bit();
            }
            self.words[slot.key_word()].store(key, Ordering::Relaxed);
            self.store_value(slot, version, value);
        }
        for index in 0..self.geometry.leaf_lines() {
            let stamp = self.stamp(index);
            let occupancy = occupancies.get(index).copied().unwrap_or(0);
            end_write(self.line(index), stamp.with_incarnation(image.incarnation).with_occupancy(occupancy));
        }
    }

    fn line(&self, index: usize) -> &'a [AtomicU64] {
        &self.words[index * WORDS_PER_LINE..][..WORDS_PER_LINE]
    }

    fn set_spent(&self, spent: usize) {
        debug_assert!(spent <= LEAF_SLOTS);
        // Relaxed: only holders of the latch read it; `drop` publishes it to the next.
        self.words[OWNER_WORD].store(LATCH_BIT | (spent as u64) << SPENT_SHIFT, Ordering::Relaxed);
    }

    fn store_header(&self, image: &LeafImage) {
        let Fences { low, high } = image.fences;
        let next = u64::from(image.next.0) | u64::from(high.is_none()) << INFINITE_FLAG_BIT;
        // Relaxed: all of it lies between `begin_write` and `end_write` of line 0.
        self.words[NEXT_WORD].store(next, Ordering::Relaxed);
        self.words[LOW_FENCE_WORD].store(low, Ordering::Relaxed);
        self.words[HIGH_FENCE_WORD].store(high.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.words[PERMUTATION_WORD].store(IDENTITY_PERMUTATION, Ordering::Relaxed);
    }

    fn write_key_line(&self, slot: LeafSlot, key: u64, permutation: Option<u64>) {
        let line = self.line(slot.key_line());
        let stamp = begin_write(line);
        self.words[slot.key_word()].store(key, Ordering::Relaxed);
        if let Some(permutation) = permutation {
            self.words[PERMUTATION_WORD].store(permutation, Ordering::Relaxed);
        }
        end_write(line, stamp.with_occupancy(stamp.occupancy() | slot.occupancy_bit()));
    }

    fn write_permutation(&self, permutation: u64) {
        let line = self.line(0);
        let stamp = begin_write(line);
        self.words[PERMUTATION_WORD].store(permutation, Ordering::Relaxed);
        end_write(line, stamp);
    }

    fn permutation(&self) -> u64 {
        // Relaxed: the latch's holder is its only writer.
        self.words[PERMUTATION_WORD].load(Ordering::Relaxed)
    }

    fn stamp(&self, line: usize) -> Stamp {
        // Relaxed: as above.
        Stamp(self.line(line)[0].load(Ordering::Relaxed))
    }

    /// How many of the `spent` slots have keys below `key`. Looks at all of them: halving would wait for each
    /// key before it knows the next.
    #[inline]
    fn rank(&self, permutation: u64, spent: usize, key: u64) -> usize {
        let keys = self.words.first_chunk().expect("a leaf has a key part");
        let occupied = (0..KEY_LINES).map(|line| u32::from(self.stamp(line).occupancy()) << (8 * line));
        let occupied = occupied.fold(0, |all, line| all | line);
        // Removed keys have their places in the order, too, and no bit.
        match Widest::if_known().filter(|_| occupied.count_ones() as usize == spent) {
            Some(widest) => (words_below_unchecked(keys, key, widest) & occupied).count_ones() as usize,
            None => Self::rank_by_words(keys, permutation, spent, key),
        }
    }

    fn rank_by_words(
        keys: &[AtomicU64; KEY_LINES * WORDS_PER_LINE],
        permutation: u64,
        spent: usize,
        key: u64,
    ) -> usize {
        let is_below = |position: usize| {
            let word = nibble(permutation, position).key_word();
            usize::from(keys[word].load(Ordering::Relaxed) < key) & usize::from(position < spent)
        };
        (0..LEAF_SLOTS).map(is_below).sum()
    }

    fn write_value(&self, slot: LeafSlot, version: u64, value: &[u8]) {
        assert_eq!(value.len(), self.geometry.value_bytes(), "bytes of a value");
        assert!(version != 0 && version >> PAIR_VERSION_BITS == 0, "version {version:#x}");
        let first = self.geometry.value_place(slot).line;
        if self.geometry.lines_per_value() == 1 {
            let stamp = begin_write(self.line(first));
            self.store_value(slot, version, value);
            return end_write(self.line(first), stamp);
        }
        let lines = first..first + self.geometry.lines_per_value();
        for index in lines.clone() {
            begin_write(self.line(index));
        }
        self.store_value(slot, version, value);
        for index in lines {
            let line = self.line(index);
            end_write(line, Stamp(line[0].load(Ordering::Relaxed)));
        }
    }

    /// Stores value and version between `begin_write` and `end_write` of their lines.
    fn store_value(&self, slot: LeafSlot, version: u64, value: &[u8]) {
        let place = self.geometry.value_place(slot);
        let line = self.line(place.line);
        let words = self.geometry.value_words();
        if words == 1 {
            line[1 + place.index].store(word_of(value), Ordering::Relaxed);
            self.store_version(slot, version);
            return;
        }
        let first = self.first_body_word(slot);
        let mut chunks = value.chunks(8);
        for index in 0..=words {
            let (line, word) = body_place(first + index);
            let content = if index == 0 { version } else { word_of(chunks.next().unwrap_or(&[])) };
            self.line(place.line + line)[word].store(content, Ordering::Relaxed);
        }
    }

    /// Stores the version of `slot` between `begin_write` and `end_write` of its line.
    fn store_version(&self, slot: LeafSlot, version: u64) {
        let place = self.geometry.value_place(slot);
        let line = self.line(place.line);
        if self.geometry.value_words() > 1 {
            line[body_place(self.first_body_word(slot)).1].store(version, Ordering::Relaxed);
            return;
        }
        let low_word = short_version_word(place.index);
        let words = [low_word, 7].map(|word| line[word].load(Ordering::Relaxed));
        let [low, high] = with_short_version(words, place.index, version);
        line[low_word].store(low, Ordering::Relaxed);
        line[7].store(high, Ordering::Relaxed);
    }

    /// Where the body words of `slot`'s version and value begin, counted from its first line.
    fn first_body_word(&self, slot: LeafSlot) -> usize {
        self.geometry.value_place(slot).index * (self.geometry.value_words() + 1)
    }
}

impl Drop for LeafWriter<'_> {
    fn drop(&mut self) {
        let owner = &self.words[OWNER_WORD];
        // Release: all that was written under the latch. Partner: the Acquire exchange in `latch`.
        owner.store(owner.load(Ordering::Relaxed) & !LATCH_BIT, Ordering::Release);
    }
}

/// The slot at a position of a permutation.
#[inline]
fn nibble(permutation: u64, position: usize) -> LeafSlot {
    LeafSlot::new((permutation >> (4 * position) & 15) as usize).expect("four bits are a slot")
}

/// The permutation with the slot at position `from` moved down to position `to`.
#[inline]
fn moved(permutation: u64, from: usize, to: usize) -> u64 {
    let below = nibbles(to);
    let between = nibbles(from) & !below;
    let above = !nibbles(from + 1);
    let slot = permutation >> (4 * from) & 15;
    permutation & below | slot << (4 * to) | (permutation & between) << 4 | permutation & above
}

/// The lowest `count` nibbles of a word, set.
fn nibbles(count: usize) -> u64 {
    1_u64.checked_shl(4 * count as u32).map_or(u64::MAX, |bit| bit - 1)
}

/// Up to eight bytes as a word, padded with zeros.
#[inline]
fn word_of(bytes: &[u8]) -> u64 {
    if let Ok(word) = bytes.try_into() {
        return u64::from_le_bytes(word);
    }
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

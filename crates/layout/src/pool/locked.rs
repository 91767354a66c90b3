//! A leaf whose lock the caller holds: its block as a private copy, and its changes as WRITEs.
//!
//! Invariant: the copy is what stands in the block once the WRITEs planned so far are executed. Nobody else
//! writes the block meanwhile.
//!
//! A change is made of *steps*. The words of one step may become visible in any order; those of a step before
//! are visible first. A value's lines are made odd, written, made even. A key's line is not made odd, because
//! what an insert writes into it means nothing before its stamp, one word, shows it. A value of several lines
//! leaves all of them with equal versions, whatever a holder that died left there.

use std::array;
use std::ops::Range;

use farsight_base::{LeafNumber, Line, Stamp, WORDS_PER_LINE};

use super::journal::{ANCHOR_BIT, CHECK_WORD, FLOOR_WORD, Journal, ValueWords};
use super::{BlockGeometry, LockWord, Writes};
use crate::value::{body_place, short_version, short_version_word, with_short_version};
use crate::{
    Fences, KEY_LINES, KeyLines, KeySearch, LEAF_SLOTS, LeafSlot, OWNER_WORD, PAIR_VERSION_BITS,
    PERMUTATION_WORD, SHORT_VALUES_PER_LINE,
};

/// Words at most that one WRITE has between two pieces of a step, as they stand. A card pays by the verb: a
/// WRITE takes a ConnectX-5 as long as 175 B take its link, which has room for more.
const GAP_WORDS_MAX: usize = 4 * WORDS_PER_LINE;

/// A locked leaf.
#[derive(Debug)]
pub struct LockedLeaf<'a> {
    pub(super) geometry: &'a BlockGeometry,
    pub(super) number: LeafNumber,
    pub(super) lines: &'a mut [Line],
}

impl<'a> LockedLeaf<'a> {
    /// Leaf `number` of the pool, whose block stands in `lines` as READ under the lock.
    ///
    /// # Panics
    /// If `lines` are not one block of `geometry`.
    #[must_use]
    pub fn new(geometry: &'a BlockGeometry, number: LeafNumber, lines: &'a mut [Line]) -> Self {
        assert_eq!(lines.len(), geometry.lines(), "lines of a block");
        Self { geometry, number, lines }
    }

    /// True if every line is even and of one incarnation, and the fences are a leaf's. It is, unless a holder
    /// of the lock died, or the block never was a leaf.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        let incarnation = self.stamp(0).incarnation();
        let mut stamps = (0..self.leaf_lines()).map(|line| self.stamp(line));
        stamps.all(|stamp| !stamp.is_changing() && stamp.incarnation() == incarnation)
            && self.fences().is_some()
    }

    /// True if the lock word names a holder: that of the session that locked the leaf, unless memory lies.
    #[must_use]
    pub fn is_held(&self) -> bool {
        LockWord(self.word(OWNER_WORD)).owner().is_some()
    }

    /// WRITEs at most of an update, a removal, or an insert into a free slot, of a leaf that is held.
    #[must_use]
    pub fn change_writes_max(&self) -> usize {
        self.geometry.change_writes_max()
    }

    /// Bytes of one value.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        self.geometry.leaf().value_bytes()
    }

    /// The leaf's number in its pool.
    #[must_use]
    pub fn number(&self) -> LeafNumber {
        self.number
    }

    /// The keys that belong here; `None` if this is no leaf.
    #[must_use]
    pub fn fences(&self) -> Option<Fences> {
        self.key_lines().fences()
    }

    /// The right sibling's number.
    #[must_use]
    pub fn next(&self) -> LeafNumber {
        self.key_lines().next()
    }

    /// The incarnation of its lines.
    #[must_use]
    pub fn incarnation(&self) -> u32 {
        self.stamp(0).incarnation()
    }

    /// Looks `key` up. In a consistent leaf, never [`KeySearch::Changing`].
    #[must_use]
    pub fn search(&self, key: u64) -> KeySearch {
        self.key_lines().search(key)
    }

    /// The occupied slots and their keys in key order; how many.
    #[must_use]
    pub fn sorted(&self) -> ([(u64, LeafSlot); LEAF_SLOTS], usize) {
        let mut pairs = [(0, LeafSlot::FIRST); LEAF_SLOTS];
        let count = self.key_lines().sorted(&mut pairs);
        (pairs, count)
    }

    /// The version in a slot; 0: it is free in this incarnation.
    #[must_use]
    pub fn version(&self, slot: LeafSlot) -> u64 {
        let place = self.geometry.leaf().value_place(slot);
        if self.geometry.leaf().value_words() == 1 {
            return short_version(&self.lines[place.line].0, place.index);
        }
        let (line, word) = body_place(self.first_body_word(slot));
        self.lines[place.line + line].0[word]
    }

    /// The greatest version that any key here ever had.
    #[must_use]
    pub fn newest_version(&self) -> u64 {
        let floor = self.word(self.floor_word()) & ((1 << PAIR_VERSION_BITS) - 1);
        if self.geometry.leaf().value_words() == 1 {
            // Line by line: where a slot's version stands is not asked sixteen times.
            let lines = self.lines[KEY_LINES..self.leaf_lines()].iter();
            let versions = |line: &Line| {
                array::from_fn::<u64, SHORT_VALUES_PER_LINE, _>(|index| short_version(&line.0, index))
            };
            return lines.flat_map(versions).fold(floor, u64::max);
        }
        LeafSlot::all().map(|slot| self.version(slot)).fold(floor, u64::max)
    }

    /// True if no slot is occupied.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.key_lines().is_empty()
    }

    /// True if a group of the learned index may begin here. Then the leaf is not merged into another, unless
    /// a look at the index shows that none does.
    #[must_use]
    pub fn is_anchored(&self) -> bool {
        self.word(self.floor_word()) >> ANCHOR_BIT & 1 == 1
    }

    /// Anchors the leaf, for as long as it is one.
    pub fn anchor(&mut self, writes: &mut Writes) {
        let floor = self.floor_word();
        self.set_word(floor, self.word(floor) | 1 << ANCHOR_BIT);
        self.write(word(floor), writes);
    }

    /// The value in a slot.
    pub fn value(&self, slot: LeafSlot, into: &mut [u8]) {
        for (index, bytes) in into.chunks_mut(8).enumerate() {
            let (line, word) = self.value_word_place(slot, index);
            bytes.copy_from_slice(&self.lines[line].0[word].to_le_bytes()[..bytes.len()]);
        }
    }

    /// A slot that was not used in this incarnation.
    #[must_use]
    pub fn free_slot(&self) -> Option<LeafSlot> {
        LeafSlot::all().find(|slot| self.version(*slot) == 0 && !self.key_lines().is_occupied(*slot))
    }

    /// Inserts an absent key into a free slot, in three steps. It is there when the last one is visible.
    pub fn insert(&mut self, slot: LeafSlot, key: u64, version: u64, value: &[u8], writes: &mut Writes) {
        debug_assert!(version != 0 && self.version(slot) == 0, "{slot:?} is not free");
        let (lines, key_line, key_word) = (self.value_lines(slot), slot.key_line(), slot.key_word());
        let stamp = self.closed_stamp(lines.clone());
        self.set_word(key_word, key);
        let occupied = |other: LeafSlot| other == slot || self.key_lines().is_occupied(other);
        self.set_word(PERMUTATION_WORD, self.permutation(occupied));
        self.set_changing(lines.clone());
        let key_words = [word(PERMUTATION_WORD), word(key_word)];
        self.write_step(key_words.into_iter().chain(stamps(lines.clone())), writes);
        self.set_value(slot, version, &words_of(value));
        self.write_bodies(lines.clone(), writes);
        let shown = self.stamp(key_line).written();
        self.lines[key_line].0[0] = shown.with_occupancy(shown.occupancy() | slot.occupancy_bit()).0;
        self.set_stamps(lines.clone(), stamp);
        self.write_step(stamps(key_line..key_line + 1).chain(stamps(lines)), writes);
    }

    /// Removes the key in an occupied slot, with one WRITE.
    pub fn remove(&mut self, slot: LeafSlot, writes: &mut Writes) {
        let stamp = self.stamp(slot.key_line()).written();
        let occupancy = stamp.occupancy() & !slot.occupancy_bit();
        self.write_stamp(slot.key_line(), stamp.with_occupancy(occupancy), writes);
    }

    /// Replaces the value in an occupied slot, in three steps. The last one completes it, or else the compute
    /// node that repairs the leaf.
    ///
    /// The first has the journal and the odd stamps. The value's own words change behind all of that. So
    /// lines that are odd under the journal before hold what that journal, or nobody, wants there.
    pub fn update(&mut self, slot: LeafSlot, version: u64, value: &[u8], writes: &mut Writes) {
        let (lines, value) = (self.value_lines(slot), words_of(value));
        let journal = Journal::Update { incarnation: self.incarnation(), slot, version, value };
        let stamp = self.closed_stamp(lines.clone());
        let journaled = self.set_journal(&journal);
        self.set_changing(lines.clone());
        #[cfg(injected)]
        let journaled = if crate::injected::JOURNAL_MISSING.is_injected() { 0..0 } else { journaled };
        self.write_step(stamps(lines.clone()).chain([journaled]), writes);
        let Journal::Update { value, .. } = journal else { unreachable!("made above") };
        self.set_value(slot, version, &value);
        self.end_value(lines, stamp, writes);
    }

    /// Gives the leaf back: to anybody, or with [`LockWord::CLOSED`] to nobody.
    pub fn unlock(&mut self, to: LockWord, writes: &mut Writes) {
        self.set_word(OWNER_WORD, to.0);
        self.write(word(OWNER_WORD), writes);
    }

    #[inline]
    pub(super) fn leaf_lines(&self) -> usize {
        self.geometry.leaf().leaf_lines()
    }

    #[inline]
    pub(super) fn key_lines(&self) -> KeyLines<'_> {
        KeyLines(self.lines.first_chunk::<KEY_LINES>().expect("a block has a key part"))
    }

    #[inline]
    pub(super) fn stamp(&self, line: usize) -> Stamp {
        self.lines[line].stamp()
    }

    #[inline]
    pub(super) fn word(&self, word: usize) -> u64 {
        self.lines[word / WORDS_PER_LINE].0[word % WORDS_PER_LINE]
    }

    #[inline]
    pub(super) fn set_word(&mut self, word: usize, content: u64) {
        self.lines[word / WORDS_PER_LINE].0[word % WORDS_PER_LINE] = content;
    }

    /// The word of the block that holds floor and anchor.
    pub(super) fn floor_word(&self) -> usize {
        self.geometry.first_control_word() + FLOOR_WORD
    }

    /// The control words.
    pub(super) fn control(&self) -> Vec<u64> {
        self.lines[self.leaf_lines()..].iter().flat_map(|line| line.0).collect()
    }

    /// Plans one WRITE of these words as they stand in the copy.
    pub(super) fn write(&self, words: Range<usize>, writes: &mut Writes) {
        writes.push(self.number, words.start, words.map(|word| self.word(word)));
    }

    /// Plans a step: these words as they stand in the copy, in ascending order. Pieces that lie close
    /// together are one WRITE, with what lies between them: the lock's holder knows what stands there, and
    /// nobody else changes it. A lock word that says *free* stays out: memory lies if that leaf is locked.
    pub(super) fn write_step(&self, pieces: impl IntoIterator<Item = Range<usize>>, writes: &mut Writes) {
        let is_held = self.word(OWNER_WORD) != LockWord::FREE.0;
        let mut joined: Option<Range<usize>> = None;
        for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
            if let Some(joined) = &mut joined {
                debug_assert!(joined.start <= piece.start, "pieces in ascending order");
                let is_near = piece.start <= joined.end + GAP_WORDS_MAX;
                if is_near && (is_held || !(joined.end..piece.start).contains(&OWNER_WORD)) {
                    joined.end = joined.end.max(piece.end);
                    continue;
                }
            }
            if let Some(before) = joined.replace(piece) {
                self.write(before, writes);
            }
        }
        if let Some(last) = joined {
            self.write(last, writes);
        }
    }

    pub(super) fn write_stamp(&mut self, line: usize, stamp: Stamp, writes: &mut Writes) {
        self.set_stamps(line..line + 1, stamp);
        self.write_step(stamps(line..line + 1), writes);
    }

    /// Plans a step: lines without their stamps.
    pub(super) fn write_bodies(&self, lines: impl IntoIterator<Item = usize>, writes: &mut Writes) {
        let bodies = lines.into_iter().map(|line| line * WORDS_PER_LINE + 1..(line + 1) * WORDS_PER_LINE);
        self.write_step(bodies, writes);
    }

    /// Changes the journal in the copy alone; its words of the block.
    pub(super) fn set_journal(&mut self, journal: &Journal) -> Range<usize> {
        let first = self.geometry.first_control_word() + CHECK_WORD;
        let words = journal.encode();
        for (word, content) in (first..).zip(&words) {
            self.set_word(word, *content);
        }
        first..first + words.len()
    }

    /// Makes lines odd, unless they are, in the copy alone.
    pub(super) fn set_changing(&mut self, lines: Range<usize>) {
        for line in lines {
            let stamp = self.stamp(line);
            if !stamp.is_changing() {
                self.set_stamps(line..line + 1, stamp.changing());
            }
        }
    }

    /// Changes stamps in the copy alone.
    pub(super) fn set_stamps(&mut self, lines: Range<usize>, stamp: Stamp) {
        self.lines[lines].iter_mut().for_each(|line| line.0[0] = stamp.0);
    }

    /// The even stamp that the lines of one value get, all of the same version.
    pub(super) fn closed_stamp(&self, lines: Range<usize>) -> Stamp {
        let stamps = lines.map(|line| self.stamp(line).written());
        let newer = |one: Stamp, other: Stamp| {
            let is_newer = other.version().wrapping_sub(one.version()).cast_signed() > 0;
            if is_newer { other } else { one }
        };
        stamps.reduce(newer).expect("a value has lines")
    }

    /// The lines that hold `slot`'s value.
    pub(super) fn value_lines(&self, slot: LeafSlot) -> Range<usize> {
        let first = self.geometry.leaf().value_place(slot).line;
        first..first + self.geometry.leaf().lines_per_value()
    }

    pub(super) fn write_value(&mut self, slot: LeafSlot, version: u64, value: &[u64], writes: &mut Writes) {
        let lines = self.value_lines(slot);
        let stamp = self.closed_stamp(lines.clone());
        self.set_changing(lines.clone());
        self.write_step(stamps(lines.clone()), writes);
        self.set_value(slot, version, value);
        self.end_value(lines, stamp, writes);
    }

    /// Plans the last steps of a value whose lines are odd: its words in the copy, then its lines' `stamp`.
    fn end_value(&mut self, lines: Range<usize>, stamp: Stamp, writes: &mut Writes) {
        self.write_bodies(lines.clone(), writes);
        self.set_stamps(lines.clone(), stamp);
        self.write_step(stamps(lines), writes);
    }

    /// Changes version and value in the copy alone.
    pub(super) fn set_value(&mut self, slot: LeafSlot, version: u64, value: &[u64]) {
        self.set_version(slot, version);
        for (index, content) in value.iter().enumerate() {
            let (line, word) = self.value_word_place(slot, index);
            self.lines[line].0[word] = *content;
        }
    }

    /// Changes a version in the copy alone.
    pub(super) fn set_version(&mut self, slot: LeafSlot, version: u64) {
        let place = self.geometry.leaf().value_place(slot);
        if self.geometry.leaf().value_words() > 1 {
            let (line, word) = body_place(self.first_body_word(slot));
            self.lines[place.line + line].0[word] = version;
            return;
        }
        let low_word = short_version_word(place.index);
        let words = &mut self.lines[place.line].0;
        [words[low_word], words[7]] = with_short_version([words[low_word], words[7]], place.index, version);
    }

    /// The permutation if these slots are the occupied ones.
    pub(super) fn permutation(&self, occupied: impl Fn(LeafSlot) -> bool) -> u64 {
        let mut slots = [LeafSlot::FIRST; LEAF_SLOTS];
        slots.iter_mut().zip(LeafSlot::all()).for_each(|(place, slot)| *place = slot);
        slots.sort_by_key(|slot| {
            let is_free = !occupied(*slot);
            (is_free, if is_free { 0 } else { self.word(slot.key_word()) })
        });
        slots.iter().rev().fold(0, |permutation, slot| permutation << 4 | slot.number() as u64)
    }

    /// The line of the block, and the word in it, that hold word `index` of `slot`'s value.
    fn value_word_place(&self, slot: LeafSlot, index: usize) -> (usize, usize) {
        let place = self.geometry.leaf().value_place(slot);
        if self.geometry.leaf().value_words() == 1 {
            return (place.line, 1 + place.index);
        }
        let (line, word) = body_place(self.first_body_word(slot) + 1 + index);
        (place.line + line, word)
    }

    /// The body word, counted from the first line of its value, at which `slot`'s version stands.
    fn first_body_word(&self, slot: LeafSlot) -> usize {
        self.geometry.leaf().value_place(slot).index * (self.geometry.leaf().value_words() + 1)
    }
}

/// One word of a block.
pub(super) fn word(word: usize) -> Range<usize> {
    word..word + 1
}

/// The words of a block that hold the stamps of these lines.
pub(super) fn stamps(lines: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    lines.map(|line| word(line * WORDS_PER_LINE))
}

/// The value in whole words, padded with zeros.
pub(super) fn words_of(value: &[u8]) -> ValueWords {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    value.chunks(8).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Writes;

    /// A change of a leaf whose lock word is `lock`; what its WRITEs make of that word.
    fn lock_words_written(value_bytes: usize, lock: LockWord) -> Vec<u64> {
        let geometry = BlockGeometry::new(value_bytes).expect("a geometry");
        let words = geometry.first_leaf();
        let mut lines: Vec<Line> = words.as_chunks().0.iter().map(|words| Line(*words)).collect();
        let mut leaf = LockedLeaf::new(&geometry, LeafNumber(0), &mut lines);
        leaf.set_word(OWNER_WORD, lock.0);
        let mut writes = Writes::default();
        let (value, other) = (vec![1; value_bytes], vec![2; value_bytes]);
        let slot = leaf.free_slot().expect("an empty leaf");
        leaf.insert(slot, 5, 1, &value, &mut writes);
        leaf.update(slot, 2, &other, &mut writes);
        leaf.remove(slot, &mut writes);
        leaf.compact(&mut writes);
        let written = writes.iter().filter_map(|(_, first, words)| words.get(OWNER_WORD.checked_sub(first)?));
        written.copied().collect()
    }

    /// A WRITE of a lock word that says *free* would take the lock of a session that has it by now.
    #[test]
    fn a_lock_word_that_says_free_is_not_written_with_what_lies_around_it() {
        let held = LockWord::of(3, 4);
        for value_bytes in [8, 16, 24, 56, 217] {
            assert_eq!(lock_words_written(value_bytes, LockWord::FREE), [0; 0], "{value_bytes} B");
            let written = lock_words_written(value_bytes, held);
            assert!(!written.is_empty() && written.iter().all(|word| *word == held.0), "{value_bytes} B");
        }
    }
}

//! A leaf whose lock the caller holds: its block as a private copy, and its changes as WRITEs.
//!
//! Invariant: the copy is what stands in the block once the WRITEs planned so far are executed. Nobody else
//! writes the block meanwhile.
//!
//! A value's lines are made odd, written, made even. A key's line is not made odd, because what an insert
//! writes into it means nothing before its stamp, one word, shows it. A value of several lines leaves all of
//! them with equal versions, whatever a holder that died left there.

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

/// Words of one WRITE at most that journals an update and makes its lines odd: as many as a table of short
/// values needs.
const JOURNALED_WORDS_MAX: usize = 5 * WORDS_PER_LINE;

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

    /// Lines of one value.
    #[must_use]
    pub fn lines_per_value(&self) -> usize {
        self.geometry.leaf().lines_per_value()
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
        self.write(floor..floor + 1, writes);
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

    /// Inserts an absent key into a free slot. It is there with the last WRITE.
    pub fn insert(&mut self, slot: LeafSlot, key: u64, version: u64, value: &[u8], writes: &mut Writes) {
        debug_assert!(version != 0 && self.version(slot) == 0, "{slot:?} is not free");
        self.write_value(slot, version, &words_of(value), writes);
        let word = slot.key_word();
        self.set_word(word, key);
        let occupied = |other: LeafSlot| other == slot || self.key_lines().is_occupied(other);
        self.set_word(PERMUTATION_WORD, self.permutation(occupied));
        if slot.key_line() == 0 {
            self.write(PERMUTATION_WORD..WORDS_PER_LINE, writes);
        } else {
            self.write(PERMUTATION_WORD..PERMUTATION_WORD + 1, writes);
            self.write(word..word + 1, writes);
        }
        let stamp = self.stamp(slot.key_line()).written();
        self.write_stamp(
            slot.key_line(),
            stamp.with_occupancy(stamp.occupancy() | slot.occupancy_bit()),
            writes,
        );
    }

    /// Removes the key in an occupied slot, with one WRITE.
    pub fn remove(&mut self, slot: LeafSlot, writes: &mut Writes) {
        let stamp = self.stamp(slot.key_line()).written();
        let occupancy = stamp.occupancy() & !slot.occupancy_bit();
        self.write_stamp(slot.key_line(), stamp.with_occupancy(occupancy), writes);
    }

    /// Replaces the value in an occupied slot. The last WRITE completes it, or else the compute node that
    /// repairs the leaf.
    pub fn update(&mut self, slot: LeafSlot, version: u64, value: &[u8], writes: &mut Writes) {
        let value = words_of(value);
        let journal = Journal::Update { incarnation: self.incarnation(), slot, version, value };
        let stamp = self.begin_update(&journal, slot, writes);
        let Journal::Update { value, .. } = journal else { unreachable!("made above") };
        self.set_value(slot, version, &value);
        self.end_value(slot, stamp, writes);
    }

    /// Gives the leaf back: to anybody, or with [`LockWord::CLOSED`] to nobody.
    pub fn unlock(&mut self, to: LockWord, writes: &mut Writes) {
        self.set_word(OWNER_WORD, to.0);
        self.write(OWNER_WORD..OWNER_WORD + 1, writes);
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

    /// Plans a WRITE of these words as they stand in the copy.
    pub(super) fn write(&self, words: Range<usize>, writes: &mut Writes) {
        writes.push(self.number, words.start, words.map(|word| self.word(word)));
    }

    pub(super) fn write_stamp(&mut self, line: usize, stamp: Stamp, writes: &mut Writes) {
        self.lines[line].0[0] = stamp.0;
        self.write(line * WORDS_PER_LINE..line * WORDS_PER_LINE + 1, writes);
    }

    /// Plans the WRITE of a line without its stamp.
    pub(super) fn write_body(&self, line: usize, writes: &mut Writes) {
        self.write(line * WORDS_PER_LINE + 1..(line + 1) * WORDS_PER_LINE, writes);
    }

    pub(super) fn write_journal(&mut self, journal: &Journal, writes: &mut Writes) {
        let words = self.set_journal(journal);
        self.write(words, writes);
    }

    /// Changes the journal in the copy alone; its words of the block.
    fn set_journal(&mut self, journal: &Journal) -> Range<usize> {
        let first = self.geometry.first_control_word() + CHECK_WORD;
        let words = journal.encode();
        for (word, content) in (first..).zip(&words) {
            self.set_word(word, *content);
        }
        first..first + words.len()
    }

    /// Journals an update of `slot`, and makes its value's lines odd; the stamp that they get behind it.
    ///
    /// One WRITE does both if they lie close together: from the value's first line to the journal's end,
    /// with what lies between as it stands. No order of its words matters. Until all of them are visible the
    /// value's own words are not touched. So lines that are odd under the journal before hold what that
    /// journal, or nobody, wants there.
    fn begin_update(&mut self, journal: &Journal, slot: LeafSlot, writes: &mut Writes) -> Stamp {
        let lines = self.value_lines(slot);
        let stamp = self.closed_stamp(lines.clone());
        #[cfg(injected)]
        if crate::injected::JOURNAL_MISSING.is_injected() {
            lines.for_each(|line| self.open_line(line, writes));
            return stamp;
        }
        let journal = self.set_journal(journal);
        let both = lines.start * WORDS_PER_LINE..journal.end;
        if both.len() > JOURNALED_WORDS_MAX {
            self.write(journal, writes);
            lines.for_each(|line| self.open_line(line, writes));
        } else {
            lines.for_each(|line| self.lines[line].0[0] = self.stamp(line).changing().0);
            self.write(both, writes);
        }
        stamp
    }

    /// Makes the line odd, unless it is.
    pub(super) fn open_line(&mut self, line: usize, writes: &mut Writes) {
        let stamp = self.stamp(line);
        if !stamp.is_changing() {
            self.write_stamp(line, stamp.changing(), writes);
        }
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
        for line in lines {
            self.open_line(line, writes);
        }
        self.set_value(slot, version, value);
        self.end_value(slot, stamp, writes);
    }

    /// Plans the WRITEs of a value whose lines are odd: as it stands in the copy, then its lines' `stamp`.
    fn end_value(&mut self, slot: LeafSlot, stamp: Stamp, writes: &mut Writes) {
        let lines = self.value_lines(slot);
        for line in lines.clone() {
            self.write_body(line, writes);
        }
        for line in lines {
            self.write_stamp(line, stamp, writes);
        }
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

/// The value in whole words, padded with zeros.
pub(super) fn words_of(value: &[u8]) -> ValueWords {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    value.chunks(8).map(word).collect()
}

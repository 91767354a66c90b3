//! Changes of a whole leaf: creation, compaction, split, merge; and what a holder that died left behind.
//!
//! Invariant: a rewrite makes all lines odd before the first of them shows the next incarnation. No slot
//! means something else before all of them do. Key words never move. So what remains to be done follows from
//! the journal and the lines as they stand, wherever the holder stopped: a rewrite is its own redo.
//!
//! A block that is not in the chain of leaves is *closed*: nobody can lock it, and readers do not believe it.
//! So a leaf that a split made shows nothing before it is named, and one that was merged nothing after.

use std::iter;
use std::ops::Range;

use farsight_base::words::next_incarnation;
use farsight_base::{LeafNumber, Line, Stamp, WORDS_PER_LINE};
use smallvec::SmallVec;

use super::journal::{ANCHOR_BIT, CHECK_WORD, Journal};
use super::locked::{stamps, word, words_of};
use super::{BlockGeometry, LockWord, LockedLeaf, Neighbour, Rewrite, Writes};
use crate::{
    Fences, HIGH_FENCE_WORD, INFINITE_FLAG_BIT, KEY_LINES, LEAF_SLOTS, LOW_FENCE_WORD, LeafImage, LeafSlot,
    NEXT_WORD, OWNER_WORD, PERMUTATION_WORD,
};

impl BlockGeometry {
    /// The words of the only leaf of a table without pairs, open to everybody.
    #[must_use]
    pub fn first_leaf(&self) -> Vec<u64> {
        let mut lines = vec![Line::ZERO; self.lines()];
        let mut leaf = LockedLeaf::new(self, LeafNumber(0), &mut lines);
        let fences = Fences { low: 0, high: None };
        let image = LeafImage::new(self.leaf(), next_incarnation(0), LeafNumber::NONE, fences);
        let mut unsent = Writes::default();
        leaf.create(&image, 0, &mut unsent);
        leaf.unlock(LockWord::FREE, &mut unsent);
        lines.iter().flat_map(|line| line.0).collect()
    }
}

impl LockedLeaf<'_> {
    /// Makes a leaf of this block, closed and not yet named by anything: what stood there before is no leaf,
    /// or a closed one. The image's incarnation must follow [`LockedLeaf::incarnation`].
    pub fn create(&mut self, image: &LeafImage, floor: u64, writes: &mut Writes) {
        let leaf_lines = self.leaf_lines();
        let is_untouched = (0..leaf_lines).all(|line| self.stamp(line) == Stamp(0));
        if !is_untouched {
            // Of a creation that was cut off, any word may be missing.
            self.set_word(OWNER_WORD, LockWord::CLOSED.0);
            self.set_changing(0..leaf_lines);
            self.write_step(stamps(0..leaf_lines), writes);
        }
        self.fill(image, floor);
        let mut occupancies = [0; KEY_LINES];
        for slot in LeafSlot::all().take(image.len()) {
            occupancies[slot.key_line()] |= slot.occupancy_bit();
        }
        let all = 0..self.lines.len() * WORDS_PER_LINE;
        if is_untouched {
            self.set_even(image.incarnation, occupancies);
            self.write(all, writes);
        } else {
            self.write(all, writes);
            self.set_even(image.incarnation, occupancies);
            self.write_step(stamps(0..leaf_lines), writes);
        }
    }

    /// Frees the slots of removed keys, under a new incarnation.
    pub fn compact(&mut self, writes: &mut Writes) {
        let rewrite = Rewrite {
            incarnation: next_incarnation(self.incarnation()),
            next: self.word(NEXT_WORD),
            high: self.word(HIGH_FENCE_WORD),
            floor: self.newest_version(),
            neighbour: Neighbour::Same,
        };
        self.rewrite(rewrite, writes);
    }

    /// Moves the pairs from `separator` on to the block `right`, which becomes the right sibling and stays
    /// closed. The caller opens it, then ends the change.
    ///
    /// # Panics
    /// If the separator is not between the leaf's fences.
    pub fn split(&mut self, separator: u64, right: &mut LockedLeaf<'_>, writes: &mut Writes) {
        let Some(Fences { low, high }) = self.fences() else { panic!("{self:?} is no leaf") };
        assert!(low < separator && high.is_none_or(|high| separator < high), "separator {separator}");
        let floor = self.newest_version();
        let fences = Fences { low: separator, high };
        let incarnation = next_incarnation(right.incarnation());
        let mut image = LeafImage::new(self.geometry.leaf(), incarnation, self.next(), fences);
        let (pairs, count) = self.sorted();
        let mut least = Some(separator);
        let mut value = vec![0; self.geometry.leaf().value_bytes()];
        for (key, slot) in pairs.into_iter().take(count) {
            let (is_next, version) = (least.is_some_and(|least| key >= least), self.version(slot));
            // Whatever stands in a leaf that its fences or its versions contradict is no pair.
            if is_next && version != 0 && fences.contain(key) {
                self.value(slot, &mut value);
                image.push(key, version, &value);
                least = key.checked_add(1);
            }
        }
        right.create(&image, floor, writes);
        #[cfg(injected)]
        if crate::injected::BORN_OPENED_EARLY.is_injected() {
            right.unlock(LockWord::FREE, writes);
        }
        let rewrite = Rewrite {
            incarnation: next_incarnation(self.incarnation()),
            next: u64::from(right.number().0),
            high: separator,
            floor,
            neighbour: Neighbour::Born,
        };
        self.rewrite(rewrite, writes);
    }

    /// Takes over the keys of `right`, the right sibling, which holds no pair and is locked by `holder`, too.
    /// It is closed before anything else changes. The caller ends the change.
    pub fn merge(&mut self, right: &mut LockedLeaf<'_>, holder: LockWord, writes: &mut Writes) {
        debug_assert_eq!(self.next(), right.number(), "the right sibling");
        debug_assert!(right.is_empty(), "a leaf that stays");
        let rewrite = Rewrite {
            incarnation: next_incarnation(self.incarnation()),
            next: right.word(NEXT_WORD),
            high: right.word(HIGH_FENCE_WORD),
            floor: self.newest_version().max(right.newest_version()),
            neighbour: Neighbour::Merged { leaf: right.number(), holder },
        };
        let journal = self.set_journal(&Journal::Rewrite(rewrite));
        self.write(journal, writes);
        right.unlock(LockWord::CLOSED, writes);
        self.finish_rewrite(&rewrite, 0..0, writes);
    }

    /// Ends the leaf at `high`, where `right`, which is open already, begins. The caller ends the change.
    ///
    /// # Panics
    /// If `high` is not between the leaf's fences.
    pub fn end_at(&mut self, high: u64, right: LeafNumber, writes: &mut Writes) {
        let fences = self.fences();
        assert!(fences.is_some_and(|fences| fences.low < high && fences.contain(high)), "a leaf to {high}");
        let rewrite = Rewrite {
            incarnation: next_incarnation(self.incarnation()),
            next: u64::from(right.0),
            high,
            floor: self.newest_version(),
            neighbour: Neighbour::Same,
        };
        self.rewrite(rewrite, writes);
    }

    /// Ends a change of the whole leaf, after what [`LockedLeaf::repair`] or the change itself left to do
    /// elsewhere: nothing remains to be redone.
    pub fn clear_journal(&mut self, writes: &mut Writes) {
        let check = self.geometry.first_control_word() + CHECK_WORD;
        self.set_word(check, 0);
        self.write(word(check), writes);
    }

    /// What a holder of the lock that died leaves to do at the leaf to the right:
    ///
    /// - [`Neighbour::Merged`], before [`LockedLeaf::repair`]: that leaf's lock word is exchanged, from the
    ///   holder's to [`LockWord::CLOSED`]. If it is neither, the merge had not begun or is long done: then
    ///   [`LockedLeaf::abandon`] it is.
    /// - [`Neighbour::Born`], after [`LockedLeaf::repair`]: the sibling's lock word is exchanged, from
    ///   [`LockWord::CLOSED`] to the repairer's; if that succeeds the sibling is repaired, too, and unlocked.
    ///
    /// Then comes [`LockedLeaf::clear_journal`], and the lock's release.
    #[must_use]
    pub fn neighbour(&self) -> Neighbour {
        match self.journal() {
            Some(Journal::Rewrite(rewrite)) => rewrite.neighbour,
            _ => Neighbour::Same,
        }
    }

    /// Finishes what a holder of the lock that died had begun; the lock is the caller's now.
    pub fn repair(&mut self, writes: &mut Writes) {
        match self.journal() {
            Some(Journal::Update { incarnation, slot, version, value }) => {
                // With even lines it is finished, or had not begun.
                let is_begun = self.value_lines(slot).any(|line| self.stamp(line).is_changing());
                if is_begun && incarnation == self.incarnation() {
                    self.write_value(slot, version, &value, writes);
                }
            }
            Some(Journal::Rewrite(rewrite)) => self.finish_rewrite(&rewrite, 0..0, writes),
            None => {}
        }
        self.abandon(writes);
    }

    fn journal(&self) -> Option<Journal> {
        Journal::decode(self.geometry.leaf(), &self.control())
    }

    /// Makes every odd line even as it stands, whatever the journal says: what no stamp shows was not done.
    ///
    /// Of a value whose lines are odd in part, all are made odd first. Otherwise a repairer that dies could
    /// leave them even with different versions, and nothing would show that they are of one write.
    pub fn abandon(&mut self, writes: &mut Writes) {
        let single = (0..KEY_LINES).map(|line| line..line + 1);
        let is_odd = |line| self.stamp(line).is_changing();
        let ended: SmallVec<[Range<usize>; LEAF_SLOTS]> =
            single.chain(self.values()).filter(|lines| lines.clone().any(is_odd)).collect();
        let all = || ended.iter().cloned().flat_map(stamps);
        if !ended.iter().cloned().flatten().all(is_odd) {
            ended.iter().for_each(|lines| self.set_changing(lines.clone()));
            self.write_step(all(), writes);
        }
        for lines in &ended {
            self.set_stamps(lines.clone(), self.closed_stamp(lines.clone()));
        }
        self.write_step(all(), writes);
    }

    fn rewrite(&mut self, rewrite: Rewrite, writes: &mut Writes) {
        let journal = self.set_journal(&Journal::Rewrite(rewrite));
        #[cfg(injected)]
        if crate::injected::JOURNAL_CLEARED_EARLY.is_injected() {
            self.write(journal.clone(), writes);
            self.clear_journal(writes);
        }
        self.finish_rewrite(&rewrite, journal, writes);
    }

    /// All of a rewrite, from wherever it stands, in three steps. The first has the journal, too, if it does
    /// not stand there yet. A line that is odd while the journal is torn holds what it held before.
    fn finish_rewrite(&mut self, rewrite: &Rewrite, journal: Range<usize>, writes: &mut Writes) {
        let (floor, anchor) = (self.floor_word(), self.word(self.floor_word()) & 1 << ANCHOR_BIT);
        let is_kept = |slot: LeafSlot| self.key_lines().key(slot).is_some_and(|key| rewrite.keeps(key));
        let kept: [bool; LEAF_SLOTS] =
            std::array::from_fn(|number| LeafSlot::new(number).is_some_and(is_kept));
        // Lines of the new incarnation are written behind the versions, so those were cleared then. What
        // stands in a slot since is of an insert that was not shown. Readers may have READ it under this
        // incarnation, in which the slot is not used again.
        let is_new = |line| self.stamp(line).incarnation() == rewrite.incarnation;
        let is_cleared = (0..self.leaf_lines()).any(is_new);
        #[cfg(injected)]
        let is_cleared = is_cleared && !crate::injected::UNSHOWN_CLEARED.is_injected();
        self.set_word(floor, anchor | (self.word(floor) ^ anchor).max(rewrite.floor));
        self.set_changing(0..self.leaf_lines());
        self.write_step(stamps(0..self.leaf_lines()).chain([word(floor), journal]), writes);
        self.set_word(NEXT_WORD, rewrite.next);
        self.set_word(HIGH_FENCE_WORD, rewrite.high);
        self.set_word(PERMUTATION_WORD, self.permutation(|slot| kept[slot.number()]));
        let mut occupancies = [0; KEY_LINES];
        let mut emptied = SmallVec::<[usize; LEAF_SLOTS]>::new();
        for slot in LeafSlot::all() {
            if kept[slot.number()] {
                occupancies[slot.key_line()] |= slot.occupancy_bit();
            } else if !is_cleared && self.version(slot) != 0 {
                self.set_version(slot, 0);
                emptied.push(self.value_lines(slot).start);
            }
        }
        let versions = emptied.into_iter().map(|line| line * WORDS_PER_LINE + 1..(line + 1) * WORDS_PER_LINE);
        self.write_step(iter::once(NEXT_WORD..PERMUTATION_WORD + 1).chain(versions), writes);
        self.set_even(rewrite.incarnation, occupancies);
        self.write_step(stamps(0..self.leaf_lines()), writes);
    }

    /// Makes every line even, under `incarnation`, in the copy alone.
    fn set_even(&mut self, incarnation: u32, occupancies: [u8; KEY_LINES]) {
        for (line, occupancy) in occupancies.into_iter().enumerate() {
            let stamp = self.stamp(line).written().with_incarnation(incarnation);
            self.set_stamps(line..line + 1, stamp.with_occupancy(occupancy));
        }
        for lines in self.values() {
            let stamp = self.closed_stamp(lines.clone()).with_incarnation(incarnation).with_occupancy(0);
            self.set_stamps(lines, stamp);
        }
    }

    /// The lines of the values, those that are written together at a time.
    fn values(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let step = self.geometry.leaf().lines_per_value();
        (KEY_LINES..self.leaf_lines()).step_by(step).map(move |first| first..first + step)
    }

    /// The copy becomes the image, but for its stamps.
    fn fill(&mut self, image: &LeafImage, floor: u64) {
        for line in self.lines.iter_mut() {
            let Stamp(stamp) = line.stamp();
            *line = Line::ZERO;
            line.0[0] = stamp;
        }
        for line in self.leaf_lines()..self.lines.len() {
            self.lines[line] = Line::ZERO;
        }
        let Fences { low, high } = image.fences;
        let next = u64::from(image.next.0) | u64::from(high.is_none()) << INFINITE_FLAG_BIT;
        self.set_word(NEXT_WORD, next);
        self.set_word(LOW_FENCE_WORD, low);
        self.set_word(HIGH_FENCE_WORD, high.unwrap_or(u64::MAX));
        self.set_word(OWNER_WORD, LockWord::CLOSED.0);
        self.set_word(self.floor_word(), floor);
        for (slot, index) in LeafSlot::all().zip(0..image.len()) {
            let (key, version, value) = image.pair(index);
            self.set_word(slot.key_word(), key);
            self.set_value(slot, version, &words_of(value));
        }
        self.set_word(PERMUTATION_WORD, self.permutation(|slot| slot.number() < image.len()));
    }
}

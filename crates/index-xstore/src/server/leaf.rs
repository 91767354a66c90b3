//! XStore's leaf behind the trait by which the tree knows leaves.
//!
//! Reading without a latch is what a client does one-sided. It copies the stamped key lines, searches the
//! copy, copies the value's lines, and checks their incarnation against the key's.

use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::words::{copy_stamped, next_incarnation, prefetch};
use farsight_base::{LeafNumber, Line, Stamp, WORDS_PER_LINE};
use farsight_index::{
    Direction, LatchedLeaf, LeafAnswer, LeafFormat, LeafSpan, Pairs, Place, Room, ScanRequest, wanted_pairs,
};
#[cfg(any(shuttle, injected))]
use farsight_layout::injected;
use farsight_layout::{
    Fences, Geometry, GeometryError, HIGH_FENCE_WORD, INFINITE_FLAG_BIT, KEY_LINES, KeyLines, KeySearch,
    LEAF_SLOTS, LOW_FENCE_WORD, LeafImage, LeafSlot, LeafWriter, NEXT_WORD, PERMUTATION_WORD, SortedPair,
    VALUE_BYTES_MAX,
};
use farsight_model::shortest_fence;

/// Pairs of a leaf after a bulk load: three quarters, so that the first splits are a third of the load away.
const BULK_LOAD_PAIRS: usize = LEAF_SLOTS * 3 / 4;
/// Pairs that are few: a removal that leaves no more looks whether a neighbour has few, too.
const FEW_PAIRS: usize = 5;
/// Pairs that stay left when an ascending run splits a leaf: room for two stragglers. Halving would leave
/// every leaf behind the run half empty for ever.
const ASCENDING_PAIRS_LEFT: usize = LEAF_SLOTS - 2;
/// The most lines that a value has.
const VALUE_LINES_MAX: usize = (VALUE_BYTES_MAX / 8 + 1).div_ceil(WORDS_PER_LINE - 1);
/// Fences that contain no key: those of a block without a leaf.
const NO_FENCES: Fences = Fences { low: u64::MAX, high: Some(0) };

/// The format of a table's leaves.
#[derive(Clone, Copy, Debug)]
pub struct XStoreLeaf {
    geometry: Geometry,
}

impl XStoreLeaf {
    /// Leaves with values of `value_bytes`.
    ///
    /// # Errors
    /// [`GeometryError`] for a size outside the format.
    pub fn new(value_bytes: usize) -> Result<Self, GeometryError> {
        Geometry::new(value_bytes).map(|geometry| Self { geometry })
    }

    /// Where things stand in these leaves.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Copies the value in `slot`; its version, or `None` if it must be looked up again.
    #[inline]
    fn read_value(
        &self,
        words: &[AtomicU64],
        slot: LeafSlot,
        incarnation: u32,
        into: &mut [u8],
    ) -> Option<u64> {
        // A room for the longest value would be zeroed for each of the short ones.
        if self.geometry.lines_per_value() == 1 {
            self.read_value_by(words, slot, incarnation, &mut [Line::ZERO], into)
        } else {
            let room = &mut [Line::ZERO; VALUE_LINES_MAX];
            self.read_value_by(words, slot, incarnation, &mut room[..self.geometry.lines_per_value()], into)
        }
    }

    /// Asks for the lines of `slot`'s value.
    #[inline]
    fn prefetch_slot(&self, words: &[AtomicU64], slot: LeafSlot) {
        let first = self.geometry.value_place(slot).line;
        for line in first..first + self.geometry.lines_per_value() {
            prefetch(&words[line * WORDS_PER_LINE]);
        }
    }

    #[inline(always)]
    fn read_value_by(
        &self,
        words: &[AtomicU64],
        slot: LeafSlot,
        incarnation: u32,
        lines: &mut [Line],
        into: &mut [u8],
    ) -> Option<u64> {
        let place = self.geometry.value_place(slot);
        let first = place.line * WORDS_PER_LINE;
        copy_stamped(&words[first..first + lines.len() * WORDS_PER_LINE], lines);
        self.geometry.read_value(lines, place, incarnation, into).ok()
    }
}

/// Slots that hold a pair, by a look without a latch.
#[inline]
fn occupied_slots(words: &[AtomicU64]) -> usize {
    let occupied = |line: usize| {
        // Relaxed: a guess.
        Stamp(words[line * WORDS_PER_LINE].load(Ordering::Relaxed)).occupancy().count_ones()
    };
    (0..KEY_LINES).map(occupied).sum::<u32>() as usize
}

fn read_key_lines(words: &[AtomicU64]) -> [Line; KEY_LINES] {
    let mut lines = [Line::ZERO; KEY_LINES];
    copy_stamped(&words[..KEY_LINES * WORDS_PER_LINE], &mut lines);
    lines
}

/// Looks `key` up without a latch. `found` says what to answer of the slot and the incarnation where it is.
#[inline(always)]
fn search<T>(
    words: &[AtomicU64],
    key: u64,
    found: impl FnOnce(LeafSlot, u32) -> LeafAnswer<T>,
) -> LeafAnswer<T> {
    let lines = read_key_lines(words);
    match KeyLines(&lines).search(key) {
        KeySearch::Hit { slot, incarnation } => found(slot, incarnation),
        KeySearch::Absent => LeafAnswer::Absent,
        KeySearch::Right(next) => LeafAnswer::Right(next),
        KeySearch::Left | KeySearch::Foreign => LeafAnswer::Elsewhere,
        KeySearch::Changing => LeafAnswer::Changing,
    }
}

impl LeafFormat for XStoreLeaf {
    type Latched<'a> = LatchedXStoreLeaf<'a>;

    fn leaf_words(&self) -> usize {
        self.geometry.leaf_words()
    }

    fn value_bytes(&self) -> usize {
        self.geometry.value_bytes()
    }

    fn bulk_load_pairs(&self) -> usize {
        BULK_LOAD_PAIRS
    }

    fn few_pairs(&self) -> usize {
        FEW_PAIRS
    }

    #[inline]
    fn get(&self, words: &[AtomicU64], key: u64, into: &mut [u8]) -> LeafAnswer<u64> {
        search(words, key, |slot, incarnation| {
            let version = self.read_value(words, slot, incarnation, into);
            version.map_or(LeafAnswer::Changing, LeafAnswer::Found)
        })
    }

    #[inline]
    fn look(&self, words: &[AtomicU64], key: u64) -> LeafAnswer<usize> {
        let answer = search(words, key, |slot, _| {
            self.prefetch_slot(words, slot);
            LeafAnswer::Found(slot.number())
        });
        if answer == LeafAnswer::Absent {
            let _ = self.prefetch_insert(words);
        }
        answer
    }

    fn read_pairs(
        &self,
        words: &[AtomicU64],
        direction: Direction,
        scan: ScanRequest,
        into: &mut Pairs,
    ) -> Option<LeafSpan> {
        let lines = read_key_lines(words);
        let view = KeyLines(&lines);
        let incarnation = view.incarnation()?;
        let fences = view.fences()?;
        let mut sorted = [(0, LeafSlot::new(0)?); LEAF_SLOTS];
        let count = view.sorted(&mut sorted);
        let pairs_before = into.len();
        for (key, slot) in wanted_pairs(&sorted[..count], direction, scan) {
            let Some(version) = self.read_value(words, slot, incarnation, into.begin()) else {
                into.truncate(pairs_before);
                return None;
            };
            into.keep(key, version);
        }
        Some(LeafSpan { fences, next: view.next() })
    }

    fn pairs_seen(&self, words: &[AtomicU64]) -> usize {
        occupied_slots(words)
    }

    #[inline]
    fn prefetch_keys(&self, words: &[AtomicU64]) {
        for line in 0..KEY_LINES {
            prefetch(&words[line * WORDS_PER_LINE]);
        }
    }

    #[inline]
    fn may_hold(&self, words: &[AtomicU64], key: u64) -> bool {
        // Relaxed: a guess; the fences decide under the latch.
        let [next, low, high] =
            [NEXT_WORD, LOW_FENCE_WORD, HIGH_FENCE_WORD].map(|word| words[word].load(Ordering::Relaxed));
        low <= key && (key < high || next >> INFINITE_FLAG_BIT & 1 == 1)
    }

    #[inline]
    fn prefetch_value(&self, words: &[AtomicU64], key: u64) -> bool {
        let lines = read_key_lines(words);
        let KeySearch::Hit { slot, .. } = KeyLines(&lines).search(key) else { return false };
        self.prefetch_slot(words, slot);
        true
    }

    #[inline]
    fn prefetch_insert(&self, words: &[AtomicU64]) -> Room {
        // Relaxed: a guess. In a leaf without removed pairs the occupied slots are the spent ones.
        match occupied_slots(words) {
            LEAF_SLOTS.. => {
                self.prefetch_leaf(words);
                Room::None
            }
            occupied => {
                let slot = words[PERMUTATION_WORD].load(Ordering::Relaxed) >> (4 * occupied) & 15;
                let slot = LeafSlot::new(slot as usize).unwrap_or(LeafSlot::FIRST);
                self.prefetch_slot(words, slot);
                Room::Some
            }
        }
    }

    #[inline]
    fn prefetch_leaf(&self, words: &[AtomicU64]) {
        for line in words.chunks_exact(WORDS_PER_LINE) {
            prefetch(&line[0]);
        }
    }

    fn clear_unnamed(&self, words: &[AtomicU64]) {
        let image = LeafImage::new(&self.geometry, incarnation_after(words), LeafNumber::NONE, NO_FENCES);
        LeafWriter::empty_unlatched(words, &self.geometry, &image);
    }

    #[inline]
    fn latch<'a>(&'a self, words: &'a [AtomicU64], attempts: usize) -> Option<LatchedXStoreLeaf<'a>> {
        let writer = LeafWriter::latch(words, &self.geometry, attempts).ok()?;
        Some(LatchedXStoreLeaf { writer, words, geometry: &self.geometry })
    }
}

/// One of XStore's leaves under its latch.
#[derive(Debug)]
pub struct LatchedXStoreLeaf<'a> {
    writer: LeafWriter<'a>,
    words: &'a [AtomicU64],
    geometry: &'a Geometry,
}

/// The incarnation that the leaf in `words` gets next, asked by its only writer.
fn incarnation_after(words: &[AtomicU64]) -> u32 {
    // Relaxed: there is no other writer.
    let own = Stamp(words[0].load(Ordering::Relaxed)).incarnation();
    #[cfg(injected)]
    if injected::INCARNATION_KEPT.is_injected() && own > 0 {
        return own;
    }
    next_incarnation(own)
}

impl LatchedXStoreLeaf<'_> {
    fn image(&self, fences: Fences, next: LeafNumber) -> LeafImage {
        LeafImage::new(self.geometry, incarnation_after(self.words), next, fences)
    }

    fn slot(slot: usize) -> LeafSlot {
        LeafSlot::new(slot).expect("a slot that this leaf named")
    }

    fn span_of(lines: &[Line; KEY_LINES]) -> LeafSpan {
        let view = KeyLines(lines);
        LeafSpan { fences: view.fences().expect("a leaf in the chain has fences"), next: view.next() }
    }

    /// True if a slot is left for an insert in this incarnation.
    pub(super) fn has_unused_slot(&self) -> bool {
        self.writer.spent() < LEAF_SLOTS
    }

    /// Reads a pair's value and version under the latch, whatever the stamps say: they are for readers
    /// without it.
    #[inline]
    fn pair_in(&self, slot: LeafSlot, into: &mut [u8]) -> u64 {
        // A room for the longest value would be zeroed for each of the short ones.
        if self.geometry.lines_per_value() == 1 {
            self.pair_by(slot, &mut [Line::ZERO], into)
        } else {
            let room = &mut [Line::ZERO; VALUE_LINES_MAX];
            self.pair_by(slot, &mut room[..self.geometry.lines_per_value()], into)
        }
    }

    #[inline(always)]
    fn pair_by(&self, slot: LeafSlot, lines: &mut [Line], into: &mut [u8]) -> u64 {
        self.writer.value_lines(slot, lines);
        for line in lines.iter_mut() {
            line.0[0] = 0;
        }
        let place = self.geometry.value_place(slot);
        self.geometry.read_value(lines, place, 0, into).expect("an occupied slot is written")
    }

    /// Appends this leaf's pairs, whose key lines are `lines`.
    fn push_all(&self, image: &mut LeafImage, lines: &[Line; KEY_LINES]) {
        let mut sorted = [(0, LeafSlot::FIRST); LEAF_SLOTS];
        let count = KeyLines(lines).sorted(&mut sorted);
        let mut room = [0; VALUE_BYTES_MAX];
        let value = &mut room[..self.geometry.value_bytes()];
        for &(key, slot) in &sorted[..count] {
            let version = self.pair_in(slot, value);
            image.push(key, version, value);
        }
    }
}

/// Where a leaf is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cut {
    /// Pairs that stay left.
    left: usize,
    /// True if `incoming` must go left, too.
    keeps_incoming: bool,
}

/// Where to cut the ascending `pairs` for `incoming`: in the middle, but for a run of
/// ascending inserts. In a run the two pairs before `incoming` were written last, so they have the greatest
/// versions. (At the right end of the chain `incoming` behind them all suffices: several writers that append
/// together come slightly out of order.) A run that fills the leaf goes on in the right one; one that has
/// just begun keeps the left one for itself.
fn cut(pairs: &[SortedPair], incoming: u64, is_last: bool) -> Cut {
    let below = pairs.partition_point(|pair| pair.key < incoming);
    let is_run = below >= 2 && {
        let run = [pairs[below - 2].version, pairs[below - 1].version];
        run[0] < run[1] && pairs.iter().all(|pair| run.contains(&pair.version) || pair.version < run[0])
    };
    let is_appended = is_last && below == pairs.len();
    if !is_run && !is_appended {
        return Cut { left: pairs.len() / 2, keeps_incoming: false };
    }
    let is_behind = below >= ASCENDING_PAIRS_LEFT || below == pairs.len();
    let left = if is_behind { ASCENDING_PAIRS_LEFT.min(pairs.len() - 1) } else { below };
    Cut { left, keeps_incoming: !is_behind }
}

impl LatchedLeaf for LatchedXStoreLeaf<'_> {
    #[inline]
    fn find(&self, key: u64) -> Place {
        let lines = self.writer.key_lines();
        match KeyLines(&lines).search(key) {
            KeySearch::Hit { slot, .. } => Place::Here(slot.number()),
            KeySearch::Absent => Place::Vacant,
            KeySearch::Right(next) => Place::Right(next),
            // Changing, though nobody writes beside the latch's holder: memory lost a bit. Who waits in vain
            // for the leaf scrubs it.
            KeySearch::Left | KeySearch::Foreign | KeySearch::Changing => Place::Elsewhere,
        }
    }

    #[inline]
    fn is_at(&self, key: u64, slot: usize) -> bool {
        LeafSlot::new(slot).is_some_and(|slot| self.writer.is_at(key, slot))
    }

    fn span(&self) -> Option<LeafSpan> {
        let lines = self.writer.key_lines();
        let view = KeyLines(&lines);
        Some(LeafSpan { fences: view.fences()?, next: view.next() })
    }

    fn pair_count(&self) -> usize {
        let lines = self.writer.key_lines();
        lines.iter().map(|line| line.stamp().occupancy().count_ones() as usize).sum()
    }

    #[inline]
    fn version(&self, slot: usize) -> u64 {
        self.writer.version(Self::slot(slot))
    }

    fn pair(&self, slot: usize, into: &mut [u8]) -> u64 {
        self.pair_in(Self::slot(slot), into)
    }

    #[inline]
    fn insert(&mut self, key: u64, version: u64, value: &[u8]) -> bool {
        self.writer.insert(key, version, value).is_some()
    }

    fn update(&mut self, slot: usize, version: u64, value: &[u8]) {
        self.writer.update(Self::slot(slot), version, value);
    }

    fn remove(&mut self, slot: usize) {
        self.writer.remove(Self::slot(slot));
    }

    fn removed_slots(&self) -> usize {
        self.writer.spent() - self.pair_count()
    }

    fn compact(&mut self) {
        let lines = self.writer.key_lines();
        let span = Self::span_of(&lines);
        let mut image = self.image(span.fences, span.next);
        self.push_all(&mut image, &lines);
        self.writer.rewrite(&image);
    }

    fn split(&mut self, right: &mut Self, right_number: LeafNumber, incoming: u64) -> u64 {
        let (sorted, count) = self.writer.sorted();
        let sorted = &sorted[..count];
        assert!(count >= 2, "a leaf of {count} pairs is not split");
        let is_last = Self::span_of(&self.writer.key_lines()).fences.high.is_none();
        let cut = cut(sorted, incoming, is_last);
        let (stay, go) = sorted.split_at(cut.left);
        let left_end = if cut.keeps_incoming { incoming } else { stay[cut.left - 1].key };
        let separator = shortest_fence(left_end, go[0].key);
        #[cfg(any(shuttle, injected))]
        if injected::LINKED_BEFORE_FILLED.is_injected() {
            self.writer.keep(stay, separator, right_number);
            right.writer.receive(&self.writer, go, separator);
            return separator;
        }
        right.writer.receive(&self.writer, go, separator);
        self.writer.keep(stay, separator, right_number);
        separator
    }

    fn absorb(&mut self, number: LeafNumber, right: &mut Self) {
        let [left_lines, right_lines] = [self.writer.key_lines(), right.writer.key_lines()];
        let [left_span, right_span] = [&left_lines, &right_lines].map(Self::span_of);
        assert_eq!(left_span.fences.high, Some(right_span.fences.low), "neighbours");
        let fences = Fences { low: left_span.fences.low, high: right_span.fences.high };
        let mut image = self.image(fences, right_span.next);
        #[cfg(any(shuttle, injected))]
        if crate::injected::MERGED_IN_PLACE.is_injected() {
            image =
                LeafImage::new(self.geometry, left_lines[0].stamp().incarnation(), right_span.next, fences);
        }
        self.push_all(&mut image, &left_lines);
        #[cfg(injected)]
        if crate::injected::WIDENED_BEFORE_FILLED.is_injected() {
            self.writer.rewrite(&image);
        }
        right.push_all(&mut image, &right_lines);
        self.writer.rewrite(&image);
        #[cfg(any(shuttle, injected))]
        if crate::injected::RIGHT_LEFT_STANDING.is_injected() {
            return;
        }
        let no_leaf = right.image(NO_FENCES, number);
        right.writer.rewrite(&no_leaf);
    }

    fn fill(&mut self, span: LeafSpan, keys: &[u64], values: &[u8], versions: &[u64]) {
        let mut image = self.image(span.fences, span.next);
        let values = values.chunks_exact(self.geometry.value_bytes());
        for ((key, value), version) in keys.iter().zip(values).zip(versions) {
            image.push(*key, *version, value);
        }
        self.writer.rewrite(&image);
    }

    fn scrub(&mut self) -> bool {
        let is_damaged = self.writer.is_damaged();
        if is_damaged {
            self.writer.scrub();
        }
        is_damaged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys 0, 10, 20, ... that were written in the order of `versions`.
    fn pairs(versions: impl Iterator<Item = u64>) -> Vec<SortedPair> {
        let slot = LeafSlot::FIRST;
        versions
            .enumerate()
            .map(|(key, version)| SortedPair { key: 10 * key as u64, version, slot })
            .collect()
    }

    fn cut_of(pairs: &[SortedPair], incoming: u64, is_last: bool) -> (usize, bool) {
        let cut = cut(pairs, incoming, is_last);
        (cut.left, cut.keeps_incoming)
    }

    #[test]
    fn a_run_of_ascending_inserts_leaves_full_leaves_behind() {
        let ascending = pairs(0..16);
        assert_eq!(cut_of(&ascending, 1_000, false), (14, false));
        assert_eq!(cut_of(&ascending, 75, false), (8, false), "the new key is none of the run");
        let mixed = pairs((0..16).rev());
        assert_eq!(cut_of(&mixed, 1_000, false), (8, false), "no run");
        assert_eq!(cut_of(&mixed, 1_000, true), (14, false), "the end of the chain");
    }

    #[test]
    fn a_run_before_other_keys_keeps_a_leaf_for_itself() {
        // Versions 12 to 15 came last, as keys 30 to 60, before twelve older pairs but three.
        let run = pairs((0..3).chain(12..16).chain(3..12));
        assert_eq!(cut_of(&run, 65, false), (7, true));
        let nearly_through = pairs((1..16).chain([0]));
        assert_eq!(cut_of(&nearly_through, 145, false), (14, false));
    }

    #[test]
    fn both_sides_of_a_split_have_a_pair() {
        for count in 2..=LEAF_SLOTS {
            let pairs = pairs(0..count as u64);
            for incoming in (1..200).step_by(2) {
                for is_last in [false, true] {
                    let left = cut(&pairs, incoming, is_last).left;
                    assert!((1..count).contains(&left), "{left} of {count} for {incoming}");
                }
            }
        }
    }
}

//! A sub-model as a client keeps it, in one of two forms.
//!
//! Invariant: any words can be evaluated, and lead to a leaf of the region. A session may read words of
//! several sub-models and branches, laid out in any way: its block is given to others while it looks at it
//! ([`Arena`](super::arena::Arena)). So a length is read once and kept within what is there. A leaf's number
//! is compared with the region's leaves when it is read ([`RegionLeaves`]): what is none counts as leaf 0.
//! Nothing here is a proof, for the leaf's own fences decide.
//!
//! An own line holds nothing but sub-models in a line ([`OwnLines`](super::own_lines::OwnLines)). It leads to
//! one of their leaves, without that comparison.
//!
//! *In a line*: a sub-model of few leaves that have consecutive numbers, as bulk loads and ascending inserts
//! leave them, is one line. It is all that a GET waits for, and a third of the memory, so that the model of a
//! large table stays in a processor's caches. Its words are:
//! - the base in hints' quanta;
//! - the first leaf's number 32, hint shift 6, lowest bits first, and of 25 bits the one of the last leaf's
//!   position;
//! - then *bounds*, four to a word, one for each leaf behind the first. A bound is the least hint of a key
//!   from which on the leaf is the likelier: its own hint. It is [`NO_LEAF`] where there is no leaf.
//!
//! There is no line to predict by. A vector compares all bounds, and the last leaf's bit stands among those
//! of the comparisons as a bound that the key has not passed. First and last leaf are of one word, so bounds
//! of another sub-model lead nowhere else.
//!
//! *In lines*: any other sub-model. Its record, its leaves' hints and its leaves' numbers stand one behind
//! the other from a line's start on. There are four hints and two leaf numbers to a word, each from the
//! lowest bits on. A block's lines are neighbours so that a client can prefetch all of them at once, before
//! the record says which are wanted. So a GET waits for its sub-model and for its part of the translation
//! table together. Hints stand apart from leaf numbers because a processor with vectors compares those of a
//! whole sub-model at once, and then needs no prediction. Others compare what the prediction leaves. A table
//! that grows has sub-models of ever more leaves, until it has doubled and is trained anew. Two vectors
//! compare the hints of sub-models of up to twice as many leaves at once, too.

use std::ops::Range;

use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::words::{SharedLine, Widest};
use farsight_base::{LeafNumber, WORDS_PER_LINE};
use farsight_index::model_of;
use farsight_layout::simd::{
    LANES_MAX, LANES_PER_LINE, LANES_PER_WORD, lane, lanes_above_in_line, lanes_at_most, lanes_at_most_widest,
};
use farsight_layout::{SUB_MODEL_WORDS, SubModelRecord, TableEntry};
use farsight_model::{ERROR_WHOLE, SubModel};

use super::arena::VIEW_WORDS;
#[cfg(any(loom, shuttle, injected))]
use crate::injected;

const LEAVES_PER_WORD: usize = 2;

/// Leaves of the longest sub-model whose hints one vector holds: the first is never looked at.
const SHORT_LEAVES_MAX: u32 = LANES_MAX as u32 + 1;
/// Leaves of the longest sub-model whose hints are compared at once, by two vectors.
const AT_ONCE_LEAVES_MAX: u32 = 2 * LANES_MAX as u32 + 1;

/// Words of a line before its hints, and lanes.
const LINE_HEADER_WORDS: usize = 2;
const LINE_HEADER_LANES: usize = LINE_HEADER_WORDS * LANES_PER_WORD;
/// Leaves of the longest sub-model in a line: the first has no bound there.
const LINE_LEAVES_MAX: u32 = (LANES_PER_LINE - LINE_HEADER_LANES) as u32 + 1;
/// The bound of a leaf that does not exist; a key's hint counts as less.
const NO_LEAF: u16 = u16::MAX;

/// The words of a sub-model in a line.
pub(super) type LineWords = [u64; WORDS_PER_LINE];

/// A sub-model's words, by its form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Block {
    /// One line.
    Line(LineWords),
    /// As many lines as it takes.
    Lines(Vec<u64>),
}

/// Words before the hints of a sub-model in a line, and of one in lines.
pub(super) const RECORD_WORDS: [u64; 2] = [LINE_HEADER_WORDS as u64, SUB_MODEL_WORDS as u64];

const _: () = assert!(block_length(AT_ONCE_LEAVES_MAX) <= VIEW_WORDS && VIEW_WORDS.is_power_of_two());

/// How many leaves a region has; at least one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RegionLeaves(pub(super) u32);

impl RegionLeaves {
    /// `leaf`, or a leaf of the region if it is none.
    #[inline(always)]
    pub(super) fn bound(self, leaf: LeafNumber) -> LeafNumber {
        #[cfg(any(loom, shuttle, injected))]
        if injected::REUSED_BLOCK_TRUSTED.is_injected() {
            return leaf;
        }
        if leaf.0 < self.0 { leaf } else { LeafNumber(0) }
    }
}

/// [`CachedSubModel::likeliest`] of the sub-model in this line, if that is its own.
#[inline(always)]
pub(super) fn hinted_leaf_in_line(line: &SharedLine, key: u64, widest: Widest) -> LeafNumber {
    let LineHeader { base_quantum, first_leaf, last_bit, hint_shift } = LineHeader::of(line);
    let quantum = (key >> hint_shift).saturating_sub(base_quantum);
    let hint = quantum.min(u64::from(NO_LEAF - 1)) as u16;
    let not_passed = lanes_above_in_line::<LINE_HEADER_LANES>(line, hint, widest) | last_bit;
    LeafNumber(first_leaf.wrapping_add(not_passed.trailing_zeros()))
}

/// What stands before the hints of a sub-model in a line.
struct LineHeader {
    base_quantum: u64,
    first_leaf: u32,
    /// The bit of the last leaf's position.
    last_bit: u32,
    hint_shift: u8,
}

impl LineHeader {
    const SHIFT_BITS: u32 = 6;

    #[inline(always)]
    fn of(line: &SharedLine) -> Self {
        let [base_quantum, shape, ..] = line;
        // Relaxed, as all loads here: words of two sub-models do no harm.
        let (base_quantum, shape) = (base_quantum.load(Ordering::Relaxed), shape.load(Ordering::Relaxed));
        Self {
            base_quantum,
            first_leaf: shape as u32,
            last_bit: (shape >> (u32::BITS + Self::SHIFT_BITS)) as u32,
            hint_shift: (shape >> u32::BITS) as u8 & ((1 << Self::SHIFT_BITS) - 1),
        }
    }

    fn to_words(&self) -> [u64; LINE_HEADER_WORDS] {
        const { assert!(u32::BITS + Self::SHIFT_BITS + LINE_LEAVES_MAX <= u64::BITS, "a word has room") };
        let Self { base_quantum, first_leaf, last_bit, hint_shift } = *self;
        let upper = u64::from(last_bit) << Self::SHIFT_BITS | u64::from(hint_shift);
        [base_quantum, u64::from(first_leaf) | upper << u32::BITS]
    }

    #[inline(always)]
    fn leaf_count(&self) -> u32 {
        (self.last_bit.trailing_zeros() + 1).min(LINE_LEAVES_MAX)
    }
}

/// [`CachedSubModel::likeliest`] of the sub-model whose block begins so, if its hints can be compared at
/// once; most can. A number that is not compared with the region's leaves yet, as that of the next two.
#[inline(always)]
pub(super) fn hinted_leaf(view: &[AtomicU64; VIEW_WORDS], key: u64, widest: Widest) -> Option<LeafNumber> {
    let of_few = hinted_leaf_of_short(view, key, widest);
    if of_few.is_some() { of_few } else { hinted_leaf_of_long(view, key, widest) }
}

/// [`hinted_leaf`] if the hints take one vector.
#[inline(always)]
pub(super) fn hinted_leaf_of_short(
    view: &[AtomicU64; VIEW_WORDS],
    key: u64,
    widest: Widest,
) -> Option<LeafNumber> {
    let record = record_in(view.first_chunk()?);
    let can = record.leaf_count.wrapping_sub(1) < SHORT_LEAVES_MAX;
    can.then(|| chosen::<SHORT_LEAVES_MAX>(view, &record, key, widest))
}

/// The record in a block's first words.
#[inline(always)]
fn record_in(words: &[AtomicU64; SUB_MODEL_WORDS]) -> SubModelRecord {
    let mut record = [0; SUB_MODEL_WORDS];
    // A loop, because `map` is not inlined for sure. Relaxed: as in a line.
    for (into, word) in record.iter_mut().zip(words) {
        *into = word.load(Ordering::Relaxed);
    }
    SubModelRecord::from_words(record)
}

/// [`hinted_leaf`] of a sub-model whose hints take two vectors.
#[inline(never)]
fn hinted_leaf_of_long(view: &[AtomicU64; VIEW_WORDS], key: u64, widest: Widest) -> Option<LeafNumber> {
    let record = record_in(view.first_chunk()?);
    let can = record.leaf_count.wrapping_sub(1) < AT_ONCE_LEAVES_MAX;
    can.then(|| chosen::<AT_ONCE_LEAVES_MAX>(view, &record, key, widest))
}

/// The leaf that the hints of a sub-model of up to `LEAVES_MAX` leaves choose.
#[inline(always)]
fn chosen<const LEAVES_MAX: u32>(
    view: &[AtomicU64; VIEW_WORDS],
    record: &SubModelRecord,
    key: u64,
    widest: Widest,
) -> LeafNumber {
    let leaves = record.leaf_count as usize;
    let hints = &view[SUB_MODEL_WORDS..][..(LEAVES_MAX as usize).div_ceil(LANES_PER_WORD)];
    let perhaps = model_of(record).hint(key);
    let position = match LEAVES_MAX {
        SHORT_LEAVES_MAX => lanes_at_most_widest(hints, 1..leaves, perhaps, widest),
        _ => at_most_in_two(hints, 1..leaves, perhaps),
    } as usize;
    let place = SUB_MODEL_WORDS + leaves.div_ceil(LANES_PER_WORD) + position / LEAVES_PER_WORD;
    // All places are in the view, by the assertion above; the mask says so to the compiler.
    let word = view[place % VIEW_WORDS].load(Ordering::Relaxed);
    LeafNumber((word >> (32 * (position % LEAVES_PER_WORD))) as u32)
}

/// [`lanes_at_most`] of twice as many lanes: where the first half is not passed, nothing of the second is.
#[inline(always)]
fn at_most_in_two(hints: &[AtomicU64], lanes: Range<usize>, bound: u16) -> u32 {
    let middle = lanes.end.min(lanes.start + LANES_MAX);
    lanes_at_most(hints, lanes.start..middle, bound) + lanes_at_most(hints, middle..lanes.end, bound)
}

/// A view of a sub-model's block.
#[derive(Clone, Copy, Debug)]
pub(super) struct CachedSubModel<'a> {
    model: SubModel,
    hints: &'a [AtomicU64],
    /// Where the hint of position 0 stands, or would.
    first_lane: usize,
    leaves: LeafNumbers<'a>,
    region: RegionLeaves,
}

/// The leaves' numbers.
#[derive(Clone, Copy, Debug)]
enum LeafNumbers<'a> {
    From(LeafNumber),
    Each(&'a [AtomicU64]),
}

/// The words of the sub-model with this record and table.
pub(super) fn block_of(record: &SubModelRecord, entries: &[u64]) -> Block {
    words_in_line(record, entries).map_or_else(|| Block::Lines(words_in_lines(record, entries)), Block::Line)
}

/// The words of one line, if they suffice.
fn words_in_line(record: &SubModelRecord, entries: &[u64]) -> Option<LineWords> {
    let (first, rest) = entries.split_first().filter(|_| record.leaf_count <= LINE_LEAVES_MAX)?;
    let first_leaf = TableEntry(*first).leaf().0;
    let mut consecutive = rest.iter().zip(first_leaf.checked_add(1)?..);
    if !consecutive.all(|(entry, leaf)| TableEntry(*entry).leaf().0 == leaf) {
        return None;
    }
    let hint_shift = record.hint_shift & 63;
    let bound = |entry: &u64| TableEntry(*entry).hint();
    if rest.iter().any(|entry| bound(entry) == NO_LEAF) {
        return None;
    }
    let base_quantum = record.base >> hint_shift;
    let header = LineHeader { base_quantum, first_leaf, last_bit: 1 << rest.len(), hint_shift };
    let mut bounds = [NO_LEAF; LANES_PER_LINE - LINE_HEADER_LANES];
    for (place, entry) in bounds.iter_mut().zip(rest) {
        *place = bound(entry);
    }
    let packed = bounds
        .chunks(LANES_PER_WORD)
        .map(|bounds| bounds.iter().rev().fold(0, |word, bound| word << 16 | u64::from(*bound)));
    let mut words = LineWords::default();
    for (place, word) in words.iter_mut().zip(header.to_words().into_iter().chain(packed)) {
        *place = word;
    }
    Some(words)
}

/// The words of a block of as many lines as it takes.
pub(super) fn words_in_lines(record: &SubModelRecord, entries: &[u64]) -> Vec<u64> {
    let hints = packed(entries, LANES_PER_WORD, |entry| u64::from(entry.hint()));
    let leaves = packed(entries, LEAVES_PER_WORD, |entry| u64::from(entry.leaf().0));
    record.to_words().into_iter().chain(hints).chain(leaves).collect()
}

/// A field of each entry, so many to a word.
fn packed(entries: &[u64], per_word: usize, field: fn(TableEntry) -> u64) -> impl Iterator<Item = u64> {
    let bits = 64 / per_word;
    entries.chunks(per_word).map(move |entries| {
        let fields = entries.iter().rev().map(|entry| field(TableEntry(*entry)));
        fields.fold(0, |word, field| word << bits | field)
    })
}

/// Lines of a block for a sub-model of so many leaves.
pub(super) const fn block_lines(leaves: u32) -> usize {
    block_length(leaves).div_ceil(WORDS_PER_LINE)
}

/// Words of a block for so many leaves.
const fn block_length(leaves: u32) -> usize {
    let leaves = leaves as usize;
    SUB_MODEL_WORDS + leaves.div_ceil(LANES_PER_WORD) + leaves.div_ceil(LEAVES_PER_WORD)
}

impl<'a> CachedSubModel<'a> {
    /// The sub-model in this line.
    #[inline(always)]
    pub(super) fn in_line(line: &'a SharedLine, region: RegionLeaves) -> Self {
        let header = LineHeader::of(line);
        let (leaf_count, LineHeader { base_quantum, first_leaf, hint_shift, .. }) =
            (header.leaf_count(), header);
        let (error_low, error_high) = (ERROR_WHOLE, ERROR_WHOLE);
        let base = base_quantum << hint_shift;
        let model = SubModel { base, leaf_count, hint_shift, error_low, error_high, ..SubModel::default() };
        let first_lane = LINE_HEADER_LANES - 1;
        let leaves = LeafNumbers::From(LeafNumber(first_leaf));
        Self { model, hints: line, first_lane, leaves, region }
    }

    /// The sub-model in the block that begins with `words`; `None` if there is none.
    #[inline(always)]
    pub(super) fn in_lines(words: &'a [AtomicU64], region: RegionLeaves) -> Option<Self> {
        let (record, rest) = words.split_first_chunk::<SUB_MODEL_WORDS>()?;
        let record = record_in(record);
        let leaves = record.leaf_count as usize;
        let (hints, rest) = rest.split_at_checked(leaves.div_ceil(LANES_PER_WORD))?;
        let leaves = rest.get(..leaves.div_ceil(LEAVES_PER_WORD)).filter(|leaves| !leaves.is_empty())?;
        Some(Self {
            model: model_of(&record),
            hints,
            first_lane: 0,
            leaves: LeafNumbers::Each(leaves),
            region,
        })
    }

    /// Its leaves.
    #[inline(always)]
    pub(super) fn leaf_count(&self) -> u32 {
        self.model.leaf_count
    }

    /// The least key that hints tell from those below.
    pub(super) fn first_key(&self) -> u64 {
        self.model.base
    }

    /// The leaf of a position.
    #[inline(always)]
    pub(super) fn leaf(&self, position: u32) -> LeafNumber {
        self.region.bound(match self.leaves {
            LeafNumbers::From(first) => LeafNumber(first.0.wrapping_add(position)),
            LeafNumbers::Each(leaves) => {
                let word = leaves[position as usize / LEAVES_PER_WORD].load(Ordering::Relaxed);
                LeafNumber((word >> (32 * (position as usize % LEAVES_PER_WORD))) as u32)
            }
        })
    }

    /// The likeliest leaf of `key`.
    #[inline(always)]
    pub(super) fn likeliest(&self, key: u64) -> LeafNumber {
        self.leaf(self.last_at_most(&self.window(key), self.model.hint(key)))
    }

    /// The positions of the leaves that may own `key`; the last is the likeliest.
    #[inline(always)]
    pub(super) fn candidates(&self, key: u64) -> Range<u32> {
        let surely = self.model.key_hint(key).greatest_surely_below();
        let window = self.window(key);
        // No closure: it is not inlined for sure.
        let first = match surely {
            Some(surely) => self.last_at_most(&window, surely),
            None => window.start,
        };
        // Looked at twice: hints that were replaced in between may disagree.
        first..self.last_at_most(&window, self.model.hint(key)).max(first) + 1
    }

    /// What part of the range of the leaf at `position` lies before `key`, in 256ths, as far as hints tell.
    /// As good as all of it if that is not known.
    #[inline(always)]
    pub(super) fn part_before(&self, position: u32, key: u64) -> u32 {
        let end = position as usize + 1;
        if end >= self.model.leaf_count as usize {
            return 256;
        }
        // In a line there is none for the first leaf, which begins where hints do.
        let hint = |position: usize| u32::from(lane(self.hints, self.first_lane + position));
        let low = if position == 0 { 0 } else { hint(position as usize) };
        let high = hint(end);
        let passed = u32::from(self.model.hint(key)).saturating_sub(low);
        256 * passed.min(high.saturating_sub(low)) / high.saturating_sub(low).max(1)
    }

    /// Where to look for the owner of `key`.
    #[inline(always)]
    fn window(&self, key: u64) -> Range<u32> {
        let is_at_once = self.model.leaf_count <= AT_ONCE_LEAVES_MAX;
        if is_at_once && Widest::if_known().is_some() {
            0..self.model.leaf_count
        } else {
            self.model.predict(key)
        }
    }

    /// The last position of the window whose hint is at most `bound`, or the first.
    #[inline(always)]
    fn last_at_most(&self, window: &Range<u32>, bound: u16) -> u32 {
        let rest = self.first_lane + window.start as usize + 1..self.first_lane + window.end as usize;
        let passed = if rest.len() <= 2 * LANES_MAX {
            at_most_in_two(self.hints, rest, bound)
        } else {
            halved(self.hints, rest, bound)
        };
        window.start + passed
    }
}

/// [`lanes_at_most`] of many lanes, by halving.
#[inline(never)]
fn halved(hints: &[AtomicU64], lanes: Range<usize>, bound: u16) -> u32 {
    let (mut low, mut high) = (lanes.start, lanes.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if lane(hints, middle) <= bound {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    (low - lanes.start) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use farsight_base::prng::SplitMix64;
    use farsight_base::words::Moves;
    use farsight_index::record_of;

    /// A sub-model of so many leaves, a thousand keys each, and the words of its block. Leaves have
    /// consecutive numbers, or any.
    fn example(
        leaves: u32,
        consecutive: bool,
        random: &mut SplitMix64,
    ) -> (SubModel, Vec<u64>, Block, Vec<AtomicU64>) {
        let fences: Vec<u64> = (0..u64::from(leaves)).map(|leaf| leaf * 1_000 + random.below(900)).collect();
        let hint_shift = if leaves < 60 { 2 * random.below(2) as u8 } else { 6 };
        let model = SubModel {
            base: fences.get(1).map_or(0, |first| first - 1 - (1 << hint_shift)),
            slope: 0.001,
            error_low: 3,
            error_high: 3,
            leaf_count: leaves,
            hint_shift,
            ..SubModel::default()
        };
        let first = random.next_u64() as u32 >> 1;
        let number = |index: u32, random: &mut SplitMix64| {
            if consecutive { first + index } else { random.next_u64() as u32 }
        };
        let entries: Vec<u64> = (0..leaves)
            .zip(&fences)
            .map(|(index, fence)| {
                TableEntry::new(LeafNumber(number(index, random)), model.leaf_hint(*fence)).0
            })
            .collect();
        let block = block_of(&record_of(&model), &entries);
        let words = match &block {
            Block::Line(words) => words.as_slice(),
            Block::Lines(words) => words,
        };
        let words = words.iter().copied().chain([u64::MAX; VIEW_WORDS]).map(AtomicU64::new).collect();
        (model, entries, block, words)
    }

    /// Of a region whose leaves are all that there may be.
    const ALL: RegionLeaves = RegionLeaves(u32::MAX);

    fn cached(is_in_line: bool, words: &[AtomicU64]) -> CachedSubModel<'_> {
        if is_in_line {
            CachedSubModel::in_line(words.first_chunk().expect("a line"), ALL)
        } else {
            CachedSubModel::in_lines(words, ALL).expect("it was put there")
        }
    }

    fn at_once(is_in_line: bool, words: &[AtomicU64], key: u64) -> Option<LeafNumber> {
        let _ = Moves::detect();
        let widest = Widest::if_known()?;
        if is_in_line {
            Some(hinted_leaf_in_line(words.first_chunk().expect("a line"), key, widest))
        } else {
            hinted_leaf(words.first_chunk().expect("a view"), key, widest)
        }
    }

    #[test]
    fn a_block_gives_what_its_entries_give() {
        let _ = Moves::detect();
        let mut random = SplitMix64::new(6);
        for (leaves, consecutive) in (1..70).chain([500]).flat_map(|leaves| [(leaves, true), (leaves, false)])
        {
            let (model, entries, block, words) = example(leaves, consecutive, &mut random);
            let fits_a_line = leaves == 1 || consecutive && leaves <= LINE_LEAVES_MAX;
            let is_in_line = matches!(block, Block::Line(_));
            assert_eq!(is_in_line, fits_a_line, "{block:?}");
            let lines = (words.len() - VIEW_WORDS).div_ceil(WORDS_PER_LINE);
            assert_eq!(lines, if is_in_line { 1 } else { block_lines(leaves) });
            let cached = cached(is_in_line, &words);
            assert_eq!(cached.leaf_count(), leaves);
            for _ in 0..200 {
                let key = random.below(u64::from(leaves) * 1_000 + 500);
                let hint_at = |position: u32| TableEntry(entries[position as usize]).hint();
                let expected = model.choose(key, model.predict(key), hint_at);
                let candidates = cached.candidates(key);
                assert_eq!(candidates, expected, "{key} of {leaves} leaves, {block:?}");
                let leaf = |position: u32| TableEntry(entries[position as usize]).leaf();
                assert_eq!(cached.likeliest(key), leaf(candidates.end - 1));
                let can = leaves <= AT_ONCE_LEAVES_MAX && Widest::if_known().is_some();
                assert_eq!(at_once(is_in_line, &words, key), can.then(|| leaf(candidates.end - 1)));
                assert!(candidates.into_iter().all(|position| cached.leaf(position) == leaf(position)));
                let parts = (0..leaves).map(|position| cached.part_before(position, key));
                assert!(parts.into_iter().all(|part| part <= 256));
            }
        }
    }

    #[test]
    fn any_words_lead_to_a_leaf_of_the_region() {
        const REGION: RegionLeaves = RegionLeaves(1_000);
        let mut random = SplitMix64::new(8);
        for round in 0..40_000 {
            let leaves = random.below(80) as u32;
            let words: Vec<AtomicU64> = (0..block_length(leaves).max(VIEW_WORDS))
                .map(|word| match word {
                    // A length that there is room for, or any.
                    2 if round % 2 == 0 => random.next_u64() & !(0xff_ffff << 32) | u64::from(leaves) << 32,
                    _ => random.next_u64() >> random.below(64),
                })
                .map(AtomicU64::new)
                .collect();
            let in_line = CachedSubModel::in_line(words.first_chunk().expect("a line"), REGION);
            let in_lines = CachedSubModel::in_lines(&words, REGION);
            let key = random.next_u64() >> random.below(64);
            for cached in in_lines.into_iter().chain([in_line]) {
                let count = cached.leaf_count();
                let candidates = cached.candidates(key);
                assert!(candidates.start < candidates.end && candidates.end <= count, "round {round}");
                assert!((0..count).all(|position| cached.leaf(position).0 < REGION.0), "round {round}");
                assert!(cached.part_before(candidates.start, key) <= 256, "round {round}");
            }
            if let Some(cached) = in_lines {
                let at_once = at_once(false, &words, key).map(|leaf| REGION.bound(leaf));
                assert!(at_once.is_none_or(|leaf| leaf == cached.likeliest(key)), "round {round}");
            }
            let in_line = at_once(true, &words, key).map(|leaf| REGION.bound(leaf));
            assert!(in_line.is_none_or(|leaf| leaf.0 < REGION.0), "round {round}");
        }
        let none = [0; SUB_MODEL_WORDS].map(AtomicU64::new);
        assert!(CachedSubModel::in_lines(&none, REGION).is_none());
    }

    #[test]
    fn any_words_of_a_line_lead_to_one_of_its_leaves() {
        let mut random = SplitMix64::new(14);
        for round in 0..20_000 {
            let leaves = 1 + random.below(u64::from(LINE_LEAVES_MAX)) as u32;
            let hint_shift = random.below(64) as u8;
            let header = LineHeader {
                base_quantum: random.next_u64() >> random.below(64) >> hint_shift,
                first_leaf: random.next_u64() as u32 >> 1,
                last_bit: 1 << (leaves - 1),
                hint_shift,
            };
            let (first, [base, shape]) = (header.first_leaf, header.to_words());
            let line: SharedLine = std::array::from_fn(|word| {
                // No bound of a leaf is that of none.
                let bounds = random.next_u64() & 0xfffe_fffe_fffe_fffe;
                AtomicU64::new([base, shape].get(word).copied().unwrap_or(bounds))
            });
            let key = random.next_u64() >> random.below(64);
            let cached = CachedSubModel::in_line(&line, ALL);
            let candidates = cached.candidates(key);
            assert!(candidates.start < candidates.end && candidates.end <= leaves, "round {round}");
            let leaf = cached.likeliest(key);
            assert!((first..first + leaves).contains(&leaf.0), "round {round}");
            assert!(at_once(true, &line, key).is_none_or(|at_once| at_once == leaf), "round {round}");
        }
    }
}

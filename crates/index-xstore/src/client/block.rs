//! A sub-model as a client keeps it: its record, its leaves' hints and its leaves' numbers, one behind the
//! other from a line's start on.
//!
//! Invariant: whatever words a block holds, they can be evaluated, and lead to one of its own leaves. They
//! may be those of two sub-models, if a session reads while the block is given to another
//! ([`Arena`](super::arena::Arena)): nothing here is a proof, for the leaf's own fences decide.
//!
//! A block's lines are neighbours so that all of them can be asked for at once, before the record says which
//! are wanted: a GET waits for its sub-model and for its part of the translation table together. Hints stand
//! apart from leaf numbers because a processor with vectors compares those of a whole sub-model at once;
//! then it needs no prediction. Others compare what the prediction leaves. A table that grows has sub-models
//! of ever more leaves, until it has doubled and is trained anew: those of twice as many as a fresh one are
//! compared at once, too.
//!
//! Words: the record's, hints four to a word, leaf numbers two to a word, each from the lowest bits on.

use std::ops::Range;

use farsight_base::LeafNumber;
use farsight_base::search::{LANES_MAX, LANES_PER_WORD, lane, lanes_at_most};
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::words::Moves;
use farsight_index::model_of;
use farsight_layout::{SUB_MODEL_WORDS, SubModelRecord, TableEntry};
use farsight_model::SubModel;

use super::arena::VIEW_WORDS;

const LEAVES_PER_WORD: usize = 2;

/// Leaves of the longest sub-model whose hints one vector holds: the first is never looked at.
const SHORT_LEAVES_MAX: u32 = LANES_MAX as u32 + 1;
/// Leaves of the longest sub-model whose hints are compared at once, by two vectors.
const AT_ONCE_LEAVES_MAX: u32 = 2 * LANES_MAX as u32 + 1;

const _: () = assert!(block_length(AT_ONCE_LEAVES_MAX) <= VIEW_WORDS && VIEW_WORDS.is_power_of_two());

/// [`CachedSubModel::likeliest`] of the sub-model whose block begins so, if its hints can be compared at
/// once; most can.
#[inline(always)]
pub(super) fn likeliest_at_once(view: &[AtomicU64; VIEW_WORDS], key: u64) -> Option<LeafNumber> {
    let record = record_in(view.first_chunk()?);
    if !Moves::are_widest() {
        return None;
    }
    if record.leaf_count.wrapping_sub(1) < SHORT_LEAVES_MAX {
        return Some(chosen::<SHORT_LEAVES_MAX>(view, &record, key));
    }
    likeliest_of_grown(view, &record, key)
}

/// The record in a block's first words.
#[inline(always)]
fn record_in(words: &[AtomicU64; SUB_MODEL_WORDS]) -> SubModelRecord {
    let mut record = [0; SUB_MODEL_WORDS];
    // A loop, because `map` is not inlined for sure. Relaxed, as all loads here: words of two sub-models do
    // no harm.
    for (into, word) in record.iter_mut().zip(words) {
        *into = word.load(Ordering::Relaxed);
    }
    SubModelRecord::from_words(record)
}

/// [`likeliest_at_once`] of a sub-model whose hints take two vectors.
#[inline(never)]
fn likeliest_of_grown(
    view: &[AtomicU64; VIEW_WORDS],
    record: &SubModelRecord,
    key: u64,
) -> Option<LeafNumber> {
    let is_at_once = record.leaf_count.wrapping_sub(1) < AT_ONCE_LEAVES_MAX;
    is_at_once.then(|| chosen::<AT_ONCE_LEAVES_MAX>(view, record, key))
}

/// The leaf that the hints of a sub-model of up to `LEAVES_MAX` leaves choose.
#[inline(always)]
fn chosen<const LEAVES_MAX: u32>(
    view: &[AtomicU64; VIEW_WORDS],
    record: &SubModelRecord,
    key: u64,
) -> LeafNumber {
    let leaves = record.leaf_count as usize;
    let hints = &view[SUB_MODEL_WORDS..][..(LEAVES_MAX as usize).div_ceil(LANES_PER_WORD)];
    let perhaps = model_of(record).greatest_hint(key);
    let position = match LEAVES_MAX {
        SHORT_LEAVES_MAX => lanes_at_most(hints, 1..leaves, perhaps),
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
    leaves: &'a [AtomicU64],
}

/// The words of a block with this record and table.
pub(super) fn block_words(record: &SubModelRecord, entries: &[u64]) -> std::vec::IntoIter<u64> {
    let packed = |per_word: usize, field: fn(TableEntry) -> u64| {
        let bits = 64 / per_word;
        entries.chunks(per_word).map(move |entries| {
            let fields = entries.iter().rev().map(|entry| field(TableEntry(*entry)));
            fields.fold(0, |word, field| word << bits | field)
        })
    };
    let hints = packed(LANES_PER_WORD, |entry| u64::from(entry.hint()));
    let leaves = packed(LEAVES_PER_WORD, |entry| u64::from(entry.leaf().0));
    let words: Vec<u64> = record.to_words().into_iter().chain(hints).chain(leaves).collect();
    words.into_iter()
}

/// Words of a block for so many leaves.
pub(super) const fn block_length(leaves: u32) -> usize {
    let leaves = leaves as usize;
    SUB_MODEL_WORDS + leaves.div_ceil(LANES_PER_WORD) + leaves.div_ceil(LEAVES_PER_WORD)
}

impl<'a> CachedSubModel<'a> {
    /// The sub-model in the block that begins with `words`; `None` if there is none.
    #[inline(always)]
    pub(super) fn at(words: &'a [AtomicU64]) -> Option<Self> {
        let (record, rest) = words.split_first_chunk::<SUB_MODEL_WORDS>()?;
        let record = record_in(record);
        let leaves = record.leaf_count as usize;
        let (hints, rest) = rest.split_at_checked(leaves.div_ceil(LANES_PER_WORD))?;
        let leaves = rest.get(..leaves.div_ceil(LEAVES_PER_WORD)).filter(|leaves| !leaves.is_empty())?;
        Some(Self { model: model_of(&record), hints, leaves })
    }

    /// Its leaves.
    #[inline(always)]
    pub(super) fn leaf_count(&self) -> u32 {
        self.model.leaf_count
    }

    /// The leaf of a position.
    #[inline(always)]
    pub(super) fn leaf(&self, position: u32) -> LeafNumber {
        let word = self.leaves[position as usize / LEAVES_PER_WORD].load(Ordering::Relaxed);
        LeafNumber((word >> (32 * (position as usize % LEAVES_PER_WORD))) as u32)
    }

    /// The likeliest leaf of `key`.
    #[inline(always)]
    pub(super) fn likeliest(&self, key: u64) -> LeafNumber {
        self.leaf(self.last_at_most(&self.window(key), self.model.greatest_hint(key)))
    }

    /// The positions of the leaves that may own `key`; the last is the likeliest.
    #[inline(always)]
    pub(super) fn candidates(&self, key: u64) -> Range<u32> {
        let [surely, perhaps] = self.model.key_hint(key).greatest_below();
        let window = self.window(key);
        let first = self.last_at_most(&window, surely);
        // Looked at twice: hints that were replaced in between may disagree.
        first..self.last_at_most(&window, perhaps).max(first) + 1
    }

    /// What part of the range of the leaf at `position` lies before `key`, in 256ths, as far as hints tell;
    /// as good as all of it if that is not known.
    #[inline(always)]
    pub(super) fn part_before(&self, position: u32, key: u64) -> u32 {
        let end = position as usize + 1;
        if end >= self.model.leaf_count as usize {
            return 256;
        }
        let low = u32::from(lane(self.hints, position as usize));
        let high = u32::from(lane(self.hints, end));
        let passed = u32::from(self.model.greatest_hint(key)).saturating_sub(low);
        256 * passed.min(high.saturating_sub(low)) / high.saturating_sub(low).max(1)
    }

    /// Where to look for the owner of `key`.
    #[inline(always)]
    fn window(&self, key: u64) -> Range<u32> {
        let is_at_once = self.model.leaf_count <= AT_ONCE_LEAVES_MAX;
        if is_at_once && Moves::are_widest() { 0..self.model.leaf_count } else { self.model.predict(key) }
    }

    /// The last position of the window whose hint is at most `bound`, or the first.
    #[inline(always)]
    fn last_at_most(&self, window: &Range<u32>, bound: u16) -> u32 {
        let rest = window.start as usize + 1..window.end as usize;
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
    use farsight_index::record_of;

    /// A sub-model of so many leaves, a thousand keys each, and the words of its block.
    fn example(leaves: u32, random: &mut SplitMix64) -> (SubModel, Vec<u64>, Vec<AtomicU64>) {
        let fences: Vec<u64> = (0..u64::from(leaves)).map(|leaf| leaf * 1_000 + random.below(900)).collect();
        let model = SubModel {
            slope: 0.001,
            error_low: 2,
            error_high: 2,
            leaf_count: leaves,
            hint_shift: if leaves < 60 { 0 } else { 6 },
            ..SubModel::default()
        };
        let entries: Vec<u64> = fences
            .iter()
            .map(|fence| TableEntry::new(LeafNumber(random.next_u64() as u32), 7, model.leaf_hint(*fence)).0)
            .collect();
        let words =
            block_words(&record_of(&model), &entries).chain([u64::MAX; VIEW_WORDS]).map(AtomicU64::new);
        (model, entries, words.collect())
    }

    #[test]
    fn a_block_gives_what_its_entries_give() {
        let mut random = SplitMix64::new(6);
        for leaves in (1..70).chain([500]) {
            let (model, entries, words) = example(leaves, &mut random);
            assert_eq!(words.len() - VIEW_WORDS, block_length(leaves));
            let cached = CachedSubModel::at(&words).expect("it was put there");
            assert_eq!(cached.leaf_count(), leaves);
            for _ in 0..200 {
                let key = random.below(u64::from(leaves) * 1_000 + 500);
                let hint_at = |position: u32| TableEntry(entries[position as usize]).hint();
                let expected = model.choose(key, model.predict(key), hint_at);
                let candidates = cached.candidates(key);
                assert_eq!(candidates, expected, "{key} of {leaves} leaves");
                let leaf = |position: u32| TableEntry(entries[position as usize]).leaf();
                assert_eq!(cached.likeliest(key), leaf(candidates.end - 1));
                let at_once = likeliest_at_once(words.first_chunk().unwrap(), key);
                let can = leaves <= AT_ONCE_LEAVES_MAX && Moves::are_widest();
                assert_eq!(at_once, can.then(|| leaf(candidates.end - 1)));
                assert!(candidates.into_iter().all(|position| cached.leaf(position) == leaf(position)));
            }
        }
    }

    #[test]
    fn any_words_lead_to_a_leaf_of_the_block() {
        let mut random = SplitMix64::new(8);
        for round in 0..20_000 {
            let leaves = 1 + random.below(80) as u32;
            let length = block_length(leaves);
            let words: Vec<AtomicU64> = (0..length.max(VIEW_WORDS))
                .map(|word| match word {
                    2 => random.next_u64() & !(0xff_ffff << 32) | u64::from(leaves) << 32,
                    _ => random.next_u64() >> random.below(64),
                })
                .map(AtomicU64::new)
                .collect();
            let cached = CachedSubModel::at(&words).expect("as many words as the record asks for");
            let key = random.next_u64() >> random.below(64);
            let candidates = cached.candidates(key);
            assert!(candidates.start < candidates.end && candidates.end <= leaves, "round {round}");
            let leaf = cached.likeliest(key);
            let at_once = likeliest_at_once(words.first_chunk().unwrap(), key);
            assert!(at_once.is_none_or(|at_once| at_once == leaf), "round {round}");
            assert!(CachedSubModel::at(&words[..length - 1]).is_none(), "words are missing");
        }
        assert!(CachedSubModel::at(&[AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)]).is_none());
    }
}

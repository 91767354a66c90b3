//! What this machine allows, measured in the same run as the store: the fractions that results are quoted in.
//!
//! Invariant: a walk touches the lines that the store's GET touches, in as many steps of which each waits for
//! the one before. A test asks the store's meters. It predicts by the store's own model in the store's own
//! lines ([`Predictor`]), trained on the keys of the run.
//!
//! - *Random-read limit*: independent 64 B reads over a region of the same size and pages as the store's
//!   leaves, the better of plain and prefetched.
//! - *Shape limit*: GETs in XStore's layout without any check, in staged batches. The top model names a
//!   sub-model's line, and that names the leaf. The walk searches the leaf's three key lines in place and
//!   reads one value line. No stamps, no fences, no copy, no bounds, no answers, no fabric: whatever the
//!   store takes longer is what its answers' proofs cost.
//! - *Single shape limit*: the same walk one key at a time, the whole leaf prefetched at once, as a blocking
//!   GET does. Keys are independent, or *chained*: each taken from what the walk before found.
//! - Of a table of blocks all of these walks go on: the word that the leaf holds names a block, all of whose
//!   lines are read. *Block copies* are copies of values out of blocks in random order, a batch prefetched
//!   together: what memory allows of bytes a second.
//! - *Scan shape limit*: scans of 1 to 100 pairs. The walk prefetches the lines of just the leaves that hold
//!   them, in groups of eight scans, and copies their keys and values out.
//!
//! All run over shared memory on the same kind of pages, warmed up. They count the thread's processor time,
//! so that a busy neighbour does not lower a limit. They report the best of [`ROUNDS`] rounds: a limit is not
//! an average.

use farsight_base::prng::{SplitMix64, mix};
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::words::{Moves, Widest, prefetch, prefetch_passing};
use farsight_base::{LeafNumber, WORDS_PER_LINE};
use farsight_index::CacheStats;
use farsight_index_xstore::client::{Asked, Predictor};
use farsight_layout::simd::equal_words_unchecked;
use farsight_layout::{
    Geometry, KEY_LINES, KEY_WORDS_MASK, LeafSlot, SHORT_LEAF_LINES as LEAF_LINES, SHORT_VALUE_BYTES,
};
use farsight_model::{TrainOptions, train};
use std::hint::black_box;

use crate::loaded_leaves::{PAIRS_PER_LEAF, fences_of, fill};
use crate::machine::thread_cpu_time;

/// Rounds of each measurement.
pub const ROUNDS: usize = 5;
/// Reads in a round at most; walks in batches are as many.
const READS_MAX: usize = 4_000_000;
/// Of a small table as many reads as it has keys, times this: they take no longer than the runs beside them.
const READS_PER_KEY: usize = 16;
/// The fewest, by which a clock can still go.
const READS_MIN: usize = 1 << 16;
/// A round has so many reads for one walk that goes alone, and for one scan.
const READS_PER_SINGLE_WALK: usize = 16;
const READS_PER_SCAN: usize = 64;
/// Reads prefetched together.
const PREFETCHED: usize = 64;
/// Bytes of blocks that a round copies.
const COPIED_BYTES: usize = 512 << 20;
/// Walks prefetched together: the store's batch.
const WALKS: usize = 64;
/// Scans prefetched together: the store's group.
const SCANS: usize = 8;
/// Pairs of the longest scan.
const SCAN_PAIRS_MAX: u64 = 100;
/// Leaves of the longest scan.
const SCAN_LEAVES_MAX: usize = SCAN_PAIRS_MAX.div_ceil(PAIRS_PER_LEAF as u64) as usize + 1;
const LEAF_WORDS: usize = LEAF_LINES * WORDS_PER_LINE;
/// Words of a key part, as bits of a search.
const KEY_PART_WORDS: usize = KEY_LINES * WORDS_PER_LINE;

/// The limits of one machine for one size of table.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    /// Independent 64 B reads a second, one thread.
    pub random_reads_per_s: f64,
    /// Unchecked GETs in the layout a second, one thread.
    pub shape_walks_per_s: f64,
    /// Unchecked GETs in the layout a second, one at a time, one thread.
    pub single_walks_per_s: f64,
    /// The same with each key taken from the walk before.
    pub chained_walks_per_s: f64,
    /// Unchecked scans of 1 to 100 pairs in the layout a second, one thread. Blocks are not read.
    pub shape_scans_per_s: f64,
    /// Copies of a block's value a second, one thread; zero without blocks.
    pub block_copies_per_s: f64,
}

/// Lines that walks touch, those of each step, which waits for the one before. None of the first: the top
/// model is small enough for a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Touched {
    /// Walks.
    pub walks: u64,
    /// Lines of sub-models.
    pub of_sub_models: u64,
    /// Of leaves, in the step that follows: key parts, or whole leaves.
    pub of_leaves: u64,
    /// Of values, if they are a step of their own.
    pub of_values: u64,
    /// Walks that came to a leaf without their key: to a tie's other candidate.
    pub astray: u64,
}

/// The memory on which limits are measured: filled once, so that all of it is populated.
pub struct LimitArrays<'a> {
    leaves: &'a [AtomicU64],
    predictor: Predictor,
    /// Stored keys, drawn in advance.
    keys: Vec<u64>,
    /// Scans: the first key, and the leaves that hold the pairs.
    scans: Vec<(u64, usize)>,
    /// Where in a leaf the value's line begins, for each word of the key part and for none.
    values: [usize; KEY_PART_WORDS + 1],
    /// Where leaves name blocks.
    blocks: Option<BlockArray<'a>>,
}

impl<'a> LimitArrays<'a> {
    /// Bytes of leaf memory that a table of `keys` pairs takes.
    #[must_use]
    pub fn leaf_bytes(keys: u64) -> u64 {
        keys.div_ceil(PAIRS_PER_LEAF as u64).max(1) * (LEAF_WORDS as u64 * 8)
    }

    /// A table of these ascending `keys` as after a bulk load; `words` is the leaves' memory, at least
    /// [`LimitArrays::leaf_bytes`] long.
    ///
    /// # Panics
    /// If `words` is shorter, there is no key, or no memory for a model.
    #[must_use]
    pub fn new(words: &'a [AtomicU64], keys: &[u64]) -> Self {
        let geometry = Geometry::new(SHORT_VALUE_BYTES).expect("a size of the format");
        let fences = fences_of(keys);
        let leaves = &words[..fences.len() * LEAF_WORDS];
        fill(leaves, &geometry, keys, &fences);
        let model = train(&fences, TrainOptions::default()).expect("fences ascend");
        let predictor = Predictor::new(&model, &fences).expect("memory for a model");
        let mut random = SplitMix64::new(2);
        let mut some = || random.below(keys.len() as u64) as usize;
        let reads = (keys.len() * READS_PER_KEY).clamp(READS_MIN, READS_MAX);
        let drawn = (0..reads).map(|_| keys[some()]).collect();
        let mut lengths = SplitMix64::new(3);
        let mut scan = || {
            let (first, pairs) = (some(), 1 + lengths.below(SCAN_PAIRS_MAX) as usize);
            let last = (first + pairs - 1).min(keys.len() - 1);
            (keys[first], 1 + last / PAIRS_PER_LEAF - first / PAIRS_PER_LEAF)
        };
        let scans = (0..reads / READS_PER_SCAN).map(|_| scan()).collect();
        let mut values = [KEY_PART_WORDS; KEY_PART_WORDS + 1];
        for slot in LeafSlot::all() {
            values[slot.key_word()] = geometry.value_place(slot).line * WORDS_PER_LINE;
        }
        Self { leaves, predictor, keys: drawn, scans, values, blocks: None }
    }

    /// Lets walks go on to blocks.
    pub fn set_blocks(&mut self, blocks: BlockArray<'a>) {
        self.blocks = Some(blocks);
    }

    /// Measures all limits on the calling thread.
    #[must_use]
    pub fn measure(&self) -> Limits {
        let _ = Moves::detect();
        let plain = best(|round| self.plain_reads(round));
        let prefetched = best(|round| self.prefetched_reads(round));
        Limits {
            random_reads_per_s: plain.max(prefetched),
            shape_walks_per_s: best(|_| self.walks::<false>(&mut Touched::default())),
            single_walks_per_s: best(|round| {
                self.single_walks::<false, false>(round, &mut Touched::default())
            }),
            chained_walks_per_s: best(|round| {
                self.single_walks::<true, false>(round, &mut Touched::default())
            }),
            shape_scans_per_s: best(|_| self.scans()),
            block_copies_per_s: self.blocks.as_ref().map_or(0.0, |blocks| best(|round| blocks.copies(round))),
        }
    }

    /// Reads of a round.
    fn reads(&self) -> u64 {
        self.keys.len() as u64
    }

    fn line(&self, random: u64) -> &AtomicU64 {
        let lines = self.leaves.len() / WORDS_PER_LINE;
        let line = ((u128::from(random) * lines as u128) >> 64) as usize;
        &self.leaves[line * WORDS_PER_LINE]
    }

    fn plain_reads(&self, round: u64) -> u64 {
        let mut sum = 0_u64;
        let mut random = SplitMix64::new(round);
        for _ in 0..self.reads() {
            sum = sum.wrapping_add(self.line(random.next_u64()).load(Ordering::Relaxed));
        }
        black_box(sum);
        self.reads()
    }

    fn prefetched_reads(&self, round: u64) -> u64 {
        let mut sum = 0_u64;
        let mut random = SplitMix64::new(round);
        for _ in 0..self.reads() / PREFETCHED as u64 {
            let lines: [&AtomicU64; PREFETCHED] = std::array::from_fn(|_| {
                let line = self.line(random.next_u64());
                prefetch(line);
                line
            });
            sum = lines.iter().fold(sum, |sum, line| sum.wrapping_add(line.load(Ordering::Relaxed)));
        }
        black_box(sum);
        self.reads() / PREFETCHED as u64 * PREFETCHED as u64
    }

    /// The lines that walks in batches touch.
    #[must_use]
    pub fn touched_in_batches(&self) -> Touched {
        let mut touched = Touched::default();
        self.walks::<true>(&mut touched);
        touched
    }

    /// The lines that walks one after the other touch.
    #[must_use]
    pub fn touched_alone(&self) -> Touched {
        let mut touched = Touched::default();
        self.single_walks::<false, true>(0, &mut touched);
        touched
    }

    /// The model by which walks predict, as a client's cache would be that holds it.
    #[must_use]
    pub fn model_stats(&self) -> CacheStats {
        self.predictor.stats()
    }

    /// The first word of a leaf.
    #[inline(always)]
    fn leaf(leaf: LeafNumber) -> usize {
        leaf.0 as usize * LEAF_WORDS
    }

    /// Where the value's line of `key` begins, by the words of the leaf at `leaf`.
    #[inline(always)]
    fn value_of<const COUNTED: bool>(&self, leaf: usize, key: u64, touched: &mut Touched) -> usize {
        let words = self.leaves[leaf..].first_chunk().expect("a leaf has a key part");
        let word = (equal_words(words, key) & KEY_WORDS_MASK).trailing_zeros() as usize;
        if COUNTED {
            touched.walks += 1;
            touched.astray += u64::from(word >= KEY_PART_WORDS);
        }
        // Of a walk that went astray a value's line is read all the same.
        leaf + self.values[word.min(KEY_PART_WORDS)]
    }

    /// One walk after the other; chained, the next key waits for the last value.
    fn single_walks<const CHAINED: bool, const COUNTED: bool>(
        &self,
        round: u64,
        touched: &mut Touched,
    ) -> u64 {
        let walks = self.keys.len() / READS_PER_SINGLE_WALK;
        let first = round as usize % 8 * walks;
        // No bit of a value is taken over, but neither compiler nor processor knows.
        let (mut sum, taken_over) = (0_u64, black_box(0));
        for key in &self.keys[first..][..walks] {
            let key = key ^ if CHAINED { sum & taken_over } else { 0 };
            let leaf = Self::leaf(self.predictor.leaf_now(key));
            if COUNTED {
                touched.of_sub_models += self.predictor.lines_asked(key) as u64;
            }
            for line in 0..LEAF_LINES {
                prefetch_passing(&self.leaves[leaf + line * WORDS_PER_LINE]);
                touched.of_leaves += u64::from(COUNTED);
            }
            let value = self.value_of::<COUNTED>(leaf, key, touched);
            sum ^= self.leaves[value].load(Ordering::Relaxed);
            if let Some(blocks) = &self.blocks {
                let block = blocks.block(key, sum);
                block.iter().step_by(WORDS_PER_LINE).for_each(prefetch_passing);
                sum ^= sum_of_lines(block);
            }
        }
        black_box(sum);
        walks as u64
    }

    /// Scans in groups: all lines of a group's leaves are prefetched, then the pairs copied, leaf by leaf.
    fn scans(&self) -> u64 {
        let mut leaves = [0_usize; SCANS];
        let mut pairs = vec![[0_u64; 2]; SCANS * SCAN_LEAVES_MAX * PAIRS_PER_LEAF];
        let slots: Vec<(usize, usize)> = LeafSlot::all()
            .take(PAIRS_PER_LEAF)
            .map(|slot| (slot.key_word(), self.values[slot.key_word()] + 1 + slot.number() % 4))
            .collect();
        let (groups, _) = self.scans.as_chunks::<SCANS>();
        for group in groups {
            let asked = group.map(|(key, _)| self.predictor.ask(key));
            for (((key, count), asked), leaf) in group.iter().zip(asked).zip(&mut leaves) {
                // Behind the first by number: they were loaded together.
                *leaf = Self::leaf(self.predictor.leaf(asked, *key));
                let end = self.leaves.len().min(*leaf + count * LEAF_WORDS);
                for line in self.leaves[*leaf..end].chunks_exact(WORDS_PER_LINE) {
                    prefetch(&line[0]);
                }
            }
            let mut pairs = pairs.chunks_exact_mut(PAIRS_PER_LEAF);
            for (leaf, (_, count)) in leaves.iter().zip(group) {
                let words = self.leaves[*leaf..].chunks_exact(LEAF_WORDS).take(*count);
                for (words, pairs) in words.zip(&mut pairs) {
                    for (pair, (key, value)) in pairs.iter_mut().zip(&slots) {
                        *pair = [words[*key].load(Ordering::Relaxed), words[*value].load(Ordering::Relaxed)];
                    }
                }
            }
        }
        black_box(pairs);
        (groups.len() * SCANS) as u64
    }

    /// Each loop a step of a GET, over a batch.
    fn walks<const COUNTED: bool>(&self, touched: &mut Touched) -> u64 {
        let (mut asked, mut at, mut sum) = ([Asked::default(); WALKS], [0_usize; WALKS], 0_u64);
        let (batches, _) = self.keys.as_chunks::<WALKS>();
        for keys in batches {
            for (key, asked) in keys.iter().zip(&mut asked) {
                *asked = self.predictor.ask(*key);
                if COUNTED {
                    touched.of_sub_models += self.predictor.lines_asked(*key) as u64;
                }
            }
            for ((key, asked), at) in keys.iter().zip(asked).zip(&mut at) {
                *at = Self::leaf(self.predictor.leaf(asked, *key));
                for line in 0..KEY_LINES {
                    prefetch(&self.leaves[*at + line * WORDS_PER_LINE]);
                    touched.of_leaves += u64::from(COUNTED);
                }
            }
            for (key, at) in keys.iter().zip(&mut at) {
                *at = self.value_of::<COUNTED>(*at, *key, touched);
                prefetch(&self.leaves[*at]);
                touched.of_values += u64::from(COUNTED);
            }
            if let Some(blocks) = &self.blocks {
                let words = at.map(|at| self.leaves[at].load(Ordering::Relaxed));
                let named = || keys.iter().zip(words).map(|(key, word)| blocks.block(*key, word));
                named().flat_map(|block| block.iter().step_by(WORDS_PER_LINE)).for_each(prefetch);
                sum = named().fold(sum, |sum, block| sum.wrapping_add(sum_of_lines(block)));
            } else {
                sum =
                    at.iter().fold(sum, |sum, at| sum.wrapping_add(self.leaves[*at].load(Ordering::Relaxed)));
            }
        }
        black_box(sum);
        (batches.len() * WALKS) as u64
    }
}

/// Blocks of one length.
pub struct BlockArray<'a> {
    words: &'a [AtomicU64],
    block_words: usize,
    value_bytes: usize,
}

impl<'a> BlockArray<'a> {
    /// Blocks of so many bytes, a multiple of a line, that hold values of so many. They fill `words`.
    #[must_use]
    pub fn new(words: &'a [AtomicU64], block_bytes: usize, value_bytes: usize) -> Self {
        for (index, word) in words.iter().enumerate() {
            // Relaxed, here and below: nobody writes what others read.
            word.store(index as u64, Ordering::Relaxed);
        }
        Self { words, block_words: block_bytes / 8, value_bytes }
    }

    /// The block of a key, which takes the word that its leaf holds: no walk begins it before it has that.
    #[inline(always)]
    fn block(&self, key: u64, word: u64) -> &'a [AtomicU64] {
        // No bit of the word is taken over, but neither compiler nor processor knows.
        let random = mix(key ^ word & black_box(0));
        let blocks = self.words.len() / self.block_words;
        let block = ((u128::from(random) * blocks as u128) >> 64) as usize;
        &self.words[block * self.block_words..][..self.block_words]
    }

    /// Copies the values of random blocks, a batch prefetched together.
    fn copies(&self, round: u64) -> u64 {
        let batches = (COPIED_BYTES / (self.block_words * 8 * WALKS)).max(1);
        let (mut random, mut value) = (SplitMix64::new(round), vec![0_u64; self.value_bytes.div_ceil(8)]);
        for _ in 0..batches {
            let blocks: [&[AtomicU64]; WALKS] = std::array::from_fn(|_| {
                let block = self.block(random.next_u64(), 0);
                block.iter().step_by(WORDS_PER_LINE).for_each(prefetch);
                block
            });
            for block in blocks {
                // A value stands behind its block's header and key.
                let words = &block[self.block_words - value.len()..];
                for (into, word) in value.iter_mut().zip(words) {
                    *into = word.load(Ordering::Relaxed);
                }
                black_box(&mut value);
            }
        }
        (batches * WALKS) as u64
    }
}

/// Reads a word of each line.
#[inline(always)]
fn sum_of_lines(block: &[AtomicU64]) -> u64 {
    let lines = block.iter().step_by(WORDS_PER_LINE);
    lines.fold(0, |sum: u64, word| sum.wrapping_add(word.load(Ordering::Relaxed)))
}

/// The best rate of [`ROUNDS`] rounds, each of which says how many operations it did.
fn best(mut round: impl FnMut(u64) -> u64) -> f64 {
    let rates = (0..ROUNDS as u64).map(|number| {
        let begun = thread_cpu_time();
        round(number + 1) as f64 / thread_cpu_time().saturating_sub(begun).as_secs_f64()
    });
    rates.fold(0.0, f64::max)
}

/// The words of a key part that equal `key`, one bit each, by the widest moves there are.
#[inline(always)]
fn equal_words(words: &[AtomicU64; KEY_LINES * WORDS_PER_LINE], key: u64) -> u32 {
    if let Some(widest) = Widest::if_known() {
        return equal_words_unchecked(words, key, widest);
    }
    let equal = |(index, word): (usize, &AtomicU64)| u32::from(word.load(Ordering::Relaxed) == key) << index;
    words.iter().enumerate().map(equal).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_rates() {
        let keys: Vec<u64> = (0..1_000).map(|key| key << 50).collect();
        let words: Vec<AtomicU64> =
            (0..LimitArrays::leaf_bytes(1_000) / 8).map(|_| AtomicU64::new(0)).collect();
        let arrays = LimitArrays::new(&words, &keys);
        let limits = arrays.measure();
        let rates = [limits.random_reads_per_s, limits.shape_walks_per_s, limits.single_walks_per_s];
        assert!(rates.iter().all(|rate| *rate > 0.0), "{limits:?}");
        assert!(limits.chained_walks_per_s > 0.0 && limits.shape_scans_per_s > 0.0, "{limits:?}");
    }
}

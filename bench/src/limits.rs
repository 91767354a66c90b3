//! What this machine allows, measured in the same run as the store: the fractions that results are quoted in.
//!
//! - *Random-read limit*: independent 64 B reads over a region of the same size and pages as the store's
//!   leaves, the better of plain and prefetched.
//! - *Shape limit*: GETs in XStore's layout without any check, in staged batches: a sub-model's line is read
//!   and evaluated, a table entry read, three key lines searched in place, one value line read. No top model,
//!   no hints, no stamps, no copy, no bounds, no fabric: whatever the store takes longer is what its answers'
//!   proofs cost.
//!
//! - *Single shape limit*: the same walk one key at a time, a sub-model's part of the table asked for beside
//!   the sub-model and the whole leaf at once, as a blocking GET does: independent keys, and *chained* ones,
//!   each taken from what the walk before found.
//! - *Scan shape limit*: scans of 1 to 100 pairs, the lines of as many leaves as that takes asked for in
//!   groups of eight scans, and their keys and values copied out.
//!
//! All run over shared memory on the same kind of pages, warmed up, count the thread's processor time (so
//! that a busy neighbour does not lower a limit), and report the best of [`ROUNDS`] rounds: a limit is not an
//! average.

use farsight_base::WORDS_PER_LINE;
use farsight_base::prng::{SplitMix64, mix};
use farsight_base::search::{SEARCH_LINES, equal_words_unchecked};
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::words::{Moves, Widest, prefetch, prefetch_passing};
use farsight_layout::LeafSlot;
use std::hint::black_box;

use crate::machine::thread_cpu_time;

/// Rounds of each measurement.
pub const ROUNDS: usize = 5;
/// Reads in a round.
const READS: u64 = 4_000_000;
/// Reads prefetched together.
const PREFETCHED: usize = 64;
/// Walks prefetched together: the store's batch.
const WALKS: usize = 64;
/// Scans prefetched together: the store's group.
const SCANS: usize = 8;
/// Pairs of the longest scan.
const SCAN_PAIRS_MAX: u64 = 100;
/// Leaves of the longest scan.
const SCAN_LEAVES_MAX: usize = SCAN_PAIRS_MAX.div_ceil(PAIRS_PER_LEAF) as usize + 1;
/// Key lines and all lines of a leaf with values of eight bytes.
const KEY_LINES: usize = 3;
const LEAF_LINES: usize = 7;
const LEAF_WORDS: usize = LEAF_LINES * WORDS_PER_LINE;
/// Pairs of a leaf after a bulk load, and leaves of a sub-model.
const PAIRS_PER_LEAF: u64 = 12;
const LEAVES_PER_SUB_MODEL: u64 = 24;
/// Lines of a sub-model's part of the table.
const SUB_MODEL_TABLE_LINES: usize = LEAVES_PER_SUB_MODEL as usize / WORDS_PER_LINE;
/// Words of a sub-model's line: base, slope, first table entry.
const MODEL_WORDS: usize = 4;

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
    /// Unchecked scans of 1 to 100 pairs in the layout a second, one thread.
    pub shape_scans_per_s: f64,
}

/// The memory on which limits are measured: filled once, so that all of it is populated.
pub struct LimitArrays<'a> {
    leaves: &'a [AtomicU64],
    leaf_count: u64,
    spacing: u64,
    models: Vec<AtomicU64>,
    table: Vec<AtomicU64>,
}

impl<'a> LimitArrays<'a> {
    /// Bytes of leaf memory that a table of `keys` pairs takes.
    #[must_use]
    pub fn leaf_bytes(keys: u64) -> u64 {
        keys.div_ceil(PAIRS_PER_LEAF).max(1) * (LEAF_WORDS as u64 * 8)
    }

    /// Arrays in the shape of a table of `keys` evenly spaced keys; `words` is the leaves' memory, at least
    /// [`LimitArrays::leaf_bytes`] long. Leaves lie in random order, as after many splits.
    ///
    /// # Panics
    /// If `words` is shorter.
    #[must_use]
    pub fn new(words: &'a [AtomicU64], keys: u64) -> Self {
        let leaf_count = keys.div_ceil(PAIRS_PER_LEAF).max(1);
        let leaves = &words[..leaf_count as usize * LEAF_WORDS];
        let spacing = u64::MAX / (leaf_count * PAIRS_PER_LEAF);
        let mut table: Vec<u64> = (0..leaf_count).collect();
        let mut random = SplitMix64::new(2);
        for last in (1..table.len()).rev() {
            table.swap(last, random.below(last as u64 + 1) as usize);
        }
        for (position, leaf) in table.iter().enumerate() {
            let leaf = &leaves[*leaf as usize * LEAF_WORDS..][..LEAF_WORDS];
            for (index, word) in leaf.iter().enumerate() {
                word.store(mix(index as u64) | 1, Ordering::Relaxed);
            }
            for (pair, slot) in LeafSlot::all().take(PAIRS_PER_LEAF as usize).enumerate() {
                let key = (position as u64 * PAIRS_PER_LEAF + pair as u64) * spacing;
                leaf[slot.key_word()].store(key & !1, Ordering::Relaxed);
            }
        }
        let models = (0..leaf_count.div_ceil(LEAVES_PER_SUB_MODEL)).flat_map(|sub_model| {
            let first = sub_model * LEAVES_PER_SUB_MODEL;
            let slope = 1.0 / (PAIRS_PER_LEAF * spacing) as f32;
            [first * PAIRS_PER_LEAF * spacing, u64::from(slope.to_bits()), first, 0]
        });
        let models = models.map(AtomicU64::new).collect();
        let table = table.into_iter().map(AtomicU64::new).collect();
        Self { leaves, leaf_count, spacing, models, table }
    }

    /// Measures all limits on the calling thread.
    #[must_use]
    pub fn measure(&self) -> Limits {
        let _ = Moves::detect();
        let plain = best(|round| self.plain_reads(round));
        let prefetched = best(|round| self.prefetched_reads(round));
        Limits {
            random_reads_per_s: plain.max(prefetched),
            shape_walks_per_s: best(|round| self.walks(round)),
            single_walks_per_s: best(|round| self.single_walks::<false>(round)),
            chained_walks_per_s: best(|round| self.single_walks::<true>(round)),
            shape_scans_per_s: best(|round| self.scans(round)),
        }
    }

    fn line(&self, random: u64) -> &AtomicU64 {
        let lines = self.leaves.len() / WORDS_PER_LINE;
        let line = ((u128::from(random) * lines as u128) >> 64) as usize;
        &self.leaves[line * WORDS_PER_LINE]
    }

    fn plain_reads(&self, round: u64) -> u64 {
        let mut sum = 0_u64;
        let mut random = SplitMix64::new(round);
        for _ in 0..READS {
            sum = sum.wrapping_add(self.line(random.next_u64()).load(Ordering::Relaxed));
        }
        black_box(sum);
        READS
    }

    fn prefetched_reads(&self, round: u64) -> u64 {
        let mut sum = 0_u64;
        let mut random = SplitMix64::new(round);
        for _ in 0..READS / PREFETCHED as u64 {
            let lines: [&AtomicU64; PREFETCHED] = std::array::from_fn(|_| {
                let line = self.line(random.next_u64());
                prefetch(line);
                line
            });
            sum = lines.iter().fold(sum, |sum, line| sum.wrapping_add(line.load(Ordering::Relaxed)));
        }
        black_box(sum);
        READS / PREFETCHED as u64 * PREFETCHED as u64
    }

    /// Where the table names the leaf of `key`, whose sub-model's words begin at `at`.
    #[inline(always)]
    fn predict(&self, key: u64, at: usize) -> usize {
        let [base, slope, first] = [0, 1, 2].map(|word| self.models[at + word].load(Ordering::Relaxed));
        let position = f32::from_bits(slope as u32) * key.saturating_sub(base) as i64 as f32;
        (first as usize + position as usize).min(self.table.len() - 1)
    }

    /// The first word of the leaf at a place of the table.
    #[inline(always)]
    fn leaf(&self, place: usize) -> usize {
        self.table[place].load(Ordering::Relaxed) as usize * LEAF_WORDS
    }

    /// One walk after the other; chained, the next key waits for the last value.
    fn single_walks<const CHAINED: bool>(&self, round: u64) -> u64 {
        let mut random = SplitMix64::new(round);
        // No bit of a value is taken over, but neither compiler nor processor knows.
        let (mut sum, taken_over) = (0_u64, black_box(0));
        for _ in 0..READS / 16 {
            let last = if CHAINED { sum & taken_over } else { 0 };
            let pair = random.below(self.leaf_count * PAIRS_PER_LEAF) ^ last;
            let key = (pair * self.spacing) & !1;
            let sub_model = pair / (PAIRS_PER_LEAF * LEAVES_PER_SUB_MODEL);
            let entries = &self.table[(sub_model * LEAVES_PER_SUB_MODEL) as usize..];
            for entry in entries.iter().step_by(WORDS_PER_LINE).take(SUB_MODEL_TABLE_LINES) {
                prefetch(entry);
            }
            let leaf = self.leaf(self.predict(key, sub_model as usize * MODEL_WORDS));
            for line in 0..LEAF_LINES {
                prefetch_passing(&self.leaves[leaf + line * WORDS_PER_LINE]);
            }
            let words = self.leaves[leaf..].first_chunk().expect("a leaf has a key part");
            let word = equal_words(words, key).trailing_zeros() as usize;
            let value = leaf + (KEY_LINES + word % (LEAF_LINES - KEY_LINES)) * WORDS_PER_LINE;
            sum ^= self.leaves[value].load(Ordering::Relaxed);
        }
        black_box(sum);
        READS / 16
    }

    /// Scans in groups: all lines of a group's leaves are asked for, then the pairs copied, leaf by leaf.
    fn scans(&self, round: u64) -> u64 {
        let mut random = SplitMix64::new(round);
        let mut leaves = [[0_usize; SCAN_LEAVES_MAX]; SCANS];
        let mut pairs = vec![[0_u64; 2]; SCANS * SCAN_LEAVES_MAX * PAIRS_PER_LEAF as usize];
        let slots: Vec<(usize, usize)> = LeafSlot::all()
            .take(PAIRS_PER_LEAF as usize)
            .map(|slot| (slot.key_word(), KEY_LINES + slot.number() / 4))
            .map(|(key, line)| (key, line * WORDS_PER_LINE))
            .enumerate()
            .map(|(slot, (key, line))| (key, line + 1 + slot % 4))
            .collect();
        for _ in 0..READS / 64 / SCANS as u64 {
            let mut counts = [0; SCANS];
            for (leaves, count) in leaves.iter_mut().zip(&mut counts) {
                let pair = random.below(self.leaf_count * PAIRS_PER_LEAF);
                let wanted = 1 + random.below(SCAN_PAIRS_MAX);
                let model = (pair / (PAIRS_PER_LEAF * LEAVES_PER_SUB_MODEL)) as usize * MODEL_WORDS;
                let first = self.predict((pair * self.spacing) & !1, model);
                let last = first + ((pair % PAIRS_PER_LEAF + wanted - 1) / PAIRS_PER_LEAF) as usize;
                for (place, leaf) in (first..=last.min(self.table.len() - 1)).zip(leaves) {
                    *leaf = self.leaf(place);
                    *count += 1;
                    for line in 0..LEAF_LINES {
                        prefetch(&self.leaves[*leaf + line * WORDS_PER_LINE]);
                    }
                }
            }
            let mut pairs = pairs.chunks_exact_mut(PAIRS_PER_LEAF as usize);
            for (leaves, count) in leaves.iter().zip(counts) {
                for (leaf, pairs) in leaves[..count].iter().zip(&mut pairs) {
                    let words = &self.leaves[*leaf..][..LEAF_WORDS];
                    for (pair, (key, value)) in pairs.iter_mut().zip(&slots) {
                        *pair = [*key, *value].map(|word| words[word].load(Ordering::Relaxed));
                    }
                }
            }
        }
        black_box(pairs);
        READS / 64 / SCANS as u64 * SCANS as u64
    }

    /// Each loop a step of a GET, over a batch.
    fn walks(&self, round: u64) -> u64 {
        let mut random = SplitMix64::new(round);
        let (mut keys, mut at, mut sum) = ([0_u64; WALKS], [0_usize; WALKS], 0_u64);
        for _ in 0..READS / WALKS as u64 {
            for (key, at) in keys.iter_mut().zip(&mut at) {
                let pair = random.below(self.leaf_count * PAIRS_PER_LEAF);
                *key = (pair * self.spacing) & !1;
                *at = (pair / (PAIRS_PER_LEAF * LEAVES_PER_SUB_MODEL)) as usize * MODEL_WORDS;
                prefetch(&self.models[*at]);
            }
            for (key, at) in keys.iter().zip(&mut at) {
                *at = self.predict(*key, *at);
                prefetch(&self.table[*at]);
            }
            for at in &mut at {
                *at = self.leaf(*at);
                for line in 0..KEY_LINES {
                    prefetch(&self.leaves[*at + line * WORDS_PER_LINE]);
                }
            }
            for (key, at) in keys.iter().zip(&mut at) {
                let words = self.leaves[*at..].first_chunk().expect("a leaf has a key part");
                // A key at a leaf's edge may be predicted into its neighbour; a value line is read all the
                // same.
                let word = equal_words(words, *key).trailing_zeros() as usize;
                *at += (KEY_LINES + word % (LEAF_LINES - KEY_LINES)) * WORDS_PER_LINE;
                prefetch(&self.leaves[*at]);
            }
            sum = at.iter().fold(sum, |sum, at| sum.wrapping_add(self.leaves[*at].load(Ordering::Relaxed)));
        }
        black_box(sum);
        READS / WALKS as u64 * WALKS as u64
    }
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
fn equal_words(words: &[AtomicU64; SEARCH_LINES * WORDS_PER_LINE], key: u64) -> u32 {
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
    fn the_shape_is_the_layouts() {
        let geometry = farsight_layout::Geometry::new(8).unwrap();
        assert_eq!((KEY_LINES, LEAF_LINES), (farsight_layout::KEY_LINES, geometry.leaf_lines()));
    }

    #[test]
    fn limits_are_rates() {
        let words: Vec<AtomicU64> =
            (0..LimitArrays::leaf_bytes(1_000) / 8).map(|_| AtomicU64::new(0)).collect();
        let arrays = LimitArrays::new(&words, 1_000);
        let found = arrays.table.iter().filter(|leaf| {
            let first = leaf.load(Ordering::Relaxed) as usize * LEAF_WORDS;
            let words = arrays.leaves[first..].first_chunk().expect("a leaf has a key part");
            equal_words(words, words[5].load(Ordering::Relaxed)) & 1 << 5 != 0
        });
        assert_eq!(found.count(), arrays.table.len(), "every leaf holds its keys");
        assert_eq!(arrays.walks(1) % WALKS as u64, 0);
        assert!(arrays.measure().shape_walks_per_s > 0.0);
    }
}

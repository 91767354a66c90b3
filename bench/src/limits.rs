//! What this machine allows, measured in the same run as the store: the fractions that results are quoted in.
//!
//! - *Random-read limit*: independent 64 B reads over a region of the same size and pages as the store's leaves, the
//!   better of plain and prefetched.
//! - *Shape limit*: the walk of XStore's layout without any check, in staged batches: a sub-model's line, a table
//!   entry, three key lines, then one value line. It touches the lines that a GET must touch and does nothing else,
//!   so whatever the store takes longer is its own doing.
//!
//! Both run over shared memory on the same kind of pages, warmed up, count the thread's processor time (so that a
//! busy neighbour does not lower a limit), and report the best of [`ROUNDS`] rounds: a limit is not an average.

use std::hint::black_box;
use farsight_base::WORDS_PER_LINE;
use farsight_base::prng::{SplitMix64, mix};
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::words::prefetch;

use crate::machine::thread_cpu_time;

/// Rounds of each measurement.
pub const ROUNDS: usize = 5;
/// Reads in a round.
const READS: u64 = 4_000_000;
/// Reads prefetched together.
const PREFETCHED: usize = 64;
/// Walks prefetched together: the store's batch.
const WALKS: usize = 64;
/// Key lines and all lines of a leaf with values of eight bytes.
const KEY_LINES: usize = 3;
const LEAF_LINES: usize = 7;
const LEAF_WORDS: usize = LEAF_LINES * WORDS_PER_LINE;
/// Pairs of a leaf after a bulk load, and leaves of a sub-model.
const PAIRS_PER_LEAF: u64 = 12;
const LEAVES_PER_SUB_MODEL: u64 = 24;

/// The limits of one machine for one size of table.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    /// Independent 64 B reads a second, one thread.
    pub random_reads_per_s: f64,
    /// Unchecked walks of the layout a second, one thread.
    pub shape_walks_per_s: f64,
}

/// The memory on which limits are measured: filled once, so that all of it is populated.
pub struct LimitArrays<'a> {
    leaves: &'a [AtomicU64],
    leaf_count: u64,
    models: Vec<AtomicU64>,
    table: Vec<AtomicU64>,
}

impl<'a> LimitArrays<'a> {
    /// Bytes of leaf memory that a table of `keys` pairs takes.
    #[must_use]
    pub fn leaf_bytes(keys: u64) -> u64 {
        keys.div_ceil(PAIRS_PER_LEAF).max(1) * (LEAF_WORDS as u64 * 8)
    }

    /// Arrays in the shape of a table of `keys` pairs; `words` is the leaves' memory, at least
    /// [`LimitArrays::leaf_bytes`] long.
    ///
    /// # Panics
    /// If `words` is shorter.
    #[must_use]
    pub fn new(words: &'a [AtomicU64], keys: u64) -> Self {
        let leaf_count = keys.div_ceil(PAIRS_PER_LEAF).max(1);
        let leaves = &words[..leaf_count as usize * LEAF_WORDS];
        for (index, word) in leaves.iter().enumerate() {
            word.store(mix(index as u64), Ordering::Relaxed);
        }
        let sub_models = leaf_count.div_ceil(LEAVES_PER_SUB_MODEL);
        let random = |count: u64, below: u64, seed: u64| {
            let mut sequence = SplitMix64::new(seed);
            (0..count).map(|_| AtomicU64::new(sequence.below(below))).collect()
        };
        // Two sub-models a line of eight words, one table entry a leaf.
        let models = random(sub_models.div_ceil(2) * 8, leaf_count, 1);
        let table = random(leaf_count, leaf_count, 2);
        Self { leaves, leaf_count, models, table }
    }

    /// Measures both limits on the calling thread.
    #[must_use]
    pub fn measure(&self) -> Limits {
        let plain = best(|round| self.plain_reads(round));
        let prefetched = best(|round| self.prefetched_reads(round));
        Limits {
            random_reads_per_s: plain.max(prefetched),
            shape_walks_per_s: best(|round| self.walks(round)),
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

    /// Each loop a step of the layout, each index taken from the line that the step before fetched.
    fn walks(&self, round: u64) -> u64 {
        let mut random = SplitMix64::new(round);
        let mut sum = 0_u64;
        let mut at = [0_usize; WALKS];
        let mut seeds = [0_u64; WALKS];
        for _ in 0..READS / WALKS as u64 {
            for (seed, at) in seeds.iter_mut().zip(&mut at) {
                *seed = random.next_u64();
                *at = ((u128::from(*seed) * (self.models.len() / 4) as u128) >> 64) as usize * 4;
                prefetch(&self.models[*at]);
            }
            for (seed, at) in seeds.iter().zip(&mut at) {
                let base = self.models[*at].load(Ordering::Relaxed);
                *at = ((base + (seed & 15)) % self.leaf_count) as usize;
                prefetch(&self.table[*at]);
            }
            for at in &mut at {
                *at = self.table[*at].load(Ordering::Relaxed) as usize * LEAF_WORDS;
                for line in 0..KEY_LINES {
                    prefetch(&self.leaves[*at + line * WORDS_PER_LINE]);
                }
            }
            for at in &mut at {
                let keys = (0..KEY_LINES).map(|line| &self.leaves[*at + line * WORDS_PER_LINE]);
                let found = keys.fold(0_u64, |found, word| found.wrapping_add(word.load(Ordering::Relaxed)));
                *at += (KEY_LINES + found as usize % (LEAF_LINES - KEY_LINES)) * WORDS_PER_LINE;
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
        round(number + 1) as f64 / (thread_cpu_time() - begun).as_secs_f64()
    });
    rates.fold(0.0, f64::max)
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
        assert_eq!(arrays.walks(1) % WALKS as u64, 0);
        assert!(arrays.measure().shape_walks_per_s > 0.0);
    }
}

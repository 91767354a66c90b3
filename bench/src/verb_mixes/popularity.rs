//! Which keys are popular, which partitions that makes hot, and what of it a cache holds.
//!
//! Invariant: a key's chance follows from its rank alone, `rank ^ -theta` by the sum of all. Ranks are kept
//! in bins whose ranks are all but equally likely, so ten million keys are some two thousand bins. The
//! first [`RANKS_ALONE`] have a bin each.

use farsight_base::prng::{SplitMix64, mix};

/// Partitions of a table.
pub(super) const PARTITIONS: usize = 1024;
/// Ranks with a bin of their own.
const RANKS_ALONE: u64 = 1_000;
/// A later bin's ranks, by its first.
const BIN_GROWTH: f64 = 0.01;
/// Steps of the bisection that finds how far back a cache reaches.
const BISECTIONS: usize = 100;

/// Keys of neighbouring ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bin {
    pub(super) first_rank: u64,
    pub(super) keys: u64,
    /// The chance of each.
    chance: f64,
}

impl Bin {
    /// The key's partition, if it is one key.
    pub(super) fn partition(&self) -> Option<usize> {
        (self.keys == 1).then(|| partition_of(self.first_rank))
    }
}

/// A key that an operation is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct DrawnKey {
    pub(super) bin: usize,
    pub(super) partition: usize,
}

/// All keys' chances.
#[derive(Debug)]
pub struct Popularity {
    pub(super) keys: u64,
    pub(super) theta: f64,
    pub(super) bins: Vec<Bin>,
    /// By bin: the chance of it and all before.
    cumulated: Vec<f64>,
    /// Partitions, the hottest first.
    hottest: Vec<usize>,
}

fn partition_of(rank: u64) -> usize {
    (mix(rank) % PARTITIONS as u64) as usize
}

impl Popularity {
    /// Zipfian chances of `keys` keys; uniform ones with a `theta` of 0.
    ///
    /// # Panics
    /// If there is no key, or `theta` is below 0 or not finite.
    #[must_use]
    pub fn new(keys: u64, theta: f64) -> Self {
        assert!(keys > 0 && theta.is_finite() && theta >= 0.0, "{keys} keys, theta {theta}");
        let mut bins = Vec::new();
        let mut first_rank = 0;
        while first_rank < keys {
            let most = if first_rank < RANKS_ALONE { 1 } else { (first_rank as f64 * BIN_GROWTH) as u64 };
            let count = most.min(keys - first_rank);
            let weights = (first_rank..first_rank + count).map(|rank| ((rank + 1) as f64).powf(-theta));
            bins.push(Bin { first_rank, keys: count, chance: weights.sum::<f64>() / count as f64 });
            first_rank += count;
        }
        let sum: f64 = bins.iter().map(|bin| bin.chance * bin.keys as f64).sum();
        let mut cumulated = Vec::with_capacity(bins.len());
        let mut before = 0.0;
        for bin in &mut bins {
            bin.chance /= sum;
            before += bin.chance * bin.keys as f64;
            cumulated.push(before);
        }
        let hottest = hottest_partitions(&bins);
        Self { keys, theta, bins, cumulated, hottest }
    }

    /// Draws the key of an operation.
    pub(super) fn draw(&self, random: &mut SplitMix64) -> DrawnKey {
        let at = unit(random);
        let bin = self.cumulated.partition_point(|chance| *chance <= at).min(self.bins.len() - 1);
        let Bin { first_rank, keys, .. } = self.bins[bin];
        DrawnKey { bin, partition: partition_of(first_rank + random.below(keys)) }
    }

    /// By partition: its place among all, the hottest first.
    pub(super) fn places(&self) -> Vec<usize> {
        let mut places = vec![0; PARTITIONS];
        for (place, partition) in self.hottest.iter().enumerate() {
            places[*partition] = place;
        }
        places
    }

    /// By bin: how likely a cache of `budget_bytes` that drops its oldest entry first has a key of it. An
    /// entry of the bin takes `entry_bytes`.
    ///
    /// A key that comes with chance p stays for T accesses, so it is there for pT of 1 + pT. The one T at
    /// which the expected bytes are the budget is that of the cache (Che, Tung, Wang, 2002; for FIFO:
    /// Gelenbe, 1973).
    pub(super) fn presence(&self, budget_bytes: f64, entry_bytes: impl Fn(&Bin) -> f64) -> Vec<f64> {
        let entry_bytes: Vec<f64> = self.bins.iter().map(entry_bytes).collect();
        let all = || self.bins.iter().zip(&entry_bytes);
        if all().map(|(bin, bytes)| bin.keys as f64 * bytes).sum::<f64>() <= budget_bytes {
            return vec![1.0; self.bins.len()];
        }
        let there = |bin: &Bin, reach: f64| bin.chance * reach / (1.0 + bin.chance * reach);
        let held_bytes =
            |reach: f64| all().map(|(bin, bytes)| bin.keys as f64 * bytes * there(bin, reach)).sum::<f64>();
        let (mut short, mut long) = (0.0, 1.0);
        while held_bytes(long) < budget_bytes && long < f64::MAX / 2.0 {
            long *= 2.0;
        }
        for _ in 0..BISECTIONS {
            let middle = f64::midpoint(short, long);
            if held_bytes(middle) < budget_bytes { short = middle } else { long = middle }
        }
        self.bins.iter().map(|bin| there(bin, short)).collect()
    }

    /// The part of all accesses that finds its key there.
    #[cfg(test)]
    fn hit_ratio(&self, presence: &[f64]) -> f64 {
        self.bins.iter().zip(presence).map(|(bin, there)| bin.chance * bin.keys as f64 * there).sum()
    }
}

/// Partitions by their chance. Ranks without a bin of their own are spread evenly.
fn hottest_partitions(bins: &[Bin]) -> Vec<usize> {
    let mut chances = vec![0.0; PARTITIONS];
    for bin in bins {
        if let Some(partition) = bin.partition() {
            chances[partition] += bin.chance;
        }
    }
    let mut hottest: Vec<usize> = (0..PARTITIONS).collect();
    hottest.sort_by(|a, b| f64::total_cmp(&chances[*b], &chances[*a]));
    hottest
}

/// A number from 0 on and below 1.
pub(super) fn unit(random: &mut SplitMix64) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chances_are_those_of_the_ranks() {
        let popularity = Popularity::new(100_000, 0.99);
        let sum: f64 = (1..=100_000).map(|rank| f64::from(rank).powf(-0.99)).sum();
        assert!((popularity.bins[0].chance - 1.0 / sum).abs() < 1e-12);
        assert!((popularity.cumulated.last().expect("bins") - 1.0).abs() < 1e-9);
        let mut random = SplitMix64::new(3);
        let draws = 200_000;
        let first = (0..draws).filter(|_| popularity.draw(&mut random).bin == 0).count() as f64;
        assert!((first / f64::from(draws) * sum - 1.0).abs() < 0.05, "{first} of {draws}, sum {sum}");
    }

    /// The closed form beside a cache that is run.
    #[test]
    fn presence_is_that_of_a_cache_that_drops_its_oldest_entry() {
        let popularity = Popularity::new(20_000, 0.99);
        let presence = popularity.presence(64.0 * 2_000.0, |_| 64.0);
        let mut random = SplitMix64::new(5);
        let (mut queue, mut held) = (std::collections::VecDeque::new(), vec![false; 20_000]);
        let (mut hits, mut draws) = (0, 0);
        for number in 0..400_000 {
            let bin = popularity.bins[popularity.draw(&mut random).bin];
            let rank = (bin.first_rank + random.below(bin.keys)) as usize;
            if number > 100_000 {
                draws += 1;
                hits += usize::from(held[rank]);
            }
            if !held[rank] {
                held[rank] = true;
                queue.push_back(rank);
                if queue.len() > 2_000 {
                    held[queue.pop_front().expect("an entry")] = false;
                }
            }
        }
        let (ran, expected) = (f64::from(hits as u32) / f64::from(draws), popularity.hit_ratio(&presence));
        assert!((ran - expected).abs() < 0.01, "{ran}, expected {expected}");
    }

    #[test]
    fn what_fits_is_there() {
        let popularity = Popularity::new(10, 0.5);
        assert_eq!(popularity.presence(640.0, |_| 64.0), vec![1.0; 10]);
        assert!(popularity.presence(320.0, |_| 64.0).iter().all(|there| *there < 1.0));
    }

    #[test]
    fn the_hottest_partition_is_that_of_the_first_key() {
        let popularity = Popularity::new(100_000, 0.99);
        assert_eq!(popularity.hottest[0], partition_of(0));
        assert_eq!(popularity.places()[partition_of(0)], 0);
    }
}

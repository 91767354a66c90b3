//! Which key is how popular: Zipfian ranks, and a scramble that scatters ranks over positions.
//!
//! Ranks come from `rand_distr`'s rejection sampler, which is exact for every theta of 0 and more. The
//! generator that YCSB uses holds below 1 only, and measured caches are often above.

use farsight_base::prng::mix;
use rand::{RngExt, rngs::Xoshiro256PlusPlus};
use rand_distr::{Distribution as _, Zipf};

use super::WorkloadError;

/// Draws popularity ranks, 0 the most popular.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ranks {
    Uniform { count: u32 },
    Zipfian { shape: Zipf<f64>, count: u32 },
}

impl Ranks {
    pub(super) fn uniform(count: u32) -> Self {
        assert!(count > 0, "popularity needs a key");
        Self::Uniform { count }
    }

    pub(super) fn zipfian(count: u32, theta: f64) -> Result<Self, WorkloadError> {
        assert!(count > 0, "popularity needs a key");
        if !theta.is_finite() {
            return Err(WorkloadError::BadTheta { theta });
        }
        let shape = Zipf::new(f64::from(count), theta).map_err(|_| WorkloadError::BadTheta { theta })?;
        Ok(Self::Zipfian { shape, count })
    }

    pub(super) fn draw(&self, random: &mut Xoshiro256PlusPlus) -> u32 {
        match self {
            Self::Uniform { count } => random.random_range(0..*count),
            // The sampler's floats may round past the last rank.
            Self::Zipfian { shape, count } => (shape.sample(random) as u32).min(*count) - 1,
        }
    }
}

/// A fixed bijection of 0..count that scatters neighbours.
///
/// Four rounds of a Feistel network permute a power of four that covers the range. A result outside of it is
/// permuted again until it falls inside (cycle walking), which keeps the map a bijection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scramble {
    count: u32,
    half_bits: u32,
    seed: u64,
}

impl Scramble {
    pub(super) fn new(count: u32, seed: u64) -> Self {
        assert!(count > 0, "a scramble needs a range");
        let bits = u32::BITS - (count - 1).leading_zeros();
        Self { count, half_bits: bits.div_ceil(2).max(1), seed }
    }

    pub(super) fn position(self, rank: u32) -> u32 {
        assert!(rank < self.count, "rank {rank} of {}", self.count);
        let mut position = u64::from(rank);
        loop {
            position = self.permute(position);
            if position < u64::from(self.count) {
                return position as u32;
            }
        }
    }

    fn permute(self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..4 {
            let mixed = mix(right.wrapping_add(mix(self.seed.wrapping_add(round)))) & mask;
            (left, right) = (right, left ^ mixed);
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use farsight_base::prng::SplitMix64;
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn the_scramble_is_a_bijection_that_scatters() {
        for count in [1, 2, 3, 5, 1_000, 4_096, 65_537] {
            let scramble = Scramble::new(count, 9);
            let mut seen = vec![false; count as usize];
            for rank in 0..count {
                let position = scramble.position(rank) as usize;
                assert!(!std::mem::replace(&mut seen[position], true), "{position} of {count} twice");
            }
        }
        let scramble = Scramble::new(1_000_000, 9);
        let lower_half = (0..1_000).filter(|&rank| scramble.position(rank) < 500_000).count();
        assert!((420..580).contains(&lower_half), "{lower_half} of the 1,000 most popular in the lower half");
    }

    /// How far `draws` ranks of a sampler with skew `sampled` lie from the exact weights of skew `claimed`,
    /// in standard deviations.
    ///
    /// Ranks make cells with an expectation of at least fifty each. Their chi-square is all but normal after
    /// the transformation of Wilson and Hilferty (1931).
    fn deviations(count: u32, draws: u32, [sampled, claimed]: [f64; 2], random: &mut SplitMix64) -> f64 {
        let ranks = Ranks::zipfian(count, sampled).expect("a skew");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(random.next_u64());
        let mut frequencies = vec![0u32; count as usize];
        for _ in 0..draws {
            frequencies[ranks.draw(&mut random) as usize] += 1;
        }
        let weight = |rank: usize| (rank as f64 + 1.0).powf(-claimed);
        let scale = f64::from(draws) / (0..count as usize).map(weight).sum::<f64>();
        let (mut chi_square, mut cells) = (0.0, 0u32);
        let (mut expected, mut got) = (0.0, 0.0);
        for (rank, frequency) in frequencies.into_iter().enumerate() {
            expected += scale * weight(rank);
            got += f64::from(frequency);
            if expected >= 50.0 || rank as u32 + 1 == count {
                chi_square += (got - expected) * (got - expected) / expected;
                cells += 1;
                (expected, got) = (0.0, 0.0);
            }
        }
        let freedom = f64::from(cells - 1);
        let spread = 2.0 / (9.0 * freedom);
        ((chi_square / freedom).cbrt() - (1.0 - spread)) / spread.sqrt()
    }

    #[test]
    fn rank_frequencies_are_exact_for_every_skew() {
        let mut random = SplitMix64::fresh();
        for theta in [0.0, 0.3048, 0.5, 0.9929, 0.99, 1.0, 1.001, 1.3, 2.0, 2.6774, 4.0] {
            for count in [2, 1_000, 100_000] {
                let far = deviations(count, 400_000, [theta; 2], &mut random);
                // Six deviations: one run in a hundred million.
                assert!(far < 6.0, "theta {theta} of {count} keys: {far} standard deviations");
            }
        }
    }

    #[test]
    fn a_skew_that_is_slightly_wrong_shows() {
        let mut random = SplitMix64::fresh();
        for wrong in [[0.97, 0.99], [1.02, 1.0], [0.98, 1.0], [2.0, 2.06], [0.0, 0.1]] {
            let far = deviations(100_000, 400_000, wrong, &mut random);
            assert!(far > 6.0, "{wrong:?}: {far} standard deviations");
        }
    }

    #[test]
    fn a_skew_without_meaning_is_refused() {
        for theta in [-0.1, f64::NAN, f64::INFINITY] {
            assert!(matches!(Ranks::zipfian(10, theta), Err(WorkloadError::BadTheta { .. })), "{theta}");
        }
    }
}

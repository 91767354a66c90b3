//! A small deterministic generator: SplitMix64 (Steele, Lea, Flood 2014). One seed gives one sequence on
//! every machine, so a failing test replays from its seed.

use std::hash::{BuildHasher, RandomState};

/// The environment variable that gives a test the seed of an earlier run.
const SEED_VARIABLE: &str = "FARSIGHT_TEST_SEED";

/// A SplitMix64 sequence.
#[derive(Debug, Clone)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The sequence of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// For tests: a sequence that no run had before, or that of `FARSIGHT_TEST_SEED`. A failing test prints
    /// which.
    ///
    /// # Panics
    /// If the variable is no number.
    #[must_use]
    pub fn fresh() -> Self {
        let seed = match std::env::var(SEED_VARIABLE) {
            Ok(given) => given.parse().unwrap_or_else(|_| panic!("{SEED_VARIABLE} is no number: {given:?}")),
            Err(_) => RandomState::new().hash_one(0),
        };
        println!("replay with {SEED_VARIABLE}={seed}");
        Self::new(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A number below `bound`, all but uniformly (bias below bound / 2^64).
    ///
    /// # Panics
    /// If `bound` is zero.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a number below zero does not exist");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

/// SplitMix64's finalizer: a bijection on 64 bits that scatters its input.
#[inline]
#[must_use]
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        let mut sequence = SplitMix64::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| sequence.next_u64()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn below_stays_below() {
        let mut sequence = SplitMix64::new(1);
        assert!((0..10_000).all(|_| sequence.below(7) < 7));
    }
}

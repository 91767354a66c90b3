//! Generated keys. Each generator returns exactly the asked count of distinct keys in ascending order.

use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};
use rand_distr::{Distribution, LogNormal, Normal};

/// 0, 1, 2, ...
pub(super) fn dense(count: usize) -> Vec<u64> {
    (0..count as u64).collect()
}

/// One key at a random place in each of `count` equal strides of the key space.
pub(super) fn noised_linear(count: usize, seed: u64) -> Vec<u64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let stride = u64::MAX / count.max(1) as u64;
    (0..count as u64).map(|slot| slot * stride + random.random_range(0..stride)).collect()
}

/// Every key equally likely.
pub(super) fn uniform(count: usize, seed: u64) -> Vec<u64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    distinct(count, || random.random())
}

/// Normal around 2^63 with standard deviation 2^60, so that the key space holds eight of them on either side.
pub(super) fn normal(count: usize, seed: u64) -> Vec<u64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let shape = Normal::new(2f64.powi(63), 2f64.powi(60)).expect("a positive deviation");
    // A double near 2^63 has 11 fewer bits than a key: the low bits are drawn apart, or keys would pile up on
    // multiples of 2^11.
    distinct(count, || {
        let key = shape.sample(&mut random) as u64;
        (key & !0x7ff) | random.random_range(0..0x800)
    })
}

/// exp of a normal with sigma 2 (as SOSD's), scaled by 2^44. The largest of 10^9 draws lies below 2^64.
pub(super) fn lognormal(count: usize, seed: u64) -> Vec<u64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let shape = LogNormal::new(0.0, 2.0).expect("a positive sigma");
    distinct(count, || (shape.sample(&mut random) * 2f64.powi(44)) as u64)
}

/// Islands of about 1,000 keys within windows of 2^20, the windows placed uniformly.
pub(super) fn clustered(count: usize, seed: u64) -> Vec<u64> {
    const KEYS_PER_ISLAND: usize = 1000;
    const WINDOW: u64 = 1 << 20;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let islands: Vec<u64> =
        (0..count.div_ceil(KEYS_PER_ISLAND)).map(|_| random.random_range(0..u64::MAX - WINDOW)).collect();
    distinct(count, || islands[random.random_range(0..islands.len())] + random.random_range(0..WINDOW))
}

/// Draws until `count` distinct keys are there; sorts them.
fn distinct(count: usize, mut draw: impl FnMut() -> u64) -> Vec<u64> {
    let mut keys = Vec::with_capacity(count);
    while keys.len() < count {
        let missing = count - keys.len();
        keys.extend((0..missing).map(|_| draw()));
        keys.sort_unstable();
        keys.dedup();
    }
    keys
}

/// Keeps `count` of the keys, each subset equally likely, in their order (Knuth, volume 2, 3.4.2, algorithm
/// S).
pub(super) fn sample_in_order(keys: &mut Vec<u64>, count: usize, seed: u64) {
    assert!(count <= keys.len(), "a sample without replacement is no larger than its source");
    if count == keys.len() {
        return;
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut remaining = keys.len();
    let mut wanted = count;
    keys.retain(|_| {
        let keep = random.random_range(0..remaining) < wanted;
        remaining -= 1;
        wanted -= usize::from(keep);
        keep
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_generator_is_distinct_ascending_and_repeatable() {
        type Generator = fn(usize, u64) -> Vec<u64>;
        let generators: [(&str, Generator); 6] = [
            ("dense", |count, _| dense(count)),
            ("noised-linear", noised_linear),
            ("uniform", uniform),
            ("normal", normal),
            ("lognormal", lognormal),
            ("clustered", clustered),
        ];
        for (name, generate) in generators {
            for count in [0, 1, 2, 999, 50_000] {
                let keys = generate(count, 7);
                assert_eq!(keys.len(), count, "{name}");
                assert!(keys.is_sorted_by(|a, b| a < b), "{name} of {count}");
                assert_eq!(keys, generate(count, 7), "{name} repeats for a seed");
            }
            assert!(name == "dense" || generate(999, 7) != generate(999, 8), "{name} follows its seed");
        }
    }

    #[test]
    fn shapes_are_what_their_names_say() {
        let share_below = |keys: &[u64], bound: f64| {
            keys.partition_point(|&key| (key as f64) < bound) as f64 / keys.len() as f64
        };
        let count = 100_000;
        let (middle, deviation) = (2f64.powi(63), 2f64.powi(60));
        assert!((share_below(&uniform(count, 1), middle / 2.0) - 0.25).abs() < 0.01);
        assert!((share_below(&normal(count, 1), middle + deviation) - 0.8413).abs() < 0.01);
        let median = 2f64.powi(44);
        assert!((share_below(&lognormal(count, 1), median) - 0.5).abs() < 0.01);
        assert!((share_below(&lognormal(count, 1), median * 2f64.exp()) - 0.8413).abs() < 0.01);
        let islands = clustered(count, 1).windows(2).filter(|pair| pair[1] - pair[0] > 1 << 30).count();
        assert!((90..100).contains(&islands), "{islands} gaps between 100 islands");
    }

    #[test]
    fn a_sample_is_exact_ordered_and_even() {
        let mut keys: Vec<u64> = (0..100_000).collect();
        sample_in_order(&mut keys, 10_000, 3);
        assert_eq!(keys.len(), 10_000);
        assert!(keys.is_sorted_by(|a, b| a < b));
        let lower_half = keys.partition_point(|&key| key < 50_000);
        assert!((4_800..5_200).contains(&lower_half), "{lower_half} of 10,000 from the lower half");
    }
}

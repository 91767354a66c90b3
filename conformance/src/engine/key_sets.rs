//! Keys that learned indexes get wrong: the ends of the key space, neighbours one apart, numbers that doubles
//! round, clusters with gaps between them, exponential spacing.

use farsight_base::prng::SplitMix64;

/// Where doubles stop telling neighbours apart.
const DOUBLE_END: u64 = 1 << 53;

/// The ends of the key space, the numbers around powers of two, and those that doubles round.
#[must_use]
pub fn extremes() -> Vec<u64> {
    let ends = [0, 1, 2, u64::MAX, u64::MAX - 1, u64::MAX - 2];
    let around = |at: u64| [at - 1, at, at + 1];
    let rounded = [DOUBLE_END, DOUBLE_END * 4, 1 << 63, (1 << 63) + (1 << 62)];
    let powers = (2..64).map(|exponent| 1 << exponent);
    tidied(ends.into_iter().chain(rounded.into_iter().chain(powers).flat_map(around)).collect())
}

/// `count` numbers one apart, from `from` on.
#[must_use]
pub fn dense(from: u64, count: u64) -> Vec<u64> {
    (0..count).map(|index| from.wrapping_add(index)).collect()
}

/// `clusters` runs of `count` numbers one apart, anywhere.
#[must_use]
pub fn clustered(random: &mut SplitMix64, clusters: usize, count: u64) -> Vec<u64> {
    tidied((0..clusters).flat_map(|_| dense(random.next_u64(), count)).collect())
}

/// Numbers whose gaps double, from both ends of the key space.
#[must_use]
pub fn exponential() -> Vec<u64> {
    let rising =
        (0..64).flat_map(|exponent| (0..4).map(move |part| (1_u64 << exponent) + (part << exponent) / 4));
    let falling: Vec<u64> = rising.clone().map(|key| u64::MAX - key).collect();
    tidied(rising.chain(falling).collect())
}

/// `count` numbers, anywhere.
#[must_use]
pub fn uniform(random: &mut SplitMix64, count: usize) -> Vec<u64> {
    tidied((0..count).map(|_| random.next_u64()).collect())
}

/// `count` of the keys, evenly, with the first and the last; all of them if there are no more.
#[must_use]
pub fn thinned(keys: &[u64], count: usize) -> Vec<u64> {
    let place = |index: usize| index * (keys.len() - 1) / (count - 1).max(1);
    if count < keys.len() { (0..count).map(|index| keys[place(index)]).collect() } else { keys.to_vec() }
}

/// Each of these sets, with a name.
#[must_use]
pub fn all(random: &mut SplitMix64) -> Vec<(&'static str, Vec<u64>)> {
    vec![
        ("extremes", extremes()),
        ("forty neighbours", dense(DOUBLE_END - 20, 40)),
        ("neighbours up to the end", dense(u64::MAX - 299, 300)),
        ("clusters", clustered(random, 20, 40)),
        ("exponential", exponential()),
        ("uniform", uniform(random, 1_000)),
    ]
}

/// Ascending and without repetition.
#[must_use]
pub fn tidied(mut keys: Vec<u64>) -> Vec<u64> {
    keys.sort_unstable();
    keys.dedup();
    keys
}

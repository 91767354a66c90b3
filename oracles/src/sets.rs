//! Identities whose keys learned indexes get wrong: the ends of the key space, neighbours one apart, numbers
//! that doubles round, clusters with gaps between them, exponential spacing.

use farsight_base::prng::SplitMix64;

use crate::Identity;

/// Where doubles stop telling neighbours apart.
const DOUBLE_END: u64 = 1 << 53;

/// The ends of the key space, the numbers around powers of two, and those that doubles round.
#[must_use]
pub fn extremes() -> Vec<Identity> {
    let ends = [0, 1, 2, u64::MAX, u64::MAX - 1, u64::MAX - 2];
    let around = |at: u64| [at - 1, at, at + 1];
    let rounded = [DOUBLE_END, DOUBLE_END * 4, 1 << 63, (1 << 63) + (1 << 62)];
    let powers = (2..64).map(|exponent| 1 << exponent);
    identities(ends.into_iter().chain(rounded.into_iter().chain(powers).flat_map(around)))
}

/// `count` numbers one apart, from `from` on.
#[must_use]
pub fn dense(from: u64, count: u64) -> Vec<Identity> {
    (0..count).map(|index| Identity(from.wrapping_add(index))).collect()
}

/// `clusters` runs of `count` numbers one apart, anywhere.
#[must_use]
pub fn clustered(random: &mut SplitMix64, clusters: usize, count: u64) -> Vec<Identity> {
    tidied((0..clusters).flat_map(|_| dense(random.next_u64(), count)).collect())
}

/// Numbers whose gaps double, from both ends of the key space.
#[must_use]
pub fn exponential() -> Vec<Identity> {
    let rising =
        (0..64).flat_map(|exponent| (0..4).map(move |part| (1_u64 << exponent) + (part << exponent) / 4));
    let falling = rising.clone().map(|number| u64::MAX - number);
    identities(rising.chain(falling))
}

/// `count` numbers, anywhere.
#[must_use]
pub fn uniform(random: &mut SplitMix64, count: usize) -> Vec<Identity> {
    identities((0..count).map(|_| random.next_u64()))
}

/// `count` of them, evenly, with the first and the last; all of them if there are no more.
#[must_use]
pub fn thinned(all: &[Identity], count: usize) -> Vec<Identity> {
    let place = |index: usize| index * (all.len() - 1) / (count - 1).max(1);
    if count < all.len() { (0..count).map(|index| all[place(index)]).collect() } else { all.to_vec() }
}

/// Each of these sets, with a name.
#[must_use]
pub fn all(random: &mut SplitMix64) -> Vec<(&'static str, Vec<Identity>)> {
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
pub fn tidied(mut all: Vec<Identity>) -> Vec<Identity> {
    all.sort_unstable();
    all.dedup();
    all
}

fn identities(numbers: impl Iterator<Item = u64>) -> Vec<Identity> {
    tidied(numbers.map(Identity).collect())
}

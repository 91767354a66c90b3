//! The keys of a run: those to load and those to insert.
//!
//! Invariants: loaded keys are ascending and distinct. Keys to insert are distinct, and none of them is
//! loaded. They follow the distribution of the set, in random order. Each thread's share is disjoint from
//! every other's.
//!
//! Keys to insert come from two places. *Held-back* keys are a random part of the set itself, the truest
//! source. *Gap* keys lie between neighbours of the set, at the fractions 1/2, 1/4, 3/4, 1/8, ... of their
//! distance. So a set of limited size (a real one) can be loaded whole and still take many inserts of its own
//! density.

use std::ops::Range;

use farsight_oracles::Identity;
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus, seq::SliceRandom};

use super::WorkloadError;

/// Halvings of a gap; 2^16 - 1 new keys in one gap are more than any run inserts there.
const GAP_LEVELS: u32 = 16;
/// Of a set without gaps for new keys, one key in so many is held back for inserts.
const HELD_BACK_PART: usize = 4;

/// How many keys to prepare for inserts, from each source.
#[derive(Debug, Clone, Copy, Default)]
pub struct InsertSupply {
    /// Keys of the set not to load.
    pub held_back: usize,
    /// New keys in the gaps of the set.
    pub gap_keys: usize,
}

/// Keys to load and keys to insert.
#[derive(Debug, Clone)]
pub struct KeySpace {
    loaded: Vec<Identity>,
    inserts: Vec<Identity>,
}

impl KeySpace {
    /// Splits a set of ascending, distinct keys.
    ///
    /// # Errors
    /// [`WorkloadError::NothingToLoad`] when no key would be loaded, [`WorkloadError::GapsTooNarrow`] when
    /// the gaps hold fewer new keys than asked, [`WorkloadError::TooManyKeys`] past 2^32 - 1 keys.
    ///
    /// # Panics
    /// If the keys are not ascending and distinct.
    pub fn split(keys: Vec<Identity>, supply: InsertSupply, seed: u64) -> Result<Self, WorkloadError> {
        assert!(keys.is_sorted_by(|a, b| a < b), "a key set is ascending and distinct");
        if supply.held_back >= keys.len() {
            return Err(WorkloadError::NothingToLoad { held_back: supply.held_back, keys: keys.len() });
        }
        if keys.len().max(supply.held_back + supply.gap_keys) > u32::MAX as usize {
            return Err(WorkloadError::TooManyKeys { keys: keys.len() });
        }
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut inserts = gap_keys(&keys, supply.gap_keys, &mut random)?;
        let (loaded, held_back) = hold_back(keys, supply.held_back, &mut random);
        inserts.extend(held_back);
        inserts.shuffle(&mut random);
        Ok(Self { loaded, inserts })
    }

    /// Splits a set so that up to `wanted` keys are there to insert: in its gaps, and where those are too
    /// narrow by holding a part of it back.
    ///
    /// # Errors
    /// As [`KeySpace::split`], but for gaps too narrow.
    ///
    /// # Panics
    /// If the keys are not ascending and distinct.
    pub fn with_inserts(keys: Vec<Identity>, wanted: usize, seed: u64) -> Result<Self, WorkloadError> {
        match Self::split(keys.clone(), InsertSupply { held_back: 0, gap_keys: wanted }, seed) {
            Err(WorkloadError::GapsTooNarrow { found, asked }) => {
                let held_back = (keys.len() / HELD_BACK_PART).min(asked - found);
                Self::split(keys, InsertSupply { held_back, gap_keys: found }, seed)
            }
            done => done,
        }
    }

    /// The keys to load, ascending.
    #[must_use]
    pub fn loaded(&self) -> &[Identity] {
        &self.loaded
    }

    /// All keys prepared for inserts, in random order.
    #[must_use]
    pub fn inserts(&self) -> &[Identity] {
        &self.inserts
    }

    /// Where in [`Self::inserts`] the share of one of `threads` threads lies.
    pub(super) fn share(&self, thread: usize, threads: usize) -> Range<usize> {
        assert!(thread < threads, "thread {thread} of {threads}");
        let bound = |thread: usize| (self.inserts.len() as u128 * thread as u128 / threads as u128) as usize;
        bound(thread)..bound(thread + 1)
    }
}

/// Takes `count` random keys out; both results are ascending.
fn hold_back(
    keys: Vec<Identity>,
    count: usize,
    random: &mut Xoshiro256PlusPlus,
) -> (Vec<Identity>, Vec<Identity>) {
    if count == 0 {
        return (keys, Vec::new());
    }
    let mut loaded = Vec::with_capacity(keys.len() - count);
    let mut held_back = Vec::with_capacity(count);
    let total = keys.len();
    for (position, key) in keys.into_iter().enumerate() {
        // Selection sampling (Knuth, volume 2, 3.4.2, algorithm S): each subset is equally likely.
        let is_held_back = random.random_range(0..total - position) < count - held_back.len();
        if is_held_back { held_back.push(key) } else { loaded.push(key) }
    }
    (loaded, held_back)
}

/// `count` keys in the gaps of the set, in random order.
fn gap_keys(
    keys: &[Identity],
    count: usize,
    random: &mut Xoshiro256PlusPlus,
) -> Result<Vec<Identity>, WorkloadError> {
    let mut found = Vec::new();
    for level in 1..=GAP_LEVELS {
        if found.len() >= count {
            break;
        }
        // The level's fractions are the odd multiples of 2^-level. In a gap of at least 2^level, fractions
        // that differ give keys that differ, and none gives an end of the gap.
        for numerator in (1..1u64 << level).step_by(2) {
            found.extend(keys.windows(2).filter_map(|pair| {
                let gap = pair[1].0 - pair[0].0;
                let offset = (u128::from(gap) * u128::from(numerator)) >> level;
                (gap >> level > 0).then_some(pair[0].behind(offset as u64))
            }));
            if found.len() >= count {
                break;
            }
        }
    }
    if found.len() < count {
        return Err(WorkloadError::GapsTooNarrow { found: found.len(), asked: count });
    }
    // A part of the last round must not be its first gaps alone.
    found.shuffle(random);
    found.truncate(count);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn skewed(count: u64) -> Vec<Identity> {
        (0..count).map(|position| Identity(position * position * 3)).collect()
    }

    #[test]
    fn inserts_are_new_distinct_and_disjoint_among_threads() {
        let keys = skewed(10_000);
        let supply = InsertSupply { held_back: 1_000, gap_keys: 25_000 };
        let space = KeySpace::split(keys, supply, 5).expect("wide gaps");
        assert_eq!((space.loaded().len(), space.inserts().len()), (9_000, 26_000));
        let loaded: HashSet<Identity> = space.loaded().iter().copied().collect();
        let mut seen = HashSet::new();
        for thread in 0..3 {
            for &key in &space.inserts()[space.share(thread, 3)] {
                assert!(!loaded.contains(&key), "{key} is loaded");
                assert!(seen.insert(key), "{key} is inserted twice");
            }
        }
        assert_eq!(seen.len(), 26_000, "the shares cover all keys");
    }

    #[test]
    fn inserts_follow_the_distribution_of_the_set() {
        let keys = skewed(10_000);
        let median = keys[5_000];
        for supply in
            [InsertSupply { held_back: 4_000, gap_keys: 0 }, InsertSupply { held_back: 0, gap_keys: 4_000 }]
        {
            let space = KeySpace::split(keys.clone(), supply, 5).expect("wide gaps");
            let below = space.inserts().iter().filter(|&&key| key < median).count();
            assert!((1_850..2_150).contains(&below), "{below} of 4,000 below the median");
            let first_below = space.inserts()[..1_000].iter().filter(|&&key| key < median).count();
            assert!((420..580).contains(&first_below), "{first_below} of the first 1,000: order is random");
        }
    }

    #[test]
    fn narrow_gaps_and_greedy_holds_are_refused() {
        let dense: Vec<Identity> = (0..100).map(Identity).collect();
        let gaps = InsertSupply { held_back: 0, gap_keys: 1 };
        let error = KeySpace::split(dense.clone(), gaps, 1).expect_err("no gaps");
        assert_eq!(error, WorkloadError::GapsTooNarrow { found: 0, asked: 1 });
        let all = InsertSupply { held_back: 100, gap_keys: 0 };
        let error = KeySpace::split(dense, all, 1).expect_err("nothing left");
        assert_eq!(error, WorkloadError::NothingToLoad { held_back: 100, keys: 100 });
    }

    #[test]
    fn the_whole_key_space_is_a_gap() {
        let gaps = InsertSupply { held_back: 0, gap_keys: 3 };
        let space = KeySpace::split(vec![Identity::MIN, Identity::MAX], gaps, 1).expect("one wide gap");
        let mut inserts = space.inserts().to_vec();
        inserts.sort_unstable();
        let quarter = u64::MAX / 4;
        assert_eq!(inserts, [quarter, u64::MAX / 2, quarter * 3 + 2].map(Identity));
    }
}

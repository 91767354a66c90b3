//! Changes of a table's shape: which keys a writer inserts and removes after the load, and in which order.
//!
//! Invariants: a writer finds each key to insert absent and each key to remove stored. All keys are 64-bit
//! integers drawn from one seed, so two runs change the same table in the same way.
//!
//! The loaded keys are uniform. Where a change needs room of its own, no key is loaded there: a 64th of the
//! key space, at its top or in its middle.

use std::str::FromStr;
use std::sync::Arc;

use farsight_oracles::Identity;
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus, seq::SliceRandom};

use super::{InsertSupply, KeySpace, WorkloadError};

/// The room without loaded keys, and where it begins for a tenant and for keys above all others.
const ROOM: u64 = 1 << 58;
const TENANT_BEGIN: u64 = 1 << 63;
const TOP_BEGIN: u64 = u64::MAX - ROOM + 1;
/// The distance of keys above all others, at most.
const ASCENDING_STEP_MAX: u64 = 1 << 20;
/// A window has a quarter as many keys as it moves by operations, so that it leaves itself behind twice.
const OPERATIONS_PER_WINDOW_KEY: usize = 4;
/// One key in so many survives a mass delete.
const KEPT_PART: usize = 20;

/// A way in which a table's shape changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShapeChange {
    /// Keys above the greatest, ascending.
    Append,
    /// Keys between two neighbouring keys, in random order.
    Cluster,
    /// Keys of a range that was empty, in random order.
    Tenant,
    /// A queue: inserts at the top, and as many removes of the oldest.
    Window,
    /// Keys anywhere between the loaded ones, in random order.
    Growth,
    /// 95 % of the keys removed, in random order.
    Delete,
}

impl ShapeChange {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Append, Self::Cluster, Self::Tenant, Self::Window, Self::Growth, Self::Delete];

    /// The name under which results show it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::Cluster => "cluster",
            Self::Tenant => "tenant",
            Self::Window => "window",
            Self::Growth => "growth",
            Self::Delete => "delete",
        }
    }

    /// What a writer does, in a few words.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::Append => "inserts above the greatest key, ascending",
            Self::Cluster => "inserts between two neighbouring keys, in random order",
            Self::Tenant => "inserts into an empty range of keys, in random order",
            Self::Window => "inserts at the top, and as many removes of the oldest",
            Self::Growth => "inserts anywhere, in random order: as many as were loaded, or --operations",
            Self::Delete => "removes 95 % of the keys, in random order",
        }
    }

    /// True if keys are removed, so that scans meet what is left.
    #[must_use]
    pub fn removes(self) -> bool {
        matches!(self, Self::Window | Self::Delete)
    }
}

impl FromStr for ShapeChange {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let found = Self::ALL.into_iter().find(|change| change.name() == text);
        found.ok_or_else(|| WorkloadError::UnknownChange { name: text.to_owned() })
    }
}

/// The keys of one change.
#[derive(Debug, Clone)]
pub struct ChangeKeys {
    /// Keys to load, ascending.
    pub loaded: Arc<[Identity]>,
    /// Keys to insert, in their order.
    pub inserts: Arc<[Identity]>,
    /// Keys to remove, in their order. Where there are both, batches of inserts and removes alternate.
    pub removes: Arc<[Identity]>,
    /// Keys that a reader beside the writer draws from. All of them are stored all the time; of a window,
    /// those from the removes done to the inserts done are.
    pub beside: Arc<[Identity]>,
    /// Keys that a reader draws from when the change is over: the new ones, or those that are left. Of a
    /// change that removes, all that are stored, ascending.
    pub after: Arc<[Identity]>,
}

impl ChangeKeys {
    /// The keys of `change` in a table of the ascending, distinct `keys`, by about `operations` operations.
    ///
    /// # Errors
    /// [`WorkloadError::GapsTooNarrow`] when the new keys have no room, [`WorkloadError::NothingToLoad`]
    /// without keys.
    pub fn new(
        change: ShapeChange,
        keys: Vec<Identity>,
        operations: usize,
        seed: u64,
    ) -> Result<Self, WorkloadError> {
        let random = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
        let made = match change {
            ShapeChange::Append => {
                let loaded = without_room(keys, TOP_BEGIN)?;
                let inserts = ascending(loaded[loaded.len() - 1], operations)?;
                Self::inserting(loaded, inserts)
            }
            ShapeChange::Cluster => {
                let pairs = || keys.windows(2).map(|pair| (pair[0].0, pair[1].0));
                let (low, high) = pairs().max_by_key(|(low, high)| high - low).unwrap_or((0, 0));
                let inserts = spread(low, high, operations, random)?;
                Self::inserting(keys, inserts)
            }
            ShapeChange::Tenant => {
                let loaded = without_room(keys, TENANT_BEGIN)?;
                let inserts = spread(TENANT_BEGIN, TENANT_BEGIN + ROOM, operations, random)?;
                Self::inserting(loaded, inserts)
            }
            ShapeChange::Growth => {
                let supply = InsertSupply { held_back: 0, gap_keys: operations.min(keys.len()) };
                let space = KeySpace::split(keys, supply, seed)?;
                Self::inserting(space.loaded().to_vec(), space.inserts().to_vec())
            }
            ShapeChange::Window => Self::window(without_room(keys, TOP_BEGIN)?, operations)?,
            ShapeChange::Delete => Self::mass_delete(keys, random),
        };
        if made.loaded.is_empty() || made.after.is_empty() {
            return Err(WorkloadError::NothingToLoad { held_back: 0, keys: made.loaded.len() });
        }
        Ok(made)
    }

    fn inserting(loaded: Vec<Identity>, inserts: Vec<Identity>) -> Self {
        let (loaded, inserts): (Arc<[_]>, Arc<[_]>) = (loaded.into(), inserts.into());
        Self { beside: Arc::clone(&loaded), after: Arc::clone(&inserts), loaded, inserts, removes: [].into() }
    }

    fn window(keys: Vec<Identity>, operations: usize) -> Result<Self, WorkloadError> {
        let size = (operations / OPERATIONS_PER_WINDOW_KEY).clamp(1, keys.len());
        let step = keys.len() / size;
        let mut stored: Vec<Identity> = keys.into_iter().step_by(step).take(size).collect();
        let inserts = ascending(stored[size - 1], operations / 2)?;
        let loaded = Arc::from(&stored[..]);
        stored.extend(&inserts);
        let (gone, left) = stored.split_at(inserts.len());
        let (removes, after) = (gone.into(), left.into());
        Ok(Self { loaded, removes, after, inserts: inserts.into(), beside: stored.into() })
    }

    fn mass_delete(keys: Vec<Identity>, random: &mut Xoshiro256PlusPlus) -> Self {
        let mut removes = keys.clone();
        removes.shuffle(random);
        let mut left = removes.split_off(keys.len() - keys.len().div_ceil(KEPT_PART));
        left.sort_unstable();
        let left: Arc<[_]> = left.into();
        Self {
            loaded: keys.into(),
            inserts: [].into(),
            removes: removes.into(),
            beside: Arc::clone(&left),
            after: left,
        }
    }

    /// True if keys are both inserted and removed, so that the stored ones move.
    #[must_use]
    pub fn is_window(&self) -> bool {
        !self.inserts.is_empty() && !self.removes.is_empty()
    }

    /// Operations of the change.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.inserts.len() + self.removes.len()
    }
}

/// The keys outside of the room that begins there.
fn without_room(mut keys: Vec<Identity>, begin: u64) -> Result<Vec<Identity>, WorkloadError> {
    keys.retain(|key| !(begin..=begin + (ROOM - 1)).contains(&key.0));
    if keys.is_empty() {
        return Err(WorkloadError::NothingToLoad { held_back: 0, keys: 0 });
    }
    Ok(keys)
}

/// `count` keys above `greatest`, ascending in equal steps.
fn ascending(greatest: Identity, count: usize) -> Result<Vec<Identity>, WorkloadError> {
    let room = u64::MAX - greatest.0;
    if room < count as u64 {
        return Err(WorkloadError::GapsTooNarrow { found: room as usize, asked: count });
    }
    let step = (room / (count as u64).max(1)).min(ASCENDING_STEP_MAX);
    Ok((1..=count as u64).map(|number| greatest.behind(number * step)).collect())
}

/// `count` distinct keys between `low` and `high`, one in each of as many equal strides, in random order.
fn spread(
    low: u64,
    high: u64,
    count: usize,
    random: &mut Xoshiro256PlusPlus,
) -> Result<Vec<Identity>, WorkloadError> {
    let room = (high - low).saturating_sub(1);
    let stride = room / (count as u64).max(1);
    if stride == 0 {
        return Err(WorkloadError::GapsTooNarrow { found: room as usize, asked: count });
    }
    let key_of = |slot: u64| Identity(low + 1 + slot * stride + random.random_range(0..stride));
    let mut keys: Vec<Identity> = (0..count as u64).map(key_of).collect();
    keys.shuffle(random);
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::dataset::Dataset;
    use crate::dataset::FileOptions;

    fn uniform(count: usize, seed: u64) -> Vec<Identity> {
        let dataset = Dataset::parse("uniform").expect("a data set");
        let nowhere = std::path::Path::new("");
        let keys = dataset.generate(Some(count), seed, nowhere, FileOptions { sort: false });
        keys.expect("synthetic").keys.into_iter().map(Identity).collect()
    }

    /// Executes a change on a set as the writer does, and returns what is stored at the end.
    fn executed(keys: &ChangeKeys) -> BTreeSet<Identity> {
        let mut stored: BTreeSet<Identity> = keys.loaded.iter().copied().collect();
        assert_eq!(stored.len(), keys.loaded.len(), "loaded keys are distinct");
        for place in 0..keys.inserts.len().max(keys.removes.len()) {
            if let Some(key) = keys.inserts.get(place) {
                assert!(stored.insert(*key), "{key} is stored already");
            }
            if let Some(key) = keys.removes.get(place) {
                assert!(stored.remove(key), "{key} is not stored");
            }
        }
        stored
    }

    #[test]
    fn every_change_inserts_what_is_absent_and_removes_what_is_stored() {
        let seed = rand::random();
        eprintln!("seed {seed}");
        for change in ShapeChange::ALL {
            for (count, operations) in [(5_000, 2_000), (1_000, 40_000), (64, 64)] {
                let keys = ChangeKeys::new(change, uniform(count, seed), operations, seed).expect("room");
                assert!(keys.loaded.is_sorted());
                let stored = executed(&keys);
                assert!(keys.after.iter().all(|key| stored.contains(key)), "{change:?}: read after");
                if change.removes() {
                    let left: Vec<Identity> = stored.iter().copied().collect();
                    assert_eq!(left, *keys.after, "{change:?}: what is left, in order");
                }
                if !keys.is_window() {
                    assert!(keys.beside.iter().all(|key| stored.contains(key)), "{change:?}: read beside");
                }
                assert_eq!(change.name().parse(), Ok(change));
            }
        }
    }

    #[test]
    fn shapes_are_what_their_names_say() {
        let made = |change| ChangeKeys::new(change, uniform(10_000, 7), 4_000, 7).expect("room");
        let greatest = |keys: &ChangeKeys| keys.loaded[keys.loaded.len() - 1];
        let append = made(ShapeChange::Append);
        assert!(append.inserts[0] > greatest(&append) && append.inserts.is_sorted());
        for change in [ShapeChange::Cluster, ShapeChange::Tenant] {
            let keys = made(change);
            let places = keys.inserts.iter().map(|key| keys.loaded.partition_point(|other| other < key));
            assert_eq!(places.collect::<BTreeSet<_>>().len(), 1, "{change:?}: one gap");
            assert!(!keys.inserts.is_sorted());
        }
        let window = made(ShapeChange::Window);
        assert_eq!([window.loaded.len(), window.inserts.len(), window.removes.len()], [1_000, 2_000, 2_000]);
        assert!(window.is_window() && window.beside.is_sorted() && window.operations() == 4_000);
        let delete = made(ShapeChange::Delete);
        assert_eq!([delete.removes.len(), delete.after.len()], [9_500, 500]);
        assert_eq!(made(ShapeChange::Growth).inserts.len(), 4_000);
        let grown = ChangeKeys::new(ShapeChange::Growth, uniform(1_000, 7), 4_000, 7).expect("room");
        assert_eq!(grown.inserts.len(), 1_000, "to twice the keys at most");
    }

    #[test]
    fn changes_without_room_are_refused() {
        let dense: Vec<Identity> = (0..100).map(Identity).collect();
        let cluster = ChangeKeys::new(ShapeChange::Cluster, dense, 10, 1);
        assert_eq!(cluster.err(), Some(WorkloadError::GapsTooNarrow { found: 0, asked: 10 }));
        for change in ShapeChange::ALL {
            assert!(ChangeKeys::new(change, Vec::new(), 10, 1).is_err(), "{change:?} of nothing");
        }
        assert!("melt".parse::<ShapeChange>().is_err());
    }
}

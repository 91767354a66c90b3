//! What a queue pair knows of its regions, found by their numbers.
//!
//! Invariant: at most half of the entries are taken, so a search ends. Between an entry and its own place
//! none is vacant, so a search finds it. Numbers that follow each other, as servers give them, stand at a
//! place each: one look finds them.
//!
//! Protocol: an entry stands where its number says, modulo the size, or behind that. Removing one moves those
//! behind it up.

use farsight_base::RegionId;

/// The key of an entry that holds nothing: no region's.
const VACANT: u64 = u64::MAX;
/// Entries of the smallest map.
const ENTRIES_MIN: usize = 8;

/// One region, in a line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Entry<T> {
    key: u64,
    value: T,
}

/// Values by region number. What a vacant place holds is the type's default.
#[derive(Debug)]
pub struct RegionMap<T> {
    /// None, or a power of two of them.
    entries: Vec<Entry<T>>,
    count: usize,
}

impl<T> Default for RegionMap<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), count: 0 }
    }
}

impl<T: Default> RegionMap<T> {
    /// Regions in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What is known of a region.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, region: RegionId) -> Option<&T> {
        let key = u64::from(region.0);
        let entry = self.entries.get(key as usize & self.entries.len().wrapping_sub(1))?;
        if entry.key == key { Some(&entry.value) } else { self.search(key) }
    }

    /// What is known of a region, to be changed.
    pub fn get_mut(&mut self, region: RegionId) -> Option<&mut T> {
        self.get(region)?;
        let place = self.place(region.0.into());
        Some(&mut self.entries[place].value)
    }

    #[cold]
    #[inline(never)]
    fn search(&self, key: u64) -> Option<&T> {
        let entry = &self.entries[self.place(key)];
        (entry.key == key).then_some(&entry.value)
    }

    /// Where the entry of `key` stands, or would. There are entries, and half of them are vacant.
    fn place(&self, key: u64) -> usize {
        let mask = self.entries.len() - 1;
        let mut place = key as usize & mask;
        while self.entries[place].key != key && self.entries[place].key != VACANT {
            place = (place + 1) & mask;
        }
        place
    }

    /// Takes in a region, or replaces what was known of it.
    pub fn insert(&mut self, region: RegionId, value: T) {
        if self.get(region).is_none() {
            self.count += 1;
            if self.entries.len() < 2 * self.count {
                self.rebuild();
            }
        }
        let key = region.0.into();
        let place = self.place(key);
        self.entries[place] = Entry { key, value };
    }

    /// Forgets a region.
    pub fn remove(&mut self, region: RegionId) -> Option<T> {
        self.get(region)?;
        let mask = self.entries.len() - 1;
        let mut hole = self.place(region.0.into());
        let removed = std::mem::replace(&mut self.entries[hole], Self::vacant());
        self.count -= 1;
        // Entries behind the hole move into it, but for those whose own place lies behind it.
        let mut place = (hole + 1) & mask;
        while self.entries[place].key != VACANT {
            let own = self.entries[place].key as usize & mask;
            let distance = |from: usize| place.wrapping_sub(from) & mask;
            if distance(own) >= distance(hole) {
                self.entries.swap(hole, place);
                hole = place;
            }
            place = (place + 1) & mask;
        }
        if self.entries.len() > ENTRIES_MIN && self.entries.len() > 8 * self.count {
            self.rebuild();
        }
        Some(removed.value)
    }

    /// All values.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().filter(|entry| entry.key != VACANT).map(|entry| &mut entry.value)
    }

    /// Makes it as large as its regions need, and puts each in its place.
    fn rebuild(&mut self) {
        let size = (2 * self.count).next_power_of_two().max(ENTRIES_MIN);
        let vacant = std::iter::repeat_with(Self::vacant).take(size).collect();
        let before = std::mem::replace(&mut self.entries, vacant);
        for entry in before.into_iter().filter(|entry| entry.key != VACANT) {
            let place = self.place(entry.key);
            self.entries[place] = entry;
        }
    }

    fn vacant() -> Entry<T> {
        Entry { key: VACANT, value: T::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use farsight_base::prng::SplitMix64;

    use super::*;

    #[test]
    fn any_numbers_are_found_until_they_are_removed() {
        let mut random = SplitMix64::new(1);
        // Neighbours, and those that differ in high bits alone.
        for number in [|random: u64| random as u32 & 63, |random: u64| (random as u32 & 63) << 26] {
            let (mut map, mut expected) = (RegionMap::default(), BTreeMap::new());
            for value in 1..4_000_u64 {
                let region = number(random.next_u64());
                if let Some(value) = expected.remove(&region) {
                    assert_eq!(map.remove(RegionId(region)), Some(value), "{region}");
                } else {
                    expected.insert(region, value);
                    map.insert(RegionId(region), value);
                }
                let probe = number(random.next_u64());
                assert_eq!(map.get(RegionId(probe)), expected.get(&probe), "{probe}");
                assert_eq!(map.len(), expected.len());
                assert!(map.entries.len() <= (8 * map.count).max(ENTRIES_MIN), "{}", map.count);
            }
        }
    }

    #[test]
    fn no_number_is_taken_for_a_vacant_entry() {
        let mut map = RegionMap::default();
        assert!(map.get(RegionId(0)).is_none() && map.get(RegionId(u32::MAX)).is_none());
        map.insert(RegionId(1), 7);
        map.insert(RegionId(1), 8);
        assert!(map.get(RegionId(u32::MAX)).is_none() && map.get(RegionId(9)).is_none());
        assert_eq!((map.get(RegionId(1)), map.len()), (Some(&8), 1));
        *map.get_mut(RegionId(1)).expect("it is there") += 1;
        assert!(map.get_mut(RegionId(9)).is_none());
        assert_eq!(map.get(RegionId(1)), Some(&9));
        assert_eq!(map.values_mut().count(), 1);
    }
}

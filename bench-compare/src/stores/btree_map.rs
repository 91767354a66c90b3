//! The standard library's ordered map.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::store::Store;
use crate::tally::{Tally, value_of};

pub(super) struct OrderedMap(BTreeMap<u64, u64>);

impl OrderedMap {
    pub(super) fn new(keys: &[u64]) -> Self {
        Self(keys.iter().map(|key| (*key, value_of(*key, 0))).collect())
    }
}

impl Store for OrderedMap {
    fn get_each(&mut self, keys: &[u64], tally: &mut Tally<'_>) -> Result<()> {
        for key in keys {
            tally.read(*key, self.0.get(key).copied());
        }
        Ok(())
    }

    fn scan(&mut self, scans: &[(u64, usize)], tally: &mut Tally<'_>) -> Result<()> {
        for (from, limit) in scans {
            tally.begin_scan(*from, *limit);
            self.0.range(from..).take(*limit).for_each(|(key, value)| tally.pair(*key, *value));
            tally.end_scan();
        }
        Ok(())
    }

    fn put(&mut self, pairs: &[(u64, u64)]) -> Result<()> {
        self.0.extend(pairs.iter().copied());
        Ok(())
    }
}

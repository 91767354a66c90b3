//! An unordered hash table: what order costs.

use anyhow::Result;
use farsight_base::prng::mix;
use hashbrown::HashTable;

use crate::store::Store;
use crate::tally::{Tally, value_of};

pub(super) struct Hashed {
    table: HashTable<(u64, u64)>,
    hashes: Vec<u64>,
}

impl Hashed {
    pub(super) fn new(keys: &[u64]) -> Self {
        let mut hashed = Self { table: HashTable::with_capacity(keys.len()), hashes: Vec::new() };
        for key in keys {
            hashed.set(*key, value_of(*key, 0));
        }
        hashed
    }

    #[inline(always)]
    fn get(&self, hash: u64, key: u64) -> Option<u64> {
        self.table.find(hash, |pair| pair.0 == key).map(|pair| pair.1)
    }

    fn set(&mut self, key: u64, value: u64) {
        let entry = self.table.entry(mix(key), |pair| pair.0 == key, |pair| mix(pair.0));
        entry.and_modify(|pair| pair.1 = value).or_insert((key, value));
    }
}

impl Store for Hashed {
    fn get_each(&mut self, keys: &[u64], tally: &mut Tally<'_>) -> Result<()> {
        for key in keys {
            tally.read(*key, self.get(mix(*key), *key));
        }
        Ok(())
    }

    fn get_batch(&mut self, keys: &[u64], tally: &mut Tally<'_>) -> Result<()> {
        self.hashes.clear();
        self.hashes.extend(keys.iter().map(|key| mix(*key)));
        for (key, hash) in keys.iter().zip(&self.hashes) {
            tally.read(*key, self.get(*hash, *key));
        }
        Ok(())
    }

    fn scan(&mut self, _scans: &[(u64, usize)], _tally: &mut Tally<'_>) -> Result<()> {
        anyhow::bail!("a hash table has no order to scan in")
    }

    fn put(&mut self, pairs: &[(u64, u64)]) -> Result<()> {
        for (key, value) in pairs {
            self.set(*key, *value);
        }
        Ok(())
    }
}

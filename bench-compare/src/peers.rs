//! Stores of values of any length, under keys of eight bytes: what is compared in durable writes and in
//! values.

pub(crate) mod farsight;
pub(crate) mod lmdb;
pub(crate) mod redis;
#[cfg(feature = "rocksdb")]
pub(crate) mod rocksdb;

use anyhow::{Result, ensure};
use farsight_bench::driver::checked_value;
use farsight_oracles::Identity;

/// A key and its value.
pub(crate) type Pair = (u64, Vec<u8>);
/// What is called for each key requested, with its place among them and its value.
pub(crate) type See<'a> = dyn FnMut(usize, Option<&[u8]>) + 'a;

/// A store.
pub(crate) trait Peer {
    /// Stores pairs in this order, those of one key, too. Returns once the store has acknowledged all.
    fn put(&mut self, pairs: &[Pair]) -> Result<()>;

    /// GETs that are under way together, where the store can do that.
    fn get(&mut self, keys: &[u64], see: &mut See<'_>) -> Result<()>;

    /// Ends the store, and opens what it has kept.
    fn reopen(&mut self) -> Result<()>;

    /// The process that stores, unless it is this one.
    fn server_process_id(&self) -> Option<u32> {
        None
    }
}

/// Pairs handed over together while a store is loaded or checked.
const AT_A_TIME: usize = 512;

/// What each key's value counts: how often it was written.
pub(crate) struct Counters<'a> {
    keys: &'a [u64],
    counts: Vec<u32>,
}

impl<'a> Counters<'a> {
    /// Each key with its first value.
    pub(crate) fn new(keys: &'a [u64]) -> Self {
        Self { keys, counts: vec![0; keys.len()] }
    }

    /// Makes `pair` the next write of the key at `index`.
    pub(crate) fn write(&mut self, index: usize, (key, value): &mut Pair) {
        self.counts[index] += 1;
        *key = self.keys[index];
        checked_value::write(Identity(*key), self.counts[index], value);
    }

    /// Stores all pairs.
    pub(crate) fn load(&self, peer: &mut dyn Peer, value_bytes: usize) -> Result<()> {
        let mut pairs = Vec::new();
        for keys in self.keys.chunks(AT_A_TIME) {
            pairs.clear();
            pairs.extend(keys.iter().map(|key| first_pair(*key, value_bytes)));
            peer.put(&pairs)?;
        }
        Ok(())
    }

    /// An error unless each key has the value that was written last.
    pub(crate) fn check(&self, peer: &mut dyn Peer) -> Result<()> {
        let (mut wrong, mut first_wrong) = (0_u64, String::new());
        for (keys, counts) in self.keys.chunks(AT_A_TIME).zip(self.counts.chunks(AT_A_TIME)) {
            peer.get(keys, &mut |index, value| {
                let (key, expected) = (keys[index], counts[index]);
                let found = value.and_then(|value| checked_value::counter(Identity(key), value));
                if found == Some(expected) {
                    return;
                }
                if wrong == 0 {
                    let length = value.map(<[u8]>::len);
                    first_wrong =
                        format!("key {key} has write {found:?} in {length:?} B, not write {expected}");
                }
                wrong += 1;
            })?;
        }
        ensure!(
            wrong == 0,
            "{wrong} of {} keys have a wrong value; the first: {first_wrong}",
            self.keys.len()
        );
        Ok(())
    }
}

/// A key with its first value.
pub(crate) fn first_pair(key: u64, value_bytes: usize) -> Pair {
    let mut value = vec![0; value_bytes];
    checked_value::write(Identity(key), 0, &mut value);
    (key, value)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A map that forgets what a test wants it to.
    #[derive(Default)]
    struct Forgetful {
        pairs: BTreeMap<u64, Vec<u8>>,
    }

    impl Peer for Forgetful {
        fn put(&mut self, pairs: &[Pair]) -> Result<()> {
            self.pairs.extend(pairs.iter().cloned());
            Ok(())
        }

        fn get(&mut self, keys: &[u64], see: &mut See<'_>) -> Result<()> {
            keys.iter().enumerate().for_each(|(at, key)| see(at, self.pairs.get(key).map(|v| &v[..])));
            Ok(())
        }

        fn reopen(&mut self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_write_that_is_lost_or_old_is_seen() {
        let keys: Vec<u64> = (0..1500).collect();
        let (mut counters, mut store) = (Counters::new(&keys), Forgetful::default());
        counters.load(&mut store, 24).expect("stored");
        counters.check(&mut store).expect("all there");
        let mut pair = (0, vec![0; 24]);
        counters.write(1400, &mut pair);
        let error = counters.check(&mut store).expect_err("the write is missing").to_string();
        let expected = "1 of 1500 keys have a wrong value; the first: key 1400 has write Some(0) in Some(24) B, not write 1";
        assert_eq!(error, expected);
        store.put(&[pair]).expect("stored");
        counters.check(&mut store).expect("all there");
        store.pairs.remove(&3);
        let error = counters.check(&mut store).expect_err("a key is missing").to_string();
        assert!(error.contains("key 3 has write None in None B, not write 0"), "{error}");
    }
}

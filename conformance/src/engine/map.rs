//! A `BTreeMap` as an engine: what the suite's judges are judged by, over any kind of key.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farsight::{Access, WriteOperation, WriteOutcome};
use farsight_index::{Decision, HeldPair, decide};
use farsight_oracles::Embedding;
use farsight_protocol::Direction;

use super::{EngineUnderTest, SessionUnderTest, Stored, TableUnderTest};

/// What a table makes of a key before it looks: the key itself, unless a test wants to be wrong.
pub type HeardAs<K> = fn(K) -> K;

/// An engine of tables that are maps.
pub struct MapEngine<E: Embedding> {
    /// How identities become its keys.
    pub embedding: E,
    /// What its tables make of keys.
    pub heard_as: HeardAs<E::Key>,
}

impl<E: Embedding<Key: Clone> + Clone + Default> EngineUnderTest for MapEngine<E> {
    type Embedding = E;
    type Table = MapTable<E::Key>;

    fn embedding(&self) -> E {
        self.embedding.clone()
    }

    fn table(&self, _value_bytes: usize) -> Self::Table {
        MapTable { held: Arc::default(), heard_as: self.heard_as }
    }
}

struct Held<K> {
    pairs: BTreeMap<K, Stored>,
    version: u64,
}

impl<K> Default for Held<K> {
    fn default() -> Self {
        Self { pairs: BTreeMap::new(), version: 0 }
    }
}

/// A table of it, and a session on it.
#[derive(Clone)]
pub struct MapTable<K> {
    held: Arc<Mutex<Held<K>>>,
    heard_as: HeardAs<K>,
}

impl<K: Ord + Clone> TableUnderTest for MapTable<K> {
    type Session = Self;

    fn session(&self, _access: Access) -> Self {
        self.clone()
    }

    fn await_training(&self) {}
}

impl<K: Ord> Held<K> {
    fn write(
        &mut self,
        operation: WriteOperation,
        key: K,
        operand: &[u8],
    ) -> (WriteOutcome, Option<Vec<u8>>) {
        let present = self.pairs.get(&key);
        let held = present.map(|(value, version)| HeldPair { version: *version, value });
        let (decision, before) = (decide(operation, operand, held), held.map(|held| held.version));
        let old = held.filter(|_| operation.returns_value()).map(|held| held.value.to_vec());
        let outcome = match decision {
            Decision::Leave(outcome) => outcome,
            Decision::Remove => {
                self.pairs.remove(&key);
                WriteOutcome::Removed(before.expect("a removal is of a present key"))
            }
            Decision::Store(value) => {
                self.version += 1;
                self.pairs.insert(key, (value.bytes().to_vec(), self.version));
                let written = if before.is_some() { WriteOutcome::Replaced } else { WriteOutcome::Inserted };
                written(self.version)
            }
        };
        (outcome, old)
    }
}

impl<K> MapTable<K> {
    fn held(&self) -> MutexGuard<'_, Held<K>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Clone> SessionUnderTest for MapTable<K> {
    type Key = K;

    fn write(&mut self, operation: WriteOperation, entries: &[(K, Vec<u8>)]) -> Vec<WriteOutcome> {
        self.exchange(operation, entries).into_iter().map(|(outcome, _)| outcome).collect()
    }

    fn exchange(
        &mut self,
        operation: WriteOperation,
        entries: &[(K, Vec<u8>)],
    ) -> Vec<(WriteOutcome, Option<Vec<u8>>)> {
        let mut held = self.held();
        let heard = entries.iter().map(|(key, value)| ((self.heard_as)(key.clone()), value));
        heard.map(|(key, value)| held.write(operation, key, value)).collect()
    }

    fn get(&mut self, key: K) -> Option<Stored> {
        self.held().pairs.get(&(self.heard_as)(key)).cloned()
    }

    fn multi_get(&mut self, keys: &[K]) -> Vec<Option<Stored>> {
        keys.iter().map(|key| self.get(key.clone())).collect()
    }

    fn scan_batch(&mut self, direction: Direction, scans: &[(K, usize)]) -> Vec<Vec<(K, Stored)>> {
        let scan = |(from, limit): &(K, usize)| {
            let (held, from) = (self.held(), (self.heard_as)(from.clone()));
            let owned = |(key, stored): (&K, &Stored)| (key.clone(), stored.clone());
            match direction {
                Direction::Ascending => held.pairs.range(from..).take(*limit).map(owned).collect(),
                Direction::Descending => held.pairs.range(..=from).rev().take(*limit).map(owned).collect(),
            }
        };
        scans.iter().map(scan).collect()
    }

    fn scan_keys(&mut self, direction: Direction, from: K, limit: usize) -> Vec<K> {
        let found = self.scan_batch(direction, &[(from, limit)]).pop().expect("a scan");
        found.into_iter().map(|(key, _)| key).collect()
    }

    fn scan_all(&mut self, direction: Direction, from: K) -> Vec<(K, Stored)> {
        self.scan_batch(direction, &[(from, usize::MAX)]).pop().expect("a scan")
    }
}

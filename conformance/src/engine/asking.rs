//! The seam between what judges speak of and what a session takes.
//!
//! Invariant: identities become keys here, and keys identities, nowhere else in the suite.

use farsight::{WriteOperation, WriteOutcome};
use farsight_oracles::{Embedding, Identity};
use farsight_protocol::Direction;

use super::{SessionUnderTest, Stored};

/// A session that is asked about identities.
pub struct Asking<'a, S, E> {
    session: &'a mut S,
    embedding: &'a E,
}

impl<'a, S, E> Asking<'a, S, E>
where
    E: Embedding,
    S: SessionUnderTest<Key = E::Key>,
{
    /// Of `session`.
    pub fn of(session: &'a mut S, embedding: &'a E) -> Self {
        Self { session, embedding }
    }

    /// As [`SessionUnderTest::write`].
    pub fn write(&mut self, operation: WriteOperation, entries: &[(Identity, Vec<u8>)]) -> Vec<WriteOutcome> {
        let entries = entries.iter().map(|(key, value)| (self.embedding.key(*key), value.clone()));
        self.session.write(operation, &entries.collect::<Vec<_>>())
    }

    /// As [`SessionUnderTest::exchange`].
    pub fn exchange(
        &mut self,
        operation: WriteOperation,
        entries: &[(Identity, Vec<u8>)],
    ) -> Vec<(WriteOutcome, Option<Vec<u8>>)> {
        let entries = entries.iter().map(|(key, operand)| (self.embedding.key(*key), operand.clone()));
        self.session.exchange(operation, &entries.collect::<Vec<_>>())
    }

    /// As [`SessionUnderTest::get`].
    pub fn get(&mut self, key: Identity) -> Option<Stored> {
        self.session.get(self.embedding.key(key))
    }

    /// As [`SessionUnderTest::multi_get`].
    pub fn multi_get(&mut self, keys: &[Identity]) -> Vec<Option<Stored>> {
        let keys: Vec<E::Key> = keys.iter().map(|key| self.embedding.key(*key)).collect();
        self.session.multi_get(&keys)
    }

    /// As [`SessionUnderTest::scan_batch`].
    pub fn scan_batch(
        &mut self,
        direction: Direction,
        scans: &[(Identity, usize)],
    ) -> Vec<Vec<(Identity, Stored)>> {
        let keyed = scans.iter().map(|(from, limit)| (self.embedding.key(*from), *limit));
        let found = self.session.scan_batch(direction, &keyed.collect::<Vec<_>>());
        found.into_iter().map(|pairs| self.identified(pairs)).collect()
    }

    /// As [`SessionUnderTest::scan_keys`].
    pub fn scan_keys(&mut self, direction: Direction, from: Identity, limit: usize) -> Vec<Identity> {
        let found = self.session.scan_keys(direction, self.embedding.key(from), limit);
        found.iter().map(|key| self.identity(key)).collect()
    }

    /// As [`SessionUnderTest::scan_all`].
    pub fn scan_all(&mut self, direction: Direction, from: Identity) -> Vec<(Identity, Stored)> {
        let found = self.session.scan_all(direction, self.embedding.key(from));
        self.identified(found)
    }

    fn identified(&self, pairs: Vec<(E::Key, Stored)>) -> Vec<(Identity, Stored)> {
        pairs.into_iter().map(|(key, stored)| (self.identity(&key), stored)).collect()
    }

    fn identity(&self, key: &E::Key) -> Identity {
        self.embedding.identity(key).expect("a scan finds keys of identities")
    }
}

//! What operations are executed on: a session, over whatever fabric.
//!
//! Invariant: here identities become keys of a table, and keys identities. A data set's key is its own
//! identity, so the compiler makes nothing of it: a measured loop takes not an instruction more.

use farsight::{Answers, Pairs, ReadError, Session, WriteError, WriteOperation, WriteOutcome};
use farsight_oracles::{EightBytes, Embedding, Identity};

use super::checked_value::CheckedValue;

/// Where the keys of data sets lie in tables of eight-byte keys.
pub(crate) const PLAIN: EightBytes = EightBytes::Plain;

/// The identities of a data set's keys.
#[must_use]
pub fn identities(keys: Vec<u64>) -> Vec<Identity> {
    keys.into_iter().map(|key| PLAIN.identity(&key).expect("each eight bytes are a key")).collect()
}

/// The keys of such a table.
#[must_use]
pub fn table_keys(identities: &[Identity]) -> Vec<u64> {
    identities.iter().map(|identity| PLAIN.key(*identity)).collect()
}

/// The keys of a store's table.
pub(crate) type KeyOf<S> = <<S as Store>::Embedding as Embedding>::Key;

/// A session as [`super::executor::Executor`] uses it.
pub(crate) trait Store {
    /// How identities become its keys.
    type Embedding: Embedding<Key: Copy>;
    /// It.
    const EMBEDDING: Self::Embedding;
    /// What scans find.
    type Pairs: Default;

    /// As [`Session::get_into`], where `value` is as long as the table's values. As [`Session::get_vec`],
    /// where these have any length.
    fn get(&mut self, key: KeyOf<Self>, value: &mut Vec<u8>) -> Result<Option<u64>, ReadError>;

    /// One write that carries a value, which a refusal makes an error.
    fn write_one(
        &mut self,
        operation: WriteOperation,
        key: KeyOf<Self>,
        value: &CheckedValue,
    ) -> Result<WriteOutcome, WriteError>;

    /// As [`Session::multi_get`].
    fn multi_get(&mut self, keys: &[KeyOf<Self>], answers: &mut Answers) -> Result<(), ReadError>;

    /// As [`Session::scan_batch`].
    fn scan_batch(
        &mut self,
        scans: &[(KeyOf<Self>, usize)],
        pairs: &mut Self::Pairs,
    ) -> Result<(), ReadError>;

    /// Keys and values of scan `index`, in key order.
    fn found(pairs: &Self::Pairs, index: usize) -> impl Iterator<Item = (KeyOf<Self>, &[u8])>;

    /// Writes of one kind that carry values.
    fn write(
        &mut self,
        operation: WriteOperation,
        pairs: &[(KeyOf<Self>, CheckedValue)],
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<(), WriteError>;
}

impl Store for Session<u64> {
    type Embedding = EightBytes;
    const EMBEDDING: EightBytes = PLAIN;
    type Pairs = Pairs<u64>;

    #[inline]
    fn get(&mut self, key: u64, value: &mut Vec<u8>) -> Result<Option<u64>, ReadError> {
        if self.values().are_blocks() { self.get_vec(key, value) } else { self.get_into(key, value) }
    }

    fn write_one(
        &mut self,
        operation: WriteOperation,
        key: u64,
        value: &CheckedValue,
    ) -> Result<WriteOutcome, WriteError> {
        match operation {
            WriteOperation::Insert => self.insert(key, value.as_ref()),
            WriteOperation::Update => self.update(key, value.as_ref()),
            WriteOperation::Put => self.put(key, value.as_ref()),
            other => panic!("no workload has a {other:?}"),
        }
    }

    #[inline]
    fn multi_get(&mut self, keys: &[u64], answers: &mut Answers) -> Result<(), ReadError> {
        Self::multi_get(self, keys, answers)
    }

    fn scan_batch(&mut self, scans: &[(u64, usize)], pairs: &mut Pairs<u64>) -> Result<(), ReadError> {
        Self::scan_batch(self, scans, pairs)
    }

    fn found(pairs: &Pairs<u64>, index: usize) -> impl Iterator<Item = (u64, &[u8])> {
        pairs.scan(index).map(|pair| (pair.key, pair.value))
    }

    fn write(
        &mut self,
        operation: WriteOperation,
        pairs: &[(u64, CheckedValue)],
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<(), WriteError> {
        match operation {
            WriteOperation::Insert => self.insert_many(pairs, outcomes),
            WriteOperation::Update => self.update_many(pairs, outcomes),
            WriteOperation::Put => self.put_many(pairs, outcomes),
            other => panic!("no workload has a {other:?}"),
        }
    }
}

//! Writes that look at the pair before they change it: compare-and-set, conditional removal, fetch-and-add,
//! swap.
//!
//! Each is one step. No other write of the key comes between its look and its change.

use farsight_client::WriteError;
use farsight_index::OldValues;
use farsight_protocol::{
    EXPECTED_VERSION_BYTES, INTEGER_BYTES, Operand, ValueKind, WriteOperation, WriteOutcome,
};

use crate::{KeyType, Session, Value};

/// What a swap found and did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Swapped {
    /// The value before; `None` if the key was absent.
    pub old: Option<Value>,
    /// The version that the pair has now.
    pub version: u64,
}

/// What a fetch-and-add found and did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Added {
    /// The integer before, as its 64 bits; 0 if the key was absent.
    pub old: u64,
    /// True if the key was absent.
    pub is_inserted: bool,
    /// The version that the pair has now.
    pub version: u64,
}

/// The outcomes of a batch of writes that return the values before: flat arrays, to be reused from batch
/// to batch.
#[derive(Clone, Debug, Default)]
pub struct Exchanges {
    pub(crate) outcomes: Vec<WriteOutcome>,
    pub(crate) old_values: OldValues,
}

impl Exchanges {
    /// The outcomes, in the order of the writes.
    #[must_use]
    pub fn outcomes(&self) -> &[WriteOutcome] {
        &self.outcomes
    }

    /// The value before write `index`; `None` if its key was absent, the write failed, or there are fewer.
    #[must_use]
    pub fn old(&self, index: usize) -> Option<&[u8]> {
        let Some(WriteOutcome::Replaced(_)) = self.outcomes.get(index) else { return None };
        self.old_values.get(index)
    }

    /// The integer before fetch-and-add `index`, as its 64 bits; 0 if its key was absent, the write failed,
    /// or there are fewer.
    ///
    /// # Panics
    /// If the values are no integers.
    #[must_use]
    pub fn old_integer(&self, index: usize) -> u64 {
        self.old(index).map_or(0, integer)
    }
}

fn integer(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("an integer has eight bytes"))
}

/// Appends the operand of a compare-and-set by version.
pub(crate) fn push_compare(operand: &mut Vec<u8>, expected_version: u64, value: &[u8]) {
    operand.extend_from_slice(&expected_version.to_le_bytes());
    operand.extend_from_slice(value);
}

/// Appends the operand of a compare-and-set by value, entry `index` of a call to this table.
pub(crate) fn push_compare_value(
    operand: &mut Vec<u8>,
    table: (&str, ValueKind),
    index: usize,
    (expected, value): (&[u8], &[u8]),
) -> Result<(), WriteError> {
    for bytes in [expected, value] {
        WriteError::check_value(table, index, bytes)?;
    }
    if table.1.are_blocks() {
        Operand::push_compare_value(operand, expected, value);
    } else {
        operand.extend_from_slice(expected);
        operand.extend_from_slice(value);
    }
    Ok(())
}

/// What a swap found and did.
pub(crate) fn swapped(outcome: WriteOutcome, old: &[u8]) -> Swapped {
    let (version, is_replaced) = stored(outcome);
    Swapped { old: is_replaced.then(|| Value::from(old)), version }
}

/// What a fetch-and-add found and did.
pub(crate) fn added(outcome: WriteOutcome, old: &[u8]) -> Added {
    let (version, is_replaced) = stored(outcome);
    Added { old: if is_replaced { integer(old) } else { 0 }, is_inserted: !is_replaced, version }
}

/// The version that a write made which stores in any case, and whether it found something.
fn stored(outcome: WriteOutcome) -> (u64, bool) {
    match outcome {
        WriteOutcome::Inserted(version) => (version, false),
        WriteOutcome::Replaced(version) => (version, true),
        other => unreachable!("a write that stores in any case was answered with {other:?}"),
    }
}

impl<K: KeyType + ?Sized> Session<K> {
    /// Stores a value if the key has the version `expected`, as a read returned it; 0 expects an absent key.
    /// [`WriteOutcome::Replaced`] or [`WriteOutcome::Inserted`] if so. Otherwise nothing changes:
    /// [`WriteOutcome::Differs`] with the version that is there, or [`WriteOutcome::Absent`].
    ///
    /// A key's version never comes back while its server lives, also over removal and insertion. So a version
    /// that is the same says that nobody wrote the key. A server that was started again counts anew
    /// ([`Session::epoch`]).
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn compare_and_set(
        &mut self,
        key: K::Ref<'_>,
        expected: u64,
        value: &[u8],
    ) -> Result<WriteOutcome, WriteError> {
        self.operands.clear();
        push_compare(&mut self.operands, expected, value);
        self.inner.write_one(WriteOperation::CompareAndSet, K::encoded(key), &self.operands)
    }

    /// Replaces the value if it equals `expected`, byte for byte: [`WriteOutcome::Replaced`]. Otherwise
    /// nothing changes: [`WriteOutcome::Differs`] with the version that is there, or
    /// [`WriteOutcome::Absent`].
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn compare_and_set_value(
        &mut self,
        key: K::Ref<'_>,
        expected: &[u8],
        value: &[u8],
    ) -> Result<WriteOutcome, WriteError> {
        self.operands.clear();
        let table = (self.inner.table().name(), self.values());
        push_compare_value(&mut self.operands, table, 0, (expected, value))?;
        self.inner.write_one(WriteOperation::CompareAndSetValue, K::encoded(key), &self.operands)
    }

    /// Removes a key if it has the version `expected`: [`WriteOutcome::Removed`]. Otherwise nothing changes:
    /// [`WriteOutcome::Differs`] with the version that is there, or [`WriteOutcome::Absent`].
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn remove_if(&mut self, key: K::Ref<'_>, expected: u64) -> Result<WriteOutcome, WriteError> {
        self.inner.write_one(WriteOperation::RemoveIf, K::encoded(key), &expected.to_le_bytes())
    }

    /// Adds to the integer that is the key's value: 8 bytes, little-endian, signed or unsigned, wrapping. An
    /// absent key counts as 0, and is inserted. Returns the integer before.
    ///
    /// # Errors
    /// [`WriteError`]; [`WriteError::NotInteger`] if the table's values are not of 8 B. Where values have any
    /// length, one of another length is refused ([`ErrorCode::NotInteger`](crate::ErrorCode)).
    pub fn fetch_add(&mut self, key: K::Ref<'_>, delta: i64) -> Result<Added, WriteError> {
        let outcome = self.exchange_one(WriteOperation::FetchAdd, key, &delta.to_le_bytes())?;
        Ok(added(outcome, self.old_value.get(0).unwrap_or_default()))
    }

    /// Stores a pair, present or not, and returns the value before.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn swap(&mut self, key: K::Ref<'_>, value: &[u8]) -> Result<Swapped, WriteError> {
        let outcome = self.exchange_one(WriteOperation::Swap, key, value)?;
        Ok(swapped(outcome, self.old_value.get(0).unwrap_or_default()))
    }

    /// [`Session::compare_and_set`] of many `(key, expected version, value)`; as [`Session::put_many`].
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn compare_and_set_many<V: AsRef<[u8]>>(
        &mut self,
        writes: &[(K::Ref<'_>, u64, V)],
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<(), WriteError> {
        self.operands.clear();
        self.operand_ends.clear();
        for (index, (_, expected, value)) in writes.iter().enumerate() {
            let table = (self.inner.table().name(), self.values());
            WriteError::check_value(table, index, value.as_ref())?;
            push_compare(&mut self.operands, *expected, value.as_ref());
            self.operand_ends.push(self.operands.len());
        }
        let keys = writes.iter().map(|(key, ..)| K::encoded(*key));
        self.write_operands(WriteOperation::CompareAndSet, keys, outcomes)
    }

    /// [`Session::compare_and_set_value`] of many `(key, expected value, value)`; as [`Session::put_many`].
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn compare_and_set_value_many<V: AsRef<[u8]>>(
        &mut self,
        writes: &[(K::Ref<'_>, V, V)],
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<(), WriteError> {
        self.operands.clear();
        self.operand_ends.clear();
        for (index, (_, expected, value)) in writes.iter().enumerate() {
            let table = (self.inner.table().name(), self.values());
            push_compare_value(&mut self.operands, table, index, (expected.as_ref(), value.as_ref()))?;
            self.operand_ends.push(self.operands.len());
        }
        let keys = writes.iter().map(|(key, ..)| K::encoded(*key));
        self.write_operands(WriteOperation::CompareAndSetValue, keys, outcomes)
    }

    /// [`Session::remove_if`] of many `(key, expected version)`; as [`Session::put_many`].
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn remove_if_many(
        &mut self,
        writes: &[(K::Ref<'_>, u64)],
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<(), WriteError> {
        self.operands.clear();
        self.operands.extend(writes.iter().flat_map(|(_, expected)| expected.to_le_bytes()));
        let operands = self.operands.chunks_exact(EXPECTED_VERSION_BYTES);
        let entries = writes.iter().map(|(key, _)| K::encoded(*key)).zip(operands);
        self.inner.write(WriteOperation::RemoveIf, entries, outcomes)
    }

    /// [`Session::fetch_add`] of many `(key, delta)`; as [`Session::put_many`].
    ///
    /// # Errors
    /// As [`Session::fetch_add`].
    pub fn fetch_add_many(
        &mut self,
        writes: &[(K::Ref<'_>, i64)],
        exchanges: &mut Exchanges,
    ) -> Result<(), WriteError> {
        self.operands.clear();
        self.operands.extend(writes.iter().flat_map(|(_, delta)| delta.to_le_bytes()));
        let operands = self.operands.chunks_exact(INTEGER_BYTES);
        let entries = writes.iter().map(|(key, _)| K::encoded(*key)).zip(operands);
        let Exchanges { outcomes, old_values } = exchanges;
        self.inner.exchange(WriteOperation::FetchAdd, entries, outcomes, old_values)
    }

    /// [`Session::swap`] of many pairs; as [`Session::put_many`].
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn swap_many<V: AsRef<[u8]>>(
        &mut self,
        pairs: &[(K::Ref<'_>, V)],
        exchanges: &mut Exchanges,
    ) -> Result<(), WriteError> {
        let entries = pairs.iter().map(|(key, value)| (K::encoded(*key), value.as_ref()));
        let Exchanges { outcomes, old_values } = exchanges;
        self.inner.exchange(WriteOperation::Swap, entries, outcomes, old_values)
    }

    fn exchange_one(
        &mut self,
        operation: WriteOperation,
        key: K::Ref<'_>,
        operand: &[u8],
    ) -> Result<WriteOutcome, WriteError> {
        self.old_value.clear();
        self.inner.exchange_one(operation, K::encoded(key), operand, &mut self.old_value)
    }

    /// Writes of one kind, whose operands stand in `self.operands` up to `self.operand_ends`.
    fn write_operands<'k>(
        &mut self,
        operation: WriteOperation,
        keys: impl Iterator<Item = K::Encoded<'k>>,
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<(), WriteError> {
        let mut begin = 0;
        let operands = self.operand_ends.iter().map(|end| {
            let operand = &self.operands[begin..*end];
            begin = *end;
            operand
        });
        self.inner.write(operation, keys.zip(operands), outcomes)
    }
}

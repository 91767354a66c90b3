//! A session's writes: what of them is checked before anything is sent, and what becomes of them.
//!
//! Invariant: nothing of a call is sent if one of its operands is wrong.

use farsight_index::{EngineError, OldValues, Writes, clear_kept};
use farsight_protocol::{ErrorCode, Operand, ValueKind, WriteOperation, WriteOutcome};

use super::Session;
use crate::WriteError;
#[cfg(injected)]
use crate::injected;
use crate::reconnect::ATTEMPTS_MAX;
use crate::session_key::SessionKey;
use crate::table::Table;

impl Session {
    /// Executes one write and returns its outcome, which is never [`WriteOutcome::Failed`]. `value` is the
    /// operand: mostly the value ([`WriteOperation::operand_bytes`]).
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn write_one<K: SessionKey>(
        &mut self,
        operation: WriteOperation,
        key: K,
        value: &[u8],
    ) -> Result<WriteOutcome, WriteError> {
        self.exchange_one(operation, key, value, &mut OldValues::default())
    }

    /// [`Session::write_one`] of an operation that returns the value before
    /// ([`WriteOperation::returns_value`]). It is appended to `old_values`, and means something if the
    /// outcome is [`WriteOutcome::Replaced`].
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn exchange_one<K: SessionKey>(
        &mut self,
        operation: WriteOperation,
        key: K,
        value: &[u8],
        old_values: &mut OldValues,
    ) -> Result<WriteOutcome, WriteError> {
        self.table.check_operand(operation, 0, key.bytes(), value)?;
        let now_ms = self.time_for_write()?;
        let with_deadline = self.expiring.as_mut().map(|expiring| {
            expiring.with_deadline(operation, value, now_ms);
            std::mem::take(&mut expiring.operand)
        });
        let value = with_deadline.as_deref().unwrap_or(value);
        let mut outcomes = std::mem::take(&mut self.outcome);
        outcomes.clear();
        let bounds: &[usize] = if self.has_bounds(operation) { &[0, value.len()] } else { &[] };
        let writes = Writes { operation, keys: &[key], values: value, bounds };
        let result = self.write_all(writes, &mut outcomes, old_values);
        let outcome = outcomes.first().copied();
        self.outcome = outcomes;
        if let (Some(expiring), Some(operand)) = (&mut self.expiring, with_deadline) {
            expiring.operand = operand;
        }
        result?;
        match outcome.expect("a write of one entry has one outcome") {
            WriteOutcome::Failed(code) => {
                Err(WriteError::Refused { table: self.table.name().to_owned(), operation, code })
            }
            done => Ok(done),
        }
    }

    /// Executes writes of one kind, in their order, and puts their outcomes into `outcomes`, which it
    /// replaces. The writes of a call are independent: each is atomic by itself, all together are not.
    ///
    /// # Errors
    /// [`WriteError`] if a call failed as a whole; then `outcomes` has those of the writes that are known to
    /// be done. A single write that the server could not do is no error but [`WriteOutcome::Failed`].
    pub fn write<'v, K: SessionKey>(
        &mut self,
        operation: WriteOperation,
        entries: impl Iterator<Item = (K, &'v [u8])>,
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<(), WriteError> {
        self.exchange(operation, entries, outcomes, &mut OldValues::default())
    }

    /// [`Session::write`] of an operation that returns the value before. `old_values` is replaced by one
    /// value an outcome, one behind the other. Each means something if the outcome is
    /// [`WriteOutcome::Replaced`].
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn exchange<'v, K: SessionKey>(
        &mut self,
        operation: WriteOperation,
        entries: impl Iterator<Item = (K, &'v [u8])>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), WriteError> {
        outcomes.clear();
        old_values.clear();
        let (mut keys, mut values) = (K::take_room(self), std::mem::take(&mut self.values));
        let mut bounds = std::mem::take(&mut self.bounds);
        values.clear();
        bounds.clear();
        let has_bounds = self.has_bounds(operation);
        if has_bounds {
            bounds.push(0);
        }
        let now_ms = self.time_for_write()?;
        let mut expiring = self.expiring.take();
        let gathered = entries.enumerate().try_for_each(|(index, (key, value))| {
            self.table.check_operand(operation, index, key.bytes(), value)?;
            keys.push(key);
            match &mut expiring {
                Some(expiring) => {
                    values.extend_from_slice(expiring.with_deadline(operation, value, now_ms));
                }
                None => values.extend_from_slice(value),
            }
            if has_bounds {
                bounds.push(values.len());
            }
            Ok(())
        });
        self.expiring = expiring;
        let writes = Writes { operation, keys: &keys, values: &values, bounds: &bounds };
        let written = gathered.and_then(|()| self.write_all(writes, outcomes, old_values));
        K::keep_room(self, keys);
        clear_kept(&mut values);
        clear_kept(&mut bounds);
        (self.values, self.bounds) = (values, bounds);
        written
    }

    /// Room for keys, empty.
    pub(crate) fn take_integers(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.keys)
    }

    /// Gives that room back.
    pub(crate) fn keep_integers(&mut self, mut room: Vec<u64>) {
        clear_kept(&mut room);
        self.keys = room;
    }

    /// The servers' time, if pairs have deadlines.
    #[inline]
    fn time_for_write(&mut self) -> Result<u64, WriteError> {
        if self.expiring.is_none() {
            return Ok(0);
        }
        self.server_time_ms().map_err(|error| self.reopen_for_write(error))
    }

    /// True if each value of these writes says where it ends.
    fn has_bounds(&self, operation: WriteOperation) -> bool {
        operation.has_value() && self.has_blocks()
    }

    pub(crate) fn write_all<K: SessionKey>(
        &mut self,
        writes: Writes<'_, K>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), WriteError> {
        outcomes.reserve(writes.keys.len());
        self.connect_for_write()?;
        let mut done = self.write_in_epoch(writes, outcomes, old_values);
        for _ in 1..ATTEMPTS_MAX {
            let may_be_gone = match &done {
                // Whatever else was done is done, in the table that is gone.
                Ok(()) => {
                    !outcomes.is_empty()
                        && outcomes.iter().all(|done| *done == WriteOutcome::Failed(ErrorCode::UnknownTable))
                }
                Err(error) => outcomes.is_empty() && !error.is_indeterminate(),
            };
            if !may_be_gone || !self.has_moved_in_write(done.as_ref().err(), outcomes)? {
                break;
            }
            old_values.clear();
            done = self.write_in_epoch(writes, outcomes, old_values);
        }
        #[cfg(injected)]
        if injected::WRITE_REPEATED.is_injected() && done.as_ref().is_err_and(EngineError::is_indeterminate) {
            outcomes.clear();
            old_values.clear();
            self.connect_for_write()?;
            done = K::write(&mut *self.working.engine, writes, outcomes, old_values);
        }
        let unknown = writes.keys.len() - outcomes.len();
        done.map_err(|source| self.table.write_error(writes.operation, unknown, source))
    }

    /// Asks where the table's name leads, after a write that did nothing: it failed, or met a dropped table.
    /// True if it can be done in another one.
    #[cold]
    fn has_moved_in_write(
        &mut self,
        error: Option<&EngineError>,
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<bool, WriteError> {
        let moved = self.has_moved_from(error);
        if !matches!(moved, Ok(false)) {
            outcomes.clear();
        }
        moved.map_err(|error| self.reopen_for_write(error))
    }
}

impl Table {
    /// [`WriteError::check_operand`] of this table.
    #[inline]
    pub(crate) fn check_operand(
        &self,
        operation: WriteOperation,
        index: usize,
        key_bytes: usize,
        operand: &[u8],
    ) -> Result<(), WriteError> {
        if key_bytes > 0 {
            self.check_pair(operation, index, key_bytes, operand)?;
        }
        WriteError::check_operand((self.name(), self.values()), operation, index, operand)
    }

    /// Refuses a key of bytes that is too long beside its value. `operand` has that value, and may have more.
    fn check_pair(
        &self,
        operation: WriteOperation,
        index: usize,
        key_bytes: usize,
        operand: &[u8],
    ) -> Result<(), WriteError> {
        let value_bytes = match self.values() {
            ValueKind::Fixed(bytes) => bytes.into(),
            ValueKind::Blocks { .. } => {
                Operand::of_any_length(operation, operand).map_or(0, |parts| parts.value.len())
            }
        };
        let max_bytes = self.engine().byte_pair_bytes_max - self.values().deadline_bytes();
        if key_bytes + value_bytes <= max_bytes {
            return Ok(());
        }
        Err(WriteError::PairTooLong {
            table: self.name().to_owned(),
            index,
            key_bytes,
            value_bytes,
            max_bytes,
        })
    }

    #[cold]
    fn write_error(&self, operation: WriteOperation, entries: usize, source: EngineError) -> WriteError {
        let table = self.name().to_owned();
        let is_indeterminate = source.is_indeterminate();
        let source = Box::new(source);
        if is_indeterminate {
            return WriteError::Indeterminate { table, operation, entries, source };
        }
        WriteError::Engine { table, source }
    }
}

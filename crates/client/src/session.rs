//! What one thread reads and writes with.

use std::sync::Arc;

use farsight_fabric::{Connection, Meters, QueuePair};
use farsight_index::{Answers, Counters, Pairs};
use farsight_index_xstore::client::{Access, ScanRequest, XCache, XClient, XStoreError};
use farsight_protocol::{WriteOperation, WriteOutcome};

use crate::{ReadError, Table, WriteError};

/// Writes that are handed to the engine together: as many as it keeps in flight.
const WRITE_WINDOW: usize = 512;

/// A session on one table: a queue pair and the engine over it. Use one a thread; a session is not shared.
pub struct Session<C: Connection> {
    table: Table<C>,
    queue: C::Queue,
    engine: XClient,
    /// The outcome of a single write: kept, so that it allocates once.
    outcome: Vec<WriteOutcome>,
}

impl<C: Connection> Session<C> {
    pub(crate) fn new(table: Table<C>, queue: C::Queue, cache: Arc<XCache>, access: Access) -> Self {
        Self { table, queue, engine: XClient::new(cache, access), outcome: Vec::with_capacity(1) }
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> &Table<C> {
        &self.table
    }

    /// Copies the value of `key` into `value`, which must be as long as the table's values, and returns its
    /// version; `None`, with `value` undefined, if the key is absent. Allocates nothing.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn get(&mut self, key: u64, value: &mut [u8]) -> Result<Option<u64>, ReadError> {
        if value.len() != self.table.value_bytes() {
            return Err(ReadError::WrongBufferSize {
                table: self.table.name().to_owned(),
                expected_bytes: self.table.value_bytes(),
                got_bytes: value.len(),
            });
        }
        self.engine.get(&mut self.queue, key, value).map_err(|source| self.table.read_error(source))
    }

    /// Values and versions of `keys`, any number of them, in their order. READs of many keys share a
    /// doorbell, so this is how to read fast. Allocates nothing once `answers` is warm.
    ///
    /// # Errors
    /// [`ReadError`]; then `answers` is undefined.
    pub fn multi_get(&mut self, keys: &[u64], answers: &mut Answers) -> Result<(), ReadError> {
        self.engine.multi_get(&mut self.queue, keys, answers).map_err(|source| self.table.read_error(source))
    }

    /// For each of `scans` the first pairs, at most its limit, whose keys are not below its start.
    ///
    /// # Errors
    /// [`ReadError`]; then `pairs` is undefined.
    pub fn scan_batch(&mut self, scans: &[ScanRequest], pairs: &mut Pairs) -> Result<(), ReadError> {
        self.engine.scan_batch(&mut self.queue, scans, pairs).map_err(|source| self.table.read_error(source))
    }

    /// Executes one write and returns its outcome, which is never [`WriteOutcome::Failed`]. `value` is empty
    /// for [`WriteOperation::Remove`].
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn write_one(
        &mut self,
        operation: WriteOperation,
        key: u64,
        value: &[u8],
    ) -> Result<WriteOutcome, WriteError> {
        let mut outcomes = std::mem::take(&mut self.outcome);
        let result = self.write(operation, std::iter::once((key, value)), &mut outcomes);
        let outcome = outcomes.first().copied();
        self.outcome = outcomes;
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
    pub fn write<'v>(
        &mut self,
        operation: WriteOperation,
        entries: impl ExactSizeIterator<Item = (u64, &'v [u8])> + Clone,
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<(), WriteError> {
        outcomes.clear();
        self.check_value_sizes(operation, entries.clone())?;
        outcomes.reserve(entries.len());
        let mut entries = entries;
        let mut window: [(u64, &[u8]); WRITE_WINDOW] = [(0, &[]); WRITE_WINDOW];
        loop {
            let count = window.iter_mut().zip(&mut entries).map(|(place, entry)| *place = entry).count();
            if count == 0 {
                return Ok(());
            }
            let done = outcomes.len();
            self.engine.write(&mut self.queue, operation, &window[..count], outcomes).map_err(|source| {
                let unanswered = count + entries.len() - (outcomes.len() - done);
                self.table.write_error(operation, unanswered, source)
            })?;
        }
    }

    fn check_value_sizes<'v>(
        &self,
        operation: WriteOperation,
        mut entries: impl Iterator<Item = (u64, &'v [u8])>,
    ) -> Result<(), WriteError> {
        let expected_bytes = if operation.has_value() { self.table.value_bytes() } else { 0 };
        let mut index = 0;
        let wrong = entries.find(|(_, value)| {
            index += 1;
            value.len() != expected_bytes
        });
        let Some((_, value)) = wrong else { return Ok(()) };
        Err(WriteError::WrongValueSize {
            table: self.table.name().to_owned(),
            index: index - 1,
            expected_bytes,
            got_bytes: value.len(),
        })
    }

    /// Fetches the whole model and translation table into the shared cache, instead of piece by piece on
    /// demand.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn prefill(&mut self) -> Result<(), ReadError> {
        self.engine.prefill(&mut self.queue).map_err(|source| self.table.read_error(source))
    }

    /// What the engine counted since the session began.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.engine.counters()
    }

    /// What went over the queue pair since the session began.
    #[must_use]
    pub fn meters(&self) -> Meters {
        self.queue.meters()
    }
}

impl<C: Connection> Table<C> {
    #[cold]
    fn read_error(&self, source: XStoreError) -> ReadError {
        ReadError::Engine { table: self.name().to_owned(), source: Box::new(source) }
    }

    #[cold]
    fn write_error(&self, operation: WriteOperation, entries: usize, source: XStoreError) -> WriteError {
        let table = self.name().to_owned();
        let is_indeterminate = source.is_indeterminate();
        let source = Box::new(source);
        if is_indeterminate {
            return WriteError::Indeterminate { table, operation, entries, source };
        }
        WriteError::Engine { table, source }
    }
}

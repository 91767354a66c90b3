//! What one thread reads and writes with.
//!
//! Invariant: a session works in one life of its peers at a time, with queue pairs and caches of that life.
//!
//! Protocol of a loss: reads can be repeated, so a read that finds the connection lost asks for the next
//! life, opens the table there and begins again. A write asks before it sends anything; once something was
//! sent and the answer is lost, it is indeterminate.

use farsight_base::Epoch;
use farsight_fabric::{FabricError, Meters};
use farsight_index::{Answers, Counters, Pairs};
use farsight_index_xstore::client::{Access, ScanRequest};
use farsight_protocol::{WriteOperation, WriteOutcome};

use crate::peers::Peers;
use crate::reconnect::{BEGINNINGS_MAX, OfFabric};
use crate::table::{Place, Table};
use crate::{CatalogueError, EngineError, OpenError, ReadError, WriteError};

/// A session on one table: queue pairs and the engine over them. Use one a thread; a session is not shared.
pub struct Session<P: Peers> {
    table: Table<P>,
    place: Place<P>,
    access: Access,
    engine: P::Engine,
    /// The outcome of a single write: kept, so that it allocates once.
    outcome: Vec<WriteOutcome>,
    /// What was counted in former lives.
    past_counters: Counters,
    past_meters: Meters,
}

impl<P: Peers> Session<P> {
    pub(crate) fn new(table: Table<P>, place: Place<P>, engine: P::Engine, access: Access) -> Self {
        Self {
            table,
            engine,
            place,
            access,
            outcome: Vec::with_capacity(1),
            past_counters: Counters::default(),
            past_meters: Meters::default(),
        }
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> &Table<P> {
        &self.table
    }

    /// The server's life in which the last call was executed. It changes in a call only, when that had to
    /// connect again.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.place.life.epoch()
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
        self.read(|engine, links| P::get(engine, links, key, value))
    }

    /// Values and versions of `keys`, any number of them, in their order. READs of many keys share a
    /// doorbell, so this is how to read fast. Allocates nothing once `answers` is warm.
    ///
    /// # Errors
    /// [`ReadError`]; then `answers` is undefined.
    pub fn multi_get(&mut self, keys: &[u64], answers: &mut Answers) -> Result<(), ReadError> {
        self.read(|engine, links| P::multi_get(engine, links, keys, answers))
    }

    /// For each of `scans` the first pairs, at most its limit, whose keys are not below its start.
    ///
    /// # Errors
    /// [`ReadError`]; then `pairs` is undefined.
    pub fn scan_batch(&mut self, scans: &[ScanRequest], pairs: &mut Pairs) -> Result<(), ReadError> {
        self.read(|engine, links| P::scan_batch(engine, links, scans, pairs))
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
        outcomes.reserve(entries.len());
        self.connect_for_write()?;
        let count = entries.len();
        let done = P::write(&mut self.engine, &mut self.place.links, operation, entries, outcomes);
        done.map_err(|source| self.table.write_error(operation, count - outcomes.len(), source))
    }

    /// Fetches the whole model and translation table into the shared cache, instead of piece by piece on
    /// demand.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn prefill(&mut self) -> Result<(), ReadError> {
        self.read(P::prefill)
    }

    /// What the engine counted since the session began.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut counters = self.past_counters;
        counters += P::counters(&self.engine);
        counters
    }

    /// What went over the queue pairs since the session began.
    #[must_use]
    pub fn meters(&self) -> Meters {
        let mut meters = self.past_meters;
        meters += P::meters(&self.place.links);
        meters
    }

    /// Runs a read, again if the connection turns out to be lost.
    #[inline]
    fn read<T>(
        &mut self,
        mut run: impl FnMut(&mut P::Engine, &mut P::Links) -> Result<T, EngineError>,
    ) -> Result<T, ReadError> {
        let mut beginnings = 1;
        loop {
            match run(&mut self.engine, &mut self.place.links) {
                Ok(found) => return Ok(found),
                Err(error) => self.renew_for_read(&mut beginnings, error)?,
            }
        }
    }

    #[cold]
    fn renew_for_read(&mut self, beginnings: &mut u32, error: EngineError) -> Result<(), ReadError> {
        let name = || self.table.name().to_owned();
        let Some(loss) = error.loss::<P>().cloned() else {
            return Err(ReadError::Engine { table: name(), source: Box::new(error) });
        };
        self.renew(beginnings, loss).map_err(|error| match error {
            OpenError::Catalogue(CatalogueError::Fabric(error)) => {
                ReadError::Engine { table: self.table.name().to_owned(), source: Box::new(error.into()) }
            }
            other => ReadError::Reopen { table: self.table.name().to_owned(), source: Box::new(other) },
        })
    }

    /// Makes sure that what is sent next is not sent over a connection that is known to be lost. One look at
    /// one word, if it is not.
    fn connect_for_write(&mut self) -> Result<(), WriteError> {
        let mut beginnings = 1;
        while let Err(error) = self.place.life.poll(&mut self.place.links) {
            self.renew_for_write(&mut beginnings, error)?;
        }
        Ok(())
    }

    #[cold]
    fn renew_for_write(&mut self, beginnings: &mut u32, error: FabricError) -> Result<(), WriteError> {
        let renewed = if P::is_loss(&error) { self.renew(beginnings, error) } else { Err(error.into()) };
        renewed.map_err(|error| match error {
            OpenError::Catalogue(CatalogueError::Fabric(error)) => {
                WriteError::Engine { table: self.table.name().to_owned(), source: Box::new(error.into()) }
            }
            other => WriteError::Reopen { table: self.table.name().to_owned(), source: Box::new(other) },
        })
    }

    /// Moves to a life with a connection, and opens the table there. Each loss, `loss` the first of them,
    /// counts as a beginning.
    fn renew(&mut self, beginnings: &mut u32, mut loss: FabricError) -> Result<(), OpenError> {
        while *beginnings < BEGINNINGS_MAX {
            *beginnings += 1;
            let life = self.table.shared().renew(&loss)?;
            let settled = self.table.place_in(&life).and_then(|place| self.settle(place));
            match settled {
                Ok(()) => return Ok(()),
                Err(error) => match error.loss::<P>() {
                    Some(again) => loss = again.clone(),
                    None => return Err(error),
                },
            }
        }
        Err(loss.into())
    }

    fn settle(&mut self, place: Place<P>) -> Result<(), OpenError> {
        let engine = place.life.engine(&place.open, self.access)?;
        self.past_counters += P::counters(&self.engine);
        self.past_meters += P::meters(&self.place.links);
        self.engine = engine;
        self.place = place;
        Ok(())
    }
}

impl<P: Peers> Table<P> {
    #[cold]
    fn write_error(&self, operation: WriteOperation, entries: usize, source: EngineError) -> WriteError {
        let table = self.name().to_owned();
        if let EngineError::ValueSize { index, expected, got } = source {
            return WriteError::WrongValueSize { table, index, expected_bytes: expected, got_bytes: got };
        }
        let is_indeterminate = source.is_indeterminate();
        let source = Box::new(source);
        if is_indeterminate {
            return WriteError::Indeterminate { table, operation, entries, source };
        }
        WriteError::Engine { table, source }
    }
}

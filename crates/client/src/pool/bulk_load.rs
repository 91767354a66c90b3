//! A load of ascending pairs into a pool's table: inserts, many at a time.
//!
//! Invariant: no processor stands between a pool's writers and its readers, so the pairs are visible as they
//! are written. What was written stays if the load ends early; a load that meets a key that is there already
//! ends.

use farsight_fabric::Connection;
use farsight_protocol::{ErrorCode, ServerError, WriteOperation, WriteOutcome};

use super::{Nodes, PoolTrainer};
use crate::bulk_load::Sequence;
use crate::session::Session;
use crate::{EngineError, LoadError, WriteError};

/// Pairs that are written together.
const BATCH: usize = 1024;
/// Groups of one step of training.
const TRAIN_BUDGET: usize = 256;
/// Steps of the last training at most.
const TRAIN_STEPS_MAX: usize = 1024;

/// A load under way.
pub struct PoolBulkLoad<C: Connection + 'static> {
    session: Session<Nodes<C>>,
    trainer: PoolTrainer<C::Queue>,
    sequence: Sequence,
    keys: Vec<u64>,
    values: Vec<u8>,
    outcomes: Vec<WriteOutcome>,
    written: u64,
}

impl<C: Connection + 'static> PoolBulkLoad<C> {
    pub(crate) fn new(session: Session<Nodes<C>>, trainer: PoolTrainer<C::Queue>) -> Self {
        let (keys, values, outcomes) = (Vec::new(), Vec::new(), Vec::new());
        Self { session, trainer, sequence: Sequence::default(), keys, values, outcomes, written: 0 }
    }

    /// Adds a pair, whose key must be greater than that of the pair before.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn push(&mut self, key: u64, value: &[u8]) -> Result<(), LoadError> {
        let table = self.session.table();
        self.sequence.next(table.name(), table.value_bytes(), key, value)?;
        self.keys.push(key);
        self.values.extend_from_slice(value);
        if self.keys.len() == BATCH { self.send() } else { Ok(()) }
    }

    /// Writes what is left, and trains. Returns the number of pairs.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn finish(mut self) -> Result<u64, LoadError> {
        self.send()?;
        // The pairs are there, trained or not: a failure is another trainer's to make good.
        let _ = self.trainer.catch_up(TRAIN_STEPS_MAX, TRAIN_BUDGET);
        Ok(self.written)
    }

    fn send(&mut self) -> Result<(), LoadError> {
        let values = self.values.chunks_exact(self.session.table().value_bytes());
        let entries = self.keys.iter().copied().zip(values);
        let done = self.session.write(WriteOperation::Insert, entries, &mut self.outcomes);
        let name = || self.session.table().name().to_owned();
        done.map_err(|error| self.failed(error))?;
        for (outcome, key) in self.outcomes.iter().zip(&self.keys) {
            let refused = match outcome {
                WriteOutcome::Inserted(_) => continue,
                WriteOutcome::Failed(code) => ServerError::new(*code, format!("key {key} was not taken")),
                _ => {
                    ServerError::new(ErrorCode::BadLoad, format!("the table is not empty: it has key {key}"))
                }
            };
            return Err(LoadError::Refused { table: name(), source: refused });
        }
        self.written += self.keys.len() as u64;
        // All pairs come at the table's end, to leaves that no model knows: the way there must stay short.
        // A failure is made good as in `finish`.
        let _ = self.trainer.step(TRAIN_BUDGET);
        self.keys.clear();
        self.values.clear();
        Ok(())
    }

    fn failed(&self, error: WriteError) -> LoadError {
        let table = self.session.table().name().to_owned();
        match error {
            WriteError::Engine { source, .. } | WriteError::Indeterminate { source, .. }
                if matches!(*source, EngineError::Fabric(_)) =>
            {
                let EngineError::Fabric(source) = *source else { unreachable!("just seen") };
                LoadError::Fabric { table, pairs: self.written, source }
            }
            source => LoadError::Write { table, pairs: self.written, source: Box::new(source) },
        }
    }
}

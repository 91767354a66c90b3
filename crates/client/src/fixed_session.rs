//! A session of a process that writes for others.
//!
//! Invariant: it works in one table, by number, and in one epoch of its nodes. It follows no name: a request
//! that names a table must not end in another one. And it executes each write itself, so that two such
//! processes never wait for each other.

use std::sync::Arc;

use farsight_base::clock::Deadline;
use farsight_index::{Answers, EngineError, Key, MixedWrites, OldValues};
use farsight_protocol::{SentAddress, TableId, WriteOutcome};

use crate::Origin;
use crate::attached::Operations;
use crate::backend::Backend;
#[cfg(injected)]
use crate::injected;
use crate::reconnect::OfFabric as _;

/// Queue pairs and an engine over them, for one thread.
pub struct FixedSession {
    table: TableId,
    engine: Box<dyn Operations>,
    backend: Arc<dyn Backend>,
}

impl FixedSession {
    pub(crate) fn new(
        info: &farsight_protocol::TableInfo,
        engine: Box<dyn Operations>,
        backend: Arc<dyn Backend>,
    ) -> Self {
        Self { table: info.id, engine, backend }
    }

    /// Where it writes, for as long as it lives.
    #[must_use]
    pub fn origin(&self) -> Origin {
        Origin { epoch: self.backend.epoch(), table: self.table }
    }

    /// True if it writes there. In another epoch the number is another table's.
    #[must_use]
    pub fn is_of(&self, origin: Origin) -> bool {
        #[cfg(injected)]
        if injected::OTHER_EPOCH_SERVED.is_injected() {
            return self.table == origin.table;
        }
        self.origin() == origin
    }

    /// Executes writes, in their order for each key, and appends what became of each to `outcomes`, and the
    /// value before to `old_values`. What a write changes it has to find out in time: it changes nothing that
    /// came later.
    ///
    /// # Errors
    /// [`EngineError`]; it says whether some may have been executed.
    pub fn write_until(
        &mut self,
        until: Deadline,
        writes: MixedWrites<'_>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), EngineError> {
        // Before anything is sent: what is lost is not in doubt.
        self.engine.check()?;
        self.engine.write_for_others(until, writes, outcomes, old_values)
    }

    /// Where keys stand, appended to `found`.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn locate(&mut self, keys: &[Key<'_>], found: &mut Vec<SentAddress>) -> Result<(), EngineError> {
        self.engine.check()?;
        self.engine.locate(keys, found)
    }

    /// The values of keys, which are all of the table's kind, into `answers`.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn read(&mut self, keys: &[Key<'_>], answers: &mut Answers) -> Result<(), EngineError> {
        self.engine.check()?;
        // It follows no name, so it does not matter what those lead to.
        let knows = u64::MAX;
        let integer = |key: &Key<'_>| match key {
            Key::Integer(bytes) => Some(u64::from_le_bytes(*bytes)),
            Key::Bytes(_) => None,
        };
        if let Some(integers) = keys.iter().map(integer).collect::<Option<Vec<u64>>>() {
            return self.engine.multi_get(knows, &integers, answers).map(drop);
        }
        let keys: Vec<&[u8]> = keys.iter().map(Key::as_bytes).collect();
        self.engine.multi_get_byte_keys(knows, &keys, answers).map(drop)
    }

    /// True if a session that is made anew may do better, after this error.
    #[must_use]
    pub fn is_lost(&self, error: &EngineError) -> bool {
        error.is_indeterminate() || error.loss(&*self.backend).is_some() || error.is_of_dropped_table()
    }
}

//! FlexKV as the engine of a client's session.

use std::sync::Arc;

use farsight_base::clock::Deadline;
use farsight_fabric::QueuePair;
use farsight_index::{
    Answers, Counters, Engine, EngineError, EnumeratedPage, Key, MixedWrites, NoByteKeys, OldValues,
    Undecided, Writes, gather,
};
use farsight_protocol::{ErrorCode, SentAddress, WriteOutcome};

use crate::session::Written;
use crate::{FlexError, FlexSession};

/// One session's engine, with buffers that are reused.
pub struct FlexEngine {
    session: FlexSession,
    answers: Answers,
    done: Vec<Written>,
}

/// Keys that are integers, where they are bytes of any length.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the keys of this table are bytes of any length, not integers")]
struct ByteKeys;

impl From<ByteKeys> for EngineError {
    fn from(error: ByteKeys) -> Self {
        Self::Engine(Arc::new(error))
    }
}

impl From<FlexError> for EngineError {
    fn from(error: FlexError) -> Self {
        match error {
            FlexError::Fabric(error) => Self::Fabric(error),
            error @ FlexError::Indeterminate { .. } => Self::Indeterminate(Arc::new(error)),
            error => Self::Engine(Arc::new(error)),
        }
    }
}

impl FlexEngine {
    /// An engine over a session of its own.
    #[must_use]
    pub fn new(session: FlexSession) -> Self {
        Self { session, answers: Answers::default(), done: Vec::new() }
    }

    /// Refuses keys that are not of the table's kind.
    fn check_kind(&self, are_bytes: bool) -> Result<(), EngineError> {
        match self.session.table.has_byte_keys() {
            has_byte_keys if has_byte_keys == are_bytes => Ok(()),
            true => Err(ByteKeys.into()),
            false => Err(NoByteKeys.into()),
        }
    }

    fn write_keys<'k, Q: QueuePair, K: Copy + Into<Key<'k>>>(
        &mut self,
        queues: &mut [Q],
        writes: Writes<'_, K>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), EngineError> {
        let Writes { operation, keys, values, bounds } = writes;
        let keys: Vec<Key<'_>> = keys.iter().map(|key| (*key).into()).collect();
        let writes = Writes { operation, keys: &keys, values, bounds };
        let (known_before, old_before) = (outcomes.len(), old_values.len());
        self.session.write_many(queues, writes, &mut self.done, old_values);
        let gathered = gather(self.done.drain(..).map(or_refused), code_of, outcomes);
        if writes.operation.returns_value() {
            old_values.truncate(old_before + outcomes.len() - known_before);
        }
        gathered
    }
}

impl<Q: QueuePair> Engine<Q> for FlexEngine {
    fn get(&mut self, queues: &mut [Q], key: u64, value: &mut [u8]) -> Result<Option<u64>, EngineError> {
        self.check_kind(false)?;
        self.session.multi_get(queues, &[key.into()], &mut self.answers)?;
        Ok(self.answers.get(0).map(|(found, version)| {
            value.copy_from_slice(found);
            version
        }))
    }

    fn multi_get(
        &mut self,
        queues: &mut [Q],
        keys: &[u64],
        answers: &mut Answers,
    ) -> Result<(), EngineError> {
        self.check_kind(false)?;
        let keys: Vec<Key<'_>> = keys.iter().map(|key| (*key).into()).collect();
        Ok(self.session.multi_get(queues, &keys, answers)?)
    }

    fn write(
        &mut self,
        queues: &mut [Q],
        writes: Writes<'_>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), EngineError> {
        self.check_kind(false)?;
        self.write_keys(queues, writes, outcomes, old_values)
    }

    fn multi_get_byte_keys(
        &mut self,
        queues: &mut [Q],
        keys: &[&[u8]],
        answers: &mut Answers,
    ) -> Result<(), EngineError> {
        self.check_kind(true)?;
        let keys: Vec<Key<'_>> = keys.iter().map(|key| (*key).into()).collect();
        Ok(self.session.multi_get(queues, &keys, answers)?)
    }

    fn write_byte_keys(
        &mut self,
        queues: &mut [Q],
        writes: Writes<'_, &[u8]>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), EngineError> {
        self.check_kind(true)?;
        self.write_keys(queues, writes, outcomes, old_values)
    }

    fn prefill(&mut self, _: &mut [Q]) -> Result<(), EngineError> {
        // Addresses are learned with the keys that are used.
        Ok(())
    }

    fn counters(&self) -> Counters {
        self.session.counters()
    }

    fn locate(
        &mut self,
        queues: &mut [Q],
        keys: &[Key<'_>],
        found: &mut Vec<SentAddress>,
    ) -> Result<(), EngineError> {
        Ok(self.session.locate(queues, keys, found)?)
    }

    fn write_for_others(
        &mut self,
        queues: &mut [Q],
        until: Deadline,
        writes: MixedWrites<'_>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), EngineError> {
        let are_bytes = self.session.table.has_byte_keys();
        if writes.keys.iter().any(|key| matches!(key, Key::Bytes(_)) != are_bytes) {
            self.check_kind(!are_bytes)?;
        }
        self.session.until.replace(Some(until));
        let (known_before, old_before) = (outcomes.len(), old_values.len());
        self.session.write_for_others(queues, writes, &mut self.done, old_values);
        let gathered = gather(self.done.drain(..).map(or_refused), code_of, outcomes);
        old_values.truncate(old_before + outcomes.len() - known_before);
        gathered
    }

    fn enumerate(
        &mut self,
        queues: &mut [Q],
        at: &[u64],
        page: &mut EnumeratedPage,
    ) -> Result<(), EngineError> {
        Ok(self.session.enumerate(queues, at, page)?)
    }
}

/// A write that its value or its operand rules out has an outcome, as where nodes execute it.
fn or_refused(done: Written) -> Written {
    match done {
        Err(FlexError::Undecided { source: Undecided::NotInteger { .. }, .. }) => {
            Ok(WriteOutcome::Failed(ErrorCode::NotInteger))
        }
        Err(FlexError::Operand { .. }) => Ok(WriteOutcome::Failed(ErrorCode::WrongValueSize)),
        done => done,
    }
}

/// The code by which a write's failure that changed nothing is an outcome beside others.
fn code_of(error: &EngineError) -> ErrorCode {
    match error.of().map(FlexError::failed_in) {
        Some(FlexError::Contended { .. } | FlexError::Late { .. }) => ErrorCode::Contended,
        Some(FlexError::Full { .. } | FlexError::Deepest { .. }) => ErrorCode::RegionFull,
        Some(FlexError::Damaged { .. } | FlexError::Directory { .. }) => ErrorCode::Damaged,
        _ if error.is_of_dropped_table() => ErrorCode::UnknownTable,
        _ => error.refusal().unwrap_or(ErrorCode::OutOfResources),
    }
}

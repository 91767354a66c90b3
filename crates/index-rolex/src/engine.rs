//! ROLEX as the engine of a client's session.
//!
//! Invariant: an operation that broke off, perhaps under a lock, gives its compute node up before its caller
//! hears of it.

use std::sync::Arc;

use farsight_fabric::QueuePair;
use farsight_index::{
    Answers, Counters, Direction, Engine, EngineError, Extent, OldValues, Ordered, Pairs, ScanRequest,
    Writes, clear_kept, gather,
};
use farsight_protocol::{ErrorCode, WriteOutcome};

#[cfg(injected)]
use crate::injected;
use crate::{LearnedError, RolexError, RolexSession};

/// One session's engine, with buffers that are reused.
pub struct RolexEngine {
    session: RolexSession,
    answers: Answers,
    done: Vec<Result<WriteOutcome, RolexError>>,
}

impl From<RolexError> for EngineError {
    fn from(error: RolexError) -> Self {
        match error {
            RolexError::Fabric(error) | RolexError::Learned(LearnedError::Fabric(error)) => {
                Self::Fabric(error)
            }
            error @ RolexError::Indeterminate { .. } => Self::Indeterminate(Arc::new(error)),
            error => Self::Engine(Arc::new(error)),
        }
    }
}

impl RolexEngine {
    /// An engine over a session of its own.
    #[must_use]
    pub fn new(session: RolexSession) -> Self {
        Self { session, answers: Answers::default(), done: Vec::new() }
    }

    /// Gives the compute node up if `error` broke an operation off: a lock may be left behind that only
    /// another compute node takes over.
    fn note(&self, error: &RolexError) {
        let broke_off = matches!(
            error,
            RolexError::Fabric(_)
                | RolexError::Indeterminate { .. }
                | RolexError::Learned(LearnedError::Fabric(_))
        );
        #[cfg(injected)]
        let broke_off = broke_off && !injected::NOT_POISONED.is_injected();
        if broke_off {
            self.session.calls.give_up();
        }
    }

    fn noted<T>(&self, done: Result<T, RolexError>) -> Result<T, EngineError> {
        Ok(done.inspect_err(|error| self.note(error))?)
    }
}

impl<Q: QueuePair> Engine<Q> for RolexEngine {
    fn get(&mut self, queues: &mut [Q], key: u64, value: &mut [u8]) -> Result<Option<u64>, EngineError> {
        let got = self.session.multi_get(queues, &[key], &mut self.answers);
        self.noted(got)?;
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
        self.noted(self.session.multi_get(queues, keys, answers))
    }

    fn write(
        &mut self,
        queues: &mut [Q],
        writes: Writes<'_>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), EngineError> {
        #[cfg(injected)]
        let old = self.old_value(queues, writes)?;
        #[cfg(injected)]
        let writes = Writes { values: old.as_deref().unwrap_or(writes.values), ..writes };
        let (known_before, old_before) = (outcomes.len(), old_values.len());
        self.session.write_many(queues, writes, &mut self.done, old_values);
        self.done.iter().filter_map(|done| done.as_ref().err()).for_each(|error| self.note(error));
        let gathered = gather(self.done.drain(..), code_of, outcomes);
        clear_kept(&mut self.done);
        if writes.operation.returns_value() {
            old_values.truncate(old_before + outcomes.len() - known_before);
        }
        gathered
    }

    fn prefill(&mut self, queues: &mut [Q]) -> Result<(), EngineError> {
        self.noted(self.session.prefill(queues))
    }

    fn counters(&self) -> Counters {
        self.session.counters()
    }
}

impl<Q: QueuePair> Ordered<Q> for RolexEngine {
    fn scan_batch(
        &mut self,
        queues: &mut [Q],
        direction: Direction,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), EngineError> {
        self.noted(self.session.scan_batch(queues, (direction, Extent::Pairs), scans, pairs))
    }

    fn scan_keys(
        &mut self,
        queues: &mut [Q],
        direction: Direction,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), EngineError> {
        self.noted(self.session.scan_batch(queues, (direction, Extent::Keys), scans, pairs))
    }
}

#[cfg(injected)]
impl RolexEngine {
    /// What the key of a lone update holds, if that is to be what it holds afterwards.
    fn old_value<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        writes: Writes<'_>,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        let Writes { operation: farsight_protocol::WriteOperation::Update, keys: &[key], values, .. } =
            writes
        else {
            return Ok(None);
        };
        if !injected::LONE_UPDATE_LOST.is_injected() {
            return Ok(None);
        }
        let mut old = vec![0; values.len()];
        let found = self.get(queues, key, &mut old)?;
        Ok(found.map(|_| old))
    }
}

/// The code by which a write's failure that changed nothing is an outcome beside others.
fn code_of(error: &EngineError) -> ErrorCode {
    match error.of() {
        Some(RolexError::Contended { .. }) => ErrorCode::Contended,
        _ if error.is_of_dropped_table() => ErrorCode::UnknownTable,
        _ => ErrorCode::OutOfResources,
    }
}

#[cfg(test)]
mod tests {
    use farsight_fabric::FabricError;

    use super::*;

    const DONE: WriteOutcome = WriteOutcome::Inserted(7);

    /// No descriptors are left to ask a memory node for leaves.
    fn refused() -> Result<WriteOutcome, RolexError> {
        let [what, source_text, remedy] =
            ["opening a queue", "none left", "raise the limit"].map(str::to_owned);
        Err(FabricError::System { what, source_text, remedy }.into())
    }

    fn unknown(key: u64) -> Result<WriteOutcome, RolexError> {
        let source = FabricError::Disconnected { peer: "p".to_owned(), reason: "it died".to_owned() };
        Err(RolexError::Indeterminate { key, source })
    }

    fn gathered(done: Vec<Result<WriteOutcome, RolexError>>) -> (Vec<WriteOutcome>, Option<EngineError>) {
        let mut outcomes = vec![DONE];
        let error = gather(done.into_iter(), code_of, &mut outcomes).err();
        assert_eq!(outcomes.remove(0), DONE, "what was there stays");
        (outcomes, error)
    }

    #[test]
    fn a_write_that_changed_nothing_hides_no_other_one() {
        let failed = WriteOutcome::Failed(ErrorCode::OutOfResources);
        let (outcomes, error) = gathered(vec![refused(), Ok(DONE)]);
        assert_eq!(outcomes, [failed, DONE]);
        assert!(error.is_none(), "{error:?}");
        // The outcome of one is unknown: the error must not say that nothing was executed.
        let (outcomes, error) = gathered(vec![refused(), unknown(2), Ok(DONE)]);
        assert_eq!(outcomes, [failed]);
        assert!(error.is_some_and(|error| error.is_indeterminate()));
    }

    #[test]
    fn a_call_of_which_nothing_was_done_has_its_reason() {
        for count in [1, 3] {
            let (outcomes, error) = gathered((0..count).map(|_| refused()).collect());
            assert_eq!(outcomes, []);
            assert!(matches!(error, Some(EngineError::Fabric(FabricError::System { .. }))), "{error:?}");
        }
    }
}

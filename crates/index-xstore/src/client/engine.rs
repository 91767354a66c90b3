//! XStore and XStore-D as engines of sessions: a server is one part, without a boundary.

use std::sync::Arc;

use farsight_fabric::QueuePair;
use farsight_index::{
    Answers, Counters, Direction, Engine, EngineError, OldValues, Ordered, Pairs, ScanRequest, Unfinished,
    Writes,
};
use farsight_protocol::WriteOutcome;

use super::{XParts, XStoreError};

impl From<XStoreError> for EngineError {
    fn from(error: XStoreError) -> Self {
        match error {
            XStoreError::Fabric(error) => Self::Fabric(error),
            error if error.is_indeterminate() => Self::Indeterminate(Arc::new(error)),
            error => Self::Engine(Arc::new(error)),
        }
    }
}

impl<Q: QueuePair> Engine<Q> for XParts {
    #[inline(always)]
    fn get(&mut self, queues: &mut [Q], key: u64, value: &mut [u8]) -> Result<Option<u64>, EngineError> {
        Ok(XParts::get(self, queues, key, value)?)
    }

    fn multi_get(
        &mut self,
        queues: &mut [Q],
        keys: &[u64],
        answers: &mut Answers,
    ) -> Result<(), EngineError> {
        Ok(XParts::multi_get(self, queues, keys, answers)?)
    }

    fn write(
        &mut self,
        queues: &mut [Q],
        writes: Writes<'_>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), EngineError> {
        Ok(XParts::write(self, queues, writes, outcomes, old_values)?)
    }

    fn take_unfinished(&mut self) -> Option<Unfinished> {
        XParts::take_unfinished(self)
    }

    fn resume(&mut self, unfinished: Unfinished) {
        XParts::resume(self, unfinished);
    }

    fn prefill(&mut self, queues: &mut [Q]) -> Result<(), EngineError> {
        Ok(XParts::prefill(self, queues)?)
    }

    fn counters(&self) -> Counters {
        XParts::counters(self)
    }
}

impl<Q: QueuePair> Ordered<Q> for XParts {
    fn scan_batch(
        &mut self,
        queues: &mut [Q],
        direction: Direction,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), EngineError> {
        Ok(XParts::scan_batch(self, queues, direction, scans, pairs)?)
    }

    fn scan_keys(
        &mut self,
        queues: &mut [Q],
        direction: Direction,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), EngineError> {
        Ok(XParts::scan_keys(self, queues, direction, scans, pairs)?)
    }
}

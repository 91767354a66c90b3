//! An engine that keeps no order, where sessions expect one that does: its scans are refused.

use std::sync::Arc;

use farsight_base::clock::Deadline;
use farsight_fabric::QueuePair;
use farsight_index::{
    Answers, Counters, Direction, Engine, EngineError, EngineKind, EnumeratedPage, Key, MixedWrites,
    OldValues, Ordered, Pairs, ScanRequest, Writes,
};
use farsight_protocol::{SentAddress, WriteOutcome};

/// The engine, and what it is called.
pub(super) struct Unordered<E> {
    pub(super) engine: E,
    pub(super) kind: &'static EngineKind,
}

/// A scan, or a neighbour of a key, of a table whose keys have no order.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{engine} keeps no order, so it has no scans and no neighbours of keys: use {}", able())]
pub struct NoOrder {
    /// The engine.
    engine: &'static EngineKind,
}

/// Engines that keep one.
fn able() -> String {
    let able = EngineKind::all().into_iter().filter(|kind| kind.is_ordered).map(|kind| kind.name);
    able.collect::<Vec<_>>().join(" or ")
}

impl<Q: QueuePair, E: Engine<Q>> Engine<Q> for Unordered<E> {
    fn get(&mut self, queues: &mut [Q], key: u64, value: &mut [u8]) -> Result<Option<u64>, EngineError> {
        self.engine.get(queues, key, value)
    }

    fn multi_get(
        &mut self,
        queues: &mut [Q],
        keys: &[u64],
        answers: &mut Answers,
    ) -> Result<(), EngineError> {
        self.engine.multi_get(queues, keys, answers)
    }

    fn write(
        &mut self,
        queues: &mut [Q],
        writes: Writes<'_>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), EngineError> {
        self.engine.write(queues, writes, outcomes, old_values)
    }

    fn multi_get_byte_keys(
        &mut self,
        queues: &mut [Q],
        keys: &[&[u8]],
        answers: &mut Answers,
    ) -> Result<(), EngineError> {
        self.engine.multi_get_byte_keys(queues, keys, answers)
    }

    fn write_byte_keys(
        &mut self,
        queues: &mut [Q],
        writes: Writes<'_, &[u8]>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), EngineError> {
        self.engine.write_byte_keys(queues, writes, outcomes, old_values)
    }

    fn prefill(&mut self, queues: &mut [Q]) -> Result<(), EngineError> {
        self.engine.prefill(queues)
    }

    fn counters(&self) -> Counters {
        self.engine.counters()
    }

    fn locate(
        &mut self,
        queues: &mut [Q],
        keys: &[Key<'_>],
        found: &mut Vec<SentAddress>,
    ) -> Result<(), EngineError> {
        self.engine.locate(queues, keys, found)
    }

    fn write_for_others(
        &mut self,
        queues: &mut [Q],
        until: Deadline,
        writes: MixedWrites<'_>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), EngineError> {
        self.engine.write_for_others(queues, until, writes, outcomes, old_values)
    }

    fn enumerate(
        &mut self,
        queues: &mut [Q],
        at: &[u64],
        page: &mut EnumeratedPage,
    ) -> Result<(), EngineError> {
        self.engine.enumerate(queues, at, page)
    }
}

impl<Q: QueuePair, E: Engine<Q>> Ordered<Q> for Unordered<E> {
    fn scan_batch(
        &mut self,
        _: &mut [Q],
        _: Direction,
        _: &[ScanRequest],
        _: &mut Pairs,
    ) -> Result<(), EngineError> {
        Err(EngineError::Engine(Arc::new(NoOrder { engine: self.kind })))
    }
}

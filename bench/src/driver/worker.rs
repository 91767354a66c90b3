//! One client thread: takes batches from its stream, executes them and takes the time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight::{Counters, Meters, Options, Session, Table};

use super::executor::{Executor, WrongAnswers};
use super::{Cancellation, DriverError, Values};
use crate::histogram::LatencyHistogram;
use crate::machine::thread_cpu_time;
use crate::workload::{KeySpace, Operation, OperationStream, WorkloadError};

/// A thread's session with all that a batch needs, kept from batch to batch so that none allocates.
pub(super) struct Worker {
    stream: OperationStream,
    batch: Vec<Operation>,
    batch_size: usize,
    executor: Executor<Session<u64>>,
}

/// What a thread did in one phase.
pub(super) struct Phase {
    pub(super) operations: u64,
    pub(super) elapsed: Duration,
    pub(super) cpu: Duration,
    pub(super) latencies: LatencyHistogram,
    pub(super) meters: Meters,
    pub(super) fallbacks: u64,
    /// GETs and scans.
    pub(super) reading: u64,
    /// READs that these would not have needed on a fresh cache.
    pub(super) extra_reads: u64,
    /// Whether it ended for want of keys to insert.
    pub(super) is_exhausted: bool,
}

impl Worker {
    /// A worker with a session of its own.
    pub(super) fn new(
        (table, values): (&Table<u64>, Values),
        options: Options,
        stream: OperationStream,
        space: Arc<KeySpace>,
        batch_size: usize,
    ) -> Result<Self, DriverError> {
        let executor = Executor::new(table.session(options)?, table.name(), values, space);
        Ok(Self { stream, batch: Vec::with_capacity(batch_size), batch_size, executor })
    }

    /// Executes batches for this long, or until the keys to insert or the driver come to their end.
    pub(super) fn run(
        &mut self,
        duration: Duration,
        cancellation: &Cancellation,
    ) -> Result<Phase, DriverError> {
        let (meters, counters) = (self.executor.session().meters(), self.executor.session().counters());
        let mut latencies = LatencyHistogram::new();
        let mut is_exhausted = false;
        let cpu = thread_cpu_time();
        let begun = Instant::now();
        let mut now = begun;
        while !is_exhausted && now - begun < duration && !cancellation.is_cancelled() {
            match self.stream.fill(&mut self.batch, self.batch_size) {
                Err(WorkloadError::InsertKeysExhausted { .. }) => is_exhausted = true,
                done => done?,
            }
            self.executor.execute(&self.batch)?;
            let end = Instant::now();
            latencies.record(end - now, self.batch.len() as u64);
            now = end;
        }
        let after = self.executor.session().counters();
        let since = |of: fn(&Counters) -> u64| of(&after) - of(&counters);
        Ok(Phase {
            operations: latencies.operations(),
            elapsed: now - begun,
            cpu: thread_cpu_time().saturating_sub(cpu),
            latencies,
            meters: self.executor.session().meters() - meters,
            fallbacks: since(|counters| counters.fallbacks),
            reading: since(|counters| counters.gets + counters.scans),
            extra_reads: since(|counters| counters.sibling_steps + counters.retries),
            is_exhausted,
        })
    }

    /// Keys inserted in all phases.
    pub(super) fn inserted(&self) -> u64 {
        self.stream.inserted().len() as u64
    }

    /// Wrong answers of all phases.
    pub(super) fn wrong_answers(&self) -> &WrongAnswers {
        self.executor.wrong_answers()
    }
}

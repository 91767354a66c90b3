//! One client thread of a simulated testbed: a process of the simulation.

use std::ops::Range;
use std::time::Duration;

use farsight::Meters;
use farsight_fabric_sim::Simulation;

use super::session::PricedSession;
use crate::driver::DriverError;
use crate::driver::executor::{Executor, WrongAnswers};
use crate::histogram::LatencyHistogram;
use crate::workload::OperationStream;

pub(super) struct Thread {
    pub(super) simulation: Simulation,
    pub(super) executor: Executor<PricedSession>,
    pub(super) stream: OperationStream,
    /// Operations of a batch.
    pub(super) batch: usize,
    pub(super) begins_after: Duration,
    /// Batches that end then count.
    pub(super) window_ns: Range<u64>,
}

/// What a thread did within the window.
pub(super) struct ThreadEnd {
    pub(super) latencies: LatencyHistogram,
    pub(super) meters: Meters,
    pub(super) fallbacks: u64,
    pub(super) wrong: WrongAnswers,
}

impl Thread {
    pub(super) fn run(&mut self) -> Result<ThreadEnd, DriverError> {
        self.simulation.sleep(self.begins_after);
        let mut batch = Vec::with_capacity(self.batch);
        let (mut latencies, mut meters, mut fallbacks) = (LatencyHistogram::new(), Meters::default(), 0);
        let mut now = self.simulation.now();
        while now.0 < self.window_ns.end {
            self.stream.fill(&mut batch, self.batch)?;
            let (meters_before, fallbacks_before) = self.counts();
            self.executor.execute(&batch)?;
            self.simulation.catch_up();
            let end = self.simulation.now();
            if self.window_ns.contains(&end.0) {
                let (meters_now, fallbacks_now) = self.counts();
                latencies.record(end.since(now), batch.len() as u64);
                meters += meters_now - meters_before;
                fallbacks += fallbacks_now - fallbacks_before;
            }
            now = end;
        }
        let wrong = std::mem::take(self.executor.wrong_answers_mut());
        Ok(ThreadEnd { latencies, meters, fallbacks, wrong })
    }

    fn counts(&self) -> (Meters, u64) {
        (self.executor.session().meters(), self.executor.session().fallbacks())
    }
}

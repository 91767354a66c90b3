//! One client thread of a simulated testbed: a process of the simulation.

use std::ops::Range;
use std::time::Duration;

use farsight::Meters;
use farsight_fabric_sim::Simulation;
use farsight_index::Counters;

use super::session::PricedSession;
use crate::driver::DriverError;
use crate::driver::executor::{Executor, WrongAnswers};
use crate::histogram::LatencyHistogram;
use crate::workload::{Operation, OperationStream};

pub(super) struct Thread {
    pub(super) simulation: Simulation,
    pub(super) executor: Executor<PricedSession>,
    /// What it runs one after the other, and until when.
    pub(super) phases: Vec<(u64, OperationStream)>,
    /// Operations of a batch.
    pub(super) batch: usize,
    pub(super) begins_after: Duration,
    /// Batches that end then count.
    pub(super) window_ns: Range<u64>,
    /// They are counted in samples of so long.
    pub(super) sample_ns: u64,
}

/// What a thread did within the window.
pub(super) struct ThreadEnd {
    pub(super) latencies: LatencyHistogram,
    /// Operations by sample.
    pub(super) samples: Vec<u64>,
    pub(super) meters: Meters,
    pub(super) counted: Counted,
    /// Reads that came alone, by what answered them.
    pub(super) reads: ReadsByHit,
    pub(super) wrong: WrongAnswers,
}

/// What a session counted.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Counted {
    pub(super) gets: u64,
    pub(super) fallbacks: u64,
    pub(super) address_hits: u64,
    pub(super) value_hits: u64,
    pub(super) calls_to_others: u64,
}

/// How many reads, and how long they took, by what answered them: a kept value, an address that was
/// remembered, or neither.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct ReadsByHit {
    pub(super) counts: [u64; 3],
    pub(super) spent_ns: [u64; 3],
}

impl Counted {
    fn of(counters: Counters) -> Self {
        let Counters { gets, fallbacks, address_hits, value_hits, calls_to_others, .. } = counters;
        Self { gets, fallbacks, address_hits, value_hits, calls_to_others }
    }

    fn since(self, before: Self) -> Self {
        Self {
            gets: self.gets - before.gets,
            fallbacks: self.fallbacks - before.fallbacks,
            address_hits: self.address_hits - before.address_hits,
            value_hits: self.value_hits - before.value_hits,
            calls_to_others: self.calls_to_others - before.calls_to_others,
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.gets += other.gets;
        self.fallbacks += other.fallbacks;
        self.address_hits += other.address_hits;
        self.value_hits += other.value_hits;
        self.calls_to_others += other.calls_to_others;
    }
}

impl ReadsByHit {
    /// Notes a batch, if it is one read. It took so long, and its session counted this.
    fn note(&mut self, batch: &[Operation], elapsed: Duration, counted: Counted) {
        if !matches!(batch, [Operation::Read { .. }]) {
            return;
        }
        let by = match counted {
            Counted { value_hits: 1.., .. } => 0,
            Counted { address_hits: 1.., .. } => 1,
            _ => 2,
        };
        self.counts[by] += 1;
        self.spent_ns[by] += elapsed.as_nanos() as u64;
    }

    pub(super) fn add(&mut self, other: Self) {
        for (own, count) in self.counts.iter_mut().zip(other.counts) {
            *own += count;
        }
        for (own, spent_ns) in self.spent_ns.iter_mut().zip(other.spent_ns) {
            *own += spent_ns;
        }
    }
}

impl Thread {
    pub(super) fn run(&mut self) -> Result<ThreadEnd, DriverError> {
        self.simulation.sleep(self.begins_after);
        let mut batch = Vec::with_capacity(self.batch);
        let samples = (self.window_ns.end - self.window_ns.start).div_ceil(self.sample_ns);
        let mut end = ThreadEnd {
            latencies: LatencyHistogram::new(),
            samples: vec![0; samples as usize],
            meters: Meters::default(),
            counted: Counted::default(),
            reads: ReadsByHit::default(),
            wrong: WrongAnswers::default(),
        };
        let mut now = self.simulation.now();
        while let Some(phase) = self.phases.iter().position(|(until, _)| now.0 < *until) {
            self.phases[phase].1.fill(&mut batch, self.batch)?;
            let (meters_before, counted_before) = self.counts();
            self.executor.execute(&batch)?;
            self.simulation.catch_up();
            let ended = self.simulation.now();
            if self.window_ns.contains(&ended.0) {
                let (meters, counted) = self.counts();
                let counted = counted.since(counted_before);
                end.latencies.record(ended.since(now), batch.len() as u64);
                let sample = (ended.0 - self.window_ns.start) / self.sample_ns;
                end.samples[sample as usize] += batch.len() as u64;
                end.meters += meters - meters_before;
                end.counted.add(counted);
                end.reads.note(&batch, ended.since(now), counted);
            }
            now = ended;
        }
        end.wrong = std::mem::take(self.executor.wrong_answers_mut());
        Ok(end)
    }

    fn counts(&self) -> (Meters, Counted) {
        let session = self.executor.session();
        (session.meters(), Counted::of(session.counters()))
    }
}

#[cfg(test)]
mod tests {
    use farsight_oracles::Identity;

    use super::*;

    #[test]
    fn reads_that_come_alone_are_told_apart_by_what_answered() {
        let (read, update) = (Operation::Read { key: Identity(1) }, Operation::Update { key: Identity(1) });
        let by_value = Counted { gets: 1, value_hits: 1, ..Counted::default() };
        let by_address = Counted { gets: 1, address_hits: 1, ..Counted::default() };
        let by_neither = Counted { gets: 1, ..Counted::default() };
        let mut reads = ReadsByHit::default();
        let us = Duration::from_micros;
        reads.note(&[read], us(1), by_value);
        reads.note(&[read], us(10), by_address);
        reads.note(&[read], us(20), by_address);
        reads.note(&[read], us(50), by_neither);
        reads.note(&[update], us(7), by_address);
        reads.note(&[read, read], us(7), by_value);
        let expected = ReadsByHit { counts: [1, 2, 1], spent_ns: [1_000, 30_000, 50_000] };
        assert_eq!(reads, expected);
        let mut sum = expected;
        sum.add(reads);
        assert_eq!((sum.counts, sum.spent_ns), ([2, 4, 2], [2_000, 60_000, 100_000]));
    }
}

//! One run of one workload, over all its threads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight::{Access, Meters};

use super::executor::check_answers;
use super::load::Load;
use super::worker::{Phase, Worker};
use super::{Cancellation, DriverError, Placement, Plan};
use crate::histogram::LatencyHistogram;
use crate::limits::{LimitArrays, Limits};
use crate::report::Measured;
use crate::workload::{Distribution, KeySpace, OperationStream, SLOTS_DEFAULT, Workload, WorkloadError};

/// Slots of a ring a second of run: below a few seconds a ring lasts, or all but, and is drawn in little
/// time.
const SLOTS_PER_S: f64 = (2 << 20) as f64;
/// Slots of the shortest runs.
const SLOTS_MIN: usize = 1 << 16;
/// Operations before the clock starts: this part of a run's time, and no longer than that.
const WARM_UP_PART: f64 = 0.1;
const WARM_UP_MAX_S: f64 = 0.5;

/// A run to be.
pub(super) struct Run<'a> {
    pub(super) plan: &'a Plan,
    pub(super) workload: Workload,
    pub(super) distribution: Distribution,
    pub(super) load: &'a Load,
    pub(super) space: &'a Arc<KeySpace>,
    /// Measured before each run, if given.
    pub(super) limits: Option<&'a LimitArrays<'a>>,
    pub(super) placement: &'a Placement,
    pub(super) cancellation: &'a Cancellation,
    pub(super) seed: u64,
}

/// What a run gave.
pub(super) struct RunEnd {
    pub(super) measured: Measured,
    /// Operations, those of the warm-up not counted.
    pub(super) operations: u64,
    /// Keys inserted, in the warm-up too.
    pub(super) inserted: u64,
    /// Whether a thread ended early for want of keys to insert.
    pub(super) is_exhausted: bool,
}

impl Run<'_> {
    pub(super) fn execute(&self) -> Result<RunEnd, DriverError> {
        let threads = 0..self.plan.threads;
        let limits = match self.limits {
            Some(limits) => self.on_threads(threads.clone().collect(), |_| Ok(limits.measure()))?,
            None => Vec::new(),
        };
        self.cancellation.check()?;
        let workers = self.on_threads(threads.collect(), |thread| self.warm_worker(thread))?;
        self.cancellation.check()?;

        let duration = Duration::from_secs_f64(self.plan.seconds);
        let server_cpu = self.load.server_cpu_time()?;
        let begun = Instant::now();
        let ended = self.on_threads(workers, |mut worker| {
            let phase = worker.run(duration, self.cancellation)?;
            Ok((worker, phase))
        })?;
        let wall = begun.elapsed();
        let server_cpu = self.load.server_cpu_time()?.saturating_sub(server_cpu);
        self.cancellation.check()?;

        let (workers, phases): (Vec<_>, Vec<_>) = ended.into_iter().unzip();
        let inserted = workers.iter().map(Worker::inserted).sum();
        let operations = phases.iter().map(|phase| phase.operations).sum();
        self.check(&workers, operations, inserted)?;
        let server_cpu_fraction = server_cpu.as_secs_f64() / wall.as_secs_f64();
        let measured = self.measured(&phases, &limits, server_cpu_fraction, inserted);
        let is_exhausted = phases.iter().any(|phase| phase.is_exhausted);
        Ok(RunEnd { measured, operations, inserted, is_exhausted })
    }

    /// Runs `work` on each item in a thread of its own, client thread by client thread on its core.
    fn on_threads<I: Send, T: Send>(
        &self,
        items: Vec<I>,
        work: impl Fn(I) -> Result<T, DriverError> + Sync,
    ) -> Result<Vec<T>, DriverError> {
        let work = &work;
        std::thread::scope(|scope| {
            let start = |(thread, item)| {
                scope.spawn(move || {
                    self.placement.pin(thread)?;
                    work(item)
                })
            };
            let running: Vec<_> = items.into_iter().enumerate().map(start).collect();
            running.into_iter().map(|thread| thread.join().expect("a client thread does not panic")).collect()
        })
    }

    fn warm_worker(&self, thread: usize) -> Result<Worker, DriverError> {
        let slots = ((self.plan.seconds * SLOTS_PER_S) as usize).clamp(SLOTS_MIN, SLOTS_DEFAULT);
        let place = (thread, self.plan.threads);
        let stream =
            OperationStream::new(self.workload, self.distribution, self.space, place, slots, self.seed)?;
        let space = Arc::clone(self.space);
        let (subject, options) = ((&self.load.table, self.plan.values), self.load.options);
        let mut worker = Worker::new(subject, options, stream, space, self.plan.batch)?;
        let seconds = (self.plan.seconds * WARM_UP_PART).min(WARM_UP_MAX_S);
        worker.run(Duration::from_secs_f64(seconds), self.cancellation)?;
        Ok(worker)
    }

    fn check(&self, workers: &[Worker], operations: u64, inserted: u64) -> Result<(), DriverError> {
        check_answers(workers.iter().map(Worker::wrong_answers), self.workload, operations)?;
        if operations == 0 {
            // The warm-up took all that there was.
            return Err(WorkloadError::InsertKeysExhausted { thread: 0, inserted: inserted as usize }.into());
        }
        Ok(())
    }

    fn measured(
        &self,
        phases: &[Phase],
        limits: &[Limits],
        server_cpu_fraction: f64,
        inserted: u64,
    ) -> Measured {
        let mut latencies = LatencyHistogram::new();
        let mut meters = Meters::default();
        for phase in phases {
            latencies.merge(&phase.latencies);
            meters += phase.meters;
        }
        let operations = latencies.operations() as f64;
        let an_operation = |count: u64| count as f64 / operations;
        let count = |of: fn(&Phase) -> u64| phases.iter().map(of).sum::<u64>();
        let reading = count(|phase| phase.reading).max(1) as f64;
        let sum = |of: fn(&Phase) -> f64| phases.iter().map(of).sum::<f64>();
        let limit =
            |of: fn(&Limits) -> f64| limits.iter().map(of).sum::<f64>() * self.placement.share_of_core();
        let cache = self.load.table.cache_stats();
        let cache_bytes = match self.plan.access {
            Access::OneSided => cache.model_bytes + cache.table_bytes,
            Access::Rpc => 0,
        };
        let pairs = (self.load.report().pairs + inserted) as f64;
        Measured {
            // A thread that ended early counts with the rate that it had.
            throughput_ops_per_s: sum(|phase| {
                phase.operations as f64 / phase.elapsed.as_secs_f64().max(1e-9)
            }),
            latency_ns: latencies.quantiles(),
            reads_per_op: an_operation(meters.reads),
            bytes_read_per_op: an_operation(meters.read_bytes),
            round_trips_per_op: an_operation(meters.doorbells),
            fallbacks_per_op: an_operation(count(|phase| phase.fallbacks)),
            extra_reads_per_get: count(|phase| phase.extra_reads) as f64 / reading,
            cache_bytes_per_key: cache_bytes as f64 / pairs,
            model_bytes_per_key: cache_bytes.min(cache.model_bytes) as f64 / pairs,
            server_cpu_fraction,
            client_cpu_fraction: sum(|phase| phase.cpu.as_secs_f64())
                / sum(|phase| phase.elapsed.as_secs_f64()).max(1e-9),
            random_read_limit_per_s: limit(|limits| limits.random_reads_per_s),
            block_copy_limit_per_s: limit(|limits| limits.block_copies_per_s),
            shape_limit_per_s: limit(match self.plan.batch {
                1 => |limits| limits.single_walks_per_s,
                _ => |limits| limits.shape_walks_per_s,
            }),
        }
    }
}

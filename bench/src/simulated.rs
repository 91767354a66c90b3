//! YCSB where verbs have prices: the real server or memory nodes, the real clients, and a testbed out of a
//! profile.
//!
//! Invariant: nothing is extrapolated. As many sessions as the testbed has threads run the engine's own code,
//! every answer is checked, and a result is the same each time. What is scaled down is the time (some
//! milliseconds of it) and the number of keys, on which a GET's verbs do not depend.
//!
//! Protocol of a run: load, train, fill each machine's cache; then all threads run batches, one after the
//! other. Until the end of the warm-up nothing is counted; then what ends within the window is.
//!
//! Prices of verbs are the fabric's matter ([`farsight_fabric_sim::Prices`]). This module tells the fabric
//! the prices of the engine's own work. It tells a client thread's as its session is used ([`session`]), and
//! a core's by what a call asks and gets ([`calls`]).

mod bed;
mod calls;
mod proxying;
mod session;
mod thread;

use std::sync::{Arc, Mutex, PoisonError};

use farsight::{Access, CachePolicy, EngineKind, Meters};
use farsight_base::sync::{AtomicUsize, Ordering};
use farsight_fabric_sim::{Constant, Utilization};

pub use farsight_fabric_sim::{Profile, ProfileError};
pub use farsight_protocol::ProxyPace;
pub use proxying::{Offloaded, Proxying};

use crate::driver::executor::check_answers;
use crate::driver::{Cancellation, DriverError, identities};
use crate::histogram::LatencyHistogram;
use crate::report::{HitKind, LoneReads, PartRecord, SensitivityRow, SimulatedRecord, SimulatedSample};
use crate::workload::{Distribution, InsertSupply, KeySpace, Workload};

use bed::{Bed, Seen};
use thread::{Counted, ReadsByHit, ThreadEnd};

/// The seed of keys held back and of operations.
const SEED: u64 = 1;
/// Of a run's window, this part passes before it.
const WARM_UP_PART: f64 = 0.25;
/// Inserts that are prepared for a second of virtual time, and for the shortest runs.
const INSERTS_PER_S: f64 = 1e8;
const INSERTS_MIN: usize = 1 << 18;
/// A part that is busier than this is what limits a run.
const BUSY: f64 = 0.9;

/// What to simulate.
#[derive(Debug, Clone)]
pub struct SimulatedPlan {
    /// The testbed.
    pub profile: Profile,
    /// Whose table.
    pub engine: &'static EngineKind,
    /// Memory nodes of a pool; of a server none.
    pub memory_nodes: usize,
    /// Client machines.
    pub machines: usize,
    /// How some of those also write for others, in a FlexKV table.
    pub proxying: Option<Proxying>,
    /// Threads of each.
    pub threads: usize,
    /// The workload.
    pub workload: Workload,
    /// Which keys are popular.
    pub distribution: Distribution,
    /// The name under which results show the keys.
    pub dataset: String,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Operations of a batch.
    pub batch: usize,
    /// Who searches the table.
    pub access: Access,
    /// Virtual time that is measured, in s.
    pub seconds: f64,
    /// Virtual time before that, in s; `None`: a quarter of it.
    pub warm_up_seconds: Option<f64>,
    /// What is run behind that, and for how many more seconds. All of it is measured.
    pub then: Option<(Workload, f64)>,
    /// Operations are counted in samples of so many seconds, too.
    pub sample_seconds: Option<f64>,
    /// What a machine's cache may take of memory; `None`: as much as it needs.
    pub cache_bytes: Option<u64>,
    /// Bytes of values that a machine may keep, of a FlexKV table.
    pub value_cache_bytes: Option<u64>,
    /// Which entries of full caches go. Only FlexKV's caches have a choice.
    pub cache_policy: CachePolicy,
    /// Clients READ what their caches lack. Otherwise they call.
    pub publishes_models: bool,
}

impl SimulatedPlan {
    /// The keys to load, and enough others for a workload that inserts.
    ///
    /// # Errors
    /// [`DriverError::Workload`].
    pub fn key_space(&self, keys: Vec<u64>) -> Result<Arc<KeySpace>, DriverError> {
        let keys = identities(keys);
        if self.workload.mix().insert == 0 {
            return Ok(Arc::new(KeySpace::split(keys, InsertSupply::default(), SEED)?));
        }
        let seconds: f64 = self.timed_phases().iter().map(|(_, seconds)| seconds).sum();
        let wanted = ((seconds * INSERTS_PER_S) as usize).max(INSERTS_MIN);
        Ok(Arc::new(KeySpace::with_inserts(keys, wanted, SEED)?))
    }

    /// Runs it.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn run(
        &self,
        space: &Arc<KeySpace>,
        cancellation: &Cancellation,
    ) -> Result<SimulatedRecord, DriverError> {
        let cores = self.profile.value("machine.client_cores") as usize;
        if self.threads > cores {
            let profile = self.profile.name.clone();
            return Err(DriverError::TooManyThreads { threads: self.threads, cores, profile });
        }
        let bed = if self.engine.is_alone() {
            Bed::of_server(self, space, cancellation)?
        } else {
            Bed::of_pool(self, space, cancellation)?
        };
        let (ends, seen) = bed.run(self, space, cancellation)?;
        check_answers(ends.iter().map(|end| &end.wrong), self.workload, operations_of(&ends))?;
        Ok(SimulatedRecord {
            cache_memory_bytes: bed.cache_memory_bytes(),
            ..self.record(space, &ends, &seen)
        })
    }

    /// Virtual time before the window, in s.
    fn warm_up_seconds(&self) -> f64 {
        self.warm_up_seconds.unwrap_or(self.seconds * WARM_UP_PART)
    }

    /// When each phase ends, in s from the begin of the window.
    fn phase_ends(&self) -> Vec<f64> {
        let second = self.then.map(|(_, seconds)| self.seconds + seconds);
        std::iter::once(self.seconds).chain(second).collect()
    }

    /// What is run one after the other, and for how many seconds, the warm-up among them.
    fn timed_phases(&self) -> Vec<(Workload, f64)> {
        let first = (self.workload, self.warm_up_seconds() + self.seconds);
        std::iter::once(first).chain(self.then).collect()
    }

    /// The constants of the profile that have a band.
    #[must_use]
    pub fn uncertain(&self) -> Vec<&Constant> {
        uncertain(&self.profile)
    }

    /// Runs it with each constant at both ends of its band, on as many threads as the machine has cores.
    ///
    /// # Errors
    /// [`DriverError`], of any of them.
    pub fn sensitivity(
        &self,
        space: &Arc<KeySpace>,
        cancellation: &Cancellation,
    ) -> Result<Vec<SensitivityRow>, DriverError> {
        let uncertain = self.uncertain();
        let next = AtomicUsize::new(0);
        let rates: Mutex<Vec<[f64; 2]>> = Mutex::new(vec![[0.0; 2]; uncertain.len()]);
        let work = || -> Result<(), DriverError> {
            loop {
                // Relaxed: the number only has to differ.
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(constant) = uncertain.get(number / 2) else { return Ok(()) };
                let value = [constant.low, constant.high][number % 2];
                let plan = Self { profile: self.profile.with(constant.name, value), ..self.clone() };
                let rate = plan.run(space, cancellation)?.throughput_ops_per_s;
                rates.lock().unwrap_or_else(PoisonError::into_inner)[number / 2][number % 2] = rate;
            }
        };
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            running.into_iter().try_for_each(|thread| thread.join().expect("a run does not panic"))
        })?;
        let rates = rates.into_inner().unwrap_or_else(PoisonError::into_inner);
        let row = |(constant, [at_low, at_high]): (&&Constant, [f64; 2])| SensitivityRow {
            constant: constant.name.to_owned(),
            unit: constant.unit.to_owned(),
            value: constant.value,
            low: constant.low,
            high: constant.high,
            ops_per_s_at_low: at_low,
            ops_per_s_at_high: at_high,
        };
        Ok(uncertain.iter().zip(rates).map(row).collect())
    }

    fn record(&self, space: &KeySpace, ends: &[ThreadEnd], seen: &Seen) -> SimulatedRecord {
        let mut latencies = LatencyHistogram::new();
        let (mut meters, mut counted, mut reads) =
            (Meters::default(), Counted::default(), ReadsByHit::default());
        for end in ends {
            latencies.merge(&end.latencies);
            meters += end.meters;
            counted.add(end.counted);
            reads.add(end.reads);
        }
        let operations = latencies.operations() as f64;
        let an_operation = |count: u64| count as f64 / operations.max(1.0);
        let part = |used: &Utilization| PartRecord {
            name: used.name.to_owned(),
            parts: used.parts,
            utilization_mean: used.mean,
            utilization_most: used.most,
        };
        let busiest = seen.usage.iter().max_by(|a, b| a.most.total_cmp(&b.most));
        let seconds = *self.phase_ends().last().expect("a phase at least");
        SimulatedRecord {
            fabric: "sim".to_owned(),
            profile: self.profile.name.clone(),
            engine: self.engine.to_string(),
            memory_nodes: self.memory_nodes,
            testbed: self.profile.testbed.clone(),
            machines: self.machines,
            proxies: self.proxying.map_or(0, |proxying| proxying.machines),
            threads_per_machine: self.threads,
            workload: self.workload.name().to_owned(),
            distribution: self.distribution.label(),
            dataset: self.dataset.clone(),
            keys: space.loaded().len() as u64,
            value_size: self.value_bytes as u32,
            batch: self.batch,
            access: match self.access {
                Access::OneSided => "one-sided".to_owned(),
                Access::Rpc => "rpc".to_owned(),
            },
            virtual_seconds: seconds,
            throughput_ops_per_s: operations / seconds,
            latency_ns: latencies.quantiles(),
            reads_per_op: an_operation(meters.reads),
            bytes_read_per_op: an_operation(meters.read_bytes),
            writes_per_op: an_operation(meters.writes),
            atomics_per_op: an_operation(meters.atomics),
            calls_per_op: an_operation(meters.calls + counted.calls_to_others),
            doorbells_per_op: an_operation(meters.doorbells),
            fallbacks_per_op: an_operation(counted.fallbacks),
            value_hits_per_get: counted.value_hits as f64 / counted.gets.max(1) as f64,
            bottleneck: busiest.filter(|part| part.most > BUSY).map(|part| part.name.to_owned()),
            utilization: seen.usage.iter().filter(|used| used.parts > 0).map(part).collect(),
            sensitivity: Vec::new(),
            cache_budget_bytes: self.cache_bytes,
            cache_memory_bytes: 0,
            value_cache_bytes: self.value_cache_bytes,
            publishes_models: self.publishes_models,
            offloaded: seen.offloaded.last().copied(),
            proxied_writes: seen.executed.clone(),
            lone_reads: self.lone_reads(reads),
            samples: self.samples(ends, &seen.offloaded),
        }
    }

    /// What answered reads that came alone.
    fn lone_reads(&self, reads: ReadsByHit) -> Option<LoneReads> {
        let all: u64 = reads.counts.iter().sum();
        if self.batch > 1 || all == 0 {
            return None;
        }
        let kind = |index: usize| HitKind {
            part: reads.counts[index] as f64 / all as f64,
            latency_ns_mean: reads.spent_ns[index] as f64 / reads.counts[index].max(1) as f64,
        };
        Some(LoneReads { value: kind(0), address: kind(1), other: kind(2) })
    }

    /// Operations by sample, if they were to be counted so.
    fn samples(&self, ends: &[ThreadEnd], offloaded: &[f64]) -> Vec<SimulatedSample> {
        let Some(seconds) = self.sample_seconds else { return Vec::new() };
        let count = ends.first().map_or(0, |end| end.samples.len());
        let ends_and_phases: Vec<_> = self.phase_ends().into_iter().zip(self.timed_phases()).collect();
        let workload = |at_s: f64| {
            let is_later = |(end, _): &&(f64, (Workload, f64))| at_s <= end + 1e-9;
            let phase = ends_and_phases.iter().find(is_later).or(ends_and_phases.last());
            phase.map_or("", |(_, (workload, _))| workload.name())
        };
        let sample = |index: usize| SimulatedSample {
            at_s: (index + 1) as f64 * seconds,
            workload: workload((index + 1) as f64 * seconds).to_owned(),
            ops_per_s: ends.iter().map(|end| end.samples[index]).sum::<u64>() as f64 / seconds,
            offloaded: offloaded.get(index).copied(),
        };
        // The last one may be shorter than the others, and says nothing then.
        let whole = (self.phase_ends().last().expect("a phase at least") / seconds + 1e-9) as usize;
        (0..count.min(whole)).map(sample).collect()
    }
}

/// The constants of a profile that have a band.
pub(crate) fn uncertain(profile: &Profile) -> Vec<&Constant> {
    profile.constants().iter().filter(|constant| constant.low < constant.high).collect()
}

fn operations_of(ends: &[ThreadEnd]) -> u64 {
    ends.iter().map(|end| end.latencies.operations()).sum()
}

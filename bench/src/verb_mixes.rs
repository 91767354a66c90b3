//! The verbs of FlexKV and its rivals on a testbed whose parts have prices.
//!
//! Invariant: this is no store. Nothing is stored, nothing is found, and no answer is checked. Operations are
//! the verbs that a system posts for them, with their sizes, in their order. So a result says what cards,
//! links and cores allow a system. It says nothing about what the system's program does besides.
//!
//! Protocol: clients' threads run coroutines, each one operation at a time. An operation's key and what
//! caches have of it are drawn ([`operations`]). Its verbs follow from that ([`system`]). They pass machines
//! that have one card each ([`network`]), so a compute node's clients and its proxy share card and cores.
//! Conflicts between operations cost nothing but the wait for a card's lock: a lost compare-and-swap is not
//! repeated.

mod network;
mod operations;
mod popularity;
mod program;
mod ratio;
mod system;

use farsight_base::sync::{AtomicUsize, Ordering};
use farsight_fabric_sim::{Constant, Profile, Utilization};

use crate::driver::{Cancellation, DriverError};
use crate::report::{MixRecord, PartRecord, SensitivityRow};
use crate::simulated::uncertain;
use crate::workload::Workload;

use network::{MachineSize, Network, Role, WindowOutcome};
use operations::{Drawn, Hits};
use program::ThreadPlace;
use system::Costs;

pub use popularity::Popularity;
pub use ratio::{RatioPlan, VerbRates};
pub use system::System;

/// Of a run's window, this part passes before it.
const WARM_UP_PART: f64 = 0.25;
/// The seed of operations.
const SEED: u64 = 1;
/// A header beside an object's pair, and the unit of its memory.
const HEADER_BYTES: u64 = 32;
const OBJECT_UNIT_BYTES: u64 = 64;
/// A part that is busier than this is what limits a run.
const BUSY: f64 = 0.9;
/// The parts of FlexKV's index that are tried, in percent.
const OFFLOADED_TRIED: [u32; 6] = [10, 20, 40, 60, 80, 100];

/// What to post, and on which testbed.
#[derive(Clone, Debug)]
pub struct VerbMixPlan {
    /// The testbed.
    pub profile: Profile,
    /// Whose verbs.
    pub system: System,
    /// The workload: reads, updates and inserts.
    pub workload: Workload,
    /// Compute nodes.
    pub compute_nodes: usize,
    /// Memory nodes.
    pub memory_nodes: usize,
    /// Copies of each object, and of the index where a system copies it.
    pub replicas: usize,
    /// Client threads of a compute node.
    pub client_threads: usize,
    /// Operations that a client thread has under way.
    pub coroutines: usize,
    /// Threads of a compute node that answer calls.
    pub proxy_threads: usize,
    /// A compute node's memory for caches and for the index that it proxies.
    pub cache_bytes: u64,
    /// Bytes of a key and its value.
    pub pair_bytes: u64,
    /// The part of FlexKV's index that compute nodes proxy.
    pub offloaded: f64,
    /// Virtual time that is measured, in s.
    pub seconds: f64,
}

impl VerbMixPlan {
    /// The paper's testbed (FlexKV, section 5.1). It has 20 compute and 3 memory nodes, 200 clients of 8
    /// coroutines, and three replicas of pairs of 128 B. A compute node has 2 proxy threads and 64 MB.
    #[must_use]
    pub fn of_paper(profile: Profile, system: System, workload: Workload) -> Self {
        Self {
            profile,
            system,
            workload,
            compute_nodes: 20,
            memory_nodes: 3,
            replicas: 3,
            client_threads: 10,
            coroutines: 8,
            proxy_threads: 2,
            cache_bytes: 64_000_000,
            pair_bytes: 128,
            offloaded: 0.0,
            seconds: 0.002,
        }
    }

    /// Runs it.
    ///
    /// # Panics
    /// If the workload has anything but reads, updates and inserts, or a number of the plan is zero.
    #[must_use]
    pub fn run(&self, popularity: &Popularity) -> MixRecord {
        let mix = self.workload.mix();
        assert_eq!(mix.scan + mix.read_modify_write, 0, "workload {} has other operations", self.workload);
        let window_ps = self.seconds * 1e12;
        let warm_ps = (window_ps * WARM_UP_PART) as u64;
        let mut drawn = Drawn::new(self, popularity, SEED);
        let outcome =
            self.network().run(&mut drawn, &self.coroutines(), [warm_ps, warm_ps + window_ps as u64]);
        self.record(popularity, &outcome, drawn.hits)
    }

    /// Runs it with each of some parts of the index offloaded; returns the plan and result of the fastest. Of
    /// systems that offload nothing there is one.
    ///
    /// # Errors
    /// [`DriverError::Cancelled`].
    ///
    /// # Panics
    /// As [`Self::run`].
    pub fn run_best(
        &self,
        popularity: &Popularity,
        cancellation: &Cancellation,
    ) -> Result<(Self, MixRecord), DriverError> {
        let plans = self.tried();
        let records = run_all(&plans, popularity, cancellation)?;
        let rate = |run: &(Self, MixRecord)| run.1.throughput_ops_per_s;
        let runs = plans.into_iter().zip(records);
        Ok(runs.max_by(|one, other| rate(one).total_cmp(&rate(other))).expect("one is tried"))
    }

    /// Runs it with each uncertain constant at both ends of its band, on as many threads as this machine has
    /// cores. What is offloaded stays as it is.
    ///
    /// # Errors
    /// [`DriverError::Cancelled`].
    ///
    /// # Panics
    /// As [`Self::run`].
    pub fn sensitivity(
        &self,
        popularity: &Popularity,
        cancellation: &Cancellation,
    ) -> Result<Vec<SensitivityRow>, DriverError> {
        let ends =
            |constant: &str, value| Self { profile: self.profile.with(constant, value), ..self.clone() };
        let uncertain = uncertain(&self.profile);
        let plans: Vec<Self> = uncertain
            .iter()
            .flat_map(|constant| [constant.low, constant.high].map(|value| ends(constant.name, value)))
            .collect();
        let records = run_all(&plans, popularity, cancellation)?;
        let row = |(constant, ends): (&&Constant, &[MixRecord])| SensitivityRow {
            constant: constant.name.to_owned(),
            unit: constant.unit.to_owned(),
            value: constant.value,
            low: constant.low,
            high: constant.high,
            ops_per_s_at_low: ends[0].throughput_ops_per_s,
            ops_per_s_at_high: ends[1].throughput_ops_per_s,
        };
        Ok(uncertain.iter().zip(records.chunks(2)).map(row).collect())
    }

    /// The plan with each of some parts offloaded.
    fn tried(&self) -> Vec<Self> {
        let tried = if self.system == System::FlexKv { &OFFLOADED_TRIED[..] } else { &[0] };
        tried.iter().map(|percent| Self { offloaded: f64::from(*percent) / 1e2, ..self.clone() }).collect()
    }

    fn costs(&self) -> Costs {
        Costs {
            prices: self.profile.engine_prices(),
            object_bytes: (self.pair_bytes + HEADER_BYTES).next_multiple_of(OBJECT_UNIT_BYTES),
            client_threads: self.client_threads,
            called_threads: self.proxy_threads,
            metadata_threads: self.profile.value("machine.server_cores") as usize,
        }
    }

    /// Compute nodes, memory nodes, and a metadata server.
    fn network(&self) -> Network {
        let cores = |name: &str| self.profile.value(name) as usize;
        let compute = MachineSize {
            role: Role::Compute,
            client_threads: self.client_threads,
            called_threads: self.proxy_threads,
            cores: cores("machine.client_cores"),
        };
        let memory = MachineSize {
            role: Role::Memory,
            client_threads: 0,
            called_threads: 0,
            cores: cores("machine.memory_node_cores"),
        };
        let server_cores = cores("machine.server_cores");
        let metadata = MachineSize {
            role: Role::Metadata,
            client_threads: 0,
            called_threads: server_cores,
            cores: server_cores,
        };
        let sizes: Vec<MachineSize> = std::iter::repeat_n(compute, self.compute_nodes)
            .chain(std::iter::repeat_n(memory, self.memory_nodes))
            .chain([metadata])
            .collect();
        Network::new(self.profile.prices(), self.profile.engine_prices().core_call_ps, &sizes)
    }

    /// The thread of each coroutine.
    fn coroutines(&self) -> Vec<ThreadPlace> {
        let threads = |number| (0..self.compute_nodes).map(move |machine| ThreadPlace { machine, number });
        (0..self.coroutines).flat_map(|_| (0..self.client_threads).flat_map(threads)).collect()
    }

    fn record(&self, popularity: &Popularity, outcome: &WindowOutcome, hits: Hits) -> MixRecord {
        let operations = outcome.latencies.operations() as f64;
        let an_operation = |count: u64| count as f64 / operations.max(1.0);
        let a_search = |count: u64| count as f64 / hits.searches.max(1) as f64;
        let busiest = outcome.usage.iter().max_by(|one, other| one.most.total_cmp(&other.most));
        let part = |used: &Utilization| PartRecord {
            name: used.name.to_owned(),
            parts: used.parts,
            utilization_mean: used.mean,
            utilization_most: used.most,
        };
        MixRecord {
            system: self.system.name().to_owned(),
            workload: self.workload.name().to_owned(),
            profile: self.profile.name.clone(),
            testbed: self.profile.testbed.clone(),
            compute_nodes: self.compute_nodes,
            memory_nodes: self.memory_nodes,
            clients: self.compute_nodes * self.client_threads,
            coroutines_per_client: self.coroutines,
            keys: popularity.keys,
            theta: popularity.theta,
            offloaded: self.offloaded,
            virtual_seconds: self.seconds,
            throughput_ops_per_s: operations / self.seconds,
            latency_ns: outcome.latencies.quantiles(),
            reads_per_op: an_operation(outcome.counts.reads),
            bytes_read_per_op: an_operation(outcome.counts.read_bytes),
            writes_per_op: an_operation(outcome.counts.writes),
            atomics_per_op: an_operation(outcome.counts.swaps),
            calls_per_op: an_operation(outcome.counts.calls),
            value_hits_per_search: a_search(hits.values),
            address_hits_per_search: a_search(hits.addresses),
            bottleneck: busiest.filter(|part| part.most > BUSY).map(|part| part.name.to_owned()),
            utilization: outcome.usage.iter().map(part).collect(),
            sensitivity: Vec::new(),
        }
    }
}

/// The result of each plan, on as many threads as this machine has cores.
fn run_all(
    plans: &[VerbMixPlan],
    popularity: &Popularity,
    cancellation: &Cancellation,
) -> Result<Vec<MixRecord>, DriverError> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            // Relaxed: the number only has to differ.
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(plan) = plans.get(number).filter(|_| !cancellation.is_cancelled()) else { return done };
            done.push((number, plan.run(popularity)));
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let mut done: Vec<(usize, MixRecord)> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("a run does not panic")).collect()
    });
    cancellation.check()?;
    done.sort_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, record)| record).collect())
}

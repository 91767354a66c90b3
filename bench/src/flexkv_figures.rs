//! The figures of FlexKV's evaluation, in virtual time: which runs each of them has.
//!
//! Invariant: a point of a figure is one run. Most are runs of the store, whose every answer is checked. The
//! others are verb mixes ([`crate::verb_mixes`]), of systems that are not here: their names say so. No figure
//! has a number of the paper's.
//!
//! Source: FlexKV, section 5. Three things are scaled down: the number of keys, a compute node's memory for
//! caches in the same measure, and the time. A second of the coordinator takes a part of it ([`ProxyPace`]).

mod figure;
mod points;

use std::collections::HashMap;

use farsight::{Access, CachePolicy, EngineKind, ReadsByOthers, VALUE_BYTES_MAX, VALUE_BYTES_MIN};
use farsight_fabric_sim::Profile;

use crate::driver::{Cancellation, DriverError};
use crate::report::{FlexPointRecord, FlexRun};
use crate::simulated::{Offloaded, ProxyPace, Proxying, SimulatedPlan};
use crate::verb_mixes::{Popularity, System, VerbMixPlan};
use crate::workload::{Distribution, Workload, ZIPFIAN_THETA_DEFAULT};

pub use figure::FlexFigure;

/// The paper's keys, and bytes of a compute node's memory for caches.
const KEYS_OF_PAPER: f64 = 1e7;
const MEMORY_OF_PAPER: u64 = 64_000_000;
/// Bytes of a pair, and of its key.
const PAIR_BYTES: usize = 128;
const KEY_BYTES: usize = 8;
/// Seconds of the coordinator before a run is measured: its search for the best part takes as long.
const WARM_UP_S: f64 = 32.0;

/// A testbed of FlexKV's evaluation, as it is simulated.
#[derive(Debug, Clone)]
pub struct FlexTestbed {
    /// Cards, links and cores.
    pub profile: Profile,
    /// Memory nodes.
    pub memory_nodes: usize,
    /// Compute nodes.
    pub compute_nodes: usize,
    /// Client threads of each, at the most.
    pub client_threads: usize,
    /// Operations that each has under way: those of a batch.
    pub batch: usize,
    /// Keys of the table.
    pub keys: usize,
    /// Virtual time that is measured, in s.
    pub seconds: f64,
    /// How many times faster than usual the coordinator decides.
    pub pace: ProxyPace,
}

/// How a table is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// FlexKV, all compute nodes write for others. They keep values, or do not.
    Proxied(Offloaded, Keeping),
    /// FlexKV-OP: all compute nodes write and read for others. Each is the owner of its partitions.
    Owned,
    /// FlexKV, each for himself.
    OneSided,
    /// XStore-D.
    XStoreD,
    /// ROLEX.
    Rolex,
}

/// What compute nodes have their memory for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// Addresses.
    Addresses,
    /// Addresses in one half, values in the other.
    Values,
}

/// A point of a figure: one run.
#[derive(Debug, Clone)]
pub struct FlexPoint {
    figure: FlexFigure,
    panel: String,
    system: String,
    x: f64,
    run: PointRun,
}

#[derive(Debug, Clone)]
enum PointRun {
    Store(Box<SimulatedPlan>),
    Verbs(Box<VerbMixPlan>, f64),
}

impl FlexPoint {
    /// What is said while it runs.
    #[must_use]
    pub fn name(&self) -> String {
        format!("figure {}, {}, {}, {} {}", self.figure, self.panel, self.system, self.figure.axis(), self.x)
    }

    /// The run alone.
    fn identity(&self) -> String {
        format!("{:?}", self.run)
    }

    /// The point with what its run gave.
    #[must_use]
    pub fn record(&self, setting: &str, run: FlexRun) -> FlexPointRecord {
        FlexPointRecord {
            figure: self.figure.to_string(),
            title: self.figure.title().to_owned(),
            setting: setting.to_owned(),
            axis: self.figure.axis().to_owned(),
            panel: self.panel.clone(),
            system: self.system.clone(),
            x: self.x,
            run,
        }
    }
}

/// Runs points, each run once.
pub struct FlexRunner {
    keys: Vec<u64>,
    /// Of the paper's keys, by the bits of their skew.
    popularities: HashMap<u64, Popularity>,
    /// By what was run: points of several figures may share it.
    known: HashMap<String, FlexRun>,
}

impl FlexRunner {
    /// On tables of these keys.
    #[must_use]
    pub fn new(keys: Vec<u64>) -> Self {
        Self { keys, popularities: HashMap::new(), known: HashMap::new() }
    }

    /// True if the point's run was not run before.
    #[must_use]
    pub fn is_new(&self, point: &FlexPoint) -> bool {
        !self.known.contains_key(&point.identity())
    }

    /// Runs a point, or finds what it gave.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn run(&mut self, point: &FlexPoint, cancellation: &Cancellation) -> Result<FlexRun, DriverError> {
        let identity = point.identity();
        if let Some(run) = self.known.get(&identity) {
            return Ok(run.clone());
        }
        let run = match &point.run {
            PointRun::Store(plan) => {
                let space = plan.key_space(self.keys.clone())?;
                FlexRun::of_store(&plan.run(&space, cancellation)?)
            }
            PointRun::Verbs(plan, theta) => {
                let popularity = self.popularities.entry(theta.to_bits());
                let popularity = popularity.or_insert_with(|| Popularity::new(KEYS_OF_PAPER as u64, *theta));
                FlexRun::of_verbs(&plan.run_best(popularity, cancellation)?.1)
            }
        };
        self.known.insert(identity, run.clone());
        Ok(run)
    }
}

impl FlexTestbed {
    /// The testbed, for the eye.
    #[must_use]
    pub fn setting(&self) -> String {
        let Self { memory_nodes, compute_nodes, client_threads, batch, keys, .. } = self;
        format!(
            "simulated, profile {}: {compute_nodes} compute and {memory_nodes} memory nodes, {} clients x \
             {batch}; {keys} keys, pairs of {PAIR_BYTES} B; coordinator {} times as fast",
            self.profile.name,
            compute_nodes * client_threads,
            self.pace.times(),
        )
    }

    /// A compute node's memory for caches, of so much beside the paper's keys.
    fn memory_bytes(&self, of_paper: u64) -> u64 {
        (of_paper as f64 * self.keys as f64 / KEYS_OF_PAPER) as u64
    }

    /// Virtual time in which so many seconds of the coordinator pass, in s.
    fn paced(&self, seconds: f64) -> f64 {
        seconds / f64::from(self.pace.times())
    }

    /// A run of the store.
    fn store(&self, way: Way, workload: Workload, distribution: Distribution) -> SimulatedPlan {
        let engine = match way {
            Way::Proxied(..) | Way::Owned | Way::OneSided => EngineKind::FLEXKV,
            Way::XStoreD => EngineKind::XSTORE_D,
            Way::Rolex => EngineKind::ROLEX,
        };
        let proxying = match way {
            Way::Proxied(offloaded, _) => {
                Some(Proxying { offloaded, pace: self.pace, ..Proxying::by(self.compute_nodes) })
            }
            Way::Owned => Some(Proxying {
                offloaded: Offloaded::Hottest(100),
                pace: self.pace,
                reads: ReadsByOthers::Values,
                ..Proxying::by(self.compute_nodes)
            }),
            Way::OneSided | Way::XStoreD | Way::Rolex => None,
        };
        let is_flexkv = *engine == *EngineKind::FLEXKV;
        let plan = SimulatedPlan {
            profile: self.profile.clone(),
            engine,
            memory_nodes: self.memory_nodes,
            machines: self.compute_nodes,
            proxying,
            threads: self.client_threads,
            workload,
            distribution,
            dataset: "uniform".to_owned(),
            value_bytes: value_bytes(engine, PAIR_BYTES),
            batch: self.batch,
            access: Access::OneSided,
            seconds: self.seconds,
            // Models are complete from the first; addresses and values are learned.
            warm_up_seconds: is_flexkv.then(|| self.paced(WARM_UP_S)),
            then: None,
            sample_seconds: None,
            cache_bytes: None,
            value_cache_bytes: None,
            cache_policy: CachePolicy::default(),
            publishes_models: true,
        };
        if is_flexkv { self.with_memory(plan, way, MEMORY_OF_PAPER) } else { plan }
    }

    /// A FlexKV run whose compute nodes have so much memory, beside the paper's keys.
    fn with_memory(&self, plan: SimulatedPlan, way: Way, of_paper: u64) -> SimulatedPlan {
        let bytes = self.memory_bytes(of_paper);
        let for_values = matches!(way, Way::Proxied(_, Keeping::Values)).then_some(bytes / 2);
        let cache_bytes = Some(bytes - for_values.unwrap_or(0));
        SimulatedPlan { cache_bytes, value_cache_bytes: for_values, ..plan }
    }

    /// A verb mix, on the paper's keys.
    fn verbs(&self, system: System, workload: Workload) -> VerbMixPlan {
        VerbMixPlan {
            compute_nodes: self.compute_nodes,
            memory_nodes: self.memory_nodes,
            client_threads: self.client_threads,
            coroutines: self.batch,
            seconds: self.seconds,
            ..VerbMixPlan::of_paper(self.profile.clone(), system, workload)
        }
    }
}

/// Bytes of a value of a pair, as an engine has them.
fn value_bytes(engine: &EngineKind, pair_bytes: usize) -> usize {
    let most = engine.block_value_bytes_max.max(VALUE_BYTES_MAX);
    (pair_bytes - KEY_BYTES).clamp(VALUE_BYTES_MIN, most)
}

/// YCSB's keys.
fn zipfian() -> Distribution {
    Distribution::Zipfian { theta: ZIPFIAN_THETA_DEFAULT }
}

/// Which keys are popular in a workload of the evaluation.
fn distribution_of(workload: Workload) -> Distribution {
    match workload {
        Workload::D => workload.usual_distribution(),
        _ => zipfian(),
    }
}

//! A scenario in a memory pool: several memory nodes, several compute nodes, several trainers.
//!
//! The judges are those of a server's scenarios, in each of the pool's lives; and when all is quiet: every
//! leaf that the chain leads to is at rest and nobody's, the leaves tile the keys, they hold what a scan
//! finds, training ends, and what is trained leads every GET to its leaf.

mod judge;
mod lives;
mod memory_node;
mod scenarios;
mod trainer;

use std::sync::Arc;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::sync::{AtomicUsize, Ordering};
use farsight_client::{Access, CatalogueError, PoolClient};
use farsight_fabric_sim::{Fault, Kind, SimConnection, Simulation};
use farsight_layout::pool::BlockGeometry;
use farsight_memory_node::MemoryNodeOptions;

use crate::Scenario;
use crate::classes::Mark;
use crate::client::{Client, End, Plan};
use crate::cluster::{Cluster as _, MemoryPool};
use crate::journal::Journal;
use crate::report::Report;
use crate::run::{FILLED_AGAIN_ONE_IN, LASTS_MAX, LOOK_AFTER, OPERATOR, TABLE, start};
use crate::scenario::PoolShape;
use lives::{Pools, Setting};

/// Where memory nodes listen, home first; a scenario has the first few.
const ADDRESSES: &[&str] = &["sim://a", "sim://b", "sim://c", "sim://d"];

/// What a pool's part of a scenario needs besides its plan.
struct Stage<'s, K: Kind> {
    scenario: &'s Scenario,
    pools: Arc<Pools<K>>,
    /// Of who fills the table and looks back: a compute node from the beginning that no rule stops.
    bystander: Arc<Plan<MemoryPool<K>>>,
    /// Processes that have work left.
    left: Arc<AtomicUsize>,
}

/// Runs `scenario`.
pub(crate) fn run_on<K: Kind>(
    scenario: &Scenario,
    shape: PoolShape,
    simulation: &Simulation,
    journal: &Journal,
) -> Result<Report, String> {
    let addresses = &ADDRESSES[..shape.memory_nodes];
    let geometry = BlockGeometry::new(scenario.value_bytes.into()).map_err(|error| error.to_string())?;
    let pools = Arc::new(Pools::<K>::start(Setting {
        simulation: simulation.clone(),
        addresses,
        options: MemoryNodeOptions {
            workers: scenario.workers,
            table_memory_bytes: (scenario.leaves * geometry.bytes()) as u64,
        },
        value_bytes: scenario.value_bytes,
        seed: scenario.seed,
    }));
    let bystander = Arc::new(scenario.plan::<MemoryPool<K>>(simulation, journal, addresses));
    let left = Arc::new(AtomicUsize::new(scenario.processes));
    let stage = Stage { scenario, pools, bystander, left };
    stage.begin()?;
    simulation.set_rules(scenario.rules.clone());
    stage.start_processes(shape.trainers);
    let all_ended = simulation.run_processes(MonotonicNs(0).plus(LASTS_MAX));
    let mut coverage = journal.coverage();
    coverage.strikes = simulation.strikes();
    simulation.set_rules(Vec::new());
    let stops = scenario.rules.iter().filter(|rule| rule.fault == Fault::PausedServer);
    let stopped_ns = stops.map(|rule| rule.duration_ns_max).max().unwrap_or(0);
    simulation.sleep(Duration::from_nanos(stopped_ns));
    if !all_ended {
        return Err(format!("a process still waits after {LASTS_MAX:?}"));
    }
    let leaves = stage.look_back(&coverage)?;
    let (events, trace_hash) = (simulation.events(), simulation.trace_hash());
    let lasted = simulation.now().since(MonotonicNs(0));
    journal.mark(Mark::HolderFenced, stage.pools.fenced());
    let mut coverage = journal.coverage();
    coverage.strikes = simulation.strikes();
    Ok(Report { splits: leaves - 1, events, trace_hash, lasted, coverage, ..Report::default() })
}

impl<K: Kind> Stage<'_, K> {
    /// Makes the table, fills it, and lets the bystander learn what there is to know at the beginning.
    fn begin(&self) -> Result<(), String> {
        self.pools.make_table().map_err(|error| error.to_string())?;
        let (scenario, bystander) = (self.scenario, &self.bystander);
        scenario.fill(bystander, 1).map_err(|_| "the table is not filled".to_owned())?;
        let reader = Client::<MemoryPool<K>>::open(bystander, bystander.seed);
        let known = reader.and_then(|mut reader| reader.read_keys(&scenario.keys));
        known.map_err(|_| "the table cannot be read".to_owned())
    }

    fn start_processes(&self, trainers: usize) {
        let Scenario { processes, programs, seed, .. } = *self.scenario;
        for process in 0..processes {
            let (group, seed) = (process % programs, seed ^ (process as u64) << 32);
            let plan = Plan { group, access: Access::OneSided, process, seed, ..self.bystander.again() };
            start(plan, programs, &self.left);
        }
        for trainer in 0..trainers {
            trainer::start(&self.bystander, trainer, trainers, &self.left);
        }
        if self.scenario.has_ends() {
            self.operate();
        }
    }

    /// Starts who looks after the memory nodes, until no compute node is left.
    fn operate(&self) {
        let (scenario, pools, left) =
            (self.scenario.clone(), Arc::clone(&self.pools), Arc::clone(&self.left));
        let process = scenario.processes + 1;
        let plan = Arc::new(Plan { group: OPERATOR, process, ..self.bystander.again() });
        let simulation = plan.simulation.clone();
        simulation.process("operator", OPERATOR, move || {
            let mut is_ready = true;
            // Relaxed: all of it happens on one thread.
            while left.load(Ordering::Relaxed) > 0 {
                is_ready &= !pools.succeed(&plan);
                if !is_ready {
                    match pools.make_table() {
                        Ok(()) => is_ready = fill_again(&scenario, &plan),
                        Err(error) => {
                            plan.excuse("making a table", &error, plan.allowed.catalogue(&error));
                        }
                    }
                }
                plan.simulation.sleep(LOOK_AFTER);
            }
        });
    }
}

fn fill_again<K: Kind>(scenario: &Scenario, plan: &Arc<Plan<MemoryPool<K>>>) -> bool {
    let filled = scenario.fill(plan, FILLED_AGAIN_ONE_IN);
    if matches!(filled, Err(End::Fenced)) {
        plan.programs.leave(plan.group);
    }
    filled.is_ok()
}

/// A client of the pool that `plan` names, for what is done below sessions.
fn connect<K: Kind>(plan: &Plan<MemoryPool<K>>) -> Result<PoolClient<SimConnection<K>>, CatalogueError> {
    let client = MemoryPool::<K>::connect(&plan.simulation, plan.addresses)?;
    client.open_table(TABLE)?;
    Ok(client)
}

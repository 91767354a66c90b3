//! A scenario in a memory pool: several memory nodes, several compute nodes, of ROLEX several trainers.
//!
//! The judges are those of a server's scenarios, in each of the pool's lives; and when all is quiet those of
//! its engine: [`judge`], [`parts`], [`hashed`].

mod hashed;
mod judge;
mod lives;
mod parts;
mod proxies;
mod repairs;
mod scenarios;
mod trainer;
mod wraps;

use std::sync::Arc;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicBool, AtomicUsize, Ordering};
use farsight_base::{Stamp, WORDS_PER_LINE};
use farsight_client::{Access, CatalogueError, PoolClient};
use farsight_fabric_sim::{Kind, SimConnection, SimRegion, Simulation};
use farsight_layout::OWNER_WORD;
use farsight_node::NodeOptions;

use crate::Scenario;
use crate::classes::{Coverage, Mark};
use crate::client::{End, Plan};
use crate::cluster::{Cluster, connect_pool};
use crate::journal::Journal;
use crate::report::Report;
use crate::run::{FILLED_AGAIN_ONE_IN, LASTS_MAX, LOOK_AFTER, OPERATOR, TABLE, start};
use crate::scenario::{PoolEngine, PoolShape};
use lives::{PoolSetting, Pools};

/// How long compute nodes of a pool that loses a node believe what they read.
const BELIEVED: Duration = Duration::from_micros(200);
/// A node is lost so long after the beginning, at most; its card may go on for as long.
const LOST_WITHIN_NS: u64 = 3_000_000;
/// Or for so long: others notice before that its processor is silent, and go on without it.
const FROZEN_NS_MAX: u64 = 12_000_000_000;

/// Where memory nodes listen, the coordinator first; a scenario has the first few.
pub(crate) const ADDRESSES: &[&str] = &["sim://a", "sim://b", "sim://c", "sim://d"];

/// A pool, and how it is judged.
pub(crate) trait JudgedPool<K: Kind>: Cluster<Kind = K> + Sized {
    /// Lets the bystander learn what there is to know at the beginning.
    fn remember(stage: &Stage<'_, K, Self>) -> Result<(), String>;

    /// Looks back, when all is quiet. Returns how often a leaf was split, at least. `met` is what the
    /// scenario met.
    fn look_back(stage: &Stage<'_, K, Self>, met: &Coverage) -> Result<u64, String>;
}

/// What a pool's part of a scenario needs besides its plan.
pub(crate) struct Stage<'s, K: Kind, C: Cluster> {
    scenario: &'s Scenario,
    pools: Arc<Pools<K>>,
    /// Of who fills the table and looks back: a compute node from the beginning that no rule stops.
    bystander: Arc<Plan<C>>,
    /// Processes that have work left.
    left: Arc<AtomicUsize>,
}

/// Runs `scenario`.
pub(crate) fn run_on<K: Kind, C: JudgedPool<K>>(
    scenario: &Scenario,
    shape: PoolShape,
    simulation: &Simulation,
    journal: &Journal,
) -> Result<Report, String> {
    let addresses = &ADDRESSES[..shape.memory_nodes];
    let pools = Arc::new(Pools::<K>::start(PoolSetting {
        simulation: simulation.clone(),
        addresses,
        options: NodeOptions {
            workers: scenario.workers,
            table_memory_bytes: scenario.pool_table_bytes(),
            author_secret: Some(scenario.seed),
            believed: if shape.loses_node { BELIEVED } else { NodeOptions::default().believed },
            ..NodeOptions::default()
        },
        key_kind: scenario.table_keys().kind(),
        value_bytes: scenario.value_bytes,
        engine: shape.engine,
        sample: if shape.engine == PoolEngine::XStoreD { scenario.sample() } else { Vec::new() },
        replicas: shape.replicas as u8,
        seed: scenario.seed,
    }));
    if shape.proxies > 0 {
        simulation.reach_by_address();
    }
    let bystander = Arc::new(scenario.plan::<C>(simulation, journal, addresses));
    let left = Arc::new(AtomicUsize::new(scenario.processes));
    let stage = Stage { scenario, pools, bystander, left };
    stage.pools.make_table().map_err(|error| error.to_string())?;
    if scenario.is_rolex() {
        watch_leaf_locks(simulation, scenario);
    }
    if scenario.first_stamp != Stamp(0) {
        let nodes = stage.pools.current();
        nodes.iter().enumerate().for_each(|(index, node)| scenario.age_leaves(node, index == 0));
    }
    scenario.fill(&stage.bystander, 1).map_err(|_| "the table is not filled".to_owned())?;
    C::remember(&stage)?;
    simulation.set_rules(scenario.rules.clone());
    stage.start_processes(shape);
    let all_ended = simulation.run_processes(MonotonicNs(0).plus(LASTS_MAX));
    let mut coverage = journal.coverage();
    coverage.strikes = simulation.strikes();
    simulation.set_rules(Vec::new());
    simulation.await_stopped_hosts();
    if let Some(what) = simulation.called_under_lock() {
        // Others wait for the lock as long as the processor takes, and a fence for its lease.
        return Err(what);
    }
    if !all_ended {
        return Err(format!("a process still waits after {LASTS_MAX:?}"));
    }
    let splits = stage.look_back(&coverage)?;
    if scenario.first_stamp != Stamp(0) {
        let nodes = stage.pools.current();
        let wrapped = nodes.iter().map(|node| scenario.wrapped_leaf_lines(node)).sum();
        journal.mark(Mark::Wrapped, wrapped);
    }
    let (events, trace_hash) = (simulation.events(), simulation.trace_hash());
    let lasted = simulation.now().since(MonotonicNs(0));
    let mut coverage = journal.coverage();
    coverage.strikes = simulation.strikes();
    Ok(Report { splits, events, lasted, trace_hash, coverage, ..Report::default() })
}

impl<K: Kind, C: JudgedPool<K>> Stage<'_, K, C> {
    fn look_back(&self, met: &Coverage) -> Result<u64, String> {
        // Who operates the nodes ends with the last program, perhaps before it has made the table again.
        let loses_node = self.scenario.pool.is_some_and(|shape| shape.loses_node);
        if !loses_node && (self.pools.succeed(&self.bystander) || self.scenario.has_ends()) {
            self.pools.make_table().map_err(|error| format!("looking back: {error}"))?;
        }
        if let Some(failure) = self.pools.current().iter().find_map(|node| node.failure().map(str::to_owned))
        {
            return Err(format!("a memory node met a bug: {failure}"));
        }
        C::look_back(self, met)
    }

    fn start_processes(&self, shape: PoolShape) {
        let Scenario { processes, programs, seed, .. } = *self.scenario;
        for process in 0..processes {
            let (group, seed) = (process % programs, seed ^ (process as u64) << 32);
            let access = if process % 4 == 3 { Access::Rpc } else { Access::OneSided };
            let plan = Plan { group, access, process, seed, ..self.bystander.again() };
            start(plan, programs, &self.left);
        }
        let PoolShape { trainers, group_sizes, proxies, .. } = shape;
        for proxy in 0..proxies {
            proxies::start::<K, C>(&self.bystander, (proxy, proxies), &self.left);
        }
        for trainer in 0..trainers {
            let sizes = group_sizes[trainer % group_sizes.len()];
            trainer::start::<K, C>(&self.bystander, trainer, (trainers, sizes), &self.left);
        }
        if self.scenario.has_ends() {
            self.operate();
        }
        match (shape.loses_node, shape.repairs_node) {
            (_, true) => self.lose_and_repair(shape),
            (true, false) => self.lose_node(shape),
            (false, false) => {}
        }
        if self.scenario.changes_names {
            let pools = Arc::clone(&self.pools);
            self.scenario.change_names(&self.bystander, &self.left, move || pools.make_table());
        }
    }

    /// Starts who looks after the memory nodes, until no compute node is left, and who fills the table each
    /// time that it is made anew. They are two: who fills may wait for a lease; a node that dies meanwhile
    /// is started again all the same.
    fn operate(&self) {
        let (scenario, pools) = (self.scenario.clone(), Arc::clone(&self.pools));
        let plan =
            Arc::new(Plan { group: OPERATOR, process: scenario.processes + 1, ..self.bystander.again() });
        let is_empty = Arc::new(AtomicBool::new(false));
        // Relaxed, here and below: all of it happens on one thread.
        let own = (Arc::clone(&plan), Arc::clone(&is_empty));
        let mut has_table = true;
        self.until_all_end("operator", move || {
            let (plan, is_empty) = &own;
            has_table &= !pools.succeed(plan);
            if !has_table {
                match pools.make_table() {
                    Ok(()) => {
                        has_table = true;
                        is_empty.store(true, Ordering::Relaxed);
                    }
                    Err(error) => plan.complain_of("making a table", &error, plan.allowed.catalogue(&error)),
                }
            }
        });
        self.until_all_end("filler", move || {
            if is_empty.swap(false, Ordering::Relaxed) && !fill_again(&scenario, &plan) {
                is_empty.store(true, Ordering::Relaxed);
            }
        });
    }

    /// Starts who ends one node for good, some time after the beginning: at once, or its processor first.
    fn lose_node(&self, PoolShape { memory_nodes, .. }: PoolShape) {
        let (simulation, pools) = (self.bystander.simulation.clone(), Arc::clone(&self.pools));
        let mut random = SplitMix64::new(self.scenario.seed ^ 0x656e_6473);
        self.bystander.simulation.process("fate", OPERATOR, move || {
            simulation.sleep(Duration::from_nanos(random.below(LOST_WITHIN_NS)));
            let node = random.below(memory_nodes as u64) as usize;
            lose(&simulation, &pools, node, &mut random);
        });
    }

    /// Starts a process of the operator's that acts now and then, until no compute node is left.
    fn until_all_end(&self, name: &str, mut act: impl FnMut() + Send + 'static) {
        let (simulation, left) = (self.bystander.simulation.clone(), Arc::clone(&self.left));
        self.bystander.simulation.process(name, OPERATOR, move || {
            while left.load(Ordering::Relaxed) > 0 {
                act();
                simulation.sleep(LOOK_AFTER);
            }
        });
    }
}

/// Has the simulation note who calls a processor while it holds the lock of a leaf.
fn watch_leaf_locks(simulation: &Simulation, scenario: &Scenario) {
    let (scenario, leaf_words) = (scenario.clone(), scenario.leaf_lines() * WORDS_PER_LINE);
    simulation.watch_locks(move |region: &SimRegion, word| {
        word % leaf_words == OWNER_WORD && scenario.has_leaves(region)
    });
}

/// Ends a node for good: at once, or its processor first.
fn lose<K: Kind>(simulation: &Simulation, pools: &Pools<K>, node: usize, random: &mut SplitMix64) {
    let node = Arc::clone(&pools.current()[node]);
    let frozen_ns = match random.below(3) {
        0 => return node.end(),
        1 => random.below(LOST_WITHIN_NS),
        _ => random.below(FROZEN_NS_MAX),
    };
    node.freeze(Duration::from_nanos(frozen_ns));
    // Its card has requests until then that nobody answers.
    simulation.sleep(Duration::from_nanos(frozen_ns));
}

fn fill_again<C: Cluster>(scenario: &Scenario, plan: &Arc<Plan<C>>) -> bool {
    let filled = scenario.fill(plan, FILLED_AGAIN_ONE_IN);
    if matches!(filled, Err(End::Fenced)) {
        plan.programs.leave(plan.group);
    }
    filled.is_ok()
}

/// A client of the pool that `plan` names, for what is done below sessions.
fn connect<K: Kind, C: JudgedPool<K>>(
    plan: &Plan<C>,
) -> Result<PoolClient<SimConnection<K>>, CatalogueError> {
    let client = connect_pool(&plan.simulation, plan.addresses)?;
    client.open_table(TABLE)?;
    Ok(client)
}

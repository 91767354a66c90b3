//! Clusters whose servers keep their tables on disks: they are killed, their power is cut, their disks fail,
//! and the next ones go on with what is there.
//!
//! Invariant: all lives of such a cluster are one history. What was acknowledged, and what anybody has read,
//! is there in all later lives.

mod machine;

use std::sync::Arc;

use farsight_base::clock::MonotonicNs;
use farsight_base::prng::SplitMix64;
use farsight_base::report::Quiet;
use farsight_base::sync::AtomicUsize;
use farsight_client::{Access, NewTable};
use farsight_fabric_sim::{Kind, ReliableConnection, Simulation, Weakest};
use farsight_node::NodeOptions;
use farsight_protocol::{Ack, TableDefinition};

use self::machine::{Ending, Machine, MachineSetting};
use crate::Scenario;
use crate::classes::Mark;
use crate::client::Plan;
use crate::cluster::{Cluster, OneServer, PartedPool};
use crate::journal::Journal;
use crate::look_back::{check_all_gone, check_blocks, check_counts, check_pairs, look_back, remember};
use crate::pool;
use crate::report::Report;
use crate::run::{ADDRESSES, LASTS_MAX, TABLE, start};

/// How servers keep their tables, and what befalls them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// When writes are acknowledged. If that is in memory, no power is cut.
    pub ack: Ack,
    /// Bytes of a segment of the log.
    pub segment_bytes: u64,
    /// Bytes by which the log grows between two rounds of snapshots.
    pub snapshot_bytes: u64,
    /// Bytes of a piece.
    pub piece_bytes: u64,
    /// How long a sync takes at most.
    pub sync_ns_max: u64,
    /// One sync in so many takes seconds.
    pub slow_syncs_one_in: Option<u64>,
    /// The longest life of a server, but for the last.
    pub life_ns_max: u64,
    /// Of a hundred ends those by a power cut; the others end the process alone.
    pub power_cuts_percent: u64,
    /// Of a hundred lives those in which an operation of the disk fails, or is the machine's last.
    pub disk_faults_percent: u64,
    /// Of a hundred lives those in which the disk is full, or soon will be.
    pub full_disks_percent: u64,
}

/// One sync in so many is slow, where some are.
const SLOW_SYNCS_ONE_IN: u64 = 200;

impl Kept {
    /// What `seed` decides of it.
    pub(crate) fn of_seed(seed: u64) -> Self {
        let mut random = SplitMix64::new(seed ^ 0x6b65_7074);
        let mut one_of = |from: &[u64]| from[random.below(from.len() as u64) as usize];
        Self {
            ack: if one_of(&[0, 0, 0, 1]) == 1 { Ack::Memory } else { Ack::Durable },
            segment_bytes: one_of(&[4 << 10, 16 << 10, 64 << 10]),
            snapshot_bytes: one_of(&[8 << 10, 32 << 10, 128 << 10]),
            piece_bytes: one_of(&[500, 2_000, 8_000]),
            sync_ns_max: one_of(&[2_000, 40_000, 400_000]),
            slow_syncs_one_in: (one_of(&[0, 0, 0, 1]) == 1).then_some(SLOW_SYNCS_ONE_IN),
            life_ns_max: one_of(&[500_000, 2_000_000, 8_000_000]),
            power_cuts_percent: one_of(&[0, 50, 100]),
            disk_faults_percent: one_of(&[0, 30, 60]),
            full_disks_percent: one_of(&[0, 0, 20]),
        }
    }
}

/// Runs `scenario`.
pub(crate) fn run(
    scenario: &Scenario,
    kept: Kept,
    simulation: &Simulation,
    journal: &Journal,
) -> Result<Report, String> {
    let _quiet = Quiet::begin();
    let own = (scenario, kept, simulation, journal);
    match (scenario.pool.is_some(), scenario.is_weakest) {
        (false, true) => run_on::<_, OneServer<Weakest>>(own),
        (false, false) => run_on::<_, OneServer<ReliableConnection>>(own),
        (true, true) => run_on::<_, PartedPool<Weakest>>(own),
        (true, false) => run_on::<_, PartedPool<ReliableConnection>>(own),
    }
}

fn run_on<K: Kind, C: Cluster<Kind = K>>(
    (scenario, kept, simulation, journal): (&Scenario, Kept, &Simulation, &Journal),
) -> Result<Report, String> {
    let addresses = scenario.pool.map_or(ADDRESSES, |shape| &pool::ADDRESSES[..shape.memory_nodes]);
    let left = Arc::new(AtomicUsize::new(scenario.processes));
    let bystander = Arc::new(scenario.plan::<C>(simulation, journal, addresses));
    let machines = start_machines::<K>(scenario, kept, addresses, &bystander, &left)?;
    make_table(scenario, &bystander)?;
    scenario.fill(&bystander, 1).map_err(|_| "the table is not filled".to_owned())?;
    remember(&bystander)?;
    simulation.set_rules(scenario.rules.clone());
    for process in 0..scenario.processes {
        let (group, seed) = (process % scenario.programs, scenario.seed ^ (process as u64) << 32);
        let access = if process % 4 == 3 { Access::Rpc } else { Access::OneSided };
        start(Plan { group, access, process, seed, ..bystander.again() }, scenario.programs, &left);
    }
    machines.iter().for_each(Machine::begin_fate);
    let all_ended = simulation.run_processes(MonotonicNs(0).plus(LASTS_MAX));
    let strikes = simulation.strikes();
    simulation.set_rules(Vec::new());
    simulation.await_stopped_hosts();
    if !all_ended {
        return Err(format!("a process still waits after {LASTS_MAX:?}"));
    }
    // Whatever was acknowledged last is on the disks, too.
    let last = if kept.ack == Ack::Durable { Ending::PowerCut } else { Ending::OfTheProcess };
    machines.iter().try_for_each(|machine| machine.end_last(last))?;
    let found = look_back(&bystander)?;
    let (events, trace_hash) = (simulation.events(), simulation.trace_hash());
    let lasted = simulation.now().since(MonotonicNs(0));
    let (mut pairs, mut splits) = (0, 0);
    for machine in &machines {
        let node = machine.node();
        let table = check_counts(node.stats(), &node.regions(), false)?;
        let part = table.part();
        (pairs, splits) = (pairs + part.tree.pairs, splits + part.tree.splits);
        journal.mark(Mark::Retrained, part.model.retrained + part.model.generation.saturating_sub(1));
    }
    check_pairs(pairs, found)?;
    check_all_gone(&bystander)?;
    if let [machine] = &machines[..] {
        check_blocks(&machine.node(), simulation, found)?;
    }
    let mut coverage = journal.coverage();
    coverage.strikes = strikes;
    Ok(Report { splits, events, lasted, trace_hash, coverage, ..Report::default() })
}

fn start_machines<K: Kind>(
    scenario: &Scenario,
    kept: Kept,
    addresses: &'static [&'static str],
    bystander: &Arc<Plan<impl Cluster>>,
    left: &Arc<AtomicUsize>,
) -> Result<Vec<Arc<Machine<K>>>, String> {
    let leaves_bytes = (scenario.leaves * scenario.geometry().leaf_bytes()) as u64;
    let options = NodeOptions {
        workers: scenario.workers,
        table_memory_bytes: scenario.block_bytes.unwrap_or(leaves_bytes),
        author_secret: Some(scenario.seed),
        ..NodeOptions::default()
    };
    let start = |(index, address): (usize, &&'static str)| {
        Machine::start(MachineSetting {
            simulation: bystander.simulation.clone(),
            journal: bystander.journal.clone(),
            left: Arc::clone(left),
            address,
            options: options.clone(),
            kept,
            seed: scenario.seed ^ (index as u64) << 40,
        })
    };
    addresses.iter().enumerate().map(start).collect()
}

fn make_table<C: Cluster>(scenario: &Scenario, plan: &Plan<C>) -> Result<(), String> {
    let kind = scenario.table_keys().kind();
    let definition = TableDefinition {
        values: scenario.values(),
        ..TableDefinition::new(TABLE, kind, scenario.value_bytes)
    };
    let sample = scenario.pool.map_or_else(Vec::new, |_| scenario.sample());
    let engine = scenario.pool.map(|shape| shape.engine.kind());
    let made = C::connect(&plan.simulation, plan.addresses)
        .and_then(|client| client.create_table(NewTable { definition, engine, sample }));
    made.map(drop).map_err(|error| error.to_string())
}

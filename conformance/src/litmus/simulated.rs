//! Programs over the simulated fabric: a process for each client, under many seeds.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use farsight_base::clock::MonotonicNs;
use farsight_base::prng::SplitMix64;
use farsight_base::sync::Ordering;
use farsight_base::{LINE_BYTES, RegionId, WORDS_PER_LINE};
use farsight_fabric::{Connection, Guarantees, Host, QueuePair, RegionRights};
use farsight_fabric_sim::{Fault, Kind, Rule, SimQueue, Simulation, Timing};

use super::client::{Rewriter, WORD, perform, queue_count};
use super::{LINES, Program, Seen, Step, WORDS};
use crate::fabric::FabricUnderTest;
use crate::fabric::harness::{FORMAT, at};

/// Seeds that are sampled whatever they show.
const SEEDS_MIN: u64 = 60;
/// Seeds that are sampled while an outcome that may happen is missing.
const SEEDS_MAX: u64 = 1_500;
/// Runs of the program under each.
const RUNS: u64 = 64;
/// Virtual time of a run: more than any takes.
const RUN_NS: u64 = 1_000_000;
/// All clients of a run begin within this time.
const LAG_NS: u64 = 5_000;
/// Calls of one step of the server.
const STEP_CALLS: usize = 4;
const ADDRESS: &str = "sim://litmus";

/// A simulated card that promises what `F` does.
pub struct Like<F>(PhantomData<fn() -> F>);

impl<F> fmt::Debug for Like<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Like")
    }
}

impl<F: FabricUnderTest + 'static> Kind for Like<F> {
    const GUARANTEES: Guarantees = <QueueOf<F> as QueuePair>::GUARANTEES;
}

type QueueOf<F> = <<F as FabricUnderTest>::Connection as Connection>::Queue;

/// What the clients of one seed found, run by run: the client, its registers.
type Found = Arc<Mutex<Vec<Vec<(usize, Vec<u64>)>>>>;

/// The outcomes under as many seeds as it takes to see all of them.
///
/// # Panics
/// If the simulation does not end.
#[must_use]
pub fn sample<K: Kind>(program: &Program) -> Seen {
    let mut seen = Seen::new();
    for seed in 0..SEEDS_MAX {
        if seed >= SEEDS_MIN && program.check_simulator(&K::GUARANTEES, &seen).is_ok() {
            break;
        }
        run_seed::<K>(program, seed, rules(seed), &mut seen);
    }
    seen
}

/// The outcomes under as many seeds on a card that has one fault more.
///
/// # Panics
/// If the simulation does not end.
#[must_use]
pub fn sample_with<K: Kind>(program: &Program, fault: &Rule) -> Seen {
    let mut seen = Seen::new();
    for seed in 0..SEEDS_MIN {
        let rules = [rules(seed), vec![fault.clone()]].concat();
        run_seed::<K>(program, seed, rules, &mut seen);
    }
    seen
}

/// What delays things without breaking any: nothing, one side, the other, or all.
fn rules(seed: u64) -> Vec<Rule> {
    let rule = |fault| Rule::always(fault, 3, 10_000);
    let verbs = [Fault::SlowVerb, Fault::SpreadRead, Fault::LateCompletion].map(rule);
    let processor = [Fault::SlowWriter, Fault::SlowCall].map(rule);
    match seed % 4 {
        0 => Vec::new(),
        1 => verbs.to_vec(),
        2 => processor.to_vec(),
        _ => [&verbs[..], &processor].concat(),
    }
}

fn run_seed<K: Kind>(program: &Program, seed: u64, rules: Vec<Rule>, outcomes: &mut Seen) {
    let simulation = Simulation::new(seed, Timing::default(), rules);
    let host = simulation.listen::<K>(ADDRESS, FORMAT);
    let length_bytes = RUNS * (LINES * LINE_BYTES) as u64;
    let region = host.create_region(length_bytes, RegionRights::ReadWrite).expect("a region");
    let mut port = host.open_port().expect("a port");
    let mut rewriter = Rewriter::new(&region);
    host.run_port(0, move |now| {
        let did = rewriter.turn(&mut port, STEP_CALLS);
        (rewriter.has_parked() || did == STEP_CALLS).then_some(now)
    });
    let found: Found = Arc::new(Mutex::new(vec![Vec::new(); RUNS as usize]));
    let mut connections = Vec::new();
    for (client, steps) in program.clients.iter().enumerate() {
        let connection = simulation.connect::<K>(ADDRESS, FORMAT).expect("a connection");
        let queues: Vec<SimQueue<K>> =
            (0..queue_count(steps)).map(|_| connection.open_queue().expect("a queue")).collect();
        connections.push(connection);
        let (own, found, region) = (simulation.clone(), Arc::clone(&found), region.id());
        let random = SplitMix64::new(seed ^ (client as u64 + 1) << 32);
        simulation.process(&format!("client {client}"), client, move || {
            run_client(&own, steps, queues, region, random, |run, registers| {
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                found[run].push((client, registers));
            });
        });
    }
    assert!(simulation.run_processes(MonotonicNs(RUN_NS * (RUNS + 1))), "{}: it ends", program.name);
    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
    for (run, registers) in found.iter_mut().enumerate() {
        registers.sort_unstable();
        let finals = program.finals.iter().map(|line| {
            let word = run * WORDS + line * WORDS_PER_LINE + WORD;
            region.words()[word].load(Ordering::Relaxed)
        });
        let outcome = registers.iter().flat_map(|(_, registers)| registers.iter().copied()).chain(finals);
        *outcomes.entry(outcome.collect()).or_default() += 1;
    }
}

/// One client's runs.
fn run_client<K: Kind>(
    simulation: &Simulation,
    steps: &[Step],
    mut queues: Vec<SimQueue<K>>,
    region: RegionId,
    mut random: SplitMix64,
    note: impl Fn(usize, Vec<u64>),
) {
    for queue in &mut queues {
        queue.attach(region).expect("the region attaches");
    }
    for run in 0..RUNS {
        let begins = MonotonicNs(RUN_NS * run + random.below(LAG_NS));
        simulation.sleep(begins.since(simulation.now()));
        let base = at(region, run * (LINES * LINE_BYTES) as u64);
        note(run as usize, perform(steps, &mut queues, base, random.below(2) == 0));
    }
}

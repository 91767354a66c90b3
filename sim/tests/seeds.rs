//! Seeds: each has one trace, all of them pass, and together they meet every class of faults.

use std::num::NonZeroUsize;
use std::sync::Arc;

use farsight_fabric_sim::Fault;
use farsight_sim::{Campaign, Named, PoolShape, SCENARIOS, Tally, named, run_seed};

/// Seeds of any scenario, and those of `mixed` that the gate runs besides.
const SEEDS: u64 = 2_000;
const SEEDS_OF_THE_GATE: u64 = 4_000;
/// A machine is not believed to have more cores.
const THREADS_MAX: usize = 64;

#[test]
fn a_seed_has_one_trace() {
    let hash = |seed: u64| match run_seed(seed, &SCENARIOS[0], false) {
        Ok(report) => report.trace_hash,
        Err(failure) => panic!("{failure}"),
    };
    let hashes: Vec<u64> = (1..=100).map(hash).collect();
    for (seed, earlier) in (1..=100).zip(&hashes) {
        assert_eq!(hash(seed), *earlier, "seed {seed} went another way");
    }
    let mut different = hashes.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), hashes.len(), "two seeds went one way");
}

/// Runs `seeds` seeds from `first` on, on every core.
fn run_seeds(scenario: &'static Named, first: u64, seeds: u64) -> Tally {
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(THREADS_MAX);
    let tally = Campaign { scenario, first, seeds, threads }.run(|| false, &Arc::default(), |_| ());
    if let Some(failure) = tally.failures.first() {
        panic!("{} of {seeds} seeds failed, the first so: {failure}", tally.failures.len());
    }
    tally
}

#[test]
fn seeds_pass_and_meet_every_class_of_faults() {
    let of_the_gate = std::env::var("FARSIGHT_CI").is_ok_and(|value| value == "1");
    if of_the_gate {
        run_seeds(named("mixed").expect("a scenario"), 100_000, SEEDS_OF_THE_GATE);
    }
    let sum = run_seeds(&SCENARIOS[0], 100_000, SEEDS);
    let never: Vec<&str> = sum.coverage.never_met().map(|class| class.name).collect();
    assert!(never.is_empty(), "{SEEDS} seeds met none of {never:?}");
    // Calls are reliable where a server is told to be one, and a completed WRITE is in memory.
    let never: Vec<Fault> =
        Fault::ALL.into_iter().filter(|fault| sum.coverage.strikes.of(*fault) == 0).collect();
    assert_eq!(never, [Fault::EarlyCompletion, Fault::DoubledCall], "{:?}", sum.coverage);
    let Tally { splits, unknown_writes, operations, .. } = sum;
    assert!(splits > 5_000 && unknown_writes > 5_000, "{splits} splits, {unknown_writes} unknown outcomes");
    assert!(operations > 2_000 * SEEDS, "{operations} operations");
}

/// Whoever joins a pool does something before it leaves. (Seed 10,366 of `pool-trainers` was one whose
/// newcomers left at once, for ever.)
#[test]
fn newcomers_come_to_an_end() {
    let mut scenario = named("pool").expect("a scenario").scenario(3);
    scenario.pool = scenario.pool.map(|shape| PoolShape { leaves_one_in: Some(1), ..shape });
    scenario.operations = 80;
    for scenario in [scenario, named("pool-trainers").expect("a scenario").scenario(10_366)] {
        if let Err(failure) = scenario.run(false, &Arc::default()) {
            panic!("{failure}");
        }
    }
}

#[test]
fn every_scenario_passes_by_its_name() {
    for scenario in SCENARIOS {
        let sum = run_seeds(scenario, 1, 20);
        assert!(sum.operations > 20_000, "{}: {} operations", scenario.name, sum.operations);
    }
}

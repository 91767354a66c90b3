//! Servers that keep their tables, and die, or their machines do: what was acknowledged is there in all later
//! lives, and calls that are repeated act once.

use farsight_sim::{Coverage, Mark, Named, named, run_seed};

/// Seeds that are the same in each run; each is run twice.
const SEEDS: u64 = 25;

fn scenario(name: &str) -> &'static Named {
    named(name).expect("a scenario")
}

/// Runs seeds of a scenario twice: each has one trace. Returns what they met.
fn coverage_of_twins(name: &str) -> Coverage {
    let run = |seed| run_seed(seed, scenario(name), false).unwrap_or_else(|failure| panic!("{failure}"));
    let mut coverage = Coverage::default();
    for seed in 1..=SEEDS {
        let report = run(seed);
        assert_eq!(report.trace_hash, run(seed).trace_hash, "seed {seed} went another way");
        coverage.add(&report.coverage);
    }
    coverage
}

fn assert_meets_all(name: &str) {
    let coverage = coverage_of_twins(name);
    let marks = [
        Mark::Recovered,
        Mark::EndedInFlight,
        Mark::TailLost,
        Mark::DiskFailed,
        Mark::DiskFull,
        Mark::StartFailed,
        Mark::Snapshot,
        Mark::SegmentRemoved,
    ];
    let seen = marks.map(|mark| (mark, coverage.seen(mark)));
    println!("{name}: {seen:?}");
    assert!(seen.iter().all(|(_, times)| *times > 0), "{name}: {seen:?}");
}

/// Of two calls of a batch that were under way together a full disk refused the first one alone. The caller
/// was told that the batch was refused.
#[test]
fn a_batch_of_which_one_call_was_refused_is_not_said_to_have_changed_nothing() {
    run_seed(820_979_920_799, scenario("kept"), false).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn what_a_server_keeps_is_there_in_all_later_lives() {
    assert_meets_all("kept");
}

#[test]
fn what_a_pool_keeps_is_there_in_all_later_lives() {
    assert_meets_all("parts-kept");
}

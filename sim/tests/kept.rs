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

#[test]
fn what_a_server_keeps_is_there_in_all_later_lives() {
    assert_meets_all("kept");
}

#[test]
fn what_a_pool_keeps_is_there_in_all_later_lives() {
    assert_meets_all("parts-kept");
}

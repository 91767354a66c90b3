//! Seeds: each has one trace, all of them pass, and together they meet every fault.

use farsight_fabric_sim::Fault;
use farsight_sim::{Coverage, Scenario};

#[test]
fn a_seed_has_one_trace() {
    let hash = |seed: u64| match Scenario::of_seed(seed).run(false) {
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

#[test]
fn seeds_pass_and_meet_every_fault() {
    let mut coverage = Coverage::default();
    let (mut splits, mut unknown, mut found, mut absent) = (0, 0, 0, 0);
    for seed in 1_000..1_400 {
        let report = Scenario::of_seed(seed).run(false).unwrap_or_else(|failure| panic!("{failure}"));
        coverage.add(&report.coverage);
        splits += report.splits;
        unknown += report.unknown_writes;
        found += report.found;
        absent += report.absent;
    }
    assert!(coverage.never_met().next().is_none(), "{:?}", coverage.never_met().collect::<Vec<_>>());
    // Calls are reliable where a server is told to be one; no scenario doubles them.
    let never: Vec<Fault> = Fault::ALL.into_iter().filter(|fault| coverage.strikes.of(*fault) == 0).collect();
    assert_eq!(never, [Fault::DoubledCall], "{coverage:?}");
    assert!(splits > 1_000 && unknown > 1_000, "{splits} splits, {unknown} writes of unknown outcome");
    assert!(found > 100_000 && absent > 100_000, "{found} reads found their key, {absent} did not");
}

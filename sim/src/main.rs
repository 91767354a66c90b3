//! `farsight-sim [FIRST [COUNT]] [--trace]`: runs the scenarios of seeds, and says what came of them.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Instant;

use farsight_sim::{CLASSES, Coverage, SCENARIOS, run_seed};

fn main() -> ExitCode {
    let mut numbers = Vec::new();
    let mut keeps_trace = false;
    for argument in std::env::args().skip(1) {
        match argument.parse::<u64>() {
            Ok(number) => numbers.push(number),
            Err(_) if argument == "--trace" => keeps_trace = true,
            Err(_) => {
                eprintln!("farsight-sim [FIRST [COUNT]] [--trace], got {argument:?}");
                return ExitCode::FAILURE;
            }
        }
    }
    let first = numbers.first().copied().unwrap_or(1);
    let count = numbers.get(1).copied().unwrap_or(1);
    let started = Instant::now();
    let mut coverage = Coverage::default();
    let (mut entries, mut unknown, mut splits, mut events, mut failed) = (0, 0, 0, 0, 0);
    for seed in first..first + count {
        match run_seed(seed, &SCENARIOS[0], keeps_trace) {
            Ok(report) => {
                coverage.add(&report.coverage);
                entries += report.entries;
                unknown += report.unknown_writes;
                splits += report.splits;
                events += report.events;
            }
            Err(failure) => {
                failed += 1;
                println!("{failure}\nreplay: farsight-sim {seed} 1 --trace");
            }
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let rate = count as f64 / seconds;
    println!("{count} seeds from {first} in {seconds:.2} s: {rate:.0}/s, {failed} failed");
    println!("{entries} entries, {unknown} writes of unknown outcome, {splits} splits, {events} events");
    for class in CLASSES {
        println!("  {:>3} {}: {:?}", class.id, class.name, coverage.met(class));
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

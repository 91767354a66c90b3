//! Prints the table of litmus programs in `docs/simulator.md`: what shared memory shows here and now, and
//! what the simulator with its guarantees shows besides.
//!
//! `cargo run --release -p farsight-conformance --example litmus`

#![forbid(unsafe_code)]

use farsight_conformance::fabric::shm::Shm;
use farsight_conformance::litmus::{Program, Seen, guarantees_of, programs, simulated, threads};

/// What is rare wants many runs.
const ROUNDS: usize = 8;

fn main() {
    println!("| program | registers | seen on shared memory | only in the simulator | never, by a promise |");
    println!("|---|---|---|---|---|");
    for program in programs::ALL {
        let mut real = Seen::new();
        for _ in 0..ROUNDS {
            real.extend(threads::observe(program, &Shm::new()));
        }
        println!("{}", row(program, &real, &simulated::sample::<simulated::Like<Shm>>(program)));
    }
}

fn row(program: &Program, real: &Seen, simulated: &Seen) -> String {
    let guarantees = guarantees_of::<Shm>();
    let only = simulated.keys().filter(|registers| !real.contains_key(*registers));
    let ruled_out = program.outcomes.iter().filter(|outcome| !outcome.is_possible(&guarantees));
    let ruled_out: Vec<String> = ruled_out
        .map(|outcome| {
            let promise = outcome.unless.expect("a promise rules it out");
            format!("{} ({})", program.values(outcome.registers), promise.name)
        })
        .collect();
    format!(
        "| {} | {} | {} | {} | {} |",
        program.name,
        program.registers.join(", "),
        list(program, real.keys()),
        list(program, only),
        ruled_out.join("; ")
    )
}

fn list<'s>(program: &Program, outcomes: impl Iterator<Item = &'s Vec<u64>>) -> String {
    outcomes.map(|registers| program.values(registers)).collect::<Vec<_>>().join("; ")
}

//! What it costs to hand the processor from one piece of waiting code to another: by coroutines, as processes
//! do it, and by threads that pass a baton.
//!
//! `cargo run --release -p farsight-fabric-sim --example switch_cost`

use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use farsight_base::clock::MonotonicNs;
use farsight_fabric_sim::{Simulation, Timing};

const SWITCHES: u32 = 200_000;

/// Two processes that sleep in turn, the loop of events included.
fn processes() -> Duration {
    let simulation = Simulation::new(1, Timing::default(), Vec::new());
    for process in 0..2 {
        let own = simulation.clone();
        simulation.process("sleeper", process, move || {
            for _ in 0..SWITCHES / 2 {
                own.sleep(Duration::from_nanos(10));
            }
        });
    }
    let started = Instant::now();
    assert!(simulation.run_processes(MonotonicNs(u64::MAX)), "both end");
    started.elapsed()
}

/// Two threads, one of which runs at a time.
fn threads() -> Duration {
    let (to_other, from_one) = sync_channel::<()>(1);
    let (to_one, from_other) = sync_channel::<()>(1);
    let other = std::thread::spawn(move || {
        for () in from_one {
            if to_one.send(()).is_err() {
                return;
            }
        }
    });
    let started = Instant::now();
    for _ in 0..SWITCHES / 2 {
        to_other.send(()).expect("the other thread listens");
        from_other.recv().expect("the other thread answers");
    }
    let took = started.elapsed();
    drop(to_other);
    other.join().expect("the other thread ends");
    took
}

fn main() {
    for round in 1..=5 {
        let (process, thread) = (processes() / SWITCHES, threads() / SWITCHES);
        println!("round {round}: {process:?} a switch by processes, {thread:?} by threads");
    }
}

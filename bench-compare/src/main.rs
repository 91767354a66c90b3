//! Farsight beside other stores: the same keys and operations, in one run, in turns.
//!
//! Invariants: every answer is checked, for every store; a wrong one ends the run. Stores take turns within
//! each round, and what is quoted is the median over the rounds of quotients within a round, so that a noisy
//! machine is noisy for all. All of them run on one thread, on one core.
//!
//! Protocol: load every store; fill Farsight's client cache, build the static tree; then, work by work, the
//! rounds. Works that insert come last: no read is measured on a store that another work has grown.

mod arguments;
mod children;
mod document;
mod durable;
mod network;
mod peers;
mod process;
mod redis;
mod rounds;
mod store;
mod stores;
mod surroundings;
mod table;
mod tally;
mod values;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use arguments::{Arguments, Child};

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    match arguments.child {
        Some(Child::Server { socket, core, listen, data, ack }) => {
            children::serve(&socket, core, listen, data.as_deref().map(|data| (data, ack)))
        }
        Some(Child::LoadLmdb { directory, keys }) => children::load_lmdb(&directory, &keys),
        Some(Child::RedisServer { program, port, core, sync }) => {
            match redis::become_server(&program, port, core, sync)? {}
        }
        Some(Child::Redis(network)) => network::run(&network),
        Some(Child::Durable(durable)) => durable::run(&durable),
        Some(Child::Values(values)) => values::run(&values),
        None => rounds::run(&arguments.comparison),
    }
}

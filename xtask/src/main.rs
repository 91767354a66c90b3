//! The chores: `cargo xtask tidy` prints what breaks the rules of STYLE.md that a program can check. `fuzz`
//! runs the fuzz targets. `models` and `sanitize` run concurrent code under model checkers and sanitizers.
//! `softroce` runs a command where there is RDMA.

#![forbid(unsafe_code)]
#![expect(clippy::print_stderr, reason = "a chore talks to the person who runs it")]

use std::process::ExitCode;

use anyhow::bail;
use xtask::tidy::{self, Tree};
use xtask::{fuzz, models, sanitize, softroce};

const USAGE: &str = "usage: cargo xtask tidy | fuzz [TARGET] [--seconds N] | models [loom | shuttle] | \
                     sanitize [thread | address] [--short] | softroce [COMMAND...]";

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => run_tidy(),
        ["fuzz", rest @ ..] => fuzz::run(&tidy::repository_root(), rest).map(|()| ExitCode::SUCCESS),
        ["models", rest @ ..] => models::run(&tidy::repository_root(), rest).map(|()| ExitCode::SUCCESS),
        ["sanitize", rest @ ..] => sanitize::run(&tidy::repository_root(), rest).map(|()| ExitCode::SUCCESS),
        ["softroce", rest @ ..] => softroce::run(&tidy::repository_root(), rest),
        [] => bail!("no task given; {USAGE}"),
        _ => bail!("no such task: {}; {USAGE}", arguments.join(" ")),
    }
}

fn run_tidy() -> anyhow::Result<ExitCode> {
    let tree = Tree::read(&tidy::repository_root())?;
    let violations = tidy::violations(&tree);
    for violation in &violations {
        println!("{violation}");
    }
    if violations.is_empty() {
        println!("tidy: {} files, {} checks, nothing found", tree.paths().count(), tidy::CHECKS.len());
        return Ok(ExitCode::SUCCESS);
    }
    println!("tidy: {} found in {} files", violations.len(), tree.paths().count());
    Ok(ExitCode::FAILURE)
}

//! `cargo xtask tidy`: prints what breaks the rules of STYLE.md that a program can check. `cargo xtask fuzz`:
//! runs the fuzz targets under libFuzzer.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::bail;
use xtask::fuzz;
use xtask::tidy::{self, Tree};

const USAGE: &str = "usage: cargo xtask tidy | fuzz [TARGET] [--seconds N]";

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => run_tidy(),
        ["fuzz", rest @ ..] => fuzz::run(&tidy::repository_root(), rest).map(|()| ExitCode::SUCCESS),
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

//! `cargo xtask models`: the models of concurrent code, under loom and under shuttle.
//!
//! Invariant: a run counts only if each crate with models ran some. That they see is their own business: each
//! has a test that injects bugs and fails unless they are found (`farsight_base::injection`).

use std::path::Path;
use std::time::Instant;

use anyhow::{bail, ensure};

use crate::cargo::Tests;

/// The crates with models under each checker.
const MODELS: &[(&str, &[&str])] = &[
    (
        "loom",
        &[
            "farsight-base",
            "farsight-fabric-host",
            "farsight-fabric-shm",
            "farsight-index-xstore",
            "farsight-index-rolex",
            "farsight-index-flexkv",
            "farsight-node",
        ],
    ),
    (
        "shuttle",
        &[
            "farsight-base",
            "farsight-blocks",
            "farsight-fabric-host",
            "farsight-fabric-shm",
            "farsight-index-xstore",
            "farsight-index-rolex",
            "farsight-index-flexkv",
            "farsight-node",
        ],
    ),
];

/// Runs the models of the checker that `arguments` name, or of both.
///
/// # Errors
/// What failed.
pub fn run(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let chosen = match arguments {
        [] => None,
        [name] if MODELS.iter().any(|(checker, _)| checker == name) => Some(*name),
        _ => bail!("usage: cargo xtask models [loom | shuttle]"),
    };
    for (checker, packages) in MODELS.iter().filter(|(checker, _)| chosen.is_none_or(|name| name == *checker))
    {
        let started = Instant::now();
        let flags = format!("--cfg {checker} --cfg portable_words -Dwarnings");
        let directory = format!("models-{checker}");
        let mut arguments: Vec<&str> = packages.iter().flat_map(|package| ["-p", package]).collect();
        arguments.extend(["--lib", "models"]);
        let outcome = Tests { root, directory: &directory, flags: &flags, arguments }.run(true)?;
        ensure!(outcome.succeeded, "models fail under {checker}");
        let ran = &outcome.passed;
        ensure!(
            ran.len() == packages.len() && ran.iter().all(|count| *count > 0),
            "models of {} crates are due under {checker}, and those that ran were {ran:?}",
            packages.len()
        );
        let (sum, seconds) = (ran.iter().sum::<usize>(), started.elapsed().as_secs());
        println!("models: {sum} tests under {checker} passed, {seconds} s with their build");
    }
    Ok(())
}

//! Suites by narrower vectors than this processor's widest, each width in a process of its own: a process
//! never changes its width.

use std::process::Command;

use farsight_base::vectors::{VARIABLE, Vectors};

/// Runs the tests of this program whose names contain `filter` by each width but the widest. `own` is the
/// name of the test that calls this, which is left out.
///
/// # Panics
/// If one fails, or none runs.
pub fn run_narrower(filter: &str, own: &str) {
    let widest = Vectors::widest();
    for vectors in Vectors::ALL.into_iter().filter(|vectors| *vectors < widest) {
        let mut process = Command::new(std::env::current_exe().expect("this program"));
        process.args([filter, "--skip", own]).env(VARIABLE, vectors.name());
        let output = process.output().expect("a process");
        let said = String::from_utf8_lossy(&output.stdout);
        let reported = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "by {}:\n{said}\n{reported}", vectors.name());
        let (_, passed) = said.split_once("test result: ok. ").expect("a result");
        assert!(!passed.starts_with("0 passed"), "by {} no test runs: {said}", vectors.name());
    }
}

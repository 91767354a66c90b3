//! `cargo xtask sanitize`: the tests of concurrent code under ThreadSanitizer and AddressSanitizer.
//!
//! Invariant: a run counts only if it sees: first of all an injected bug of the sanitizer's own kind must be
//! found. No report is suppressed.
//!
//! Protocol: the standard library is built along (`-Zbuild-std`), for in one that is not instrumented its
//! locks and reference counts are invisible, and all that they guard seems to race. ThreadSanitizer knows no
//! fences; lines are copied by relaxed words (`--cfg portable_words`), so where the seqlocks are it sees
//! atomics alone, and judges what is reached through them.

use std::path::Path;
use std::time::Instant;

use anyhow::{bail, ensure};

use crate::cargo::{Outcome, Tests, ask_rustc};

const USAGE: &str = "usage: cargo xtask sanitize [thread | address] [--short]";
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Arguments of cargo that choose tests; `--short` runs the first line alone.
const TESTS: &[&[&str]] = &[
    &["-p", "farsight-index-xstore", "--test", "tree_concurrent"],
    &["-p", "farsight-index-xstore", "--test", "tree_model", "--test", "tree_training"],
    &["-p", "farsight-fabric-shm", "--test", "shm"],
    &["-p", "farsight-conformance", "--test", "fabric_shm", "--test", "engine_xstore"],
    &["-p", "farsight-conformance", "--test", "engine_interleavings"],
];

/// A sanitizer, its injected bug, and what it must say of it.
struct Sanitizer {
    name: &'static str,
    canary: &'static str,
    finding: &'static str,
}

const SANITIZERS: &[Sanitizer] = &[
    Sanitizer { name: "thread", canary: "a_data_race", finding: "ThreadSanitizer: data race" },
    Sanitizer {
        name: "address",
        canary: "a_use_after_free",
        finding: "AddressSanitizer: heap-use-after-free",
    },
];

/// Runs the sanitizer that `arguments` name, or both.
///
/// # Errors
/// What the toolchain lacks, what was found, or that an injected bug was not.
pub fn run(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let is_sanitizer = |name: &&str| SANITIZERS.iter().any(|one| one.name == *name);
    let (chosen, tests) = match arguments {
        [] => (None, TESTS),
        ["--short"] => (None, &TESTS[..1]),
        [name] if is_sanitizer(name) => (Some(*name), TESTS),
        [name, "--short"] if is_sanitizer(name) => (Some(*name), &TESTS[..1]),
        _ => bail!(USAGE),
    };
    check_toolchain()?;
    for sanitizer in SANITIZERS.iter().filter(|one| chosen.is_none_or(|name| name == one.name)) {
        let started = Instant::now();
        sanitizer.check_canary(root)?;
        let mut passed = 0;
        for arguments in tests {
            let outcome = sanitizer.run(root, arguments, true)?;
            let what = arguments.join(" ");
            ensure!(
                outcome.succeeded,
                "the {} sanitizer found something, or a test failed: {what}",
                sanitizer.name
            );
            ensure!(!outcome.passed.is_empty(), "no test ran: {what}");
            passed += outcome.passed.iter().sum::<usize>();
        }
        let seconds = started.elapsed().as_secs();
        println!("sanitize {}: {passed} tests passed, nothing found, {seconds} s", sanitizer.name);
    }
    Ok(())
}

/// Fails, and says what to do, where the sanitizers cannot be run.
fn check_toolchain() -> anyhow::Result<()> {
    let host = ask_rustc(&["--print", "host-tuple"])?;
    ensure!(host == TARGET, "the sanitizers are run on {TARGET}, and this toolchain is for {host}");
    let source = Path::new(&ask_rustc(&["--print", "sysroot"])?).join("lib/rustlib/src/rust/library");
    ensure!(
        source.exists(),
        "the source of the standard library is not at {}: run `rustup component add rust-src`",
        source.display()
    );
    Ok(())
}

impl Sanitizer {
    fn run(&self, root: &Path, arguments: &[&str], show: bool) -> anyhow::Result<Outcome> {
        let name = self.name;
        let flags = format!("-Zsanitizer={name} -Cunsafe-allow-abi-mismatch=sanitizer --cfg portable_words");
        let mut all = vec!["-Zbuild-std", "--target", TARGET];
        all.extend(arguments);
        Tests { root, directory: &format!("sanitize-{name}"), flags: &flags, arguments: all }.run(show)
    }

    /// Proves that the sanitizer sees.
    fn check_canary(&self, root: &Path) -> anyhow::Result<()> {
        let canary = ["-p", "farsight-base", "--test", "sanitizer_canary", "--", "--ignored", self.canary];
        let outcome = self.run(root, &canary, false)?;
        ensure!(
            !outcome.succeeded && outcome.text.contains(self.finding),
            "the {} sanitizer did not find the injected bug {}:\n{}",
            self.name,
            self.canary,
            outcome.text
        );
        println!("sanitize {}: the injected bug {} was found, as it must be", self.name, self.canary);
        Ok(())
    }
}

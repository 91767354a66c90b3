//! The project's own programs that are run where there is RDMA; they are built here, and run there.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, bail, ensure};

use super::tools;
use crate::cargo::{cargo, target_directory};

/// The tests over RDMA and the program that some of them run: what cargo is told.
const SUITE: &[&str] =
    &["build", "--profile", "tests", "--workspace", "--test", "verbs", "--bin", "farsight"];
/// The provider's own tests, some of which ask for a device.
const UNIT_TESTS: &[&str] =
    &["test", "--no-run", "--profile", "tests", "-p", "farsight-fabric-verbs", "--lib"];
/// The comparison with plain C: what cargo is told, and the C program.
const CHAIN: &[&str] = &["bench", "--no-run", "-p", "farsight-fabric-verbs", "--bench", "chain"];
const CHAIN_IN_C: &str = "crates/fabric-verbs/benches/chain/chain.c";
/// Where the server of two hosts listens, its table sizes, and how long its client tries to reach it.
const PORT: u16 = 7474;
const TABLE_MEMORY: &str = "8M";
const REACHING_SECONDS: u32 = 60;
/// Of the tests between two hosts the one that runs YCSB.
const YCSB: &str = "two_hosts::every_workload_is_measured";
/// Tests between two hosts that run side by side: while one waits for what was lost, others go on.
const TESTS_AT_A_TIME: u32 = 4;

/// What a short run leaves out, by parts of names: the engine that is a map behind a lock, and values of
/// sizes between the least and the greatest. Emulated, they take a third of the time. Other fabrics run them.
const LEFT_OUT: &str = "--skip engine::reference:: --skip values_of_9_bytes --skip values_of_16_bytes \
                        --skip values_of_24_bytes --skip values_of_56_bytes --skip values_of_100_bytes";

/// What cargo made.
#[derive(Debug, Default, PartialEq, Eq)]
struct Built {
    /// Tests and benchmarks.
    tests: Vec<String>,
    /// The program.
    program: Option<String>,
}

/// A command that runs all tests, and fails if one of them does: those that want a device, too, but not those
/// that want a second host. To be short, it leaves some out.
pub(super) fn tests(root: &Path, is_short: bool) -> anyhow::Result<Vec<String>> {
    let suite = build(root, SUITE)?;
    let unit_tests = build(root, UNIT_TESTS)?;
    let program = suite.program.context("cargo built no program farsight")?;
    let left_out = if is_short { LEFT_OUT } else { "" };
    let script = format!(
        "FARSIGHT_PROGRAM=$0; export FARSIGHT_PROGRAM; status=0; \
         for program; do \"$program\" --include-ignored --skip two_hosts:: --skip cables:: {left_out} \
         || status=$?; done; exit $status"
    );
    let words = ["sh", "-c", &script, &program].map(str::to_owned).into_iter();
    Ok(words.chain(suite.tests).chain(unit_tests.tests).collect())
}

/// The commands of a server and of a client on another host. The client puts YCSB to the server, and the
/// engine's suite unless it is to be short. Then it disturbs the way between.
pub(super) fn two_hosts(root: &Path, is_short: bool) -> anyhow::Result<[Vec<String>; 2]> {
    let suite = build(root, SUITE)?;
    let program = suite.program.context("cargo built no program farsight")?;
    let [test] = &suite.tests[..] else {
        bail!("cargo built {:?} where one test was requested", suite.tests)
    };
    let serve = format!(
        "exec \"$0\" serve --listen rdma://$SOFTROCE_SERVER:{PORT} --allow-plaintext --memory {TABLE_MEMORY}"
    );
    let tests = if is_short { YCSB } else { "two_hosts" };
    let ask = format!(
        "export FARSIGHT_PROGRAM=$0 FARSIGHT_VERBS_SERVER=$SOFTROCE_SERVER:{PORT}; tries={REACHING_SECONDS}; \
         until \"$0\" stats --connect rdma://$FARSIGHT_VERBS_SERVER --allow-plaintext >/dev/null 2>&1; do \
         tries=$((tries - 1)); [ $tries -gt 0 ] || exit 1; sleep 1; done; \
         \"$1\" {tests} --test-threads={TESTS_AT_A_TIME} && exec \"$1\" cables --test-threads=1"
    );
    let words = |script: &str| ["sh", "-c", script, &program].map(str::to_owned).to_vec();
    let mut client = words(&ask);
    client.push(test.clone());
    Ok([words(&serve), client])
}

/// A command that compares a chain of READs with plain C.
pub(super) fn chain(root: &Path) -> anyhow::Result<Vec<String>> {
    let program = target_directory(root).join("softroce-chain");
    let mut compiler = tools::command("cc");
    compiler.args(["-O2", "-o"]).arg(&program).arg(CHAIN_IN_C).arg("-libverbs").current_dir(root);
    tools::run(&mut compiler)
        .context("compiling the C program (apt-get install gcc libc6-dev libibverbs-dev)")?;
    let mut command = build(root, CHAIN)?.tests;
    command.push(text(&program)?);
    Ok(command)
}

/// Has cargo build.
fn build(root: &Path, arguments: &[&str]) -> anyhow::Result<Built> {
    let output = cargo()
        .args(arguments)
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(root)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("starting cargo")?;
    ensure!(output.status.success(), "cargo {} failed", arguments.join(" "));
    let built = executables(&String::from_utf8_lossy(&output.stdout))?;
    ensure!(!built.tests.is_empty(), "cargo {} builds nothing to run", arguments.join(" "));
    Ok(built)
}

/// What there is to run among what cargo reports, a JSON object a line.
fn executables(report: &str) -> anyhow::Result<Built> {
    let mut built = Built::default();
    for line in report.lines().filter(|line| line.starts_with('{')) {
        let message: serde_json::Value = serde_json::from_str(line).context("reading cargo's report")?;
        let Some(executable) = message["executable"].as_str() else { continue };
        let is_program =
            message["target"]["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "bin"));
        if is_program {
            built.program = Some(executable.to_owned());
        } else {
            built.tests.push(executable.to_owned());
        }
    }
    Ok(built)
}

fn text(path: &Path) -> anyhow::Result<String> {
    let absolute = std::path::absolute(path).with_context(|| format!("finding {}", path.display()))?;
    absolute.into_os_string().into_string().ok().context("the target directory's name is not UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_taken_from_cargos_report() {
        let artifact = |kind: &str, executable: &str| {
            let target = format!("{{\"kind\":[\"{kind}\"]}}");
            format!("{{\"reason\":\"x\",\"target\":{target},\"executable\":{executable}}}\n")
        };
        let report = artifact("lib", "null")
            + &artifact("bin", "\"/t/farsight\"")
            + &artifact("test", "\"/t/verbs-1\"")
            + "{\"reason\":\"build-finished\",\"success\":true}\n";
        let built = Built { tests: vec!["/t/verbs-1".to_owned()], program: Some("/t/farsight".to_owned()) };
        assert_eq!(executables(&report).unwrap(), built);
        assert!(executables("{\"reason\":").is_err());
    }

    #[test]
    fn what_is_built_exists() {
        let root = crate::tidy::repository_root();
        assert!(root.join(CHAIN_IN_C).exists());
        let manifest = std::fs::read_to_string(root.join("conformance/Cargo.toml")).unwrap();
        assert!(manifest.contains("[[test]]\nname = \"verbs\"\n"));
    }
}

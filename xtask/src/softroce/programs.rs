//! The project's own programs that are run where there is RDMA; they are built here, and run there.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::tools;
use crate::cargo::target_directory;

/// The tests: what cargo is told.
const TESTS: &[&str] =
    &["test", "--release", "-p", "farsight-conformance", "--features", "verbs", "--test", "verbs"];
/// The comparison with plain C: what cargo is told, and the C program.
const CHAIN: &[&str] = &["bench", "-p", "farsight-fabric-verbs", "--features", "verbs", "--bench", "chain"];
const CHAIN_IN_C: &str = "crates/fabric-verbs/benches/chain/chain.c";

/// A command that runs all tests, and fails if one of them does.
pub(super) fn tests(root: &Path) -> anyhow::Result<Vec<String>> {
    let script = "status=0; for program; do \"$program\" || status=$?; done; exit $status";
    let words = ["sh", "-c", script, "sh"].map(str::to_owned).into_iter();
    Ok(words.chain(build(root, TESTS)?).collect())
}

/// A command that compares a chain of READs with plain C.
pub(super) fn chain(root: &Path) -> anyhow::Result<Vec<String>> {
    let program = target_directory(root).join("softroce-chain");
    let mut compiler = tools::command("cc");
    compiler.args(["-O2", "-o"]).arg(&program).arg(CHAIN_IN_C).arg("-libverbs").current_dir(root);
    tools::run(&mut compiler)
        .context("compiling the C program (apt-get install gcc libc6-dev libibverbs-dev)")?;
    let mut command = build(root, CHAIN)?;
    command.push(text(&program)?);
    Ok(command)
}

/// Has cargo build without running. Returns the programs.
fn build(root: &Path, arguments: &[&str]) -> anyhow::Result<Vec<String>> {
    let output = Command::new("cargo")
        .args(arguments)
        .args(["--no-run", "--message-format", "json-render-diagnostics"])
        .current_dir(root)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("starting cargo")?;
    ensure!(output.status.success(), "cargo {} --no-run failed", arguments.join(" "));
    let programs = executables(&String::from_utf8_lossy(&output.stdout))?;
    ensure!(!programs.is_empty(), "cargo {} builds no program", arguments.join(" "));
    Ok(programs)
}

/// The programs among what cargo reports, a JSON object a line: tests and benchmarks.
fn executables(report: &str) -> anyhow::Result<Vec<String>> {
    let mut programs = Vec::new();
    for line in report.lines().filter(|line| line.starts_with('{')) {
        let message: serde_json::Value = serde_json::from_str(line).context("reading cargo's report")?;
        let is_wanted = message["target"]["kind"]
            .as_array()
            .is_some_and(|kinds| kinds.iter().any(|kind| kind == "test" || kind == "bench"));
        if let (true, Some(program)) = (is_wanted, message["executable"].as_str()) {
            programs.push(program.to_owned());
        }
    }
    Ok(programs)
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
        assert_eq!(executables(&report).unwrap(), ["/t/verbs-1"]);
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

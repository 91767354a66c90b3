//! `cargo xtask fuzz`: builds the programs of `fuzz/` for coverage and runs them under libFuzzer.
//!
//! Invariant: a run counts only if it sees: first of all the canary, whose bug is injected, must be found.
//!
//! Protocol: the build needs the stable toolchain and a C++ compiler, for libFuzzer itself; rustc's own LLVM
//! counts the edges. Each target begins with the seeds that its encoders write and with what earlier runs
//! found to reach new code (`target/fuzz/TARGET/corpus`). It runs for so many seconds, as many targets at a
//! time as there are processors. An input that fails is kept beside the corpus.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::{fs, thread};

use anyhow::{Context, bail, ensure};

use crate::cargo::{cargo, target_directory};

/// Flags by which rustc's LLVM instruments edges and comparisons for libFuzzer.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-simplifycfg-branch-fold-threshold=0 --cfg fuzzing";
const CANARY: &str = "canary";
/// Seconds within which the canary's bug must be found; it takes one or two.
const CANARY_SECONDS: u32 = 120;
/// Seconds of each target if nothing is said.
const SECONDS: u32 = 20;
/// Seconds that one input may take.
const INPUT_SECONDS: u32 = 20;
/// Lines of a failed run's output that are shown.
const SHOWN_LINES: usize = 40;

/// What to run.
#[derive(Debug, PartialEq, Eq)]
struct FuzzOptions {
    target: Option<String>,
    seconds: u32,
}

/// Builds and runs the targets that `arguments` name: `[TARGET] [--seconds N]`.
///
/// # Errors
/// What could not be built or started, and which targets failed.
pub fn run(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let options = parse(arguments)?;
    let all = targets(&fs::read_to_string(root.join("fuzz/Cargo.toml")).context("reading fuzz/Cargo.toml")?)?;
    let chosen: Vec<&str> =
        match &options.target {
            Some(name) => vec![all.iter().find(|target| *target == name).with_context(|| {
                format!("there is no fuzz target {name:?}; there are {}", all.join(", "))
            })?],
            None => all.iter().map(String::as_str).filter(|name| *name != CANARY).collect(),
        };
    let output = target_directory(root).join("fuzz");
    let programs = build(root, &output)?;
    check_canary(&programs, &output)?;
    let failed = run_all(&chosen, &programs, &output, options.seconds)?;
    ensure!(failed.is_empty(), "targets that found something: {}", failed.join(", "));
    Ok(())
}

fn parse(arguments: &[&str]) -> anyhow::Result<FuzzOptions> {
    let mut options = FuzzOptions { target: None, seconds: SECONDS };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match *argument {
            "--seconds" => {
                let number = rest.next().context("--seconds needs a number")?;
                options.seconds =
                    number.parse().with_context(|| format!("{number:?} is no number of seconds"))?;
                ensure!(options.seconds > 0, "0 seconds would mean: without end");
            }
            name if !name.starts_with('-') && options.target.is_none() => {
                options.target = Some(name.to_owned());
            }
            other => bail!("unexpected argument {other:?}; usage: cargo xtask fuzz [TARGET] [--seconds N]"),
        }
    }
    Ok(options)
}

/// The programs that the manifest names.
fn targets(manifest: &str) -> anyhow::Result<Vec<String>> {
    let manifest: toml::Table = manifest.parse().context("fuzz/Cargo.toml")?;
    let programs =
        manifest.get("bin").and_then(toml::Value::as_array).context("fuzz/Cargo.toml has no programs")?;
    let names = programs.iter().filter_map(|program| Some(program.get("name")?.as_str()?.to_owned()));
    Ok(names.collect())
}

/// Builds the programs. Returns their directory.
fn build(root: &Path, output: &Path) -> anyhow::Result<PathBuf> {
    let version = Command::new("rustc").arg("-vV").output().context("asking rustc for its host")?;
    let version = String::from_utf8_lossy(&version.stdout);
    let host =
        version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV names no host")?;
    // The versions that everything else is built with.
    fs::copy(root.join("Cargo.lock"), root.join("fuzz/Cargo.lock")).context("copying Cargo.lock")?;
    // With a target named, what only the build runs (macros, scripts) is not instrumented.
    let status = cargo()
        .args(["build", "--release", "--target", host, "--manifest-path"])
        .arg(root.join("fuzz/Cargo.toml"))
        .env("CARGO_TARGET_DIR", output)
        .env("RUSTFLAGS", COVERAGE)
        .status()
        .context("starting cargo")?;
    ensure!(status.success(), "the fuzz programs do not build (is a C++ compiler installed?)");
    Ok(output.join(host).join("release"))
}

/// Proves that the harness sees: the injected bug is found, without seeds.
fn check_canary(programs: &Path, output: &Path) -> anyhow::Result<()> {
    let directory = output.join(CANARY);
    if directory.exists() {
        fs::remove_dir_all(&directory).with_context(|| format!("clearing {}", directory.display()))?;
    }
    let run = run_one(CANARY, programs, output, CANARY_SECONDS)?;
    ensure!(!run.passed, "the injected bug was not found within {CANARY_SECONDS} s: the harness is blind");
    ensure!(run.log.contains("index out of bounds"), "the canary failed by something else:\n{}", run.log);
    println!("{CANARY:>14}: found, as it must be");
    Ok(())
}

/// What a run came to.
struct Run {
    passed: bool,
    log: String,
}

fn run_all(names: &[&str], programs: &Path, output: &Path, seconds: u32) -> anyhow::Result<Vec<String>> {
    let waiting = Mutex::new(names.iter());
    let failed = Mutex::new(Vec::new());
    let lanes = thread::available_parallelism().map_or(1, usize::from);
    let work = || -> anyhow::Result<()> {
        loop {
            let next = waiting.lock().expect("no thread panics with it").next();
            let Some(name) = next else { return Ok(()) };
            let run = run_one(name, programs, output, seconds)?;
            println!("{name:>14}: {}", summary(&run.log));
            if !run.passed {
                let told: Vec<&str> = run.log.lines().collect();
                println!("{}", told[told.len().saturating_sub(SHOWN_LINES)..].join("\n"));
                failed.lock().expect("no thread panics with it").push((*name).to_owned());
            }
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..lanes).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("the lane does not panic"))
    })?;
    Ok(failed.into_inner().expect("no thread panics with it"))
}

fn run_one(name: &str, programs: &Path, output: &Path, seconds: u32) -> anyhow::Result<Run> {
    let directory = |kind: &str| -> anyhow::Result<PathBuf> {
        let path = output.join(name).join(kind);
        fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(path)
    };
    let (corpus, seeds, failures) = (directory("corpus")?, directory("seeds")?, directory("failures")?);
    let mut command = Command::new(programs.join(name));
    command.arg(&corpus);
    if name != CANARY {
        command.arg(&seeds).env("FARSIGHT_FUZZ_SEEDS", &seeds);
    }
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={INPUT_SECONDS}"))
        .arg(format!("-artifact_prefix={}/", failures.display()))
        .args(["-print_final_stats=1", "-rss_limit_mb=2048", "-malloc_limit_mb=1024"]);
    let done = command.stdin(Stdio::null()).output().with_context(|| format!("starting target {name}"))?;
    Ok(Run { passed: done.status.success(), log: String::from_utf8_lossy(&done.stderr).into_owned() })
}

/// Executions and coverage, as libFuzzer counted them.
fn summary(log: &str) -> String {
    let executed = log.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    let covered =
        log.lines().rev().find_map(|line| Some(line.split_once("cov: ")?.1.split(" corp").next()?.trim()));
    let executed = executed.map_or("?", str::trim);
    // "123 ft: 456": edges, then edges by how often they were taken.
    let covered = covered.unwrap_or("?").replace(" ft:", " edges, features");
    format!("{executed} inputs, {covered}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_and_wrong_ones_named() {
        let options =
            |target: Option<&str>, seconds| FuzzOptions { target: target.map(str::to_owned), seconds };
        assert_eq!(parse(&[]).unwrap(), options(None, SECONDS));
        assert_eq!(parse(&["leaf", "--seconds", "5"]).unwrap(), options(Some("leaf"), 5));
        assert!(parse(&["--seconds"]).unwrap_err().to_string().contains("needs a number"));
        assert!(parse(&["--seconds", "0"]).is_err());
        assert!(parse(&["leaf", "client"]).unwrap_err().to_string().contains("\"client\""));
    }

    #[test]
    fn the_manifest_names_each_source_and_the_canary() {
        let root = crate::tidy::repository_root();
        let mut named = targets(&fs::read_to_string(root.join("fuzz/Cargo.toml")).unwrap()).unwrap();
        named.sort_unstable();
        let sources = fs::read_dir(root.join("fuzz/fuzz_targets")).unwrap();
        let name = |entry: fs::DirEntry| entry.path().file_stem().unwrap().to_string_lossy().into_owned();
        let mut sources: Vec<String> = sources.map(|entry| name(entry.unwrap())).collect();
        sources.sort_unstable();
        assert_eq!(named, sources);
        assert!(named.iter().any(|name| name == CANARY));
    }

    #[test]
    fn a_log_is_summed_up() {
        let log = "#8\tNEW    cov: 3 ft: 3 corp: 1/1b lim: 4\n#16\tDONE   cov: 12 ft: 30 corp: 5/9b lim: 4\n\
                   stat::number_of_executed_units: 16\n";
        assert_eq!(summary(log), "16 inputs, 12 edges, features 30");
    }
}

//! Running cargo with other flags, in a target directory of its own, and reading what its tests say.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

/// The target directory of this build, or the one that the environment names.
#[must_use]
pub(crate) fn target_directory(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// A cargo as a shell would start it. The one that runs this program has told it of its own package. Build
/// scripts that ask for a package's name, as ring's does, would find it changed. Then everything above them
/// would be built anew, and once more by the next cargo of a shell.
#[must_use]
pub(crate) fn cargo() -> Command {
    let mut command = Command::new("cargo");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_of_package) {
            command.env_remove(name);
        }
    }
    command
}

/// True for what cargo tells a program of the package that it is of.
fn is_of_package(variable: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| variable.starts_with(prefix))
}

/// rustc's answer to `arguments`, first line.
///
/// # Errors
/// If rustc does not run.
pub(crate) fn ask_rustc(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("rustc").args(arguments).output().context("starting rustc")?;
    ensure!(output.status.success(), "rustc {} failed", arguments.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
}

/// One run of tests.
pub(crate) struct Tests<'a> {
    /// Where the workspace is.
    pub(crate) root: &'a Path,
    /// The directory below the target directory that is used.
    pub(crate) directory: &'a str,
    /// For `RUSTFLAGS`.
    pub(crate) flags: &'a str,
    /// What follows `cargo test --profile tests`.
    pub(crate) arguments: Vec<&'a str>,
}

/// What tests came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// True if cargo says so.
    pub(crate) succeeded: bool,
    /// Tests that passed in each program that ran.
    pub(crate) passed: Vec<usize>,
    /// Everything that was printed.
    pub(crate) text: String,
}

impl Tests<'_> {
    /// Runs them; what they print is shown as it comes, if `show`.
    ///
    /// # Errors
    /// If cargo cannot be run.
    pub(crate) fn run(&self, show: bool) -> anyhow::Result<Outcome> {
        let (reader, writer) = std::io::pipe().context("making a pipe")?;
        let mut command = cargo();
        command
            .args(["test", "--profile", "tests"])
            .args(&self.arguments)
            .current_dir(self.root)
            .env("CARGO_TARGET_DIR", target_directory(self.root).join(self.directory))
            .env("RUSTFLAGS", self.flags)
            .stdin(Stdio::null())
            .stdout(writer.try_clone().context("the pipe's end")?)
            .stderr(writer);
        if self.flags.contains("-Z") {
            // A stable compiler takes such flags only so.
            command.env("RUSTC_BOOTSTRAP", "1");
        }
        let mut child = command.spawn().context("starting cargo")?;
        // The command holds ends of the pipe, which would never close.
        drop(command);
        let mut outcome = Outcome::default();
        for line in BufReader::new(reader).split(b'\n') {
            let line = line.context("reading what the tests print")?;
            let line = String::from_utf8_lossy(&line);
            if show {
                println!("{line}");
            }
            outcome.passed.extend(passed(&line));
            outcome.text.push_str(&line);
            outcome.text.push('\n');
        }
        outcome.succeeded = child.wait().context("waiting for cargo")?.success();
        Ok(outcome)
    }
}

/// The number in the line with which a test program ends.
fn passed(line: &str) -> Option<usize> {
    line.strip_prefix("test result: ")?.split_once(". ")?.1.split_once(" passed")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_cargo_hears_of_no_package() {
        let command = cargo();
        let is_removed = |name: &str| command.get_envs().any(|(of, value)| of == name && value.is_none());
        assert!(is_removed("CARGO_PKG_NAME") && is_removed("CARGO_MANIFEST_DIR"));
        assert!(!is_removed("PATH"));
    }

    #[test]
    fn the_last_line_of_a_test_program_is_understood() {
        assert_eq!(passed("test result: ok. 12 passed; 0 failed; 0 ignored; finished in 2.12s"), Some(12));
        assert_eq!(passed("test result: FAILED. 0 passed; 1 failed; finished in 2.12s"), Some(0));
        assert_eq!(passed("test a ... ok"), None);
    }
}

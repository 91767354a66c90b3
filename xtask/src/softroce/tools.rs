//! The programs that a virtual machine takes, and running the small ones.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

/// What must be there, and Debian's package that has it.
const NEEDED: &[(&str, &str)] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("depmod", "kmod"),
    ("ip", "iproute2"),
    ("rdma", "iproute2"),
    ("setpriv", "util-linux"),
    ("/etc/libibverbs.d/rxe.driver", "ibverbs-providers"),
];

/// Fails, naming what is missing and how to install it.
pub(super) fn check() -> anyhow::Result<()> {
    let missing = missing(|name| find(name).is_some());
    let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
    let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    ensure!(
        missing.is_empty(),
        "missing: {}; run `apt-get install --no-install-recommends {}`",
        names.join(", "),
        packages.join(" ")
    );
    Ok(())
}

fn missing(is_there: impl Fn(&str) -> bool) -> Vec<(&'static str, &'static str)> {
    NEEDED.iter().filter(|(name, _)| !is_there(name)).copied().collect()
}

/// The file of a program, also where only root's path leads.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    // An absolute name stays what it is.
    directories.map(|directory| directory.join(program)).find(|file| file.is_file())
}

/// A command that starts `program` wherever it was found.
pub(super) fn command(program: &str) -> Command {
    Command::new(find(program).unwrap_or_else(|| PathBuf::from(program)))
}

/// Runs `command` to its end. Returns what it printed.
pub(super) fn run(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().to_owned();
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("starting {}", program.display()))?;
    ensure!(
        output.status.success(),
        "{} failed: {}",
        program.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        assert_eq!(missing(|_| true), []);
        assert_eq!(missing(|name| name != "depmod"), [("depmod", "kmod")]);
    }

    #[test]
    fn programs_are_found_and_run() {
        assert!(find("sh").is_some() && find("no-such-program").is_none());
        assert_eq!(run(Command::new("sh").args(["-c", "echo out"])).unwrap(), "out\n");
        let error = run(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err().to_string();
        assert_eq!(error, "sh failed: why");
    }
}

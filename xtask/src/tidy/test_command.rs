//! The command that the README gives for the tests is the one that the continuous integration runs, last.

use super::{Tree, Violation};

const SCRIPT: &str = ".ci/run";
const README: &str = "README.md";

/// A script whose last line does not run the tests, or a README that quotes another command.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Violation> {
    let Some(script) = tree.text(SCRIPT) else {
        return vec![Violation::of_file(SCRIPT, "does not exist")];
    };
    let last = script.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    if !last.starts_with("cargo test") {
        return vec![Violation::of_file(SCRIPT, format!("the last line is not `cargo test ...`: {last}"))];
    }
    match tree.text(README) {
        None => vec![Violation::of_file(README, "does not exist")],
        Some(readme) if readme.lines().any(|line| line.trim() == last) => vec![],
        Some(_) => vec![Violation::of_file(README, format!("has no line with what {SCRIPT} runs: {last}"))],
    }
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn the_same_command_passes() {
        let files = [(SCRIPT, "set -e\ncargo test -p a\n\n"), (README, "Run\n\n    cargo test -p a\n")];
        assert_eq!(found(check, &files), [""; 0]);
    }

    #[test]
    fn another_command_is_found() {
        let script = (SCRIPT, "cargo test -p a\n");
        for readme in ["cargo test -p ab\n", "run cargo test -p a now\n", ""] {
            let expected = "README.md: has no line with what .ci/run runs: cargo test -p a";
            assert_eq!(found(check, &[script, (README, readme)]), [expected], "{readme}");
        }
        assert_eq!(found(check, &[script]), ["README.md: does not exist"]);
    }

    #[test]
    fn the_tests_run_last() {
        let files = [(SCRIPT, "cargo test -p a\ncargo fmt\n"), (README, "cargo test -p a\n")];
        assert_eq!(found(check, &files), [".ci/run: the last line is not `cargo test ...`: cargo fmt"]);
        assert_eq!(found(check, &[]), [".ci/run: does not exist"]);
    }
}

//! Checks that read the repository as text: what the project promises of its tree and neither rustc nor
//! clippy can see.
//!
//! Invariant: a check is a function from a [`Tree`] to what is wrong with it, with no other input. So each is
//! tested on small trees in memory, and each of those tests injects what the check must find.

pub mod atomics;
pub mod constants;
pub mod crate_graph;
pub mod dead_files;
pub mod english;
pub mod lengths;
pub mod links;
mod packages;
pub mod safety;
mod source;
pub mod speech;
pub mod test_command;
mod tree;
pub mod type_names;

use std::fmt;
use std::path::{Path, PathBuf};

pub use tree::Tree;

/// One thing that breaks a rule: where, and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    path: String,
    line: Option<usize>,
    message: String,
}

impl Violation {
    fn of_file(path: &str, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: None, message: message.into() }
    }

    /// `line` counts from 1.
    fn at(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: Some(line), message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(out, "{}:{line}: {}", self.path, self.message),
            None => write!(out, "{}: {}", self.path, self.message),
        }
    }
}

/// A check: what is wrong with a tree.
pub type Check = fn(&Tree) -> Vec<Violation>;

/// Every check, by name.
pub const CHECKS: &[(&str, Check)] = &[
    ("crate graph", crate_graph::check),
    ("lengths", lengths::check),
    ("safety", safety::check),
    ("atomics", atomics::check),
    ("dead files", dead_files::check),
    ("links", links::check),
    ("constants", constants::check),
    ("speech", speech::check),
    ("english", english::check),
    ("test command", test_command::check),
    ("type names", type_names::check),
];

/// What all checks find, each line opening with its check's name in brackets.
#[must_use]
pub fn violations(tree: &Tree) -> Vec<String> {
    let found = CHECKS.iter().flat_map(|(name, check)| {
        check(tree).into_iter().map(move |violation| format!("[{name}] {violation}"))
    });
    found.collect()
}

/// The root of the repository that this program was built from.
#[must_use]
pub fn repository_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or_else(|| here.to_owned(), Path::to_owned)
}

/// What a check says of a tree of these files, for tests.
#[cfg(test)]
fn found(check: Check, files: &[(&str, &str)]) -> Vec<String> {
    check(&Tree::of(files)).iter().map(ToString::to_string).collect()
}

//! How old a record is: what git says of the commit that it is of.
//!
//! Invariant: a record is of today's code only if git says so. Where git is missing, or does not know the
//! commit, its age is unknown.

use std::path::Path;
use std::process::Command;

/// What a simulation is made of: a commit that changes nothing here leaves all records as they are.
const CODE: [&str; 3] = [":/crates", ":/oracles", ":/sim"];

/// The age of a record's commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Age {
    /// Its day, and the commits since that changed the code.
    Known {
        /// As year, month and day.
        day: String,
        /// Commits.
        changes: u64,
    },
    /// No commit of this history.
    Unknown,
}

impl Age {
    /// Whether the code is as it was.
    pub(super) fn is_current(&self) -> bool {
        matches!(self, Self::Known { changes: 0, .. })
    }

    /// As the document says it.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Known { day, changes: 0 } => format!("{day}, today's code"),
            Self::Known { day, changes } => format!("{day}, {changes} changes of the code ago"),
            Self::Unknown => "unknown".to_owned(),
        }
    }
}

/// The age of `commit` in the history that `directory` is in.
pub(super) fn age_of(directory: &Path, commit: &str) -> Age {
    age(directory, commit).unwrap_or(Age::Unknown)
}

/// The commit that `directory` stands at, with its day.
pub(super) fn newest(directory: &Path) -> Option<String> {
    git(directory, &["show", "--no-patch", "--format=%h of %cs", "--abbrev=12", "HEAD"])
}

fn age(directory: &Path, commit: &str) -> Option<Age> {
    git(directory, &["merge-base", "--is-ancestor", commit, "HEAD"])?;
    let day = git(directory, &["show", "--no-patch", "--format=%cs", commit])?;
    let since = format!("{commit}..HEAD");
    let changes = git(directory, &[&["rev-list", "--count", &since, "--"], &CODE[..]].concat())?;
    Some(Age::Known { day, changes: changes.parse().ok()? })
}

/// What git prints, if it succeeds.
fn git(directory: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(directory).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(directory: &Path, file: &str) -> String {
        let path = directory.join(file);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("writable");
        std::fs::write(&path, file).expect("writable");
        let name = ["-c", "user.name=n", "-c", "user.email=e"];
        git(directory, &["add", "."]).expect("git");
        git(directory, &[&name[..], &["commit", "-q", "-m", "more"]].concat()).expect("git");
        git(directory, &["rev-parse", "HEAD"]).expect("git")
    }

    #[test]
    fn changes_of_the_code_make_a_record_old() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path();
        git(path, &["init", "-q"]).expect("git");
        let first = commit(path, "sim/judge");
        commit(path, "docs/proof.md");
        assert!(age_of(path, &first).is_current(), "documents are no code");
        commit(path, "crates/client/life");
        let last = commit(path, "sim/client");
        let age = age_of(path, &first);
        assert!(age.text().ends_with(", 2 changes of the code ago"), "{}", age.text());
        assert!(age_of(path, &last).text().ends_with(", today's code"));
        assert!(newest(path).is_some_and(|newest| newest.starts_with(&last[..12])));
        assert_eq!(age_of(path, "0123456789ab"), Age::Unknown);
    }

    #[test]
    fn outside_of_a_history_ages_are_unknown() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        assert_eq!(age_of(directory.path(), "HEAD").text(), "unknown");
    }
}

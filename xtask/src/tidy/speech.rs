//! The project speaks of itself alone, and of what is: no path of somebody's machine, no note of unfinished
//! work.

use super::{Tree, Violation};

/// Written in two halves, so that this list does not find itself.
const UNWANTED: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("../sh", "ared"),
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("unimpl", "emented!("),
    concat!("to", "do!("),
];

/// Unwanted words in any text.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.texts() {
        for (index, line) in text.lines().enumerate() {
            let found = UNWANTED.iter().filter(|unwanted| stands_alone(line, unwanted));
            violations
                .extend(found.map(|unwanted| Violation::at(path, index + 1, format!("says {unwanted}"))));
        }
    }
    violations
}

/// True if `unwanted` is in the line and not a part of something longer: a pattern of mktemp is fine, and a
/// path counts only from its start.
fn stands_alone(line: &str, unwanted: &str) -> bool {
    let continues = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let is_path = unwanted.starts_with('/');
    line.match_indices(unwanted).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + unwanted.len()..]);
        let open = before.ends_with(|last| continues(last) || is_path && "-.}".contains(last));
        let closed =
            unwanted.ends_with(|last: char| last.is_ascii_alphanumeric()) && after.starts_with(continues);
        !open && !closed
    })
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn each_word_is_found() {
        for unwanted in UNWANTED {
            let text = format!("fine\n// see {unwanted} there\n");
            assert_eq!(found(check, &[("a.sh", &text)]), [format!("a.sh:2: says {unwanted}")]);
        }
    }

    #[test]
    fn parts_of_longer_words_pass() {
        let parts = ["mktemp -t a.XX", "XXXX; frame", "/wo", "rk/ ./wo", "rk/ ${HOME}/ro", "ot/ TO", "DOS"];
        assert_eq!(found(check, &[("a.sh", &parts.concat())]), [""; 0]);
    }
}

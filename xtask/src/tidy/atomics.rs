//! Atomics come from `farsight_base::sync`, so that a model checker can be put behind them in one place.

use super::source::{Source, line_of, word_places};
use super::{Tree, Violation};

/// The one module that may name them.
const DOOR: &str = "crates/base/src/sync.rs";
/// Its parts.
const BEHIND_THE_DOOR: &str = "crates/base/src/sync/";

/// Paths through the standard library's `atomic` modules.
///
/// The project has no module of that name, so the word next to `::`, or in the braces of a `sync::{...}`, is
/// one.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.texts_of("rs").filter(|(path, _)| !is_door(path)) {
        let code = Source::new(text).code();
        let raw = word_places(&code, "atomic").filter(|&at| is_module(&code, at));
        let message = "atomics are imported from farsight_base::sync";
        violations.extend(raw.map(|at| Violation::at(path, line_of(&code, at), message)));
    }
    violations
}

fn is_door(path: &str) -> bool {
    path == DOOR || path.starts_with(BEHIND_THE_DOOR)
}

fn is_module(code: &str, at: usize) -> bool {
    let before = code[..at].trim_end();
    let after = code[at + "atomic".len()..].trim_start();
    before.ends_with("::") || after.starts_with("::") || is_imported_in_braces(before)
}

/// True if `before` ends inside the braces of an import from `sync`.
fn is_imported_in_braces(before: &str) -> bool {
    let import = before.rsplit(';').next().unwrap_or_default();
    let (Some(start), Some(open)) = (word_places(import, "use").last(), import.rfind('{')) else {
        return false;
    };
    start < open && import[..open].trim_end().ends_with("sync::")
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn every_way_to_name_them_is_found() {
        let ways = [
            "use std::sync::atomic::AtomicU64;",
            "use core::sync::atomic::{AtomicU64, Ordering};",
            "use std::sync::{Arc, atomic::AtomicU64};",
            "use std::{sync::{Arc, atomic}, io};",
            "use std::sync::{Arc, atomic};",
            "use std::sync:: atomic as a;",
            "fn f(a: &std::sync::atomic::AtomicBool) {}",
        ];
        for way in ways {
            let text = format!("//! x\n{way}\n");
            let expected = ["crates/a/src/b.rs:2: atomics are imported from farsight_base::sync"];
            assert_eq!(found(check, &[("crates/a/src/b.rs", &text)]), expected, "{way}");
            assert_eq!(found(check, &[(DOOR, &text)]), [""; 0], "{way}");
            assert_eq!(found(check, &[("crates/base/src/sync/a.rs", &text)]), [""; 0], "{way}");
        }
    }

    #[test]
    fn the_door_itself_and_prose_pass() {
        let good = "use farsight_base::sync::{AtomicU64, Ordering};\n// std::sync::atomic\nlet atomic = \"std::sync::atomic\";\n\
                    let x = Guarantees { atomic, atomic_unit: 8 };";
        assert_eq!(found(check, &[("crates/a/src/b.rs", good)]), [""; 0]);
    }
}

//! How long files and lines may be. Functions are clippy's (`too-many-lines-threshold`); here only that a
//! longer one says why.

use super::source::{Source, line_of, word_places};
use super::{Tree, Violation};

const FILE_LINES_MAX: usize = 700;
const LINE_COLUMNS_MAX: usize = 110;

/// Files and lines that are too long, and long functions without a reason.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.texts_of("rs") {
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            violations.push(Violation::of_file(path, format!("{lines} lines, at most {FILE_LINES_MAX}")));
        }
        violations.extend(long_lines(path, text));
        violations.extend(silent_long_functions(path, text));
    }
    violations
}

/// Literals do not count, nor does a line that carries a URL: neither can be broken.
fn long_lines(path: &str, text: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    let counted = Source::new(text).without_literals();
    for (index, (line, whole)) in counted.lines().zip(text.lines()).enumerate() {
        let columns = line.chars().count();
        if columns > LINE_COLUMNS_MAX && !whole.contains("://") {
            let message = format!("{columns} columns, at most {LINE_COLUMNS_MAX}");
            violations.push(Violation::at(path, index + 1, message));
        }
    }
    violations
}

fn silent_long_functions(path: &str, text: &str) -> Vec<Violation> {
    let code = Source::new(text).code();
    let silent = word_places(&code, "too_many_lines").filter(|&at| {
        let opening = code[..at].rfind("#[").map_or("", |start| &code[start..at]);
        let attribute = code[at..].split(']').next().unwrap_or_default();
        !opening.starts_with("#[expect(") || !attribute.contains("reason")
    });
    let message = "a long function says why: #[expect(clippy::too_many_lines, reason = \"...\")]";
    silent.map(|at| Violation::at(path, line_of(&code, at), message)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn files() {
        let full = "// x\n".repeat(700);
        assert_eq!(found(check, &[("a.rs", &full)]), [""; 0]);
        let over = full + "// x\n";
        assert_eq!(found(check, &[("a.rs", &over)]), ["a.rs: 701 lines, at most 700"]);
        assert_eq!(found(check, &[("a.md", &over)]), [""; 0]);
    }

    #[test]
    fn lines() {
        let full = format!("// {}\n", "é".repeat(107));
        assert_eq!(found(check, &[("a.rs", &full)]), [""; 0]);
        let over = format!("\n// {}\n", "x".repeat(108));
        assert_eq!(found(check, &[("a.rs", &over)]), ["a.rs:2: 111 columns, at most 110"]);
        let literal = format!("let a = \"{}\";\n", "x".repeat(200));
        assert_eq!(found(check, &[("a.rs", &literal)]), [""; 0]);
        let raw = format!("let a = r#\"a\n{}\"#;\n", "x".repeat(200));
        assert_eq!(found(check, &[("a.rs", &raw)]), [""; 0]);
        let url = format!("// https://example.org/{}\n", "x".repeat(200));
        assert_eq!(found(check, &[("a.rs", &url)]), [""; 0]);
    }

    #[test]
    fn long_functions() {
        let good = "#[expect(clippy::too_many_lines, reason = \"one table\")]\nfn f() {}\n";
        assert_eq!(found(check, &[("a.rs", good)]), [""; 0]);
        let message = "a long function says why: #[expect(clippy::too_many_lines, reason = \"...\")]";
        for bad in ["#[allow(clippy::too_many_lines, reason = \"x\")]", "#[expect(clippy::too_many_lines)]"] {
            assert_eq!(found(check, &[("a.rs", bad)]), [format!("a.rs:1: {message}")], "{bad}");
        }
        assert_eq!(
            found(check, &[("a.rs", "\n#![allow(clippy::too_many_lines)]")]),
            [format!("a.rs:2: {message}")]
        );
    }
}

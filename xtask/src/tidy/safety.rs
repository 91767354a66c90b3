//! Where unsafe code may stand, and that each piece of it carries its proof.
//!
//! Invariant: every crate but those of [`UNSAFE_CRATES`] forbids unsafe code in its roots. One with a module
//! of [`UNSAFE_MODULES`] denies it there, and allows it for that module. Where it may stand, a block, an
//! `impl` and an `extern` follow a `// SAFETY:` comment; a function or trait follows one, or has a `# Safety`
//! section.

use syn::{AttrStyle, Attribute, Meta};

use super::packages::packages;
use super::source::{Source, line_of, word_places};
use super::{Tree, Violation};

/// Directories of the crates that may have unsafe code; the last because foreign stores' own interfaces are.
const UNSAFE_CRATES: &[&str] = &["crates/base", "crates/fabric-shm", "crates/fabric-verbs", "bench-compare"];

/// Modules that may have unsafe code in crates that otherwise have none: a crate's directory, and the module.
const UNSAFE_MODULES: &[(&str, &str)] = &[("crates/layout", "simd")];

/// Unsafe code where none may be, or without a proof, and roots that do not forbid it.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = roots_that_do_not_forbid(tree);
    for (path, text) in tree.texts_of("rs") {
        let code = Source::new(text).code();
        let lines = Lines { whole: text.lines().collect(), code: code.lines().collect() };
        for at in word_places(&code, "unsafe") {
            let line = line_of(&code, at);
            let rest = code[at + "unsafe".len()..].trim_start();
            if !may_be_unsafe(path) {
                violations.push(Violation::at(
                    path,
                    line,
                    format!("unsafe code outside {}", unsafe_places()),
                ));
            } else if let Some(wanted) = missing_proof(rest, &lines.comment_above(line - 1)) {
                violations.push(Violation::at(path, line, wanted));
            }
        }
    }
    violations
}

/// Where it may stand, for a reader.
fn unsafe_places() -> String {
    let modules = UNSAFE_MODULES.iter().map(|(directory, module)| format!("{directory}/src/{module}"));
    let crates = UNSAFE_CRATES.iter().map(ToString::to_string);
    crates.chain(modules).collect::<Vec<_>>().join(" and ")
}

fn may_be_unsafe(path: &str) -> bool {
    let in_crate = UNSAFE_CRATES
        .iter()
        .any(|directory| path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/')));
    let in_module = UNSAFE_MODULES.iter().any(|(directory, module)| {
        let rest =
            path.strip_prefix(directory).and_then(|rest| rest.strip_prefix("/src/")?.strip_prefix(module));
        rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    });
    in_crate || in_module
}

fn roots_that_do_not_forbid(tree: &Tree) -> Vec<Violation> {
    let (packages, mut violations) = packages(tree);
    for package in packages.iter().filter(|package| !UNSAFE_CRATES.contains(&package.directory.as_str())) {
        let source = format!("{}/src/", package.directory);
        let is_root = |path: &str| {
            let inside = path.strip_prefix(&source);
            inside.is_some_and(|inside| ["lib.rs", "main.rs"].contains(&inside) || inside.starts_with("bin/"))
        };
        let has_module = UNSAFE_MODULES.iter().any(|(directory, _)| *directory == package.directory);
        let lint = if has_module { "deny" } else { "forbid" };
        for (path, text) in tree.texts_of("rs").filter(|(path, _)| is_root(path)) {
            match syn::parse_file(text) {
                Ok(file) if file.attrs.iter().any(|attribute| refuses_unsafe_code(attribute, lint)) => {}
                Ok(_) => {
                    let message = format!("does not begin with #![{lint}(unsafe_code)]");
                    violations.push(Violation::of_file(path, message));
                }
                Err(error) => violations.push(Violation::of_file(path, format!("does not parse: {error}"))),
            }
        }
    }
    violations
}

fn refuses_unsafe_code(attribute: &Attribute, lint: &str) -> bool {
    let Meta::List(words) = &attribute.meta else { return false };
    let inner = matches!(attribute.style, AttrStyle::Inner(_));
    inner && words.path.is_ident(lint) && words.tokens.to_string().contains("unsafe_code")
}

/// What a use of `unsafe`, which goes on with `rest`, lacks below this comment.
fn missing_proof(rest: &str, comment: &str) -> Option<&'static str> {
    let proved = comment.split_once("SAFETY:").is_some_and(|(_, proof)| !proof.trim().is_empty());
    let is_function = rest.starts_with("fn") || is_foreign_function(rest);
    if is_function && is_pointer_type(rest) {
        return None;
    }
    if is_function || rest.starts_with("trait") {
        let section = comment.split_once("# Safety").is_some_and(|(_, section)| !section.trim().is_empty());
        return (!proved && !section).then_some("unsafe without a `# Safety` section or `// SAFETY:` above");
    }
    (!proved).then_some("unsafe without a `// SAFETY:` proof above")
}

/// `unsafe extern "C" fn`, the literal masked; `unsafe extern "C" {` is none.
fn is_foreign_function(rest: &str) -> bool {
    rest.strip_prefix("extern").is_some_and(|after| after.trim_start().starts_with("fn"))
}

/// A pointer's type names no function: the proof stands where one is called.
fn is_pointer_type(rest: &str) -> bool {
    let after = rest.find("fn").map_or("", |at| &rest[at + 2..]);
    after.trim_start().starts_with('(')
}

struct Lines<'a> {
    whole: Vec<&'a str>,
    code: Vec<&'a str>,
}

impl Lines<'_> {
    /// The comment above the statement or item that holds line `index` (from 0); empty if there is none.
    fn comment_above(&self, index: usize) -> String {
        let mut first = index;
        while first > 0 && self.is_continued(first - 1) {
            first -= 1;
        }
        let mut comment = Vec::new();
        while first > 0 && (self.is_comment(first - 1) || self.is_attribute(first - 1)) {
            first -= 1;
            if self.is_comment(first) {
                comment.push(self.whole[first].trim().trim_start_matches(['/', '!']));
            }
        }
        comment.reverse();
        comment.join("\n")
    }

    /// True if the line is code, and what follows it is the same statement or item.
    fn is_continued(&self, index: usize) -> bool {
        let code = self.code[index].trim();
        !code.is_empty() && !code.ends_with([';', ',', '{', '}'])
    }

    fn is_comment(&self, index: usize) -> bool {
        self.code[index].trim().is_empty() && !self.whole[index].trim().is_empty()
    }

    fn is_attribute(&self, index: usize) -> bool {
        self.code[index].trim().starts_with("#[")
    }
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    const PROOF: &str = "crates/base/src/a.rs:2: unsafe without a `// SAFETY:` proof above";
    const SECTION: &str = "crates/base/src/a.rs:2: unsafe without a `# Safety` section or `// SAFETY:` above";

    fn in_base(text: &str) -> Vec<String> {
        found(check, &[("crates/base/src/a.rs", text)])
    }

    #[test]
    fn unsafe_outside_its_crates() {
        let block = "fn f() {\n    // SAFETY: proved.\n    unsafe { g() }\n}\n";
        let expected = |path: &str| [format!("{path}:3: unsafe code outside {}", unsafe_places())];
        for path in [
            "crates/model/src/a.rs",
            "crates/model/tests/a.rs",
            "crates/base-more/src/a.rs",
            "crates/layout/src/lib.rs",
            "crates/layout/src/simd_more.rs",
            "build.rs",
        ] {
            assert_eq!(found(check, &[(path, block)]), expected(path));
        }
        for path in [
            "crates/base/src/a.rs",
            "crates/fabric-shm/tests/a.rs",
            "crates/layout/src/simd.rs",
            "crates/layout/src/simd/a.rs",
        ] {
            assert_eq!(found(check, &[(path, block)]), [""; 0]);
        }
        let prose = "//! unsafe { }\n#![forbid(unsafe_code)]\nconst A: &str = \"unsafe { }\";\n";
        assert_eq!(found(check, &[("crates/model/src/a.rs", prose)]), [""; 0]);
    }

    #[test]
    fn blocks_need_a_proof() {
        for bad in [
            "fn f() {\n    unsafe { g() }\n}",
            "// SAFETY:\nunsafe { g() }",
            "// Because.\nunsafe impl Send for A {}",
            "// # Safety\nunsafe extern \"C\" {}",
            "// Why.\n#[unsafe(no_mangle)]",
        ] {
            assert_eq!(in_base(bad), [PROOF], "{bad}");
        }
        let stolen = "// SAFETY: of the first alone.\nunsafe { a() };\nunsafe { b() };";
        assert_eq!(in_base(stolen), [PROOF.replace(":2:", ":3:")]);
        for good in [
            "// SAFETY: one line.\nunsafe { g() }",
            "// SAFETY: two lines,\n// in two.\nlet a =\n    unsafe { g() };",
            "// SAFETY: through an attribute.\n#[cfg(unix)]\nunsafe impl Send for A {}",
        ] {
            assert_eq!(in_base(good), [""; 0], "{good}");
        }
    }

    #[test]
    fn functions_need_a_section() {
        for bad in [
            "/// Reads.\npub unsafe fn f() {}",
            "/// # Safety\npub unsafe fn f() {}",
            "/// x\npub unsafe extern \"C\" fn f() {}",
            "/// x\nunsafe trait A {}",
        ] {
            assert_eq!(in_base(bad), [SECTION], "{bad}");
        }
        for good in [
            "/// Reads.\n///\n/// # Safety\n/// `at` is valid.\n#[inline]\npub unsafe fn f() {}",
            "// SAFETY: the trait's own terms.\nunsafe fn f() {}",
            "struct A {\n    call: unsafe extern \"C\" fn(u32),\n    other: unsafe fn(),\n}",
        ] {
            assert_eq!(in_base(good), [""; 0], "{good}");
        }
    }

    #[test]
    fn roots_forbid_it() {
        let manifest = "[package]\nname = \"a\"\n";
        let root = |path: &str, text: &str| found(check, &[("crates/a/Cargo.toml", manifest), (path, text)]);
        let expected = |path: &str| [format!("{path}: does not begin with #![forbid(unsafe_code)]")];
        for path in ["crates/a/src/lib.rs", "crates/a/src/main.rs", "crates/a/src/bin/b.rs"] {
            assert_eq!(root(path, "//! Docs.\n"), expected(path));
            assert_eq!(root(path, "// #![forbid(unsafe_code)]\n"), expected(path));
            assert_eq!(root(path, "#![deny(unsafe_code)]\n"), expected(path));
            assert_eq!(root(path, "//! Docs.\n#![forbid(unsafe_code)]\n"), [""; 0]);
        }
        assert_eq!(root("crates/a/src/b.rs", ""), [""; 0]);
        let base = [("crates/base/Cargo.toml", manifest), ("crates/base/src/lib.rs", "")];
        assert_eq!(found(check, &base), [""; 0]);
        let layout = |text| {
            found(check, &[("crates/layout/Cargo.toml", manifest), ("crates/layout/src/lib.rs", text)])
        };
        assert_eq!(layout("#![deny(unsafe_code)]\n"), [""; 0]);
        assert_eq!(
            layout("#![forbid(unsafe_code)]\n"),
            ["crates/layout/src/lib.rs: does not begin with #![deny(unsafe_code)]"]
        );
    }
}

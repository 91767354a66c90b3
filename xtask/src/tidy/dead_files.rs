//! Files that nothing uses: Rust sources that no target reaches, and what editors and patches leave behind.

use std::collections::BTreeSet;

use syn::Item;
use toml::Value;

use super::packages::{Package, packages};
use super::{Tree, Violation};

const LEFTOVER_ENDINGS: &[&str] = &[".orig", ".rej", ".bak", ".swp", ".swo", ".tmp", "~"];

/// Sources that no target reaches, and leftovers.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Violation> {
    let (packages, mut violations) = packages(tree);
    for package in &packages {
        violations.extend(unreached(tree, package));
    }
    let leftovers = tree.paths().filter(|path| LEFTOVER_ENDINGS.iter().any(|ending| path.ends_with(ending)));
    violations.extend(leftovers.map(|path| Violation::of_file(path, "an editor's or a patch's leftover")));
    violations
}

fn unreached(tree: &Tree, package: &Package) -> Vec<Violation> {
    let inside = |path: &str| path.strip_prefix(&package.directory)?.strip_prefix('/').map(str::to_owned);
    let named = named_targets(package);
    let is_root =
        |path: &str| inside(path).is_some_and(|inside| named.contains(&inside) || is_target(&inside));

    let mut violations = Vec::new();
    let mut reached: BTreeSet<String> = BTreeSet::new();
    let mut open: Vec<(String, bool)> = tree
        .texts_of("rs")
        .map(|(path, _)| (path.to_owned(), true))
        .filter(|(path, _)| is_root(path))
        .collect();
    while let Some((path, root)) = open.pop() {
        let Some(text) = tree.text(&path) else { continue };
        if !reached.insert(path.clone()) {
            continue;
        }
        match syn::parse_file(text) {
            Ok(file) => {
                let modules = module_files(&file.items, &module_directory(&path, root));
                open.extend(modules.into_iter().map(|module| (module, false)));
            }
            Err(error) => violations.push(Violation::of_file(&path, format!("does not parse: {error}"))),
        }
    }

    let is_source = |path: &str| {
        let folder = inside(path).and_then(|inside| Some(inside.split_once('/')?.0.to_owned()));
        folder.is_some_and(|folder| ["src", "tests", "benches", "examples"].contains(&folder.as_str()))
    };
    let dead =
        tree.texts_of("rs").map(|(path, _)| path).filter(|path| is_source(path) && !reached.contains(*path));
    violations.extend(dead.map(|path| Violation::of_file(path, "no target and no `mod` reaches this file")));
    violations
}

/// Paths, from the package's directory, of the targets that its manifest names.
fn named_targets(package: &Package) -> BTreeSet<String> {
    let path_of = |target: &Value| target.get("path").and_then(Value::as_str).map(str::to_owned);
    let lists =
        ["bin", "test", "bench", "example"].iter().filter_map(|kind| package.manifest.get(*kind)?.as_array());
    let library = package.manifest.get("lib").and_then(path_of);
    lists.flatten().filter_map(path_of).chain(library).collect()
}

/// True for a Rust source that Cargo takes as a target by its place.
fn is_target(inside: &str) -> bool {
    match inside.split('/').collect::<Vec<_>>().as_slice() {
        ["build.rs"] | ["src", "lib.rs" | "main.rs"] => true,
        ["src", "bin", rest @ ..] | ["tests" | "benches" | "examples", rest @ ..] => {
            matches!(rest, [_] | [_, "main.rs"])
        }
        _ => false,
    }
}

/// The directory in which the modules of the file at `path` stand, with a slash.
fn module_directory(path: &str, root: bool) -> String {
    let (directory, file) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = file.strip_suffix(".rs").unwrap_or(file);
    if root || stem == "mod" { format!("{directory}/") } else { format!("{directory}/{stem}/") }
}

/// Both places of every module that `items` declare in files of their own.
fn module_files(items: &[Item], directory: &str) -> Vec<String> {
    let mut files = Vec::new();
    for item in items {
        let Item::Mod(module) = item else { continue };
        let name = module.ident.to_string();
        match &module.content {
            Some((_, inner)) => files.extend(module_files(inner, &format!("{directory}{name}/"))),
            None => files.extend([format!("{directory}{name}.rs"), format!("{directory}{name}/mod.rs")]),
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    const MANIFEST: (&str, &str) = ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n");

    fn dead(path: &str) -> String {
        format!("{path}: no target and no `mod` reaches this file")
    }

    #[test]
    fn modules_are_followed() {
        let mut files = vec![
            MANIFEST,
            (
                "crates/a/src/lib.rs",
                "mod one;\nmod inner { mod deep; }\n#[cfg(test)]\nmod tests { fn f() {} }\n",
            ),
            ("crates/a/src/one.rs", "mod two;\n"),
            ("crates/a/src/one/two.rs", ""),
            ("crates/a/src/inner/deep.rs", ""),
            ("crates/a/tests/suite.rs", "mod common;\n"),
            ("crates/a/tests/common/mod.rs", "mod more;\n"),
            ("crates/a/tests/common/more.rs", ""),
            ("crates/a/examples/many/main.rs", ""),
            ("crates/a/src/bin/tool.rs", ""),
            ("crates/a/build.rs", ""),
        ];
        assert_eq!(found(check, &files), [""; 0]);
        files.extend([
            ("crates/a/src/two.rs", ""),
            ("crates/a/src/one/three.rs", ""),
            ("crates/a/tests/common/lost.rs", ""),
            ("crates/a/benches/deep/lost.rs", ""),
        ]);
        let lost = ["benches/deep/lost.rs", "src/one/three.rs", "src/two.rs", "tests/common/lost.rs"];
        assert_eq!(found(check, &files), lost.map(|file| dead(&format!("crates/a/{file}"))));
    }

    #[test]
    fn a_mod_in_a_comment_reaches_nothing() {
        let files = [MANIFEST, ("crates/a/src/lib.rs", "// mod one;\n"), ("crates/a/src/one.rs", "")];
        assert_eq!(found(check, &files), [dead("crates/a/src/one.rs")]);
    }

    #[test]
    fn targets_may_be_named() {
        let manifest = "[package]\nname = \"a\"\n[[bench]]\nname = \"b\"\npath = \"benches/deep/limit.rs\"\n";
        let files = [("a/Cargo.toml", manifest), ("a/benches/deep/limit.rs", "")];
        assert_eq!(found(check, &files), [""; 0]);
    }

    #[test]
    fn leftovers_are_found() {
        for path in ["crates/a/src/lib.rs.orig", "README.md~", "x.bak", "x.rej"] {
            assert_eq!(found(check, &[(path, "")]), [format!("{path}: an editor's or a patch's leftover")]);
        }
    }

    #[test]
    fn what_does_not_parse_is_named() {
        let files = [MANIFEST, ("crates/a/src/lib.rs", "fn {")];
        assert!(found(check, &files)[0].starts_with("crates/a/src/lib.rs: does not parse: "));
    }
}

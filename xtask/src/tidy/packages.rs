//! The workspace's packages, from their manifests.

use std::collections::BTreeSet;

use toml::{Table, Value};

use super::{Tree, Violation};

/// One package.
pub(super) struct Package {
    /// Its directory, from the root: `crates/base`.
    pub(super) directory: String,
    /// Its name: `farsight-base`.
    pub(super) name: String,
    /// Its manifest.
    pub(super) manifest: Table,
}

impl Package {
    /// The path of its manifest.
    pub(super) fn manifest_path(&self) -> String {
        format!("{}/Cargo.toml", self.directory)
    }

    /// Names of the packages in its tables of these kinds (`dependencies`, ...), of every target. A renamed
    /// dependency counts by its package's own name, for which `workspace` is the root's table.
    pub(super) fn dependencies(&self, kinds: &[&str], workspace: &Table) -> BTreeSet<String> {
        let targets = self.manifest.get("target").and_then(Value::as_table);
        let per_target = targets.into_iter().flat_map(|targets| targets.values().filter_map(Value::as_table));
        let mut names = BTreeSet::new();
        for table in per_target.chain([&self.manifest]) {
            for dependencies in kinds.iter().filter_map(|kind| table.get(*kind)?.as_table()) {
                names.extend(dependencies.iter().map(|(key, value)| package_name(key, value, workspace)));
            }
        }
        names
    }
}

/// All packages of the tree, and what cannot be read of them.
pub(super) fn packages(tree: &Tree) -> (Vec<Package>, Vec<Violation>) {
    let mut packages = Vec::new();
    let mut violations = Vec::new();
    for (path, text) in tree.texts() {
        let Some(directory) = path.strip_suffix("/Cargo.toml") else { continue };
        match text.parse::<Table>() {
            Ok(manifest) => match manifest.get("package").and_then(|package| package.get("name")?.as_str()) {
                Some(name) => {
                    let (directory, name) = (directory.to_owned(), name.to_owned());
                    packages.push(Package { directory, name, manifest });
                }
                None => violations.push(Violation::of_file(path, "a manifest without a package name")),
            },
            Err(error) => violations.push(Violation::of_file(path, format!("not TOML: {error}"))),
        }
    }
    (packages, violations)
}

/// The root manifest's `[workspace.dependencies]`; empty if there is none.
pub(super) fn workspace_dependencies(tree: &Tree) -> Table {
    let root: Option<Table> = tree.text("Cargo.toml").and_then(|text| text.parse().ok());
    let table = root.and_then(|root| root.get("workspace")?.get("dependencies")?.as_table().cloned());
    table.unwrap_or_default()
}

fn package_name(key: &str, value: &Value, workspace: &Table) -> String {
    let inherited = value.get("workspace").and_then(Value::as_bool) == Some(true);
    let value = if inherited { workspace.get(key).unwrap_or(value) } else { value };
    value.get("package").and_then(Value::as_str).unwrap_or(key).to_owned()
}

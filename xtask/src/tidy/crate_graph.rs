//! The layers: which crate may depend on which.
//!
//! Invariant: dependencies point to layers below, by the table here. Server and client never see each other,
//! and only the facade and the harnesses name a provider of the fabric. Tests of a crate may in addition use
//! what its dependencies use, and a provider where the fabric is among that. A test that needs more lives in
//! conformance.

use std::collections::BTreeSet;

use super::packages::{Package, packages, workspace_dependencies};
use super::{Tree, Violation};

/// A layer's directory, less `crates/`, and the layers that it may depend on.
type Layer = (&'static str, &'static [&'static str]);

/// Lowest first.
const LAYERS: &[Layer] = &[
    ("base", &[]),
    ("fabric", &["base"]),
    ("fabric-host", &["base", "fabric"]),
    ("fabric-net", &["base", "fabric", "fabric-host"]),
    ("fabric-shm", &["base", "fabric", "fabric-host"]),
    ("fabric-sim", &["base", "fabric"]),
    ("fabric-tcp", &["base", "fabric", "fabric-host", "fabric-net"]),
    ("fabric-verbs", &["base", "fabric", "fabric-host", "fabric-net"]),
    ("layout", &["base"]),
    ("blocks", &["base", "fabric", "layout"]),
    ("durability", &["base", "layout"]),
    ("protocol", &["base", "layout"]),
    ("cluster", &["base", "protocol"]),
    ("model", &["base"]),
    ("index", &["base", "fabric", "layout", "model", "protocol"]),
    ("index-baselines", &["base", "fabric", "index", "layout"]),
    ("index-flexkv", &["base", "fabric", "index", "layout", "protocol"]),
    ("index-rolex", &["base", "fabric", "index", "layout", "model", "protocol"]),
    ("index-xstore", &["base", "blocks", "fabric", "index", "layout", "model", "protocol"]),
    (
        "node",
        &["base", "blocks", "durability", "fabric", "index", "index-xstore", "layout", "model", "protocol"],
    ),
    (
        "client",
        &["base", "fabric", "index", "index-flexkv", "index-rolex", "index-xstore", "layout", "protocol"],
    ),
    ("compute-node", &["base", "client", "fabric", "index", "layout", "node", "protocol"]),
    (
        "farsight",
        &[
            "base",
            "client",
            "cluster",
            "compute-node",
            "durability",
            "fabric",
            "fabric-shm",
            "fabric-tcp",
            "fabric-verbs",
            "index",
            "layout",
            "node",
            "protocol",
        ],
    ),
    // What the harnesses share: what their judges know keys by.
    ("oracles", &["base"]),
    (
        "sim",
        &[
            "base",
            "client",
            "compute-node",
            "durability",
            "fabric",
            "fabric-sim",
            "index",
            "index-flexkv",
            "index-rolex",
            "index-xstore",
            "layout",
            "node",
            "oracles",
            "protocol",
        ],
    ),
    // The harness: beside the facade, the layers whose limits it measures.
    (
        "bench",
        &[
            "base",
            "client",
            "compute-node",
            "fabric",
            "fabric-shm",
            "fabric-sim",
            "farsight",
            "index",
            "index-xstore",
            "layout",
            "model",
            "node",
            "oracles",
            "protocol",
            "sim",
        ],
    ),
    ("bin/farsight", &["bench", "farsight", "sim"]),
    ("bindings/python", &["farsight"]),
    // Outside the workspace: nothing else compiles foreign stores.
    (
        "bench-compare",
        &["base", "bench", "fabric", "fabric-shm", "farsight", "index-baselines", "layout", "oracles"],
    ),
    ("conformance", EVERY_LIBRARY),
    ("fuzz", &["conformance"]),
    ("xtask", &[]),
];

/// The layers that provide the fabric.
const PROVIDERS: &[&str] = &["fabric-shm", "fabric-sim", "fabric-tcp", "fabric-verbs"];

const EVERY_LIBRARY: &[&str] = &[
    "base",
    "bench",
    "blocks",
    "client",
    "cluster",
    "compute-node",
    "durability",
    "fabric",
    "fabric-host",
    "fabric-net",
    "fabric-shm",
    "fabric-sim",
    "fabric-tcp",
    "fabric-verbs",
    "farsight",
    "index",
    "index-baselines",
    "index-flexkv",
    "index-rolex",
    "index-xstore",
    "layout",
    "model",
    "node",
    "oracles",
    "protocol",
    "sim",
];

/// Upward and sideways dependencies, crates without a layer, layers without a crate, crates that leave the
/// workspace's lints.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Violation> {
    check_layers(tree, LAYERS)
}

fn check_layers(tree: &Tree, layers: &[Layer]) -> Vec<Violation> {
    let (packages, mut violations) = packages(tree);
    let workspace = workspace_dependencies(tree);
    for package in &packages {
        let path = package.manifest_path();
        if package.manifest.get("lints").and_then(|lints| lints.get("workspace")?.as_bool()) != Some(true) {
            violations.push(Violation::of_file(
                &path,
                "the workspace's lints are missing: [lints] workspace = true",
            ));
        }
        let layer = layer_name(package);
        let Some((_, allowed)) = layers.iter().find(|(name, _)| *name == layer) else {
            violations.push(Violation::of_file(&path, format!("{layer} is missing in the table of layers")));
            continue;
        };
        let allowed: BTreeSet<&str> = allowed.iter().copied().collect();
        let real = package.dependencies(&["dependencies", "build-dependencies"], &workspace);
        violations.extend(refused(package, &packages, &real, "depends on", "may depend on", &allowed));
        let for_tests = package.dependencies(&["dev-dependencies"], &workspace);
        let testable = testable(&allowed, layers);
        violations.extend(refused(package, &packages, &for_tests, "tests with", "may test with", &testable));
    }
    for (name, _) in layers {
        if !packages.iter().any(|package| layer_name(package) == *name) {
            violations
                .push(Violation::of_file("Cargo.toml", format!("the table's layer {name} has no crate")));
        }
    }
    violations
}

/// One violation for each of the workspace's own packages in `named` whose layer is not `allowed`.
fn refused(
    package: &Package,
    packages: &[Package],
    named: &BTreeSet<String>,
    verb: &str,
    permission: &str,
    allowed: &BTreeSet<&str>,
) -> Vec<Violation> {
    let ours = named.iter().filter_map(|name| packages.iter().find(|other| other.name == *name));
    let wrong = ours.filter(|other| !allowed.contains(layer_name(other)));
    let list = allowed.iter().copied().collect::<Vec<_>>().join(", ");
    let messages = wrong.map(|other| {
        let (directory, layer) = (&package.directory, layer_name(package));
        format!("{directory} {verb} {}: {layer} {permission} [{list}]", other.name)
    });
    messages.map(|message| Violation::of_file(&package.manifest_path(), message)).collect()
}

fn layer_name(package: &Package) -> &str {
    package.directory.strip_prefix("crates/").unwrap_or(&package.directory)
}

/// What the tests of a crate that may depend on `direct` may use.
fn testable<'a>(direct: &BTreeSet<&'a str>, layers: &[(&'a str, &'a [&'a str])]) -> BTreeSet<&'a str> {
    let mut layers_below = closure(direct, layers);
    if layers_below.contains("fabric") {
        layers_below.extend(PROVIDERS);
    }
    layers_below
}

/// `direct` and all that these layers may depend on, and so on.
fn closure<'a>(direct: &BTreeSet<&'a str>, layers: &[(&'a str, &'a [&'a str])]) -> BTreeSet<&'a str> {
    let mut reached = direct.clone();
    // Lowest first in the table, so one pass from the top reaches all.
    for (name, below) in layers.iter().rev() {
        if reached.contains(name) {
            reached.extend(below.iter().copied());
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    const SMALL: &[Layer] = &[
        ("base", &[]),
        ("fabric", &["base"]),
        ("model", &["base"]),
        ("index", &["fabric", "model"]),
        ("bin/farsight", &["index"]),
    ];

    fn small(tree: &Tree) -> Vec<Violation> {
        check_layers(tree, SMALL)
    }

    fn manifest(name: &str, tail: &str) -> String {
        format!("[package]\nname = \"{name}\"\n[lints]\nworkspace = true\n{tail}")
    }

    /// The small workspace, sound but for model's manifest.
    fn with_model(model: &str) -> Vec<String> {
        let base = manifest("farsight-base", "");
        let fabric =
            manifest("farsight-fabric", "[dependencies]\nfarsight-base.workspace = true\nlibc = \"1\"\n");
        let index = manifest(
            "farsight-index",
            "[dependencies]\nfarsight-model.workspace = true\n[dev-dependencies]\nfarsight-base.workspace = true\n",
        );
        let program = manifest("farsight-cli", "[dependencies]\nfarsight-index = { path = \"x\" }\n");
        found(
            small,
            &[
                (
                    "Cargo.toml",
                    "[workspace.dependencies]\nrenamed = { package = \"farsight-fabric\", path = \"x\" }\n",
                ),
                ("crates/base/Cargo.toml", &base),
                ("crates/fabric/Cargo.toml", &fabric),
                ("crates/model/Cargo.toml", model),
                ("crates/index/Cargo.toml", &index),
                ("bin/farsight/Cargo.toml", &program),
            ],
        )
    }

    #[test]
    fn a_sound_workspace_passes() {
        let tail =
            "[dependencies]\nfarsight-base.workspace = true\n[dev-dependencies]\nproptest.workspace = true\n";
        assert_eq!(with_model(&manifest("farsight-model", tail)), [""; 0]);
    }

    #[test]
    fn a_dependency_off_the_table_is_found_however_it_is_written() {
        let expected =
            "crates/model/Cargo.toml: crates/model depends on farsight-fabric: model may depend on [base]";
        let ways = [
            "[dependencies]\nfarsight-fabric.workspace = true\n",
            "[dependencies]\nother = { package = \"farsight-fabric\", path = \"../fabric\" }\n",
            "[dependencies]\nrenamed.workspace = true\n",
            "[build-dependencies]\nfarsight-fabric.workspace = true\n",
            "[target.'cfg(unix)'.dependencies]\nfarsight-fabric.workspace = true\n",
        ];
        for way in ways {
            assert_eq!(with_model(&manifest("farsight-model", way)), [expected], "{way}");
        }
    }

    #[test]
    fn tests_reach_down_and_never_up() {
        let direct = |layer: &str| LAYERS.iter().find(|(name, _)| *name == layer).unwrap().1;
        let may_test_with = |layer: &str| testable(&direct(layer).iter().copied().collect(), LAYERS);
        assert!(may_test_with("node").contains("fabric-shm"));
        assert!(
            !may_test_with("fabric").contains("fabric-shm") && !may_test_with("model").contains("fabric-shm")
        );
        assert!(!may_test_with("index-xstore").contains("node") && !may_test_with("client").contains("node"));

        let up = "[dev-dependencies]\nfarsight-index.workspace = true\n";
        assert_eq!(
            with_model(&manifest("farsight-model", up)),
            ["crates/model/Cargo.toml: crates/model tests with farsight-index: model may test with [base]"]
        );
    }

    #[test]
    fn crates_layers_and_lints_must_be_there() {
        assert_eq!(
            with_model("[package]\nname = \"farsight-model\"\n"),
            ["crates/model/Cargo.toml: the workspace's lints are missing: [lints] workspace = true"]
        );
        let unreadable = with_model("name = [");
        assert_eq!(unreadable.len(), 2, "{unreadable:?}");
        assert!(unreadable[0].starts_with("crates/model/Cargo.toml: not TOML: "), "{unreadable:?}");
        assert_eq!(unreadable[1], "Cargo.toml: the table's layer model has no crate");
        let stranger = manifest("stranger", "");
        let found = found(small, &[("crates/stranger/Cargo.toml", &stranger)]);
        assert_eq!(found[0], "crates/stranger/Cargo.toml: stranger is missing in the table of layers");
    }

    #[test]
    fn the_table_points_down_and_keeps_its_promises() {
        for (index, (name, below)) in LAYERS.iter().enumerate() {
            for layer in *below {
                let place = LAYERS.iter().position(|(other, _)| other == layer);
                assert!(
                    place.is_some_and(|place| place < index),
                    "{name} may depend on {layer}, which is not below"
                );
            }
        }
        let reached = |layer: &str| {
            let (_, below) = LAYERS.iter().find(|(name, _)| *name == layer).unwrap();
            closure(&below.iter().copied().collect(), LAYERS)
        };
        assert!(!reached("node").contains("client") && !reached("client").contains("node"));
        for (name, below) in LAYERS {
            let may_name_a_provider =
                ["farsight", "bench", "bench-compare", "sim", "conformance"].contains(name);
            let names_a_provider = below.iter().any(|layer| PROVIDERS.contains(layer));
            assert_eq!(names_a_provider, may_name_a_provider, "{name}");
        }
        assert!(!reached("model").contains("fabric"));
    }
}

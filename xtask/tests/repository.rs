//! The repository itself keeps the rules.

use xtask::tidy::{self, Tree};

#[test]
fn the_repository_is_tidy() {
    let tree = Tree::read(&tidy::repository_root()).unwrap();
    for file in ["Cargo.toml", ".ci/run", "crates/base/src/lib.rs", "xtask/tests/repository.rs"] {
        assert!(tree.text(file).is_some(), "the checks do not see {file}");
    }
    let violations = tidy::violations(&tree);
    assert!(violations.is_empty(), "{} found:\n{}", violations.len(), violations.join("\n"));
}

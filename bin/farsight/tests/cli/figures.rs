//! A result drawn, and one that cannot be.

use std::path::Path;
use std::process::{Command, Output};

fn farsight(arguments: &[&str], paths: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farsight"));
    command.args(arguments).args(paths).output().expect("the program starts")
}

#[test]
fn a_model_is_surveyed_and_drawn() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (json, svg) = (directory.path().join("model.json"), directory.path().join("model.svg"));
    let survey =
        farsight(&["bench", "model", "--dataset", "lognormal", "--keys", "30000", "--json"], &[&json]);
    let said = String::from_utf8_lossy(&survey.stdout);
    assert!(survey.status.success() && said.contains("lognormal: 30,000 keys on 2,500 leaves"), "{survey:?}");
    let figure = farsight(&["figure", "--out"], &[&svg, &json]);
    assert!(figure.status.success(), "{figure:?}");
    let picture = std::fs::read_to_string(&svg).expect("a picture");
    assert!(picture.contains("lognormal: 30,000 keys and the model over them"), "{picture}");
}

#[test]
fn what_is_no_result_is_refused_by_name() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (json, svg) = (directory.path().join("other.json"), directory.path().join("other.svg"));
    std::fs::write(&json, "[{\"workload\": \"a\"}]").expect("writable");
    let refused = farsight(&["figure", "--out"], &[&svg, &json]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("other.json") && said.contains("no picture"),
        "{said}"
    );
    assert!(!svg.exists());
}

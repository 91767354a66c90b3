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

/// The results that a command printed because it could not store them.
fn printed(output: &Output) -> serde_json::Value {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the results are printed, not stored"), "{said}");
    let shown = String::from_utf8_lossy(&output.stdout);
    let json = shown.find("\n[").expect("an array behind the text");
    serde_json::from_str(&shown[json..]).expect("results")
}

#[test]
fn a_result_that_has_no_room_is_printed_and_the_one_before_stays() {
    let arguments = ["bench", "model", "--dataset", "lognormal", "--keys", "30000", "--json"];
    let records = printed(&farsight(&arguments, &[Path::new("/dev/full")]));
    assert_eq!(records[0]["keys"], 30_000);

    let directory = tempfile::tempdir().expect("a temporary directory");
    let json = directory.path().join("model.json");
    std::fs::write(&json, "before").expect("writable");
    // No file may grow beyond a few hundred bytes.
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_farsight")]);
    let records = printed(&limited.args(arguments).arg(&json).output().expect("a shell"));
    assert_eq!(records[0]["keys"], 30_000);
    assert_eq!(std::fs::read_to_string(&json).expect("it is there"), "before");
    assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 1);
    let nowhere = farsight(&arguments, &[&directory.path().join("nowhere/model.json")]);
    assert!(
        nowhere.stdout.is_empty() && nowhere.status.code() == Some(1),
        "told before the work: {nowhere:?}"
    );
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

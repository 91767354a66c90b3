//! The figures of FlexKV's evaluation, at a tiny size.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const SMALL: [&str; 6] =
    ["bench", "flexkv", "--clients=2x2", "--keys=500", "--seconds=0.0002", "--pace=1000"];

fn farsight(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farsight")).args(arguments).output().expect("the program starts")
}

/// Runs a figure; what was shown, the points, and the picture of them if it has one.
fn figure(number: &str, directory: &Path) -> (String, Vec<Value>, Option<String>) {
    let path = |name: &str| directory.join(name).to_str().expect("a text").to_owned();
    let (json, svg) = (path("figure.json"), path("figure.svg"));
    let output = farsight(&[&SMALL[..], &["--figure", number, "--json", &json]].concat());
    assert!(output.status.success(), "{output:?}");
    let shown = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(shown.contains("wrong answers of the store: 0"), "{shown}");
    let points = serde_json::from_str(&std::fs::read_to_string(&json).expect("results")).expect("an array");
    let drawn = farsight(&["figure", &json, "--out", &svg]);
    let picture = drawn.status.success().then(|| std::fs::read_to_string(&svg).expect("a picture"));
    (shown, points, picture)
}

fn texts<'p>(points: &'p [Value], field: &str) -> Vec<&'p str> {
    let mut texts: Vec<&str> = points.iter().map(|point| point[field].as_str().expect("a text")).collect();
    texts.sort_unstable();
    texts.dedup();
    texts
}

#[test]
fn systems_are_compared_by_clients_and_drawn() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (shown, points, picture) = figure("11", directory.path());
    assert_eq!(texts(&points, "panel"), ["a", "b-standard", "c", "d"]);
    let systems = texts(&points, "system");
    assert_eq!(systems[..2], ["flexkv", "flexkv, one-sided"]);
    assert_eq!(systems.len(), 10, "{systems:?}");
    for point in &points {
        let is_mix = point["system"].as_str().expect("a text").starts_with("verbs of ");
        assert_eq!(point["run"]["is_verb_mix"], is_mix, "{point}");
        assert!(point["run"]["throughput_ops_per_s"].as_f64().expect("a rate") > 1e4, "{point}");
    }
    assert!(shown.contains("nothing is stored or found"), "{shown}");
    let picture = picture.expect("it is drawn");
    assert!(picture.contains(">b-standard<") && picture.contains("verbs of aceso"), "{picture}");
}

#[test]
fn a_workload_that_changes_is_sampled_and_drawn_over_time() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (shown, points, picture) = figure("18", directory.path());
    let samples = points[0]["run"]["samples"].as_array().expect("samples");
    let of = |workload: &str| samples.iter().filter(|sample| sample["workload"] == workload).count();
    assert_eq!((of("b-standard"), of("a")), (80, 80), "{shown}");
    let picture = picture.expect("it is drawn");
    assert!(picture.contains("% of the partitions offloaded") && picture.contains(">a<"), "{picture}");
    let (_, again, _) = figure("18", directory.path());
    assert_eq!(points, again, "two runs are one");
}

#[test]
fn loads_hits_and_latencies_have_tables_of_their_own() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (shown, points, picture) = figure("19,table1", directory.path());
    assert_eq!(texts(&points, "figure"), ["19", "table1"]);
    for column in ["variation", "by heat", "by number", "addresses"] {
        assert!(shown.contains(column), "no {column:?} in {shown}");
    }
    assert!(picture.is_none(), "two figures are two pictures");
    for point in points.iter().filter(|point| point["figure"] == "table1") {
        let reads = &point["run"]["lone_reads"];
        let parts = ["value", "address", "other"].map(|kind| reads[kind]["part"].as_f64().expect("a part"));
        assert!((parts.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{point}");
    }
}

#[test]
fn figures_that_are_not_there_are_refused() {
    for (arguments, evidence) in [
        (&["--figure=15"][..], "no figure \"15\": expected one of 11, 12"),
        (&["--figure=18", "--pace=0"], "expected a number from 1 to 1000, got \"0\""),
        (&["--figure=18", "--clients=2x17"], "17 threads a machine are more than the 16 cores"),
    ] {
        let output = farsight(&[&["bench", "flexkv"], arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(evidence), "{arguments:?}: {said}");
    }
}

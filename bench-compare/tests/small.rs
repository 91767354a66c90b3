//! The whole comparison, small: every store that is built in does every work that it can, every answer is
//! checked, and the result is in the document and the file.

use std::process::Command;

use farsight_bench::report::{Comparison, Work, read_json};

#[test]
fn every_store_does_every_work_rightly() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (json, document) = (directory.path().join("result.json"), directory.path().join("result.md"));
    std::fs::write(&document, "# Title\n").expect("a file");
    let mut program = Command::new(env!("CARGO_BIN_EXE_farsight-bench-compare"));
    program.args([
        "--dataset",
        "boundaries",
        "--keys",
        "20000",
        "--rounds",
        "2",
        "--seconds",
        "0.02",
        "--batch",
        "50",
    ]);
    program
        .arg("--directory")
        .arg(directory.path())
        .arg("--json")
        .arg(&json)
        .arg("--document")
        .arg(&document);
    let output = program.output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);

    let comparisons: Vec<Comparison> = read_json(&json).expect("a result");
    let [comparison] = &comparisons[..] else { panic!("{} comparisons", comparisons.len()) };
    let works = |name: &str| {
        let store = comparison.store(name).unwrap_or_else(|| panic!("no {name}"));
        Work::ALL.iter().filter(|work| store.rate(**work).is_some_and(|rate| rate.runs.len() == 2)).count()
    };
    for name in ["Farsight", "LMDB", "redb", "BTreeMap", "scc TreeIndex"] {
        assert_eq!(works(name), Work::ALL.len(), "{name}");
    }
    assert_eq!(works("static tree"), 4, "GETs, uniform and not, in batches and singly");
    assert_eq!(works("hash table"), Work::ALL.len() - 2, "all but scans");
    let text = std::fs::read_to_string(&document).expect("the document");
    assert!(text.starts_with("# Title\n\n<!-- measured: boundaries 20000 -->\n"), "{text}");
    assert!(
        !directory.path().read_dir().expect("listable").any(|entry| {
            entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("farsight-compare-"))
        }),
        "files of stores stay behind"
    );
}

/// Farsight over TCP beside Redis, small: at every depth both answer rightly, and the result is in the
/// document and the file.
#[test]
fn redis_and_farsight_answer_alike() {
    let is_there = Command::new("redis-server").arg("--version").output().is_ok();
    if !is_there {
        assert!(std::env::var_os("FARSIGHT_CI").is_none(), "no redis-server: apt-get install redis-server");
        println!("skipped: this needs redis-server (apt-get install redis-server)");
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (json, document) = (directory.path().join("result.json"), directory.path().join("result.md"));
    std::fs::write(&document, "# Title\n").expect("a file");
    let mut program = Command::new(env!("CARGO_BIN_EXE_farsight-bench-compare"));
    program.args(["redis", "--keys", "20000", "--rounds", "2", "--seconds", "0.02"]);
    program.arg("--json").arg(&json).arg("--document").arg(&document).env("TMPDIR", directory.path());
    let output = program.output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    let results: Vec<serde_json::Value> = read_json(&json).expect("a result");
    let contests = results[0]["contests"].as_array().expect("contests");
    let depths: Vec<_> = contests.iter().map(|contest| contest["depth"].as_u64()).collect();
    assert_eq!(depths, [1, 16, 64, 256, 1024, 64].map(Some));
    for series in contests.iter().flat_map(|contest| contest["series"].as_array().expect("series")) {
        let rates = series["requests_per_s"].as_array().expect("rates");
        assert!(rates.len() == 2 && rates.iter().all(|rate| rate.as_f64() > Some(0.0)), "{series}");
    }
    let text = std::fs::read_to_string(&document).expect("the document");
    assert!(text.starts_with("# Title\n\n<!-- measured: redis 20000 -->\n"), "{text}");
    let left: Vec<_> = directory.path().read_dir().expect("listable").flatten().collect();
    assert_eq!(left.len(), 2, "more than both results is left: {left:?}");
}

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

/// True if there is a Redis to compare with; says so if not.
fn has_redis() -> bool {
    let is_there = Command::new("redis-server").arg("--version").output().is_ok();
    if !is_there {
        assert!(std::env::var_os("FARSIGHT_CI").is_none(), "no redis-server: apt-get install redis-server");
        println!("skipped: this needs redis-server (apt-get install redis-server)");
    }
    is_there
}

/// Runs a comparison in a directory of its own. Nothing but its result is left there.
fn result_of(arguments: &[&str]) -> (serde_json::Value, String) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (json, document) = (directory.path().join("result.json"), directory.path().join("result.md"));
    std::fs::write(&document, "# Title\n").expect("a file");
    let mut program = Command::new(env!("CARGO_BIN_EXE_farsight-bench-compare"));
    program.args(arguments).arg("--json").arg(&json).arg("--document").arg(&document);
    program.env("TMPDIR", directory.path()).current_dir(directory.path());
    let output = program.output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    let left: Vec<_> = directory.path().read_dir().expect("listable").flatten().collect();
    assert_eq!(left.len(), 2, "more than both results is left: {left:?}");
    let mut results: Vec<serde_json::Value> = read_json(&json).expect("a result");
    assert_eq!(results.len(), 1);
    (results.remove(0), std::fs::read_to_string(&document).expect("the document"))
}

/// The contests of a result, with the names of their series: each has so many rates above zero.
fn contests(result: &serde_json::Value, rates: &str, rounds: usize) -> Vec<Vec<String>> {
    let contests = result["contests"].as_array().expect("contests").iter();
    let names = contests.map(|contest| {
        let series = contest["series"].as_array().expect("series").iter();
        let names = series.map(|series| {
            let rates = series[rates].as_array().expect("rates");
            assert!(rates.len() == rounds && rates.iter().all(|rate| rate.as_f64() > Some(0.0)), "{series}");
            series["name"].as_str().expect("a name").to_owned()
        });
        names.collect()
    });
    names.collect()
}

/// Farsight over TCP beside Redis, small: at every depth both answer rightly, and the result is in the
/// document and the file.
#[test]
fn redis_and_farsight_answer_alike() {
    if !has_redis() {
        return;
    }
    let (result, text) = result_of(&["redis", "--keys", "20000", "--rounds", "2", "--seconds", "0.02"]);
    let depths = result["contests"].as_array().expect("contests").iter();
    let depths: Vec<_> = depths.map(|contest| contest["depth"].as_u64()).collect();
    assert_eq!(depths, [1, 16, 64, 256, 1024, 64].map(Some));
    assert_eq!(contests(&result, "requests_per_s", 2)[0], ["Farsight", "Redis GET", "Redis MGET"]);
    assert!(text.starts_with("# Title\n\n<!-- measured: redis 20000 -->\n"), "{text}");
}

/// Durable writes, small: each store has what it acknowledged, also after it was ended and opened again.
#[test]
fn every_store_keeps_what_it_acknowledged() {
    if !has_redis() {
        return;
    }
    let (result, text) = result_of(&[
        "durable",
        "--keys",
        "3000",
        "--sizes",
        "8,100",
        "--depths",
        "1,50",
        "--rounds",
        "2",
        "--seconds",
        "0.02",
    ]);
    let mut stores = vec![
        "Farsight, shared memory",
        "Farsight, TCP",
        "Farsight, TCP, acknowledged in memory",
        "LMDB",
        "RocksDB",
        "Redis, appendfsync always",
        "Redis, appendfsync everysec",
    ];
    if !cfg!(feature = "rocksdb") {
        stores.retain(|name| *name != "RocksDB");
    }
    let disks = ["fdatasync, 4 KiB written over", "fdatasync, 4 KiB appended"];
    let single = [&disks[..], &stores[..]].concat();
    assert_eq!(contests(&result, "writes_per_s", 2), [&single[..], &stores, &single, &stores]);
    let file_system = result["file_system"].as_str().expect("a file system");
    assert!(file_system.contains(" on "), "{file_system}");
    assert!(text.starts_with("# Title\n\n<!-- measured: durable 3000 -->\n"), "{text}");
    assert!(text.contains(&format!("files on {file_system}")), "{text}");
}

/// Values by size, small: every store answers every GET rightly, and has its last value at the end.
#[test]
fn values_of_every_size_are_compared() {
    if !has_redis() {
        return;
    }
    let (result, text) = result_of(&[
        "values",
        "--sizes",
        "128,5000",
        "--mib",
        "2",
        "--batch",
        "10",
        "--rounds",
        "2",
        "--seconds",
        "0.01",
        "--directory",
        ".",
    ]);
    let of_size: [&[&str]; 3] = [
        &["Farsight, shared memory", "LMDB", "memcpy", "memcpy, checked"],
        &["Farsight, TCP", "Redis"],
        &["Farsight, shared memory", "Farsight, TCP", "LMDB", "Redis"],
    ];
    assert_eq!(contests(&result, "operations_per_s", 2), [of_size, of_size].concat());
    assert!(text.starts_with("# Title\n\n<!-- measured: values 2 -->\n"), "{text}");
}

/// What cannot be measured is refused, with what was expected.
#[test]
fn what_cannot_be_measured_is_refused() {
    for (arguments, expected) in [
        (&["durable", "--depths", "0"][..], "0 is not in 1..=65536"),
        (&["durable", "--sizes", "257"], "257 is not in 8..=256"),
        (&["durable", "--stores", "paper"], "possible values: farsight, farsight-tcp, farsight-memory, lmdb"),
        (&["durable", "--directory", "/nowhere"], "looking for /nowhere"),
        (&["values", "--sizes", "7"], "7 is not in 8..=65536"),
        (&["values", "--mib", "0"], "0 is not in 1..=65536"),
        (
            &["durable", "--stores", "redis", "--keys", "10", "--redis-server", "/nowhere/redis"],
            "running /nowhere/redis: apt-get install redis-server",
        ),
    ] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_farsight-bench-compare"));
        let output = program.args(arguments).output().expect("the program runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{arguments:?}: {said}");
    }
}

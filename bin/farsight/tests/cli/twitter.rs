//! Workloads as Twitter's caches have them, in virtual time.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const SMALL: [&str; 7] =
    ["bench", "twitter", "--clients=2x2", "--keys=500", "--seconds=0.0001", "--cluster", "1"];

fn farsight(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farsight")).args(arguments).output().expect("the program starts")
}

fn records(path: &Path) -> Vec<Value> {
    serde_json::from_str(&std::fs::read_to_string(path).expect("results")).expect("an array")
}

#[test]
fn clusters_are_simulated_and_drawn() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("a text").to_owned();
    let (json, svg) = (path("twitter.json"), path("twitter.svg"));
    let run = |json: &str| {
        let output = farsight(&[&SMALL[..6], &["1,22,50", "--json", json]].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let shown = run(&json);
    for part in ["profile cx3: 2 machines of 2 threads, 3 memory nodes", "2 proxies", "wrong answers: 0"] {
        assert!(shown.contains(part), "no {part:?} in {shown}");
    }
    assert!(shown.contains("cluster 50, one-sided: values of 16216 B, not 67485 B; 500 keys"), "{shown}");
    assert!(shown.contains("cluster 22, one-sided: values of 8 B, not 4 B; 500 keys"), "{shown}");
    let results = records(Path::new(&json));
    assert_eq!(results.len(), 3);
    for record in &results {
        let runs = record["runs"].as_array().expect("runs");
        assert_eq!(runs.iter().map(|run| &run["system"]).collect::<Vec<_>>(), ["one-sided", "2 proxies"]);
        let rate = |run: &Value| run["throughput_ops_per_s"].as_f64().expect("a rate");
        assert!(runs.iter().all(|run| rate(run) > 1e4), "{record}");
    }
    // The longest values fill the links: 3 of them carry 21 GB/s.
    let longest = &results[2]["runs"][0];
    let bytes = longest["throughput_ops_per_s"].as_f64().expect("a rate") * 16_216.0;
    assert!(bytes < 2.0 * 21e9, "{bytes} B/s, of both directions: {longest}");
    assert_eq!(shown.lines().count(), run(&path("again.json")).lines().count());
    assert_eq!(results, records(Path::new(&path("again.json"))), "two runs are one");
    let drawn = farsight(&["figure", &json, "--out", &svg]);
    assert!(drawn.status.success(), "{drawn:?}");
    let picture = std::fs::read_to_string(&svg).expect("a picture");
    assert!(picture.contains(">50: 48 %, 1.3, 67485 B<"), "{picture}");
}

#[test]
fn clusters_without_figures_and_options_without_meaning_are_refused() {
    for (arguments, evidence) in [
        (&["--cluster=5"][..], "no figures are published of cluster 5"),
        (&["--cluster=55"], "no cluster 55; expected 1 to 54"),
        (&["--cluster=some"], "expected a number or all, got \"some\""),
        (
            &["--cluster=1", "--fabric=shm", "--proxies=2"],
            "--proxies has no meaning with --fabric shm or tcp",
        ),
        (&["--cluster=1", "--threads=2"], "--threads has no meaning with --fabric sim"),
        (&["--cluster=1", "--clients=2x2", "--proxies=3"], "--proxies 3 are more than the 2 machines"),
        (&["--cluster=1", "--engine=xstore"], "expected one whose tables lie in a pool of memory nodes"),
    ] {
        let output = farsight(&[&["bench", "twitter"], arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(evidence), "{arguments:?}: {said}");
    }
}

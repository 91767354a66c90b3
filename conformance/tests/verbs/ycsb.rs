//! YCSB by the program: it checks every answer, and what its operations cost is checked here.

use farsight_conformance::engine::harness::Directory;
use farsight_conformance::fabric::verbs::is_asked_for;
use serde_json::Value;

use crate::program::{Serving, program, run};

const KEYS: u64 = 20_000;

/// Whether the devices here read lines whole; one host has one kind.
fn reads_lines_whole() -> bool {
    farsight_fabric_verbs::devices().expect("a device").iter().all(|device| device.reads_lines_whole)
}

fn number(record: &Value, field: &str) -> f64 {
    record[field].as_f64().unwrap_or_else(|| panic!("{field} is no number in {record}"))
}

/// Runs all workloads on the server at `url`, on this host or another.
pub(crate) fn measure(program: &str, url: &str) {
    let directory = Directory::new();
    let json = directory.file("results.json");
    let keys = KEYS.to_string();
    let shape = ["--dataset", "uniform", "--keys", &keys, "--seconds", "0.5", "--runs", "1"];
    let json_text = json.to_str().expect("temporary paths are text");
    let place = ["bench", "ycsb", "--connect", url, "--allow-plaintext", "--json", json_text];
    let shown = run(program, url, &[&place[..], &shape].concat());
    println!("{shown}");
    assert!(shown.contains("wrong answers: 0") && shown.contains("one-sided access over rdma"), "{shown}");
    let records = std::fs::read(&json).expect("results were written");
    let records: Vec<Value> = serde_json::from_slice(&records).expect("a JSON array");
    let workloads: Vec<_> = records.iter().map(|record| record["workload"].as_str()).collect();
    assert_eq!(workloads, ["a", "b", "c", "d", "e", "f"].map(Some));
    for record in &records {
        assert_eq!((&record["fabric"], &record["keys"]), (&"rdma".into(), &KEYS.into()));
        assert!(number(record, "throughput_ops_per_s") > 0.0, "{record}");
        assert!(number(record, "fallbacks_per_op") < 0.05, "{record}");
    }
    let [_, _, reads, _, scans, _] = &records[..] else { unreachable!("six were compared") };
    // Key lines and a value's line, each once; nobody is called, so the server's processor has rest. Where
    // lines do not come whole, the key lines come twice more, for their stamps, and the value's stamp does.
    let (rounds, check_bytes) = if reads_lines_whole() { (1.0, 0.0) } else { (3.0, 2.0 * (192.0 + 8.0)) };
    let within = |field: &str, least: f64, times: f64| {
        let got = number(reads, field);
        assert!((least..least * times).contains(&got), "{field} from {least} on: {reads}");
    };
    within("reads_per_op", 2.0 * rounds, 1.05);
    within("bytes_read_per_op", 256.0 + check_bytes, 1.06);
    within("round_trips_per_op", 2.0 * rounds / 64.0, 3.0);
    assert!(number(reads, "fallbacks_per_op") < 0.001, "{reads}");
    assert!(number(reads, "server_cpu_fraction") < 0.1, "{reads}");
    assert!(number(scans, "reads_per_op") > 4.0, "{scans}");
}

#[test]
fn every_workload_is_measured() {
    if !is_asked_for() {
        return;
    }
    let Some(program) = program() else { return };
    let serving = Serving::start(&program, &["serve", "--listen", "rdma://127.0.0.1:0", "--memory", "16M"]);
    measure(&program, &serving.url);
}

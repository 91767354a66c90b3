//! `farsight bench` from outside: what it measures, what it refuses, and that it leaves nothing behind.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// The most that a benchmark's end may take on a busy machine.
const END_TIMEOUT: Duration = Duration::from_secs(60);

/// Benchmarks keep themselves on the same cores: only one may run at a time.
static CORES: Mutex<()> = Mutex::new(());

/// A place for one benchmark: its sockets go here, and must be gone at its end.
struct Place {
    directory: TempDir,
    _cores: MutexGuard<'static, ()>,
}

impl Place {
    fn new() -> Self {
        let cores = CORES.lock().unwrap_or_else(PoisonError::into_inner);
        Self { directory: directory(), _cores: cores }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farsight"));
        command.args(["bench", "ycsb"]).args(arguments).env("TMPDIR", self.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// As [`Self::run`], of another benchmark.
    fn run_other(&self, name: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farsight"));
        command.args(["bench", name]).args(arguments).env("TMPDIR", self.path());
        let output = command.output().expect("the program starts");
        self.assert_empty();
        output
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output().expect("the program starts");
        self.assert_empty();
        output
    }

    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "{arguments:?} succeeded");
        String::from_utf8(output.stderr).expect("UTF-8")
    }

    /// No directory with a socket and no process that has one: servers name theirs on their command line.
    fn assert_empty(&self) {
        let left: Vec<_> = std::fs::read_dir(self.path()).expect("a directory").collect();
        assert!(left.is_empty(), "left behind: {left:?}");
        assert_eq!(self.servers(), 0, "a server is left behind");
    }

    fn servers(&self) -> usize {
        let processes = std::fs::read_dir("/proc").expect("/proc");
        let place = self.path().to_str().expect("temporary paths are text");
        // A process may end while it is looked at.
        let lines = processes.filter_map(|process| std::fs::read(process.ok()?.path().join("cmdline")).ok());
        lines.filter(|line| String::from_utf8_lossy(line).contains(place)).count()
    }

    /// Starts a benchmark that would take long, and waits until its server runs.
    fn start(&self, arguments: &[&str]) -> Child {
        let child = self.command(arguments).spawn().expect("the program starts");
        let begun = Instant::now();
        while self.servers() == 0 {
            assert!(begun.elapsed() < END_TIMEOUT, "no server appears");
            std::thread::sleep(Duration::from_millis(5));
        }
        child
    }
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn wait(child: &mut Child) -> Option<i32> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return status.code();
        }
        if begun.elapsed() > END_TIMEOUT {
            child.kill().expect("a child can be killed");
            panic!("the benchmark does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn records(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("results were written");
    serde_json::from_str(&text).expect("a JSON array")
}

fn number(record: &Value, field: &str) -> f64 {
    record[field].as_f64().unwrap_or_else(|| panic!("{field} is no number in {record}"))
}

#[test]
fn every_workload_is_measured() {
    let (place, results) = (Place::new(), directory());
    let json = results.path().join("results.json");
    let json_text = json.to_str().expect("a text");
    let output = place.run(&["--keys", "20000", "--seconds", "0.2", "--runs", "1", "--json", json_text]);
    let shown = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for part in ["wrong answers: 0", "limits of this machine", "model trained in", "OpenStreetMap", "Next: "]
    {
        assert!(shown.contains(part), "no {part:?} in {shown}");
    }
    let records = records(&json);
    let workloads: Vec<_> = records.iter().map(|record| record["workload"].as_str()).collect();
    assert_eq!(workloads, ["a", "b", "c", "d", "e", "f"].map(Some));
    for record in &records {
        assert_eq!(record["dataset"], "boundaries");
        assert_eq!([&record["keys"], &record["threads"], &record["batch"]], [20_000, 1, 64]);
        for field in [
            "throughput_ops_per_s",
            "reads_per_op",
            "bytes_read_per_op",
            "round_trips_per_op",
            "cache_bytes_per_key",
            "client_cpu_fraction",
            "random_read_limit_per_s",
            "shape_limit_per_s",
            "fraction_of_shape_limit",
        ] {
            assert!(number(record, field) > 0.0, "{field} in {record}");
        }
        let latency = &record["latency_ns"];
        let [p50, p99, p999] = ["p50", "p99", "p999"].map(|quantile| number(latency, quantile));
        assert!(0.0 < p50 && p50 <= p99 && p99 <= p999, "{latency}");
        assert!(number(record, "fallbacks_per_op") < 0.1, "{record}");
        assert!(number(record, "cache_bytes_per_key") < 2.0, "{record}");
        // The server has one core.
        assert!((0.0..1.2).contains(&number(record, "server_cpu_fraction")), "{record}");
    }
    let read_only = &records[2];
    assert!((2.0..2.3).contains(&number(read_only, "reads_per_op")), "{read_only}");
    assert!((256.0..300.0).contains(&number(read_only, "bytes_read_per_op")), "{read_only}");
    assert!(number(read_only, "fallbacks_per_op") < 0.001, "{read_only}");
    // One that took part would use more than the client's; what is left is the end of training.
    assert!(number(read_only, "server_cpu_fraction") < 0.5, "{read_only}");
    assert!((1.0 / 64.0..0.5).contains(&number(read_only, "round_trips_per_op")), "{read_only}");
    // A scan reads five leaves on average.
    assert!(number(&records[4], "reads_per_op") > 4.0, "{}", records[4]);
}

/// The whole of YCSB, each answer checked; GETs take one round trip a batch.
#[test]
fn every_workload_runs_over_tcp() {
    let (place, results) = (Place::new(), directory());
    let json = results.path().join("results.json");
    let json_text = json.to_str().expect("a text");
    let shape = ["--fabric", "tcp", "--keys", "20000", "--seconds", "0.1", "--runs", "1"];
    let output = place.run(&[&shape[..], &["--json", json_text]].concat());
    check_tcp(&output, &json);
}

/// Values of every length in a range, each checked; READs follow from their blocks. Durable, too.
#[test]
fn values_of_any_length_are_measured_and_durable_writes_too() {
    let (place, results) = (Place::new(), directory());
    let json = results.path().join("results.json");
    let json_text = json.to_str().expect("a text");
    let data = results.path().join("data");
    let data_text = data.to_str().expect("a text");
    let shape = ["--keys", "20000", "--seconds", "0.1", "--runs", "1", "--json", json_text];
    let blocks = ["--values", "blocks", "--value-size", "8..600", "--data", data_text];
    let output = place.run(&[&shape[..], &blocks].concat());
    let shown = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for part in ["blocks of 8 to 600 B", "writes are durable", "values a second: a ", "wrong answers: 0"] {
        assert!(shown.contains(part), "no {part:?} in {shown}");
    }
    assert_eq!(std::fs::read_dir(&data).expect("it is there").count(), 0, "servers left their data");
    let records = records(&json);
    let reads = &records[2];
    assert_eq!([&reads["values"], &reads["acknowledged"]], ["blocks", "durable"]);
    assert_eq!([&reads["value_size_min"], &reads["value_size"]], [8, 600]);
    // Two of the leaf, one of the block.
    assert!((3.0..3.3).contains(&number(reads, "reads_per_op")), "{reads}");
    assert!(number(reads, "block_copy_limit_per_s") > 0.0, "{reads}");
    let single =
        place.run(&[&shape[..], &["--values", "blocks", "--batch", "1", "--workload", "f"]].concat());
    assert!(single.status.success(), "{}", String::from_utf8_lossy(&single.stderr));
}

#[test]
fn killed_servers_come_back_from_snapshots_and_logs() {
    for shape in [["--values", "fixed", "--value-size", "8"], ["--values", "blocks", "--value-size", "128"]] {
        let (place, results) = (Place::new(), directory());
        let [json, data] = ["results.json", "data"].map(|name| results.path().join(name));
        let files = ["--json", json.to_str().expect("a text"), "--data", data.to_str().expect("a text")];
        let size = ["--keys", "20000", "--log-size", "3M", "--runs", "2"];
        let output = place.run_other("recovery", &[&shape[..], &size, &files].concat());
        let shown = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(shown.contains("snapshot: 20,000 pairs in ") && shown.contains("\nlog: "), "{shown}");
        assert_eq!(std::fs::read_dir(&data).expect("it is there").count(), 0, "a server left its data");
        let record = &records(&json)[0];
        let stages = record["stages"].as_array().expect("stages");
        let names: Vec<_> = stages.iter().map(|stage| stage["stage"].as_str().expect("a name")).collect();
        assert_eq!(names, ["empty", "loaded", "logged"]);
        assert!(number(&stages[1], "snapshot_bytes") > 20_000.0 * 16.0, "{record}");
        assert!(number(&stages[2], "log_bytes") >= f64::from(3 << 20), "{record}");
        assert!(number(&stages[2], "records") > 0.0 && number(&stages[1], "records") == 0.0, "{record}");
        assert!(stages.iter().all(|stage| stage["starts"].as_array().expect("starts").len() == 2));
    }
}

/// A server's certificate, which is its clients', too: arguments for either side, with files in `directory`.
#[test]
fn values_in_leaves_are_measured_beside_those_in_blocks() {
    let (place, results) = (Place::new(), directory());
    let json = results.path().join("results.json");
    let shape = ["--keys", "20000", "--seconds", "0.05", "--runs", "1", "--sizes", "16,1000"];
    let output =
        place.run_other("values", &[&shape[..], &["--json", json.to_str().expect("a text")]].concat());
    let shown = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(shown.contains("of that") && shown.contains("wrong answers: 0"), "{shown}");
    let records = records(&json);
    let kinds: Vec<_> = records.iter().map(|record| (&record["value_size"], &record["values"])).collect();
    let expected = [(16, "fixed"), (16, "blocks"), (1000, "blocks")];
    assert_eq!(kinds.len(), expected.len());
    for (kind, (bytes, name)) in kinds.iter().zip(expected) {
        assert_eq!((kind.0, kind.1), (&bytes.into(), &name.into()));
    }
    // A value in a block costs one READ more.
    let more = number(&records[1], "reads_per_op") - number(&records[0], "reads_per_op");
    assert!((0.9..1.2).contains(&more), "{more}");
}

fn certificates(directory: &Path) -> Vec<String> {
    let mut parameters = CertificateParams::new(Vec::new()).expect("no names");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().expect("a key");
    let authority = parameters.self_signed(&authority_key).expect("a certificate").pem();
    let issuer = Issuer::new(parameters, authority_key);
    let key = KeyPair::generate().expect("a key");
    let names = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
    let certificate = names.signed_by(&key, &issuer).expect("a certificate").pem();
    let files = [("certificate", certificate), ("key", key.serialize_pem()), ("authorities", authority)];
    let argument = |(what, pem): (&str, String)| {
        let path = directory.join(what);
        std::fs::write(&path, pem).expect("a file can be written");
        [format!("--tls-{what}"), path.to_str().expect("temporary paths are text").to_owned()]
    };
    files.into_iter().flat_map(argument).collect()
}

/// The same through TLS, against a server that runs already.
#[test]
fn every_workload_runs_through_tls() {
    let (place, servers) = (Place::new(), directory());
    let certificates = certificates(servers.path());
    let mut serve = Command::new(env!("CARGO_BIN_EXE_farsight"));
    serve.args(["serve", "--memory", "256M", "--listen", "tcp://127.0.0.1:0"]).args(&certificates);
    let mut server = serve.stdout(Stdio::piped()).spawn().expect("the server starts");
    let mut ready = String::new();
    let out = server.stdout.take().expect("a pipe");
    BufReader::new(out).read_line(&mut ready).expect("the server says that it is ready");
    let url = ready.split_whitespace().find_map(|word| word.strip_prefix("url=")).expect("its URL");
    let json = servers.path().join("results.json");
    let json_text = json.to_str().expect("a text");
    let shape = ["--connect", url, "--keys", "20000", "--seconds", "0.1", "--runs", "1", "--json", json_text];
    let shape = shape.into_iter().chain(certificates.iter().map(String::as_str));
    let output = place.run(&shape.collect::<Vec<_>>());
    kill_process(Pid::from_child(&server), Signal::TERM).expect("it runs");
    server.wait().expect("it ends");
    check_tcp(&output, &json);
    let shown = String::from_utf8_lossy(&output.stdout);
    let kept = format!("its tables at {url}, farsight-bench-");
    assert!(shown.contains(&kept) && shown.contains("are dropped at the end"), "{shown}");
}

/// What YCSB costs over TCP, in the clear or not.
fn check_tcp(output: &Output, json: &Path) {
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(shown.contains("one-sided access over tcp"), "{shown}");
    assert!(shown.contains("wrong answers: 0") && !shown.contains("limits of this machine"), "{shown}");
    let records = records(json);
    let workloads: Vec<_> = records.iter().map(|record| record["workload"].as_str()).collect();
    assert_eq!(workloads, ["a", "b", "c", "d", "e", "f"].map(Some));
    for record in &records {
        assert_eq!(record["fabric"], "tcp");
        assert!(number(record, "throughput_ops_per_s") > 0.0, "{record}");
    }
    let read_only = &records[2];
    // Leaves are fetched whole, which no batch does over shared memory.
    assert!((1.0..1.1).contains(&number(read_only, "reads_per_op")), "{read_only}");
    assert!((448.0..500.0).contains(&number(read_only, "bytes_read_per_op")), "{read_only}");
    assert!(number(read_only, "round_trips_per_op") < 0.1, "{read_only}");
    assert!(number(read_only, "fallbacks_per_op") < 0.001, "{read_only}");
}

/// Each workload on a table from one bulk load and on one half of which was inserted.
#[test]
fn aged_tables_are_measured_beside_fresh_ones() {
    let (place, results) = (Place::new(), directory());
    let json = results.path().join("results.json");
    let json_text = json.to_str().expect("a text");
    let shape = ["--aged", "--engine", "xstore,xstore-d", "--dataset", "uniform", "--keys", "20000"];
    // The second workload inserts, so each of its runs has a table of its own.
    for (workload, runs) in [("c", "1"), ("d", "2")] {
        let more = ["--workload", workload, "--seconds", "0.1", "--runs", runs, "--json", json_text];
        let output = place.run(&[&shape[..], &more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let shown = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(shown.contains(&format!("{workload} aged")) && shown.contains("wrong answers: 0"), "{shown}");
        assert!(shown.contains("aged table, half of it inserted in random order: loaded 20,000"), "{shown}");
        let records = records(&json);
        let tables: Vec<_> = records.iter().map(|record| record["table"].as_str()).collect();
        assert_eq!(tables, ["fresh", "aged", "fresh", "aged"].map(Some));
        for pair in records.chunks(2) {
            let [fresh, aged] = [0, 1].map(|age| number(&pair[age], "cache_bytes_per_key"));
            // Leaves that split are less full than loaded ones, and their numbers not consecutive. With
            // inserts both grow by as much as the machine is fast.
            assert!(workload == "d" || fresh < aged, "{fresh} and {aged} bytes a key");
            assert!(fresh > 0.0 && aged > 0.0, "{fresh} and {aged} bytes a key");
            assert_eq!(pair[1]["keys"], 20_000);
        }
    }
    let refused = place.fails(&["--aged", "--fabric", "sim"]);
    assert!(refused.contains("--aged has no meaning with --fabric sim"), "{refused}");
    let refused = place.fails(&["--aged", "--engine", "rolex"]);
    assert!(refused.contains("--aged has no meaning with --engine rolex"), "{refused}");
}

/// Each change in turn, every answer checked. What depends on the machine's speed is not asserted.
#[test]
fn tables_change_their_shape() {
    let (place, results) = (Place::new(), directory());
    let [json, svg] = ["change.json", "change.svg"].map(|name| results.path().join(name));
    let [json_text, svg_text] = [&json, &svg].map(|path| path.to_str().expect("a text"));
    let output =
        place.run_other("change", &["--keys", "20000", "--operations", "10000", "--json", json_text]);
    let shown = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(shown.contains("wrong answers: 0") && shown.contains("≤2.1"), "{shown}");
    let records = records(&json);
    let changes: Vec<_> = records.iter().map(|record| record["change"].as_str()).collect();
    assert_eq!(changes, ["append", "cluster", "tenant", "window", "growth", "delete"].map(Some));
    for (record, [keys, written, left]) in records.iter().zip([
        [20_000, 10_000, 30_000],
        [20_000, 10_000, 30_000],
        [20_000, 10_000, 30_000],
        [2_500, 10_000, 2_500],
        [20_000, 10_000, 30_000],
        [20_000, 19_000, 1_000],
    ]) {
        assert_eq!(record["operations"], written, "{record}");
        // Without those in the room that the change needs: a 64th.
        let [loaded, pairs] = [number(record, "keys"), number(&record["end"], "pairs")];
        let missing = f64::from(keys) - loaded;
        assert!((0.0..=f64::from(keys) / 32.0).contains(&missing), "{record}");
        assert!((f64::from(left) - pairs - missing).abs() < 0.5, "{record}");
        let fresh = &record["before"];
        assert!((2.0..2.1).contains(&number(fresh, "reads_per_get")), "{record}");
        assert!(number(fresh, "fallbacks_per_get") < 0.001, "{record}");
        assert!(number(&record["end"], "leaves") > 0.0 && number(&record["end"], "cache_bytes") > 0.0);
        let phases: Vec<_> = course(record).map(|sample| sample["phase"].as_str()).collect();
        for phase in ["before", "during", "settling", "after"] {
            assert!(phases.contains(&Some(phase)), "no sample {phase} in {record}");
        }
        let marks = record["marks"].as_array().expect("marks");
        assert!(marks.len() >= 5 && marks.iter().all(|mark| mark["is_met"].is_boolean()), "{record}");
        let removes = ["window", "delete"].contains(&record["change"].as_str().expect("a name"));
        assert_eq!(record["scans_after"].is_object(), removes, "{record}");
    }
    let mut figure = Command::new(env!("CARGO_BIN_EXE_farsight"));
    let drawn = figure.args(["figure", json_text, "--out", svg_text]).status().expect("the program starts");
    assert!(drawn.success() && std::fs::read_to_string(&svg).expect("a picture").contains(">tenant: "));
    let refused = place.run_other("change", &["--scenario", "melt"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("unknown scenario `melt`"), "{refused:?}");
}

/// The course of a change.
fn course(record: &Value) -> impl Iterator<Item = &Value> {
    record["samples"].as_array().expect("samples").iter()
}

/// Every engine in turn, every answer checked; a pool's memory nodes are started and gone.
#[test]
fn engines_are_measured_in_turns() {
    let (place, results) = (Place::new(), directory());
    let json = results.path().join("results.json");
    let json_text = json.to_str().expect("a text");
    let shape = ["--engine", "xstore,xstore-d,rolex", "--dataset", "lognormal", "--keys", "20000"];
    let more = ["--workload", "f", "--memory-nodes", "3", "--seconds", "0.1", "--runs", "1"];
    let output = place.run(&[&shape[..], &more, &["--json", json_text]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let shown = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(shown.contains("xstore, one-sided") && shown.contains("rolex in 3 memory nodes"), "{shown}");
    let records = records(&json);
    let engines: Vec<_> = records.iter().map(|record| record["engine"].as_str()).collect();
    assert_eq!(engines, ["xstore", "xstore-d", "rolex"].map(Some));
    // Who writes one-sided READs what he locks.
    for (record, reads) in records.iter().zip([2.0, 2.0, 1.5]) {
        assert!((0.97 * reads..1.1 * reads).contains(&number(record, "reads_per_op")), "{record}");
        let (models, cache) = (number(record, "model_bytes_per_key"), number(record, "cache_bytes_per_key"));
        assert!(0.0 < models && models < cache, "{record}");
    }
    let refused = place.fails(&["--engine", "rolex", "--access", "rpc"]);
    assert!(refused.contains("a memory node searches nothing"), "{refused}");
}

#[test]
fn the_server_searches_when_called() {
    let (place, results) = (Place::new(), directory());
    let json = results.path().join("results.json");
    let json_text = json.to_str().expect("a text");
    let shape = ["--workload", "c", "--keys", "20000", "--seconds", "0.2", "--runs", "2", "--threads", "2"];
    let more = ["--access", "rpc", "--value-size", "100", "--batch", "10", "--distribution", "zipfian"];
    let output = place.run(&[&shape[..], &more, &["--json", json_text]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let [record] = &records(&json)[..] else { panic!("one workload, one record") };
    assert_eq!((&record["access"], &record["distribution"]), (&"rpc".into(), &"zipfian".into()));
    assert_eq!([&record["value_size"], &record["batch"], &record["threads"]], [100, 10, 2]);
    assert_eq!(record["runs"].as_array().map(Vec::len), Some(2));
    assert!(number(record, "reads_per_op").abs() < f64::EPSILON, "{record}");
    assert!(number(record, "throughput_ops_per_s") > 0.0, "{record}");
    let round_trips = number(record, "round_trips_per_op");
    assert!((round_trips - 0.1).abs() < 0.01, "a call a batch of 10: {record}");
}

/// Alone a GET of a short value is one READ of its whole leaf; in a batch it is two of what it needs.
#[test]
fn operations_that_come_alone_go_by_the_ways_for_one() {
    let (place, results) = (Place::new(), directory());
    let json = results.path().join("results.json");
    let shape = ["--keys", "20000", "--seconds", "0.1", "--runs", "1", "--batch", "1"];
    let output = place.run(&[&shape[..], &["--json", json.to_str().expect("a text")]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let records = records(&json);
    assert_eq!(records.len(), 6);
    assert!(records.iter().all(|record| number(record, "throughput_ops_per_s") > 0.0));
    // Without d and e, whose tables grow as fast as the machine is: GETs of leaves that split take more.
    for (record, gets) in [(&records[0], 0.5), (&records[1], 0.9), (&records[2], 1.0), (&records[5], 1.0)] {
        let [reads, bytes] = ["reads_per_op", "bytes_read_per_op"].map(|field| number(record, field));
        // In batches it is two a GET, of 128 B. On a machine so busy that a run is a few hundred operations,
        // the first ones, before there are models, weigh a tenth.
        assert!((0.9 * gets..1.4 * gets).contains(&reads), "a READ a GET: {record}");
        assert!((350.0..=448.0).contains(&(bytes / reads)), "of a whole leaf: {record}");
    }
    let read_only = &records[2];
    assert!((1.0..1.1).contains(&number(read_only, "round_trips_per_op")), "{read_only}");
}

#[test]
fn keys_without_gaps_are_held_back_for_inserts() {
    let place = Place::new();
    let shape =
        ["--workload", "d", "--dataset", "dense", "--keys", "40000", "--seconds", "0.1", "--runs", "2"];
    let output = place.run(&shape);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let shown = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(shown.contains("dense: 30,000 keys"), "a quarter is held back: {shown}");
    assert!(shown.contains("d: each run began with 30,000 pairs"), "{shown}");
}

/// A server or memory node of this host that listens in `directory`, which ends with this.
struct Listening {
    process: Child,
    socket: PathBuf,
}

impl Listening {
    fn url(&self) -> String {
        format!("shm://{}", self.socket.display())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // One that has ended already is what is wanted.
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let _ = self.process.wait();
    }
}

fn listen(command: &str, directory: &Path) -> Listening {
    let socket = directory.join("s");
    let process = Command::new(env!("CARGO_BIN_EXE_farsight"))
        .args([command, "--memory", "256M", "--socket"])
        .arg(&socket)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let begun = Instant::now();
    while !socket.exists() {
        assert!(begun.elapsed() < END_TIMEOUT, "no socket appears");
        std::thread::sleep(Duration::from_millis(5));
    }
    Listening { process, socket }
}

#[test]
fn memory_nodes_are_not_asked_to_search() {
    let (place, directories) = (Place::new(), [directory(), directory()]);
    let nodes = [listen("serve", directories[0].path()), listen("memory-node", directories[1].path())];
    let urls = format!("{},{}", nodes[0].url(), nodes[1].url());
    let error = place.fails(&["--keys", "1000", "--access", "rpc", "--connect", &urls]);
    let peer = nodes[0].socket.display().to_string();
    assert!(error.contains("search nothing") && error.contains(&peer), "{error}");
}

#[test]
fn a_running_server_is_used_and_left_running() {
    let (place, servers) = (Place::new(), directory());
    let mut server = listen("serve", servers.path());
    let url = server.url();
    let shape = ["--workload", "c", "--keys", "20000", "--seconds", "0.1", "--runs", "1", "--connect", &url];
    for engine in [&[][..], &["--engine", "flexkv,xstore"]] {
        let output = place.run(&[&shape[..], engine].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let shown = String::from_utf8_lossy(&output.stdout);
        assert_eq!(shown.contains("flexkv"), !engine.is_empty(), "{shown}");
    }
    let client = farsight::connect(&url).expect("it is there");
    assert!(client.tables().expect("it answers").is_empty(), "its tables are dropped");
    assert_eq!(server.process.try_wait().expect("a child can be asked"), None, "the server was stopped");
}

#[test]
fn what_cannot_be_run_is_refused_at_once() {
    let place = Place::new();
    let error = place.fails(&["--dataset", "longitude"]);
    assert!(error.starts_with("error: `longitude` is neither a dataset nor a file"), "{error}");
    let error = place.fails(&["--dataset", "boundaries", "--keys", "900000000"]);
    assert!(error.contains("distinct keys; 900,000,000 asked"), "{error}");
    let error = place.fails(&["--workload", "g"]);
    assert!(
        error.contains("unknown workload `g`; expected a, b, b-standard, c, d, e or f, or all"),
        "{error}"
    );
    let error = place.fails(&["--distribution", "pareto"]);
    assert!(error.contains("unknown distribution `pareto`"), "{error}");
    let error = place.fails(&["--json", "/proc/results.json"]);
    assert!(error.starts_with("error: cannot write results to /proc/results.json: "), "{error}");
    assert!(place.fails(&["--value-size", "257"]).contains("up to 256 B; longer ones want --values blocks"));
    assert!(place.fails(&["--value-size", "8..16"]).contains("wants --values blocks"));
    assert!(place.fails(&["--values", "blocks", "--value-size", "16..8"]).contains("16 is more than 8"));
    assert!(place.fails(&["--values", "blocks", "--value-size", "0..8"]).contains("prove nothing"));
    assert!(place.fails(&["--seconds", "nan"]).contains("is not above 0 and at most"));
    assert!(place.fails(&["--threads", "0"]).contains("1..=4096"));
    let error = place.fails(&["--keys", "1000", "--connect", "shm:///nowhere/s"]);
    assert!(error.contains("/nowhere/s"), "{error}");
    let error = place.fails(&["--fabric", "tcp", "--connect", "tcp://127.0.0.1:1"]);
    assert!(error.contains("--connect has no meaning with --fabric tcp"), "{error}");
    let error = place.fails(&["--memory-nodes", "3", "--connect", "tcp://127.0.0.1:1"]);
    assert!(error.contains("cannot be used with"), "{error}");
}

#[test]
fn an_interrupted_benchmark_ends_its_server() {
    let place = Place::new();
    let mut child = place.start(&["--keys", "20000", "--seconds", "600", "--workload", "a"]);
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    assert_eq!(wait(&mut child), Some(130));
    place.assert_empty();
}

#[test]
fn a_killed_benchmark_ends_its_server() {
    let place = Place::new();
    let mut child = place.start(&["--keys", "20000", "--seconds", "600", "--workload", "a"]);
    child.kill().expect("it runs");
    child.wait().expect("a killed process ends");
    let begun = Instant::now();
    while place.servers() > 0 {
        assert!(begun.elapsed() < END_TIMEOUT, "the server outlives the benchmark");
        std::thread::sleep(Duration::from_millis(5));
    }
    place.assert_empty();
}

#[test]
fn a_benchmark_whose_server_dies_says_so() {
    let place = Place::new();
    let mut child = place.start(&["--keys", "20000", "--seconds", "600", "--workload", "c"]);
    let server = std::fs::read_dir("/proc").expect("/proc").find_map(|process| {
        let process = process.ok()?;
        let line = std::fs::read(process.path().join("cmdline")).ok()?;
        let is_server = String::from_utf8_lossy(&line).contains(place.path().to_str()?);
        is_server.then(|| process.file_name().to_str()?.parse().ok()).flatten()
    });
    let server = Pid::from_raw(server.expect("a server runs")).expect("a process");
    kill_process(server, Signal::KILL).expect("it runs");
    assert_eq!(wait(&mut child), Some(1));
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().expect("a pipe"), &mut said).expect("UTF-8");
    assert!(said.starts_with("error: ") && said.lines().count() == 1, "{said}");
    place.assert_empty();
}

#[test]
fn a_testbed_is_simulated() {
    let (place, results) = (Place::new(), directory());
    let json = results.path().join("results.json");
    let json_text = json.to_str().expect("a text");
    let small = ["--fabric", "sim", "--clients", "2x4", "--keys", "20000", "--seconds", "0.0003"];
    let output = place.run(&[&small[..], &["--batch", "4", "--json", json_text]].concat());
    let shown = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for part in ["profile cx4x2: two 100 Gb/s", "2 machines of 4 threads", "server: card", "wrong answers: 0"]
    {
        assert!(shown.contains(part), "no {part:?} in {shown}");
    }
    let records = records(&json);
    let workloads: Vec<_> = records.iter().map(|record| record["workload"].as_str()).collect();
    assert_eq!(workloads, ["a", "b", "c", "d", "e", "f"].map(Some));
    for record in &records {
        assert_eq!([&record["fabric"], &record["profile"]], ["sim", "cx4x2"]);
        assert!(number(record, "throughput_ops_per_s") > 1e5, "{record}");
        assert!(number(&record["latency_ns"], "p50") > 2_000.0, "longer than a round trip: {record}");
    }
    let read_only = &records[2];
    assert!((2.0..2.3).contains(&number(read_only, "reads_per_op")), "{read_only}");
    assert!((256.0..300.0).contains(&number(read_only, "bytes_read_per_op")), "{read_only}");
    assert!(number(read_only, "fallbacks_per_op") < 0.001, "{read_only}");
}

#[test]
fn a_testbed_that_is_none_is_refused() {
    let place = Place::new();
    for (arguments, evidence) in [
        (&["--profile", "cx5"][..], "--profile has no meaning with --fabric shm"),
        (&["--fabric", "sim", "--threads", "2"], "--threads has no meaning with --fabric sim"),
        (
            &["--fabric", "sim", "--value-cache", "1M"],
            "--value-cache has no meaning with --engine xstore: values are kept of flexkv's tables",
        ),
        (&["--fabric", "sim", "--clients", "15"], "expected machines x threads, as 15x24"),
        (&["--fabric", "sim", "--clients", "0x24"], "each from 1 to 1000, got \"0x24\""),
        (&["--fabric", "sim", "--profile", "none.toml"], "expected one of cx3, cx4x2, cx5, or a file"),
        (
            &["--fabric", "sim", "--keys", "1000", "--clients", "1x25"],
            "more than the 24 cores of profile cx4x2",
        ),
    ] {
        let error = place.fails(arguments);
        assert!(error.contains(evidence), "{arguments:?}: {error}");
    }
}

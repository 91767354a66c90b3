//! Clusters in virtual time, from the command line.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::process::{Ended, program, start, wait};

fn simulate(arguments: &[&str]) -> Ended {
    wait(start(program().arg("simulate").args(arguments)))
}

fn ok(arguments: &[&str]) -> String {
    let ended = simulate(arguments);
    assert_eq!((ended.code, ended.error.as_str()), (Some(0), ""), "{arguments:?} said {}", ended.out);
    ended.out
}

#[test]
fn seeds_pass_and_are_counted() {
    let text = ok(&["--seed", "300", "--seeds", "12", "--threads", "2"]);
    assert!(text.contains("12 seeds of any from 300 in "), "{text}");
    assert!(text.contains("class of faults") && text.contains(" answers judged, "), "{text}");
    assert!(text.ends_with("no seed failed\n"), "{text}");
}

#[test]
fn the_same_seeds_are_the_same_run() {
    let run = |threads: &str| -> Value {
        let text =
            ok(&["--scenario", "mixed", "--seed", "7", "--seeds", "6", "--threads", threads, "--json"]);
        serde_json::from_str(&text).expect("JSON")
    };
    let (one, two) = (run("1"), run("2"));
    for field in ["commit", "first_seed", "seeds", "operations", "events", "faults", "virtual_s", "classes"] {
        assert_eq!(one[field], two[field], "{field}");
    }
    assert!(one["events"].as_u64() > Some(10_000) && one["faults"].as_u64() > Some(0), "{one}");
    assert_eq!(one["failures"], Value::Array(Vec::new()));
    assert_ne!(one["commit"], "");
}

#[test]
fn time_ends_a_run_that_says_how_to_go_on() {
    let text = ok(&["--minutes", "0.005", "--seeds", "1000000000", "--threads", "1"]);
    let seeds = text.lines().find_map(|line| line.split_once(" seeds of any")).expect("a count").0;
    let next = seeds.replace(',', "").parse::<u64>().expect("a number") + 1;
    assert!(
        text.contains(&format!("go on with: farsight simulate --scenario any --seed {next}\n")),
        "{text}"
    );
}

#[test]
fn a_signal_ends_a_run_that_says_how_to_go_on() {
    for patience_ms in [300, 1_000, 4_000, 16_000] {
        let run = start(program().args(["simulate", "--scenario", "pools", "--seeds", "1000000000"]));
        std::thread::sleep(Duration::from_millis(patience_ms));
        kill_process(Pid::from_child(&run), Signal::TERM).expect("it runs");
        let ended = wait(run);
        // As long as it does not listen to signals, one kills it.
        if ended.code.is_none() {
            continue;
        }
        assert_eq!((ended.code, ended.error.as_str()), (Some(0), ""), "{}", ended.out);
        assert!(
            ended.out.contains("go on with: farsight simulate --scenario pools --seed "),
            "{}",
            ended.out
        );
        return;
    }
    panic!("the program does not come to listen to signals");
}

#[test]
fn runs_add_up_in_a_document() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("proof.md");
    for first in ["1", "4"] {
        let document = path.to_str().expect("temporary paths are text");
        ok(&["--seed", first, "--seeds", "3", "--threads", "1", "--document", document]);
    }
    let text = std::fs::read_to_string(&path).expect("a document");
    assert!(text.contains("**6 seeds, ") && text.contains(" | 3: 1 to 3 | "), "{text}");
    let record = std::fs::read_to_string(path.with_extension("jsonl")).expect("a record");
    let runs: Vec<Value> = record.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(runs.iter().map(|run| run["first_seed"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(4)]);
}

#[test]
fn a_run_that_has_no_room_in_its_document_is_printed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("proof.md");
    let mut limited = std::process::Command::new("sh");
    // No file may grow beyond a few hundred bytes.
    limited.args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_farsight")]);
    limited.args(["simulate", "--seed", "1", "--seeds", "3", "--threads", "1", "--document"]).arg(&path);
    let ended = wait(start(&mut limited));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.error.contains("cannot write") && ended.error.contains("proof."), "{ended:?}");
    let run: Value = serde_json::from_str(ended.out.lines().last().expect("a line")).expect("the run");
    assert_eq!(run["seeds"], 3);
    let left: Vec<_> = std::fs::read_dir(directory.path()).expect("a directory").collect();
    assert!(!path.exists() && left.len() <= 1, "{left:?}");
}

#[test]
fn a_trace_tells_one_key_among_all() {
    let trace = ["--scenario", "mixed", "--seed", "3", "--trace"];
    let all = ok(&trace);
    let told =
        all.lines().find_map(|line| line.split_once("told  key ")).expect("somebody is told something").1;
    let key = told.split_once(':').expect("what it is told").0;
    let mut of_key = trace.to_vec();
    of_key.extend(["--key", key]);
    let trace = ok(&of_key);
    assert!(trace.lines().count() < all.lines().count() / 2, "{trace}");
    for part in [
        "process ",
        "sends READ, slot ",
        "has READ, slot ",
        ", versions ",
        "stores, visible within",
        " leaf ",
    ] {
        assert!(trace.contains(part), "no {part:?} in {trace}");
    }
    assert!(all.contains("FAULT ") && all.contains("asks  "), "{all}");
    let lines: std::collections::HashSet<&str> = all.lines().map(str::trim).collect();
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let known: std::collections::HashSet<String> = lines.iter().map(|line| words(line)).collect();
    let foreign = trace.lines().map(words).filter(|line| !line.contains("asks") && !known.contains(line));
    assert_eq!(foreign.collect::<Vec<_>>(), [""; 0], "a line that the whole trace does not have");
    let others = trace.lines().filter_map(|line| line.split_once("told  key ")).map(|(_, told)| told);
    assert!(
        others.clone().count() > 0 && others.clone().all(|told| told.starts_with(&format!("{key}:"))),
        "{trace}"
    );
}

#[test]
fn what_cannot_be_run_is_refused_by_name() {
    let unknown = simulate(&["--scenario", "sunshine"]);
    assert_eq!(unknown.code, Some(2));
    assert!(
        unknown.error.contains("no such scenario; there are") && unknown.error.contains("mixed"),
        "{unknown:?}"
    );
    assert_eq!(simulate(&["--minutes", "0"]).code, Some(2));
    let ended = simulate(&["--document", "proof.txt", "--seeds", "1"]);
    assert!(ended.into_error("a document").contains("proof.txt does not end in .md"));
}

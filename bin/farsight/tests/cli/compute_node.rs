//! `farsight compute-node`: a process that writes for others in FlexKV tables.

use std::time::{Duration, Instant};

use crate::process::{Serve, url};

/// The coordinator hears several times a second what was written.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_compute_node_writes_for_others_until_it_is_killed() {
    let serve = Serve::start();
    let pool = url(&serve.socket());
    serve.ok(&["create", "sessions", "--engine", "flexkv"]);
    serve.ok(&["put", "sessions", "7", "00000001"]);
    assert!(!serve.ok(&["stats"]).contains("writes for others"), "nobody does yet");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut node = Serve::start_program(directory, &["compute-node", "--pool", &pool]);
    assert!(serve.ok(&["put", "sessions", "7", "00000002"]).starts_with("replaced"));
    let own = url(&node.socket());
    let begun = Instant::now();
    loop {
        let stats = serve.ok(&["stats"]);
        let row = stats.lines().find(|line| line.contains(&own)).expect("who writes for others is shown");
        let columns: Vec<&str> = row.split_whitespace().collect();
        let at = columns.iter().position(|column| *column == own).expect("its address");
        assert_eq!(columns[at + 1..at + 3], ["1024", "1024"], "it has all partitions: {row}");
        if columns[at + 3] == "1" {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "the write is counted: {row}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(serve.ok(&["get", "sessions", "7"]), "00000002\n");
    node.kill();
    assert!(serve.ok(&["put", "sessions", "7", "00000003"]).starts_with("replaced"), "one-sided again");
    assert_eq!(serve.ok(&["get", "sessions", "7"]), "00000003\n");
}

#[test]
fn clients_are_told_of_the_part_that_is_set() {
    let serve = Serve::start();
    let pool = url(&serve.socket());
    serve.ok(&["create", "sessions", "--engine", "flexkv"]);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let node = Serve::start_program(directory, &["compute-node", "--pool", &pool, "--offload", "25"]);
    let (stats, own) = (serve.ok(&["stats"]), url(&node.socket()));
    let row = stats.lines().find(|line| line.contains(&own)).expect("who writes for others is shown");
    assert!(row.contains("1024") && row.contains(" 256 "), "{row}");
}

#[test]
fn compute_nodes_share_the_partitions() {
    let serve = Serve::start();
    let pool = url(&serve.socket());
    serve.ok(&["create", "sessions", "--engine", "flexkv", "--keys", "bytes"]);
    let directory = || tempfile::tempdir().expect("a temporary directory");
    let nodes = [(), ()].map(|()| Serve::start_program(directory(), &["compute-node", "--pool", &pool]));
    let begun = Instant::now();
    let partitions = |own: &str, stats: &str| {
        let row = stats.lines().find(|line| line.contains(own)).expect("who writes for others is shown");
        let mut columns = row.split_whitespace().skip_while(|column| *column != own);
        columns.nth(1).expect("how many it has").parse::<u64>().expect("a number")
    };
    loop {
        let stats = serve.ok(&["stats"]);
        let shares = nodes.each_ref().map(|node| partitions(&url(&node.socket()), &stats));
        if shares == [512, 512] {
            break;
        }
        assert_eq!(shares.iter().sum::<u64>(), 1_024, "{stats}");
        assert!(begun.elapsed() < PATIENCE, "they have {shares:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    // Keys of bytes go to them, too.
    serve.ok(&["put", "sessions", "ada@example.org", "00000001"]);
    assert!(serve.ok(&["put", "sessions", "ada@example.org", "00000002"]).starts_with("replaced"));
    assert_eq!(serve.ok(&["get", "sessions", "ada@example.org"]), "00000002\n");
}

#[test]
fn a_compute_node_says_what_it_cannot_do() {
    let serve = Serve::start();
    let refused =
        serve.fails(&["compute-node", "--pool", &url(&serve.socket()), "--listen", "tcp://127.0.0.1:0"]);
    assert!(refused.contains("listens at one address, of the pool's fabric"), "{refused}");
    let nowhere = serve.directory.path().join("nowhere.sock");
    let refused = serve.fails(&["compute-node", "--pool", &url(&nowhere)]);
    assert!(refused.contains("nowhere.sock"), "{refused}");
}

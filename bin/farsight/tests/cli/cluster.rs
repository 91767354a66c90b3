//! Pools by their names in a real etcd, by commands alone.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::local_etcd::{LocalEtcd, is_there};
use crate::process::{Ended, Serve, program, start, wait};

/// The longest that anything may take on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(60);

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn run(name: &str, arguments: &[&str]) -> Ended {
    wait(start(program().env("FARSIGHT_URL", name).args(arguments)))
}

fn ok(name: &str, arguments: &[&str]) -> String {
    let ended = run(name, arguments);
    assert_eq!((ended.code, ended.error.as_str()), (Some(0), ""), "{arguments:?}");
    ended.out
}

/// What the doctor says, once that has all of these.
fn doctor_until(name: &str, parts: &[&str]) -> Ended {
    let begun = Instant::now();
    loop {
        let doctor = run(name, &["doctor"]);
        if parts.iter().all(|part| doctor.out.contains(part)) {
            return doctor;
        }
        assert!(begun.elapsed() < WAIT_MAX, "no {parts:?}: {doctor:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_pool_with_compute_nodes_has_a_name() {
    if !is_there() {
        return;
    }
    let etcd = LocalEtcd::start(1);
    let name = etcd.url("users");
    let node = || Serve::start_with(directory(), &["--cluster", &name, "--nodes", "3"]);
    let [mut first, mut second, _third] = [(), (), ()].map(|()| node());
    let create = ["create", "users", "--engine", "flexkv", "--keys", "bytes", "--values", "blocks"];
    ok(&name, &[&create[..], &["--replicas", "3", "--wait", "30s"]].concat());
    let compute = || Serve::start_program(directory(), &["compute-node", "--pool", &name]);
    let _compute_nodes = [(), ()].map(|()| compute());
    let pairs: Vec<String> = (1..=500).map(|user| format!("user{user}@example.org,name {user}\n")).collect();
    let file = first.file("users.csv", pairs.concat().as_bytes());
    assert!(ok(&name, &["load", "users", &file]).contains("500 pairs into table users"));
    assert!(ok(&name, &["put", "users", "user7@example.org", "Ada"]).starts_with("replaced"));
    let doctor = doctor_until(&name, &["ok    etcd", "3 of the 3 nodes", "coordinator's lease: node 1"]);
    assert!(doctor.out.contains(&format!("answers at {name}")), "{doctor:?}");
    first.kill();
    assert_eq!(ok(&name, &["get", "users", "user7@example.org"]), "Ada\n");
    ok(&name, &["put", "users", "user7@example.org", "Grace"]);
    let _new = node();
    let repaired = ok(&name, &["repair", "--wait", "30s"]);
    assert!(repaired.contains("node 1 taken in"), "{repaired}");
    second.kill();
    assert_eq!(ok(&name, &["get", "users", "user7@example.org"]), "Grace\n");
    assert_eq!(ok(&name, &["get", "users", "user500@example.org"]), "name 500\n");
    let doctor = doctor_until(&name, &["warn  etcd", "2 of the 3 nodes", "map number 1"]);
    assert_eq!(doctor.code, Some(1), "{doctor:?}");
}

#[test]
fn a_node_says_when_etcd_is_away_and_when_it_is_back() {
    if !is_there() {
        return;
    }
    let mut etcd = LocalEtcd::start(1);
    let name = etcd.url("users");
    let directory = directory();
    let mut node = program()
        .args(["serve", "--memory", "64M", "--cluster", &name, "--socket"])
        .arg(directory.path().join("node.sock"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut said = BufReader::new(node.stderr.take().expect("stderr is piped")).lines();
    let mut hear = |part: &str| loop {
        let line = said.next().expect("more lines").expect("text");
        // One line of each.
        assert!(
            !line.contains("goes on with") || part.starts_with("goes on with"),
            "before {part:?}: {line}"
        );
        if line.contains(part) {
            return line;
        }
    };
    hear("tables live in the memory");
    etcd.kill(0);
    let line = hear("goes on with the map that its nodes have");
    assert!(line.contains(&name) && line.contains("does not answer"), "{line}");
    etcd.start_again(0);
    hear("is registered as one of");
    ok(&name, &["create", "prices", "--wait", "30s"]);
    let pid = rustix::process::Pid::from_child(&node);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    hear("1 table and 0 pairs end");
    assert!(node.wait().expect("it ends").success());
    let known = etcd.control(&["get", "--keys-only", "--prefix", "/farsight/users/nodes/"]);
    assert_eq!(known.trim(), "", "its lease ended with it");
}

#[test]
fn an_etcd_that_is_not_there_is_named() {
    let name = "etcd://user:secret@127.0.0.1:1/users";
    let line = run(name, &["tables"]).into_error("tables");
    assert!(line.contains("etcd at 127.0.0.1:1 does not answer") && !line.contains("secret"), "{line}");
    let directory = directory();
    let mut serve = program();
    let serve = serve.args(["serve", "--cluster", name, "--socket"]).arg(directory.path().join("node.sock"));
    let line = wait(start(serve)).into_error("serve");
    assert!(line.contains("etcd at 127.0.0.1:1 does not answer") && !line.contains("secret"), "{line}");
    let usage = run(name, &["serve", "--cluster", name, "--pool", "tcp://127.0.0.1:1"]);
    assert_eq!(usage.code, Some(2), "{usage:?}");
    let usage = run(name, &["serve", "--cluster", name, "--nodes", "17"]);
    assert_eq!(usage.code, Some(2), "{usage:?}");
    let line = run("etcd://192.0.2.1:1/users", &["tables"]).into_error("tables");
    assert!(line.contains("--allow-plaintext"), "{line}");
}

//! Leases that end, and an etcd that is away, forgets, or has another leader.

use std::net::TcpListener;
use std::time::Instant;

use farsight_cluster::{ClusterError, Etcd, EtcdOptions, Known, Standing};

use crate::local_etcd::{LocalEtcd, is_there};
use crate::nodes::{Node, WAIT_MAX, address, found, map, open, url};

/// A node that is a pool by itself, and has registered.
fn registered(url: &str) -> Node {
    let mut node = Node::new(url, 3, 1);
    node.memory.map = Some(map(3, 3, 0, &[3]));
    assert_eq!(node.step().expect("a step"), Standing::Agreed);
    node
}

#[test]
fn a_node_whose_lease_has_ended_hears_it_and_registers_again() {
    if !is_there() {
        return;
    }
    let etcd = LocalEtcd::start(1);
    let url = etcd.url("users");
    let mut node = registered(&url);
    let reader = open(&url);
    for end in ["its lease", "its key"] {
        // What it has heard of its own doing is of no interest.
        node.step().expect("a step");
        node.forget();
        if end == "its lease" {
            let leases = etcd.control(&["lease", "list"]);
            let lease = leases.lines().last().expect("one").trim().to_owned();
            etcd.control(&["lease", "revoke", &lease]);
        } else {
            etcd.control(&["del", "/farsight/users/nodes/0000000000000003"]);
        }
        assert!(reader.read().expect("all").node(3).is_none(), "{end} has ended");
        node.hear();
        assert_eq!(node.step().expect("a step"), Standing::Agreed, "{end}");
        let known = reader.read().expect("all");
        assert!(known.node(3).is_some() && known.coordinator() == Some(3), "{end}");
    }
}

#[test]
fn a_lease_that_nobody_renews_ends() {
    if !is_there() {
        return;
    }
    let etcd = LocalEtcd::start(1);
    let url = etcd.url("users");
    drop(registered(&url));
    let (reader, begun) = (open(&url), Instant::now());
    assert!(reader.read().expect("all").node(3).is_some(), "it was killed, as it were");
    while reader.read().expect("all").node(3).is_some() {
        assert!(begun.elapsed() < WAIT_MAX, "its lease goes on");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn an_etcd_that_was_away_has_its_nodes_again() {
    if !is_there() {
        return;
    }
    let mut etcd = LocalEtcd::start(1);
    let url = etcd.url("users");
    let mut node = registered(&url);
    etcd.kill(0);
    for failed in [node.step().map(drop), found(&open(&url)).map(drop)] {
        let error = failed.expect_err("nobody answers");
        assert!(matches!(error, ClusterError::Unreachable { .. }) && error.is_transient(), "{error}");
        assert!(error.to_string().contains(&etcd.endpoints()[0]), "{error}");
    }
    etcd.start_again(0);
    node.step_until("it is back", |_, stepped| stepped.is_ok());
    assert!(open(&url).read().expect("all").node(3).is_some());
    node.forget();
    etcd.control(&["del", "/farsight/users/nodes/0000000000000003"]);
    node.hear();
    node.step().expect("it is heard of again what changes");
}

#[test]
fn what_a_compaction_has_forgotten_is_read_again() {
    if !is_there() {
        return;
    }
    let etcd = LocalEtcd::start(1);
    let url = etcd.url("users");
    let mut node = registered(&url);
    let reader = open(&url);
    let long_ago = reader.read().expect("all");
    let put = |round: i32| etcd.control(&["put", "-w", "fields", "x", &round.to_string()]);
    let said = (0..50).map(put).fold(String::new(), |_, said| said);
    let revision = said.lines().find_map(|line| line.strip_prefix("\"Revision\" : ")).expect("a revision");
    etcd.control(&["compaction", revision]);
    let (tell, heard) = std::sync::mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let news = move || {
        // The test may have ended.
        let _ = tell.lock().expect("no panic").send(());
    };
    let watch = reader.watch(&long_ago, news).expect("a watch");
    heard.recv_timeout(WAIT_MAX).expect("news that some are lost");
    assert!(watch.is_over());
    // A node's watch was there before, and goes on; and so does one of what is read now.
    node.step().expect("a step");
    node.forget();
    etcd.control(&["del", "/farsight/users/map"]);
    node.hear();
    node.step().expect("a step");
    assert_eq!(found(&reader).expect("a pool").nodes, [[address(3, 1)]]);
}

/// Which member leads.
fn leader(etcd: &LocalEtcd) -> usize {
    let begun = Instant::now();
    loop {
        // Endpoint, member, version, size, and whether it leads, with commas between.
        let status = etcd.try_control(&["endpoint", "status"]).unwrap_or_default();
        let leads = |line: &&str| line.split(", ").nth(4) == Some("true");
        let endpoint = status.lines().find(leads).and_then(|line| line.split(", ").next());
        if let Some(at) = endpoint.and_then(|one| etcd.endpoints().iter().position(|other| other == one)) {
            return at;
        }
        assert!(begun.elapsed() < WAIT_MAX, "nobody leads: {status:?}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_leader_that_is_killed_is_not_missed() {
    if !is_there() {
        return;
    }
    let mut etcd = LocalEtcd::start(3);
    let url = etcd.url("users");
    let mut node = registered(&url);
    for round in 0..2 {
        let leader = leader(&etcd);
        etcd.kill(leader);
        node.step_until("another one leads", |_, stepped| stepped.is_ok());
        node.memory.map = Some(map(3, 3, round + 1, &[3]));
        node.step_until("the map is taken", |_, stepped| stepped.is_ok());
        assert_eq!(open(&url).read().expect("all").pool().expect("a map").term(), round + 1);
        etcd.start_again(leader);
    }
    assert!(open(&url).read().expect("all").node(3).is_some());
}

#[test]
fn an_etcd_on_another_host_wants_leave() {
    let far = url("etcd://192.0.2.1:2379/users");
    let refused = Etcd::open(&far, EtcdOptions::default()).map(drop).expect_err("it is unprotected");
    assert!(
        refused.to_string().contains("192.0.2.1:2379") && refused.to_string().contains("--allow-plaintext")
    );
    assert!(Etcd::open(&far, EtcdOptions { allow_plaintext: true }).is_ok());
}

/// A member that takes connections and answers none, not even who proves who it is, holds up no call.
#[test]
fn a_watch_at_a_silent_member_does_not_hold_up_calls() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("its address");
    let etcd = open(&format!("etcd://root:secret@{address}/users"));
    let _watch = etcd.watch(&Known::default(), || {}).expect("a watch");
    let error = etcd.read().expect_err("nobody answers").to_string();
    assert!(error.contains(&address.to_string()) && error.contains("no answer for 2s"), "{error}");
}

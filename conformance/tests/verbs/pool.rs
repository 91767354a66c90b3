//! ROLEX over memory nodes by RDMA: the suites of lane, engine and costs, and a lock whose holder does
//! nothing more. Memory nodes and compute nodes are also processes of the program.

use std::process::Command;

use farsight::{Access, Addresses, ConnectOptions, Options};
use farsight_conformance::engine::harness::eventually;
use farsight_conformance::engine::raw_pool::RawPool;
use farsight_conformance::engine::silent;
use farsight_conformance::fabric::FabricUnderTest;
use farsight_conformance::fabric::verbs::{Verbs, is_asked_for};

use farsight_fabric::FabricError;

use crate::program::{Serving, program, run};

/// All of it is locked in memory.
const TABLE_BYTES: u64 = 4 << 20;
/// Two batches of the hot path, and a dozen leaves.
const PAIRS_MIN: usize = 130;
/// Leaves of a load that has begun and is far from its end.
const LEAVES_OF_A_PART: u64 = 20;

/// A memory node. A write is a dozen verbs, and each session has a queue pair a node.
struct Node(Verbs);

impl FabricUnderTest for Node {
    type Host = <Verbs as FabricUnderTest>::Host;
    type Connection = <Verbs as FabricUnderTest>::Connection;

    fn listen(&self, format_version: u32) -> Self::Host {
        self.0.listen(format_version)
    }

    fn connect(&self, format_version: u32) -> Result<Self::Connection, FabricError> {
        self.0.connect(format_version)
    }

    fn rounds(&self, usual: usize) -> usize {
        (self.0.rounds(usual) / 2).max(1)
    }

    fn pairs(&self, usual: usize) -> usize {
        usual.min((usual / 16).max(PAIRS_MIN))
    }
}

mod lane {
    use super::*;

    farsight_conformance::pool_lane_suite!([Verbs::new(), Verbs::new(), Verbs::new()], if is_asked_for());
}

mod costs {
    use super::*;

    farsight_conformance::pool_costs_suite!(
        |nodes| (0..nodes).map(|_| Node(Verbs::new())).collect::<Vec<_>>(),
        if is_asked_for()
    );
}

farsight_conformance::engine_suite!(
    RawPool::start([Verbs::new(), Verbs::new()].map(Node), TABLE_BYTES),
    if is_asked_for()
);

#[test]
fn a_silent_lock_holder_is_fenced() {
    if is_asked_for() {
        silent::a_silent_lock_holder_is_fenced_everywhere([Verbs::new(), Verbs::new()]);
    }
}

/// Two memory nodes, of which the second trains by queue pairs to the first and to itself; compute nodes,
/// some of which are killed.
#[test]
fn the_program_makes_a_pool() {
    if !is_asked_for() {
        return;
    }
    let Some(program) = program() else { return };
    let node = |url: &str, more: &[&str]| {
        Serving::start(&program, &[&["memory-node", "--listen", url, "--memory", "8M"], more].concat())
    };
    let coordinator = node("rdma://127.0.0.1:0", &[]);
    let own_url = format!("rdma://{}", Verbs::new().address());
    let urls = format!("{},{own_url}", coordinator.url);
    let _trainer = node(&own_url, &["--train", &urls]);
    let pool = |arguments: &[&str]| run(&program, &urls, arguments);
    pool(&["create", "prices", "--value-size", "8"]);
    assert!(pool(&["put", "prices", "4711", "hello"]).starts_with("inserted, version "));
    assert_eq!(pool(&["get", "prices", "4711"]), "hello\n");
    assert_eq!(pool(&["scan", "prices"]), "4711\thello\n");
    assert!(pool(&["delete", "prices", "4711"]).contains("removed"));
    assert!(pool(&["stats"]).contains("number 1 of 2"));

    let addresses: Addresses = urls.parse().expect("addresses");
    let client = farsight::Client::connect_with(&addresses, &ConnectOptions::default()).expect("a client");
    let table = client.table::<u64>("prices").expect("the table");
    let mut session = table.session(Options { access: Access::OneSided }).expect("a session");
    // More pairs than one leaf holds: once it has split there is something to learn.
    for key in 0..40 {
        session.put(key, b"00000001").expect("a put");
    }
    eventually("training by a memory node", || {
        let nodes = client.node_stats().expect("an answer");
        nodes[0].tables[0].meta.used > 1
    });
    assert_eq!(pool(&["get", "prices", "39"]), "00000001\n");

    // Whatever locks it dies with, the next one that comes by goes on.
    pool(&["create", "loaded", "--value-size", "8"]);
    let mut load = Command::new(&program);
    load.args(["load", "loaded", "uniform", "--keys", "20000"]).env("FARSIGHT_URL", &urls);
    let mut load = load.spawn().expect("it starts");
    eventually("the first leaves of a load", || {
        let nodes = client.node_stats().expect("an answer");
        nodes[0].tables[1].leaves.used > LEAVES_OF_A_PART
    });
    load.kill().expect("it can be killed");
    load.wait().expect("it ends");
    assert!(pool(&["put", "loaded", "1000", "survivor"]).starts_with("inserted"));
    assert_eq!(pool(&["get", "loaded", "1000"]), "survivor\n");
    pool(&["load", "loaded", "dense", "--keys", "1500"]);
    assert_eq!(pool(&["scan", "loaded", "--limit", "700"]).lines().count(), 700);
}

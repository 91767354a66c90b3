//! Pools by their names in a real etcd: found, also elsewhere, repaired, and served while etcd is away.

use std::time::{Duration, Instant};

use farsight::{
    Ack, Addresses, Client, ClusterError, ClusterUrl, ConnectError, ConnectOptions, EngineKind, Etcd,
    EtcdOptions, Known, Options, Server, ServerBuilder, Session, StartError, TableOptions, ValueKind,
};
use farsight_conformance::engine::harness::Directory;

#[path = "../../crates/cluster/tests/etcd/local_etcd.rs"]
mod local_etcd;

use local_etcd::{LocalEtcd, is_there};

const TABLE_BYTES: u64 = 16 << 20;
const KEYS: u64 = 300;
/// The longest that anything may take on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

/// A node that listens at a port of the system's choice, one of a pool of so many.
fn builder(name: &str, nodes: u8) -> ServerBuilder {
    let url = "tcp://127.0.0.1:0".parse().expect("an address");
    let name: ClusterUrl = name.parse().expect("a name");
    Server::builder().listen(url).table_memory_bytes(TABLE_BYTES).cluster(name, nodes)
}

fn start(name: &str, nodes: u8) -> Server {
    builder(name, nodes).start().expect("a node")
}

fn connect(to: &str) -> Result<Client, ConnectError> {
    Client::connect_with(to.parse::<Addresses>().expect("addresses"), &ConnectOptions::default())
}

fn session(client: &Client) -> Session<u64> {
    client.table("t").expect("the table").session(Options::default()).expect("a session")
}

fn put(session: &mut Session<u64>, round: u64) {
    for key in 0..KEYS {
        // Nobody else writes: what a loss leaves open is put again.
        if session.put(key, &(key ^ round).to_le_bytes()).is_err() {
            session.put(key, &(key ^ round).to_le_bytes()).expect("a put");
        }
    }
}

#[track_caller]
fn check(session: &mut Session<u64>, round: u64, who: &str) {
    for key in 0..KEYS {
        let found = session.get(key).unwrap_or_else(|error| panic!("{who}, key {key}: {error}"));
        assert_eq!(found.expect(who).value[..], (key ^ round).to_le_bytes(), "{who}, key {key}");
    }
}

/// What etcd has of it, once it is as it shall be.
#[track_caller]
fn until(name: &str, what: &str, is_so: impl Fn(&Known) -> bool) -> Known {
    let etcd = Etcd::open(&name.parse().expect("a name"), EtcdOptions::default()).expect("an etcd here");
    let begun = Instant::now();
    loop {
        let known = etcd.read();
        match known {
            Ok(known) if is_so(&known) => return known,
            known => assert!(begun.elapsed() < WAIT_MAX, "{what}: {known:?}"),
        }
        std::thread::sleep(PAUSE);
    }
}

/// The pool's map is there, of this number, with these addresses.
fn has_map(term: u32, nodes: &[&Server]) -> impl Fn(&Known) -> bool {
    let urls: Vec<String> = nodes.iter().map(|node| node.url().to_string()).collect();
    move |known| {
        known.pool().is_some_and(|map| {
            let told = map.addresses().0.concat();
            map.term() == term && told.len() == urls.len() && urls.iter().all(|url| told.contains(url))
        })
    }
}

fn of_three_replicas() -> TableOptions<u64> {
    TableOptions { engine: Some(EngineKind::FLEXKV), replicas: Some(3), ..TableOptions::default() }
}

#[test]
fn a_pool_is_found_by_its_name() {
    if !is_there() {
        return;
    }
    let etcd = LocalEtcd::start(1);
    let name = etcd.url("pool");
    let few = connect(&name).map(drop).expect_err("nobody");
    assert!(matches!(few, ConnectError::Cluster(ClusterError::Few { .. })), "{few}");
    let nodes = [(), (), ()].map(|()| start(&name, 3));
    let client = connect(&name).expect("a client");
    client.create_table::<u64>("t", 8).expect("a table");
    put(&mut session(&client), 1);
    let places = nodes.each_ref().map(|node| node.stats().place.expect("a place"));
    assert_eq!(places.map(|place| (place.index, place.epochs.len())), [(0, 3), (1, 3), (2, 3)]);
    until(&name, "the map", has_map(0, &nodes.each_ref()));
    check(&mut session(&connect(&name).expect("a client")), 1, "by the name");
    check(&mut session(&connect(&nodes[1].url().to_string()).expect("a client")), 1, "by one node");
    let [first, ..] = nodes;
    first.shutdown().expect("it ends");
    until(&name, "it is not registered any more", |known| known.nodes().len() == 2);
}

#[test]
fn all_nodes_that_were_started_again_elsewhere_are_found() {
    if !is_there() {
        return;
    }
    let etcd = LocalEtcd::start(1);
    let (name, directory) = (etcd.url("kept"), Directory::new());
    let start_all = || {
        [0, 1, 2].map(|node| {
            let data = directory.file(&format!("data-{node}"));
            builder(&name, 3).data(data, Ack::Memory).start().expect("a node")
        })
    };
    let nodes = start_all();
    let client = connect(&name).expect("a client");
    let options = TableOptions { engine: Some(EngineKind::XSTORE_D), ..TableOptions::default() };
    client.create_table_of::<u64>("t", ValueKind::Fixed(8), &options).expect("a table");
    put(&mut session(&client), 4);
    until(&name, "the map", has_map(0, &nodes.each_ref()));
    let former = nodes.each_ref().map(|node| node.url().to_string());
    for node in nodes {
        node.shutdown().expect("it ends");
    }
    let nodes = start_all();
    assert!(nodes.iter().all(|node| !former.contains(&node.url().to_string())), "other ports");
    check(&mut session(&connect(&name).expect("a client")), 4, "by the name");
    until(&name, "the map has moved", has_map(0, &nodes.each_ref()));
    // Each node learns where the others are.
    let one = nodes[2].url().to_string();
    let begun = Instant::now();
    while let Err(error) = connect(&one).and_then(|client| Ok(client.tables()?)) {
        assert!(begun.elapsed() < WAIT_MAX, "{error}");
        std::thread::sleep(PAUSE);
    }
    check(&mut session(&connect(&one).expect("a client")), 4, "by one node");
    drop(nodes);
    let other = Server::builder().listen("tcp://127.0.0.1:0".parse().expect("an address"));
    let other = other.data(directory.file("other"), Ack::Memory).start().expect("a server");
    connect(&other.url().to_string()).expect("a client").create_table::<u64>("t", 8).expect("a table");
    other.shutdown().expect("it ends");
    let refused = builder(&name, 3).data(directory.file("other"), Ack::Memory).start().map(drop);
    let refused = refused.expect_err("of another pool");
    assert!(matches!(refused, StartError::Cluster(ClusterError::NameTaken { .. })), "{refused}");
}

#[test]
fn a_node_that_was_taken_in_is_found() {
    if !is_there() {
        return;
    }
    let etcd = LocalEtcd::start(1);
    let name = etcd.url("pool");
    let [first, second, third] = [(), (), ()].map(|()| start(&name, 3));
    let client = connect(&name).expect("a client");
    client.create_table_of::<u64>("t", ValueKind::Fixed(8), &of_three_replicas()).expect("a table");
    put(&mut session(&client), 1);
    until(&name, "the map", has_map(0, &[&first, &second, &third]));
    first.shutdown().expect("it ends");
    put(&mut session(&connect(&name).expect("a client")), 2);
    let new = start(&name, 3);
    let to: Addresses = name.parse().expect("a name");
    let repaired = farsight::repair(to, &ConnectOptions::default(), &mut |_| {}).expect("a repair");
    assert_eq!(repaired.iter().map(|one| one.place).collect::<Vec<_>>(), [0]);
    until(&name, "the new map", has_map(1, &[&new, &second, &third]));
    check(&mut session(&connect(&name).expect("a client")), 2, "after the repair");
    // It has all: another one may be lost.
    second.shutdown().expect("it ends");
    put(&mut session(&connect(&name).expect("a client")), 3);
    check(&mut session(&connect(&name).expect("a client")), 3, "without another one");
}

#[test]
fn a_pool_goes_on_while_etcd_is_away() {
    if !is_there() {
        return;
    }
    let mut etcd = LocalEtcd::start(1);
    let name = etcd.url("pool");
    let nodes = [(), ()].map(|()| start(&name, 2));
    let client = connect(&name).expect("a client");
    client.create_table::<u64>("t", 8).expect("a table");
    let mut session_before = session(&client);
    put(&mut session_before, 1);
    until(&name, "the map", has_map(0, &nodes.each_ref()));
    etcd.kill(0);
    put(&mut session_before, 2);
    check(&mut session(&connect(&nodes[1].url().to_string()).expect("a client")), 2, "by one node");
    let away = connect(&name).map(drop).expect_err("etcd is away");
    assert!(matches!(away, ConnectError::Cluster(ClusterError::Unreachable { .. })), "{away}");
    // Longer than a lease: they have ended when it is back, or are ended soon.
    std::thread::sleep(Duration::from_secs(6));
    etcd.start_again(0);
    let registered = |known: &Known| known.nodes().len() == 2;
    until(&name, "both are registered again", registered);
    check(&mut session(&connect(&name).expect("a client")), 2, "by the name");
    // What etcd has lost, its nodes write again.
    etcd.control(&["del", "--prefix", "/farsight/"]);
    until(&name, "both are registered again", registered);
    until(&name, "the map", has_map(0, &nodes.each_ref()));
    check(&mut session(&connect(&name).expect("a client")), 2, "by the name");
    // And what somebody else has written there is named.
    etcd.control(&["put", "/farsight/pool/map", "?"]);
    let corrupt = connect(&name).map(drop).expect_err("no map");
    assert!(matches!(corrupt, ConnectError::Cluster(ClusterError::Corrupt { .. })), "{corrupt}");
    check(&mut session_before, 2, "who was there before");
}

#[test]
fn what_no_name_can_come_of_is_refused() {
    let name: ClusterUrl = "etcd://127.0.0.1:1/pool".parse().expect("a name");
    let everywhere = Server::builder().listen("tcp://0.0.0.0:0".parse().expect("an address"));
    let refused = everywhere.allow_plaintext(true).cluster(name.clone(), 1).start().map(drop);
    assert!(matches!(refused, Err(StartError::Everywhere { .. })), "{refused:?}");
    let told: Addresses = "tcp://127.0.0.1:1".parse().expect("an address");
    let refused = builder("etcd://127.0.0.1:1/pool", 1).pool(told).start().map(drop);
    assert!(matches!(refused, Err(StartError::PoolAndCluster)), "{refused:?}");
    let refused = Server::builder().listen("tcp://127.0.0.1:0".parse().expect("an address"));
    let refused = refused.cluster(name, 17).start().map(drop);
    assert!(matches!(refused, Err(StartError::Cluster(ClusterError::Member(_)))), "{refused:?}");
}

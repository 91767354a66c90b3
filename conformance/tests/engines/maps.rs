//! The map of a pool: a client that is given some of its nodes finds all of them, also one that has moved.

use farsight::{
    Addresses, CatalogueError, Client, ConnectError, ConnectOptions, EngineKind, Options, PoolError, Server,
    ServerUrl, Session, TableOptions, ValueKind, WriteError,
};
use farsight_conformance::engine::harness::Directory;
use farsight_conformance::engine::pool::{Pool, over_shared_memory, over_tcp};

const TABLE_BYTES: u64 = 16 << 20;
const KEYS: u64 = 500;
/// Losses of one put, each of which leaves open what became of it.
const LOSSES_MAX: usize = 3;

fn to(urls: &[&ServerUrl]) -> Addresses {
    Addresses::new(urls.iter().map(|url| (*url).clone()).collect())
}

fn connect(urls: &[&ServerUrl]) -> Result<Client, ConnectError> {
    Client::connect_with(to(urls), &ConnectOptions::default())
}

fn session(client: &Client, table: &str) -> Session<u64> {
    client.table(table).expect("the table").session(Options::default()).expect("a session")
}

fn put(session: &mut Session<u64>, round: u64) {
    for key in 0..KEYS {
        let mut put = || session.put(key, &(key ^ round).to_le_bytes()).map(drop);
        let mut done = put();
        for _ in 0..LOSSES_MAX {
            // Nobody else writes: puts can be repeated.
            let Err(WriteError::Indeterminate { .. }) = done else { break };
            done = put();
        }
        done.expect("a put");
    }
}

#[track_caller]
fn check(session: &mut Session<u64>, round: u64, who: &str) {
    for key in 0..KEYS {
        let found = session.get(key).unwrap_or_else(|error| panic!("{who}, key {key}: {error}"));
        assert_eq!(found.expect(who).value[..], (key ^ round).to_le_bytes(), "{who}, key {key}");
    }
}

fn some_nodes_are_enough(url: impl Fn(&Directory, usize) -> ServerUrl) {
    let pool = Pool::start(3, TABLE_BYTES, url);
    pool.connect().create_table::<u64>("t", 8).expect("a table");
    put(&mut session(&pool.connect(), "t"), 7);
    for given in [&[0][..], &[1], &[2], &[2, 1], &[1, 2, 0], &[2, 1, 0], &[0, 2]] {
        let urls: Vec<&ServerUrl> = given.iter().map(|node| pool.url(*node)).collect();
        let client = connect(&urls).expect("a client");
        let who = format!("given {given:?}");
        check(&mut session(&client, "t"), 7, &who);
        let stats = client.node_stats().expect("statistics");
        let places: Vec<u8> = stats.iter().map(|node| node.place.as_ref().expect("a place").index).collect();
        assert_eq!(places, [0, 1, 2], "{who}");
    }
}

#[test]
fn a_client_of_some_nodes_finds_all_over_shared_memory() {
    some_nodes_are_enough(over_shared_memory);
}

#[test]
fn a_client_of_some_nodes_finds_all_over_tcp() {
    some_nodes_are_enough(over_tcp);
}

/// Nodes that were started with a list of all.
fn told_nodes(directory: &Directory, nodes: usize) -> (Vec<Server>, Vec<ServerUrl>) {
    let urls: Vec<ServerUrl> = (0..nodes).map(|node| over_shared_memory(directory, node)).collect();
    let start = |url: &ServerUrl| {
        let builder = Server::builder().listen(url.clone()).table_memory_bytes(TABLE_BYTES);
        builder.pool(Addresses::new(urls.clone())).start().expect("a node")
    };
    (urls.iter().map(start).collect(), urls)
}

#[test]
fn nodes_that_were_told_at_their_start_need_no_complete_client() {
    let directory = Directory::new();
    let (nodes, urls) = told_nodes(&directory, 3);
    let client = connect(&[&urls[2]]).expect("a client");
    client.create_table::<u64>("t", 8).expect("a table over three nodes");
    put(&mut session(&client, "t"), 3);
    let places: Vec<_> = nodes.iter().map(|node| node.stats().place.expect("a place")).collect();
    for (index, place) in places.iter().enumerate() {
        assert_eq!((place.index, place.epochs.len()), (index as u8, 3));
    }
    check(&mut session(&connect(&[&urls[1]]).expect("a client"), "t"), 3, "one of three");
}

#[test]
fn a_pool_whose_addresses_nobody_told_says_so() {
    let mut pool = Pool::start(2, TABLE_BYTES, over_tcp);
    // Of two servers nobody knows that they are to be a pool.
    connect(&[pool.url(1)]).expect("a server").tables().expect("its tables");
    let table = pool.connect().create_table::<u64>("t", 8).expect("a table");
    drop(table);
    // A pool goes by epochs: none of a server that was started again is known.
    pool.stop(0);
    pool.start_again(0);
    let client = connect(&[pool.url(1)]).expect("it knows both addresses");
    let error = client.tables().expect_err("one was started again");
    assert!(
        matches!(&error, CatalogueError::Pool(PoolError::NodeRestarted { peer, .. }) if peer.contains(
            pool.url(0).to_string().rsplit(':').next().expect("a port")
        )),
        "{error}"
    );
    let alone = connect(&[pool.url(0)]).expect("a server that knows no pool");
    assert_eq!(alone.tables().expect("none").len(), 0);
}

#[test]
fn nodes_of_two_pools_are_named() {
    let pools = [Pool::start(2, TABLE_BYTES, over_tcp), Pool::start(2, TABLE_BYTES, over_tcp)];
    for pool in &pools {
        pool.connect().create_table::<u64>("t", 8).expect("a table");
    }
    match connect(&[pools[0].url(1), pools[1].url(0)]).map(drop) {
        Err(ConnectError::Catalogue(CatalogueError::Pool(PoolError::TwoPools { first, second }))) => {
            assert_eq!((first, second), (pools[0].url(1).to_string(), pools[1].url(0).to_string()));
        }
        other => panic!("two pools: {other:?}"),
    }
    match connect(&[pools[0].url(1), pools[0].url(0), pools[0].url(1)]).map(drop) {
        Err(ConnectError::Catalogue(CatalogueError::Pool(PoolError::SameNode { .. }))) => {}
        other => panic!("one node twice: {other:?}"),
    }
}

/// A pool of three nodes whose table is on each, one of which is lost. Another one takes its place elsewhere.
fn moved(url: impl Fn(&Directory, usize) -> ServerUrl, lost: usize) {
    let mut pool = Pool::start(3, TABLE_BYTES, &url);
    let options =
        TableOptions { engine: Some(EngineKind::FLEXKV), replicas: Some(3), ..TableOptions::default() };
    let open = pool.connect();
    open.create_table_of::<u64>("t", ValueKind::Fixed(8), &options).expect("a table");
    let mut session_before = session(&open, "t");
    put(&mut session_before, 1);
    pool.stop(lost);
    check(&mut session_before, 1, "without the lost node");

    let directory = Directory::new();
    let builder = Server::builder().listen(url(&directory, 7)).table_memory_bytes(TABLE_BYTES);
    let new = builder.start().expect("a new node");
    let (stays, other) = ((lost + 1) % 3, (lost + 2) % 3);
    // One that stays, and the new one: the map has the other.
    let repaired =
        farsight::repair(to(&[new.url(), pool.url(stays)]), &ConnectOptions::default(), &mut |_| {});
    let repaired = repaired.expect("a repair");
    assert_eq!(repaired.iter().map(|one| one.place).collect::<Vec<_>>(), [lost]);

    check(&mut session_before, 1, "who was there before");
    put(&mut session_before, 2);
    assert_eq!(open.node_stats().expect("statistics").len(), 3, "it has found the new node");
    let all: Vec<&ServerUrl> = (0..3).map(|node| pool.url(node)).collect();
    for (given, who) in [
        (&all[..], "who has the former list"),
        (&[pool.url(stays)], "who has one that stayed"),
        (&[new.url()], "who has the new one"),
    ] {
        let client = connect(given).expect(who);
        check(&mut session(&client, "t"), 2, who);
        assert_eq!(client.node_stats().expect("statistics").len(), 3, "{who}");
    }
    // With the next loss nothing is lost, so the new node has all, and is used.
    pool.stop(other);
    put(&mut session_before, 3);
    check(&mut session_before, 3, "who was there before, without another one");
    check(&mut session(&connect(&[new.url()]).expect("a client"), "t"), 3, "who comes now");
    assert_eq!(open.node_stats().expect("statistics").len(), 2, "two of three are left");
}

#[test]
fn a_new_node_elsewhere_is_found_over_tcp() {
    moved(over_tcp, 1);
}

#[test]
fn a_new_coordinator_elsewhere_is_found_over_tcp() {
    moved(over_tcp, 0);
}

#[test]
fn a_new_node_elsewhere_is_found_over_shared_memory() {
    moved(over_shared_memory, 2);
}

#[test]
fn a_former_node_at_its_old_address_is_no_node_of_the_pool() {
    let mut pool = Pool::start(3, TABLE_BYTES, over_tcp);
    let options =
        TableOptions { engine: Some(EngineKind::FLEXKV), replicas: Some(3), ..TableOptions::default() };
    let open = pool.connect();
    open.create_table_of::<u64>("t", ValueKind::Fixed(8), &options).expect("a table");
    put(&mut session(&open, "t"), 1);
    pool.stop(2);
    put(&mut session(&open, "t"), 2);
    let directory = Directory::new();
    let builder = Server::builder().listen(over_tcp(&directory, 7)).table_memory_bytes(TABLE_BYTES);
    let new = builder.start().expect("a new node");
    let given = to(&[pool.url(0), pool.url(1), new.url()]);
    farsight::repair(given, &ConnectOptions::default(), &mut |_| {}).expect("a repair");
    // Something starts at the lost one's address again: it is empty, and belongs to nothing.
    pool.start_again(2);
    let client = connect(&[pool.url(0), pool.url(1), pool.url(2)]).expect("a client of the former list");
    check(&mut session(&client, "t"), 2, "who has the former list");
    let stats = client.node_stats().expect("statistics");
    assert!(stats.iter().all(|node| node.place.is_some()), "three nodes of the pool");
    assert!(connect(&[pool.url(2)]).expect("a server").tables().expect("its tables").is_empty());
}

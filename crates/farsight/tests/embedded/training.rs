//! Tables that compute nodes write are trained by the server that has them, without being told to.

use std::time::{Duration, Instant};

use farsight::{
    Client, Endpoint, EngineKind, Meters, Options, Server, ServerBuilder, ServerUrl, Session, Table,
    TableOptions, WriteOutcome,
};
use tempfile::TempDir;

/// What no wait of a passing test comes near.
const PATIENCE: Duration = Duration::from_secs(60);
/// Keys that ascend, so that all splits are at one end.
const KEYS: u64 = 20_000;
/// READs of a GET at most once the server has trained: the leaf, and steps to two that nobody knows yet.
const READS_A_GET_MAX: u64 = 3;
/// The same of the first GET in a group: the group's image comes before that.
const READS_A_FIRST_GET_MAX: u64 = 8;
/// Keys that are got.
const ASKED: u64 = 500;

fn builder() -> ServerBuilder {
    Server::builder().table_memory_bytes(32 << 20)
}

fn socket(directory: &TempDir) -> std::path::PathBuf {
    directory.path().join("test.sock")
}

fn tcp() -> ServerUrl {
    ServerUrl::Tcp(Endpoint { host: "127.0.0.1".to_owned(), port: 0 })
}

fn create(client: &Client, name: &str) -> Table<u64> {
    let options = TableOptions { engine: Some(EngineKind::ROLEX), ..TableOptions::default() };
    client.create_table_with(name, 8, &options).expect("a new table")
}

fn session(client: &Client, name: &str) -> Session<u64> {
    client.table(name).expect("it is there").session(Options::default()).expect("a session")
}

/// Puts keys in ascending order.
fn fill(session: &mut Session<u64>) {
    let keys: Vec<u64> = (0..KEYS).collect();
    for piece in keys.chunks(100) {
        let pairs: Vec<_> = piece.iter().map(|key| (*key, b"8 bytes.")).collect();
        let mut outcomes = Vec::new();
        session.put_many(&pairs, &mut outcomes).expect("outcomes");
        assert!(
            outcomes
                .iter()
                .all(|outcome| { matches!(outcome, WriteOutcome::Inserted(_) | WriteOutcome::Replaced(_)) })
        );
    }
}

/// What GETs cost a client that knows nothing of the table yet.
fn cost_of_gets(url: &ServerUrl, name: &str) -> Meters {
    let mut session = session(&Client::connect(url).expect("a client connects"), name);
    // What the model takes is no part of a GET.
    session.get(0).expect("an answer");
    let before = session.meters();
    // From the last one down: what a walk finds is of no use to the next.
    for key in (0..KEYS).rev().step_by((KEYS / ASKED) as usize) {
        assert_eq!(session.get(key).expect("an answer").expect("it is there").value, b"8 bytes.");
    }
    session.meters() - before
}

/// What a GET of the last key costs such a client.
fn cost_of_the_last(url: &ServerUrl, name: &str) -> Meters {
    let mut session = session(&Client::connect(url).expect("a client connects"), name);
    session.get(0).expect("an answer");
    let before = session.meters();
    session.get(KEYS - 1).expect("an answer").expect("it is there");
    session.meters() - before
}

fn await_training(url: &ServerUrl, name: &str) {
    let begun = Instant::now();
    loop {
        // On average, and of the last leaf, which is trained last.
        let (all, last) = (cost_of_gets(url, name).reads, cost_of_the_last(url, name).reads);
        if all <= READS_A_GET_MAX * ASKED && last <= READS_A_FIRST_GET_MAX {
            return;
        }
        let reads = all / ASKED;
        assert!(begun.elapsed() < PATIENCE, "nobody trains: {reads} READs a GET, {last} of the last key");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn a_table_that_grows_is_trained(server: &Server) {
    let client = Client::connect(server.url()).expect("a client connects");
    create(&client, "t");
    fill(&mut session(&client, "t"));
    await_training(server.url(), "t");
}

#[test]
fn over_shared_memory() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = builder().socket(socket(&directory)).start().expect("a server");
    a_table_that_grows_is_trained(&server);
    server.shutdown().expect("it stops");
}

#[test]
fn over_tcp_alone() {
    let server = builder().listen(tcp()).start().expect("a server");
    a_table_that_grows_is_trained(&server);
    server.shutdown().expect("it stops");
}

#[test]
fn over_both() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = builder().listen(tcp()).socket(socket(&directory)).start().expect("a server");
    a_table_that_grows_is_trained(&server);
    let far = Client::connect(&server.urls()[1]).expect("a client connects");
    create(&far, "far");
    fill(&mut session(&far, "far"));
    await_training(&server.urls()[1], "far");
}

#[test]
fn tables_come_and_go_meanwhile() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = builder().socket(socket(&directory)).start().expect("a server");
    let client = Client::connect(server.url()).expect("a client connects");
    for round in 0..3 {
        for name in ["kept", "dropped"] {
            create(&client, name);
        }
        let (mut kept, mut dropped) = (session(&client, "kept"), session(&client, "dropped"));
        for keys in (0..4_000_u64).collect::<Vec<_>>().chunks(200) {
            let pairs: Vec<_> = keys.iter().map(|key| (*key, b"8 bytes.")).collect();
            kept.put_many(&pairs, &mut Vec::new()).expect("outcomes");
            // The last ones find the table gone.
            let _ = dropped.put_many(&pairs, &mut Vec::new());
            if keys[0] == 1_000 * (round + 1) {
                client.drop_table("dropped").expect("dropped");
            }
        }
    }
    fill(&mut session(&client, "kept"));
    await_training(server.url(), "kept");
    assert_eq!(server.failure(), None);
    server.shutdown().expect("it stops");
}

/// A client whose model is of a table without pairs finds the newest one on the way of its first GET.
#[test]
fn a_long_way_looks_for_a_newer_model() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = builder().socket(socket(&directory)).start().expect("a server");
    let client = Client::connect(server.url()).expect("a client connects");
    create(&client, "t");
    let mut old = session(&client, "t");
    assert!(old.get(KEYS).expect("an answer").is_none());
    let writer = Client::connect(server.url()).expect("a client connects");
    fill(&mut session(&writer, "t"));
    await_training(server.url(), "t");
    let before = old.meters();
    assert!(old.get(KEYS - 1).expect("an answer").is_some());
    let reads = (old.meters() - before).reads;
    // 32 leaves and then root, slot, directory, image and the leaf, where the chain has over 1,000 leaves.
    assert!(reads <= 64, "{reads} READs");
}

/// Who trains is a client, and there is none while there is nothing to train.
#[test]
fn nobody_trains_without_a_table() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = builder().socket(socket(&directory)).start().expect("a server");
    let client = Client::connect(server.url()).expect("a client connects");
    client.create_table::<u64>("of_the_server", 8).expect("a new table");
    create(&client, "t");
    let clients_become = |count: u64| {
        let begun = Instant::now();
        while server.stats().clients != count {
            assert!(begun.elapsed() < PATIENCE, "{} clients, not {count}", server.stats().clients);
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    clients_become(2);
    client.drop_table("t").expect("dropped");
    clients_become(1);
}

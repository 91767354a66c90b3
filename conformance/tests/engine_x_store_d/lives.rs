//! Memory nodes that end, and come back empty, under sessions that are open.

use std::time::Duration;

use farsight::{
    Addresses, Answers, Client, ConnectOptions, Engine, MemoryNode, Options, Server, ServerUrl, TableOptions,
    WriteError,
};
use farsight_conformance::engine::harness::Directory;

const KEYS: u64 = 3_000;

fn start(url: &ServerUrl) -> MemoryNode {
    let builder = Server::builder().listen(url.clone()).table_memory_bytes(16 << 20);
    builder.start_memory_node().expect("a memory node")
}

/// All of an error's reasons.
fn words(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

#[test]
fn a_lost_node_is_named_and_nothing_is_answered_in_its_place() {
    let directory = Directory::new();
    let urls = ["a", "b", "c"].map(|name| ServerUrl::shm(directory.file(name)));
    let mut nodes: Vec<Option<MemoryNode>> = urls.iter().map(|url| Some(start(url))).collect();
    let options =
        ConnectOptions { reconnect_timeout: Duration::from_millis(300), ..ConnectOptions::default() };
    let client = Client::connect_with(Addresses::new(urls.to_vec()), &options).expect("a client");
    let options = TableOptions { engine: Some(Engine::XStoreD), sample: vec![0, 1_000, 2_000] };
    let table = client.create_table_with::<u64>("t", 8, &options).expect("a table");
    let mut session = table.session(Options::default()).expect("a session");
    let pairs: Vec<(u64, [u8; 8])> = (0..KEYS).map(|key| (key, key.to_le_bytes())).collect();
    let mut outcomes = Vec::new();
    session.put_many(&pairs, &mut outcomes).expect("puts");
    assert_eq!(outcomes.len(), pairs.len());

    nodes[1].take().expect("it runs").shutdown().expect("it ends");
    let lost = urls[1].to_string();
    let lost = lost.strip_prefix("shm://").expect("a socket");
    // The others' keys are READ as before, unless the loss is known by then.
    let mut answers = Answers::default();
    let everywhere: Vec<u64> = (0..KEYS).step_by(100).collect();
    let error = session.multi_get(&everywhere, &mut answers).expect_err("a node is gone");
    assert!(words(&error).contains(lost), "{}", words(&error));
    let error = session.put(1_500, b"or not  ").expect_err("the key's node is gone");
    assert!(words(&error).contains(lost), "{}", words(&error));

    // It comes back without its part: whoever needs it is told, and no key counts as absent. What the other
    // nodes have is theirs still, and right.
    nodes[1] = Some(start(&urls[1]));
    for key in [5, 1_500, 2_500] {
        match session.get(key) {
            Ok(found) => {
                assert_ne!(key, 1_500, "its node is another life");
                assert_eq!(found.map(|entry| entry.value), Some(key.to_le_bytes().to_vec()));
            }
            Err(error) => assert!(is_restart_of(&error, lost), "{}", words(&error)),
        }
        let error = session.put(key, b"anything").expect_err("the pool has lost a part");
        assert!(!matches!(error, WriteError::Indeterminate { .. }), "nothing was sent: {error}");
        assert!(is_restart_of(&error, lost), "{}", words(&error));
    }
    let failures: Vec<_> = session.scan(..).filter_map(Result::err).collect();
    assert!(matches!(&failures[..], [error] if is_restart_of(error, lost)), "{failures:?}");
    let error = client.table::<u64>("t").err().expect("the pool has lost a part");
    assert!(is_restart_of(&error, lost), "{}", words(&error));
}

fn is_restart_of(error: &dyn std::error::Error, node: &str) -> bool {
    let words = words(error);
    words.contains(node) && words.contains("was started again")
}

//! Queue pairs that break while their server lives: sessions go on with others, by themselves, with reads and
//! writes.

use std::sync::Arc;

use farsight_client::{Access, Client, ClientOptions, Session};
use farsight_conformance::engine::harness::{PATIENCE, eventually};
use farsight_conformance::fabric::FabricUnderTest as _;
use farsight_conformance::fabric::harness::{Ask, FORMAT, Running, call, request};
use farsight_conformance::fabric::verbs::{Verbs, is_asked_for};
use farsight_fabric::{Connection as _, FabricError, Host, Listener, QueuePair as _};
use farsight_fabric_verbs::hostile::break_queue_pair;
use farsight_fabric_verbs::{VerbsConnection, VerbsHost};
use farsight_index::Answers;
use farsight_layout::FORMAT_VERSION;
use farsight_node::{Node, NodeHandle, NodeOptions};
use farsight_protocol::{KeyKind, TableDefinition, WriteOperation, WriteOutcome};

const TABLE_BYTES: u64 = 4 << 20;
const KEYS: u64 = 100;
/// Time for a client to break its queue pair before it is answered.
const SLEEP_MS: u32 = 3_000;

/// A server whose host is at hand, a client of it, and a session with some pairs.
struct Scene {
    host: Arc<VerbsHost>,
    _server: NodeHandle,
    client: Client,
    session: Session,
}

fn value_of(key: u64) -> [u8; 8] {
    (key * 3).to_le_bytes()
}

impl Scene {
    fn new() -> Self {
        let subject = Verbs::new();
        let host = Arc::new(subject.listen(FORMAT_VERSION));
        let options = NodeOptions { table_memory_bytes: TABLE_BYTES, ..NodeOptions::default() };
        let listener: Arc<dyn Listener> = Arc::clone(&host) as Arc<dyn Listener>;
        let server = Node::start(vec![listener], &options).expect("a server");
        let connection = subject.connect(FORMAT_VERSION).expect("a connection");
        let client = Client::new(connection, ClientOptions::default()).expect("a client");
        let definition = TableDefinition::new("t", KeyKind::U64, 8);
        let table = client.create_table(definition).expect("a table");
        let mut session = table.session(Access::OneSided).expect("a session");
        let pairs: Vec<(u64, [u8; 8])> = (0..KEYS).map(|key| (key, value_of(key))).collect();
        let entries = pairs.iter().map(|(key, value)| (*key, &value[..]));
        session.write(WriteOperation::Insert, entries, &mut Vec::new()).expect("writes");
        Self { host, _server: server, client, session }
    }

    /// The client's connection as the server counts it: another one has another number, and other queue
    /// pairs.
    fn connection(&self) -> u64 {
        self.client.with_connections(VerbsConnection::client)[0].0
    }

    /// All pairs in one batch, as they were written.
    fn check_reads(&mut self) {
        let keys: Vec<u64> = (0..=KEYS).collect();
        let mut answers = Answers::default();
        self.session.multi_get(&keys, &mut answers).expect("reads begin again by themselves");
        for (key, answer) in keys.iter().zip(answers.iter()) {
            let expected = (*key < KEYS).then(|| value_of(*key));
            assert_eq!(
                answer.map(|(value, _)| value),
                expected.as_ref().map(|value| &value[..]),
                "key {key}"
            );
        }
    }

    /// One client, and not the one of before.
    fn check_came_back(&self, before: u64) {
        assert_ne!(self.connection(), before, "the broken queue pair's connection is still in use");
        eventually("the end of the former connection", || Host::client_count(&*self.host) == 1);
    }
}

#[test]
fn reads_go_on_by_another_queue_pair() {
    if !is_asked_for() {
        return;
    }
    let mut scene = Scene::new();
    scene.check_reads();
    let (before, epoch) = (scene.connection(), scene.session.epoch());
    scene.host.break_queue_pairs();
    scene.check_reads();
    scene.check_came_back(before);
    assert_eq!(scene.session.epoch(), epoch, "the server has lived all the time");
}

/// The server lives, so the client asks it: the write is repeated, and done once.
#[test]
fn a_write_whose_queue_pair_breaks_is_done_by_another() {
    if !is_asked_for() {
        return;
    }
    let mut scene = Scene::new();
    let before = scene.connection();
    scene.host.break_queue_pairs();
    let outcome = scene.session.write_one(WriteOperation::Insert, KEYS + 1, &[9; 8]).expect("a write");
    assert!(matches!(outcome, WriteOutcome::Inserted(_)), "{outcome:?}");
    scene.check_reads();
    scene.check_came_back(before);
    scene.session.write_one(WriteOperation::Insert, KEYS + 2, &[8; 8]).expect("writes go on");
    for (key, expected) in [(KEYS + 1, [9; 8]), (KEYS + 2, [8; 8])] {
        let mut value = [0; 8];
        scene.session.get(key, &mut value).expect("a get").expect("the pair");
        assert_eq!(value, expected, "key {key}");
    }
}

/// A server whose replies nobody acknowledges ends that connection as one that is lost: its client is wanted
/// as before. Others go on.
#[test]
fn a_client_whose_card_fails_may_come_back() {
    if !is_asked_for() {
        return;
    }
    let subject = Verbs::new();
    let server = Running::start(subject.listen(FORMAT), 1);
    let connect = || subject.connect(FORMAT).expect("a connection");
    let (connection, other) = (connect(), connect());
    let mut queue = connection.open_queue().expect("a queue");
    let mut other_queue = other.open_queue().expect("a queue");
    queue.post_call(0, &request(Ask::Sleep, &[SLEEP_MS])).expect("a short request");
    queue.doorbell().expect("it is sent");
    eventually("the request's arrival", || server.calls() > 0);
    break_queue_pair(&queue);
    // Nobody looks at the queue: that the connection ends is the server's doing.
    eventually("the server's word", || connection.check().is_err());
    match connection.check() {
        Err(FabricError::Disconnected { reason, .. }) => {
            assert!(reason.contains("the server's network card reports"), "{reason}");
        }
        other => panic!("a card that fails came to {other:?}"),
    }
    assert_eq!(call(&mut other_queue, 0, b"go on"), b"go on");
    let again = connection.reconnect(PATIENCE).expect("it may come back");
    let mut queue = again.open_queue().expect("a queue");
    assert_eq!(call(&mut queue, 0, b"again"), b"again");
}

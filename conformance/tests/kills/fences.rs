//! Which processes a fence over shared memory may end, and which it never does; over TCP it ends none. The
//! tests stop processes for less than a lease or for more, with a lock or without, and such as serve memory
//! themselves.
//!
//! The processes are real, as the signals are. A lock is held by a role that takes it in the first leaf of
//! the table and keeps it until it is told to let go.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use farsight::{
    Access, Addresses, Client, ConnectOptions, EngineKind, Options, PoolTraining, Server, ServerUrl, Table,
    TableOptions, WriteOperation, WriteOutcome,
};
use farsight_client::{ClientOptions, PoolClient};
use farsight_conformance::engine::Seed;
use farsight_conformance::engine::harness::{Directory, PATIENCE, eventually};
use farsight_conformance::engine::processes::{Player, argument, say};
use farsight_fabric::Connection;
use farsight_fabric::lane::{Lane, PoolLane};
use farsight_fabric_shm::sandbox::refuse_userfaultfd;
use farsight_fabric_shm::{ShmConnection, ShmQueue};
use farsight_fabric_tcp::TcpConnection;
use farsight_index_rolex::LeafPlace;
use farsight_layout::pool::LockWord;
use farsight_layout::{FORMAT_VERSION, OWNER_WORD};
use farsight_protocol::{
    ComputeNode, ControlRequest, Fenced, LockSeen, LostNodes, NodeHello, NodeStats, Reply, Request, TableId,
};
use rustix::process::Signal;
use serde::de::DeserializeOwned;
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

use crate::client::{read_word, write_word};
use crate::pool::{TABLE, VALUE_BYTES, Worker, connect};

/// Bytes of a table on a node.
const TABLE_BYTES: u64 = 8 << 20;
/// Written to a holder's file: it lets go of the lock.
const LET_GO: u64 = 1;
/// The lease of nodes whose fences a test waits for.
const LEASE_MS: u64 = 400;
/// Workers beside a stopped memory node.
const WORKERS: u64 = 2;

/// A compute node that holds the lock of the first leaf until it is told to let go, then writes like others.
/// It is a memory node besides if it is given a socket of its own.
pub(crate) fn hold() {
    if argument("IN_SANDBOX") {
        refuse_userfaultfd().expect("a filter of system calls");
    }
    let own: String = argument("OWN");
    let _node = (!own.is_empty()).then(|| {
        let builder = Server::builder().socket(&own).table_memory_bytes(TABLE_BYTES);
        builder.start().expect("a memory node")
    });
    if !own.is_empty() {
        say("serves");
    }
    let file = File::options().read(true).write(true).open(argument::<PathBuf>("FILE")).expect("its file");
    // A node's table is made once it serves.
    eventually("the table", || read_word(&file, 0) == LET_GO - 1 && read_word(&file, 1) == 1);
    let urls: Addresses = argument::<String>("URLS").parse().expect("addresses");
    if matches!(urls.urls()[0], ServerUrl::Tcp(_)) {
        let options = || farsight_fabric_tcp::ConnectOptions::new(FORMAT_VERSION);
        let connection = |url: &ServerUrl| {
            let ServerUrl::Tcp(endpoint) = url else { panic!("{url} is no address of TCP") };
            TcpConnection::connect(&endpoint.to_string(), options()).expect("a connection")
        };
        return hold_over(&file, urls.urls().iter().map(connection).collect());
    }
    let connection = |url: &ServerUrl| {
        let ServerUrl::Shm(path) = url else { panic!("{url} is no socket") };
        let options = farsight_fabric_shm::ConnectOptions::new(FORMAT_VERSION);
        ShmConnection::connect(path, options).expect("a connection")
    };
    hold_over(&file, urls.urls().iter().map(connection).collect());
}

fn hold_over<C: Connection>(file: &File, connections: Vec<C>) {
    let client = PoolClient::of_pool(connections, ClientOptions::default()).expect("a client");
    let mut links = client.links(TABLE).expect("the table");
    let table = links.cache.table().clone();
    let at = table.address(LeafPlace::new(0, 0).expect("a leaf"), OWNER_WORD);
    let (compute_node, before) = links.locks.draw(1);
    let lock = LockWord::of(compute_node, before + 1).0;
    let mut exchange = |from: u64, to: u64| {
        PoolLane::new(&mut links.queues).block_on(async |slot| {
            slot.post_compare_swap(0, 0, at, from, to);
            slot.completed().await;
            slot.take_word(0, 0)
        })
    };
    assert_eq!(exchange(0, lock).expect("a lane").expect("an atomic"), 0, "the first leaf was locked");
    say(&format!("{compute_node} {lock}"));
    eventually("the word to let go", || read_word(file, 0) == LET_GO);
    let found = exchange(lock, 0).and_then(|word| word);
    say(if found.is_ok_and(|found| found == lock) { "let go" } else { "fenced" });
    let table = client.open_table(TABLE).expect("the table");
    let mut session = table.session(Access::OneSided).expect("a session");
    let put = session.write_one(WriteOperation::Put, 1, &[1; VALUE_BYTES]).expect("a put");
    assert!(matches!(put, WriteOutcome::Inserted(_) | WriteOutcome::Replaced(_)), "{put:?}");
    say("goes on");
    eventually("the test's end", || false);
}

/// A memory node that trains the pool, until SIGTERM.
pub(crate) fn serve() {
    let mut signals = Signals::new([SIGTERM]).expect("signals");
    let builder = Server::builder().socket(argument::<PathBuf>("SOCKET")).table_memory_bytes(TABLE_BYTES);
    let lease = Duration::from_millis(argument("LEASE_MS"));
    let node = builder.lease(lease).start().expect("a memory node");
    let pool: Addresses = argument::<String>("URLS").parse().expect("addresses");
    let training = PoolTraining::start(pool, ConnectOptions::default()).expect("a thread");
    say("serves");
    signals.forever().next();
    drop(training);
    node.shutdown().expect("its threads end");
}

/// A role of these tests, and the file over which the test talks to it.
struct Holder {
    player: Player,
    file: File,
    compute_node: ComputeNode,
    lock: u64,
}

impl Holder {
    /// Starts one that is a memory node at `own`, or none, and says to whom when it serves.
    fn start(directory: &Directory, urls: &Addresses) -> Self {
        Self::start_with(directory, urls, "", false, || {})
    }

    /// One whose kernel refuses what keeps it from writing but its end.
    fn start_in_sandbox(directory: &Directory, urls: &Addresses) -> Self {
        Self::start_with(directory, urls, "", true, || {})
    }

    fn start_with(
        directory: &Directory,
        urls: &Addresses,
        own: &str,
        in_sandbox: bool,
        ready: impl FnOnce(),
    ) -> Self {
        let path = directory.file("holder");
        let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
        (0..2).for_each(|word| write_word(&file, word, 0));
        let arguments = [
            ("URLS", urls.to_string()),
            ("FILE", path.display().to_string()),
            ("OWN", own.to_owned()),
            ("IN_SANDBOX", in_sandbox.to_string()),
        ];
        let mut player = Player::start("lock holder", &arguments);
        if !own.is_empty() {
            assert_eq!(player.hear().as_deref(), Some("serves"));
        }
        ready();
        write_word(&file, 1, 1);
        let said = player.hear().expect("it holds the lock");
        let (compute_node, lock) = said.split_once(' ').expect("a number and a lock");
        let compute_node = ComputeNode(compute_node.parse().expect("a number"));
        Self { player, file, compute_node, lock: lock.parse().expect("a lock") }
    }

    fn stop(&self) {
        self.player.signal(Signal::STOP);
        let status = format!("/proc/{}/status", self.player.id());
        eventually("its stop", || {
            std::fs::read_to_string(&status).is_ok_and(|status| status.contains("T (stopped)"))
        });
    }

    /// Lets it run and let go of its lock, which nobody took from it.
    fn let_go(&mut self) {
        self.player.signal(Signal::CONT);
        self.go_on("let go");
    }

    /// Lets it run and hang up, as it was told to, before it lets go of a lock that is no longer its own.
    fn hang_up(&mut self, asker: &mut Asker) {
        self.player.signal(Signal::CONT);
        // Until the node has seen the end of its connection, its own thread might win the race to the lock.
        assert_eq!(asker.fence_for(PATIENCE, self.compute_node, None), Fenced::Done);
        self.go_on("fenced");
    }

    fn go_on(&mut self, expected: &str) {
        write_word(&self.file, 0, LET_GO);
        assert_eq!(self.player.hear().as_deref(), Some(expected));
        assert_eq!(self.player.hear().as_deref(), Some("goes on"));
    }

    fn seen(&self) -> LockSeen {
        LockSeen { table: TableId(0), block: 0, word: self.lock }
    }
}

/// A connection to one memory node, for requests made by hand.
struct Asker {
    queue: ShmQueue,
    _connection: ShmConnection,
}

impl Asker {
    fn new(url: &ServerUrl) -> Self {
        let ServerUrl::Shm(path) = url else { panic!("{url} is no socket") };
        let options = farsight_fabric_shm::ConnectOptions::new(FORMAT_VERSION);
        let connection = ShmConnection::connect(path, options).expect("a connection");
        let queue = connection.open_queue().expect("a queue");
        let mut asker = Self { queue, _connection: connection };
        // Only a compute node fences another.
        let _own: ComputeNode = asker.ask(&ControlRequest::Register { lost: LostNodes::default() });
        asker
    }

    fn ask<T: DeserializeOwned>(&mut self, request: &ControlRequest) -> T {
        let (mut frame, mut reply) = (Vec::new(), Vec::new());
        Request::control(&mut frame, request);
        let lane = Lane::new(&mut self.queue);
        lane.block_on(async |slot| slot.call(&frame, &mut reply).await).expect("a lane").expect("a reply");
        let reply = Reply::decode(&reply).expect("well-formed").expect("an answer");
        reply.control().expect("the answer to the request")
    }

    /// Asks for a fence for as long as `duration`; the last answer.
    fn fence_for(&mut self, duration: Duration, compute_node: ComputeNode, seen: Option<LockSeen>) -> Fenced {
        let coordinator = self.ask::<NodeHello>(&ControlRequest::Hello).epoch;
        let begun = Instant::now();
        loop {
            let answer = self.ask(&ControlRequest::Fence { coordinator, compute_node, seen });
            if answer == Fenced::Done || begun.elapsed() >= duration {
                return answer;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn fenced(&mut self) -> u64 {
        self.ask::<NodeStats>(&ControlRequest::Stats).fenced
    }
}

/// Memory nodes in processes of their own, each of which trains the pool.
struct Nodes {
    urls: Addresses,
    players: Vec<Player>,
    directory: Directory,
}

impl Nodes {
    fn start(count: usize) -> Self {
        let directory = Directory::new();
        let socket = |node: usize| directory.file(&format!("node-{node}"));
        let urls = Addresses::new((0..count).map(|node| ServerUrl::shm(socket(node))).collect::<Vec<_>>());
        let start = |node: usize| {
            let arguments = [
                ("SOCKET", socket(node).display().to_string()),
                ("URLS", urls.to_string()),
                ("LEASE_MS", LEASE_MS.to_string()),
            ];
            let log = directory.file(&format!("log-{node}"));
            let mut player = Player::start_logged("memory node", &arguments, &log);
            assert_eq!(player.hear().as_deref(), Some("serves"));
            player
        };
        let players = (0..count).map(start).collect();
        Self { urls, players, directory }
    }

    fn log(&self, node: usize) -> String {
        std::fs::read_to_string(self.directory.file(&format!("log-{node}"))).expect("its log")
    }
}

/// Makes the table, of ROLEX also where there is one node.
fn create(client: &Client) -> Table<u64> {
    let options = TableOptions { engine: Some(EngineKind::ROLEX), ..TableOptions::default() };
    client.create_table_with(TABLE, VALUE_BYTES, &options).expect("a table")
}

fn value(byte: u8) -> [u8; VALUE_BYTES] {
    [byte; VALUE_BYTES]
}

#[test]
fn a_compute_node_that_is_stopped_for_a_second_lives() {
    let directory = Directory::new();
    // As anybody starts it.
    let node = Server::builder().socket(directory.file("node")).start().expect("a memory node");
    let urls = Addresses::new(vec![node.url().clone()]);
    let client = connect(&urls.to_string());
    let table = create(&client);
    let mut session = table.session(Options::default()).expect("a session");
    let mut holder = Holder::start(&directory, &urls);
    holder.stop();
    let waiter = std::thread::spawn(move || session.put(7, &value(7)).map(|_| session));
    std::thread::sleep(Duration::from_secs(1));
    assert!(holder.player.is_running(), "it was killed");
    assert!(!waiter.is_finished(), "its lock was taken over");
    holder.let_go();
    let mut session = waiter.join().expect("no panic").expect("the put that waited");
    assert_eq!(session.get(7).expect("a GET").expect("the pair").value, value(7));
    assert_eq!(node.stats().fenced, 0);
    assert!(holder.player.is_running());
}

/// It is kept from writing at both nodes, and its process lives. When it runs again, the lock is no longer
/// its own, and it goes on as another compute node.
#[test]
fn a_lock_holder_that_is_stopped_for_longer_than_its_lease_loses_its_connections() {
    let nodes = Nodes::start(2);
    let client = connect(&nodes.urls.to_string());
    let table = create(&client);
    let mut session = table.session(Options::default()).expect("a session");
    let mut holder = Holder::start(&nodes.directory, &nodes.urls);
    holder.stop();
    let begun = Instant::now();
    session.put(7, &value(7)).expect("a put that waits for the lease");
    assert!(begun.elapsed() >= Duration::from_millis(LEASE_MS), "taken over after {:?}", begun.elapsed());
    assert!(holder.player.is_running(), "it was killed");
    holder.player.signal(Signal::CONT);
    holder.go_on("fenced");
    assert!(holder.player.is_running());
    assert!((0..2).all(|node| !nodes.log(node).contains("killed process")), "{}", nodes.log(0));
    for (key, byte) in [(7, 7), (1, 1)] {
        assert_eq!(session.get(key).expect("a GET").expect("the pair").value, value(byte));
    }
}

#[test]
fn a_lock_holder_in_a_sandbox_that_is_stopped_for_longer_than_its_lease_is_killed_and_named() {
    let nodes = Nodes::start(2);
    let client = connect(&nodes.urls.to_string());
    let table = create(&client);
    let mut session = table.session(Options::default()).expect("a session");
    let mut holder = Holder::start_in_sandbox(&nodes.directory, &nodes.urls);
    holder.stop();
    let begun = Instant::now();
    session.put(7, &value(7)).expect("a put that waits for the lease");
    assert!(begun.elapsed() >= Duration::from_millis(LEASE_MS), "taken over after {:?}", begun.elapsed());
    holder.player.await_end();
    let log = nodes.log(0);
    let killed = log.lines().find(|line| line.contains("killed process")).expect("a report");
    let whom =
        format!("killed process {} of user {}", holder.player.id(), rustix::process::getuid().as_raw());
    for words in [&whom[..], &holder.compute_node.to_string(), "leaf 0 of table \"t\"", "400ms"] {
        assert!(killed.contains(words), "{killed:?} does not name {words:?}");
    }
    // The other node saw it end, and killed nobody.
    assert!(!nodes.log(1).contains("killed process"), "{}", nodes.log(1));
    assert_eq!(session.get(7).expect("a GET").expect("the pair").value, value(7));
}

/// Two memory nodes of this process over TCP, with that lease, and a client of them.
fn over_tcp(lease: Duration) -> ([Server; 2], Addresses, Table<u64>) {
    let nodes = [(); 2].map(|()| {
        let builder = Server::builder().listen("tcp://127.0.0.1:0".parse().expect("an address"));
        builder.table_memory_bytes(TABLE_BYTES).lease(lease).start().expect("a memory node")
    });
    let urls = Addresses::new(nodes.iter().map(|node| node.url().clone()).collect::<Vec<_>>());
    let table = create(&connect(&urls.to_string()));
    (nodes, urls, table)
}

#[test]
fn a_lock_holder_over_tcp_that_is_stopped_for_less_than_its_lease_keeps_its_lock() {
    let directory = Directory::new();
    let (nodes, urls, table) = over_tcp(Duration::from_secs(20));
    let mut session = table.session(Options::default()).expect("a session");
    let mut holder = Holder::start(&directory, &urls);
    holder.stop();
    let waiter = std::thread::spawn(move || session.put(7, &value(7)).map(|_| session));
    std::thread::sleep(Duration::from_secs(1));
    assert!(!waiter.is_finished(), "its lock was taken over");
    holder.let_go();
    let mut session = waiter.join().expect("no panic").expect("the put that waited");
    assert_eq!(session.get(7).expect("a GET").expect("the pair").value, value(7));
    assert!(nodes.iter().all(|node| node.stats().fenced == 0));
}

/// It is fenced at both nodes, and its process lives. When it runs again, the lock is no longer its own, and
/// it goes on as another compute node.
#[test]
fn a_lock_holder_over_tcp_that_is_stopped_for_longer_than_its_lease_loses_its_connections() {
    let directory = Directory::new();
    let lease = Duration::from_millis(LEASE_MS);
    let (nodes, urls, table) = over_tcp(lease);
    let mut session = table.session(Options::default()).expect("a session");
    let mut holder = Holder::start(&directory, &urls);
    holder.stop();
    let begun = Instant::now();
    session.put(7, &value(7)).expect("a put that waits for the lease");
    assert!(begun.elapsed() >= lease, "taken over after {:?}", begun.elapsed());
    assert!(nodes.iter().all(|node| node.stats().fenced == 1), "it is fenced at every node");
    assert!(holder.player.is_running(), "it was killed");
    holder.player.signal(Signal::CONT);
    holder.go_on("fenced");
    assert!(holder.player.is_running());
    for (key, byte) in [(7, 7), (1, 1)] {
        assert_eq!(session.get(key).expect("a GET").expect("the pair").value, value(byte));
    }
}

/// A coordinator, and a lock holder that is a memory node besides.
fn beside_a_memory_node(in_sandbox: bool) -> (Directory, Server, Addresses, Holder) {
    let directory = Directory::new();
    let builder = Server::builder().socket(directory.file("coordinator")).table_memory_bytes(TABLE_BYTES);
    let coordinator = builder.lease(Duration::from_millis(LEASE_MS)).start().expect("a memory node");
    let own = directory.file("other");
    let urls = Addresses::new(vec![coordinator.url().clone(), ServerUrl::shm(own.clone())]);
    let holder = Holder::start_with(&directory, &urls, &own.display().to_string(), in_sandbox, || {
        create(&connect(&urls.to_string()));
    });
    (directory, coordinator, urls, holder)
}

#[test]
fn a_process_that_serves_memory_is_kept_from_writing_and_lives() {
    let (_directory, coordinator, urls, mut holder) = beside_a_memory_node(false);
    let mut asker = Asker::new(coordinator.url());
    holder.stop();
    // Nothing is known of its lock: a fence costs it its connections.
    assert_eq!(asker.fence_for(PATIENCE, holder.compute_node, None), Fenced::Done);
    holder.player.signal(Signal::CONT);
    holder.go_on("fenced");
    let table = connect(&urls.to_string()).table::<u64>(TABLE).expect("the table");
    let mut session = table.session(Options::default()).expect("a session");
    assert_eq!(session.get(1).expect("a GET").expect("the pair").value, value(1));
    assert!(holder.player.is_running());
}

#[test]
fn a_process_that_serves_memory_is_never_killed() {
    let (_directory, coordinator, urls, mut holder) = beside_a_memory_node(true);
    let client = connect(&urls.to_string());
    let table = client.table::<u64>(TABLE).expect("the table");
    let mut session = table.session(Options::default()).expect("a session");
    let mut asker = Asker::new(coordinator.url());
    holder.stop();
    // Long after lease and warning.
    let answer = asker.fence_for(Duration::from_secs(4), holder.compute_node, Some(holder.seen()));
    let Fenced::Wait { why, .. } = answer else { panic!("it is fenced") };
    let pid = format!("process {}", holder.player.id());
    assert!(why.contains(&pid) && why.contains("serves memory itself"), "{why}");
    assert!(holder.player.is_running(), "a memory node was killed");
    // A session that waits for the lock is told which process holds it, and why that lives on.
    let refused = farsight::with_causes(&session.put(7, &value(7)).expect_err("its leaf is locked"));
    assert!(refused.contains(&holder.compute_node.to_string()) && refused.contains(&pid), "{refused}");
    assert!(session.get(7).expect("a GET").is_none(), "reads go on");
    assert!(holder.player.is_running(), "a memory node was killed");
    // It hangs up as soon as it runs; the lock is taken over, and its memory is all there.
    holder.hang_up(&mut asker);
    session.put(7, &value(7)).expect("a put");
    assert_eq!(session.get(7).expect("a GET").expect("the pair").value, value(7));
    assert!(holder.player.is_running());
}

#[test]
fn a_fence_without_a_lapsed_lock_ends_no_process() {
    let directory = Directory::new();
    let builder = Server::builder().socket(directory.file("node")).table_memory_bytes(TABLE_BYTES);
    let node = builder.lease(Duration::from_millis(LEASE_MS)).start().expect("a memory node");
    let urls = Addresses::new(vec![node.url().clone()]);
    let client = connect(&urls.to_string());
    create(&client);
    let mut holder = Holder::start_in_sandbox(&directory, &urls);
    let mut asker = Asker::new(node.url());
    holder.stop();
    // Of a lock that is not there, and of one that never was; then of none.
    for sequence in [1 << 20, 1 << 21] {
        let word = LockWord::of(holder.compute_node.0, sequence).0;
        let seen = LockSeen { word, ..holder.seen() };
        let answer = asker.fence_for(Duration::from_millis(2 * LEASE_MS), holder.compute_node, Some(seen));
        assert!(matches!(&answer, Fenced::Wait { why, .. } if why.contains("not held")), "{answer:?}");
        assert_eq!(asker.fenced(), 0);
    }
    let answer = asker.fence_for(Duration::from_secs(3), holder.compute_node, None);
    assert!(matches!(&answer, Fenced::Wait { why, .. } if why.contains("not killed here")), "{answer:?}");
    assert!(holder.player.is_running(), "it was killed");
    // It is told to hang up, and goes on as another compute node.
    holder.hang_up(&mut asker);
    assert!(holder.player.is_running());
    assert_eq!(asker.fenced(), 1);
}

#[test]
fn memory_nodes_that_train_and_are_stopped_lose_nothing() {
    let seed = Seed::new("stopped memory nodes");
    let mut random = seed.random(0);
    let mut nodes = Nodes::start(2);
    let urls = nodes.urls.to_string();
    let client = connect(&urls);
    let table = create(&client);
    let mut session = table.session(Options::default()).expect("a session");
    let mut start = |number: u64| {
        let path = nodes.directory.file(&format!("worker-{number}"));
        Worker::start(&path, &urls, number, random.next_u64())
    };
    let mut workers: Vec<Worker> = (0..WORKERS).map(&mut start).collect();
    workers.iter_mut().for_each(Worker::await_progress);
    for node in [0, 1, 0, 1] {
        nodes.players[node].signal(Signal::STOP);
        // Several leases, and the time that a process has to hang up.
        std::thread::sleep(Duration::from_secs(2));
        nodes.players[node].signal(Signal::CONT);
        workers.iter_mut().for_each(Worker::await_progress);
        assert!(nodes.players.iter_mut().all(Player::is_running), "a memory node died");
    }
    for mut worker in workers {
        assert!(worker.player.is_running(), "a worker failed");
        worker.player.signal(Signal::KILL);
        worker.player.await_end();
        worker.judge(&mut session);
    }
    assert!(nodes.players.iter_mut().all(Player::is_running), "a memory node died");
    for node in 0..2 {
        assert!(!nodes.log(node).contains("killed process"), "{}", nodes.log(node));
    }
}

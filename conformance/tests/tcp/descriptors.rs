//! A server that has few descriptors: what ends gives them back, no client takes all of them, and a client
//! that finds none left is told so.

use std::net::SocketAddr;
use std::time::Instant;

use farsight_conformance::engine::harness::eventually;
use farsight_conformance::engine::processes::{Player, say};
use farsight_conformance::fabric::FabricUnderTest as _;
use farsight_conformance::fabric::harness::{FORMAT, PATIENCE, Running};
use farsight_conformance::fabric::tcp::Tcp;
use farsight_fabric::{Connection as _, FabricError, Host as _, RegionRights};
use farsight_fabric_tcp::{ConnectOptions, TcpConnection};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::raw::{Raw, RawClient, hello};

/// The role of a server with [`DESCRIPTORS`].
pub(crate) const SERVER: &str = "few descriptors";
/// What the server may have open.
const DESCRIPTORS: u64 = 128;
/// The hello of a client says so.
const CLIENT: [u8; 4] = 1_u32.to_le_bytes();

/// Plays the server.
pub(crate) fn serve() {
    let few = Rlimit { current: Some(DESCRIPTORS), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, few).expect("a lower limit");
    let subject = Tcp::default();
    let server = Running::start(subject.listen(FORMAT), 1);
    let _region = server.host().create_region(4096, RegionRights::ReadOnly).expect("a region");
    say(&server.host().local_address().to_string());
    loop {
        std::thread::park();
    }
}

/// That server in a process of its own.
struct Server {
    process: Player,
    address: String,
}

impl Server {
    fn start() -> Self {
        let mut process = Player::start(SERVER, &[]);
        let address = process.hear().expect("the server's address");
        Self { process, address }
    }

    fn connect(&self) -> Result<TcpConnection, FabricError> {
        TcpConnection::connect(&self.address, ConnectOptions::new(FORMAT))
    }

    fn raw_address(&self) -> SocketAddr {
        self.address.parse().expect("an address")
    }

    /// Descriptors that it has open.
    fn descriptors(&self) -> usize {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.process.id()));
        open.expect("the server runs").count()
    }
}

#[test]
fn ended_sessions_leave_no_descriptors() {
    let server = Server::start();
    let idle = server.connect().expect("a connection");
    let before = server.descriptors();
    for round in 0..4 {
        // More than there are descriptors, all told; not more at a time than one client may have.
        let sessions: Vec<_> = (0..25).map(|_| idle.open_queue()).collect();
        for session in &sessions {
            assert!(session.is_ok(), "round {round}: {:?}", session.as_ref().err());
        }
        drop(sessions);
        // The client does nothing more, and nobody else does.
        eventually("the descriptors of ended sessions", || server.descriptors() <= before);
    }
    let other = server.connect().expect("another client");
    drop(other.open_queue().expect("its session"));
}

#[test]
fn one_client_takes_a_quarter_of_the_descriptors_at_most() {
    let server = Server::start();
    let greedy = server.connect().expect("a connection");
    let mut queues = Vec::new();
    let error = loop {
        match greedy.open_queue() {
            Ok(queue) => queues.push(queue),
            Err(error) => break error,
        }
        assert!(queues.len() < DESCRIPTORS as usize, "no limit was met");
    };
    assert!(error.to_string().contains("one client's share"), "{error}");
    assert_eq!(queues.len(), DESCRIPTORS as usize / 4 - 1, "its own connection is the one that is missing");
    let other = server.connect().expect("another client");
    drop(other.open_queue().expect("its session"));
    queues.truncate(1);
    eventually("room for one session more", || greedy.open_queue().is_ok());
}

#[test]
fn who_finds_no_descriptor_left_is_told_so() {
    let server = Server::start();
    let begun = Instant::now();
    let mut clients = Vec::new();
    let text = loop {
        let mut raw = Raw::connect(server.raw_address());
        raw.say(&hello(&CLIENT));
        let answer = raw.hear().expect("an answer to a hello");
        if answer[..4] != 129_u32.to_le_bytes() {
            raw.assert_ends();
            break String::from_utf8_lossy(&answer[4..]).into_owned();
        }
        clients.push(raw);
        assert!(clients.len() < DESCRIPTORS as usize, "no limit was met");
    };
    assert!(text.contains("no descriptors left") && text.contains("ulimit -n"), "{text}");
    // Nobody waits: the next hears the same, as a farsight client by its own words.
    for _ in 0..20 {
        let refused = server.connect();
        let is_named = matches!(&refused, Err(FabricError::Refused { reason, .. })
            if reason.contains("no descriptors left"));
        assert!(is_named, "{refused:?}");
    }
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    drop(clients.pop());
    eventually("a place for the next", || server.connect().is_ok());
}

#[test]
fn silent_connections_keep_nobody_out_where_descriptors_are_few() {
    let server = Server::start();
    let mut silent: Vec<Raw> = Vec::new();
    for _ in 0..5 {
        // They stay connected: nobody waits for the server to give them up. No more at a time than wait for
        // being accepted.
        silent.extend((0..DESCRIPTORS / 2).map(|_| Raw::connect(server.raw_address())));
        let client = server.connect().expect("a client beside them");
        drop(client.open_queue().expect("its session"));
        drop(RawClient::connect(server.raw_address()).open_queue());
    }
    let text = silent[0].hear_text(131);
    assert!(text.contains("too many") || text.contains("no hello"), "{text}");
}

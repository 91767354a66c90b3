//! The way to a server on another host: slow, lossy, deaf, dumb, and cut. `cargo xtask softroce --two-hosts`
//! sets both hosts up and names this one's network card in `FARSIGHT_VERBS_CABLE`; `tc` disturbs what leaves
//! it and what arrives.
//!
//! Queue pairs give up after seven times 268 ms without an acknowledgement, the control connection after 5 s.
//! Cuts here are in between, so that a queue pair breaks while its server lives and is still connected.

use std::process::Command;
use std::time::{Duration, Instant};

use farsight_client::{Access, Client, ClientOptions, Session, WriteError};
use farsight_conformance::engine::harness::{PATIENCE, eventually};
use farsight_conformance::fabric::FabricUnderTest as _;
use farsight_conformance::fabric::verbs::Verbs;
use farsight_fabric_verbs::VerbsConnection;
use farsight_index::Answers;
use farsight_layout::FORMAT_VERSION;
use farsight_protocol::{KeyKind, TableDefinition, WriteOperation, WriteOutcome};

use crate::two_hosts::server;

/// Keys that are written while all is well.
const WELL: u64 = 100;
/// How long a call waits for a server that is gone: short, so that writes are seen that were not sent.
const RECONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Longer than a queue pair stands it, shorter than the control connection does.
const CUT: Duration = Duration::from_millis(3500);

/// What is done to packets that go to the server, and to those that come from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Slow,
    Lossy,
    /// None arrives at the server.
    Dumb,
    /// None arrives here.
    Deaf,
    Cut,
}

/// This host's card; whole again when dropped.
struct Cable {
    interface: String,
}

impl Cable {
    /// The one to the server; says so if there is none.
    fn find() -> Option<Self> {
        let cable = std::env::var("FARSIGHT_VERBS_CABLE").ok();
        if cable.is_none() {
            println!("NOT RUN: FARSIGHT_VERBS_CABLE names no card; cargo xtask softroce --two-hosts does");
            assert!(std::env::var_os("FARSIGHT_CI").is_none(), "FARSIGHT_CI forbids to skip: no cable");
        }
        cable.map(|interface| Self { interface })
    }

    fn tc(&self, arguments: &str) -> bool {
        let arguments = arguments.replace("CARD", &self.interface);
        let output = Command::new("tc").args(arguments.split(' ')).output().expect("iproute2");
        output.status.success()
    }

    fn disturb(&self, way: Way) {
        self.heal();
        let netem =
            |what: &str| assert!(self.tc(&format!("qdisc replace dev CARD root netem {what}")), "{what}");
        match way {
            Way::Slow => netem("delay 4ms rate 20mbit limit 10000"),
            Way::Lossy => netem("loss 3%"),
            Way::Dumb | Way::Cut => netem("loss 100%"),
            Way::Deaf => {}
        }
        if way == Way::Deaf || way == Way::Cut {
            assert!(self.tc("qdisc add dev CARD ingress"), "a place for what arrives");
            assert!(self.tc("filter add dev CARD parent ffff: matchall action drop"), "nothing arrives");
        }
    }

    fn heal(&self) {
        // There may be nothing to take away.
        let _ = self.tc("qdisc del dev CARD root");
        let _ = self.tc("qdisc del dev CARD ingress");
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.heal();
    }
}

/// A client with a table of its own, and some pairs in it.
struct Desk {
    client: Client,
    session: Session,
}

impl Desk {
    fn new(table: &str) -> Self {
        let subject = Verbs::at(&server().expect("an environment that names the card names the server"));
        let connection = subject.connect(FORMAT_VERSION).expect("a connection");
        let options = ClientOptions { reconnect_timeout: RECONNECT_TIMEOUT };
        let client = Client::new(connection, options).expect("a client");
        let name = format!("{table}{}", std::process::id());
        let definition = TableDefinition::new(name, KeyKind::U64, 8);
        let table = client.create_table(definition).expect("a table");
        let session = table.session(Access::OneSided).expect("a session");
        let mut desk = Self { client, session };
        (0..WELL).for_each(|key| {
            desk.put(key).expect("all is well");
        });
        desk
    }

    fn put(&mut self, key: u64) -> Result<WriteOutcome, WriteError> {
        self.session.write_one(WriteOperation::Put, key, &key.to_le_bytes())
    }

    /// Whether the key is there.
    fn get(&mut self, key: u64) -> bool {
        let mut value = [0; 8];
        let begun = Instant::now();
        loop {
            match self.session.get(key, &mut value) {
                Ok(None) => return false,
                Ok(Some(_)) => {
                    assert_eq!(value, key.to_le_bytes());
                    return true;
                }
                // As a program would whose server may come back.
                Err(error) => assert!(begun.elapsed() < PATIENCE, "the server is not found again: {error}"),
            }
        }
    }

    /// All that was written well, in one batch.
    fn check(&mut self) {
        let keys: Vec<u64> = (0..WELL).collect();
        let mut answers = Answers::default();
        self.session.multi_get(&keys, &mut answers).expect("answers");
        for (key, answer) in keys.iter().zip(answers.iter()) {
            assert_eq!(answer.map(|(value, _)| value), Some(&key.to_le_bytes()[..]), "key {key}");
        }
    }

    fn connection(&self) -> u64 {
        self.client.with_connections(VerbsConnection::client)[0].0
    }
}

#[test]
fn slow_and_lossy_ways_cost_time_and_nothing_else() {
    let Some(cable) = Cable::find() else { return };
    let mut desk = Desk::new("slow");
    let before = desk.connection();
    for way in [Way::Slow, Way::Lossy] {
        cable.disturb(way);
        for key in WELL..WELL + 20 {
            desk.put(key).expect("a put");
            assert!(desk.get(key));
        }
        desk.check();
    }
    assert_eq!(desk.connection(), before, "slowness was taken for death");
}

/// A read that meets a cut waits, finds its queue pair broken, and goes on by another once it can.
#[test]
fn reads_outlast_a_cut() {
    let Some(cable) = Cable::find() else { return };
    let mut desk = Desk::new("reads");
    let before = desk.connection();
    cable.disturb(Way::Cut);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(CUT);
            cable.heal();
        });
        assert!(desk.get(0), "what was written well");
    });
    desk.check();
    assert_ne!(desk.connection(), before, "no queue pair stands a cut of {CUT:?}");
}

/// Of a write without an answer nobody knows, as long as there is no other connection: if only answers were
/// lost it was executed, if requests were it was not. The next one is known not to have been sent.
#[test]
fn writes_into_a_cut_are_in_doubt_or_not_sent() {
    let Some(cable) = Cable::find() else { return };
    let mut desk = Desk::new("writes");
    for (way, first) in [(Way::Dumb, 1000), (Way::Deaf, 2000), (Way::Cut, 3000)] {
        let before = desk.connection();
        // The first write over a connection asks the server something before it goes.
        desk.put(first + 2).expect("a write");
        cable.disturb(way);
        match desk.put(first) {
            Err(WriteError::Indeterminate { entries: 1, .. }) => {}
            other => panic!("{way:?}: a write into nowhere came to {other:?}"),
        }
        match desk.put(first + 1) {
            Err(WriteError::Engine { .. } | WriteError::Reopen { .. }) => {}
            other => panic!("{way:?}: a write without a connection came to {other:?}"),
        }
        cable.heal();
        assert_eq!(desk.get(first), way == Way::Deaf, "{way:?}: answers were lost, or requests");
        assert!(!desk.get(first + 1), "{way:?}: a write that failed was executed");
        desk.check();
        assert_ne!(desk.connection(), before, "{way:?}");
    }
    eventually("one client, the others let go", || desk.client.stats().expect("an answer").clients == 1);
}

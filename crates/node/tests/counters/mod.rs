//! Sessions that count up, and repeat what was under way when their node crashed: each addition acts once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use farsight_base::LeafNumber;
use farsight_base::clock::MonotonicNs;
use farsight_base::prng::SplitMix64;
use farsight_durability::LogOptions;
use farsight_durability::disk::{Fault, SimulatedDisk};
use farsight_node::{DataOptions, NodeOptions, NodeState, Sequencer, Snapshots, Worker};
use farsight_protocol::{
    Ack, AuthorId, CallId, ControlRequest, ErrorCode, INTEGER_BYTES, PairsReader, Reply, Request,
    ServerError, TableId, TableInfo, WriteEntries, WriteEntry, WriteOperation, WriteOutcome,
};

use crate::common::local_host::{LocalClient, LocalHost};
use crate::common::talk::{create_at, definition};

const SESSIONS: usize = 3;
const COUNTERS: u64 = 4;
const STEPS: usize = 30;
/// Lives of the node in one run, the first of which crashes.
const LIVES: usize = 3;
/// Calls that a session has under way at most.
const UNDER_WAY_MAX: usize = 5;
const BUDGET: usize = 64;

/// What of a node's world goes down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Crash {
    /// What was not synced may be lost.
    OfTheMachine,
    /// What was written stays.
    OfTheProcess,
}

/// A node of one life.
pub(crate) struct RunningNode {
    pub(crate) state: Arc<NodeState>,
    worker: Worker,
    sequencer: Sequencer,
    snapshots: Snapshots,
    host: Arc<LocalHost>,
}

/// A call that is sent until it is answered.
#[derive(Clone)]
pub(crate) struct UnderWay {
    pub(crate) sequence: u64,
    key: u64,
    request: Vec<u8>,
}

/// A session: who it is, and what it awaits.
#[derive(Default)]
pub(crate) struct Session {
    pub(crate) author: Option<AuthorId>,
    pub(crate) connection: u32,
    numbered: u64,
    pub(crate) under_way: Vec<UnderWay>,
    /// A call of this author was answered: the node's disk knows it.
    is_known: bool,
}

pub(crate) fn options(disk: &SimulatedDisk, ack: Ack) -> NodeOptions {
    let log = LogOptions { segment_bytes: 4 << 10 };
    let data = DataOptions { ack, log, ..DataOptions::new(Arc::new(disk.clone())) };
    NodeOptions { table_memory_bytes: 1 << 20, data: Some(data), ..NodeOptions::default() }
}

/// A request of one entry.
pub(crate) fn write(table: TableId, operation: WriteOperation, key: u64, value: u64) -> Vec<u8> {
    let mut request = Vec::new();
    Request::begin_write(&mut request, table, operation, 1, INTEGER_BYTES);
    let value = value.to_le_bytes();
    let value = if operation.has_value() || operation == WriteOperation::FetchAdd { &value[..] } else { &[] };
    WriteEntries::push(&mut request, WriteEntry { key, hint: LeafNumber::NONE, value });
    request
}

impl RunningNode {
    pub(crate) fn try_start(disk: &SimulatedDisk, ack: Ack) -> Option<Self> {
        let host = LocalHost::new();
        let state = NodeState::new(vec![host.clone()], &options(disk, ack), MonotonicNs(0)).ok()?;
        let sequencer = state.recover().ok()?.expect("there is a directory");
        let worker = Worker::open(&state, 0, "the worker").expect("a worker");
        let snapshots = state.snapshots().expect("there is a directory");
        Some(Self { state, worker, sequencer, snapshots, host })
    }

    pub(crate) fn start(disk: &SimulatedDisk, ack: Ack) -> Self {
        Self::try_start(disk, ack).expect("a disk without faults")
    }

    pub(crate) fn connect(&self) -> LocalClient {
        self.host.connect()
    }

    /// The worker hands over what was sent; the sequencer leaves some of it under way, or ends all.
    pub(crate) fn steps(&mut self, is_to_end: bool) {
        self.worker.step(MonotonicNs(1), BUDGET);
        if is_to_end {
            self.sequencer.step();
        } else {
            self.sequencer.advance();
        }
        self.worker.step(MonotonicNs(2), BUDGET);
    }

    pub(crate) fn call(&mut self, client: &LocalClient, request: &[u8]) -> Vec<u8> {
        client.send(request);
        self.steps(true);
        client.receive()
    }

    pub(crate) fn control<T: serde::de::DeserializeOwned>(
        &mut self,
        client: &LocalClient,
        request: &ControlRequest,
    ) -> Result<T, ServerError> {
        let mut frame = Vec::new();
        Request::control(&mut frame, request);
        let reply = self.call(client, &frame);
        Ok(Reply::decode(&reply).expect("a reply")?.control().expect("an answer of the right type"))
    }

    pub(crate) fn create(&mut self, client: &LocalClient) -> Result<TableInfo, ServerError> {
        let create = create_at(self.state.epoch().0, definition("counters", INTEGER_BYTES as u16));
        self.control(client, &create)
    }

    /// A round of snapshots. On a disk that fails it is not made.
    pub(crate) fn round(&mut self, client: &LocalClient) {
        if self.control::<u64>(client, &ControlRequest::BeginSnapshots).is_err() {
            return;
        }
        let Self { sequencer, snapshots, .. } = self;
        thread::scope(|scope| {
            // The sequencer takes its steps here: bugs are injected for this thread.
            let round = scope.spawn(|| snapshots.step(&|| false));
            while !round.is_finished() {
                if !sequencer.step() {
                    thread::sleep(Duration::from_micros(50));
                }
            }
            // On a disk that fails it is not made.
            let _ = round.join().expect("no panic");
        });
    }
}

impl Session {
    /// Becomes an author, unless it is one.
    pub(crate) fn begin(&mut self, life: &mut RunningNode, client: &LocalClient) -> Result<(), ServerError> {
        if self.author.is_none() {
            let author = life.control(client, &ControlRequest::BeginAuthor)?;
            *self = Self { author: Some(author), ..Self::default() };
        }
        Ok(())
    }

    /// Sends a call for the first time.
    pub(crate) fn send(&mut self, client: &LocalClient, key: u64, request: Vec<u8>) {
        self.numbered += 1;
        let call = UnderWay { sequence: self.numbered, key, request };
        self.under_way.push(call.clone());
        client.send(&self.enclosed(&call, self.under_way[0].sequence));
    }

    fn enclosed(&self, call: &UnderWay, first_unanswered: u64) -> Vec<u8> {
        let mut request = call.request.clone();
        let unanswered = (call.sequence + 1 - first_unanswered) as u16;
        let (author, connection) = (self.author.expect("it has begun"), self.connection);
        CallId { author, connection, sequence: call.sequence, unanswered }.enclose(&mut request);
        request
    }

    /// Sends the oldest call under way again, alone. Returns its reply.
    pub(crate) fn repeat_oldest(&mut self, life: &mut RunningNode, client: &LocalClient) -> Vec<u8> {
        let call = self.under_way.remove(0);
        life.call(client, &self.enclosed(&call, call.sequence))
    }
}

/// Additions by one that were answered: of each counter, what it was before each of them.
#[derive(Default)]
struct Additions(BTreeMap<u64, BTreeSet<u64>>);

impl Additions {
    fn note(&mut self, key: u64, reply: &[u8], what: &str) -> Result<(), ServerError> {
        let reply = Reply::decode(reply).expect("a reply")?;
        let (sent, old) = reply.exchanged(1, INTEGER_BYTES).expect("one").next().expect("one").expect("one");
        let before = u64::from_le_bytes(old.try_into().expect("an integer"));
        let is_first = before == 0;
        match sent.outcome {
            WriteOutcome::Inserted(_) => assert!(is_first, "{what}: counter {key} began with {before}"),
            WriteOutcome::Replaced(_) => {
                assert!(!is_first, "{what}: counter {key} was there without additions");
            }
            other => panic!("{what}: {other:?}"),
        }
        let is_new = self.0.entry(key).or_default().insert(before);
        assert!(is_new, "{what}: two additions have met {before} in counter {key}");
        Ok(())
    }

    fn check(&self, life: &mut RunningNode, client: &LocalClient, table: TableId, what: &str) {
        for key in 0..COUNTERS {
            let mut get = Vec::new();
            Request::get(&mut get, table, &[key]);
            let reply = life.call(client, &get);
            let reply = Reply::decode(&reply).expect("a reply").expect("an answer");
            let words = reply.words().expect("words");
            let (version, value) = PairsReader::new(words, INTEGER_BYTES).value().expect("a value");
            let found = if version == 0 { 0 } else { u64::from_le_bytes(value.try_into().expect("8 B")) };
            let answered = self.0.get(&key).map_or(0, BTreeSet::len) as u64;
            assert_eq!(found, answered, "{what}: counter {key} has other additions than were answered");
        }
    }
}

/// A run: sessions, their node in one life after the other, and what they were told.
struct Run {
    random: SplitMix64,
    ack: Ack,
    crash: Crash,
    sessions: Vec<Session>,
    additions: Additions,
    what: String,
}

/// Runs programs whose node crashes at each operation of the disk in turn, and goes on.
pub(crate) fn crash_everywhere(programs: u64, ack: Ack, crash: Crash) {
    let seed = SplitMix64::fresh().next_u64();
    for number in 0..programs {
        let run = |disk: &SimulatedDisk, at: u64| {
            let sessions = (0..SESSIONS).map(|_| Session::default()).collect();
            let what = format!("program {number}, {crash:?} at operation {at}");
            let (random, additions) = (SplitMix64::new(seed ^ number << 32), Additions::default());
            Run { random, ack, crash, sessions, additions, what }.lives(disk, at);
        };
        let disk = SimulatedDisk::default();
        run(&disk, u64::MAX);
        for at in 0..disk.operations() {
            run(&SimulatedDisk::new(&[Fault::CrashAt(at)]), at);
        }
    }
}

impl Run {
    fn lives(&mut self, disk: &SimulatedDisk, at: u64) {
        let mut disk = disk.clone();
        for number in 0..LIVES {
            self.life(&disk);
            disk = match self.crash {
                Crash::OfTheMachine => disk.crash(at ^ number as u64),
                Crash::OfTheProcess => {
                    disk.set_faults(&[]);
                    disk
                }
            };
        }
        let mut life = RunningNode::start(&disk, self.ack);
        let client = life.connect();
        let Ok(table) = life.create(&client) else { panic!("{}: no table", self.what) };
        self.repeat(&mut life, &client);
        self.additions.check(&mut life, &client, table.id, &self.what);
    }

    /// A life that ends somewhere.
    fn life(&mut self, disk: &SimulatedDisk) {
        let Some(mut life) = RunningNode::try_start(disk, self.ack) else { return };
        let client = life.connect();
        let Ok(table) = life.create(&client) else { return };
        if life.state.failure().is_none() {
            self.repeat(&mut life, &client);
        }
        let clients: Vec<LocalClient> = self.sessions.iter().map(|_| life.connect()).collect();
        for _ in 0..STEPS {
            if self.random.below(12) == 0 {
                life.round(&client);
            }
            let number = self.random.below(SESSIONS as u64) as usize;
            let session = &mut self.sessions[number];
            if session.begin(&mut life, &clients[number]).is_err() {
                return;
            }
            for _ in 0..=self.random.below(3) {
                if session.under_way.len() < UNDER_WAY_MAX {
                    let key = self.random.below(COUNTERS);
                    session.send(&clients[number], key, write(table.id, WriteOperation::FetchAdd, key, 1));
                }
            }
            life.steps(self.random.below(3) == 0);
            for (session, client) in self.sessions.iter_mut().zip(&clients) {
                // What was answered when the connection breaks was answered in vain.
                if self.random.below(3) > 0 && !receive(session, client, &mut self.additions, &self.what) {
                    return;
                }
            }
        }
    }

    /// Each session repeats what it awaits, over its next connection.
    fn repeat(&mut self, life: &mut RunningNode, client: &LocalClient) {
        let Self { sessions, additions, what, crash, .. } = self;
        for session in sessions {
            session.connection += 1;
            while let Some(key) = session.under_way.first().map(|call| call.key) {
                let sequence = session.under_way[0].sequence;
                let before = session.under_way.clone();
                let reply = session.repeat_oldest(life, client);
                match additions.note(key, &reply, what) {
                    Ok(()) => session.is_known = true,
                    // Its author was in no sync before. So neither was any of its calls.
                    Err(error) if error.code == ErrorCode::Forgotten => {
                        let may_be = *crash == Crash::OfTheMachine && !session.is_known;
                        assert!(may_be, "{what}: call {sequence} of a session is forgotten");
                        *session = Session::default();
                    }
                    // This life has ended, too.
                    Err(_) if life.state.failure().is_some() => {
                        session.under_way = before;
                        return;
                    }
                    Err(error) => panic!("{what}: call {sequence}: {error}"),
                }
            }
        }
    }
}

/// Takes the replies that have come. False if the node answers no more.
fn receive(session: &mut Session, client: &LocalClient, additions: &mut Additions, what: &str) -> bool {
    while let Some(reply) = client.try_receive() {
        let Some(call) = session.under_way.first() else { panic!("{what}: a reply to nothing") };
        if additions.note(call.key, &reply, what).is_err() {
            return false;
        }
        session.under_way.remove(0);
        session.is_known = true;
    }
    true
}

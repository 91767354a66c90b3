//! GETs while the server's process sleeps, and while it is stopped.

use std::sync::Arc;

use farsight::{Access, WriteOperation};
use farsight_conformance::engine::direct::{self, DirectStore, SessionView};
use farsight_conformance::engine::harness::eventually;
use farsight_conformance::engine::processes::{self, Player};
use farsight_conformance::engine::{SessionUnderTest, Stored};
use farsight_conformance::fabric::verbs::{Verbs, is_asked_for};
use farsight_protocol::{KeyKind, TableDefinition};
use rustix::process::Signal;

pub(crate) const SERVER: &str = "server";
const TABLE_BYTES: u64 = 16 << 20;
const KEYS: u64 = 1000;
/// Batches of GETs while the server is watched.
const BATCHES: usize = 20;

/// The server: says where it is, and serves until it is killed.
pub(crate) fn serve() {
    let subject = Arc::new(Verbs::new());
    let _store = DirectStore::start(Arc::clone(&subject), TABLE_BYTES);
    processes::say(subject.address());
    loop {
        std::thread::park();
    }
}

/// What a process has taken of processors, as the kernel counts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Taken {
    /// Times that one of its threads was put on a processor.
    turns: u64,
    time_ns: u64,
}

impl Taken {
    fn of(process: u32) -> Self {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("its threads");
        let mut taken = Self { turns: 0, time_ns: 0 };
        for task in tasks {
            let path = task.expect("a thread").path().join("schedstat");
            let text = std::fs::read_to_string(path).expect("the scheduler's count");
            let numbers: Vec<u64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
            let [time_ns, _waited_ns, turns] = numbers[..] else { panic!("{text:?} is no schedstat") };
            taken.turns += turns;
            taken.time_ns += time_ns;
        }
        taken
    }
}

/// Every second key is there.
fn expected(keys: &[u64], answers: &[Option<Stored>]) {
    for (key, answer) in keys.iter().zip(answers) {
        let value = answer.as_ref().map(|(value, _)| value.clone());
        assert_eq!(value, key.is_multiple_of(2).then(|| key.to_le_bytes().to_vec()), "key {key}");
    }
}

/// No thread of the server is put on a processor during GETs, and GETs go on when none can be: its process is
/// stopped.
#[test]
fn gets_take_no_processor_of_the_servers() {
    if !is_asked_for() {
        return;
    }
    let mut server = Player::start(SERVER, &[]);
    let subject = Verbs::at(&server.hear().expect("where it is"));
    let client = direct::connect(&subject);
    let definition = TableDefinition::new("t", KeyKind::U64, 8);
    let table = client.create_table(definition).expect("a table");
    let mut session = SessionView::<u64>::new(table.session(Access::OneSided).expect("a session"));
    let pairs: Vec<(u64, Vec<u8>)> =
        (0..KEYS).step_by(2).map(|key| (key, key.to_le_bytes().to_vec())).collect();
    session.write(WriteOperation::Insert, &pairs);
    eventually("training", || client.pending_training().expect("an answer") == 0);
    let keys: Vec<u64> = (0..KEYS).collect();
    // Fills the cache.
    expected(&keys, &session.multi_get(&keys));
    // Whatever the last call left to do is done once nothing runs for a while.
    eventually("the server's rest", || {
        let before = Taken::of(server.id());
        std::thread::sleep(std::time::Duration::from_millis(300));
        Taken::of(server.id()) == before
    });
    let before = Taken::of(server.id());
    for _ in 0..BATCHES {
        expected(&keys, &session.multi_get(&keys));
        expected(&keys[..1], &[session.get(keys[0])]);
    }
    assert_eq!(Taken::of(server.id()), before, "GETs put the server's process on a processor");
    server.signal(Signal::STOP);
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", server.id())).expect("its state");
    eventually("the stop", || state().rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')));
    for _ in 0..BATCHES {
        expected(&keys, &session.multi_get(&keys));
    }
    server.signal(Signal::CONT);
    session.write(WriteOperation::Update, &[(0, vec![1; 8])]);
    assert_eq!(session.get(0).map(|(value, _)| value), Some(vec![1; 8]), "it goes on");
}

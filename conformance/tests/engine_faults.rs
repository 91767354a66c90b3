//! Clients and servers killed at any moment, and regions without room.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use farsight::{
    Access, Answers, Client, ConnectOptions, FabricError, Options, Pairs, ReadError, Server, ServerUrl,
    Session, WriteError, WriteOperation, WriteOutcome, with_causes,
};
use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicBool, AtomicU64, Ordering};
use farsight_conformance::engine::harness::{Directory, PATIENCE, XStore, connect, eventually};
use farsight_conformance::engine::model::{Model, random_value};
use farsight_conformance::engine::processes::{Player, argument, role, say};
use farsight_conformance::engine::witness::Witness;
use farsight_conformance::engine::{EngineUnderTest, Seed, TableUnderTest};
use farsight_fabric::Connection;
use farsight_fabric_shm::ShmConnection;
use farsight_oracles::{EightBytes, Identity, sets};

const TABLE: &str = "t";
const VALUE_BYTES: usize = 100;
/// Keys of one writer; writer `w` has the keys `w * KEYS_EACH` and up.
const KEYS_EACH: u64 = 500;
/// Within this time every call notices that its server is dead, however busy the machine is.
const NOTICE: Duration = Duration::from_secs(10);
const SERVER_READY: &str = "serving";
const CLIENT_READY: &str = "working";

#[test]
fn play() {
    match role().as_deref() {
        None => {}
        Some("server") => serve(&argument::<PathBuf>("SOCKET")),
        Some("client") => {
            let socket: PathBuf = argument("SOCKET");
            let mut client = Busy::start(&socket, argument("WRITER"), argument("SEED"));
            client.step();
            say(CLIENT_READY);
            loop {
                client.step();
            }
        }
        Some(other) => panic!("there is no role {other}"),
    }
}

fn serve(socket: &Path) {
    let builder = Server::builder().socket(socket).table_memory_bytes(64 << 20);
    let _server = builder.start().expect("a server");
    say(SERVER_READY);
    loop {
        std::thread::park();
    }
}

fn start_server(socket: &Path) -> Player {
    let mut server = Player::start("server", &[("SOCKET", socket.display().to_string())]);
    assert_eq!(server.hear().as_deref(), Some(SERVER_READY));
    server
}

/// A session that waits for no server.
fn session(socket: &Path, access: Access) -> Session<u64> {
    let options = ConnectOptions { reconnect_timeout: Duration::ZERO, ..ConnectOptions::default() };
    let client = Client::connect_with(ServerUrl::shm(socket), &options).expect("a connection");
    let table = client.table(TABLE).expect("the table");
    table.session(Options { access }).expect("a session")
}

/// A value of `key`, which is its identity's number in all tables here.
fn witness(key: u64, sequence: u64) -> Vec<u8> {
    Witness { key: Identity(key), sequence }.value(VALUE_BYTES)
}

/// A client that does everything to its own keys and looks at all of them.
struct Busy {
    session: Session<u64>,
    random: SplitMix64,
    first: u64,
    sequence: u64,
    answers: Answers,
    pairs: Pairs<u64>,
}

impl Busy {
    fn start(socket: &Path, writer: u64, seed: u64) -> Self {
        Self {
            session: session(socket, Access::OneSided),
            random: SplitMix64::new(seed),
            first: writer * KEYS_EACH,
            sequence: 0,
            answers: Answers::default(),
            pairs: Pairs::default(),
        }
    }

    fn step(&mut self) {
        let start = self.first + self.random.below(KEYS_EACH - 200);
        let keys: Vec<u64> = (start..start + 1 + self.random.below(200)).collect();
        let mut outcomes = Vec::new();
        self.sequence += 1;
        match self.random.below(4) {
            0 => self.session.remove_many(&keys, &mut outcomes).expect("removes"),
            1 | 2 => {
                let pairs: Vec<_> = keys.iter().map(|key| (*key, witness(*key, self.sequence))).collect();
                self.session.put_many(&pairs, &mut outcomes).expect("puts");
            }
            _ => self.session.prefill().expect("the model"),
        }
        self.session.multi_get(&keys, &mut self.answers).expect("gets");
        self.session.scan_batch(&[(start, 100), (0, 10)], &mut self.pairs).expect("scans");
    }
}

fn descriptors(process: u32) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).expect("/proc").count()
}

/// Mappings of the fabric's memory files: one a region, and those of each client.
fn mappings(process: u32) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).expect("/proc");
    maps.lines().filter(|line| line.contains("memfd:farsight")).count()
}

/// Checks that each stored value is whole and its key's own. Returns the pairs.
fn check_whole(session: &mut Session<u64>) -> usize {
    session
        .scan(..)
        .map(|pair| {
            let (key, entry) = pair.expect("a scan");
            let _any = Witness::sequence_of(Identity(key), &entry.value);
        })
        .count()
}

/// Reads and writes keys of its own until told to stop, and checks each answer. Returns how many rounds that
/// were.
fn survive(socket: &Path, writer: u64, stop: &AtomicBool) -> u64 {
    let mut session = session(socket, Access::OneSided);
    let keys: Vec<u64> = (writer * KEYS_EACH..(writer + 1) * KEYS_EACH).collect();
    let mut answers = Answers::default();
    let mut outcomes = Vec::new();
    let mut rounds = 0;
    // Relaxed: the flag carries nothing with it.
    while !stop.load(Ordering::Relaxed) {
        rounds += 1;
        let pairs: Vec<_> = keys.iter().map(|key| (*key, witness(*key, rounds))).collect();
        session.put_many(&pairs, &mut outcomes).expect("puts beside dying clients");
        session.multi_get(&keys, &mut answers).expect("gets beside dying clients");
        for ((key, answer), (_, expected)) in keys.iter().zip(answers.iter()).zip(&pairs) {
            assert_eq!(answer.map(|found| found.0), Some(&expected[..]), "key {key} in round {rounds}");
        }
        if rounds % 3 == 0 {
            session.remove_many(&keys, &mut outcomes).expect("removes beside dying clients");
            assert!(outcomes.iter().all(|outcome| matches!(outcome, WriteOutcome::Removed(_))));
        }
    }
    rounds
}

#[test]
fn killed_clients_leave_nothing_behind() {
    const KILLED: usize = 30;
    let seed = Seed::new("killed clients");
    let mut random = seed.random(0);
    let directory = Directory::new();
    let socket = directory.file("socket");
    let server = start_server(&socket);
    let observer = connect(&socket);
    observer.create_table::<u64>(TABLE, VALUE_BYTES).expect("a table");
    let mut client_seeds = seed.random(1);
    let mut start = |writer: u64| {
        let seed = client_seeds.next_u64();
        let arguments = [("SOCKET", socket.display().to_string()), ("WRITER", writer.to_string())];
        let [a, b] = arguments;
        Player::start("client", &[a, b, ("SEED", seed.to_string())])
    };
    let clients = || observer.stats().expect("an answer").clients;
    let alone = || eventually("the clients' end", || clients() == 1);

    let mut first = start(2);
    assert_eq!(first.hear().as_deref(), Some(CLIENT_READY));
    first.kill();
    alone();
    let baseline = (descriptors(server.id()), mappings(server.id()));

    let stop = AtomicBool::new(false);
    let rounds = AtomicU64::new(0);
    std::thread::scope(|scope| {
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let stopping = Stop(&stop);
        scope.spawn(|| rounds.store(survive(&socket, 1, &stop), Ordering::Relaxed));
        let mut living = Vec::new();
        for number in 0..KILLED {
            let mut client = start(2 + number as u64 % 4);
            // Some die while they start and connect, some at work.
            if number % 4 != 0 {
                assert_eq!(client.hear().as_deref(), Some(CLIENT_READY));
            }
            living.push(client);
            std::thread::sleep(Duration::from_micros(random.below(60_000)));
            if living.len() > 2 {
                living.swap_remove(random.below(3) as usize).kill();
            }
        }
        living.into_iter().for_each(Player::kill);
        drop(stopping);
    });
    assert!(rounds.load(Ordering::Relaxed) > 50, "the survivor did {rounds:?} rounds");
    alone();
    eventually("the server's descriptors", || descriptors(server.id()) == baseline.0);
    eventually("the server's mappings", || mappings(server.id()) == baseline.1);

    // What the dead had written is whole, and anybody can go on writing it.
    for access in [Access::OneSided, Access::Rpc] {
        let mut session = session(&socket, access);
        assert!(check_whole(&mut session) > 0, "the dead left nothing");
        for key in 0..6 * KEYS_EACH {
            session.put(key, &witness(key, 7)).expect("a put");
        }
        assert_eq!(check_whole(&mut session) as u64, 6 * KEYS_EACH);
    }
    server.kill();
}

/// Repeats `call` until it fails; returns how long after `died` that was.
fn until_failed<E>(
    died: &AtomicU64,
    begun: Instant,
    mut call: impl FnMut() -> Result<(), E>,
) -> (E, Duration) {
    loop {
        if let Err(error) = call() {
            let died = Duration::from_nanos(died.load(Ordering::Acquire));
            assert!(!died.is_zero(), "a call failed before the server died");
            return (error, begun.elapsed().saturating_sub(died));
        }
        assert!(begun.elapsed() < PATIENCE, "calls go on after the server's death");
    }
}

fn is_disconnected(error: &(dyn std::error::Error + 'static)) -> bool {
    with_causes(error).contains("is lost")
}

fn check_read_error(what: &str, (error, after): (ReadError, Duration)) {
    assert!(is_disconnected(&error), "{what}: {error:?}");
    assert!(after < NOTICE, "{what} noticed the server's death after {after:?}");
}

fn check_write_error(what: &str, (error, after): (WriteError, Duration)) {
    // Indeterminate if it was sent before the death was noticed; the other if it was not sent.
    assert!(
        matches!(error, WriteError::Indeterminate { .. } | WriteError::Engine { .. }),
        "{what}: {error:?}"
    );
    assert!(is_disconnected(&error), "{what}: {error:?}");
    assert!(after < NOTICE, "{what} noticed the server's death after {after:?}");
}

/// All kinds of calls, each in a thread of its own, while the server is killed.
fn kill_under_load(socket: &Path, server: Player) {
    let died = AtomicU64::new(0);
    let begun = Instant::now();
    let (died, begun_at) = (&died, begun);
    let keys: Vec<u64> = (0..KEYS_EACH).collect();
    let keys = &keys;
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for access in [Access::OneSided, Access::Rpc] {
            threads.push(scope.spawn(move || {
                let mut session = session(socket, access);
                let mut answers = Answers::default();
                let get = || session.multi_get(keys, &mut answers);
                check_read_error("a batch of gets", until_failed(died, begun_at, get));
                // Afterwards, too, at once and for ever.
                let again = Instant::now();
                let error = session.get(1).expect_err("the server is dead");
                check_read_error("a get", (error, again.elapsed()));
            }));
            threads.push(scope.spawn(move || {
                let mut session = session(socket, access);
                let scan = || session.scan(..).try_for_each(|pair| pair.map(drop));
                check_read_error("a scan", until_failed(died, begun_at, scan));
            }));
        }
        threads.push(scope.spawn(move || {
            let mut session = session(socket, Access::OneSided);
            let put = || session.put(3, &witness(3, 2)).map(drop);
            check_write_error("a put", until_failed(died, begun_at, put));
        }));
        threads.push(scope.spawn(move || {
            let mut session = session(socket, Access::OneSided);
            let pairs: Vec<_> = keys.iter().map(|key| (*key, witness(*key, 3))).collect();
            let mut outcomes = Vec::new();
            let put = || session.put_many(&pairs, &mut outcomes);
            check_write_error("a batch of puts", until_failed(died, begun_at, put));
        }));
        std::thread::sleep(Duration::from_millis(300));
        // Release: an operation that fails after this sees it. Partner: the Acquire load in `until_failed`.
        died.store(begun.elapsed().as_nanos() as u64, Ordering::Release);
        server.kill();
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}

#[test]
fn a_killed_server_is_noticed_by_every_call_and_its_data_is_gone() {
    let directory = Directory::new();
    let socket = directory.file("socket");
    let options = farsight_fabric_shm::ConnectOptions::new(farsight::FORMAT_VERSION);
    let raw = || ShmConnection::connect(&socket, options.clone());
    let mut epochs = Vec::new();
    let mut old: Vec<Session<u64>> = Vec::new();
    for life in 1..=3 {
        let server = start_server(&socket);
        epochs.push(raw().expect("a connection").epoch());
        let client = connect(&socket);
        assert!(client.tables().expect("an answer").is_empty(), "life {life} begins empty");
        client.create_table::<u64>(TABLE, VALUE_BYTES).expect("a table");
        let mut fresh = session(&socket, Access::OneSided);
        assert_eq!(fresh.get(0).expect("a get"), None, "old data in life {life}");
        assert_eq!(fresh.scan(..).count(), 0, "old data in life {life}");
        for key in 0..KEYS_EACH {
            fresh.put(key, &witness(key, 1_000 * life)).expect("a put");
        }
        for key in 0..KEYS_EACH {
            let entry = fresh.get(key).expect("a get").expect("the key was put");
            assert_eq!(entry.value, witness(key, 1_000 * life), "key {key} in life {life}");
        }
        // Sessions of former lives have moved on to this one.
        for session in &mut old {
            let entry = session.get(0).expect("a get").expect("the key was put");
            assert_eq!(entry.value, witness(0, 1_000 * life), "in life {life}");
            session.put(1, &witness(1, 1_000 * life)).expect("a put");
            assert_eq!(session.epoch(), fresh.epoch());
        }
        let idle = session(&socket, Access::OneSided);
        kill_under_load(&socket, server);
        // One that had nothing to do when its server died learns of it by its next call.
        let mut idle = idle;
        let asked = Instant::now();
        let error = idle.get(0).expect_err("the server is dead");
        check_read_error("an idle session's get", (error, asked.elapsed()));
        assert!(farsight::connect(&format!("shm://{}", socket.display())).is_err(), "nobody listens");
        old.extend([fresh, idle]);
    }
    epochs.sort_unstable_by_key(|epoch| format!("{epoch:?}"));
    epochs.dedup();
    assert_eq!(epochs.len(), 3, "each life has an epoch of its own");
    assert!(matches!(raw().map(drop), Err(error) if !matches!(error, FabricError::TimedOut { .. })));
}

/// A region without a block left refuses what needs one, and does everything else.
#[test]
fn a_full_region_loses_nothing() {
    let seed = Seed::new("a full region");
    for (value_bytes, offered) in [(8, 100_000), (256, 12_000)] {
        let server = XStore::start(1 << 20, 1);
        let table = server.table(value_bytes);
        let mut writer = table.session(Access::OneSided);
        let mut by_call = table.session(Access::Rpc);
        let mut model = Model::new(EightBytes::Plain);
        let mut random = seed.random(value_bytes as u64);
        let keys = sets::uniform(&mut random, offered);
        let mut refused = 0;
        for batch in keys.chunks(100) {
            let entries: Vec<_> =
                batch.iter().map(|key| (*key, random_value(&mut random, value_bytes))).collect();
            refused += model.write(&mut writer, WriteOperation::Insert, &entries, true);
        }
        assert!(refused > 1_000, "only {refused} inserts were refused");
        assert!(model.pairs().len() > 200, "only {} pairs fit", model.pairs().len());
        let error = (0..).find_map(|key| writer.session().insert(key << 50, &vec![1; value_bytes]).err());
        let error = error.expect("the region is full");
        assert!(error.to_string().contains("region is full"), "{error}");
        let probed: Vec<(u64, Vec<u8>)> = (0..1 << 14).map(|key| (key << 50, Vec::new())).collect();
        let removed = farsight_conformance::engine::SessionUnderTest::write(
            &mut writer,
            WriteOperation::Remove,
            &probed,
        );
        assert!(removed.iter().all(|outcome| !matches!(outcome, WriteOutcome::Failed(_))), "removes go on");
        model.check_all(&mut writer);
        model.check_all(&mut by_call);
        let mut refused_again = 0;
        for _ in 0..300 {
            let operation = [WriteOperation::Update, WriteOperation::Remove, WriteOperation::Put]
                [random.below(3) as usize];
            let entries: Vec<_> = (0..20)
                .map(|_| {
                    let bytes = if operation == WriteOperation::Remove { 0 } else { value_bytes };
                    (keys[random.below(keys.len() as u64) as usize], random_value(&mut random, bytes))
                })
                .collect();
            refused_again += model.write(&mut writer, operation, &entries, true);
            let looked: Vec<Identity> = entries.iter().map(|entry| entry.0).collect();
            model.check_multi_get(&mut by_call, &looked);
            model.check_multi_get(&mut writer, &looked);
        }
        println!("{value_bytes} B: {refused} refused, then {refused_again}; {} pairs", model.pairs().len());
        model.check_all(&mut writer);
        // Removals make room: a table emptied of most pairs takes new ones again.
        let present: Vec<(Identity, Vec<u8>)> = model.pairs().keys().map(|key| (*key, Vec::new())).collect();
        model.write(&mut by_call, WriteOperation::Remove, &present, false);
        let dense: Vec<_> =
            sets::dense(1 << 30, 200).into_iter().map(|key| (key, vec![3; value_bytes])).collect();
        model.write(&mut writer, WriteOperation::Insert, &dense, false);
        model.check_all(&mut writer);
        model.check_all(&mut by_call);
    }
}

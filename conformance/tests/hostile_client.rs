//! Hostile clients beside honest ones, each in a process of its own. The server answers the honest ones
//! rightly and in time. When the hostile ones are gone it holds nothing of theirs.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use farsight::{Access, Answers, Options, Pairs, Server, Session, WriteOutcome};
use farsight_base::prng::SplitMix64;
use farsight_conformance::engine::Seed;
use farsight_conformance::engine::harness::{Directory, connect, eventually};
use farsight_conformance::engine::processes::{Player, argument, role, say};
use farsight_conformance::hostile::{ATTACKS, Attacker};
use farsight_protocol::TableId;

/// The honest clients' table, the server's first.
const TABLE: &str = "t";
const SPARED: TableId = TableId(0);
const VALUE_BYTES: usize = 24;
/// Keys of one honest client.
const KEYS_EACH: u64 = 2_000;
const HONEST: u64 = 2;
const HOSTILE: u64 = 3;
/// Hostile processes killed, and replaced, during the test.
const KILLS: usize = 40;
/// What no operation of an honest client may take, on however loaded a machine.
const OPERATION_MAX: Duration = Duration::from_secs(20);
/// The server's descriptors: few, so that floods could use them up.
const DESCRIPTORS: u64 = 1024;
/// The unit in which systems count what a file takes.
const BLOCK_BYTES: u64 = 512;
/// What the tables of the test may take, which hold a few thousand pairs: of each what is exported at first.
const TABLES_BYTES_MAX: u64 = 8 << 20;
const READY: &str = "ready";

#[test]
fn play() {
    match role().as_deref() {
        None => {}
        Some("server") => serve(&argument::<PathBuf>("SOCKET")),
        Some("honest") => {
            let (socket, stop) = (argument::<PathBuf>("SOCKET"), argument::<PathBuf>("STOP"));
            let mut honest = Honest::start(&socket, argument("NUMBER"), argument("SEED"));
            say(READY);
            while !stop.exists() {
                honest.round(&socket);
            }
            honest.check_all();
            say(&format!("{} {}", honest.rounds, honest.longest.as_micros()));
        }
        Some("hostile") => {
            let (socket, breach, diary) = (argument("SOCKET"), argument("BREACH"), argument("DIARY"));
            // What befalls it is no news.
            std::panic::set_hook(Box::new(|_| {}));
            let mut attacker = Attacker::new(socket, breach, diary, SPARED, argument("SEED"));
            loop {
                attacker.attack();
            }
        }
        Some(other) => panic!("there is no role {other}"),
    }
}

fn serve(socket: &Path) {
    let maximum = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let few = rustix::process::Rlimit { current: Some(DESCRIPTORS), maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).expect("a lower limit");
    let _server = Server::builder().socket(socket).table_memory_bytes(16 << 20).start().expect("a server");
    say(READY);
    loop {
        std::thread::park();
    }
}

/// A client that knows what its own keys hold.
struct Honest {
    session: Session<u64>,
    random: SplitMix64,
    first: u64,
    twin: BTreeMap<u64, Vec<u8>>,
    rounds: u64,
    longest: Duration,
}

fn session(socket: &Path) -> Session<u64> {
    let table = connect(socket).table(TABLE).expect("the table");
    table.session(Options { access: Access::OneSided }).expect("a session")
}

impl Honest {
    fn start(socket: &Path, number: u64, seed: u64) -> Self {
        let random = SplitMix64::new(seed);
        let first = number * KEYS_EACH;
        Self {
            session: session(socket),
            random,
            first,
            twin: BTreeMap::new(),
            rounds: 0,
            longest: Duration::ZERO,
        }
    }

    /// Writes, removes, reads and scans some neighbours; now and then as a newcomer.
    fn round(&mut self, socket: &Path) {
        self.rounds += 1;
        if self.rounds.is_multiple_of(50) {
            self.session = self.timed("connecting", |_| session(socket));
        }
        let start = self.first + self.random.below(KEYS_EACH - 100);
        let keys: Vec<u64> = (start..start + 1 + self.random.below(100)).collect();
        let mut outcomes = Vec::new();
        if self.random.below(4) == 0 {
            self.timed("removing", |own| own.session.remove_many(&keys, &mut outcomes)).expect("removes");
            self.twin.retain(|key, _| !keys.contains(key));
        } else {
            let fill = self.random.next_u64().to_le_bytes();
            let pairs: Vec<(u64, Vec<u8>)> =
                keys.iter().map(|key| (*key, [key.to_le_bytes(), fill, fill].concat())).collect();
            self.timed("putting", |own| own.session.put_many(&pairs, &mut outcomes)).expect("puts");
            self.twin.extend(pairs);
        }
        assert!(!outcomes.iter().any(|outcome| matches!(outcome, WriteOutcome::Failed(_))), "{outcomes:?}");
        let mut answers = Answers::default();
        self.timed("reading", |own| own.session.multi_get(&keys, &mut answers)).expect("gets");
        for (key, answer) in keys.iter().zip(answers.iter()) {
            assert_eq!(answer.map(|found| found.0), self.twin.get(key).map(Vec::as_slice), "key {key}");
        }
        let mut pairs = Pairs::default();
        let scans = [(start, keys.len())];
        self.timed("scanning", |own| own.session.scan_batch(&scans, &mut pairs)).expect("scans");
        let end = self.first + KEYS_EACH;
        let found = pairs.scan(0).filter(|pair| pair.key < end).map(|pair| (pair.key, pair.value.to_vec()));
        let expected = self.twin.range(start..end).take(keys.len());
        assert!(found.eq(expected.map(|(key, value)| (*key, value.clone()))), "a scan from {start}");
    }

    fn timed<T>(&mut self, what: &str, act: impl FnOnce(&mut Self) -> T) -> T {
        let started = Instant::now();
        let outcome = act(self);
        let took = started.elapsed();
        assert!(took < OPERATION_MAX, "{what} took {took:?}");
        self.longest = self.longest.max(took);
        outcome
    }

    fn check_all(&mut self) {
        let end = self.first + KEYS_EACH;
        let stored = self.session.scan(self.first..end).map(|pair| pair.expect("a scan"));
        let stored: BTreeMap<u64, Vec<u8>> =
            stored.map(|(key, entry)| (key, entry.value.into_vec())).collect();
        assert_eq!(stored, self.twin);
    }
}

/// What the server's process holds.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    descriptors: usize,
    mappings: usize,
    threads: usize,
}

fn held(process: u32) -> Held {
    let count = |directory: &str| {
        std::fs::read_dir(format!("/proc/{process}/{directory}")).expect("the server lives").count()
    };
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).expect("the server lives");
    let mappings = maps.lines().filter(|line| line.contains("memfd:farsight")).count();
    Held { descriptors: count("fd"), mappings, threads: count("task") }
}

/// Bytes that the process's memory files take, however many have mapped them: tables and rings.
fn shared_bytes(process: u32) -> u64 {
    let directory = format!("/proc/{process}/fd");
    let entries = std::fs::read_dir(directory).expect("the server lives");
    let files = entries.filter_map(|entry| {
        // Descriptors come and go while others are looked at.
        let path = entry.ok()?.path();
        let is_ours = std::fs::read_link(&path).ok()?.to_string_lossy().contains("memfd:farsight");
        let file = is_ours.then(|| std::fs::metadata(&path).ok()).flatten()?;
        Some((file.ino(), file.blocks() * BLOCK_BYTES))
    });
    files.collect::<BTreeMap<u64, u64>>().into_values().sum()
}

/// Bytes of memory that are the process's alone: its heap, not the tables.
fn private_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("the server lives");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a figure");
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse().expect("a number");
    kilobytes << 10
}

#[test]
fn hostile_clients_harm_nobody_else() {
    let seed = Seed::new("hostile_clients_harm_nobody_else");
    let directory = Directory::new();
    let [socket, stop, breach, diary] =
        ["socket", "stop", "breach", "diary"].map(|name| directory.file(name));
    let text = |path: &Path| path.display().to_string();
    let mut server = Player::start("server", &[("SOCKET", text(&socket))]);
    assert_eq!(server.hear().as_deref(), Some(READY));
    let client = connect(&socket);
    client.create_table::<u64>(TABLE, VALUE_BYTES).expect("the honest clients' table");
    for name in ["h1", "h2"] {
        client.create_table::<u64>(name, 8).expect("a hostile clients' table");
    }
    let mut random = seed.random(0);
    let mut start = |role: &str, number: u64| {
        let arguments = [
            ("SOCKET", text(&socket)),
            ("STOP", text(&stop)),
            ("BREACH", text(&breach)),
            ("DIARY", text(&diary)),
            ("NUMBER", number.to_string()),
            ("SEED", random.next_u64().to_string()),
        ];
        Player::start(role, &arguments)
    };
    let before = held(server.id());
    let mut honest: Vec<Player> = (0..HONEST).map(|number| start("honest", number)).collect();
    for player in &mut honest {
        assert_eq!(player.hear().as_deref(), Some(READY));
    }
    let mut hostile: Vec<Player> = (0..HOSTILE).map(|number| start("hostile", number)).collect();
    let mut pauses = seed.random(1);
    let mut warm_bytes = 0;
    for kill in 0..KILLS {
        std::thread::sleep(Duration::from_millis(50 + pauses.below(200)));
        // Dropping a player kills its process, wherever it is, unless it died by itself.
        hostile[kill % HOSTILE as usize] = start("hostile", kill as u64);
        if kill == KILLS / 4 {
            warm_bytes = private_bytes(server.id());
        }
    }
    drop(hostile);
    std::fs::write(&stop, "").expect("the directory is there");
    for player in honest {
        let told = player.finish();
        let (rounds, longest_us) = told.split_once(' ').expect("two numbers");
        println!("an honest client: {rounds} rounds, the longest operation {longest_us} us");
        assert!(rounds.parse::<u64>().expect("a number") >= 5, "{rounds} rounds");
    }
    let done = std::fs::read(&diary).expect("some attack came to its end");
    let counts: Vec<usize> =
        (0..ATTACKS).map(|number| done.iter().filter(|one| usize::from(**one) == number).count()).collect();
    println!("attacks that came to their end, by kind: {counts:?}");
    assert!(!counts.contains(&0), "some attack never came to its end: {counts:?}");
    assert!(!breach.exists(), "{}", std::fs::read_to_string(&breach).unwrap_or_default());
    eventually("the end of every client", || client.stats().expect("statistics").clients == 1);
    eventually("the server holding what it held before", || held(server.id()) == before);
    let tables_bytes = shared_bytes(server.id());
    println!("the server's memory files: {tables_bytes} B");
    assert!(tables_bytes <= TABLES_BYTES_MAX, "the tables take {tables_bytes} B");
    let grown_bytes = private_bytes(server.id()).saturating_sub(warm_bytes);
    println!("the server: {:?}, {grown_bytes} B more than when a quarter was over", held(server.id()));
    assert!(grown_bytes < 16 << 20, "the server's own memory grew by {grown_bytes} B");
}

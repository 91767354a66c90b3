//! What a client's cache takes of its process: `cache_stats` says it, while a table grows, moves and is
//! trained anew. A table whose keys move for ever takes no more. A budget holds.
//!
//! The client is a process of its own, whose memory the kernel counts. The server is this one's.

use std::path::Path;

use farsight::{Answers, Client, Options, Session, Table, WriteOutcome};
use farsight_base::prng::{SplitMix64, mix};
use farsight_conformance::engine::Seed;
use farsight_conformance::engine::harness::{XStore, await_training, connect};
use farsight_conformance::engine::processes::{Player, argument, role, say};

const TABLE_BYTES: u64 = 1 << 30;
const BATCH: usize = 512;
/// What the process takes besides the cache: a session's frames and counts, and what an allocator keeps.
const NOISE_BYTES: u64 = 3 << 19;

/// Plays a role if this process is to play one; without one, it is the test.
#[test]
fn play() {
    match role().as_deref() {
        Some("a table that grows") => grow(),
        Some("keys that move") => move_keys(),
        Some("a budget") => obey(),
        Some(other) => panic!("no role {other:?}"),
        None => {
            for role in ["a table that grows", "keys that move", "a budget"] {
                let seed = Seed::new(role);
                let store = XStore::start(TABLE_BYTES, 1);
                let arguments = [
                    ("SOCKET", store.socket().display().to_string()),
                    ("SEED", seed.random(0).next_u64().to_string()),
                ];
                let mut client = Player::start(role, &arguments);
                while let Some(said) = client.hear() {
                    println!("{role}: {said}");
                }
                let _ = client.finish();
            }
        }
    }
}

/// A client process: a table of its own, and what the process took before there was a cache of it.
struct Process {
    client: Client,
    table: Table<u64>,
    session: Session<u64>,
    before_bytes: u64,
    pairs: Vec<(u64, [u8; 8])>,
    keys: Vec<u64>,
    answers: Answers,
    outcomes: Vec<WriteOutcome>,
}

impl Process {
    fn start() -> Self {
        let client = connect(Path::new(&argument::<String>("SOCKET")));
        // Whatever a session needs besides a cache is there before anything is counted.
        let mut warm = Self::of(&client, "warm");
        warm.put((0..20_000).map(|key| key << 20));
        await_training(&client);
        warm.find((0..20_000).map(|key| key << 20));
        warm.remove((0..BATCH as u64).map(|key| key << 20));
        warm.session.prefill().expect("the model");
        let mut own = Self::of(&client, "own");
        own.put([1 << 40].into_iter());
        own.before_bytes = anonymous_bytes();
        // Its memory must not serve the other.
        std::mem::forget(warm);
        own
    }

    fn of(client: &Client, name: &str) -> Self {
        let table = client.create_table::<u64>(name, 8).expect("a table");
        Self {
            client: client.clone(),
            session: table.session(Options::default()).expect("a session"),
            table,
            before_bytes: 0,
            pairs: Vec::with_capacity(BATCH),
            keys: Vec::with_capacity(BATCH),
            answers: Answers::default(),
            outcomes: Vec::with_capacity(BATCH),
        }
    }

    fn put(&mut self, keys: impl Iterator<Item = u64>) {
        let mut keys = keys.peekable();
        while keys.peek().is_some() {
            self.pairs.clear();
            self.pairs.extend(keys.by_ref().take(BATCH).map(|key| (key, mix(key).to_le_bytes())));
            self.session.put_many(&self.pairs, &mut self.outcomes).expect("puts");
            assert!(!self.outcomes.iter().any(|outcome| matches!(outcome, WriteOutcome::Failed(_))));
        }
    }

    /// Takes the next keys of a batch.
    fn take(&mut self, keys: &mut impl Iterator<Item = u64>) -> bool {
        self.keys.clear();
        self.keys.extend(keys.take(BATCH));
        !self.keys.is_empty()
    }

    fn remove(&mut self, mut keys: impl Iterator<Item = u64>) {
        while self.take(&mut keys) {
            self.session.remove_many(&self.keys, &mut self.outcomes).expect("removes");
        }
    }

    fn find(&mut self, mut keys: impl Iterator<Item = u64>) {
        while self.take(&mut keys) {
            self.session.multi_get(&self.keys, &mut self.answers).expect("answers");
            for (key, got) in self.keys.iter().zip(self.answers.iter()) {
                assert_eq!(got.expect("a stored key").0, mix(*key).to_le_bytes());
            }
        }
    }

    /// The process has taken what `cache_stats` says; which is returned.
    fn check_truth(&self, what: &str) -> u64 {
        let taken = anonymous_bytes().saturating_sub(self.before_bytes);
        let stats = self.table.cache_stats();
        say(&format!("{what}: {taken} B taken, {stats:?}"));
        let said = stats.memory_bytes;
        assert!(said <= taken + taken / 10 + NOISE_BYTES, "{what}: {said} B said, but {taken} B taken");
        assert!(taken <= said + said / 10 + NOISE_BYTES, "{what}: {said} B said, but {taken} B taken");
        said
    }
}

/// Memory that is this process's own: the server's, which it maps, does not count.
fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib << 10
}

/// Random keys, ever more of them: sub-models are trained again, cut, and all of them trained anew.
fn grow() {
    let seed: u64 = argument("SEED");
    let key = |index: u64| mix(seed ^ index);
    let mut random = SplitMix64::new(seed);
    let mut process = Process::start();
    let mut present = 0;
    for count in [200_000, 500_000, 1_500_000, 4_000_000] {
        process.put((present..count).map(key));
        present = count;
        let mut some = |count: usize| (0..count).map(|_| key(random.below(present))).collect::<Vec<_>>();
        for _ in 0..200 {
            process.find(some(BATCH).into_iter());
        }
        process.check_truth(&format!("{count} keys"));
    }
    await_training(&process.client);
    process.session.prefill().expect("the model");
    process.find((0..present).map(key));
    process.check_truth("the whole model");
}

/// Inserts at the top, removes at the bottom, many times the table: the cache takes no more than in the
/// beginning.
fn move_keys() {
    const KEYS: u64 = 200_000;
    const ROUNDS: u64 = 60;
    let seed: u64 = argument("SEED");
    let key = |index: u64| (index << 12) + (mix(seed ^ index) & 0xfff);
    let mut random = SplitMix64::new(seed);
    let mut process = Process::start();
    let mut most = [0; 2];
    for round in 0..ROUNDS {
        let (first, last) = ((round * KEYS / 4).saturating_sub(KEYS), (round + 1) * KEYS / 4);
        process.put((round * KEYS / 4..last).map(key));
        let gone = ((round.saturating_sub(1)) * KEYS / 4).saturating_sub(KEYS);
        process.remove((gone..first).map(key));
        for _ in 0..100 {
            let some: Vec<u64> = (0..BATCH).map(|_| key(first + random.below(last - first))).collect();
            process.find(some.into_iter());
        }
        let said = process.check_truth(&format!("round {round}"));
        let half = &mut most[usize::from(round >= ROUNDS / 2)];
        *half = said.max(*half);
    }
    let [early, late] = most;
    assert!(late <= 2 * early, "{early} B at most at first, {late} B later");
}

/// A budget of a third of what the cache takes, then of half, then none, then a little one. It holds while
/// keys are read, inserted and trained on. No key is lost, and keys that are read all the time hardly miss.
fn obey() {
    const KEYS: u64 = 1_000_000;
    const ROUNDS: u64 = 60;
    const HOT: u64 = 20;
    const COLD: usize = 64;
    let seed: u64 = argument("SEED");
    let key = |index: u64| mix(seed ^ index);
    let mut random = SplitMix64::new(seed);
    let mut process = Process::start();
    process.put((0..KEYS).map(key));
    await_training(&process.client);
    process.session.prefill().expect("the model");
    process.find((0..KEYS).map(key));
    let whole_bytes = process.table.cache_stats().memory_bytes;
    let mut present = KEYS;
    for budget_bytes in [whole_bytes / 3, whole_bytes / 2, u64::MAX, whole_bytes / 4] {
        assert!(process.table.set_cache_bytes(budget_bytes).expect("a budget"), "XStore's cache has one");
        let mut hot_fallbacks = 0;
        for round in 0..ROUNDS {
            for _ in 0..10 {
                let before = process.session.counters().fallbacks;
                process.find((0..HOT).map(key));
                hot_fallbacks += process.session.counters().fallbacks - before;
                let cold: Vec<u64> = (0..COLD).map(|_| key(random.below(present))).collect();
                process.find(cold.into_iter());
            }
            process.put((present..present + 2_000).map(key));
            present += 2_000;
            let stats = process.table.cache_stats();
            assert!(stats.memory_bytes <= budget_bytes, "{stats:?} of {budget_bytes} B, round {round}");
        }
        process.check_truth(&format!("a budget of {budget_bytes} B, {hot_fallbacks} fallbacks of hot keys"));
        // They miss when their sub-models are trained again, and once a generation.
        assert!(hot_fallbacks < ROUNDS * HOT / 4, "{hot_fallbacks} fallbacks of keys that are always read");
    }
    let mut scanned = 0;
    for pair in process.session.scan(..) {
        pair.expect("a scan");
        scanned += 1;
    }
    assert_eq!(scanned, present + 1, "all keys, and the one of the beginning");
}

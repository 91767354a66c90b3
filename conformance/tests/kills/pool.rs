//! Compute nodes of a pool killed in a loop, whatever lock they hold, while others go on in the same leaves.
//! Nothing that was acknowledged is lost, nobody is held up for good, and what the dead had goes back.
//!
//! A worker notes in its file what it is about to write before it begins, and that it was acknowledged behind
//! that. So the test knows of each key the two values that it may have.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use farsight::{Addresses, Client, ConnectOptions, Options, ServerUrl, Session};
use farsight_base::prng::SplitMix64;
use farsight_conformance::engine::Seed;
use farsight_conformance::engine::harness::{Directory, PATIENCE, eventually};
use farsight_conformance::engine::pool::{Pool, over_shared_memory, over_tcp};
use farsight_conformance::engine::processes::{Player, argument};
use farsight_conformance::engine::witness::Witness;
use farsight_oracles::{EightBytes, Embedding as _, Identity};

use crate::client::{read_word, write_word};

pub(crate) const TABLE: &str = "t";
pub(crate) const VALUE_BYTES: usize = 24;
/// Where the keys lie.
const EMBEDDING: EightBytes = EightBytes::Plain;
/// Workers at any time, and the most that there ever are.
const WORKERS: usize = 3;
const NUMBERS_MAX: u64 = 64;
/// Keys of one worker; those of all lie between each other's.
const KEYS: u64 = 150;
/// Kills on each fabric.
const KILLS: usize = 8;
/// Writes that each worker that lives must get done behind a kill.
const PROGRESS: u64 = 20;
/// One write in so many is a removal.
const REMOVE_EVERY: u64 = 5;

/// The words of a worker's file: writes done, then for each key what was begun last, and what was
/// acknowledged last.
fn begun_word(index: u64) -> u64 {
    1 + 2 * index
}

fn key_of(number: u64, index: u64) -> Identity {
    Identity(index * NUMBERS_MAX + number)
}

pub(crate) fn connect(urls: &str) -> Client {
    let urls: Addresses = urls.parse().expect("addresses");
    Client::connect_with(urls, &ConnectOptions::default()).expect("a connection")
}

/// The whole life of a worker.
pub(crate) fn work() {
    let file = File::options().read(true).write(true).open(argument::<PathBuf>("FILE")).expect("its file");
    let (number, mut random) = (argument::<u64>("NUMBER"), SplitMix64::new(argument("SEED")));
    let client = connect(&argument::<String>("URLS"));
    let table = client.table::<u64>(TABLE).expect("the table");
    let mut session = table.session(Options::default()).expect("a session");
    for sequence in 1.. {
        let index = random.below(KEYS);
        let key = key_of(number, index);
        write_word(&file, begun_word(index), sequence);
        if sequence.is_multiple_of(REMOVE_EVERY) {
            session.remove(EMBEDDING.key(key)).expect("a removal");
        } else {
            let value = Witness { key, sequence }.value(VALUE_BYTES);
            session.put(EMBEDDING.key(key), &value).expect("a put");
        }
        write_word(&file, begun_word(index) + 1, sequence);
        write_word(&file, 0, sequence);
    }
}

pub(crate) struct Worker {
    pub(crate) player: Player,
    file: File,
    number: u64,
}

impl Worker {
    pub(crate) fn start(path: &Path, urls: &str, number: u64, seed: u64) -> Self {
        let file = File::options().read(true).write(true).create_new(true).open(path).expect("a file");
        (0..begun_word(KEYS)).for_each(|word| write_word(&file, word, 0));
        let arguments = [
            ("URLS", urls.to_owned()),
            ("FILE", path.display().to_string()),
            ("NUMBER", number.to_string()),
            ("SEED", seed.to_string()),
        ];
        Self { player: Player::start("pool worker", &arguments), file, number }
    }

    pub(crate) fn await_progress(&mut self) {
        let (before, begun) = (read_word(&self.file, 0), Instant::now());
        while read_word(&self.file, 0) < before + PROGRESS {
            assert!(self.player.is_running(), "worker {} failed", self.number);
            assert!(begun.elapsed() < PATIENCE, "worker {} does not get on from {before}", self.number);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Compares what the table holds of the keys of a worker that is dead with what it noted.
    pub(crate) fn judge(&self, session: &mut Session<u64>) {
        for index in 0..KEYS {
            let key = key_of(self.number, index);
            let found = session.get(EMBEDDING.key(key)).expect("a GET");
            let found = found.map(|entry| Witness::sequence_of(key, &entry.value));
            let [begun, done] = [0, 1].map(|word| read_word(&self.file, begun_word(index) + word));
            let left_by = |sequence: u64| (!sequence.is_multiple_of(REMOVE_EVERY)).then_some(sequence);
            assert!(
                [begun, done].map(left_by).contains(&found),
                "key {key}: found {found:?}, {done} was acknowledged, {begun} begun"
            );
        }
    }
}

fn kill_and_go_on(test: &str, url: impl Fn(&Directory, usize) -> ServerUrl) {
    let seed = Seed::new(test);
    let mut random = seed.random(0);
    let pool = Pool::start(2, 8 << 20, url);
    let urls = pool.addresses().to_string();
    let client = connect(&urls);
    let table = client.create_table::<u64>(TABLE, VALUE_BYTES).expect("a table");
    let _training = pool.train();
    let mut session = table.session(Options::default()).expect("a session");
    let mut numbers = 0..NUMBERS_MAX;
    let mut start = |random: &mut SplitMix64| {
        let number = numbers.next().expect("few workers");
        Worker::start(&pool.file(&format!("worker-{number}")), &urls, number, random.next_u64())
    };
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| start(&mut random)).collect();
    workers.iter_mut().for_each(Worker::await_progress);
    for _ in 0..KILLS {
        std::thread::sleep(Duration::from_micros(random.below(60_000)));
        let mut dead = workers.swap_remove(random.below(WORKERS as u64) as usize);
        assert!(dead.player.is_running(), "worker {} failed", dead.number);
        dead.player.signal(rustix::process::Signal::KILL);
        dead.player.await_end();
        // Whatever it held: the others go on, and what it had been told stands.
        workers.push(start(&mut random));
        workers.iter_mut().for_each(Worker::await_progress);
        dead.judge(&mut session);
    }
    for mut worker in workers {
        worker.player.signal(rustix::process::Signal::KILL);
        worker.player.await_end();
        worker.judge(&mut session);
    }
    let used = || pool.sum(|table| table.leaves.used);
    eventually("the blocks of the dead", || pool.sum(|table| table.leaves.orphaned) == 0);
    let pairs = session.scan(0..).count() as u64;
    println!("{} leaves for {pairs} pairs, behind {} deaths", used(), KILLS + WORKERS);
    // Leaves that are at least a quarter full, and those that this session keeps.
    assert!(used() < pairs / 4 + 200, "{} leaves for {pairs} pairs", used());
}

#[test]
fn compute_nodes_over_shared_memory() {
    kill_and_go_on("compute nodes are killed, shm", over_shared_memory);
}

#[test]
fn compute_nodes_over_tcp() {
    kill_and_go_on("compute nodes are killed, tcp", over_tcp);
}

//! Compute nodes that keep values, killed and stopped at any moment while another one writes them.
//!
//! Nobody sees a value that was replaced before it asked, wherever it was stopped meanwhile. Nobody who is
//! stopped or dead holds a writer up. Both are so also when a pool with replicas loses a memory node.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use farsight::{Counters, EngineKind, Options, Session, TableOptions, ValueCache, ValueKind};
use farsight_base::prng::SplitMix64;
use farsight_conformance::engine::Seed;
use farsight_conformance::engine::harness::{Directory, eventually};
use farsight_conformance::engine::pool::{Pool, over_shared_memory, over_tcp};
use farsight_conformance::engine::processes::{Player, argument};
use farsight_conformance::engine::witness::Witness;
use farsight_oracles::Identity;
use rustix::process::Signal;

use crate::client::{read_word, write_word};
use crate::lost_nodes::{NODES, start_replicated};
use crate::pool::{TABLE, VALUE_BYTES, connect};

/// Keys, whose writes that were acknowledged stand in the first words of the file.
const KEYS: u64 = 4;
/// Which word says that somebody saw a value that was too old, and of which key.
const STALE_WORD: u64 = KEYS;
/// Words of the file of who keeps values: GETs, and those of them that kept values answered.
const fn words_of(number: u64) -> [u64; 2] {
    [STALE_WORD + 1 + 2 * number, STALE_WORD + 2 + 2 * number]
}
/// Who keeps values at any time, and the most that there ever are.
const KEEPERS: u64 = 2;
const KEEPERS_MAX: u64 = 32;
const FILE_WORDS: u64 = STALE_WORD + 1 + 2 * KEEPERS_MAX;
/// Kept values that each must give out before it is disturbed.
const HITS: u64 = 500;
/// Writes that are done while somebody is stopped or dead.
const WRITES: u64 = 20;
/// Disturbances on each fabric.
const DISTURBANCES: usize = 12;

/// The whole life of a compute node that keeps values.
pub(crate) fn keep() {
    let file = File::options().read(true).write(true).open(argument::<PathBuf>("FILE")).expect("the file");
    let (number, mut random) = (argument::<u64>("NUMBER"), SplitMix64::new(argument("SEED")));
    let table = connect(&argument::<String>("URLS")).table::<u64>(TABLE).expect("the table");
    let cache = ValueCache { bytes: 1 << 20, reads_a_write: 0 };
    assert!(table.set_value_cache(cache).expect("the table"), "values are kept");
    let mut session = table.session(Options::default()).expect("a session");
    let [gets_word, hits_word] = words_of(number);
    let mut last = [0; KEYS as usize];
    for gets in 1.. {
        let key = random.below(KEYS);
        // What was acknowledged before the GET begins is no later than what that finds.
        let acknowledged = read_word(&file, key);
        let entry = session.get(key).expect("a GET").expect("the key is there");
        let found = Witness::sequence_of(Identity(key), &entry.value);
        if found < acknowledged.max(last[key as usize]) {
            write_word(&file, STALE_WORD, 1 + key);
            panic!("key {key}: {found} behind {acknowledged} and {}", last[key as usize]);
        }
        last[key as usize] = found;
        write_word(&file, gets_word, gets);
        write_word(&file, hits_word, session.counters().value_hits);
    }
}

/// Who writes, and what the others are judged by.
struct Writer {
    session: Session<u64>,
    file: File,
    sequence: u64,
    random: SplitMix64,
}

impl Writer {
    /// A writer that has written each key, and the file's path.
    fn new(session: Session<u64>, directory: &Directory, random: &mut SplitMix64) -> (Self, PathBuf) {
        let path = directory.file("words");
        let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
        file.set_len(FILE_WORDS * 8).expect("room");
        let mut writer = Self { session, file, sequence: 0, random: SplitMix64::new(random.next_u64()) };
        (0..KEYS).for_each(|key| writer.write(key));
        (writer, path)
    }

    /// Writes a key, again and with a later value as long as nobody knows what became of that.
    fn write(&mut self, key: u64) {
        eventually("a put is acknowledged", || {
            self.sequence += 1;
            let value = Witness { key: Identity(key), sequence: self.sequence }.value(VALUE_BYTES);
            self.session.put(key, &value).is_ok()
        });
        write_word(&self.file, key, self.sequence);
    }

    fn write_some(&mut self, count: u64) {
        for _ in 0..count {
            let key = self.random.below(KEYS);
            self.write(key);
            std::thread::sleep(Duration::from_micros(self.random.below(5_000)));
        }
        assert_eq!(read_word(&self.file, STALE_WORD), 0, "somebody saw a value that was too old");
    }

    /// Writes until all of these have given out so many more kept values.
    fn await_hits(&mut self, keepers: &[(u64, Player)]) {
        let hits = |file: &File, number| read_word(file, words_of(number)[1]);
        let before: Vec<u64> = keepers.iter().map(|(number, _)| hits(&self.file, *number)).collect();
        eventually("kept values are given out", || {
            self.write_some(1);
            let mut all = keepers.iter().zip(&before);
            all.all(|((number, _), before)| hits(&self.file, *number) >= before + HITS)
        });
    }
}

/// Compute nodes that keep values, each a process.
struct Keepers<'k> {
    urls: &'k str,
    file: PathBuf,
    random: &'k mut SplitMix64,
    started: u64,
}

impl Keepers<'_> {
    fn start(&mut self) -> (u64, Player) {
        let number = self.started;
        let arguments = [
            ("URLS", self.urls.to_owned()),
            ("FILE", self.file.display().to_string()),
            ("NUMBER", number.to_string()),
            ("SEED", self.random.next_u64().to_string()),
        ];
        self.started += 1;
        (number, Player::start("keeper of values", &arguments))
    }
}

fn lose_memory_node(test: &str, url: impl Fn(&Directory, usize) -> farsight::ServerUrl) {
    let (mut random, directory) = (Seed::new(test).random(0), Directory::new());
    let (mut nodes, urls) = start_replicated(&directory, url);
    let table = connect(&urls).table::<u64>(TABLE).expect("the table");
    let session = table.session(Options::default()).expect("a session");
    let (mut writer, file) = Writer::new(session, &directory, &mut random);
    let lost = random.below(NODES as u64) as usize;
    println!("node {lost} is lost");
    let mut starting = Keepers { urls: &urls, file, random: &mut random, started: 0 };
    let keepers: Vec<(u64, Player)> = (0..KEEPERS).map(|_| starting.start()).collect();
    writer.await_hits(&keepers);
    nodes[lost].signal(Signal::KILL);
    nodes[lost].await_end();
    for _ in 0..3 {
        writer.await_hits(&keepers);
    }
    // Keepers go first: they hold that nodes answer.
    drop(keepers);
    drop(writer);
    for (_, mut node) in nodes.into_iter().enumerate().filter(|(node, _)| *node != lost) {
        node.signal(Signal::KILL);
        node.await_end();
    }
}

fn kill_and_stop(test: &str, url: impl Fn(&Directory, usize) -> farsight::ServerUrl) {
    let mut random = Seed::new(test).random(0);
    let pool = Pool::start(2, 16 << 20, &url);
    let urls = pool.addresses().to_string();
    let client = connect(&urls);
    let options = TableOptions { engine: Some(EngineKind::FLEXKV), ..TableOptions::default() };
    let values = ValueKind::Fixed(VALUE_BYTES as u16);
    let table = client.create_table_of::<u64>(TABLE, values, &options).expect("a table");
    let (directory, session) = (Directory::new(), table.session(Options::default()).expect("a session"));
    let (mut writer, file) = Writer::new(session, &directory, &mut random);
    let mut starting = Keepers { urls: &urls, file, random: &mut random, started: 0 };
    let mut keepers: Vec<(u64, Player)> = (0..KEEPERS).map(|_| starting.start()).collect();
    let mut unheard = 0;
    for disturbance in 0..DISTURBANCES {
        writer.await_hits(&keepers);
        let at = writer.random.below(KEEPERS) as usize;
        std::thread::sleep(Duration::from_micros(writer.random.below(20_000)));
        if disturbance % 3 == 0 {
            keepers[at].1.signal(Signal::KILL);
            keepers[at].1.await_end();
            writer.write_some(WRITES);
            keepers[at] = starting.start();
        } else {
            keepers[at].1.signal(Signal::STOP);
            let count = 1 + writer.random.below(WRITES);
            let before = writer.session.counters();
            writer.write_some(count);
            let after = writer.session.counters();
            // Who is stopped cannot let go, and holds nobody up behind its leases.
            unheard += after.closings - before.closings - (after.recalls - before.recalls);
            keepers[at].1.signal(Signal::CONT);
        }
    }
    writer.await_hits(&keepers);
    let Counters { closings, recalls, .. } = writer.session.counters();
    println!("{} writes: {closings} of kept values, of which {recalls} waited for no lease", writer.sequence);
    assert!(closings > DISTURBANCES as u64, "nobody kept what was written");
    assert!(recalls > 0, "nobody let go of {closings} values before its leases were over");
    assert!(unheard > 0, "those who were stopped have let go");
}

#[test]
fn a_memory_node_is_lost_whose_values_are_kept_over_shared_memory() {
    lose_memory_node("values are kept of a lost node, shm", over_shared_memory);
}

#[test]
fn a_memory_node_is_lost_whose_values_are_kept_over_tcp() {
    lose_memory_node("values are kept of a lost node, tcp", over_tcp);
}

#[test]
fn compute_nodes_that_keep_values_over_shared_memory() {
    kill_and_stop("compute nodes that keep values are killed, shm", over_shared_memory);
}

#[test]
fn compute_nodes_that_keep_values_over_tcp() {
    kill_and_stop("compute nodes that keep values are killed, tcp", over_tcp);
}

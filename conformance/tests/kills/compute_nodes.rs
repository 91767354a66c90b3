//! Compute nodes that write for others, killed and stopped at any moment under writers.
//!
//! What a writer was told stands: a call that was lost changes nothing that was written after its loss, even
//! if its compute node goes on much later. Nobody is held up for good.

use std::time::{Duration, Instant};

use farsight::{
    Addresses, ComputeNode, ComputeNodeOptions, EngineKind, Options, Server, ServerUrl, TableOptions,
    ValueKind, WriteError,
};
use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicBool, AtomicU64, Ordering};
use farsight_conformance::engine::Seed;
use farsight_conformance::engine::harness::{Directory, PATIENCE, eventually};
use farsight_conformance::engine::pool::{Pool, over_shared_memory, over_tcp};
use farsight_conformance::engine::processes::{Player, argument, say};
use farsight_conformance::engine::witness::Witness;
use farsight_oracles::Identity;
use rustix::process::Signal;

use crate::oracle::Oracle;
use crate::pool::{TABLE, VALUE_BYTES, connect};

/// Writers, and keys of each: few, so that a lost call's key is soon written again.
const WRITERS: u64 = 3;
const KEYS: u64 = 4;
/// Writes that each must get done behind each disturbance.
const PROGRESS: u64 = 200;
/// One operation in so many is a GET.
const GET_EVERY: u64 = 4;

/// The whole life of a compute node.
pub(crate) fn serve() {
    let pool: Addresses = argument::<String>("URLS").parse().expect("addresses");
    let listening = Server::builder().listen(argument::<ServerUrl>("URL"));
    let _serving = ComputeNode::start(listening, &pool, &ComputeNodeOptions::default()).expect("it starts");
    say("serving");
    loop {
        std::thread::park();
    }
}

/// What writers and test know of each other.
pub(crate) struct Writers {
    urls: String,
    written: Vec<AtomicU64>,
    lost: AtomicU64,
    is_over: AtomicBool,
}

impl Writers {
    /// Writers of the pool at these addresses, who have not begun.
    pub(crate) fn new(urls: &str) -> Self {
        let written = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
        let (lost, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { urls: urls.to_owned(), written, lost, is_over }
    }

    /// Lets all write while `disturb` runs, and judges what they find.
    pub(crate) fn run(&self, random: &mut SplitMix64, disturb: impl FnOnce()) {
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let random = SplitMix64::new(random.next_u64());
                scope.spawn(move || self.write(writer, random));
            }
            let disturbed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(disturb));
            self.is_over.store(true, Ordering::Relaxed);
            disturbed.expect("all writers got on");
        });
        let sum: u64 = self.written.iter().map(|written| written.load(Ordering::Relaxed)).sum();
        println!("{sum} writes, {} of unknown outcome", self.lost.load(Ordering::Relaxed));
    }

    /// The whole life of one of them.
    fn write(&self, writer: u64, mut random: SplitMix64) {
        let client = connect(&self.urls);
        let table = client.table::<u64>(TABLE).expect("the table");
        let mut session = table.session(Options::default()).expect("a session");
        let first = Identity(writer * KEYS);
        let mut oracle = Oracle::new(first, KEYS as usize, client.epoch());
        let mut sequence = 0;
        // Relaxed, here and below: counts, and a flag behind which nothing stands.
        while !self.is_over.load(Ordering::Relaxed) {
            let key = Identity(first.0 + random.below(KEYS));
            if random.below(GET_EVERY) == 0 {
                let found = session.get(key.0).expect("a GET");
                oracle.judge(key, found.as_ref().map(|entry| &entry.value[..]));
                continue;
            }
            sequence += 1;
            match session.put(key.0, &Witness { key, sequence }.value(VALUE_BYTES)) {
                Ok(_) => {
                    oracle.acknowledge(key, Some(sequence));
                    self.written[writer as usize].fetch_add(1, Ordering::Relaxed);
                }
                Err(WriteError::Indeterminate { .. }) => {
                    oracle.suspect(key, Some(sequence));
                    self.lost.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => panic!("writer {writer}: {}", farsight_base::report::with_causes(&error)),
            }
        }
        for key in (first.0..first.0 + KEYS).map(Identity) {
            let found = session.get(key.0).expect("a GET");
            oracle.judge(key, found.as_ref().map(|entry| &entry.value[..]));
        }
    }

    /// Waits until each has written so much more.
    pub(crate) fn await_progress(&self) {
        let begun = Instant::now();
        for written in &self.written {
            let before = written.load(Ordering::Relaxed);
            while written.load(Ordering::Relaxed) < before + PROGRESS {
                assert!(begun.elapsed() < PATIENCE, "a writer does not get on from {before}");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn kill_and_stop(test: &str, url: impl Fn(&Directory, usize) -> ServerUrl) {
    let mut random = Seed::new(test).random(0);
    let pool = Pool::start(2, 16 << 20, &url);
    let urls = pool.addresses().to_string();
    let client = connect(&urls);
    let options = TableOptions { engine: Some(EngineKind::FLEXKV), ..TableOptions::default() };
    let values = ValueKind::Fixed(VALUE_BYTES as u16);
    client.create_table_of::<u64>(TABLE, values, &options).expect("a table");
    let id = client.describe_table(TABLE).expect("the table").id;
    let directory = Directory::new();
    let start = |number| {
        let own = url(&directory, number).to_string();
        let mut player = Player::start("compute node", &[("URLS", urls.clone()), ("URL", own)]);
        assert_eq!(player.hear().as_deref(), Some("serving"));
        player
    };
    // Each writes for others before it is disturbed.
    let await_writes = || {
        let writes = || {
            let proxies = client.proxies(id).expect("the coordinator's word");
            proxies.iter().map(|proxy| proxy.work.writes).max().unwrap_or(0)
        };
        eventually("writes for others", || writes() > 0);
    };
    let writers = Writers::new(&urls);
    let mut pauses = SplitMix64::new(random.next_u64());
    writers.run(&mut random, || {
        let mut disturb = |number: usize, signal: Signal| {
            let mut player = start(number);
            await_writes();
            std::thread::sleep(Duration::from_micros(pauses.below(50_000)));
            player.signal(signal);
            writers.await_progress();
            if signal == Signal::STOP {
                // It goes on with the calls that it had.
                player.signal(Signal::CONT);
                writers.await_progress();
                player.signal(Signal::KILL);
            }
            player.await_end();
            writers.await_progress();
        };
        let signals = [Signal::KILL, Signal::STOP, Signal::KILL];
        signals.into_iter().enumerate().for_each(|(number, signal)| disturb(number, signal));
    });
}

#[test]
fn compute_nodes_that_serve_over_shared_memory() {
    kill_and_stop("compute nodes that serve are killed, shm", over_shared_memory);
}

#[test]
fn compute_nodes_that_serve_over_tcp() {
    kill_and_stop("compute nodes that serve are killed, tcp", over_tcp);
}

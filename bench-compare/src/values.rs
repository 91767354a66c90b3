//! Values of hundreds and thousands of bytes: Farsight's blocks beside other stores, and beside plain copies.
//!
//! Invariants: every value is read to its end and checked, for every store; a wrong one ends the run. LMDB's
//! is read where it lies in the file, the others' in the buffer to which they came. At each size all take
//! turns within a round; what is quoted is the median over the rounds of quotients within a round.
//!
//! Protocol, size by size: load every store. GETs in batches of random keys: over shared memory beside LMDB
//! and copies, in processor time of the one thread that does all the work. Over TCP beside a pipeline of
//! Redis's, in wall time. Puts in batches last, in wall time; then every key must have its last value.

mod copies;
mod report;

use std::cell::RefCell;
use std::hint::black_box;
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use ::farsight::ValueKind;
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use farsight_base::prng::SplitMix64;
use farsight_bench::dataset::{Dataset, FileOptions};
use farsight_bench::driver::{Placement, checked_value};
use farsight_bench::machine::{Machine, process_cpu_time, thread_cpu_time};
use farsight_bench::report::write_json;
use farsight_oracles::Identity;
use indicatif::{ProgressBar, ProgressStyle};

use crate::arguments::{self, ValueSizes};
use crate::document;
use crate::peers::farsight::{self, Way};
use crate::peers::{Counters, Pair, Peer, lmdb, redis};
use crate::redis::Settings as RedisSettings;
use crate::surroundings;

use copies::Copies;
use report::{ValuesComparison, ValuesContest, ValuesSeries};

/// The seed of keys and of requests.
const SEED: u64 = 1;
/// Requests drawn before: more than any cache holds the values of.
const REQUESTS: usize = 1 << 20;
/// The part of a turn that warms up before the rounds.
const WARM_UP_PART: f64 = 0.3;

/// What takes turns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    Copies,
    CheckedCopies,
    Farsight,
    FarsightTcp,
    Lmdb,
    Redis,
}

impl Name {
    fn title(self) -> &'static str {
        match self {
            Self::Copies => "memcpy",
            Self::CheckedCopies => "memcpy, checked",
            Self::Farsight => "Farsight, shared memory",
            Self::FarsightTcp => "Farsight, TCP",
            Self::Lmdb => "LMDB",
            Self::Redis => "Redis",
        }
    }

    /// What of Farsight it is compared with.
    fn rival(self) -> Option<Self> {
        match self {
            Self::Farsight | Self::FarsightTcp => None,
            Self::Copies | Self::CheckedCopies | Self::Lmdb => Some(Self::Farsight),
            Self::Redis => Some(Self::FarsightTcp),
        }
    }
}

/// What is asked, of whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ValuesWork {
    /// GETs by the client alone.
    Get,
    /// GETs over TCP.
    GetOverTcp,
    /// Puts.
    Put,
}

impl ValuesWork {
    fn title(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::GetOverTcp => "GET over TCP",
            Self::Put => "put",
        }
    }

    fn names(self) -> &'static [Name] {
        match self {
            Self::Get => &[Name::Farsight, Name::Lmdb, Name::Copies, Name::CheckedCopies],
            Self::GetOverTcp => &[Name::FarsightTcp, Name::Redis],
            Self::Put => &[Name::Farsight, Name::FarsightTcp, Name::Lmdb, Name::Redis],
        }
    }
}

pub(crate) fn run(asked: &ValueSizes) -> Result<ExitCode> {
    let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed}")?;
    let bar = ProgressBar::new_spinner().with_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    let comparison = ValuesBench { asked, bar: &bar }.run()?;
    bar.finish_and_clear();
    let text = report::markdown(&comparison);
    print!("{text}");
    if let Some(path) = &asked.document {
        document::put(path, &format!("values {}", asked.mib), &text)?;
    }
    if let Some(path) = &asked.json {
        write_json(path, &[comparison])?;
    }
    Ok(ExitCode::SUCCESS)
}

struct ValuesBench<'a> {
    asked: &'a ValueSizes,
    bar: &'a ProgressBar,
}

impl ValuesBench<'_> {
    fn run(&self) -> Result<ValuesComparison> {
        let asked = self.asked;
        let (placement, load_before) = (Placement::new(1, false)?, surroundings::load()?);
        let (mut contests, mut redis_version) = (Vec::new(), String::new());
        for bytes in &asked.sizes {
            // A thread of its own: it stays on its core, and threads that stores start later do not.
            let of_size =
                std::thread::scope(|scope| scope.spawn(|| self.size(*bytes as usize, &placement)).join());
            let of_size = of_size.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let (of_size, version) = of_size.with_context(|| format!("values of {bytes} B"))?;
            contests.extend(of_size);
            redis_version = version;
        }
        Ok(ValuesComparison {
            date: document::date(SystemTime::now()),
            command: arguments::command(),
            machine: Machine::detect(),
            redis_version,
            load_before,
            load_after: surroundings::load()?,
            mib: asked.mib,
            batch: asked.batch as usize,
            seconds: asked.seconds,
            rounds: asked.rounds as usize,
            contests,
        })
    }

    /// All works with values of one size; and Redis's version.
    fn size(&self, value_bytes: usize, placement: &Placement) -> Result<(Vec<ValuesContest>, String)> {
        let count = ((self.asked.mib << 20) as usize / value_bytes).max(1);
        let options = FileOptions { sort: false };
        let keys = Dataset::Uniform.generate(Some(count), SEED, "".as_ref(), options)?.keys;
        let directory = tempfile::Builder::new().prefix("farsight-values-").tempdir_in(&self.asked.directory);
        let directory =
            directory.with_context(|| format!("making a directory in {}", self.asked.directory.display()))?;
        let (stores, version) = self.open(&keys, value_bytes, directory.path(), placement.server_core())?;
        let copies = Copies::new(&keys, value_bytes)?;
        // Now, not before: threads that were started keep the other cores.
        placement.pin(0)?;
        let mut turns = ValuesTurns::new(&keys, value_bytes, self.asked.batch as usize, stores, copies);
        let mut contests = Vec::new();
        // In this order: no GET is measured of values that puts have changed.
        let works = ValuesWork::value_variants().iter();
        for work in works.filter(|work| self.asked.works.is_empty() || self.asked.works.contains(work)) {
            contests.push(self.contest(*work, value_bytes, &mut turns)?);
        }
        self.bar.set_message("checking");
        turns.check()?;
        Ok((contests, version))
    }

    /// Opens and loads all stores; and says Redis's version.
    fn open(
        &self,
        keys: &[u64],
        value_bytes: usize,
        directory: &Path,
        core: Option<usize>,
    ) -> Result<(Vec<LoadedStore>, String)> {
        let message = |name: Name| {
            self.bar.set_message(format!("{value_bytes} B: loading {}", name.title()));
            format!("opening {}", name.title())
        };
        let context = message(Name::Farsight);
        let farsight = || -> Result<[LoadedStore; 2]> {
            let server = farsight::FarsightServer::start(farsight::FarsightSettings { core, data: None })?;
            server.load(ValueKind::blocks(value_bytes as u32), value_bytes, keys)?;
            let server = Rc::new(RefCell::new(server));
            let remote = |way| farsight::FarsightPeer::open(Rc::clone(&server), way);
            let (memory, tcp) = (remote(Way::SharedMemory)?, remote(Way::Tcp)?);
            Ok([LoadedStore::new(Name::Farsight, 0, memory), LoadedStore::new(Name::FarsightTcp, 0, tcp)])
        };
        let mut stores: Vec<LoadedStore> = farsight().context(context)?.into();
        let context = message(Name::Lmdb);
        let lmdb =
            subdirectory(directory, "lmdb").and_then(|at| lmdb::LmdbPeer::load(&at, keys, value_bytes));
        stores.push(LoadedStore::new(Name::Lmdb, 1, lmdb.context(context)?));
        let context = message(Name::Redis);
        let redis = || -> Result<redis::RedisPeer> {
            let (program, directory) = (self.asked.redis_server.clone(), subdirectory(directory, "redis")?);
            let mut redis = redis::RedisPeer::start(RedisSettings { program, core, sync: None, directory })?;
            Counters::new(keys).load(&mut redis, value_bytes)?;
            Ok(redis)
        };
        let redis = redis().context(context)?;
        let version = redis.version().to_owned();
        stores.push(LoadedStore::new(Name::Redis, 2, redis));
        Ok((stores, version))
    }

    /// All rounds of one work.
    fn contest(
        &self,
        work: ValuesWork,
        value_bytes: usize,
        turns: &mut ValuesTurns<'_>,
    ) -> Result<ValuesContest> {
        let names = work.names();
        let series = names.iter().map(|name| ValuesSeries::new(name.title(), name.rival().map(Name::title)));
        let mut series: Vec<ValuesSeries> = series.collect();
        for round in 0..=self.asked.rounds as usize {
            for place in 0..names.len() {
                // Each round begins with another one; before the first, all warm up.
                let index = (place + round) % names.len();
                let name = names[index].title();
                self.bar.set_message(format!("{value_bytes} B, {}, round {round}: {name}", work.title()));
                let part = if round == 0 { WARM_UP_PART } else { 1.0 };
                let time = Duration::from_secs_f64(self.asked.seconds * part);
                let turn = turns.take(work, names[index], time);
                let turn = turn.with_context(|| format!("{name}, {}", work.title()))?;
                if round > 0 {
                    series[index].add(turn);
                }
            }
        }
        let (work, keys) = (work.title().to_owned(), turns.keys.len() as u64);
        Ok(ValuesContest { work, value_bytes, keys, series })
    }
}

fn subdirectory(directory: &Path, name: &str) -> Result<std::path::PathBuf> {
    let path = directory.join(name);
    std::fs::create_dir(&path).with_context(|| format!("making {}", path.display()))?;
    Ok(path)
}

/// A loaded store.
struct LoadedStore {
    name: Name,
    /// Whose counters say what it holds: two ways lead to one server.
    counters: usize,
    peer: Box<dyn Peer>,
}

impl LoadedStore {
    fn new(name: Name, counters: usize, peer: impl Peer + 'static) -> Self {
        Self { name, counters, peer: Box::new(peer) }
    }
}

/// What one turn took.
#[derive(Clone, Copy)]
struct ValuesTurn {
    operations: u64,
    /// What rates are of: wall time, or the thread's processor time where it does all the work.
    elapsed: Duration,
    /// Processor time of the client's thread and of the server.
    cpu: Duration,
}

/// Stores, and what is asked of them.
struct ValuesTurns<'a> {
    keys: &'a [u64],
    /// Keys to GET, and where each is among the keys.
    requested: Vec<u64>,
    indices: Vec<usize>,
    at: usize,
    random: SplitMix64,
    batch: Vec<Pair>,
    counters: [Counters<'a>; 3],
    stores: Vec<LoadedStore>,
    copies: Copies,
}

impl<'a> ValuesTurns<'a> {
    fn new(
        keys: &'a [u64],
        value_bytes: usize,
        batch: usize,
        stores: Vec<LoadedStore>,
        copies: Copies,
    ) -> Self {
        let mut random = SplitMix64::new(SEED + 1);
        let indices = (0..REQUESTS).map(|_| random.below(keys.len() as u64) as usize);
        let indices: Vec<usize> = indices.collect();
        Self {
            keys,
            requested: indices.iter().map(|index| keys[*index]).collect(),
            indices,
            at: 0,
            random,
            batch: vec![(0, vec![0; value_bytes]); batch],
            counters: std::array::from_fn(|_| Counters::new(keys)),
            stores,
            copies,
        }
    }

    fn take(&mut self, work: ValuesWork, name: Name, time: Duration) -> Result<ValuesTurn> {
        let store = self.stores.iter().position(|store| store.name == name);
        let server = store.and_then(|store| self.stores[store].peer.server_process_id());
        let server_cpu = |()| server.map(process_cpu_time).transpose();
        let server_cpu_before = server_cpu(())?.unwrap_or_default();
        let (mut operations, mut wall, mut cpu) = (0, Duration::ZERO, Duration::ZERO);
        // Bound: each batch takes some time.
        while wall < time {
            if let (ValuesWork::Put, Some(store)) = (work, store) {
                self.draw_puts(store);
            }
            let (begun, begun_cpu) = (Instant::now(), thread_cpu_time());
            match (work, store) {
                (ValuesWork::Put, Some(store)) => self.stores[store].peer.put(&self.batch)?,
                (_, Some(store)) => self.get(store)?,
                (_, None) => self.copy(name == Name::CheckedCopies)?,
            }
            wall += begun.elapsed();
            cpu += thread_cpu_time().saturating_sub(begun_cpu);
            operations += self.batch.len() as u64;
        }
        let elapsed = if work == ValuesWork::Get { cpu } else { wall };
        cpu += server_cpu(())?.unwrap_or_default().saturating_sub(server_cpu_before);
        Ok(ValuesTurn { operations, elapsed, cpu })
    }

    /// Makes the next batch of puts.
    fn draw_puts(&mut self, store: usize) {
        let counters = &mut self.counters[self.stores[store].counters];
        for pair in &mut self.batch {
            counters.write(self.random.below(self.keys.len() as u64) as usize, pair);
        }
    }

    /// The next requests.
    fn next_requests(&mut self) -> Range<usize> {
        let length = self.batch.len();
        if self.at + length > self.requested.len() {
            self.at = 0;
        }
        let first = self.at;
        self.at += length;
        first..self.at
    }

    /// GETs of first values.
    fn get(&mut self, store: usize) -> Result<()> {
        let batch = self.next_requests();
        let (keys, mut wrong) = (&self.requested[batch], None);
        self.stores[store].peer.get(keys, &mut |index, value| {
            if !value.is_some_and(|value| is_first(keys[index], value)) {
                wrong = Some((keys[index], value.map(<[u8]>::len)));
            }
        })?;
        ensure!(wrong.is_none(), "a wrong value (key, bytes): {wrong:?}");
        Ok(())
    }

    fn copy(&mut self, is_checked: bool) -> Result<()> {
        for at in self.next_requests() {
            let value = self.copies.copy(self.indices[at]);
            if is_checked {
                ensure!(is_first(self.requested[at], value), "a wrong copy of key {}", self.requested[at]);
            } else {
                black_box(value);
            }
        }
        Ok(())
    }

    /// An error unless every key of every store has its last value.
    fn check(&mut self) -> Result<()> {
        for LoadedStore { name, counters, peer } in &mut self.stores {
            self.counters[*counters].check(peer.as_mut()).with_context(|| name.title())?;
        }
        Ok(())
    }
}

/// Whether it is the first value of the key.
#[inline(always)]
fn is_first(key: u64, value: &[u8]) -> bool {
    checked_value::counter(Identity(key), value) == Some(0)
}

//! Durable writes: Farsight beside other stores, and beside one write and sync of the same file system.
//!
//! Invariants: every store keeps its files on the same file system. A write counts once its store has
//! acknowledged it. At the end each key must have the value that was written last, and once more after the
//! store was ended and opened again. A wrong value ends the run.
//!
//! Protocol: a store takes `depth` writes at once, and the next ones when all are acknowledged. At once are
//! one `put_many` of Farsight's, one pipeline of Redis's, one transaction of LMDB's, one batch of RocksDB's.
//! All take turns within a round; what is quoted is the median over the rounds of quotients within a round.
//! Keys are random, so that a batch may have one twice.

mod disk;
mod report;

use std::cell::RefCell;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use ::farsight::ValueKind;
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use farsight_base::prng::SplitMix64;
use farsight_bench::dataset::{Dataset, FileOptions};
use farsight_bench::driver::Placement;
use farsight_bench::histogram::LatencyHistogram;
use farsight_bench::machine::{Machine, process_cpu_time, thread_cpu_time};
use farsight_bench::report::write_json;
use indicatif::{ProgressBar, ProgressStyle};

use crate::arguments::{self, Durable};
use crate::document;
use crate::peers::farsight::{self, Acknowledged, Way};
#[cfg(feature = "rocksdb")]
use crate::peers::rocksdb;
use crate::peers::{Counters, Pair, Peer, lmdb, redis};
use crate::redis::{Settings as RedisSettings, Sync};
use crate::surroundings;

use disk::Disk;
use report::{DurableComparison, DurableContest, DurableSeries};

/// The seed of keys and of writes.
const SEED: u64 = 1;
/// The part of a turn that warms up before the rounds.
const WARM_UP_PART: f64 = 0.3;

/// Name of a store, and how it acknowledges writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DurableStore {
    Farsight,
    FarsightTcp,
    FarsightMemory,
    Lmdb,
    #[cfg(feature = "rocksdb")]
    Rocksdb,
    Redis,
    RedisEverysec,
}

impl DurableStore {
    /// The name in tables.
    fn title(self) -> &'static str {
        match self {
            Self::Farsight => "Farsight, shared memory",
            Self::FarsightTcp => "Farsight, TCP",
            Self::FarsightMemory => "Farsight, TCP, acknowledged in memory",
            Self::Lmdb => "LMDB",
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => "RocksDB",
            Self::Redis => "Redis, appendfsync always",
            Self::RedisEverysec => "Redis, appendfsync everysec",
        }
    }

    /// What of Farsight it is compared with: what is reached alike, and promises alike.
    fn rival(self) -> Option<Self> {
        match self {
            Self::Farsight | Self::FarsightTcp | Self::FarsightMemory => None,
            Self::Lmdb => Some(Self::Farsight),
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => Some(Self::Farsight),
            Self::Redis => Some(Self::FarsightTcp),
            Self::RedisEverysec => Some(Self::FarsightMemory),
        }
    }
}

/// A store with what was written to it.
struct DurableEntrant<'a> {
    name: DurableStore,
    peer: Box<dyn Peer>,
    counters: Counters<'a>,
}

pub(crate) fn run(asked: &Durable) -> Result<ExitCode> {
    let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed}")?;
    let bar = ProgressBar::new_spinner().with_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    let mut bench = DurableBench { asked, bar: &bar, redis_version: None };
    let comparison = bench.run()?;
    bar.finish_and_clear();
    let text = report::markdown(&comparison);
    print!("{text}");
    if let Some(path) = &asked.document {
        document::put(path, &format!("durable {}", asked.keys), &text)?;
    }
    if let Some(path) = &asked.json {
        write_json(path, &[comparison])?;
    }
    Ok(ExitCode::SUCCESS)
}

struct DurableBench<'a> {
    asked: &'a Durable,
    bar: &'a ProgressBar,
    /// Once a Redis has answered.
    redis_version: Option<String>,
}

impl DurableBench<'_> {
    fn run(&mut self) -> Result<DurableComparison> {
        let asked = self.asked;
        let names = if asked.stores.is_empty() { DurableStore::value_variants() } else { &asked.stores[..] };
        ensure!(!asked.sizes.is_empty() && !asked.depths.is_empty(), "nothing to measure");
        let file_system = surroundings::file_system(&asked.directory)?;
        let options = FileOptions { sort: false };
        let keys = Dataset::Uniform.generate(Some(asked.keys as usize), SEED, "".as_ref(), options)?.keys;
        let (placement, load_before) = (Placement::new(1, false)?, surroundings::load()?);
        let mut contests = Vec::new();
        for bytes in &asked.sizes {
            // A thread of its own: it stays on its core, and threads that stores start later do not.
            let of_size = std::thread::scope(|scope| {
                scope.spawn(|| self.size(*bytes as usize, names, &keys, &placement)).join()
            });
            contests.extend(of_size.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(DurableComparison {
            date: document::date(SystemTime::now()),
            command: arguments::command(),
            machine: Machine::detect(),
            file_system,
            redis_version: self.redis_version.clone(),
            load_before,
            load_after: surroundings::load()?,
            keys: keys.len() as u64,
            seconds: asked.seconds,
            rounds: asked.rounds as usize,
            contests,
        })
    }

    /// All depths with values of one size, in new stores.
    fn size(
        &mut self,
        value_bytes: usize,
        names: &[DurableStore],
        keys: &[u64],
        placement: &Placement,
    ) -> Result<Vec<DurableContest>> {
        let directory =
            tempfile::Builder::new().prefix("farsight-durable-").tempdir_in(&self.asked.directory);
        let directory =
            directory.with_context(|| format!("making a directory in {}", self.asked.directory.display()))?;
        let mut entrants = Vec::new();
        for name in names {
            self.bar.set_message(format!("loading {}", name.title()));
            let files = directory.path().join(format!("{name:?}"));
            std::fs::create_dir(&files).with_context(|| format!("making {}", files.display()))?;
            let opened = self.open(*name, &files, keys, value_bytes, placement.server_core());
            let peer = opened.with_context(|| format!("opening {}", name.title()))?;
            entrants.push(DurableEntrant { name: *name, peer, counters: Counters::new(keys) });
        }
        // Now, not before: threads that were started keep the other cores.
        placement.pin(0)?;
        let mut disks = [Disk::new(directory.path(), false)?, Disk::new(directory.path(), true)?];
        let depths = self.asked.depths.iter();
        let contests = depths.map(|depth| {
            let mut no_disks = [];
            let disks: &mut [Disk] = if *depth == 1 { &mut disks } else { &mut no_disks };
            self.contest(value_bytes, *depth as usize, keys.len(), &mut entrants, disks)
        });
        let contests = contests.collect::<Result<Vec<_>>>()?;
        for DurableEntrant { name, peer, counters } in &mut entrants {
            let name = name.title();
            self.bar.set_message(format!("checking {name}"));
            counters.check(peer.as_mut()).with_context(|| format!("{name}, before it was ended"))?;
            peer.reopen().with_context(|| format!("opening {name} again"))?;
            counters.check(peer.as_mut()).with_context(|| format!("{name}, opened again"))?;
        }
        Ok(contests)
    }

    /// Opens a store on the empty directory `files` with all keys.
    fn open(
        &mut self,
        name: DurableStore,
        files: &Path,
        keys: &[u64],
        value_bytes: usize,
        core: Option<usize>,
    ) -> Result<Box<dyn Peer>> {
        let farsight = |way, acknowledged| -> Result<Box<dyn Peer>> {
            let data = Some((files.to_owned(), acknowledged));
            let server = farsight::FarsightServer::start(farsight::FarsightSettings { core, data })?;
            server.load(ValueKind::Fixed(value_bytes as u16), value_bytes, keys)?;
            Ok(Box::new(farsight::FarsightPeer::open(Rc::new(RefCell::new(server)), way)?))
        };
        let mut redis = |sync| -> Result<Box<dyn Peer>> {
            let (program, directory) = (self.asked.redis_server.clone(), files.to_owned());
            let settings = RedisSettings { program, core, sync: Some(sync), directory };
            let mut peer = redis::RedisPeer::start(settings)?;
            self.redis_version = Some(peer.version().to_owned());
            Counters::new(keys).load(&mut peer, value_bytes)?;
            Ok(Box::new(peer))
        };
        match name {
            DurableStore::Farsight => farsight(Way::SharedMemory, Acknowledged::Durable),
            DurableStore::FarsightTcp => farsight(Way::Tcp, Acknowledged::Durable),
            DurableStore::FarsightMemory => farsight(Way::Tcp, Acknowledged::Memory),
            DurableStore::Redis => redis(Sync::Always),
            DurableStore::RedisEverysec => redis(Sync::Everysec),
            DurableStore::Lmdb => Ok(Box::new(lmdb::LmdbPeer::load(files, keys, value_bytes)?)),
            #[cfg(feature = "rocksdb")]
            DurableStore::Rocksdb => {
                let mut peer = rocksdb::RocksdbPeer::make(files)?;
                Counters::new(keys).load(&mut peer, value_bytes)?;
                Ok(Box::new(peer))
            }
        }
    }

    /// All rounds at one depth.
    fn contest(
        &self,
        value_bytes: usize,
        depth: usize,
        keys: usize,
        entrants: &mut [DurableEntrant<'_>],
        disks: &mut [Disk],
    ) -> Result<DurableContest> {
        let titles = disks.iter().map(Disk::title).chain(entrants.iter().map(|entrant| entrant.name.title()));
        let mut series: Vec<DurableSeries> = titles.map(DurableSeries::new).collect();
        for (series, entrant) in series[disks.len()..].iter_mut().zip(entrants.iter()) {
            series.beside = entrant.name.rival().map(|rival| rival.title().to_owned());
        }
        let mut random = SplitMix64::new(SEED + 1);
        let mut batch: Vec<Pair> = vec![(0, vec![0; value_bytes]); depth];
        for round in 0..=self.asked.rounds as usize {
            for place in 0..series.len() {
                // Each round begins with another one; before the first, all warm up.
                let index = (place + round) % series.len();
                let name = &series[index].name;
                self.bar.set_message(format!("{value_bytes} B, {depth} in flight, round {round}: {name}"));
                let part = if round == 0 { WARM_UP_PART } else { 1.0 };
                let time = Duration::from_secs_f64(self.asked.seconds * part);
                let turn = match index.checked_sub(disks.len()) {
                    None => disk_turn(&mut disks[index], time),
                    Some(index) => {
                        turn(&mut entrants[index], &mut batch, &mut || random.below(keys as u64), time)
                    }
                };
                let turn = turn.with_context(|| format!("{name}, {depth} in flight"))?;
                if round > 0 {
                    series[index].add(&turn);
                }
            }
        }
        Ok(DurableContest { value_bytes, depth, series })
    }
}

/// What one turn took.
struct DurableTurn {
    writes: u64,
    elapsed: Duration,
    /// Processor time of the store: of this thread and of its server.
    cpu: Duration,
    /// Of a batch, from before it was sent until all of it was acknowledged.
    latencies: LatencyHistogram,
}

/// Writes for so long, batch by batch. The clock stands while a batch is made.
fn turn(
    DurableEntrant { peer, counters, .. }: &mut DurableEntrant<'_>,
    batch: &mut [Pair],
    draw: &mut dyn FnMut() -> u64,
    time: Duration,
) -> Result<DurableTurn> {
    let server = peer.server_process_id();
    let server_cpu = server.map(process_cpu_time).transpose()?;
    let mut turn = DurableTurn::begin();
    while turn.elapsed < time {
        for pair in &mut *batch {
            counters.write(draw() as usize, pair);
        }
        turn.take(batch.len(), || peer.put(batch))?;
    }
    let server_cpu_after = server.map(process_cpu_time).transpose()?;
    turn.cpu += server_cpu_after.unwrap_or_default().saturating_sub(server_cpu.unwrap_or_default());
    Ok(turn)
}

fn disk_turn(disk: &mut Disk, time: Duration) -> Result<DurableTurn> {
    let mut turn = DurableTurn::begin();
    while turn.elapsed < time {
        turn.take(1, || disk.write())?;
    }
    Ok(turn)
}

impl DurableTurn {
    fn begin() -> Self {
        Self { writes: 0, elapsed: Duration::ZERO, cpu: Duration::ZERO, latencies: LatencyHistogram::new() }
    }

    /// Adds so many writes, which `write` does.
    fn take(&mut self, writes: usize, write: impl FnOnce() -> Result<()>) -> Result<()> {
        let (begun, begun_cpu) = (Instant::now(), thread_cpu_time());
        write()?;
        let elapsed = begun.elapsed();
        self.cpu += thread_cpu_time().saturating_sub(begun_cpu);
        self.elapsed += elapsed;
        self.writes += writes as u64;
        self.latencies.record(elapsed, 1);
        Ok(())
    }
}

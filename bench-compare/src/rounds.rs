//! The run: stores loaded, works done in rounds, the result shown and written.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use farsight::Access;
use farsight_base::prng::mix;
use farsight_bench::dataset::{Dataset, FileOptions, default_cache_directory};
use farsight_bench::driver::{
    Cancellation, LimitRegion, Load, Placement, ServerCommand, ServerSource, identities, table_keys,
};
use farsight_bench::limits::Limits;
use farsight_bench::machine::{Machine, thread_cpu_time};
use farsight_bench::report::{ComparedStore, Comparison, Rate, Work, write_json};
use farsight_bench::workload::{
    Distribution, KeySpace, Operation, OperationStream, SCAN_LENGTH_MAX, Workload, ZIPFIAN_THETA_DEFAULT,
};
use farsight_oracles::Identity;
use indicatif::{ProgressBar, ProgressStyle};

use crate::arguments;
use crate::children;
use crate::document;
use crate::store::Store;
use crate::stores::{Source, StoreName};
use crate::table;
use crate::tally::{Tally, value_of};

/// The seed of keys and operations.
const SEED: u64 = 1;
/// Keys of a synthetic set unless said otherwise.
const SYNTHETIC_KEYS: usize = 1_000_000;
/// Slots of the ring that all stores' operations of a work come from.
const SLOTS: usize = 1 << 20;
/// Works that insert, each with keys of its own.
const INSERTING_WORKS: usize = 3;
/// Inserts prepared for a second of a store's turns: five in a hundred operations, and no store does more.
const INSERTS_PER_S: f64 = 5e6;
/// The part of a turn that warms up before the rounds.
const WARM_UP_PART: f64 = 0.3;

/// A store with its name.
struct Opened {
    name: StoreName,
    store: Box<dyn Store>,
}

/// What the rounds share.
struct Bench<'a> {
    asked: &'a arguments::Comparison,
    space: Arc<KeySpace>,
    /// The keys of the space that are loaded.
    keys: Vec<u64>,
    bar: ProgressBar,
}

pub(crate) fn run(asked: &arguments::Comparison) -> Result<ExitCode> {
    let dataset = Dataset::parse(&asked.dataset)?;
    let keys = keys(&dataset, asked.keys)?;
    let turns_s = asked.seconds * (asked.rounds as f64 + WARM_UP_PART) * INSERTING_WORKS as f64;
    let space = Arc::new(KeySpace::with_inserts(identities(keys), (turns_s * INSERTS_PER_S) as usize, SEED)?);
    let keys = table_keys(space.loaded());
    let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed}")?;
    let bench = Bench { asked, space, keys, bar: ProgressBar::new_spinner().with_style(style) };
    bench.bar.enable_steady_tick(Duration::from_millis(200));
    let comparison = bench.run(&dataset)?;
    bench.bar.finish_and_clear();
    let text = table::markdown(&comparison);
    print!("{text}");
    if let Some(path) = &asked.document {
        document::put(path, &format!("{} {}", comparison.dataset, comparison.keys), &text)?;
    }
    if let Some(path) = &asked.json {
        write_json(path, &[comparison])?;
    }
    Ok(ExitCode::SUCCESS)
}

fn keys(dataset: &Dataset, asked: Option<u64>) -> Result<Vec<u64>> {
    let is_real = dataset.is_fetched() || matches!(dataset, Dataset::Boundaries | Dataset::File(_));
    let count = asked.map(|keys| keys as usize).or((!is_real).then_some(SYNTHETIC_KEYS));
    let directory = if dataset.is_fetched() { default_cache_directory()? } else { PathBuf::new() };
    Ok(dataset.generate(count, SEED, &directory, FileOptions { sort: false })?.keys)
}

impl Bench<'_> {
    fn run(&self, dataset: &Dataset) -> Result<Comparison> {
        let names: Vec<StoreName> =
            if self.asked.stores.is_empty() { StoreName::all().to_vec() } else { self.asked.stores.clone() };
        ensure!(
            names[0] == StoreName::Farsight,
            "the first store is farsight: it is what others are compared with"
        );
        let files = tempfile::Builder::new()
            .prefix("farsight-compare-")
            .tempdir_in(&self.asked.directory)
            .with_context(|| format!("making a directory in {}", self.asked.directory.display()))?;
        let placement = Placement::new(1, false)?;
        let keys = &self.keys;
        self.bar.set_message("loading Farsight");
        let load = self.load(&placement)?;
        let mut stores = self.open(&names, &load, files.path())?;
        let machine = Machine { huge_page_bytes_mapped: load.report().huge_page_bytes, ..Machine::detect() };
        // Now, not before: threads that a store has started keep the other cores.
        placement.pin(0)?;
        self.bar.set_message("measuring the machine's limits");
        let limits = limits(keys)?;
        let mut rates: Vec<Vec<Rate>> = names.iter().map(|_| Vec::new()).collect();
        for work in Work::ALL {
            self.work(work, &mut stores, &mut rates)?;
        }
        let results = stores.iter().zip(rates).map(|(Opened { name, store }, rates)| ComparedStore {
            name: name.title().to_owned(),
            note: name.note().to_owned(),
            is_batched: name.is_batched(),
            client_bytes_per_key: store.client_bytes().map(|bytes| bytes as f64 / keys.len() as f64),
            rates,
        });
        Ok(Comparison {
            date: document::date(std::time::SystemTime::now()),
            command: arguments::command(),
            machine,
            dataset: dataset.name(),
            keys: keys.len() as u64,
            batch: self.asked.batch as usize,
            seconds: self.asked.seconds,
            rounds: self.asked.rounds as usize,
            random_read_limit_per_s: limits.random_reads_per_s,
            shape_limit_per_s: limits.shape_walks_per_s,
            stores: results.collect(),
        })
    }

    fn load(&self, placement: &Placement) -> Result<Load> {
        let program = std::env::current_exe().context("finding this program's own file")?;
        let mut arguments = vec!["server".to_owned()];
        if let Some(core) = placement.server_core() {
            arguments.extend(["--core".to_owned(), core.to_string()]);
        }
        let source = ServerSource::Start(ServerCommand { program, arguments, network: None, data: None });
        let loading = children::loading(Access::OneSided);
        Ok(Load::new(&source, loading, self.space.loaded(), 1, &Cancellation::default())?)
    }

    fn open(&self, names: &[StoreName], load: &Load, directory: &Path) -> Result<Vec<Opened>> {
        let source = Source { keys: &self.keys, directory, farsight: load };
        let open = |name: &StoreName| {
            self.bar.set_message(format!("loading {}", name.title()));
            Ok(Opened { name: *name, store: name.open(&source)? })
        };
        names.iter().map(open).collect()
    }

    /// All rounds of one work: complete ones only, if the keys to insert run out.
    fn work(&self, work: Work, stores: &mut [Opened], rates: &mut [Vec<Rate>]) -> Result<()> {
        let stream = self.stream(work)?;
        let takes_part: Vec<bool> = stores.iter().map(|opened| opened.name.does(work)).collect();
        let mut turns: Vec<Turns<'_>> =
            stores.iter().map(|_| Turns::new(work, &stream, &self.keys)).collect();
        for (index, opened) in stores.iter_mut().enumerate().filter(|(index, _)| takes_part[*index]) {
            self.bar.set_message(format!("{}, warming up: {}", work.title(), opened.name.title()));
            turns[index].take(opened, self.asked, WARM_UP_PART)?;
        }
        let mut runs: Vec<Vec<f64>> = stores.iter().map(|_| Vec::new()).collect();
        'rounds: for round in 0..self.asked.rounds as usize {
            let mut of_round = vec![None; stores.len()];
            for place in 0..stores.len() {
                // Each round begins with another store.
                let index = (place + round) % stores.len();
                if !takes_part[index] {
                    continue;
                }
                let name = stores[index].name.title();
                self.bar.set_message(format!(
                    "{}, round {} of {}: {name}",
                    work.title(),
                    round + 1,
                    self.asked.rounds
                ));
                match turns[index].take(&mut stores[index], self.asked, 1.0)? {
                    Some(rate) => of_round[index] = Some(rate),
                    None => break 'rounds,
                }
            }
            for (runs, rate) in runs.iter_mut().zip(of_round) {
                runs.extend(rate);
            }
        }
        for (rates, runs) in rates.iter_mut().zip(runs).filter(|(_, runs)| !runs.is_empty()) {
            rates.push(Rate::of_runs(work, runs));
        }
        Ok(())
    }

    fn stream(&self, work: Work) -> Result<OperationStream> {
        let zipfian = Distribution::Zipfian { theta: ZIPFIAN_THETA_DEFAULT };
        let latest = Distribution::Latest { theta: ZIPFIAN_THETA_DEFAULT };
        let (workload, distribution, share) = match work {
            Work::GetUniform | Work::SingleUniform | Work::Scan => (Workload::C, Distribution::Uniform, 0),
            Work::GetZipfian | Work::SingleZipfian => (Workload::C, zipfian, 0),
            Work::A => (Workload::A, zipfian, 0),
            Work::B => (Workload::B, zipfian, 0),
            Work::F => (Workload::F, zipfian, 0),
            Work::InsertFivePercent => (Workload::D, Distribution::Uniform, 0),
            Work::D => (Workload::D, latest, 1),
            Work::E => (Workload::E, zipfian, 2),
        };
        let place = (share, INSERTING_WORKS);
        Ok(OperationStream::new(workload, distribution, &self.space, place, SLOTS, SEED)?)
    }
}

fn limits(keys: &[u64]) -> Result<Limits> {
    Ok(LimitRegion::new(keys.len() as u64, children::VALUES)?.arrays(keys).measure())
}

/// One store's turns at one work, and what its operations are sorted into.
struct Turns<'a> {
    work: Work,
    stream: OperationStream,
    tally: Tally<'a>,
    batch: Vec<Operation>,
    reads: Vec<u64>,
    scans: Vec<(u64, usize)>,
    modifies: Vec<u64>,
    inserts: Vec<(u64, u64)>,
    updates: Vec<(u64, u64)>,
    counter: u32,
}

impl<'a> Turns<'a> {
    fn new(work: Work, stream: &OperationStream, keys: &'a [u64]) -> Self {
        Self {
            work,
            stream: stream.clone(),
            tally: Tally::new(keys),
            batch: Vec::new(),
            reads: Vec::new(),
            scans: Vec::new(),
            modifies: Vec::new(),
            inserts: Vec::new(),
            updates: Vec::new(),
            counter: 0,
        }
    }

    /// One turn of `part` of the time asked. Operations a second; `None` once the keys to insert are spent.
    fn take(&mut self, opened: &mut Opened, asked: &arguments::Comparison, part: f64) -> Result<Option<f64>> {
        let time = Duration::from_secs_f64(asked.seconds * part);
        let mut operations = 0;
        let (begun, begun_cpu) = (Instant::now(), thread_cpu_time());
        let elapsed = loop {
            if self.stream.fill(&mut self.batch, asked.batch as usize).is_err() {
                return Ok(None);
            }
            self.sort();
            self.execute(opened.store.as_mut())
                .with_context(|| format!("{}, work {}", opened.name.title(), self.work.title()))?;
            operations += self.batch.len();
            let elapsed = begun.elapsed();
            if elapsed >= time {
                break elapsed;
            }
        };
        let Tally { wrong, first_wrong, .. } = &self.tally;
        let (name, work) = (opened.name.title(), self.work.title());
        ensure!(*wrong == 0, "{name}, work {work}: {wrong} wrong answers; the first: {first_wrong}");
        // A reader does all the work itself, whatever the store. Its processor time is the cost, and a
        // neighbour that takes the core does not count. A writer may wait for a server.
        let cost =
            if self.work.is_read_only() { thread_cpu_time().saturating_sub(begun_cpu) } else { elapsed };
        Ok(Some(operations as f64 / cost.as_secs_f64().max(1e-9)))
    }

    fn sort(&mut self) {
        self.reads.clear();
        self.scans.clear();
        self.modifies.clear();
        self.inserts.clear();
        self.updates.clear();
        for operation in &self.batch {
            match *operation {
                Operation::Read { key: Identity(key) } if self.work == Work::Scan => {
                    self.scans.push((key, 1 + (mix(key) % u64::from(SCAN_LENGTH_MAX)) as usize));
                }
                Operation::Read { key: Identity(key) } => self.reads.push(key),
                Operation::Scan { key: Identity(key), length } => self.scans.push((key, usize::from(length))),
                Operation::ReadModifyWrite { key: Identity(key) } => self.modifies.push(key),
                Operation::Insert { key: Identity(key) } => self.inserts.push((key, value_of(key, 0))),
                Operation::Update { key: Identity(key) } => {
                    self.counter = self.counter.wrapping_add(1);
                    self.updates.push((key, value_of(key, self.counter)));
                }
            }
        }
    }

    /// Kind by kind, inserts first: the latest keys are read in the batch that inserts them.
    fn execute(&mut self, store: &mut dyn Store) -> Result<()> {
        if !self.inserts.is_empty() {
            store.put(&self.inserts)?;
        }
        if matches!(self.work, Work::SingleUniform | Work::SingleZipfian) {
            store.get_each(&self.reads, &mut self.tally)?;
        } else if !self.reads.is_empty() {
            store.get_batch(&self.reads, &mut self.tally)?;
        }
        if !self.scans.is_empty() {
            store.scan(&self.scans, &mut self.tally)?;
        }
        if !self.modifies.is_empty() {
            store.get_batch(&self.modifies, &mut self.tally)?;
            self.counter = self.counter.wrapping_add(1);
            let counter = self.counter;
            self.updates.extend(self.modifies.iter().map(|key| (*key, value_of(*key, counter))));
        }
        if !self.updates.is_empty() {
            store.put(&self.updates)?;
        }
        Ok(())
    }
}

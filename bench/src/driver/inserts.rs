//! Inserts at full speed, and what they cost those who read meanwhile.
//!
//! Invariants: every insert must find its key absent and every read its key present, or there is no result.
//! Nothing is done between two phases, so the table only grows.
//!
//! Protocol: first a writer alone. Then, in [`ROUNDS`] rounds, three phases in turn: a reader alone; the same
//! reader *beside* a writer that works on another table of the same server; *both* on one table. What the
//! second takes longer than the first is the machine's doing. Memory, caches and cores are shared, but there
//! is nothing to wait for, nothing to be out of date. What the third takes longer than the second is what
//! reading a table costs because it is written. Each phase begins with the models trained and the reader's
//! cache fresh.
//!
//! Each thread counts what it does, and every [`SAMPLE_INTERVAL`] the counts and the server's statistics
//! become a sample: rates over time, sub-models retrained, and how far training lags.
//!
//! A reader's batch is timed by the wall and by its own processor time. The latter is what the reader itself
//! had to do, retries included; the former includes the waits for a core that others use. On two cores the
//! writer shares the server's when there is a reader, so that the reader has one to itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight::{Access, Client, PartStats, Session, Table, WriteOutcome};
use farsight_base::sync::{AtomicBool, AtomicU64, Ordering};
use farsight_layout::Geometry;
use farsight_oracles::{Embedding as _, Identity};

use super::executor::{WrongAnswers, check_read};
use super::load::{Load, LoadReport, Loading};
use super::store::{PLAIN, identities};
use super::{Age, Cancellation, DriverError, Placement, SEED, ServerSource, Values, checked_value};
use crate::histogram::LatencyHistogram;
use crate::machine::{Machine, thread_cpu_time};
use crate::report::{InsertPhase, InsertRecord, InsertSample, InsertSetting};
use crate::workload::{
    Distribution, InsertSupply, KeySpace, Operation, OperationStream, SLOTS_DEFAULT, Workload, WorkloadError,
};

/// Time between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Inserts prepared for a second: more than one thread can send.
const INSERTS_PER_S_MAX: f64 = 8e6;
/// Inserts a second for which the server has memory, alone and beside a reader: as many as have been seen.
/// Those in a row come faster, and fill their leaves better.
const ALONE_PER_S: f64 = 4.5e6;
const BESIDE_PER_S: f64 = 2.5e6;
/// Pairs of a leaf after many splits anywhere: ln 2 of its slots.
const SPLIT_LEAF_PAIRS: f64 = 11.0;
/// Phases that insert into one table.
const INSERTING_PHASES: f64 = 2.0;
/// Rounds of the phases with a reader, which share their time.
const ROUNDS: usize = 3;
/// Keys of a reader's batch.
const READ_BATCH: usize = 64;

/// In which order new keys come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InsertOrder {
    /// Anywhere between the loaded keys.
    Random,
    /// Between the loaded keys, from the least on.
    Ascending,
    /// Above the greatest key, ascending.
    Append,
}

impl InsertOrder {
    /// The name under which results show it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Ascending => "ascending",
            Self::Append => "append",
        }
    }
}

/// What to run.
#[derive(Debug, Clone)]
pub struct InsertPlan {
    /// The order of the new keys.
    pub order: InsertOrder,
    /// The name under which results show the keys.
    pub dataset: String,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Inserts that the writer hands over together.
    pub batch: usize,
    /// Time of a phase, of all rounds together.
    pub seconds: f64,
}

/// What a plan gave.
#[derive(Debug)]
pub struct InsertOutcome {
    /// The phases.
    pub record: InsertRecord,
    /// The load.
    pub load: LoadReport,
    /// Operations whose answers were checked, all of them right.
    pub operations_checked: u64,
}

/// What the threads of a phase count, for samples.
#[derive(Default)]
struct Progress {
    inserts: AtomicU64,
    gets: AtomicU64,
    is_over: AtomicBool,
}

/// What a reader of one phase found.
#[derive(Default)]
struct Reads {
    wall: LatencyHistogram,
    processor: LatencyHistogram,
    read_verbs: u64,
    fallbacks: u64,
}

impl InsertPlan {
    /// Loads `keys`, which are ascending and distinct, and runs the phases.
    ///
    /// # Errors
    /// [`DriverError`]; the server that was started for this has ended then, too.
    pub fn run(
        &self,
        keys: Vec<u64>,
        source: &ServerSource,
        placement: &Placement,
        cancellation: &Cancellation,
    ) -> Result<InsertOutcome, DriverError> {
        if let ServerSource::Connect(_, url, options) = source {
            // What training does is asked of a server: a pool is refused before anything is loaded.
            Client::connect_with(url, options)?.stats()?;
        }
        let key_count = keys.len() as u64;
        let (source, prefaulted_bytes) = &self.with_memory(source, key_count);
        let (space, inserts) = self.new_keys(identities(keys))?;
        let (access, age) = (Access::OneSided, Age::Fresh);
        let values = Values::fixed(self.value_bytes);
        let loading = Loading { values, access, age, cache_bytes: None, value_cache_bytes: None };
        let load = Load::new(source, loading, space.loaded(), 1, cancellation)?;
        let bench = Bench { plan: self, load: &load, placement, cancellation };
        let inserts: Arc<[Identity]> = inserts.into();
        let mut reader = bench.reader(&space)?;
        let mut writer = bench.writer(&load.table, &inserts)?;
        let mut phases = vec![bench.phase("insert", self.seconds, None, Some(&mut writer))?];
        let beside = load.another(space.loaded(), cancellation)?;
        let mut elsewhere = bench.writer(&beside, &inserts)?;
        let round_s = self.seconds / ROUNDS as f64;
        for _ in 0..ROUNDS {
            phases.push(bench.phase("read", round_s, Some(&mut reader), None)?);
            phases.push(bench.phase("beside", round_s, Some(&mut reader), Some(&mut elsewhere))?);
            phases.push(bench.phase("both", round_s, Some(&mut reader), Some(&mut writer))?);
        }
        let machine = Machine { huge_page_bytes_mapped: load.report().huge_page_bytes, ..Machine::detect() };
        let setting = InsertSetting {
            order: self.order.name().to_owned(),
            dataset: self.dataset.clone(),
            keys: key_count,
            value_size: self.value_bytes as u32,
            batch: self.batch,
            seconds: self.seconds,
            prefaulted_bytes: *prefaulted_bytes,
        };
        Ok(InsertOutcome {
            record: InsertRecord { setting, phases, machine },
            load: load.report(),
            operations_checked: reader.operations + writer.operations + elsewhere.operations,
        })
    }

    /// The source, whose server takes memory for both tables at its start if it is started here, and so many
    /// bytes of it. Memory that a virtual machine's host has to find first would make the rate of inserts one
    /// of that.
    fn with_memory(&self, source: &ServerSource, key_count: u64) -> (ServerSource, u64) {
        let ServerSource::Start(command) = source else { return (source.clone(), 0) };
        let geometry = Geometry::new(self.value_bytes).expect("a size that the format knows");
        let leaf_bytes = geometry.leaf_words() as f64 * 8.0;
        let bytes_with = |inserts_per_s: f64| {
            let pairs = key_count as f64 + self.seconds * inserts_per_s;
            (pairs / SPLIT_LEAF_PAIRS * leaf_bytes) as u64
        };
        let sizes = [bytes_with(ALONE_PER_S + BESIDE_PER_S), bytes_with(BESIDE_PER_S)];
        let mut command = command.clone();
        command.arguments.extend(sizes.iter().map(|bytes| format!("--prefault={bytes}")));
        (ServerSource::Start(command), sizes.iter().sum())
    }

    /// The keys to load, and the new ones in their order.
    fn new_keys(&self, keys: Vec<Identity>) -> Result<(Arc<KeySpace>, Vec<Identity>), DriverError> {
        let wanted = (self.seconds * INSERTING_PHASES * INSERTS_PER_S_MAX) as usize;
        let greatest = keys.last().copied().unwrap_or_default();
        let gap_keys = if self.order == InsertOrder::Append { 0 } else { wanted };
        let space = KeySpace::split(keys, InsertSupply { held_back: 0, gap_keys }, SEED)?;
        let mut inserts = space.inserts().to_vec();
        match self.order {
            InsertOrder::Random => {}
            InsertOrder::Ascending => inserts.sort_unstable(),
            InsertOrder::Append => {
                let room = u64::MAX - greatest.0;
                if room < wanted as u64 {
                    let error = WorkloadError::GapsTooNarrow { found: room as usize, asked: wanted };
                    return Err(error.into());
                }
                let step = (room / wanted as u64).min(1 << 20);
                inserts.extend((1..=wanted as u64).map(|number| greatest.behind(number * step)));
            }
        }
        Ok((Arc::new(space), inserts))
    }
}

/// A plan under way.
struct Bench<'a> {
    plan: &'a InsertPlan,
    load: &'a Load,
    placement: &'a Placement,
    cancellation: &'a Cancellation,
}

impl Bench<'_> {
    fn reader(&self, space: &Arc<KeySpace>) -> Result<Reader, DriverError> {
        let uniform = Distribution::Uniform;
        let stream = OperationStream::new(Workload::C, uniform, space, (0, 1), SLOTS_DEFAULT, SEED)?;
        Ok(Reader {
            session: self.load.table.session(self.load.options)?,
            stream,
            batch: Vec::new(),
            keys: Vec::new(),
            operations: 0,
        })
    }

    fn writer(&self, table: &Table<u64>, keys: &Arc<[Identity]>) -> Result<Writer, DriverError> {
        let mut session = table.session(self.load.options)?;
        session.prefill()?;
        Ok(Writer {
            table: table.clone(),
            session,
            keys: Arc::clone(keys),
            batch: self.plan.batch,
            value_bytes: self.plan.value_bytes,
            values: Vec::new(),
            outcomes: Vec::new(),
            operations: 0,
        })
    }

    fn part_stats(&self, table: &Table<u64>) -> Result<PartStats, DriverError> {
        let name = table.name();
        let tables = self.load.client.stats()?.tables;
        let own = tables.iter().find(|table| table.info.definition.name == name);
        Ok(*own.expect("this run's table").part())
    }

    /// One phase of so many seconds: the threads run, this one samples.
    fn phase(
        &self,
        name: &'static str,
        seconds: f64,
        mut reader: Option<&mut Reader>,
        writer: Option<&mut Writer>,
    ) -> Result<InsertPhase, DriverError> {
        let progress = Progress::default();
        let written = writer.as_ref().map_or(&self.load.table, |writer| &writer.table).clone();
        self.load.rest(&written, self.cancellation)?;
        if let Some(reader) = &mut reader {
            reader.session.prefill()?;
        }
        let before = self.part_stats(&written)?;
        let server_cpu = self.load.server_cpu_time()?;
        let begun = Instant::now();
        let (samples, reads) = std::thread::scope(|scope| {
            let progress = &progress;
            // With two cores it is the writer who shares the server's, not the reader.
            let (writers, readers) = if self.placement.core_count() == 2 { (1, 0) } else { (0, 1) };
            let writers = if reader.is_some() { writers } else { 0 };
            let writing = writer.map(|writer| {
                scope.spawn(move || {
                    self.placement.pin(writers)?;
                    writer.run(progress)
                })
            });
            let reading = reader.map(|reader| {
                scope.spawn(move || {
                    self.placement.pin(readers)?;
                    reader.run(progress)
                })
            });
            let samples = self.sample(seconds, begun, (&written, &before), progress);
            // Relaxed: the flag publishes nothing but itself.
            progress.is_over.store(true, Ordering::Relaxed);
            let written = writing.map(|thread| thread.join().expect("the writer does not panic"));
            let read = reading.map(|thread| thread.join().expect("the reader does not panic"));
            written.transpose()?;
            Ok::<_, DriverError>((samples?, read.transpose()?.unwrap_or_default()))
        })?;
        self.cancellation.check()?;
        let elapsed_s = begun.elapsed().as_secs_f64();
        let server_cpu = self.load.server_cpu_time()?.saturating_sub(server_cpu);
        let gets = reads.wall.operations();
        let a_get = |count: u64| if gets == 0 { 0.0 } else { count as f64 / gets as f64 };
        let after = self.part_stats(&written)?;
        Ok(InsertPhase {
            phase: name.to_owned(),
            inserts_per_s: progress.inserts.load(Ordering::Relaxed) as f64 / elapsed_s,
            gets_per_s: gets as f64 / elapsed_s,
            get_latency_ns: reads.wall.quantiles(),
            get_processor_ns: reads.processor.quantiles(),
            reads_per_get: a_get(reads.read_verbs),
            fallbacks_per_get: a_get(reads.fallbacks),
            server_cpu_fraction: server_cpu.as_secs_f64() / elapsed_s,
            training_cpu_fraction: (after.model.training_s - before.model.training_s) / elapsed_s,
            splits: after.tree.splits - before.tree.splits,
            hint_hits: after.tree.hint_hits - before.tree.hint_hits,
            descents: after.tree.descents - before.tree.descents,
            lag_ns_max: samples.iter().map(|sample| sample.lag_ns).max().unwrap_or(0),
            pending_max: samples.iter().map(|sample| sample.pending).max().unwrap_or(0),
            samples,
        })
    }

    fn sample(
        &self,
        seconds: f64,
        begun: Instant,
        (written, before): (&Table<u64>, &PartStats),
        progress: &Progress,
    ) -> Result<Vec<InsertSample>, DriverError> {
        let mut samples: Vec<InsertSample> = Vec::new();
        let (mut last_s, mut inserts, mut gets) = (0.0, 0, 0);
        let mut model = before.model;
        while last_s < seconds {
            self.cancellation.check()?;
            std::thread::sleep(SAMPLE_INTERVAL);
            // Relaxed: counts of about one moment.
            let inserts_now = progress.inserts.load(Ordering::Relaxed);
            let gets_now = progress.gets.load(Ordering::Relaxed);
            let at_s = begun.elapsed().as_secs_f64();
            let stats = self.part_stats(written)?;
            let elapsed_s = at_s - last_s;
            samples.push(InsertSample {
                at_s,
                inserts_per_s: (inserts_now - inserts) as f64 / elapsed_s,
                gets_per_s: (gets_now - gets) as f64 / elapsed_s,
                // A whole training begins its count anew.
                retrained: stats
                    .model
                    .retrained
                    .checked_sub(model.retrained)
                    .unwrap_or(stats.model.retrained),
                generation: stats.model.generation,
                pending: stats.model.pending,
                lag_ns: stats.model.lag_ns,
                pairs: stats.tree.pairs,
            });
            (last_s, inserts, gets, model) = (at_s, inserts_now, gets_now, stats.model);
            // Relaxed: as above. A writer without keys, or a thread with an error, ends the phase.
            if progress.is_over.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(samples)
    }
}

/// Reads loaded keys, all alike popular.
struct Reader {
    session: Session<u64>,
    stream: OperationStream,
    batch: Vec<Operation>,
    keys: Vec<u64>,
    operations: u64,
}

impl Reader {
    fn run(&mut self, progress: &Progress) -> Result<Reads, DriverError> {
        let (meters, counters) = (self.session.meters(), self.session.counters());
        let mut found = Reads::default();
        let mut answers = farsight::Answers::default();
        let mut wrong = WrongAnswers::default();
        // Relaxed: the flag publishes nothing but itself.
        while !progress.is_over.load(Ordering::Relaxed) {
            self.stream.fill(&mut self.batch, READ_BATCH)?;
            self.keys.clear();
            self.keys.extend(self.batch.iter().map(|operation| match operation {
                Operation::Read { key } => PLAIN.key(*key),
                other => unreachable!("{other:?} in a stream of reads"),
            }));
            let (wall, processor) = (Instant::now(), thread_cpu_time());
            self.session.multi_get(&self.keys, &mut answers)?;
            let (processor, wall) = (thread_cpu_time().saturating_sub(processor), wall.elapsed());
            for (index, key) in self.keys.iter().enumerate() {
                let key = PLAIN.identity(key).expect("each eight bytes are a key");
                check_read(key, answers.get(index), &mut wrong);
            }
            let count = self.keys.len() as u64;
            found.wall.record(wall, count);
            found.processor.record(processor, count);
            progress.gets.fetch_add(count, Ordering::Relaxed);
        }
        found.read_verbs = (self.session.meters() - meters).reads;
        found.fallbacks = self.session.counters().fallbacks - counters.fallbacks;
        self.operations += found.wall.operations();
        wrong.into_result("inserts", found.wall.operations()).map(|()| found)
    }
}

/// Inserts new keys, each once.
struct Writer {
    table: Table<u64>,
    session: Session<u64>,
    /// New keys; those before `operations` are stored.
    keys: Arc<[Identity]>,
    batch: usize,
    value_bytes: usize,
    /// The values of a batch, one after the other.
    values: Vec<u8>,
    outcomes: Vec<WriteOutcome>,
    operations: u64,
}

impl Writer {
    fn run(&mut self, progress: &Progress) -> Result<(), DriverError> {
        let mut wrong = WrongAnswers::default();
        let mut done = Ok(());
        // Relaxed: the flag publishes nothing but itself.
        while done.is_ok() && !progress.is_over.load(Ordering::Relaxed) {
            let keys = &self.keys[self.operations as usize..];
            let keys = &keys[..keys.len().min(self.batch)];
            if keys.is_empty() {
                break;
            }
            self.values.resize(keys.len() * self.value_bytes, 0);
            for (key, value) in keys.iter().zip(self.values.chunks_exact_mut(self.value_bytes)) {
                checked_value::write(*key, 0, value);
            }
            let values = self.values.chunks_exact(self.value_bytes);
            let pairs: Vec<(u64, &[u8])> = keys.iter().map(|key| PLAIN.key(*key)).zip(values).collect();
            done = self.session.insert_many(&pairs, &mut self.outcomes);
            for (key, outcome) in keys.iter().zip(&self.outcomes) {
                if !matches!(outcome, WriteOutcome::Inserted(_)) {
                    wrong.note(format!("the insert of key {key} gave {outcome:?}"));
                }
            }
            let count = keys.len() as u64;
            self.operations += count;
            progress.inserts.fetch_add(count, Ordering::Relaxed);
        }
        progress.is_over.store(true, Ordering::Relaxed);
        done?;
        wrong.into_result("inserts", self.operations)
    }
}

//! How long a server takes to come back that was killed, beside a plain read of its files.
//!
//! Invariants:
//! - Every start is checked: a sample of the keys has the values that were written last.
//! - The files are those that the server itself has written, and nothing changes them between two starts.
//!
//! Protocol: a server starts in a new directory. In three stages it is killed and started again, several
//! times in each. It is *empty*, then *loaded* with a table whose pairs stand in a snapshot. It is *logged*
//! once as many bytes of the log hold updates of random keys, of which no snapshot knows. What the second
//! stage takes longer than the first is the snapshot's. What the third takes longer than the second is the
//! log's. Beside each, one thread reads the same files and computes a checksum of them, in the same run.
//!
//! The server has all cores. Files were written a moment ago, so the system reads them from its memory.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, Instant};

use farsight::{Addresses, Answers, Client, ConnectOptions, Options, Session, TableOptions};
use farsight_base::prng::SplitMix64;
use farsight_oracles::{Embedding as _, Identity};

use super::checked_value::{self, CheckedValue};
use super::executor::WrongAnswers;
use super::load::rest;
use super::server_process::ServerProcess;
use super::store::{PLAIN, identities};
use super::{Age, Cancellation, DriverError, SEED, ServerCommand, Values, spinner};
use crate::machine::{Machine, process_cpu_time};
use crate::report::{RecoveryRecord, RecoverySetting, RecoveryStage, RecoveryStart};

/// The table.
const TABLE: &str = "recovery";
/// Updates between two looks at how much log there is.
const UPDATES_BETWEEN_LOOKS: usize = 1 << 16;
/// Keys whose values are checked after a start.
const CHECKED_KEYS: usize = 1 << 16;
/// Keys of a batch that checks them.
const CHECKED_BATCH: usize = 64;
/// Bytes that a plain read takes at once.
const READ_BYTES: usize = 1 << 20;

/// What to run.
#[derive(Debug, Clone)]
pub struct RecoveryPlan {
    /// The name under which results show the keys.
    pub dataset: String,
    /// What the table's values are.
    pub values: Values,
    /// Bytes of log to replay, at least.
    pub log_bytes: u64,
    /// Updates that are handed over together.
    pub batch: usize,
    /// Starts of each stage.
    pub runs: usize,
}

impl RecoveryPlan {
    /// Loads `keys`, which are ascending and distinct, and runs the stages.
    ///
    /// # Errors
    /// [`DriverError`]; the server has ended then, too.
    pub fn run(
        &self,
        keys: Vec<u64>,
        command: &ServerCommand,
        cancellation: &Cancellation,
    ) -> Result<RecoveryRecord, DriverError> {
        let keys = identities(keys);
        let server = ServerProcess::start(command, None)?;
        let counters = vec![0; keys.len()];
        let mut bench = RecoveryBench { plan: self, command, cancellation, server, keys, counters };
        let mut stages = vec![bench.stage("empty", 0)?];
        bench.load()?;
        stages.push(bench.stage("loaded", 0)?);
        let updates = bench.update()?;
        stages.push(bench.stage("logged", updates)?);
        let setting = RecoverySetting {
            dataset: self.dataset.clone(),
            keys: bench.keys.len() as u64,
            values: self.values.name().to_owned(),
            value_size: self.values.most_bytes() as u32,
            batch: self.batch,
        };
        Ok(RecoveryRecord { setting, stages, machine: Machine::detect() })
    }
}

/// A plan under way.
struct RecoveryBench<'a> {
    plan: &'a RecoveryPlan,
    command: &'a ServerCommand,
    cancellation: &'a Cancellation,
    server: ServerProcess,
    keys: Vec<Identity>,
    /// What the value of each key counts.
    counters: Vec<u32>,
}

impl RecoveryBench<'_> {
    fn connect(&self) -> Result<Client, DriverError> {
        let options = ConnectOptions { reconnect_timeout: Duration::ZERO, ..ConnectOptions::default() };
        Ok(Client::connect_with(Addresses::new(vec![self.server.url().clone()]), &options)?)
    }

    fn load(&self) -> Result<(), DriverError> {
        let client = self.connect()?;
        let kind = self.plan.values.kind();
        let table = client.create_table_of::<u64>(TABLE, kind, &TableOptions::default())?;
        let _bar = spinner("loading".to_owned());
        Age::Fresh.fill((&table, self.plan.values), Options::default(), &self.keys, self.cancellation)
    }

    /// Updates random keys until the log is as long as it shall be. Returns their number.
    fn update(&mut self) -> Result<u64, DriverError> {
        let client = self.connect()?;
        let mut session = client.table::<u64>(TABLE)?.session(Options::default())?;
        let mut random = SplitMix64::new(SEED);
        let batch = self.plan.batch;
        let mut pairs = vec![(0, CheckedValue::new(self.plan.values)); batch];
        let (mut outcomes, mut updates) = (Vec::new(), 0);
        let _bar = spinner("writing a log".to_owned());
        while replay_bytes(&client)? < self.plan.log_bytes {
            for _ in 0..UPDATES_BETWEEN_LOOKS.div_ceil(batch) {
                self.cancellation.check()?;
                for (key, value) in &mut pairs {
                    let index = random.below(self.keys.len() as u64) as usize;
                    self.counters[index] += 1;
                    *key = PLAIN.key(self.keys[index]);
                    value.set(self.keys[index], self.counters[index]);
                }
                session.update_many(&pairs, &mut outcomes)?;
                updates += batch as u64;
            }
        }
        Ok(updates)
    }

    fn stage(&mut self, name: &'static str, records: u64) -> Result<RecoveryStage, DriverError> {
        let _bar = spinner(format!("{name}: {} starts", self.plan.runs));
        let log_bytes = replay_bytes(&self.connect()?)?;
        let mut starts = Vec::new();
        for run in 0..self.plan.runs {
            self.cancellation.check()?;
            starts.push(self.start_again(name != "empty", run as u64)?);
        }
        let directory = self.server.data().expect("it keeps its tables");
        let (snapshot_read_s, snapshot_bytes) = read_files(directory, "snapshot-")?;
        let (log_read_s, log_file_bytes) = read_files(directory, "log-")?;
        Ok(RecoveryStage {
            stage: name.to_owned(),
            pairs: if name == "empty" { 0 } else { self.keys.len() as u64 },
            records,
            log_bytes,
            median: RecoveryStart::median(&starts),
            starts,
            snapshot_bytes,
            snapshot_read_s,
            log_file_bytes,
            log_read_s,
        })
    }

    /// Kills the server, and starts it again.
    fn start_again(&mut self, has_table: bool, seed: u64) -> Result<RecoveryStart, DriverError> {
        self.server.kill();
        let begun = Instant::now();
        self.server.start_again(self.command)?;
        let ready_s = begun.elapsed().as_secs_f64();
        let processor_s = process_cpu_time(self.server.process_id())?.as_secs_f64();
        let (mut first_get_s, mut trained_s) = (ready_s, ready_s);
        if has_table {
            let client = self.connect()?;
            let mut session = client.table::<u64>(TABLE)?.session(Options::default())?;
            self.check(&mut session, CHECKED_BATCH, seed)?;
            first_get_s = begun.elapsed().as_secs_f64();
            rest(&client, TABLE, None, self.cancellation)?;
            trained_s = begun.elapsed().as_secs_f64();
            self.check(&mut session, CHECKED_KEYS, seed + 1)?;
        }
        Ok(RecoveryStart { ready_s, processor_s, first_get_s, trained_s })
    }

    /// Checks that so many random keys have the values that were written last.
    fn check(&self, session: &mut Session<u64>, count: usize, seed: u64) -> Result<(), DriverError> {
        let (mut random, mut wrong) = (SplitMix64::new(seed), WrongAnswers::default());
        let mut answers = Answers::default();
        for _ in 0..count.div_ceil(CHECKED_BATCH) {
            let places = [(); CHECKED_BATCH].map(|()| random.below(self.keys.len() as u64) as usize);
            session.multi_get(&places.map(|place| PLAIN.key(self.keys[place])), &mut answers)?;
            for (index, place) in places.into_iter().enumerate() {
                let (key, expected) = (self.keys[place], self.counters[place]);
                let found = answers.get(index).map(|(value, _)| value);
                let counter = found.and_then(|value| checked_value::counter(key, value));
                if counter != Some(expected) {
                    wrong.note(format!("{key}: expected write {expected}, got {counter:?}: {found:?}"));
                }
            }
        }
        wrong.into_result("recovery", count as u64)
    }
}

/// Bytes of log that a restart would read.
fn replay_bytes(client: &Client) -> Result<u64, DriverError> {
    Ok(client.stats()?.data.map_or(0, |data| data.replay_bytes))
}

/// Reads all files of a directory whose names begin so, and computes their checksum. The time of that in s,
/// and their bytes.
fn read_files(directory: &Path, prefix: &str) -> Result<(f64, u64), DriverError> {
    let begun = Instant::now();
    let read = || {
        let (mut room, mut bytes, mut checksum) = (vec![0; READ_BYTES], 0, 0);
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if !entry.file_name().to_string_lossy().starts_with(prefix) {
                continue;
            }
            let mut file = File::open(entry.path())?;
            loop {
                let count = file.read(&mut room)?;
                if count == 0 {
                    break;
                }
                checksum = crc32c::crc32c_append(checksum, &room[..count]);
                bytes += count as u64;
            }
        }
        std::hint::black_box(checksum);
        Ok(bytes)
    };
    let read: std::io::Result<u64> = read();
    let bytes = read.map_err(|source| DriverError::Directory { path: directory.to_owned(), source })?;
    Ok((begun.elapsed().as_secs_f64(), bytes))
}

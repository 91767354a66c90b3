//! The reader and the writer of a change, and what they tell each other.

use std::sync::{Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use farsight::{Answers, Pairs, Session, WriteOutcome};
use farsight_base::sync::{AtomicBool, AtomicU64, Ordering};
use farsight_oracles::{Embedding as _, Identity};
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};

use super::bed::VALUE_BYTES;
use crate::driver::executor::{WrongAnswers, check_read};
use crate::driver::store::PLAIN;
use crate::driver::{DriverError, SEED, checked_value};
use crate::histogram::LatencyHistogram;
use crate::report::{ChangePhase, ChangeScans};
use crate::workload::{ChangeKeys, ShapeChange};

/// Keys of a reader's batch, and writes that are handed over together.
const READ_BATCH: usize = 64;
const WRITE_BATCH: usize = 1024;
/// Scans, and pairs of each.
const SCANS: usize = 256;
const SCAN_PAIRS: usize = 100;

/// What a reader did in some time.
#[derive(Default)]
pub(super) struct ReadCounts {
    latencies: LatencyHistogram,
    in_calls: Duration,
    read_verbs: u64,
    fallbacks: u64,
}

impl ReadCounts {
    pub(super) fn merge(&mut self, other: &Self) {
        self.latencies.merge(&other.latencies);
        self.in_calls += other.in_calls;
        self.read_verbs += other.read_verbs;
        self.fallbacks += other.fallbacks;
    }

    pub(super) fn clear(&mut self) {
        self.latencies.clear();
        (self.in_calls, self.read_verbs, self.fallbacks) = (Duration::ZERO, 0, 0);
    }

    /// As figures of a GET; zeros without one.
    pub(super) fn figures(&self) -> ChangePhase {
        let gets = self.latencies.operations();
        let a_get = |count: u64| if gets == 0 { 0.0 } else { count as f64 / gets as f64 };
        let in_calls_s = self.in_calls.as_secs_f64();
        ChangePhase {
            gets_per_s: if gets == 0 { 0.0 } else { gets as f64 / in_calls_s },
            get_latency_ns: self.latencies.quantiles(),
            reads_per_get: a_get(self.read_verbs),
            fallbacks_per_get: a_get(self.fallbacks),
        }
    }
}

/// What reader, writer and sampler share. The keys that the reader draws from are stored from `first`, the
/// removes that have begun, to `end`, the inserts that are done.
pub(super) struct Together {
    pub(super) writes: AtomicU64,
    first: AtomicU64,
    end: AtomicU64,
    is_written: AtomicBool,
    is_over: AtomicBool,
    /// The reader's since it was last taken.
    reads: Mutex<ReadCounts>,
}

impl Together {
    /// For the keys that a reader beside the writer draws from: of a window those that were loaded are stored
    /// at first, of other changes all, always.
    pub(super) fn new(keys: &ChangeKeys) -> Self {
        let end = if keys.is_window() { keys.loaded.len() } else { keys.beside.len() };
        Self::with_end(end)
    }

    /// For keys all of which are stored.
    pub(super) fn of_all(keys: &[Identity]) -> Self {
        Self::with_end(keys.len())
    }

    fn with_end(end: usize) -> Self {
        Self {
            writes: AtomicU64::new(0),
            first: AtomicU64::new(0),
            end: AtomicU64::new(end as u64),
            is_written: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            reads: Mutex::default(),
        }
    }

    /// Before the threads of a phase are there.
    pub(super) fn begin(&self) {
        // Relaxed: spawning the threads publishes it.
        self.is_written.store(false, Ordering::Relaxed);
        self.is_over.store(false, Ordering::Relaxed);
    }

    /// Ends the phase.
    pub(super) fn end(&self) {
        // Relaxed: the flag publishes nothing but itself.
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        // Relaxed: as in `end`.
        self.is_over.load(Ordering::Relaxed)
    }

    /// The writer has done all, or failed.
    pub(super) fn end_writing(&self, sampler: &Thread) {
        // Relaxed: the flag publishes nothing but itself; unparking orders it before the sampler's next look.
        self.is_written.store(true, Ordering::Relaxed);
        sampler.unpark();
    }

    pub(super) fn is_written(&self) -> bool {
        // Relaxed: as in `end_writing`.
        self.is_written.load(Ordering::Relaxed)
    }

    /// Waits until then, or until the writer of this phase ends.
    pub(super) fn wait_until(&self, end: Instant) {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_written() {
                return;
            }
            thread::park_timeout(left);
        }
    }

    /// Takes what the reader has done since the last time, for `counts`, which are empty.
    pub(super) fn take(&self, counts: &mut ReadCounts) {
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *reads, counts);
    }
}

/// Reads keys that are stored, all alike popular.
pub(super) struct StoredReader {
    session: Session<u64>,
    change: ShapeChange,
    random: Xoshiro256PlusPlus,
    places: Vec<usize>,
    keys: Vec<u64>,
    answers: Answers,
    operations: u64,
}

impl StoredReader {
    pub(super) fn new(session: Session<u64>, change: ShapeChange) -> Self {
        Self {
            session,
            change,
            random: Xoshiro256PlusPlus::seed_from_u64(SEED),
            places: Vec::with_capacity(READ_BATCH),
            keys: Vec::with_capacity(READ_BATCH),
            answers: Answers::default(),
            operations: 0,
        }
    }

    pub(super) fn prefill(&mut self) -> Result<(), DriverError> {
        Ok(self.session.prefill()?)
    }

    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    /// Reads those of `keys` that are stored, until the phase is over.
    pub(super) fn run(&mut self, keys: &[Identity], together: &Together) -> Result<(), DriverError> {
        let mut wrong = WrongAnswers::default();
        let (mut meters, mut counters) = (self.session.meters(), self.session.counters());
        while !together.is_over() {
            // Acquire: with the writer's releases; the key before `end` is stored, since its insert is done.
            let stored = together.first.load(Ordering::Acquire)..together.end.load(Ordering::Acquire);
            self.places.clear();
            let random = &mut self.random;
            let drawn = (0..READ_BATCH).map(|_| random.random_range(stored.clone()) as usize);
            self.places.extend(drawn);
            self.keys.clear();
            self.keys.extend(self.places.iter().map(|place| PLAIN.key(keys[*place])));
            let begun = Instant::now();
            self.session.multi_get(&self.keys, &mut self.answers)?;
            let elapsed = begun.elapsed();
            // Acquire: with the writer's release before it removes. A reader that misses a removed key sees
            // it.
            let first = together.first.load(Ordering::Acquire) as usize;
            for (index, place) in self.places.iter().enumerate() {
                let answer = self.answers.get(index);
                if *place >= first || answer.is_some() {
                    check_read(keys[*place], answer, &mut wrong);
                }
            }
            let (meters_now, counters_now) = (self.session.meters(), self.session.counters());
            let mut reads = together.reads.lock().unwrap_or_else(PoisonError::into_inner);
            reads.latencies.record(elapsed, READ_BATCH as u64);
            reads.in_calls += elapsed;
            reads.read_verbs += (meters_now - meters).reads;
            reads.fallbacks += counters_now.fallbacks - counters.fallbacks;
            drop(reads);
            (meters, counters) = (meters_now, counters_now);
            self.operations += READ_BATCH as u64;
        }
        wrong.into_result(self.change.name(), self.operations)
    }

    /// Scans anywhere in the ascending `keys`, which are all that is stored.
    pub(super) fn scans(&mut self, keys: &[Identity]) -> Result<ChangeScans, DriverError> {
        let mut wrong = WrongAnswers::default();
        let mut pairs = Pairs::default();
        let length = SCAN_PAIRS.min(keys.len());
        let (meters, counters) = (self.session.meters(), self.session.counters());
        for _ in 0..SCANS {
            let from = self.random.random_range(0..=keys.len() - length);
            self.session.scan_batch(&[(PLAIN.key(keys[from]), length)], &mut pairs)?;
            let is_right = pairs.len() == length
                && pairs.iter().zip(&keys[from..]).all(|(pair, key)| {
                    pair.key == PLAIN.key(*key) && checked_value::counter(*key, pair.value).is_some()
                });
            if !is_right {
                wrong.note(format!("the scan of {length} pairs from {} found others", keys[from]));
            }
        }
        let meters = self.session.meters() - meters;
        let fallbacks = self.session.counters().fallbacks - counters.fallbacks;
        self.operations += SCANS as u64;
        let a_scan = |count: u64| count as f64 / SCANS as f64;
        let scans = ChangeScans {
            pairs: length as u64,
            reads_per_scan: a_scan(meters.reads),
            doorbells_per_scan: a_scan(meters.doorbells),
            fallbacks_per_scan: a_scan(fallbacks),
        };
        wrong.into_result(self.change.name(), SCANS as u64).map(|()| scans)
    }
}

/// Changes the table, as fast as calls go.
pub(super) struct Changer {
    session: Session<u64>,
    change: ShapeChange,
    pairs: Vec<(u64, [u8; VALUE_BYTES])>,
    keys: Vec<u64>,
    outcomes: Vec<WriteOutcome>,
    wrong: WrongAnswers,
    elapsed: Duration,
}

impl Changer {
    pub(super) fn new(session: Session<u64>, change: ShapeChange) -> Self {
        Self {
            session,
            change,
            pairs: Vec::with_capacity(WRITE_BATCH),
            keys: Vec::with_capacity(WRITE_BATCH),
            outcomes: Vec::with_capacity(WRITE_BATCH),
            wrong: WrongAnswers::default(),
            elapsed: Duration::ZERO,
        }
    }

    pub(super) fn prefill(&mut self) -> Result<(), DriverError> {
        Ok(self.session.prefill()?)
    }

    /// Time of the change.
    pub(super) fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Executes the change, or until the phase is over.
    pub(super) fn run(&mut self, keys: &ChangeKeys, together: &Together) -> Result<(), DriverError> {
        let begun = Instant::now();
        let mut inserts = keys.inserts.chunks(WRITE_BATCH);
        let mut removes = keys.removes.chunks(WRITE_BATCH);
        loop {
            let batch = [inserts.next(), removes.next()];
            if batch == [None, None] || together.is_over() {
                break;
            }
            let [new, old] = batch.map(Option::unwrap_or_default);
            self.insert(new)?;
            if keys.is_window() {
                // Release: a reader that sees the new bounds finds the inserts done, and no remove begun that
                // `first` does not tell.
                together.end.fetch_add(new.len() as u64, Ordering::Release);
                together.first.fetch_add(old.len() as u64, Ordering::Release);
            }
            self.remove(old)?;
            // Relaxed: a count.
            together.writes.fetch_add((new.len() + old.len()) as u64, Ordering::Relaxed);
        }
        self.elapsed = begun.elapsed();
        std::mem::take(&mut self.wrong).into_result(self.change.name(), keys.operations() as u64)
    }

    fn insert(&mut self, keys: &[Identity]) -> Result<(), DriverError> {
        self.pairs.clear();
        self.pairs.extend(keys.iter().map(|key| {
            let mut value = [0; VALUE_BYTES];
            checked_value::write(*key, 0, &mut value);
            (PLAIN.key(*key), value)
        }));
        if !keys.is_empty() {
            self.session.insert_many(&self.pairs, &mut self.outcomes)?;
            self.check(keys, "insert", |outcome| matches!(outcome, WriteOutcome::Inserted(_)));
        }
        Ok(())
    }

    fn remove(&mut self, keys: &[Identity]) -> Result<(), DriverError> {
        self.keys.clear();
        self.keys.extend(keys.iter().map(|key| PLAIN.key(*key)));
        if !keys.is_empty() {
            self.session.remove_many(&self.keys, &mut self.outcomes)?;
            self.check(keys, "remove", |outcome| matches!(outcome, WriteOutcome::Removed(_)));
        }
        Ok(())
    }

    fn check(&mut self, keys: &[Identity], what: &str, is_right: impl Fn(&WriteOutcome) -> bool) {
        for (key, outcome) in keys.iter().zip(&self.outcomes) {
            if !is_right(outcome) {
                self.wrong.note(format!("the {what} of key {key} gave {outcome:?}"));
            }
        }
    }
}

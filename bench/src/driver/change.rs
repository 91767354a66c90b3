//! Tables whose shape changes after the load, and what the change costs writer, reader, server and cache.
//!
//! Invariants: each change has a server process and a table of its own. Every write must find what its change
//! promises, every read and scan the pairs that are stored, or there is no result.
//!
//! Protocol of one change:
//! 1. Load. Wait until the server has trained and is idle. Fill the client's cache, and that of another
//!    process, to see what it takes.
//! 2. *Before*: the reader alone, over loaded keys. Its rate is the fresh table's.
//! 3. *During*: the writer changes the table as fast as it can; the reader goes on beside it.
//! 4. *Settling*: the reader turns to the new keys (or to those left) at once, for [`SETTLING`].
//! 5. *After*: the figures of the same reads, for [`MEASURED`]. So they are taken within two seconds of the
//!    last write.
//! 6. Where keys were removed, scans of what is left. Another process fills its cache again.
//!
//! Reader and writer share one client, hence one cache. Every [`SAMPLE_INTERVAL`] what they did becomes a
//! sample, with what the server says of the table and what the cache takes. A reader's rate is that of the
//! time in its calls, so drawing keys and checking answers count nowhere.

mod bed;
mod cache_filler;
mod threads;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use farsight_base::sync::Ordering;
use farsight_oracles::Identity;

use super::store::identities;
use super::{Cancellation, DriverError, Placement, SEED, ServerCommand};
use crate::machine::Machine;
use crate::report::{ChangePhase, ChangeRecord, ChangeSample, ChangeScans};
use crate::workload::{ChangeKeys, ShapeChange};
use bed::ChangeBed;
pub use cache_filler::{CacheFiller, filled_cache_bytes};
use threads::{Changer, ReadCounts, StoredReader, Together};

/// Time between two samples: a million writes take ten of them.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(25);
/// Time of the reader alone, before.
const BEFORE: Duration = Duration::from_secs(1);
/// Time of the reader on the new keys before figures are taken, and then of those.
const SETTLING: Duration = Duration::from_secs(1);
const MEASURED: Duration = Duration::from_secs(1);

/// What to run.
#[derive(Debug, Clone)]
pub struct ChangePlan {
    /// The changes.
    pub changes: Vec<ShapeChange>,
    /// Operations of a change that does not follow from the keys.
    pub operations: usize,
    /// What measures the memory of a full cache.
    pub cache_filler: CacheFiller,
}

impl ChangePlan {
    /// Loads `keys`, which are ascending and distinct, and changes them: one record a change.
    ///
    /// # Errors
    /// [`DriverError`]; the servers that were started for this have ended then, too.
    pub fn run(
        &self,
        keys: &[u64],
        server: &ServerCommand,
        placement: &Placement,
        cancellation: &Cancellation,
    ) -> Result<Vec<ChangeRecord>, DriverError> {
        let run_one = |change: &ShapeChange| {
            let keys = ChangeKeys::new(*change, identities(keys.to_vec()), self.operations, SEED)?;
            let bed = ChangeBed::new(server, &keys.loaded, cancellation)?;
            let bed = &bed;
            let running =
                RunningChange { plan: self, change: *change, keys: &keys, bed, placement, cancellation };
            running.run()
        };
        self.changes.iter().map(run_one).collect()
    }
}

/// A change under way.
struct RunningChange<'a> {
    plan: &'a ChangePlan,
    change: ShapeChange,
    keys: &'a ChangeKeys,
    bed: &'a ChangeBed,
    placement: &'a Placement,
    cancellation: &'a Cancellation,
}

/// What a phase reads, and how long.
struct PhasePlan<'a> {
    name: &'static str,
    keys: &'a Arc<[Identity]>,
    /// None: as long as the writer works.
    time: Option<Duration>,
}

impl RunningChange<'_> {
    fn run(&self) -> Result<ChangeRecord, DriverError> {
        let mut reader = StoredReader::new(self.bed.session()?, self.change);
        let mut writer = Changer::new(self.bed.session()?, self.change);
        let together = Together::new(self.keys);
        let filler = &self.plan.cache_filler;
        let fresh_process = self.bed.process_bytes_per_key(filler)?;
        reader.prefill()?;
        writer.prefill()?;
        let fresh = self.bed.memory()?;
        let mut course = Course { begun: Instant::now(), samples: Vec::new() };
        let loaded = |name| PhasePlan { name, keys: &self.keys.beside, time: Some(BEFORE) };
        let before = self.phase(&loaded("before"), &together, &mut reader, None, &mut course)?;
        let scans_before = self.scans(&mut reader, &self.keys.loaded)?;
        let during = PhasePlan { time: None, ..loaded("during") };
        let during = self.phase(&during, &together, &mut reader, Some(&mut writer), &mut course)?;
        let later = Together::of_all(&self.keys.after);
        let of_new = |name, time| PhasePlan { name, keys: &self.keys.after, time: Some(time) };
        self.phase(&of_new("settling", SETTLING), &later, &mut reader, None, &mut course)?;
        let after = self.phase(&of_new("after", MEASURED), &later, &mut reader, None, &mut course)?;
        let scans_after = self.scans(&mut reader, &self.keys.after)?;
        let end = self.bed.memory()?;
        let end_process = self.bed.process_bytes_per_key(filler)?;
        let record = ChangeRecord {
            change: self.change.name().to_owned(),
            keys: self.keys.loaded.len() as u64,
            operations: self.keys.operations() as u64,
            writes_per_s: self.keys.operations() as f64 / writer.elapsed().as_secs_f64(),
            before,
            during,
            after,
            scans_before,
            scans_after,
            fresh,
            end,
            process_bytes_per_key: [fresh_process, end_process],
            operations_checked: reader.operations() + self.keys.operations() as u64,
            samples: course.samples,
            marks: Vec::new(),
            machine: Machine::detect(),
        };
        Ok(record.judged(self.change))
    }

    fn scans(
        &self,
        reader: &mut StoredReader,
        keys: &[Identity],
    ) -> Result<Option<ChangeScans>, DriverError> {
        self.change.removes().then(|| reader.scans(keys)).transpose()
    }

    /// One phase: the threads work, this one samples.
    fn phase(
        &self,
        plan: &PhasePlan<'_>,
        together: &Together,
        reader: &mut StoredReader,
        writer: Option<&mut Changer>,
        course: &mut Course,
    ) -> Result<ChangePhase, DriverError> {
        together.begin();
        let sampler = thread::current();
        let counts = thread::scope(|scope| {
            // With two cores it is the writer who shares the server's, not the reader.
            let (writers, readers) = if self.placement.core_count() == 2 { (1, 0) } else { (0, 1) };
            let writing = writer.map(|writer| {
                let sampler = sampler.clone();
                scope.spawn(move || {
                    let written = self.placement.pin(writers).and_then(|()| writer.run(self.keys, together));
                    together.end_writing(&sampler);
                    written
                })
            });
            let reading = scope.spawn(move || {
                let read = self.placement.pin(readers).and_then(|()| reader.run(plan.keys, together));
                together.end();
                read
            });
            let counts = self.sample(plan, together, course);
            together.end();
            let written = writing.map(|thread| thread.join().expect("the writer does not panic"));
            reading.join().expect("the reader does not panic")?;
            written.transpose()?;
            counts
        })?;
        self.cancellation.check()?;
        Ok(counts.figures())
    }

    /// Samples until the phase is over; returns what the reader did in all of it.
    fn sample(
        &self,
        plan: &PhasePlan<'_>,
        together: &Together,
        course: &mut Course,
    ) -> Result<ReadCounts, DriverError> {
        let begun = Instant::now();
        let (mut all, mut interval) = (ReadCounts::default(), ReadCounts::default());
        let (mut last, mut writes) = (begun, 0);
        loop {
            let end =
                plan.time.map_or(last + SAMPLE_INTERVAL, |time| (last + SAMPLE_INTERVAL).min(begun + time));
            together.wait_until(end);
            let now = Instant::now();
            interval.clear();
            together.take(&mut interval);
            // Relaxed: a count of about this moment.
            let writes_now = together.writes.load(Ordering::Relaxed);
            let memory = self.bed.memory()?;
            let interval_s = (now - last).as_secs_f64();
            let figures = interval.figures();
            course.samples.push(ChangeSample {
                phase: plan.name.to_owned(),
                at_s: (now - course.begun).as_secs_f64(),
                interval_s,
                writes_per_s: (writes_now - writes) as f64 / interval_s,
                gets_per_s: figures.gets_per_s,
                get_p99_ns: figures.get_latency_ns.p99,
                reads_per_get: figures.reads_per_get,
                fallbacks_per_get: figures.fallbacks_per_get,
                memory,
            });
            all.merge(&interval);
            (last, writes) = (now, writes_now);
            let is_over = plan.time.map_or(together.is_written(), |time| now - begun >= time);
            if is_over || together.is_over() || self.cancellation.is_cancelled() {
                return Ok(all);
            }
        }
    }
}

/// The samples so far.
struct Course {
    begun: Instant,
    samples: Vec<ChangeSample>,
}

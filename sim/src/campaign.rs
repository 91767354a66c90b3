//! Many seeds of one scenario, on several threads.
//!
//! Invariant: seeds are begun, and counted, in ascending order, each with all before it. So what a campaign
//! has run is a range, and another can go on behind it. A seed that panics has failed; the others go on.
//!
//! A campaign that is over finishes the seeds that it has begun. One that is stopped drops them, and what was
//! finished behind the first of them.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farsight_base::sync::{AtomicBool, Ordering};
use farsight_fabric_sim::Fault;

use crate::{Coverage, Failure, Named, Report, Trace};

/// Which seeds of what.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// The scenario.
    pub scenario: &'static Named,
    /// The first seed.
    pub first: u64,
    /// How many.
    pub seeds: u64,
    /// Threads; each runs a seed at a time.
    pub threads: usize,
}

/// What came of a campaign's seeds.
#[derive(Clone, Default, Debug)]
pub struct Tally {
    /// Seeds finished.
    pub seeds: u64,
    /// Operations, counted by key, whose answers were judged.
    pub operations: u64,
    /// Of these the writes whose outcome nobody was told.
    pub unknown_writes: u64,
    /// Leaves split.
    pub splits: u64,
    /// Leaves that servers by themselves merged with neighbours.
    pub merges: u64,
    /// Events of all simulations.
    pub events: u64,
    /// Virtual time.
    pub lasted: Duration,
    /// What was met.
    pub coverage: Coverage,
    /// Seeds that failed, ascending.
    pub failures: Vec<Failure>,
}

impl Tally {
    /// Faults of all kinds that struck.
    #[must_use]
    pub fn faults(&self) -> u64 {
        Fault::ALL.into_iter().map(|fault| self.coverage.strikes.of(fault)).sum()
    }

    fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        match outcome {
            Ok(report) => {
                self.operations += report.entries as u64;
                self.unknown_writes += report.unknown_writes as u64;
                self.splits += report.splits;
                self.merges += report.merges;
                self.events += report.events;
                self.lasted += report.lasted;
                self.coverage.add(&report.coverage);
            }
            Err(failure) => self.failures.push(*failure),
        }
    }
}

type Outcome = Result<Report, Box<Failure>>;

/// What the threads share.
#[derive(Default)]
struct Progress {
    begun: u64,
    tally: Tally,
    /// What came of seeds behind one that is still under way, by how many stand before each.
    ahead: BTreeMap<u64, Outcome>,
}

impl Progress {
    /// Counts what came of the seed that so many stand before, once it has come of all of these.
    fn note(&mut self, before: u64, outcome: Outcome) {
        self.ahead.insert(before, outcome);
        while let Some(next) = self.ahead.remove(&self.tally.seeds) {
            self.tally.add(next);
        }
    }
}

impl Campaign {
    /// Runs the seeds, until all are done or `is_over`: then those that have begun are finished. Once `stop`
    /// is true, they are not. `seen` is told after each.
    ///
    /// # Panics
    /// If there are no threads.
    pub fn run(
        &self,
        is_over: impl Fn() -> bool + Sync,
        stop: &Arc<AtomicBool>,
        seen: impl Fn(&Tally) + Sync,
    ) -> Tally {
        assert!(self.threads > 0, "somebody has to run the seeds");
        let progress = Mutex::new(Progress::default());
        std::thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(|| {
                    // Relaxed, here and below: the flag carries nothing with it.
                    let is_stopped = || stop.load(Ordering::Relaxed);
                    while let Some(before) = self.begin(&progress, || is_stopped() || is_over()) {
                        let outcome = run_caught(self.first + before, self.scenario, stop);
                        if is_stopped() {
                            return;
                        }
                        let mut progress = lock(&progress);
                        progress.note(before, outcome);
                        seen(&progress.tally);
                    }
                });
            }
        });
        progress.into_inner().unwrap_or_else(PoisonError::into_inner).tally
    }

    /// The next seed, by how many stand before it.
    fn begin(&self, progress: &Mutex<Progress>, is_over: impl Fn() -> bool) -> Option<u64> {
        let mut progress = lock(progress);
        let before = progress.begun;
        if before == self.seeds || self.first.checked_add(before).is_none() || is_over() {
            return None;
        }
        progress.begun += 1;
        Some(before)
    }
}

fn lock(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run_caught(seed: u64, scenario: &Named, stop: &Arc<AtomicBool>) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| scenario.scenario(seed).run(false, stop))).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("nothing");
        let what = format!("it panicked: {said}");
        let (entries, trace) = (Vec::new(), Trace::default());
        Err(Box::new(Failure { scenario: scenario.name, seed, what, entries, trace }))
    })
}

//! Many seeds of one scenario, on several threads.
//!
//! Invariant: seeds are begun in ascending order and every one that was begun is finished, so what a campaign
//! has run is a range, and another can go on behind it. A seed that panics has failed; the others go on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farsight_fabric_sim::Fault;

use crate::{Coverage, Failure, Named, Report, Story, run_seed};

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

    fn add(&mut self, outcome: Result<Report, Box<Failure>>) {
        self.seeds += 1;
        match outcome {
            Ok(report) => {
                self.operations += report.entries as u64;
                self.unknown_writes += report.unknown_writes as u64;
                self.splits += report.splits;
                self.events += report.events;
                self.lasted += report.lasted;
                self.coverage.add(&report.coverage);
            }
            Err(failure) => self.failures.push(*failure),
        }
    }
}

/// What the threads share.
#[derive(Default)]
struct Progress {
    begun: u64,
    tally: Tally,
}

impl Campaign {
    /// Runs the seeds, until all are done or `is_over`. `seen` is told after each.
    ///
    /// # Panics
    /// If there are no threads.
    pub fn run(&self, is_over: impl Fn() -> bool + Sync, seen: impl Fn(&Tally) + Sync) -> Tally {
        assert!(self.threads > 0, "somebody has to run the seeds");
        let progress = Mutex::new(Progress::default());
        std::thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(|| {
                    while let Some(seed) = self.begin(&progress, &is_over) {
                        let outcome = run_caught(seed, self.scenario);
                        let mut progress = lock(&progress);
                        progress.tally.add(outcome);
                        seen(&progress.tally);
                    }
                });
            }
        });
        let mut tally = progress.into_inner().unwrap_or_else(PoisonError::into_inner).tally;
        tally.failures.sort_by_key(|failure| failure.seed);
        tally
    }

    fn begin(&self, progress: &Mutex<Progress>, is_over: impl Fn() -> bool) -> Option<u64> {
        let mut progress = lock(progress);
        if progress.begun == self.seeds || is_over() {
            return None;
        }
        progress.begun += 1;
        self.first.checked_add(progress.begun - 1)
    }
}

fn lock(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run_caught(seed: u64, scenario: &Named) -> Result<Report, Box<Failure>> {
    catch_unwind(AssertUnwindSafe(|| run_seed(seed, scenario, false))).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("nothing");
        let what = format!("it panicked: {said}");
        let (entries, story) = (Vec::new(), Story::default());
        Err(Box::new(Failure { scenario: scenario.name, seed, what, entries, story }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SCENARIOS;

    #[test]
    fn threads_share_the_seeds() {
        let campaign = Campaign { scenario: &SCENARIOS[1], first: 5, seeds: 6, threads: 3 };
        let whole = campaign.run(|| false, |_| ());
        let one_by_one = Campaign { threads: 1, ..campaign }.run(|| false, |_| ());
        assert_eq!((whole.seeds, whole.events), (6, one_by_one.events), "the same seeds");
        assert!(whole.operations > 0 && whole.faults() > 0 && whole.failures.is_empty(), "{whole:?}");
        // It ends behind the seeds that were begun.
        let cut = Campaign { threads: 1, ..campaign };
        let done = Mutex::new(0);
        let tally = cut.run(|| *done.lock().unwrap() == 2, |tally| *done.lock().unwrap() = tally.seeds);
        assert_eq!(tally.seeds, 2);
        // No seed lies behind the last number.
        let last = Campaign { first: u64::MAX, seeds: 3, ..cut };
        assert_eq!(last.run(|| false, |_| ()).seeds, 1);
    }
}

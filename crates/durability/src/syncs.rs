//! A sync of a file that one thread begins, and another may do meanwhile.
//!
//! Protocol:
//! 1. [`Syncs::begin`] names the file. All that was written to it before is to be durable.
//! 2. A helper takes it and syncs it ([`Syncs::help`]). A node without one has no step 2.
//! 3. [`Syncs::end`] waits for the outcome. If no helper has taken the file by then, it syncs the file
//!    itself.
//!
//! To wake a helper takes longer than some disks take to sync: those in the system's memory, say. Once
//! helpers have found syncs to be that quick, [`Syncs::begin`] does them itself, until they are slow again.
//! Without a helper nobody measures, and all is as above.
//!
//! Invariant: each sync that was begun is done once, by one thread, and its outcome is told once. What a
//! later sync of the file says does not count for it.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::disk::DiskFile;

/// The longest that a sync may take a helper. What such a disk says then does not count any more.
const SYNC_MAX: Duration = Duration::from_secs(600);

/// A sync that takes less is quick: a thread is not woken sooner.
const QUICK: Duration = Duration::from_micros(10);
/// Quick syncs from which on they are done in place, and how many count at most.
const QUICK_MIN: u32 = 32;
const QUICK_MAX: u32 = 64;
/// What a slow one counts against them.
const SLOW: u32 = 16;

/// At most one sync at a time.
#[derive(Default)]
pub struct Syncs {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    stage: Stage,
    pace: Pace,
}

/// How quick syncs were lately.
#[derive(Default)]
struct Pace(u32);

impl Pace {
    fn note(&mut self, took: Duration) {
        self.0 = if took < QUICK { QUICK_MAX.min(self.0 + 1) } else { self.0.saturating_sub(SLOW) };
    }

    fn is_quick(&self) -> bool {
        self.0 >= QUICK_MIN
    }
}

#[derive(Default)]
enum Stage {
    /// None is wanted.
    #[default]
    Idle,
    /// Nobody has taken it yet.
    Wanted(Arc<dyn DiskFile>),
    /// A helper does it.
    Taken,
    /// A helper has done it.
    Ended(io::Result<()>),
}

impl Syncs {
    /// Wants a sync of this file. The one before has ended. So has this one if syncs are quick.
    pub(crate) fn begin(&self, file: Arc<dyn DiskFile>) {
        let mut inner = self.lock();
        debug_assert!(matches!(inner.stage, Stage::Idle), "one sync at a time");
        if inner.pace.is_quick() {
            let begin = Instant::now();
            inner.stage = Stage::Ended(file.sync());
            return inner.pace.note(begin.elapsed());
        }
        inner.stage = Stage::Wanted(file);
        drop(inner);
        self.changed.notify_all();
    }

    /// True if the sync that was begun last was done, and nobody was told yet.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.lock().stage, Stage::Ended(_))
    }

    /// The outcome of the sync that was begun last.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::TimedOut`] if a helper has not come back for ten minutes.
    pub(crate) fn end(&self) -> io::Result<()> {
        let is_taken = |inner: &mut Inner| matches!(inner.stage, Stage::Taken);
        let waiting = self.changed.wait_timeout_while(self.lock(), SYNC_MAX, is_taken);
        let (mut inner, _) = waiting.unwrap_or_else(PoisonError::into_inner);
        match std::mem::take(&mut inner.stage) {
            Stage::Idle => Ok(()),
            Stage::Wanted(file) => {
                drop(inner);
                file.sync()
            }
            Stage::Taken => {
                inner.stage = Stage::Taken;
                Err(io::ErrorKind::TimedOut.into())
            }
            Stage::Ended(outcome) => outcome,
        }
    }

    /// Does a sync that is wanted. Waits for one until it is woken, at most for this long. True if it has
    /// done one.
    pub fn help(&self, timeout: Duration) -> bool {
        let mut inner = self.lock();
        if !matches!(inner.stage, Stage::Wanted(_)) {
            let waiting = self.changed.wait_timeout(inner, timeout);
            (inner, _) = waiting.unwrap_or_else(PoisonError::into_inner);
        }
        let Stage::Wanted(file) = &inner.stage else { return false };
        let file = Arc::clone(file);
        inner.stage = Stage::Taken;
        drop(inner);
        let begin = Instant::now();
        let outcome = file.sync();
        let took = begin.elapsed();
        let mut inner = self.lock();
        inner.stage = Stage::Ended(outcome);
        inner.pace.note(took);
        drop(inner);
        self.changed.notify_all();
        true
    }

    /// Does a sync that is wanted, if one is, without a look at how long it takes: for one thread that takes
    /// all steps in turns.
    pub fn do_wanted(&self) {
        let mut inner = self.lock();
        if let Stage::Wanted(file) = &inner.stage {
            inner.stage = Stage::Ended(file.sync());
        }
    }

    /// Wakes a helper that waits.
    pub fn wake(&self) {
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A change of a stage is one assignment; of the pace, too.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk as _, Fault, SimulatedDisk};

    const WAIT_MAX: Duration = Duration::from_secs(60);

    #[test]
    fn each_sync_is_done_once_by_whoever_comes_first() {
        let disk = SimulatedDisk::default();
        let file: Arc<dyn DiskFile> = disk.create("a", 512).expect("room").into();
        let syncs = Syncs::default();
        assert!(!syncs.help(Duration::ZERO), "none is wanted");
        syncs.begin(Arc::clone(&file));
        assert!(!syncs.has_ended());
        syncs.end().expect("a sync");
        assert!(!syncs.help(Duration::ZERO) && disk.syncs() == 1, "it was done without a helper");
        syncs.begin(Arc::clone(&file));
        std::thread::scope(|scope| {
            let helper = scope.spawn(|| syncs.help(WAIT_MAX));
            assert!(helper.join().expect("no panic"));
        });
        assert!(syncs.has_ended() && disk.syncs() == 2);
        syncs.end().expect("a sync");
        assert!(!syncs.has_ended() && disk.syncs() == 2);
    }

    #[test]
    fn quick_syncs_are_done_in_place_until_they_are_slow() {
        let disk = SimulatedDisk::default();
        let file: Arc<dyn DiskFile> = disk.create("a", 512).expect("room").into();
        let syncs = Syncs::default();
        let note = |took: Duration, count: u32| (0..count).for_each(|_| syncs.lock().pace.note(took));
        note(Duration::ZERO, QUICK_MIN - 1);
        syncs.begin(Arc::clone(&file));
        assert!(!syncs.has_ended() && disk.syncs() == 0, "not often enough");
        syncs.end().expect("a sync");
        note(Duration::ZERO, QUICK_MAX);
        disk.set_faults(&[Fault::FailAt(0)]);
        syncs.begin(Arc::clone(&file));
        assert!(syncs.has_ended() && !syncs.help(Duration::ZERO), "nobody else does it");
        syncs.end().expect_err("its own outcome");
        note(QUICK, QUICK_MAX / SLOW);
        syncs.begin(file);
        assert!(!syncs.has_ended(), "slow ones are a helper's");
        syncs.end().expect("a sync");
    }

    #[test]
    fn a_helper_that_waits_is_given_what_is_begun() {
        let disk = SimulatedDisk::default();
        let file: Arc<dyn DiskFile> = disk.create("a", 512).expect("room").into();
        disk.set_faults(&[Fault::FailAt(0)]);
        let syncs = Syncs::default();
        std::thread::scope(|scope| {
            let helper = scope.spawn(|| while !syncs.help(WAIT_MAX) {});
            syncs.begin(Arc::clone(&file));
            helper.join().expect("no panic");
        });
        assert!(syncs.has_ended());
        syncs.end().expect_err("the disk failed");
        syncs.begin(file);
        syncs.end().expect("another one");
    }
}

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
//! So it does where nobody else needs its thread meanwhile ([`Who::Idle`]), as long as syncs are short.
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
/// A sync that takes less is short: to wake a helper, and to be woken, is a good part of it.
const SHORT: Duration = Duration::from_micros(500);
/// Such syncs from which on they are done in place, and how many count at most.
const IN_TIME_MIN: u32 = 32;
const IN_TIME_MAX: u32 = 64;
/// What a slower one counts against them.
const LATE: u32 = 16;

/// Who begins a sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// A thread that has other things to do meanwhile.
    Busy,
    /// One for which nobody else waits, as far as it knows. It does short syncs itself.
    Idle,
}

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
struct Pace {
    quick: InTime,
    short: InTime,
}

/// How many syncs took less than some time lately.
#[derive(Default)]
struct InTime(u32);

impl InTime {
    fn note(&mut self, is_in_time: bool) {
        self.0 = if is_in_time { IN_TIME_MAX.min(self.0 + 1) } else { self.0.saturating_sub(LATE) };
    }

    fn is_usual(&self) -> bool {
        self.0 >= IN_TIME_MIN
    }
}

impl Pace {
    fn note(&mut self, took: Duration) {
        self.quick.note(took < QUICK);
        self.short.note(took < SHORT);
    }

    /// True if this thread does its syncs itself.
    fn is_in_place(&self, who: Who) -> bool {
        self.quick.is_usual() || (who == Who::Idle && self.short.is_usual())
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
    /// Wants a sync of this file. The one before has ended. So has this one if syncs are quick, or short and
    /// the caller idle.
    pub(crate) fn begin(&self, file: Arc<dyn DiskFile>, who: Who) {
        let mut inner = self.lock();
        debug_assert!(matches!(inner.stage, Stage::Idle), "one sync at a time");
        if inner.pace.is_in_place(who) {
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
        syncs.begin(Arc::clone(&file), Who::Busy);
        assert!(!syncs.has_ended());
        syncs.end().expect("a sync");
        assert!(!syncs.help(Duration::ZERO) && disk.syncs() == 1, "it was done without a helper");
        syncs.begin(Arc::clone(&file), Who::Busy);
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
        note(Duration::ZERO, IN_TIME_MIN - 1);
        syncs.begin(Arc::clone(&file), Who::Busy);
        assert!(!syncs.has_ended() && disk.syncs() == 0, "not often enough");
        syncs.end().expect("a sync");
        note(Duration::ZERO, IN_TIME_MAX);
        disk.set_faults(&[Fault::FailAt(0)]);
        syncs.begin(Arc::clone(&file), Who::Busy);
        assert!(syncs.has_ended() && !syncs.help(Duration::ZERO), "nobody else does it");
        syncs.end().expect_err("its own outcome");
        note(QUICK, IN_TIME_MAX / LATE);
        syncs.begin(file, Who::Busy);
        assert!(!syncs.has_ended(), "slow ones are a helper's");
        syncs.end().expect("a sync");
    }

    #[test]
    fn an_idle_thread_does_short_syncs_and_a_busy_one_does_not() {
        let disk = SimulatedDisk::default();
        let file: Arc<dyn DiskFile> = disk.create("a", 512).expect("room").into();
        let syncs = Syncs::default();
        let note = |took: Duration, count: u32| (0..count).for_each(|_| syncs.lock().pace.note(took));
        let is_done_at_once = |who| {
            syncs.begin(Arc::clone(&file), who);
            let is_done = syncs.has_ended();
            syncs.end().expect("a sync");
            is_done
        };
        assert!(!is_done_at_once(Who::Idle), "nobody knows how long one takes");
        note(QUICK, IN_TIME_MIN);
        assert!(is_done_at_once(Who::Idle));
        assert!(!is_done_at_once(Who::Busy));
        note(SHORT, IN_TIME_MAX / LATE);
        assert!(!is_done_at_once(Who::Idle), "they take long");
    }

    #[test]
    fn a_helper_that_waits_is_given_what_is_begun() {
        let disk = SimulatedDisk::default();
        let file: Arc<dyn DiskFile> = disk.create("a", 512).expect("room").into();
        disk.set_faults(&[Fault::FailAt(0)]);
        let syncs = Syncs::default();
        std::thread::scope(|scope| {
            let helper = scope.spawn(|| while !syncs.help(WAIT_MAX) {});
            syncs.begin(Arc::clone(&file), Who::Busy);
            helper.join().expect("no panic");
        });
        assert!(syncs.has_ended());
        syncs.end().expect_err("the disk failed");
        syncs.begin(file, Who::Busy);
        syncs.end().expect("another one");
    }
}

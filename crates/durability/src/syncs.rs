//! A sync of a file that one thread begins, and another may do meanwhile.
//!
//! Protocol:
//! 1. [`Syncs::begin`] names the file. All that was written to it before is to be durable.
//! 2. A helper takes it and syncs it ([`Syncs::help`]). A node without one has no step 2.
//! 3. [`Syncs::end`] waits for the outcome. If no helper has taken the file by then, it syncs the file
//!    itself.
//!
//! Invariant: each sync that was begun is done once, by one thread, and its outcome is told once. What a
//! later sync of the file says does not count for it.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::disk::DiskFile;

/// The longest that a sync may take a helper. What such a disk says then does not count any more.
const SYNC_MAX: Duration = Duration::from_secs(600);

/// At most one sync at a time.
#[derive(Default)]
pub struct Syncs {
    stage: Mutex<Stage>,
    changed: Condvar,
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
    /// Wants a sync of this file. The one before has ended.
    pub(crate) fn begin(&self, file: Arc<dyn DiskFile>) {
        let mut stage = self.lock();
        debug_assert!(matches!(*stage, Stage::Idle), "one sync at a time");
        *stage = Stage::Wanted(file);
        drop(stage);
        self.changed.notify_all();
    }

    /// True if a helper has done the sync that was begun last, and nobody was told yet.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(*self.lock(), Stage::Ended(_))
    }

    /// The outcome of the sync that was begun last.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::TimedOut`] if a helper has not come back for ten minutes.
    pub(crate) fn end(&self) -> io::Result<()> {
        let is_taken = |stage: &mut Stage| matches!(stage, Stage::Taken);
        let waiting = self.changed.wait_timeout_while(self.lock(), SYNC_MAX, is_taken);
        let (mut stage, _) = waiting.unwrap_or_else(PoisonError::into_inner);
        match std::mem::take(&mut *stage) {
            Stage::Idle => Ok(()),
            Stage::Wanted(file) => {
                drop(stage);
                file.sync()
            }
            Stage::Taken => {
                *stage = Stage::Taken;
                Err(io::ErrorKind::TimedOut.into())
            }
            Stage::Ended(outcome) => outcome,
        }
    }

    /// Does a sync that is wanted. Waits for one until it is woken, at most for this long. True if it has
    /// done one.
    pub fn help(&self, timeout: Duration) -> bool {
        let mut stage = self.lock();
        if !matches!(*stage, Stage::Wanted(_)) {
            let waiting = self.changed.wait_timeout(stage, timeout);
            (stage, _) = waiting.unwrap_or_else(PoisonError::into_inner);
        }
        let Stage::Wanted(file) = &*stage else { return false };
        let file = Arc::clone(file);
        *stage = Stage::Taken;
        drop(stage);
        let outcome = file.sync();
        *self.lock() = Stage::Ended(outcome);
        self.changed.notify_all();
        true
    }

    /// Wakes a helper that waits.
    pub fn wake(&self) {
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        // A change of it is one assignment.
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
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

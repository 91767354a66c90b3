//! The next segment of the log, written with zeros before the log needs it.
//!
//! Why: a segment that is reserved alone has parts that nobody ever wrote. The first sync behind a write to
//! such a part makes the file system's own records durable, too, and takes almost twice as long.
//!
//! Protocol:
//! 1. [`Spares::want`] says how long the next segment is to be.
//! 2. A helper makes a file of that length, and writes and syncs its zeros in steps, with rests between them
//!    ([`Spares::help`]). A node without a helper has no step 2.
//! 3. [`Spares::take`] hands the file over, if it is complete and long enough. The log writes its header,
//!    syncs it, and gives it the segment's name.
//!
//! Invariant: a spare counts for nothing until it has a segment's name. A crash leaves at most one, which the
//! next start removes. One whose making failed is removed, too: the log then reserves the segment itself,
//! and says what fails.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::disk::{Disk, DiskFile};

/// The name of the spare.
pub(crate) const SPARE: &str = "spare";
/// Zeros between two syncs: the log's own syncs wait for no more.
const STEP_BYTES: u64 = 1 << 18;
/// Behind each step the disk is left to the log for so many times as long as the step took, and for
/// [`REST_MAX`] at most. A log that is faster than this reserves its segments itself.
const REST_TIMES: u32 = 4;
const REST_MAX: Duration = Duration::from_millis(100);

/// At most one spare at a time.
pub struct Spares {
    disk: Arc<dyn Disk>,
    stage: Mutex<SpareStage>,
    wanted: Condvar,
}

/// A file of zeros, all of them on the disk.
pub(crate) struct Spare {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) length_bytes: u64,
}

enum SpareStage {
    /// None is wanted.
    Idle,
    /// One of so many bytes is.
    Wanted(u64),
    /// A helper makes it.
    Taken,
    /// It is complete.
    Ready(Spare),
}

impl Spares {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, stage: Mutex::new(SpareStage::Idle), wanted: Condvar::new() }
    }

    /// Wants one of so many bytes, if there is none, and none is being made.
    pub(crate) fn want(&self, length_bytes: u64) {
        let mut stage = self.lock();
        if let SpareStage::Idle | SpareStage::Wanted(_) = *stage {
            *stage = SpareStage::Wanted(length_bytes);
            drop(stage);
            self.wanted.notify_all();
        }
    }

    /// The spare, if it is complete and has at least so many bytes.
    pub(crate) fn take(&self, needed_bytes: u64) -> Option<Spare> {
        let mut stage = self.lock();
        match std::mem::replace(&mut *stage, SpareStage::Idle) {
            SpareStage::Ready(spare) if spare.length_bytes >= needed_bytes => Some(spare),
            other => {
                *stage = other;
                None
            }
        }
    }

    /// Makes a spare if one is wanted. Waits until one is, or until it is woken, at most for this long.
    /// Ends early once `is_stopped`. True if there is a new one.
    pub fn help(&self, timeout: Duration, is_stopped: impl Fn() -> bool) -> bool {
        let mut stage = self.lock();
        if !matches!(*stage, SpareStage::Wanted(_)) {
            let waiting = self.wanted.wait_timeout(stage, timeout);
            (stage, _) = waiting.unwrap_or_else(PoisonError::into_inner);
        }
        let SpareStage::Wanted(length_bytes) = *stage else { return false };
        *stage = SpareStage::Taken;
        drop(stage);
        let made = self.make(length_bytes, is_stopped);
        let is_made = made.is_ok();
        if !is_made {
            // What stays of it, the next one replaces, or the next start removes.
            let _ = self.disk.remove(SPARE);
        }
        *self.lock() = made.map_or(SpareStage::Idle, |file| SpareStage::Ready(Spare { file, length_bytes }));
        is_made
    }

    /// Wakes a helper that waits.
    pub fn wake(&self) {
        self.wanted.notify_all();
    }

    fn make(&self, length_bytes: u64, is_stopped: impl Fn() -> bool) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.create(SPARE, length_bytes)?;
        let zeros = vec![0; STEP_BYTES.min(length_bytes) as usize];
        let mut written_bytes = 0;
        while written_bytes < length_bytes {
            if is_stopped() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let begun = Instant::now();
            let step_bytes = STEP_BYTES.min(length_bytes - written_bytes);
            file.write_at(written_bytes, &zeros[..step_bytes as usize])?;
            file.sync()?;
            written_bytes += step_bytes;
            std::thread::sleep((begun.elapsed() * REST_TIMES).min(REST_MAX));
        }
        Ok(file.into())
    }

    fn lock(&self) -> MutexGuard<'_, SpareStage> {
        // A change of it is one assignment.
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use farsight_layout::value_block::RecordKind;

    use super::*;
    use crate::disk::{Fault, SimulatedDisk};
    use crate::{FrameWriter, Log, LogEnd, LogOptions, Store, read_log};

    const NEVER: fn() -> bool = || false;

    #[test]
    fn a_spare_is_made_when_wanted_and_handed_over_once() {
        let disk = SimulatedDisk::default();
        let spares = Spares::new(Arc::new(disk.clone()));
        assert!(!spares.help(Duration::ZERO, NEVER) && spares.take(1).is_none(), "none is wanted");
        spares.want(3 * STEP_BYTES / 2);
        assert!(spares.take(1).is_none(), "nobody has made it");
        assert!(spares.help(Duration::ZERO, NEVER) && disk.syncs() == 2);
        spares.want(STEP_BYTES);
        assert!(!spares.help(Duration::ZERO, NEVER), "there is one");
        assert!(spares.take(2 * STEP_BYTES).is_none(), "it is too short for this");
        assert_eq!(spares.take(STEP_BYTES).expect("complete").length_bytes, 3 * STEP_BYTES / 2);
        assert!(spares.take(1).is_none());
    }

    #[test]
    fn one_that_could_not_be_made_leaves_nothing() {
        let disk = SimulatedDisk::default();
        let spares = Spares::new(Arc::new(disk.clone()));
        for fault in [Fault::FailAt(1), Fault::FailAt(2), Fault::CapacityBytes(100)] {
            disk.set_faults(&[fault]);
            spares.want(1024);
            assert!(!spares.help(Duration::ZERO, NEVER), "{fault:?}");
            assert!(spares.take(1).is_none());
            disk.set_faults(&[]);
            assert_eq!(disk.list().expect("no fault"), Vec::<String>::new(), "{fault:?}");
        }
        spares.want(1024);
        assert!(!spares.help(Duration::ZERO, || true), "it is stopped");
        assert_eq!(disk.list().expect("no fault"), Vec::<String>::new());
    }

    #[test]
    fn the_log_goes_on_in_a_spare_and_a_start_removes_one_that_is_left() {
        let disk = SimulatedDisk::default();
        drop(Store::open(Arc::new(disk.clone()), 1).expect("an empty directory"));
        let options = LogOptions { segment_bytes: 1024 };
        let mut log = Log::new(Arc::new(disk.clone()), options, 1, &LogEnd::default());
        let mut append = |version| {
            let mut frame = FrameWriter::default();
            frame.push(0, RecordKind::Pair, version, b"key", &[7; 100]).expect("short");
            log.append(&mut frame).expect("room");
            log.sync().expect("no fault");
            log.spares().help(Duration::ZERO, NEVER)
        };
        let has_spare = || disk.list().expect("no fault").iter().any(|name| name == SPARE);
        let is_made: Vec<bool> = (1..=4).map(&mut append).collect();
        assert_eq!(is_made, [true, true, true, true], "each frame fills a segment, and takes the spare");
        assert!(has_spare());
        let mut versions = Vec::new();
        let store = Store::open(Arc::new(disk.clone()), 1).expect("a second life");
        assert!(!has_spare());
        let read = read_log(&**store.disk(), 1, |_, record| {
            versions.push(record.version);
            Ok(())
        });
        assert_eq!((read.expect("sound").segment, versions), (4, vec![1, 2, 3, 4]));
    }
}

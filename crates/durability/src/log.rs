//! Appending to the log.
//!
//! Protocol:
//! 1. [`Log::append`] writes a frame behind the last one. A crash here leaves it whole, torn, or not at all.
//! 2. [`Log::sync`] makes all frames durable that were appended before it. From now on a crash leaves them.
//!    In its place, [`Log::begin_sync`] lets a helper do that, and [`Log::end_sync`] waits for it. Frames
//!    that are appended in between may be durable then or not.
//! 3. A frame that does not fit begins a segment. All frames of the old one are made durable first, which
//!    ends a sync that was begun. The new one is a [spare](Spares) that a helper has written with zeros, or
//!    is reserved on the disk. Its header and its name are made durable. The frame follows. A crash in
//!    between leaves a segment without a frame, which recovery removes.
//!
//! A full disk is met in step 3 alone, for a segment has its room from its begin. Nothing was appended then,
//! and the log goes on when there is room. Every other failure poisons the log. It is [noted](unsynced) for
//! the next life.

use std::sync::Arc;

use crate::disk::{Disk, DiskFile, SECTOR_BYTES};
use crate::error::disk_error;
use crate::segment::{LogPosition, SegmentHeader, file_name};
use crate::spares::{SPARE, Spare};
use crate::{DurabilityError, FrameWriter, LogEnd, Spares, Syncs, Who, unsynced};

/// Bytes of the first segment of a life at most. Each later one has twice those of the one before, up to
/// [`LogOptions::segment_bytes`]: who writes little takes little room.
const FIRST_SEGMENT_BYTES: u64 = 4 << 20;

/// How a log is written.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// Bytes of a segment, once some were filled. A frame that is longer has one of its own.
    pub segment_bytes: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20 }
    }
}

/// A log that is appended to. One thread does.
pub struct Log {
    disk: Arc<dyn Disk>,
    options: LogOptions,
    incarnation: u64,
    /// The last segment; `None` before the first frame of this life.
    segment: Option<Segment>,
    /// Number of the last segment that there is, or was.
    segment_number: u64,
    /// Bytes of the next one.
    next_segment_bytes: u64,
    spares: Arc<Spares>,
    /// The last frame.
    number: u64,
    checksum: u32,
    /// The last durable frame.
    durable_number: u64,
    syncs: Arc<Syncs>,
    /// The last frame that the sync covers that was begun.
    syncing_number: Option<u64>,
    /// Bytes appended in this life.
    appended_bytes: u64,
    /// What failed.
    poisoned: Option<String>,
}

struct Segment {
    file: Arc<dyn DiskFile>,
    name: String,
    length_bytes: u64,
    end: u64,
}

/// Bytes that a frame of so many takes in a segment.
fn frame_bytes(bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(SECTOR_BYTES as u64)
}

impl Log {
    /// A log that goes on behind `end`, in a segment of its own, as the life of this `incarnation`.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, options: LogOptions, incarnation: u64, end: &LogEnd) -> Self {
        let next_segment_bytes = FIRST_SEGMENT_BYTES.min(options.segment_bytes);
        let spares = Spares::new(Arc::clone(&disk));
        spares.want(next_segment_bytes);
        Self {
            disk,
            options,
            incarnation,
            segment: None,
            segment_number: end.segment,
            next_segment_bytes,
            spares: Arc::new(spares),
            number: end.number,
            checksum: end.checksum,
            durable_number: end.number,
            syncs: Arc::default(),
            syncing_number: None,
            appended_bytes: 0,
            poisoned: None,
        }
    }

    /// Behind the last frame.
    #[must_use]
    pub fn position(&self) -> LogPosition {
        match &self.segment {
            Some(segment) => LogPosition { segment: self.segment_number, offset: segment.end },
            None => LogPosition { segment: self.segment_number + 1, offset: 0 },
        }
    }

    /// Bytes appended in this life.
    #[must_use]
    pub fn appended_bytes(&self) -> u64 {
        self.appended_bytes
    }

    /// True if all that was appended is durable.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.durable_number == self.number
    }

    /// Where syncs wait for a helper that were begun.
    #[must_use]
    pub fn syncs(&self) -> &Arc<Syncs> {
        &self.syncs
    }

    /// Where the next segment waits for a helper that writes its zeros.
    #[must_use]
    pub fn spares(&self) -> &Arc<Spares> {
        &self.spares
    }

    /// True if [`Log::end_sync`] waits for a helper, or has to sync itself.
    #[must_use]
    pub fn is_syncing(&self) -> bool {
        self.syncing_number.is_some() && !self.syncs.has_ended()
    }

    /// True if a sync was begun and has ended: [`Log::end_sync`] does not wait.
    #[must_use]
    pub fn has_landed(&self) -> bool {
        self.syncing_number.is_some() && self.syncs.has_ended()
    }

    /// True if frames of so many bytes, one behind the other, need no other segment.
    #[must_use]
    pub fn has_room(&self, frames: &[usize]) -> bool {
        let needed_bytes: u64 = frames.iter().map(|bytes| frame_bytes(*bytes)).sum();
        self.segment.as_ref().is_some_and(|segment| segment.end + needed_bytes <= segment.length_bytes)
    }

    /// Appends the records of `frame` as one frame.
    ///
    /// # Errors
    /// [`DurabilityError::Full`], and nothing changed; anything else poisons the log.
    pub fn append(&mut self, frame: &mut FrameWriter) -> Result<(), DurabilityError> {
        self.check()?;
        let frame_bytes = frame_bytes(frame.len());
        if self.segment.as_ref().is_none_or(|segment| segment.end + frame_bytes > segment.length_bytes) {
            self.begin_segment(frame_bytes)?;
        }
        let number = self.number + 1;
        let segment = self.segment.as_mut().expect("one was begun");
        let (bytes, checksum) = frame.seal(number, self.durable_number, self.incarnation, self.checksum);
        let file = || self.disk.place(&segment.name);
        let written =
            segment.file.write_at(segment.end, bytes).map_err(|error| disk_error("writing", file())(error));
        if written.is_ok() {
            (self.number, self.checksum) = (number, checksum);
            segment.end += frame_bytes;
            self.appended_bytes += frame_bytes;
        }
        self.poison_if_failed(written)
    }

    /// Makes durable all that was appended.
    ///
    /// # Errors
    /// [`DurabilityError`]; the log is poisoned then.
    pub fn sync(&mut self) -> Result<(), DurabilityError> {
        self.begin_sync(Who::Busy)?;
        self.end_sync()
    }

    /// Begins to make durable all that was appended. A sync that was begun before ends first. The calling
    /// thread may have done it then ([`Syncs`]).
    ///
    /// # Errors
    /// As [`Log::end_sync`].
    pub fn begin_sync(&mut self, who: Who) -> Result<(), DurabilityError> {
        self.end_sync()?;
        if let Some(segment) = &self.segment {
            self.syncs.begin(Arc::clone(&segment.file), who);
            self.syncing_number = Some(self.number);
        }
        Ok(())
    }

    /// Ends the sync that was begun last: what was appended before it is durable.
    ///
    /// # Errors
    /// [`DurabilityError`]; the log is poisoned then.
    pub fn end_sync(&mut self) -> Result<(), DurabilityError> {
        self.check()?;
        let (Some(number), Some(segment)) = (self.syncing_number.take(), &self.segment) else {
            return Ok(());
        };
        let synced = self.syncs.end();
        let synced = synced.map_err(|error| disk_error("syncing", self.disk.place(&segment.name))(error));
        #[cfg(injected)]
        let synced = if crate::injected::FAILED_SYNC_RETRIED.is_injected() && synced.is_err() {
            segment.file.sync().map_err(disk_error("syncing", String::new()))
        } else {
            synced
        };
        self.poison_if_failed(synced)?;
        self.durable_number = number;
        Ok(())
    }

    fn begin_segment(&mut self, frame_bytes: u64) -> Result<(), DurabilityError> {
        if self.segment.is_some() {
            self.sync()?;
        }
        let number = self.segment_number + 1;
        let name = file_name(number);
        let place = self.disk.place(&name);
        let needed_bytes = SECTOR_BYTES as u64 + frame_bytes;
        let spare = self.spares.take(needed_bytes);
        let is_spare = spare.is_some();
        let Spare { file, length_bytes } = match spare {
            Some(spare) => spare,
            None => self.reserve(&name, self.next_segment_bytes.max(needed_bytes))?,
        };
        let header = SegmentHeader {
            number,
            incarnation: self.incarnation,
            last_number: self.number,
            last_checksum: self.checksum,
        };
        let written = file.write_at(0, &header.to_bytes()).and_then(|()| file.sync());
        let named = written.and_then(|()| if is_spare { self.disk.rename(SPARE, &name) } else { Ok(()) });
        let named = named.and_then(|()| self.disk.sync_directory());
        self.poison_if_failed(named.map_err(disk_error("beginning", place)))?;
        self.segment_number = number;
        self.segment = Some(Segment { file, name, length_bytes, end: SECTOR_BYTES as u64 });
        self.next_segment_bytes = (2 * self.next_segment_bytes).min(self.options.segment_bytes);
        self.spares.want(self.next_segment_bytes);
        Ok(())
    }

    /// A segment's file, whose room is reserved, and nothing written.
    fn reserve(&mut self, name: &str, length_bytes: u64) -> Result<Spare, DurabilityError> {
        let place = self.disk.place(name);
        match self.disk.create(name, length_bytes) {
            Ok(file) => Ok(Spare { file: file.into(), length_bytes }),
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                // What was made of it is in the way of the next attempt; if it stays, that one replaces it.
                let _ = self.disk.remove(name);
                Err(DurabilityError::Full { file: place, needed_bytes: length_bytes })
            }
            Err(error) => {
                let failed = disk_error("making", place)(error);
                self.poisoned = Some(failed.to_string());
                unsynced::note(&*self.disk);
                Err(failed)
            }
        }
    }

    fn check(&self) -> Result<(), DurabilityError> {
        match &self.poisoned {
            Some(why) => Err(DurabilityError::Poisoned { why: why.clone() }),
            None => Ok(()),
        }
    }

    fn poison_if_failed(&mut self, done: Result<(), DurabilityError>) -> Result<(), DurabilityError> {
        done.inspect_err(|error| {
            self.poisoned = Some(error.to_string());
            unsynced::note(&*self.disk);
        })
    }
}

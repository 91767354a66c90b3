//! A snapshot of one table: frames of pairs, in a file that the catalogue names once it is complete.
//!
//! Protocol:
//! 1. [`SnapshotWriter::begin`] makes a file of a new number. Nothing names it.
//! 2. [`SnapshotWriter::push`] appends pairs, frame by frame.
//! 3. [`SnapshotWriter::finish`] makes the file durable, reads it back, and returns its name.
//! 4. [`Store::name_snapshot`](crate::Store::name_snapshot) puts that into the catalogue. From now on
//!    recovery begins with it. A crash before leaves a file that nothing names, which recovery removes.
//!
//! Pairs may change while they are written: the log from the snapshot's position on says how.

use std::sync::Arc;

use farsight_layout::value_block::RecordKind;

use crate::catalogue::SnapshotName;
use crate::disk::{Disk, DiskFile, SECTOR_BYTES};
use crate::error::disk_error;
use crate::frame::{FRAME_HEADER_BYTES, FrameFault, RecordFault};
use crate::segment::{LogPosition, numbered};
use crate::{DurabilityError, Frame, FrameWriter, Record};

/// Bytes of a frame, or a little more.
const FRAME_BYTES: usize = 1 << 18;
const PREFIX: &str = "snapshot-";

/// The name of the file of this number.
pub(crate) fn file_name(number: u64) -> String {
    format!("{PREFIX}{number:016x}")
}

/// The number of the file of this name.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    numbered(name, PREFIX)
}

/// A snapshot that is written. Dropped before it is finished, it removes its file.
pub struct SnapshotWriter {
    disk: Arc<dyn Disk>,
    file: Box<dyn DiskFile>,
    is_finished: bool,
    number: u64,
    table: u32,
    frame: FrameWriter,
    end: u64,
    frames: u64,
    checksum: u32,
    pairs: u64,
}

impl SnapshotWriter {
    /// A snapshot of `table`, of a number that no other has.
    ///
    /// # Errors
    /// [`DurabilityError`].
    pub fn begin(disk: Arc<dyn Disk>, number: u64, table: u32) -> Result<Self, DurabilityError> {
        let name = file_name(number);
        let file = disk.create(&name, 0).map_err(disk_error("making", disk.place(&name)))?;
        let frame = FrameWriter::default();
        let is_finished = false;
        Ok(Self { disk, file, is_finished, number, table, frame, end: 0, frames: 0, checksum: 0, pairs: 0 })
    }

    /// Appends a pair.
    ///
    /// # Errors
    /// [`DurabilityError`]: the snapshot cannot be finished.
    ///
    /// # Panics
    /// If key or value are longer than a block holds.
    pub fn push(&mut self, version: u64, key: &[u8], value: &[u8]) -> Result<(), DurabilityError> {
        let pushed = self.frame.push(self.table, RecordKind::Pair, version, key, value);
        pushed.expect("a pair of a table fits a block");
        self.pairs += 1;
        if self.frame.len() >= FRAME_BYTES { self.flush() } else { Ok(()) }
    }

    /// Makes the snapshot durable: it has all that the log says before `position`, and the table had given
    /// the versions up to `version_max`.
    ///
    /// # Errors
    /// [`DurabilityError`].
    pub fn finish(
        mut self,
        position: LogPosition,
        version_max: u64,
    ) -> Result<SnapshotName, DurabilityError> {
        if !self.frame.is_empty() {
            self.flush()?;
        }
        let name = SnapshotName {
            number: self.number,
            position,
            version_max,
            frames: self.frames,
            checksum: self.checksum,
            pairs: self.pairs,
        };
        let place = self.disk.place(&file_name(self.number));
        self.file.sync().map_err(disk_error("syncing", place.clone()))?;
        self.disk.sync_directory().map_err(disk_error("naming", place))?;
        read_snapshot(&*self.disk, &name, self.table, |_| Ok(()))?;
        self.is_finished = true;
        Ok(name)
    }

    fn flush(&mut self) -> Result<(), DurabilityError> {
        let number = self.frames + 1;
        let (bytes, checksum) = self.frame.seal(number, number, self.number, self.checksum);
        let needed_bytes = bytes.len() as u64;
        self.file.write_at(self.end, bytes).map_err(|error| {
            let file = self.disk.place(&file_name(self.number));
            match error.kind() {
                std::io::ErrorKind::StorageFull => DurabilityError::Full { file, needed_bytes },
                _ => disk_error("writing", file)(error),
            }
        })?;
        self.end += needed_bytes.next_multiple_of(SECTOR_BYTES as u64);
        (self.frames, self.checksum) = (number, checksum);
        self.frame.clear();
        Ok(())
    }
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        if !self.is_finished {
            // One that stays is removed at the next start: nothing names it.
            let _ = self.disk.remove(&file_name(self.number));
        }
    }
}

/// Reads a complete snapshot of `table`, and hands each record to `visit`, in the order of the keys.
///
/// # Errors
/// [`DurabilityError`]: it is damaged, or not there; what `visit` refuses.
pub fn read_snapshot(
    disk: &dyn Disk,
    name: &SnapshotName,
    table: u32,
    mut visit: impl FnMut(Record<'_>) -> Result<(), DurabilityError>,
) -> Result<(), DurabilityError> {
    let file_name = file_name(name.number);
    let place = disk.place(&file_name);
    let file = disk.open(&file_name).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            DurabilityError::Missing { file: place.clone(), why: "the catalogue names it" }
        }
        _ => disk_error("opening", place.clone())(error),
    })?;
    let mut bytes = Vec::new();
    let mut at = 0;
    let mut checksum = 0;
    let damaged = |at: u64, fault| DurabilityError::Damaged {
        file: place.clone(),
        offset: at,
        table: Some(table),
        fault,
    };
    for number in 1..=name.frames {
        read_frame(&*file, at, &mut bytes).map_err(disk_error("reading", place.clone()))?;
        let frame = Frame::parse(&bytes);
        let frame = frame.and_then(|frame| frame.check(number, name.number, checksum).map(|()| frame));
        let frame = frame.map_err(|fault| damaged(at, fault))?;
        let visited = frame.visit(|record| {
            let (expected, got) = (table.into(), record.table.into());
            if expected != got {
                return Err(damaged(at, FrameFault::Field { what: "table of the record", expected, got }));
            }
            visit(record)
        });
        visited.map_err(|fault| match fault {
            RecordFault::Fault { fault, .. } => damaged(at, fault),
            RecordFault::Refused(error) => error,
        })?;
        checksum = frame.checksum;
        at += frame.bytes().next_multiple_of(SECTOR_BYTES as u64);
    }
    let (expected, got) = (name.checksum.into(), checksum.into());
    if expected == got {
        return Ok(());
    }
    Err(damaged(at, FrameFault::Field { what: "checksum of the last frame", expected, got }))
}

/// Reads the frame that begins at `at`, as far as the file has it.
fn read_frame(file: &dyn DiskFile, at: u64, into: &mut Vec<u8>) -> std::io::Result<()> {
    let rest = file.length_bytes()?.saturating_sub(at);
    let mut header = [0; FRAME_HEADER_BYTES];
    into.clear();
    if rest < FRAME_HEADER_BYTES as u64 {
        return Ok(());
    }
    file.read_at(at, &mut header)?;
    into.resize(Frame::bytes_said(&header).min(rest) as usize, 0);
    file.read_at(at, into)
}

//! Pieces of a table's snapshot: frames of pairs, in files that the catalogue names once they are complete.
//!
//! Protocol:
//! 1. [`SnapshotWriter::begin`] begins the pairs of a range of keys. Nothing names its files.
//! 2. [`SnapshotWriter::push`] appends pairs, frame by frame, in the order of their keys. A piece that has
//!    its bytes is made durable and read back, and the next one begins with the next pair.
//! 3. [`SnapshotWriter::finish`] does that for the last one, and returns all pieces.
//! 4. [`Store::name_pieces`](crate::Store::name_pieces) puts them into the catalogue. From now on recovery
//!    begins with them. A crash before leaves files that nothing names, which recovery removes.
//!
//! Pairs may change while they are written: the log from the snapshot's position on says how.

use std::sync::Arc;

use farsight_layout::value_block::RecordKind;

use crate::catalogue::SnapshotPiece;
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

/// The pairs of a range of keys, as pieces of so many bytes. Dropped before it is finished, it removes their
/// files.
pub struct SnapshotWriter {
    disk: Arc<dyn Disk>,
    table: u32,
    piece_bytes: u64,
    first_key: u64,
    /// Complete ones.
    pieces: Vec<SnapshotPiece>,
    current: Option<PieceWriter>,
}

impl SnapshotWriter {
    /// Begins the pairs of `table` from `first_key` on, of which a piece takes `piece_bytes`, or one pair
    /// more.
    pub fn begin(disk: Arc<dyn Disk>, table: u32, first_key: u64, piece_bytes: u64) -> Self {
        Self { disk, table, piece_bytes, first_key, pieces: Vec::new(), current: None }
    }

    /// Appends a pair with a greater key. A piece that begins takes a number that no other has.
    ///
    /// # Errors
    /// [`DurabilityError`]: the snapshot cannot be finished.
    ///
    /// # Panics
    /// If the value is longer than a block holds.
    pub fn push(
        &mut self,
        take_number: impl FnOnce() -> Result<u64, DurabilityError>,
        version: u64,
        key: u64,
        value: &[u8],
    ) -> Result<(), DurabilityError> {
        if let Some(full) = self.current.take_if(|piece| piece.pair_bytes >= self.piece_bytes) {
            self.pieces.push(full.finish()?);
        }
        let current = match self.current.take() {
            Some(current) => current,
            None => self.begin_piece(take_number()?, key)?,
        };
        self.current.insert(current).push(version, key, value)
    }

    /// Makes all pieces durable: they have all that the log says of their keys before `position`, and the
    /// table had given the versions up to `version_max`. Without pairs there is one piece.
    ///
    /// # Errors
    /// [`DurabilityError`].
    pub fn finish(
        mut self,
        take_number: impl FnOnce() -> Result<u64, DurabilityError>,
        position: LogPosition,
        version_max: u64,
    ) -> Result<Vec<SnapshotPiece>, DurabilityError> {
        let last = match self.current.take() {
            None if self.pieces.is_empty() => Some(self.begin_piece(take_number()?, self.first_key)?),
            current => current,
        };
        if let Some(last) = last {
            self.pieces.push(last.finish()?);
        }
        let mut pieces = std::mem::take(&mut self.pieces);
        for piece in &mut pieces {
            (piece.position, piece.version_max) = (position, version_max);
        }
        Ok(pieces)
    }

    fn begin_piece(&self, number: u64, key: u64) -> Result<PieceWriter, DurabilityError> {
        let first_key = if self.pieces.is_empty() { self.first_key } else { key };
        PieceWriter::begin(Arc::clone(&self.disk), number, self.table, first_key)
    }
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        for piece in &self.pieces {
            // As below.
            let _ = self.disk.remove(&file_name(piece.number));
        }
    }
}

/// A piece that is written. Dropped before it is finished, it removes its file.
struct PieceWriter {
    disk: Arc<dyn Disk>,
    file: Box<dyn DiskFile>,
    is_finished: bool,
    number: u64,
    table: u32,
    frame: FrameWriter,
    end: u64,
    frames: u64,
    checksum: u32,
    first_key: u64,
    pairs: u64,
    pair_bytes: u64,
}

impl PieceWriter {
    fn begin(disk: Arc<dyn Disk>, number: u64, table: u32, first_key: u64) -> Result<Self, DurabilityError> {
        let name = file_name(number);
        let file = disk.create(&name, 0).map_err(disk_error("making", disk.place(&name)))?;
        Ok(Self {
            disk,
            file,
            is_finished: false,
            number,
            table,
            frame: FrameWriter::default(),
            end: 0,
            frames: 0,
            checksum: 0,
            first_key,
            pairs: 0,
            pair_bytes: 0,
        })
    }

    fn push(&mut self, version: u64, key: u64, value: &[u8]) -> Result<(), DurabilityError> {
        let key = key.to_le_bytes();
        let pushed = self.frame.push(self.table, RecordKind::Pair, version, &key, value);
        pushed.expect("a pair of a table fits a block");
        self.pairs += 1;
        self.pair_bytes += (key.len() + value.len()) as u64;
        if self.frame.len() >= FRAME_BYTES { self.flush() } else { Ok(()) }
    }

    /// Makes it durable and reads it back. Position and version are not known yet.
    fn finish(mut self) -> Result<SnapshotPiece, DurabilityError> {
        if !self.frame.is_empty() {
            self.flush()?;
        }
        let piece = SnapshotPiece {
            number: self.number,
            first_key: self.first_key,
            position: LogPosition::default(),
            version_max: 0,
            frames: self.frames,
            checksum: self.checksum,
            pairs: self.pairs,
            pair_bytes: self.pair_bytes,
        };
        let place = self.disk.place(&file_name(self.number));
        self.file.sync().map_err(disk_error("syncing", place.clone()))?;
        self.disk.sync_directory().map_err(disk_error("naming", place))?;
        read_piece(&*self.disk, &piece, self.table, |_| Ok(()))?;
        self.is_finished = true;
        Ok(piece)
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

impl Drop for PieceWriter {
    fn drop(&mut self) {
        if !self.is_finished {
            // One that stays is removed at the next start: nothing names it.
            let _ = self.disk.remove(&file_name(self.number));
        }
    }
}

/// When files of pieces were written, in milliseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PieceTimes {
    /// The oldest one.
    pub oldest_ms: u64,
    /// The one in the middle; of an even count, the later of both.
    pub median_ms: u64,
}

impl PieceTimes {
    /// Those of these pieces; `None` without any, or on a disk that keeps no such times.
    pub fn of(disk: &dyn Disk, pieces: &[SnapshotPiece]) -> Option<Self> {
        // A piece that was replaced meanwhile has no file any more.
        let changed = pieces.iter().filter_map(|piece| disk.changed_ms(&file_name(piece.number)).ok()?);
        let mut changed: Vec<u64> = changed.collect();
        changed.sort_unstable();
        let median_ms = *changed.get(changed.len() / 2)?;
        Some(Self { oldest_ms: changed[0], median_ms })
    }
}

/// Reads a complete piece of the snapshot of `table`, and hands each record to `visit`, in the order of the
/// keys.
///
/// # Errors
/// [`DurabilityError`]: it is damaged, or not there; what `visit` refuses.
pub fn read_piece(
    disk: &dyn Disk,
    piece: &SnapshotPiece,
    table: u32,
    mut visit: impl FnMut(Record<'_>) -> Result<(), DurabilityError>,
) -> Result<(), DurabilityError> {
    let file = PieceFile::open(disk, piece, table)?;
    let (mut bytes, mut chain) = (Vec::new(), PieceChain::default());
    for _ in 0..piece.frames {
        file.read_bytes(chain.at, file.frame_bytes(chain.at)?, &mut bytes)?;
        let frame = file.parse_frame(chain.at, &bytes)?;
        file.check(&frame, &chain)?;
        file.visit(chain.at, &frame, &mut visit)?;
        chain.go_on(&frame);
    }
    file.check_end(&chain)
}

/// A complete piece, open to be read.
pub(crate) struct PieceFile {
    file: Box<dyn DiskFile>,
    place: String,
    piece: SnapshotPiece,
    table: u32,
}

/// How far a piece was read, and checked, in its order.
#[derive(Clone, Copy, Default)]
pub(crate) struct PieceChain {
    /// Where the next frame begins.
    pub at: u64,
    number: u64,
    checksum: u32,
}

impl PieceChain {
    /// This frame was the next one.
    pub(crate) fn go_on(&mut self, frame: &Frame<'_>) {
        self.at += frame.bytes().next_multiple_of(SECTOR_BYTES as u64);
        (self.number, self.checksum) = (frame.number, frame.checksum);
    }
}

impl PieceFile {
    pub(crate) fn open(disk: &dyn Disk, piece: &SnapshotPiece, table: u32) -> Result<Self, DurabilityError> {
        let file_name = file_name(piece.number);
        let place = disk.place(&file_name);
        let file = disk.open(&file_name).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                DurabilityError::Missing { file: place.clone(), why: "the catalogue names it" }
            }
            _ => disk_error("opening", place.clone())(error),
        })?;
        Ok(Self { file, place, piece: *piece, table })
    }

    /// Bytes of the frame that begins at `at`, by its header and as far as the file has them.
    pub(crate) fn frame_bytes(&self, at: u64) -> Result<u64, DurabilityError> {
        let read = || {
            let rest = self.file.length_bytes()?.saturating_sub(at);
            let mut header = [0; FRAME_HEADER_BYTES];
            if rest < FRAME_HEADER_BYTES as u64 {
                return Ok(0);
            }
            self.file.read_at(at, &mut header)?;
            Ok(Frame::bytes_said(&header).min(rest))
        };
        read().map_err(disk_error("reading", self.place.clone()))
    }

    /// Reads the bytes of the frame that begins at `at`, in the place of what stands in `into`.
    pub(crate) fn read_bytes(
        &self,
        at: u64,
        frame_bytes: u64,
        into: &mut Vec<u8>,
    ) -> Result<(), DurabilityError> {
        into.resize(frame_bytes as usize, 0);
        if frame_bytes == 0 {
            return Ok(());
        }
        self.file.read_at(at, into).map_err(disk_error("reading", self.place.clone()))
    }

    /// The frame of these bytes, which were read at `at`. Whether it belongs there is not known yet.
    pub(crate) fn parse_frame<'b>(&self, at: u64, bytes: &'b [u8]) -> Result<Frame<'b>, DurabilityError> {
        Frame::parse(bytes).map_err(|fault| self.damaged(at, fault))
    }

    /// Refuses a frame that does not go on with what was read.
    pub(crate) fn check(&self, frame: &Frame<'_>, chain: &PieceChain) -> Result<(), DurabilityError> {
        let checked = frame.check(chain.number + 1, self.piece.number, chain.checksum);
        checked.map_err(|fault| self.damaged(chain.at, fault))
    }

    /// Hands the records of the frame at `at` to `visit`.
    pub(crate) fn visit(
        &self,
        at: u64,
        frame: &Frame<'_>,
        mut visit: impl FnMut(Record<'_>) -> Result<(), DurabilityError>,
    ) -> Result<(), DurabilityError> {
        let behind = frame.visit(|record| {
            let (expected, got) = (self.table.into(), record.table.into());
            if expected != got {
                let fault = FrameFault::Field { what: "table of the record", expected, got };
                return Err(self.damaged(at, fault));
            }
            visit(record)
        });
        let behind = behind.map_err(|fault| match fault {
            RecordFault::Fault { fault, .. } => self.damaged(at, fault),
            RecordFault::Refused(error) => error,
        })?;
        if behind.is_empty() {
            return Ok(());
        }
        let (what, got) = ("bytes behind the last record", behind.len() as u64);
        Err(self.damaged(at, FrameFault::Field { what, expected: 0, got }))
    }

    /// Refuses a piece that ends otherwise than the catalogue says.
    pub(crate) fn check_end(&self, chain: &PieceChain) -> Result<(), DurabilityError> {
        let (expected, got) = (self.piece.checksum.into(), chain.checksum.into());
        if expected == got {
            return Ok(());
        }
        Err(self.damaged(chain.at, FrameFault::Field { what: "checksum of the last frame", expected, got }))
    }

    fn damaged(&self, offset: u64, fault: FrameFault) -> DurabilityError {
        DurabilityError::Damaged { file: self.place.clone(), offset, table: Some(self.table), fault }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::disk::{RealDisk, SimulatedDisk};

    #[test]
    fn times_are_those_of_the_files() {
        let directory = tempfile::tempdir().expect("a directory");
        let disk = RealDisk::make(directory.path()).expect("a disk");
        let piece = |number| SnapshotPiece {
            number,
            first_key: 0,
            position: LogPosition::default(),
            version_max: 0,
            frames: 0,
            checksum: 0,
            pairs: 0,
            pair_bytes: 0,
        };
        for (number, seconds) in (0..).zip([50, 10, 40, 20]) {
            let file = File::create(directory.path().join(file_name(number))).expect("a file");
            file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).expect("its time");
        }
        let times = |disk: &dyn Disk, numbers: &[u64]| {
            let pieces: Vec<SnapshotPiece> = numbers.iter().copied().map(piece).collect();
            PieceTimes::of(disk, &pieces).map(|times| (times.oldest_ms, times.median_ms))
        };
        assert_eq!(times(&disk, &[0, 1, 2]), Some((10_000, 40_000)));
        assert_eq!(times(&disk, &[0, 1, 2, 3]), Some((10_000, 40_000)));
        assert_eq!(times(&disk, &[0, 9]), Some((50_000, 50_000)), "one is gone");
        assert_eq!(times(&disk, &[]), None);
        assert_eq!(times(&SimulatedDisk::default(), &[0]), None);
    }
}

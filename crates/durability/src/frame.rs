//! Frames: what is appended to a log or a snapshot at once, under one checksum.
//!
//! Invariant: a frame that validates was written whole, in this place of this file. It names its number, its
//! file's incarnation, and the checksum of the frame before; its own checksum covers all of that.
//!
//! Header, 40 B: {checksum 32, bytes 32}, number, durable number, incarnation, {checksum of the frame before
//! 32, records 32}. Then the records. Then, in a log, [notes](Note).
//!
//! A record is a block behind a word {table 32, bytes 32}, or stands in a [run](runs): pairs of one length
//! whose versions follow each other, without a header each.

mod runs;

use std::ops::Range;

use farsight_layout::value_block::{
    BLOCK_HEADER_BYTES, BlockFault, BlockTooLong, RecordKind, ValueBlock, push_record,
};

use self::runs::{Run, RunWriter};
use crate::Note;

pub use runs::{RUN_BIT, RUN_HEADER_BYTES};

/// Bytes of a frame before its records.
pub const FRAME_HEADER_BYTES: usize = 40;
/// Bytes before each record of a frame.
pub const RECORD_HEADER_BYTES: usize = 8;
/// Bytes of a frame that its checksum leaves out, at its begin: the checksum.
const CHECKSUM_BYTES: usize = 4;

/// Why bytes are no frame, or not the one that belongs there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameFault {
    /// There are fewer bytes than the frame has.
    #[error("a frame of {needed_bytes} B, of which {got_bytes} B are there")]
    Cut {
        /// Bytes of the frame.
        needed_bytes: u64,
        /// Bytes that are there.
        got_bytes: u64,
    },
    /// The checksum says that some bytes are others.
    #[error("checksum: expected {expected:#x}, got {got:#x}")]
    Checksum {
        /// As computed.
        expected: u32,
        /// As it stands there.
        got: u32,
    },
    /// Another field is not what it has to be.
    #[error("{what}: expected {expected}, got {got}")]
    Field {
        /// Which.
        what: &'static str,
        /// What has to stand there.
        expected: u64,
        /// What stands there.
        got: u64,
    },
    /// A record is none.
    #[error("record: {0}")]
    Record(#[from] BlockFault),
}

/// Collects records, and notes behind them, and seals them as a frame.
#[derive(Debug)]
pub struct FrameWriter {
    bytes: Vec<u8>,
    records: u32,
    has_notes: bool,
    /// The run at its end, which the next record may go on with.
    run: Option<RunWriter>,
}

/// A frame whose checksum fits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Counts the frames of a log, or of a snapshot, from one.
    pub number: u64,
    /// When this frame was written, all up to this number were durable.
    pub durable_number: u64,
    /// Of its file.
    pub incarnation: u64,
    /// Checksum of the frame before.
    pub previous_checksum: u32,
    /// Its own.
    pub checksum: u32,
    records: u32,
    bytes: u64,
    body: &'a [u8],
}

/// One record of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// The table's whole number.
    pub table: u32,
    /// What it says of its key.
    pub kind: RecordKind,
    /// The version of the pair or the removal.
    pub version: u64,
    /// The key's bytes.
    pub key: &'a [u8],
    /// The value's; none of a removal.
    pub value: &'a [u8],
}

impl Record<'_> {
    /// True for a pair, false for a removal.
    #[must_use]
    pub fn is_pair(&self) -> bool {
        self.kind == RecordKind::Pair
    }
}

impl Default for FrameWriter {
    fn default() -> Self {
        Self { bytes: vec![0; FRAME_HEADER_BYTES], records: 0, has_notes: false, run: None }
    }
}

impl FrameWriter {
    /// Appends a record. Returns where its value stands ([`FrameWriter::bytes_at`]).
    ///
    /// # Errors
    /// [`BlockTooLong`]; then nothing was appended.
    #[inline]
    pub fn push(
        &mut self,
        table: u32,
        kind: RecordKind,
        version: u64,
        key: &[u8],
        value: &[u8],
    ) -> Result<Range<usize>, BlockTooLong> {
        debug_assert!(!self.has_notes, "records stand before notes");
        if kind == RecordKind::Pair
            && let Ok(key) = <[u8; 8]>::try_from(key)
            && let Ok(value_bytes) = u16::try_from(value.len())
        {
            let run = match &mut self.run {
                Some(run) if run.goes_on(table, version, value_bytes) => run,
                run => run.insert(RunWriter::begin(&mut self.bytes, table, version, value_bytes)),
            };
            self.records += 1;
            return Ok(run.push(&mut self.bytes, key, value));
        }
        let place = self.push_block(table, kind, version, key, value)?;
        self.run = None;
        self.records += 1;
        Ok(place)
    }

    /// The same as a block of its own.
    fn push_block(
        &mut self,
        table: u32,
        kind: RecordKind,
        version: u64,
        key: &[u8],
        value: &[u8],
    ) -> Result<Range<usize>, BlockTooLong> {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
        let pushed = push_record(&mut self.bytes, kind, version, table as u16, key, value);
        if let Err(error) = pushed {
            self.bytes.truncate(begin);
            return Err(error);
        }
        let record_bytes = self.bytes.len() - begin - RECORD_HEADER_BYTES;
        let header = u64::from(table) | (record_bytes as u64) << 32;
        self.bytes[begin..begin + RECORD_HEADER_BYTES].copy_from_slice(&header.to_le_bytes());
        let value_begin = begin + RECORD_HEADER_BYTES + BLOCK_HEADER_BYTES + key.len();
        Ok(value_begin..value_begin + value.len())
    }

    /// Appends a note. No record comes behind it.
    pub fn push_note(&mut self, note: Note<'_>) {
        note.push(&mut self.bytes);
        self.has_notes = true;
    }

    /// What stands there, until the records are taken out.
    ///
    /// # Panics
    /// If the frame has fewer bytes.
    #[inline]
    #[must_use]
    pub fn bytes_at(&self, place: Range<usize>) -> &[u8] {
        &self.bytes[place]
    }

    /// Bytes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True without records and notes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records == 0 && !self.has_notes
    }

    /// Takes all records and notes out again.
    pub fn clear(&mut self) {
        self.bytes.truncate(FRAME_HEADER_BYTES);
        (self.records, self.has_notes, self.run) = (0, false, None);
    }

    /// Makes the records a frame. Returns its bytes and its checksum.
    pub fn seal(
        &mut self,
        number: u64,
        durable_number: u64,
        incarnation: u64,
        previous_checksum: u32,
    ) -> (&[u8], u32) {
        let words = [
            (self.bytes.len() as u64) << 32,
            number,
            durable_number,
            incarnation,
            u64::from(previous_checksum) | u64::from(self.records) << 32,
        ];
        for (bytes, word) in self.bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        let checksum = crc32c::crc32c(&self.bytes[CHECKSUM_BYTES..]);
        self.bytes[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
        (&self.bytes, checksum)
    }
}

impl<'a> Frame<'a> {
    /// The frame that begins `bytes`; what stands behind it is ignored.
    ///
    /// # Errors
    /// [`FrameFault`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FrameFault> {
        let cut =
            |needed: usize| FrameFault::Cut { needed_bytes: needed as u64, got_bytes: bytes.len() as u64 };
        let [first, number, durable, incarnation, fifth, ..] = bytes.as_chunks::<8>().0 else {
            return Err(cut(FRAME_HEADER_BYTES));
        };
        let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        let needed = (word(first) >> 32) as usize;
        if needed < FRAME_HEADER_BYTES {
            let (expected, got) = (FRAME_HEADER_BYTES as u64, needed as u64);
            return Err(FrameFault::Field { what: "bytes of a frame, at least", expected, got });
        }
        let whole = bytes.get(..needed).ok_or(cut(needed))?;
        let body = whole.get(FRAME_HEADER_BYTES..).ok_or(cut(needed))?;
        let covered = whole.get(CHECKSUM_BYTES..).ok_or(cut(needed))?;
        let (expected, got) = (crc32c::crc32c(covered), word(first) as u32);
        if expected != got {
            return Err(FrameFault::Checksum { expected, got });
        }
        Ok(Self {
            number: word(number),
            durable_number: word(durable),
            incarnation: word(incarnation),
            previous_checksum: word(fifth) as u32,
            checksum: got,
            records: (word(fifth) >> 32) as u32,
            bytes: needed as u64,
            body,
        })
    }

    /// The frame that begins `bytes`, if it is one and may be of interest by its header: by its number, the
    /// number that was durable, and its file's incarnation. Of other bytes no checksum is computed.
    pub(crate) fn parse_if(bytes: &'a [u8], is_it: impl Fn(u64, u64, u64) -> bool) -> Option<Self> {
        let [_, number, durable, incarnation, ..] = bytes.as_chunks::<8>().0 else { return None };
        let [number, durable, incarnation] =
            [number, durable, incarnation].map(|word| u64::from_le_bytes(*word));
        if is_it(number, durable, incarnation) { Self::parse(bytes).ok() } else { None }
    }

    /// The frame that begins `bytes`, whatever its checksum.
    #[cfg(injected)]
    pub(crate) fn believe(bytes: &'a [u8]) -> Option<Self> {
        let mut fixed = bytes.to_vec();
        let length = u32::from_le_bytes(*fixed.get(4..)?.first_chunk()?) as usize;
        let checksum = crc32c::crc32c(fixed.get(CHECKSUM_BYTES..length)?);
        fixed[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
        // Leaked: a bug is short-lived.
        let fixed = Frame::parse(fixed.leak()).ok()?;
        Some(Frame { body: bytes.get(FRAME_HEADER_BYTES..length)?, ..fixed })
    }

    /// Bytes of the whole frame.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What it says of itself, without its records.
    pub(crate) fn head(&self) -> Frame<'static> {
        Frame { body: &[], ..*self }
    }

    /// Records in it.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.records
    }

    /// Refuses a frame that does not belong behind one of this checksum, with this number, in such a file.
    ///
    /// # Errors
    /// [`FrameFault::Field`].
    pub fn check(&self, number: u64, incarnation: u64, previous_checksum: u32) -> Result<(), FrameFault> {
        let fields = [
            ("number of the frame", number, self.number),
            ("incarnation of the file", incarnation, self.incarnation),
            ("checksum of the frame before", previous_checksum.into(), self.previous_checksum.into()),
        ];
        match fields.into_iter().find(|(_, expected, got)| expected != got) {
            Some((what, expected, got)) => Err(FrameFault::Field { what, expected, got }),
            None => Ok(()),
        }
    }

    /// Hands each record to `visit`, in order. Returns the bytes of its notes, which were not looked at.
    ///
    /// # Errors
    /// [`FrameFault`] at the first record that is none, with the number of its table if that can be told;
    /// what `visit` refuses.
    pub fn visit<E>(
        &self,
        mut visit: impl FnMut(Record<'a>) -> Result<(), E>,
    ) -> Result<&'a [u8], RecordFault<E>> {
        let (mut rest, mut left) = (self.body, self.records);
        while left > 0 {
            let cut =
                FrameFault::Cut { needed_bytes: RECORD_HEADER_BYTES as u64, got_bytes: rest.len() as u64 };
            let unknown = |fault| RecordFault::Fault { table: None, fault };
            let (header, behind) = rest.split_first_chunk::<8>().ok_or(unknown(cut))?;
            let header = u64::from_le_bytes(*header);
            let (table, said_bytes) = (header as u32, (header >> 32) as usize);
            let (is_run, record_bytes) = (said_bytes & RUN_BIT != 0, said_bytes & !RUN_BIT);
            let damaged = |fault| RecordFault::Fault { table: Some(table), fault };
            let cut = FrameFault::Cut { needed_bytes: record_bytes as u64, got_bytes: behind.len() as u64 };
            let (record, behind) = behind.split_at_checked(record_bytes).ok_or(damaged(cut))?;
            rest = behind;
            if is_run {
                let run = Run::parse(table, record, left).map_err(damaged)?;
                left -= run.len();
                run.records().try_for_each(&mut visit).map_err(RecordFault::Refused)?;
                continue;
            }
            let (kind, block) = ValueBlock::parse_record(record).map_err(|fault| damaged(fault.into()))?;
            let (expected, got) = ((table as u16).into(), block.table().into());
            if expected != got {
                return Err(damaged(FrameFault::Field { what: "table of the record", expected, got }));
            }
            left -= 1;
            let (version, key, value) = (block.version(), block.key(), block.value());
            visit(Record { table, kind, version, key, value }).map_err(RecordFault::Refused)?;
        }
        Ok(rest)
    }

    /// Bytes that a frame with this header says to have.
    pub(crate) fn bytes_said(header: &[u8; FRAME_HEADER_BYTES]) -> u64 {
        let length = header.as_chunks::<4>().0.get(1).copied().unwrap_or_default();
        u32::from_le_bytes(length).into()
    }

    /// The table of the first record that bytes would hold if they were a frame.
    pub(crate) fn table_said(bytes: &[u8]) -> Option<u32> {
        let word = bytes.get(FRAME_HEADER_BYTES..)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*word))
    }
}

/// What ended a visit of a frame's records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordFault<E> {
    /// A record is none.
    Fault {
        /// Its table, if that can be told.
        table: Option<u32>,
        /// Why.
        fault: FrameFault,
    },
    /// The visitor refused.
    Refused(E),
}

//! Segments: the files of a log, numbered without gaps.
//!
//! Header, in a sector of its own: magic, {version 32, checksum 32}, number, incarnation, number of the last
//! frame before, checksum of that frame. Frames begin at sectors, so that the write of one touches no sector
//! of another.

use crate::disk::{Disk, SECTOR_BYTES};
use crate::frame::FrameFault;
use crate::{DATA_FORMAT_VERSION, is_known_format};

/// The first word of a segment.
pub const SEGMENT_MAGIC: u64 = u64::from_le_bytes(*b"FARSLOG\n");
/// Bytes of a header that count.
pub const SEGMENT_HEADER_BYTES: usize = 48;
const PREFIX: &str = "log-";

/// A place in the log: before it comes all that was appended earlier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct LogPosition {
    /// The segment's number, from one.
    pub segment: u64,
    /// Bytes from its begin.
    pub offset: u64,
}

/// What a segment says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// Its number.
    pub number: u64,
    /// Of the life of the server that wrote it.
    pub incarnation: u64,
    /// The last frame before it.
    pub last_number: u64,
    /// That frame's checksum.
    pub last_checksum: u32,
}

/// Why bytes are no header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HeaderFault {
    /// It is of another version.
    OtherFormat(u32),
    /// It is none.
    Fault(FrameFault),
}

/// Bytes of the log from segment `first` on to `end`: what a recovery would read.
pub fn log_bytes(disk: &dyn Disk, first: u64, end: LogPosition) -> u64 {
    // One that a round of snapshots removes meanwhile counts no more.
    let length = |number| disk.open(&file_name(number)).and_then(|file| file.length_bytes()).unwrap_or(0);
    (first..end.segment).map(length).sum::<u64>() + end.offset
}

/// The name of the segment of this number.
pub(crate) fn file_name(number: u64) -> String {
    format!("{PREFIX}{number:016x}")
}

/// The number of the segment of this name.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    numbered(name, PREFIX)
}

/// The number in a name that begins so.
pub(crate) fn numbered(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    (name == format!("{prefix}{number:016x}")).then_some(number)
}

impl SegmentHeader {
    /// Its sector.
    #[must_use]
    pub fn to_bytes(self) -> [u8; SECTOR_BYTES] {
        self.to_bytes_of(DATA_FORMAT_VERSION)
    }

    /// The same in this version of the format.
    fn to_bytes_of(self, version: u32) -> [u8; SECTOR_BYTES] {
        let mut bytes = [0; SECTOR_BYTES];
        let words = [
            SEGMENT_MAGIC,
            version.into(),
            self.number,
            self.incarnation,
            self.last_number,
            self.last_checksum.into(),
        ];
        for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        let checksum = crc32c::crc32c(&bytes[..SEGMENT_HEADER_BYTES]);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The header that begins `bytes`.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, HeaderFault> {
        let short = FrameFault::Cut { needed_bytes: SECTOR_BYTES as u64, got_bytes: bytes.len() as u64 };
        let sector = bytes.first_chunk::<SECTOR_BYTES>().ok_or(HeaderFault::Fault(short))?;
        let [magic, second, number, incarnation, last_number, sixth, ..] = sector.as_chunks::<8>().0 else {
            return Err(HeaderFault::Fault(short));
        };
        let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        if word(magic) != SEGMENT_MAGIC {
            let fault = FrameFault::Field { what: "magic", expected: SEGMENT_MAGIC, got: word(magic) };
            return Err(HeaderFault::Fault(fault));
        }
        let (version, got) = (word(second) as u32, (word(second) >> 32) as u32);
        let header = Self {
            number: word(number),
            incarnation: word(incarnation),
            last_number: word(last_number),
            last_checksum: word(sixth) as u32,
        };
        if !is_known_format(version) {
            return Err(HeaderFault::OtherFormat(version));
        }
        let written = header.to_bytes_of(version);
        if written[..SEGMENT_HEADER_BYTES] == sector[..SEGMENT_HEADER_BYTES] {
            return Ok(header);
        }
        let expected = u32::from_le_bytes([written[12], written[13], written[14], written[15]]);
        Err(HeaderFault::Fault(FrameFault::Checksum { expected, got }))
    }
}

//! The file of a table of a copy: a header, and pairs in pieces.
//!
//! Header, 16 B: magic, {version 32, zero 32}. A piece has a header of 24 B: {number 32 from 1, pairs 32},
//! {bytes 32 behind the header, checksum 32 of the piece before}, {checksum 32, zero 32}. Its checksum covers
//! the first two words, and all behind the third. Pairs stand one behind the other:
//! {bytes of the value 32, of the key 16}, the deadline 64, key, value.

use farsight_layout::value_block::{BLOCK_KEY_BYTES_MAX, LONGEST_VALUE_BYTES};

use super::manifest::{CopiedTable, SAMPLE_KEYS_MAX};
use super::{COPY_FORMAT_VERSION, CopiedPair, TableToCopy};
use crate::error::DurabilityError;
use crate::frame::FrameFault;

/// The first word of a table's file.
const TABLE_MAGIC: u64 = u64::from_le_bytes(*b"FARSTBL\n");
/// Bytes of its header.
pub const TABLE_HEADER_BYTES: usize = 16;
/// Bytes of a piece's header.
pub const TABLE_PIECE_HEADER_BYTES: usize = 24;
/// Bytes with which a piece ends.
const PIECE_BYTES: usize = 1 << 18;
/// Bytes of a pair before its key.
const PAIR_HEADER_BYTES: usize = 14;
/// Bytes of a piece behind its header at most: its last pair may be long.
pub const TABLE_PIECE_BYTES_MAX: usize =
    PIECE_BYTES + PAIR_HEADER_BYTES + BLOCK_KEY_BYTES_MAX + LONGEST_VALUE_BYTES;

/// Why a file of a copy is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CopyFault {
    /// It is of another version.
    #[error("version: expected {COPY_FORMAT_VERSION}, got {0}")]
    OtherVersion(u32),
    /// Its bytes are others than were written.
    #[error(transparent)]
    Bytes(#[from] FrameFault),
    /// The tables of a manifest are out of order.
    #[error("tables: expected names that ascend, got one that does not")]
    Order,
    /// The name of a table is none.
    #[error("name of a table: expected text, got other bytes")]
    Name,
}

impl CopyFault {
    /// The error of a file that has this fault there.
    pub(super) fn in_file(self, file: String, offset: u64) -> DurabilityError {
        match self {
            Self::OtherVersion(got) => DurabilityError::OtherCopyFormat { file, got },
            Self::Bytes(fault) => DurabilityError::Damaged { file, offset, table: None, fault },
            other => DurabilityError::NoCopy { file, offset, fault: other },
        }
    }
}

/// Why reading ended.
#[derive(Debug)]
pub(super) enum Refused<E> {
    /// A pair, by who was told of it.
    By(E),
    /// Bytes at an offset of the file.
    For(u64, CopyFault),
}

/// Collects pairs, and seals them as pieces.
pub(super) struct TableWriter {
    table: CopiedTable,
    /// A piece's header and pairs.
    bytes: Vec<u8>,
    piece_pairs: u32,
    /// Of so many pieces one gives a key to the sample.
    sample_distance: u64,
    first_key: Vec<u8>,
}

impl TableWriter {
    pub(super) fn new(table: TableToCopy<'_>) -> Self {
        let table = CopiedTable {
            name: table.name.to_owned(),
            definition: table.definition.to_vec(),
            is_ascending: table.is_ascending,
            pairs: 0,
            pieces: 0,
            bytes: TABLE_HEADER_BYTES as u64,
            checksum: 0,
            value_bytes_max: 0,
            sample: Vec::new(),
        };
        let bytes = vec![0; TABLE_PIECE_HEADER_BYTES];
        Self { table, bytes, piece_pairs: 0, sample_distance: 1, first_key: Vec::new() }
    }

    /// The bytes of a file before its pieces.
    pub(super) fn header() -> Vec<u8> {
        [TABLE_MAGIC, COPY_FORMAT_VERSION.into()].into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// Adds a pair.
    ///
    /// # Panics
    /// If key or value are longer than a block holds.
    pub(super) fn push(&mut self, pair: CopiedPair<'_>) {
        let key_bytes = u16::try_from(pair.key.len()).expect("a key of a table fits a block");
        assert!(pair.value.len() <= LONGEST_VALUE_BYTES, "a value of a table fits a block");
        if self.piece_pairs == 0 {
            self.first_key = pair.key.to_vec();
        }
        self.table.value_bytes_max = self.table.value_bytes_max.max(pair.value.len() as u32);
        self.bytes.extend((pair.value.len() as u32).to_le_bytes());
        self.bytes.extend(key_bytes.to_le_bytes());
        self.bytes.extend(pair.ends_at_ms.to_le_bytes());
        self.bytes.extend_from_slice(pair.key);
        self.bytes.extend_from_slice(pair.value);
        self.piece_pairs += 1;
        self.table.pairs += 1;
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= TABLE_PIECE_HEADER_BYTES + PIECE_BYTES
    }

    /// Pairs so far.
    pub(super) fn pairs(&self) -> u64 {
        self.table.pairs
    }

    /// The bytes of the next piece; `None` if there is no pair for it.
    pub(super) fn seal(&mut self) -> Option<Vec<u8>> {
        if self.piece_pairs == 0 {
            return None;
        }
        if self.table.pieces.is_multiple_of(self.sample_distance) {
            self.table.sample.push(std::mem::take(&mut self.first_key));
        }
        if self.table.sample.len() == SAMPLE_KEYS_MAX {
            // Each second one stays.
            let mut index = 0;
            self.table.sample.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.sample_distance *= 2;
        }
        self.table.pieces += 1;
        let mut piece = std::mem::replace(&mut self.bytes, vec![0; TABLE_PIECE_HEADER_BYTES]);
        let behind = (piece.len() - TABLE_PIECE_HEADER_BYTES) as u32;
        let halves = [self.table.pieces as u32, self.piece_pairs, behind, self.table.checksum];
        for (at, half) in halves.into_iter().enumerate() {
            piece[4 * at..4 * at + 4].copy_from_slice(&half.to_le_bytes());
        }
        self.table.checksum = checksum(&piece);
        piece[16..20].copy_from_slice(&self.table.checksum.to_le_bytes());
        self.table.bytes += piece.len() as u64;
        self.piece_pairs = 0;
        Some(piece)
    }

    /// What the manifest says of the file.
    pub(super) fn finish(self) -> CopiedTable {
        self.table
    }
}

/// The checksum of a piece: of all but its third word.
fn checksum(piece: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&piece[..16]), &piece[TABLE_PIECE_HEADER_BYTES..])
}

/// Reads a file of which the bytes come in any portions.
pub(super) struct TableReader<'t> {
    table: &'t CopiedTable,
    /// What has come and is not read yet; it begins at this offset of the file.
    bytes: Vec<u8>,
    offset: u64,
    pieces: u64,
    pairs: u64,
    checksum: u32,
    has_header: bool,
}

impl<'t> TableReader<'t> {
    pub(super) fn new(table: &'t CopiedTable) -> Self {
        let bytes = Vec::new();
        Self { table, bytes, offset: 0, pieces: 0, pairs: 0, checksum: 0, has_header: false }
    }

    /// Takes bytes, and tells `visit` the pairs of each piece that is whole.
    pub(super) fn feed<E>(
        &mut self,
        bytes: &[u8],
        visit: &mut dyn FnMut(CopiedPair<'_>) -> Result<(), E>,
    ) -> Result<(), Refused<E>> {
        self.bytes.extend_from_slice(bytes);
        let mut read = 0;
        if !self.has_header {
            let Some(header) = self.bytes.first_chunk::<TABLE_HEADER_BYTES>() else { return Ok(()) };
            check_header(header).map_err(|(at, fault)| Refused::For(at, fault))?;
            (read, self.has_header) = (TABLE_HEADER_BYTES, true);
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        let done = loop {
            match self.piece(&bytes[read..], self.offset + read as u64, visit) {
                Ok(0) => break Ok(()),
                Ok(piece_bytes) => read += piece_bytes,
                Err(refused) => break Err(refused),
            }
        };
        bytes.drain(..read);
        (self.bytes, self.offset) = (bytes, self.offset + read as u64);
        done
    }

    /// Reads the piece with which `bytes` begin, at `offset` of the file. Returns its bytes, 0 if it is not
    /// whole yet.
    fn piece<E>(
        &mut self,
        bytes: &[u8],
        offset: u64,
        visit: &mut dyn FnMut(CopiedPair<'_>) -> Result<(), E>,
    ) -> Result<usize, Refused<E>> {
        let refuse = |at: u64, fault| Err(Refused::For(offset + at, fault));
        let Some(header) = bytes.first_chunk::<TABLE_PIECE_HEADER_BYTES>() else { return Ok(0) };
        let halves = header.as_chunks::<4>().0;
        let half = |index: usize| u32::from_le_bytes(halves[index]);
        let [number, pairs, behind, previous, got, zero] = std::array::from_fn(half);
        let fields = [
            ("number of a piece", 0, self.pieces as u32 + 1, number),
            ("checksum of the piece before", 12, self.checksum, previous),
            ("a half that is not used", 20, 0, zero),
        ];
        for (what, at, expected, got) in fields {
            if expected != got {
                return refuse(at, field(what, expected.into(), got.into()));
            }
        }
        if self.pieces == self.table.pieces {
            return refuse(0, field("pieces", self.table.pieces, self.pieces + 1));
        }
        if behind as usize > TABLE_PIECE_BYTES_MAX {
            return refuse(
                8,
                field("bytes of a piece, at most", TABLE_PIECE_BYTES_MAX as u64, behind.into()),
            );
        }
        let whole_bytes = TABLE_PIECE_HEADER_BYTES + behind as usize;
        let Some(piece) = bytes.get(..whole_bytes) else { return Ok(0) };
        let expected = checksum(piece);
        if expected != got {
            return refuse(16, FrameFault::Checksum { expected, got }.into());
        }
        self.visit_pairs(piece, (offset, pairs), visit)?;
        (self.pieces, self.checksum) = (self.pieces + 1, got);
        Ok(whole_bytes)
    }

    /// The pairs of a piece whose checksum fits, all of which are looked at before `visit` is told any.
    fn visit_pairs<E>(
        &mut self,
        piece: &[u8],
        (offset, pairs): (u64, u32),
        visit: &mut dyn FnMut(CopiedPair<'_>) -> Result<(), E>,
    ) -> Result<(), Refused<E>> {
        let all = || Pairs { bytes: piece, at: TABLE_PIECE_HEADER_BYTES };
        let mut count = 0;
        for pair in all() {
            pair.map_err(|(at, fault)| Refused::For(offset + at, fault))?;
            count += 1;
        }
        if count != u64::from(pairs) {
            return Err(Refused::For(offset + 4, field("pairs of a piece", count, pairs.into())));
        }
        all().flatten().try_for_each(visit).map_err(Refused::By)?;
        self.pairs += count;
        Ok(())
    }

    /// Refuses a file that ends elsewhere than the manifest says.
    pub(super) fn finish(self) -> Result<(), (u64, CopyFault)> {
        let end = self.offset + self.bytes.len() as u64;
        if end < self.table.bytes {
            let (needed_bytes, got_bytes) = (self.table.bytes, end);
            return Err((self.offset, FrameFault::Cut { needed_bytes, got_bytes }.into()));
        }
        let fields = [
            ("bytes of the file", self.table.bytes, end),
            ("pieces", self.table.pieces, self.pieces),
            ("pairs", self.table.pairs, self.pairs),
            ("checksum of the last piece", self.table.checksum.into(), self.checksum.into()),
        ];
        match fields.into_iter().find(|(_, expected, got)| expected != got) {
            None => Ok(()),
            Some((what, expected, got)) => Err((self.offset, field(what, expected, got))),
        }
    }
}

fn field(what: &'static str, expected: u64, got: u64) -> CopyFault {
    FrameFault::Field { what, expected, got }.into()
}

fn check_header(header: &[u8; TABLE_HEADER_BYTES]) -> Result<(), (u64, CopyFault)> {
    let [magic, second] = [0, 1].map(|index| u64::from_le_bytes(header.as_chunks::<8>().0[index]));
    if magic != TABLE_MAGIC {
        return Err((0, field("magic", TABLE_MAGIC, magic)));
    }
    if second as u32 != COPY_FORMAT_VERSION {
        return Err((8, CopyFault::OtherVersion(second as u32)));
    }
    match second >> 32 {
        0 => Ok(()),
        got => Err((12, field("a half that is not used", 0, got))),
    }
}

/// The pairs of a piece, or where there is none.
struct Pairs<'p> {
    bytes: &'p [u8],
    at: usize,
}

impl<'p> Iterator for Pairs<'p> {
    type Item = Result<CopiedPair<'p>, (u64, CopyFault)>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            return None;
        }
        let at = self.at as u64;
        let cut = |needed: usize| {
            let (needed_bytes, got_bytes) = (needed as u64, rest.len() as u64);
            (at, FrameFault::Cut { needed_bytes, got_bytes }.into())
        };
        let pair = || {
            let (header, rest) =
                rest.split_first_chunk::<PAIR_HEADER_BYTES>().ok_or_else(|| cut(PAIR_HEADER_BYTES))?;
            let value_bytes = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
            let key_bytes = usize::from(u16::from_le_bytes([header[4], header[5]]));
            let ends_at_ms = header.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            let needed = key_bytes.saturating_add(value_bytes);
            let pair = rest.get(..needed).ok_or_else(|| cut(PAIR_HEADER_BYTES.saturating_add(needed)))?;
            let (key, value) = pair.split_at(key_bytes);
            Ok(CopiedPair { key, ends_at_ms, value })
        };
        let pair = pair();
        self.at = match &pair {
            Ok(pair) => self.at + PAIR_HEADER_BYTES + pair.key.len() + pair.value.len(),
            Err(_) => self.bytes.len(),
        };
        Some(pair)
    }
}

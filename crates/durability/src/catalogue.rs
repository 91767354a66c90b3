//! The catalogue: which tables there are, which snapshots, and where the log begins.
//!
//! Bytes: magic, {version 32, checksum 32 of all behind this word}, then words and texts in the order of the
//! fields. A text, and any other run of bytes, is its length in a word, and then its bytes.

mod membership;

use std::collections::BTreeMap;

use crate::disk::Disk;
use crate::frame::FrameFault;
use crate::segment::{HeaderFault, LogPosition, file_name};
use crate::{DATA_FORMAT_VERSION, DurabilityError, LogEnd, NOTES_SINCE_VERSION, is_known_format};
pub use membership::{DirectoryLife, Membership, PoolNode};

/// The first word of a catalogue.
pub const CATALOGUE_MAGIC: u64 = u64::from_le_bytes(*b"FARSCAT\n");
/// Bytes before the first field.
const HEADER_BYTES: usize = 16;
/// Tables at most that a catalogue is believed to have.
const TABLES_MAX: u64 = 1 << 20;
/// Pieces at most that a table is believed to have.
const PIECES_MAX: u64 = 1 << 24;

/// A catalogue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Catalogue {
    /// Counts the lives of servers in this directory.
    pub incarnation: u64,
    /// The number of the next table: those below were given.
    pub next_table: u32,
    /// The number of the next snapshot.
    pub next_snapshot: u64,
    /// The oldest segment of the log that recovery needs.
    pub first_segment: u64,
    /// True once a life has acknowledged writes before they were durable: clients may have seen versions that
    /// are lost.
    pub acknowledges_early: bool,
    /// The first incarnation whose notes of calls count: those before are another directory's, too.
    pub authors_since: u64,
    /// Who its node is, and in which pool.
    pub membership: Membership,
    /// The tables, by their numbers.
    pub tables: BTreeMap<u32, CatalogueTable>,
}

/// One table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CatalogueTable {
    /// Its name.
    pub name: String,
    /// What its node needs to make it again; nothing here looks at it.
    pub definition: Vec<u8>,
    /// All records of it stand behind this.
    pub since: LogPosition,
    /// Its snapshot: the pieces by their first keys, from zero on. None before the first snapshot.
    pub pieces: Vec<SnapshotPiece>,
}

/// A complete piece of a snapshot: the pairs from its first key to that of the next piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotPiece {
    /// Its number, by which its file is called.
    pub number: u64,
    /// The least key that belongs into it.
    pub first_key: u64,
    /// Of its keys it has all that the log says before this.
    pub position: LogPosition,
    /// The greatest version that the table had given then.
    pub version_max: u64,
    /// Frames of the file.
    pub frames: u64,
    /// Checksum of its last frame.
    pub checksum: u32,
    /// Pairs in it.
    pub pairs: u64,
    /// Bytes of their keys and values.
    pub pair_bytes: u64,
}

impl Catalogue {
    /// Refuses a log that ends before a segment which a table names. That one had a header, and a header is
    /// durable before anything is written behind it: so its file was taken away.
    ///
    /// # Errors
    /// [`DurabilityError::Missing`].
    pub fn check_end(&self, disk: &dyn Disk, end: &LogEnd) -> Result<(), DurabilityError> {
        let named = self.tables.values().map(CatalogueTable::newest_position);
        match named.filter(|position| position.offset > 0).max() {
            Some(LogPosition { segment, .. }) if segment > end.segment => {
                let why = "the log had come to it when a table was made, or copied to a snapshot";
                Err(DurabilityError::Missing { file: disk.place(&file_name(segment)), why })
            }
            _ => Ok(()),
        }
    }
}

impl CatalogueTable {
    /// Recovery of the table needs the log from here on.
    #[must_use]
    pub fn needs_log_from(&self) -> LogPosition {
        self.pieces.iter().map(|piece| piece.position).min().unwrap_or(self.since)
    }

    /// The newest place of the log that it names.
    fn newest_position(&self) -> LogPosition {
        self.pieces.iter().map(|piece| piece.position).fold(self.since, LogPosition::max)
    }

    /// True if recovery needs a record of this position and key.
    #[must_use]
    pub fn needs(&self, position: LogPosition, key: &[u8]) -> bool {
        let index = piece_index(&self.pieces, key_word(key));
        position >= self.pieces.get(index).map_or(self.since, |piece| piece.position)
    }

    /// Pairs of its snapshot, if there is one.
    #[must_use]
    pub fn snapshot_pairs(&self) -> Option<u64> {
        (!self.pieces.is_empty()).then(|| self.pieces.iter().map(|piece| piece.pairs).sum())
    }
}

/// The key of a record; of other than eight bytes none is written.
pub(crate) fn key_word(key: &[u8]) -> u64 {
    key.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Where among these pieces the one of a key stands.
pub(crate) fn piece_index(pieces: &[SnapshotPiece], key: u64) -> usize {
    pieces.partition_point(|piece| piece.first_key <= key).saturating_sub(1)
}

impl Catalogue {
    /// The pieces of all tables' snapshots.
    pub fn pieces(&self) -> impl Iterator<Item = &SnapshotPiece> {
        self.tables.values().flat_map(|table| &table.pieces)
    }

    /// Its bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut put = |word: u64| bytes.extend_from_slice(&word.to_le_bytes());
        let header = [CATALOGUE_MAGIC, 0];
        let own = [self.incarnation, self.next_table.into(), self.next_snapshot, self.first_segment];
        let lives = [self.acknowledges_early.into(), self.authors_since];
        header.into_iter().chain(own).chain(lives).for_each(&mut put);
        self.membership.put(&mut put);
        put(self.tables.len() as u64);
        for (number, table) in &self.tables {
            let put = |bytes: &mut Vec<u8>, word: u64| bytes.extend_from_slice(&word.to_le_bytes());
            put(&mut bytes, (*number).into());
            for text in [table.name.as_bytes(), &table.definition] {
                put(&mut bytes, text.len() as u64);
                bytes.extend_from_slice(text);
            }
            put(&mut bytes, table.since.segment);
            put(&mut bytes, table.since.offset);
            put(&mut bytes, table.pieces.len() as u64);
            for word in table.pieces.iter().flat_map(SnapshotPiece::words) {
                put(&mut bytes, word);
            }
        }
        let checksum = crc32c::crc32c(&bytes[HEADER_BYTES..]);
        let second = u64::from(DATA_FORMAT_VERSION) | u64::from(checksum) << 32;
        bytes[8..HEADER_BYTES].copy_from_slice(&second.to_le_bytes());
        bytes
    }

    /// The catalogue of these bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, (usize, HeaderFault)> {
        let mut fields = Fields { bytes, at: 0 };
        let at_begin = |fault| (0, HeaderFault::Fault(fault));
        let magic = fields.word().map_err(at_begin)?;
        if magic != CATALOGUE_MAGIC {
            return Err(at_begin(FrameFault::Field { what: "magic", expected: CATALOGUE_MAGIC, got: magic }));
        }
        let second = fields.word().map_err(at_begin)?;
        let (version, got) = (second as u32, (second >> 32) as u32);
        if !is_known_format(version) {
            return Err((8, HeaderFault::OtherFormat(version)));
        }
        let expected = crc32c::crc32c(bytes.get(HEADER_BYTES..).unwrap_or_default());
        if expected != got {
            return Err((8, HeaderFault::Fault(FrameFault::Checksum { expected, got })));
        }
        let parsed = fields.catalogue(version);
        parsed.map_err(|fault| (fields.at, HeaderFault::Fault(fault)))
    }
}

impl SnapshotPiece {
    fn words(&self) -> [u64; 9] {
        let LogPosition { segment, offset } = self.position;
        let Self { number, first_key, version_max, frames, checksum, pairs, pair_bytes, .. } = *self;
        [number, first_key, segment, offset, version_max, frames, checksum.into(), pairs, pair_bytes]
    }
}

/// Fields that are taken one by one.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn take(&mut self, length: u64) -> Result<&'a [u8], FrameFault> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let cut = FrameFault::Cut { needed_bytes: length, got_bytes: rest.len() as u64 };
        let length = usize::try_from(length).map_err(|_| cut)?;
        let taken = rest.get(..length).ok_or(cut)?;
        self.at += length;
        Ok(taken)
    }

    fn word(&mut self) -> Result<u64, FrameFault> {
        let bytes = self.take(8)?;
        let cut = FrameFault::Cut { needed_bytes: 8, got_bytes: bytes.len() as u64 };
        Ok(u64::from_le_bytes(*bytes.first_chunk().ok_or(cut)?))
    }

    fn half(&mut self, what: &'static str) -> Result<u32, FrameFault> {
        let got = self.word()?;
        u32::try_from(got).map_err(|_| FrameFault::Field { what, expected: u32::MAX.into(), got })
    }

    fn text(&mut self) -> Result<&'a [u8], FrameFault> {
        let length = self.word()?;
        self.take(length)
    }

    fn position(&mut self) -> Result<LogPosition, FrameFault> {
        Ok(LogPosition { segment: self.word()?, offset: self.word()? })
    }

    fn catalogue(&mut self, version: u32) -> Result<Catalogue, FrameFault> {
        let mut catalogue = Catalogue {
            incarnation: self.word()?,
            next_table: self.half("number of the next table, at most")?,
            next_snapshot: self.word()?,
            first_segment: self.word()?,
            acknowledges_early: self.flag("1 if a life has acknowledged early, at most")?,
            authors_since: if version < NOTES_SINCE_VERSION { 0 } else { self.word()? },
            membership: self.membership()?,
            tables: BTreeMap::new(),
        };
        let tables = self.word()?;
        if tables > TABLES_MAX {
            let (what, expected) = ("tables, at most", TABLES_MAX);
            return Err(FrameFault::Field { what, expected, got: tables });
        }
        for _ in 0..tables {
            let number = self.half("number of a table, at most")?;
            let table = self.table()?;
            catalogue.tables.insert(number, table);
        }
        match self.bytes.len() - self.at {
            0 => Ok(catalogue),
            behind => {
                let what = "bytes behind the last table";
                Err(FrameFault::Field { what, expected: 0, got: behind as u64 })
            }
        }
    }

    fn table(&mut self) -> Result<CatalogueTable, FrameFault> {
        let name = String::from_utf8_lossy(self.text()?).into_owned();
        let definition = self.text()?.to_vec();
        let since = self.position()?;
        let count = self.word()?;
        if count > PIECES_MAX {
            let (what, expected) = ("pieces of a table, at most", PIECES_MAX);
            return Err(FrameFault::Field { what, expected, got: count });
        }
        let mut pieces: Vec<SnapshotPiece> = Vec::new();
        for _ in 0..count {
            let piece = self.piece()?;
            let is_behind = match pieces.last() {
                Some(before) => before.first_key < piece.first_key,
                None => piece.first_key == 0,
            };
            if !is_behind {
                let expected = pieces.last().map_or(0, |before| before.first_key.saturating_add(1));
                let what = "first key of a piece, in order";
                return Err(FrameFault::Field { what, expected, got: piece.first_key });
            }
            pieces.push(piece);
        }
        Ok(CatalogueTable { name, definition, since, pieces })
    }

    fn piece(&mut self) -> Result<SnapshotPiece, FrameFault> {
        Ok(SnapshotPiece {
            number: self.word()?,
            first_key: self.word()?,
            position: self.position()?,
            version_max: self.word()?,
            frames: self.word()?,
            checksum: self.half("checksum of a snapshot, at most")?,
            pairs: self.word()?,
            pair_bytes: self.word()?,
        })
    }

    fn flag(&mut self, what: &'static str) -> Result<bool, FrameFault> {
        match self.word()? {
            0 => Ok(false),
            1 => Ok(true),
            got => Err(FrameFault::Field { what, expected: 1, got }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn position() -> impl Strategy<Value = LogPosition> {
        any::<(u64, u64)>().prop_map(|(segment, offset)| LogPosition { segment, offset })
    }

    fn pieces() -> impl Strategy<Value = Vec<SnapshotPiece>> {
        let piece = (any::<[u64; 5]>(), any::<u32>(), position()).prop_map(|(words, checksum, position)| {
            let [number, version_max, frames, pairs, pair_bytes] = words;
            let first_key = 0;
            SnapshotPiece { number, first_key, position, version_max, frames, checksum, pairs, pair_bytes }
        });
        (proptest::collection::vec(piece, 0..4), any::<[u32; 4]>()).prop_map(|(mut pieces, gaps)| {
            let mut first_key = 0;
            for (piece, gap) in pieces.iter_mut().zip(gaps) {
                piece.first_key = first_key;
                first_key += u64::from(gap) + 1;
            }
            pieces
        })
    }

    fn table() -> impl Strategy<Value = CatalogueTable> {
        let parts = ("[a-z]{0,9}", any::<Vec<u8>>(), position(), pieces());
        parts.prop_map(|(name, definition, since, pieces)| CatalogueTable { name, definition, since, pieces })
    }

    fn membership() -> impl Strategy<Value = Membership> {
        let node = any::<(u64, u64, u64)>().prop_map(|(origin, number, epoch)| {
            let met = (number > 0).then_some(DirectoryLife { number, epoch });
            PoolNode { origin, met }
        });
        let nodes = proptest::collection::vec(node, 0..4);
        let parts = (any::<(u64, Vec<u64>, u32)>(), nodes, any::<BTreeSet<u32>>(), any::<Vec<(u32, u32)>>());
        parts.prop_map(|((origin, lives, index), nodes, dropped, forgotten)| Membership {
            origin,
            lives,
            nodes,
            index,
            dropped,
            forgotten,
        })
    }

    proptest! {
        #[test]
        fn a_catalogue_comes_back_and_no_other(
            words in any::<[u64; 4]>(), next_table: u32, acknowledges_early: bool,
            membership in membership(),
            tables in proptest::collection::btree_map(any::<u32>(), table(), 0..5),
            change: (usize, u8),
        ) {
            let [incarnation, next_snapshot, first_segment, authors_since] = words;
            let catalogue = Catalogue {
                incarnation, next_table, next_snapshot, first_segment, acknowledges_early, authors_since,
                membership, tables,
            };
            let mut bytes = catalogue.to_bytes();
            prop_assert_eq!(Catalogue::parse(&bytes), Ok(catalogue));
            let at = change.0 % bytes.len();
            bytes[at] ^= change.1.max(1);
            prop_assert!(Catalogue::parse(&bytes).is_err(), "byte {} changed", at);
            prop_assert!(Catalogue::parse(&bytes[..at]).is_err(), "cut at {}", at);
        }
    }
}

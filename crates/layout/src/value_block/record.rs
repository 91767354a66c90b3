//! A block as a record of a log or a snapshot: the same bytes as in a region, written at once.

use super::{
    BLOCK_HEADER_BYTES, BLOCK_KEY_LENGTH_SHIFT, BLOCK_KIND_PAIR, BLOCK_KIND_REMOVAL, BLOCK_KIND_SHIFT,
    BLOCK_TABLE_SHIFT, BlockFault, BlockTooLong, ValueBlock, block_bytes, checksum_end,
};
use crate::PAIR_VERSION_BITS;

/// What a record says of its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordKind {
    /// It has this value.
    Pair,
    /// It has none.
    Removal,
}

impl RecordKind {
    fn number(self) -> u8 {
        match self {
            Self::Pair => BLOCK_KIND_PAIR,
            Self::Removal => BLOCK_KIND_REMOVAL,
        }
    }

    /// The kind with this number; `None` for one that is not stored.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        [Self::Pair, Self::Removal].into_iter().find(|kind| kind.number() == number)
    }
}

/// Appends a record, padded with zeros to whole words.
///
/// # Errors
/// [`BlockTooLong`]; then nothing was appended.
///
/// # Panics
/// If the version is zero or has more than [`PAIR_VERSION_BITS`].
pub fn push_record(
    into: &mut Vec<u8>,
    kind: RecordKind,
    version: u64,
    table: u16,
    key: &[u8],
    value: &[u8],
) -> Result<(), BlockTooLong> {
    BlockTooLong::check(key.len(), value.len())?;
    assert!(version != 0 && version >> PAIR_VERSION_BITS == 0, "a record of version {version}");
    let lengths = value.len() as u64;
    let second = version | u64::from(table) << BLOCK_TABLE_SHIFT;
    let checksum_end = checksum_end(second, key.len() as u16, kind.number());
    let begin = into.len();
    let (end, bytes) = (begin + block_bytes(key.len(), value.len()), block_bytes(key.len(), value.len()));
    into.reserve(bytes + checksum_end.len());
    let mut header = [0; BLOCK_HEADER_BYTES];
    header[8..16].copy_from_slice(&second.to_le_bytes());
    header[16..].copy_from_slice(&lengths.to_le_bytes());
    into.extend_from_slice(&header);
    into.extend_from_slice(key);
    into.extend_from_slice(value);
    // All that the checksum covers stands in a row for a moment: short records are most of their calls.
    into.extend_from_slice(&checksum_end);
    let checksum = crc32c::crc32c(&into[begin + 16..]);
    let first = u64::from(checksum)
        | (key.len() as u64) << BLOCK_KEY_LENGTH_SHIFT
        | u64::from(kind.number()) << BLOCK_KIND_SHIFT;
    into[begin..begin + 8].copy_from_slice(&first.to_le_bytes());
    into.truncate(end);
    into.resize(begin + bytes.next_multiple_of(8), 0);
    Ok(())
}

impl<'a> ValueBlock<'a> {
    /// The record that begins `bytes`, and its kind; what stands behind it is ignored.
    ///
    /// # Errors
    /// [`BlockFault`].
    pub fn parse_record(bytes: &'a [u8]) -> Result<(RecordKind, Self), BlockFault> {
        Self::parse_kind(bytes, RecordKind::from_number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_a_pair_is_its_block_and_that_of_a_removal_is_none() {
        let mut bytes = Vec::new();
        push_record(&mut bytes, RecordKind::Pair, 9, 3, b"key", b"a longer value").expect("short");
        assert_eq!(bytes.len() % 8, 0);
        let block = ValueBlock::parse(&bytes).expect("a block");
        assert_eq!((block.version(), block.table(), block.key()), (9, 3, &b"key"[..]));
        assert_eq!(ValueBlock::parse_record(&bytes), Ok((RecordKind::Pair, block)));
        bytes.clear();
        push_record(&mut bytes, RecordKind::Removal, 10, 3, b"key", b"").expect("short");
        assert_eq!(ValueBlock::parse(&bytes), Err(BlockFault::Kind { got: BLOCK_KIND_REMOVAL }));
        assert_eq!(ValueBlock::parse_record(&bytes).expect("a record").0, RecordKind::Removal);
        bytes[6] = 3;
        assert_eq!(ValueBlock::parse_record(&bytes), Err(BlockFault::Kind { got: 3 }));
    }
}

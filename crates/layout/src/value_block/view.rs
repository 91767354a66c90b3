//! The checked view of a block: bytes that a READ returned, and what they must be.

use farsight_base::LINE_BYTES;

use super::{
    BLOCK_HEADER_BYTES, BLOCK_KEY_LENGTH_SHIFT, BLOCK_KIND_PAIR, BLOCK_KIND_SHIFT, BLOCK_TABLE_SHIFT,
    BLOCK_VALUE_BYTES_MAX, block_bytes, checksum_end, sealed_checksum,
};
use crate::PAIR_VERSION_BITS;

/// Where the third word of a header begins.
const LENGTHS_AT: usize = 16;
/// Bytes under one checksum that are put in a row first.
const SHORT_BYTES: usize = 64;

/// What a reader has to find in a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockIdentity<'a> {
    /// The table.
    pub table: u16,
    /// The pair's version, where its reference stood.
    pub version: u64,
    /// The key.
    pub key: &'a [u8],
}

/// Why bytes are not the block requested. All of these mean: look the key up again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BlockFault {
    /// There are fewer bytes than the block has.
    #[error("a block of {needed_bytes} B, of which {got_bytes} B were read")]
    Cut {
        /// Bytes of the block, as far as they are known.
        needed_bytes: usize,
        /// Bytes at hand.
        got_bytes: usize,
    },
    /// The kind is none of those that are stored.
    #[error("kind: expected {BLOCK_KIND_PAIR}, got {got}")]
    Kind {
        /// The kind.
        got: u8,
    },
    /// Flags that this version of the format does not have.
    #[error("flags: expected 0, got {got:#x}")]
    Flags {
        /// The flags.
        got: u32,
    },
    /// The value is longer than any.
    #[error("value length: at most {BLOCK_VALUE_BYTES_MAX} B, got {got_bytes} B")]
    Length {
        /// The length.
        got_bytes: usize,
    },
    /// The checksum says that some bytes are others'.
    #[error("checksum: expected {expected:#x}, got {got:#x}")]
    Checksum {
        /// As computed.
        expected: u32,
        /// As it stands there.
        got: u32,
    },
    /// The block is of another version, hence its memory was used anew.
    #[error("version: expected {expected}, got {got}")]
    OtherVersion {
        /// As requested.
        expected: u64,
        /// As it stands there.
        got: u64,
    },
    /// The block is another table's.
    #[error("table: expected {expected}, got {got}")]
    OtherTable {
        /// As requested.
        expected: u16,
        /// As it stands there.
        got: u16,
    },
    /// The block is of another key.
    #[error("another key, of {got_bytes} B")]
    OtherKey {
        /// Length of the key that stands there.
        got_bytes: usize,
    },
}

/// A block whose checksum fits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueBlock<'a> {
    version: u64,
    table: u16,
    key: &'a [u8],
    value: &'a [u8],
}

impl<'a> ValueBlock<'a> {
    /// The block that begins `bytes`; what stands behind it is ignored.
    ///
    /// # Errors
    /// [`BlockFault`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BlockFault> {
        Self::parse_kind(bytes, |kind| (kind == BLOCK_KIND_PAIR).then_some(())).map(|((), block)| block)
    }

    /// The block that begins `bytes`, if `known` has its kind.
    pub(super) fn parse_kind<K>(
        bytes: &'a [u8],
        known: impl FnOnce(u8) -> Option<K>,
    ) -> Result<(K, Self), BlockFault> {
        let header = Header::parse(bytes)?;
        let kind = known(header.kind).ok_or(BlockFault::Kind { got: header.kind })?;
        let needed_bytes = header.bytes()?;
        let cut = BlockFault::Cut { needed_bytes, got_bytes: bytes.len() };
        let body = bytes.get(BLOCK_HEADER_BYTES..needed_bytes).ok_or(cut)?;
        let (key, value) = body.split_at_checked(header.key_bytes.into()).ok_or(cut)?;
        let expected = header.checksum_of(bytes.get(LENGTHS_AT..needed_bytes).ok_or(cut)?);
        #[cfg(injected)]
        let expected =
            if crate::injected::CHECKSUM_SKIPPED.is_injected() { header.checksum } else { expected };
        if expected != header.checksum {
            return Err(BlockFault::Checksum { expected, got: header.checksum });
        }
        Ok((kind, Self { version: header.version(), table: header.table(), key, value }))
    }

    /// The value of the block that begins `bytes`, if it is the one requested.
    ///
    /// # Errors
    /// [`BlockFault`].
    pub fn value_of(bytes: &'a [u8], asked: BlockIdentity<'_>) -> Result<&'a [u8], BlockFault> {
        let block = Self::parse(bytes)?;
        #[cfg(injected)]
        if crate::injected::BLOCK_IDENTITY_NOT_COMPARED.is_injected() {
            return Ok(block.value);
        }
        block.check(asked)?;
        Ok(block.value)
    }

    /// Lines of the block whose first line these bytes begin, as it says itself, if it may be the one
    /// requested. Who read a line of memory that was used anew reads no more of it.
    ///
    /// # Errors
    /// [`BlockFault`] if the header cannot be that of this block. Its key is not looked at.
    pub fn lines_said(bytes: &[u8], asked: BlockIdentity<'_>) -> Result<usize, BlockFault> {
        let header = Header::parse(bytes)?;
        if header.kind != BLOCK_KIND_PAIR {
            return Err(BlockFault::Kind { got: header.kind });
        }
        let (version, table) = (header.version(), header.table());
        ValueBlock { version, table, key: asked.key, value: &[] }.check(asked)?;
        Ok(header.bytes()?.div_ceil(LINE_BYTES))
    }

    /// The pair's version.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The table to which it belongs.
    #[must_use]
    pub fn table(&self) -> u16 {
        self.table
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        self.key
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &'a [u8] {
        self.value
    }

    fn check(&self, asked: BlockIdentity<'_>) -> Result<(), BlockFault> {
        if self.version != asked.version {
            return Err(BlockFault::OtherVersion { expected: asked.version, got: self.version });
        }
        if self.table != asked.table {
            return Err(BlockFault::OtherTable { expected: asked.table, got: self.table });
        }
        if self.key != asked.key {
            return Err(BlockFault::OtherKey { got_bytes: self.key.len() });
        }
        Ok(())
    }
}

/// The fields of a header, as they stand there.
struct Header {
    checksum: u32,
    key_bytes: u16,
    kind: u8,
    /// Version and table.
    second: u64,
    /// The value's length and the flags.
    lengths: u64,
}

impl Header {
    /// The checksum that belongs into it. `covered` are the third word, key and value.
    fn checksum_of(&self, covered: &[u8]) -> u32 {
        let mut row = [0; SHORT_BYTES];
        let end = checksum_end(self.second, self.key_bytes, self.kind);
        let Some(row) = row.get_mut(..covered.len() + end.len()) else {
            return sealed_checksum(crc32c::crc32c(covered), self.second, self.key_bytes, self.kind);
        };
        // In a row, for one call: short blocks are most of those in a log.
        let (begin, behind) = row.split_at_mut(covered.len());
        begin.copy_from_slice(covered);
        behind.copy_from_slice(&end);
        crc32c::crc32c(row)
    }

    fn parse(bytes: &[u8]) -> Result<Self, BlockFault> {
        let cut = BlockFault::Cut { needed_bytes: BLOCK_HEADER_BYTES, got_bytes: bytes.len() };
        let [first, second, lengths, ..] = bytes.as_chunks::<8>().0 else { return Err(cut) };
        let first = u64::from_le_bytes(*first);
        Ok(Self {
            checksum: first as u32,
            key_bytes: (first >> BLOCK_KEY_LENGTH_SHIFT) as u16,
            kind: (first >> BLOCK_KIND_SHIFT) as u8,
            second: u64::from_le_bytes(*second),
            lengths: u64::from_le_bytes(*lengths),
        })
    }

    fn version(&self) -> u64 {
        self.second & ((1 << PAIR_VERSION_BITS) - 1)
    }

    fn table(&self) -> u16 {
        (self.second >> BLOCK_TABLE_SHIFT) as u16
    }

    /// Bytes of the block, if it can be one.
    fn bytes(&self) -> Result<usize, BlockFault> {
        let (flags, value_bytes) = ((self.lengths >> 32) as u32, self.lengths as u32 as usize);
        if flags != 0 {
            return Err(BlockFault::Flags { got: flags });
        }
        if value_bytes > BLOCK_VALUE_BYTES_MAX {
            return Err(BlockFault::Length { got_bytes: value_bytes });
        }
        Ok(block_bytes(self.key_bytes.into(), value_bytes))
    }
}

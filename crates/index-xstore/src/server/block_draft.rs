//! A write's block before its reference is known to anybody.

use farsight_blocks::BlockWriter;
use farsight_layout::SHORT_VALUE_BYTES;
use farsight_layout::value_block::{BlockPlace, BlockRef, BlockTooLong, block_lines, write_draft};

use super::block_copy::KEY_BYTES;
use super::block_tree::BlockWriteError;

/// A block that has no version yet.
pub(super) struct Draft {
    pub(super) place: BlockPlace,
    /// Its reference's bytes.
    pub(super) reference: [u8; SHORT_VALUE_BYTES],
}

impl Draft {
    /// Takes a place and writes the pair there.
    pub(super) fn write(writer: &mut BlockWriter, key: u64, value: &[u8]) -> Result<Self, BlockWriteError> {
        let too_long = |source| BlockWriteError::TooLong { key, source };
        BlockTooLong::check(KEY_BYTES, value.len()).map_err(too_long)?;
        let lines = block_lines(KEY_BYTES, value.len()) as u32;
        let place = writer.allocate(lines).map_err(|source| BlockWriteError::NoRoom { key, source })?;
        let key_bytes = key.to_le_bytes();
        let words = writer.space().words(place).expect("a place of the space");
        write_draft(words, &key_bytes, value).map_err(too_long)?;
        Ok(Self { place, reference: BlockRef::new(&key_bytes, place).0.to_le_bytes() })
    }
}

//! Blocks: values of any length, each with its key, its version and a checksum; and the word that names one.
//!
//! Invariant: a block is immutable from the moment at which a reference to it is published until its memory
//! is used anew. A reader counts a copy of it only if the checksum fits, and table, version and key are those
//! requested. Versions never recur in a table. So a reader recognizes memory that was used anew, whatever of
//! it was copied when. A copy that mixes two blocks passes by a chance of 2^-32.
//!
//! Protocol of a writer, who alone has the block's memory:
//! 1. [`write_draft`] writes key and value, without a version. A draft is no block. One whose value comes in
//!    pieces is a [`DraftInPieces`] until it is whole.
//! 2. [`seal`] gives it its version. That takes the same time for every length, so it can be done under a
//!    latch.
//! 3. The writer publishes the [`BlockRef`] with Release.

mod draft;
mod record;
mod reference;
mod view;

pub use draft::{BlockTooLong, DraftInPieces, SealedHeader, draft_checksum, seal, write_draft};
pub use record::{RecordKind, push_record};
pub use reference::{BlockPlace, BlockRef};
pub use view::{BlockFault, BlockIdentity, ValueBlock};

use farsight_base::LINE_BYTES;

use crate::DEADLINE_BYTES;

/// Bytes of a block before its key.
pub const BLOCK_HEADER_BYTES: usize = 24;
/// Words of that header.
pub const BLOCK_HEADER_WORDS: usize = 3;
/// Bytes of a block's key at most.
pub const BLOCK_KEY_BYTES_MAX: usize = 65535;
/// Bytes of a block's value at most: 16 MiB behind a deadline.
pub const BLOCK_VALUE_BYTES_MAX: usize = LONGEST_VALUE_BYTES + DEADLINE_BYTES;
/// Bytes of a value that users store, at most: 16 MiB.
pub const LONGEST_VALUE_BYTES: usize = 1 << 24;
/// The kind of a block that is not sealed yet.
pub const BLOCK_KIND_DRAFT: u8 = 0;
/// The kind of a block that holds a pair.
pub const BLOCK_KIND_PAIR: u8 = 1;
/// The kind of a record that says that a key has no value any more: in logs alone.
pub const BLOCK_KIND_REMOVAL: u8 = 2;
/// Bit of a block's first word where the key's length begins; below it is the checksum.
pub const BLOCK_KEY_LENGTH_SHIFT: u32 = 32;
/// Bit of a block's first word where its kind begins.
pub const BLOCK_KIND_SHIFT: u32 = 48;
/// Bit of a block's first word where its state begins, which the checksum leaves out.
pub const BLOCK_STATE_SHIFT: u32 = 56;
/// Bit of a block's second word where the table begins; below it is the version.
pub const BLOCK_TABLE_SHIFT: u32 = 48;

/// Bits of a reference that hold the key's fingerprint, the lowest.
pub const REFERENCE_FINGERPRINT_BITS: u32 = 8;
/// Bits of a reference that hold the block's length in lines.
pub const REFERENCE_LINES_BITS: u32 = 8;
/// The length in a reference that says: read the block's header first.
pub const REFERENCE_LINES_LONG: u32 = 255;
/// Bits of a reference that hold the block's offset in lines.
pub const REFERENCE_OFFSET_BITS: u32 = 40;
/// Bits of a reference that hold the space in which the block stands.
pub const REFERENCE_SPACE_BITS: u32 = 7;
/// Bit of a reference that says that there is a block.
pub const REFERENCE_LIVE_BIT: u32 = 63;

const _: () = assert!(BLOCK_HEADER_BYTES == BLOCK_HEADER_WORDS * 8);
const _: () = assert!(
    REFERENCE_FINGERPRINT_BITS + REFERENCE_LINES_BITS + REFERENCE_OFFSET_BITS + REFERENCE_SPACE_BITS
        == REFERENCE_LIVE_BIT
);

/// Bytes of a block with a key and a value of these lengths.
#[must_use]
pub const fn block_bytes(key_bytes: usize, value_bytes: usize) -> usize {
    BLOCK_HEADER_BYTES + key_bytes + value_bytes
}

/// Lines of a block with a key and a value of these lengths.
#[must_use]
pub const fn block_lines(key_bytes: usize, value_bytes: usize) -> usize {
    block_bytes(key_bytes, value_bytes).div_ceil(LINE_BYTES)
}

/// The checksum of a whole block from that of its third word, key and value. Version and kind come last, so
/// that sealing a draft costs the same for every length.
fn sealed_checksum(body: u32, version_word: u64, key_bytes: u16, kind: u8) -> u32 {
    crc32c::crc32c_append(body, &checksum_end(version_word, key_bytes, kind))
}

/// What the checksum of a whole block covers last.
fn checksum_end(version_word: u64, key_bytes: u16, kind: u8) -> [u8; 11] {
    let [low, high] = key_bytes.to_le_bytes();
    let mut end = [0; 11];
    end[..8].copy_from_slice(&version_word.to_le_bytes());
    end[8..].copy_from_slice(&[low, high, kind]);
    end
}

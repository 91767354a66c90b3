//! Copies of blocks, each checked.
//!
//! Invariant: a value is read from a copy whose checksum fits, of the version, table and key that were named.

use farsight_base::words::{CopyMode, bytes_of, copy_lines};
use farsight_base::{LINE_BYTES, Line};
use farsight_blocks::BlockSpace;
use farsight_layout::value_block::{
    BLOCK_VALUE_BYTES_MAX, BlockFault, BlockIdentity, BlockPlace, BlockRef, SealedHeader, ValueBlock,
    block_bytes, block_lines,
};

/// Bytes of a key in its block.
pub(super) const KEY_BYTES: usize = 8;

/// What a pair's slot says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) reference: BlockRef,
    pub(super) version: u64,
}

/// A block that was copied and checked.
#[derive(Clone, Copy)]
pub(super) struct Copied {
    value_bytes: usize,
}

impl Copied {
    /// Its value, in the lines to which it was copied.
    pub(super) fn value(self, lines: &[Line]) -> &[u8] {
        &bytes_of(lines)[block_bytes(KEY_BYTES, 0)..][..self.value_bytes]
    }
}

/// True if the block that is named has a value of more bytes than that, as far as its lines tell. One whose
/// memory was used anew has not, nor has one whose header says more than any value has. These are to be
/// copied, and found out.
pub(super) fn is_longer(
    (space, table): (&BlockSpace, u16),
    Named { reference, version }: Named,
    value_bytes: usize,
) -> bool {
    let longest = block_lines(KEY_BYTES, value_bytes);
    if reference.lines().is_some_and(|lines| lines as usize <= longest) {
        return false;
    }
    let place = BlockPlace { space: reference.space(), offset_lines: reference.offset_lines(), lines: 1 };
    let Some(words) = space.words(place) else { return false };
    let header = SealedHeader::read(words);
    let possible = longest + 1..=block_lines(KEY_BYTES, BLOCK_VALUE_BYTES_MAX);
    header.version == version && header.table == table && possible.contains(&header.lines)
}

/// Copies the block of `key` in a table's `space`, and checks the copy.
pub(super) fn copy(
    (space, table): (&BlockSpace, u16),
    key: u64,
    Named { reference, version }: Named,
    lines: &mut Vec<Line>,
) -> Result<Copied, BlockFault> {
    let key = key.to_le_bytes();
    let asked = BlockIdentity { table, version, key: &key };
    let (number, offset_lines) = (reference.space(), reference.offset_lines());
    let mut place = BlockPlace { space: number, offset_lines, lines: reference.lines().unwrap_or(1) };
    copy_place(space, place, lines)?;
    if reference.lines().is_none() {
        place.lines = ValueBlock::lines_said(bytes_of(lines), asked)? as u32;
        copy_place(space, place, lines)?;
    }
    let value = ValueBlock::value_of(bytes_of(lines), asked)?;
    Ok(Copied { value_bytes: value.len() })
}

fn copy_place(space: &BlockSpace, place: BlockPlace, lines: &mut Vec<Line>) -> Result<(), BlockFault> {
    let needed_bytes = place.lines as usize * LINE_BYTES;
    let words = space.words(place).ok_or(BlockFault::Cut { needed_bytes, got_bytes: 0 })?;
    lines.resize(place.lines as usize, Line::ZERO);
    copy_lines(words, lines, CopyMode::Plain);
    Ok(())
}

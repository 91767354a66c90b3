//! What a pool's table keeps of its learned index, in the meta region of the first memory node: the root
//! line, directories, and the images of groups. Groups are the paper's sub-models: a model and the leaf table
//! beside it.
//!
//! Invariant: all of it is hints. Memory is used anew while slow readers still READ it. So every piece says
//! what it is, carries a checksum over all of its words, and is believed whole or not at all. A wrong hint
//! that is believed costs time alone, because the leaves' fences decide.

mod directory;
mod group;

pub use directory::{Directory, DirectoryShape, DirectorySlot, GroupPointer, RootWord};
pub use group::{GroupEntry, GroupImage, GroupTime};

use farsight_base::prng::mix;

/// Word of the root line that names the directory.
pub const ROOT_WORD: usize = 0;
/// Word of the root line that counts splits for as long as there is no directory.
pub const ROOT_SPLITS_WORD: usize = 1;

/// Words of a group image before its segments.
pub const GROUP_HEADER_WORDS: usize = 3;
/// Words of a segment in a group image.
pub const SEGMENT_WORDS: usize = 3;
/// Leaves of a group at most.
pub const GROUP_LEAVES_MAX: usize = 4096;
/// The low half of a group image's first word.
pub const GROUP_MAGIC: u64 = 0x6772_6f75;
/// Words of a directory before its boundaries.
pub const DIRECTORY_HEADER_WORDS: usize = 8;
/// Groups of a directory at most.
pub const DIRECTORY_GROUPS_MAX: usize = 1 << 24;
/// Groups that a directory's run of lines has room for, at least.
pub const DIRECTORY_CAPACITY_MIN: u32 = 8;
/// The low half of a directory's first word.
pub const DIRECTORY_MAGIC: u64 = 0x6469_7265;
/// Words of a directory's slot.
pub const DIRECTORY_SLOT_WORDS: usize = 2;
/// Bits of a slot's pointer that hold how many lines the image has; its line's number lies below them.
pub const POINTER_LINES_BITS: u32 = 12;
/// Bits of a slot's pointer that hold the image's generation, lowest bits, above the others.
pub const POINTER_GENERATION_BITS: u32 = 19;
/// The bit of a slot's pointer that says that it will not change any more: a new directory is under way.
pub const POINTER_FROZEN_BIT: u32 = 63;

/// Words that are not what they should be: stale, torn or hostile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{piece}: {what}: expected {expected:#x}, got {got:#x}")]
pub struct ImageError {
    /// What was to be read.
    pub piece: &'static str,
    /// The field.
    pub what: &'static str,
    /// Its only, least or greatest value.
    pub expected: u64,
    /// What stands there.
    pub got: u64,
}

/// A number that hardly any other words have.
fn checksum<'a>(words: impl IntoIterator<Item = &'a u64>) -> u64 {
    words.into_iter().fold(0, |sum: u64, word| mix(sum.rotate_left(23) ^ mix(*word)))
}

fn too_short(piece: &'static str, expected: usize, got: usize) -> ImageError {
    ImageError { piece, what: "words of the header", expected: expected as u64, got: got as u64 }
}

/// Nothing if `got` is what was `expected`.
fn demand(piece: &'static str, what: &'static str, expected: u64, got: u64) -> Result<(), ImageError> {
    if expected == got { Ok(()) } else { Err(ImageError { piece, what, expected, got }) }
}

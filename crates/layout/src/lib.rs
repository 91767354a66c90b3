//! Remote bytes and their checked views: XStore's leaf, the translation table's entry, the sub-model's
//! record, the leaf of a memory pool, the block of a value of any length. The specification is
//! docs/format.md; this crate is its one reader and writer.
//!
//! Invariant: whatever bytes stand in a line, a view of them is right by the rules of the format. Otherwise
//! it is a [`KeySearch`] or [`ValueFault`] that says what it is instead. No input panics, none leads out of
//! bounds.
//!
//! No I/O here and no policy: who latches a leaf, when it splits and where its block comes from is the
//! engines'.

#![deny(unsafe_code)]

mod deadline;
mod entry;
mod geometry;
pub mod hash_index;
mod image;
mod in_place;
#[cfg(any(shuttle, injected))]
pub mod injected;
mod key_lines;
pub mod learned;
pub mod pool;
mod proof;
pub mod published;
mod short_pairs;
#[allow(unsafe_code, reason = "vectors on shared memory have no other name; without vectors there is none")]
pub mod simd;
mod sub_model;
mod value;
pub mod value_block;
mod writer;

pub use deadline::{DEADLINE_BYTES, Deadline};
pub use entry::TableEntry;
pub use geometry::{Geometry, GeometryError, LeafSlot, ValuePlace};
pub use image::LeafImage;
pub use in_place::{ShortPair, find_key, find_short, read_short};
pub use key_lines::{Fences, KEY_WORDS_MASK, KeyLines, KeySearch, hit_in_line};
pub use short_pairs::{PairsRoom, SHORT_LEAF_LINES};
pub use sub_model::SubModelRecord;
pub use value::{ValueFault, read_short_value};
pub use writer::{LatchTimeout, LeafWriter, SortedPair};

#[cfg(any(shuttle, injected))]
use injected as checks;
#[cfg(not(any(shuttle, injected)))]
use proof as checks;

/// The version of everything docs/format.md describes. A client and a server of different versions refuse
/// each other by name.
pub const FORMAT_VERSION: u32 = 27;

/// Slots of a leaf: keys, and values, that it holds at most.
pub const LEAF_SLOTS: usize = 16;
/// Lines of a leaf's key part.
pub const KEY_LINES: usize = 3;

/// Word of the key part that holds the right sibling's leaf number and the leaf's flags.
pub const NEXT_WORD: usize = 1;
/// Word of the key part that holds the low fence: the least key that belongs here.
pub const LOW_FENCE_WORD: usize = 2;
/// Word of the key part that holds the high fence: the least key that belongs to the right.
pub const HIGH_FENCE_WORD: usize = 3;
/// Word of the key part that holds the permutation: slots in key order, four bits each, lowest first.
pub const PERMUTATION_WORD: usize = 4;
/// Word of the key part that only the server's processor uses: its latch and the slots spent.
pub const OWNER_WORD: usize = 23;

/// Bit of the next word that says that the high fence is infinite.
pub const INFINITE_FLAG_BIT: u32 = 32;

/// Bits of a pair's version.
pub const PAIR_VERSION_BITS: u32 = 48;
/// Bytes of the shortest value.
pub const VALUE_BYTES_MIN: usize = 8;
/// Bytes of the longest value.
pub const VALUE_BYTES_MAX: usize = 256;
/// Bytes of a value of one word, the only ones that share a line by fours.
pub const SHORT_VALUE_BYTES: usize = 8;
/// Lines of the longest value: its words and its version.
pub const VALUE_LINES_MAX: usize = (VALUE_BYTES_MAX / 8 + 1).div_ceil(farsight_base::WORDS_PER_LINE - 1);
/// Values of eight bytes in a line.
pub const SHORT_VALUES_PER_LINE: usize = 4;

/// Bits of a table entry's leaf number.
pub const ENTRY_LEAF_BITS: u32 = 32;
/// Bits of a table entry's fence hint.
pub const ENTRY_HINT_BITS: u32 = 16;
/// Words of a sub-model's record.
pub const SUB_MODEL_WORDS: usize = 3;

// The key part is full: stamps, four header words, sixteen keys, the owner word.
const _: () = assert!(KEY_LINES + 4 + LEAF_SLOTS + 1 == KEY_LINES * farsight_base::WORDS_PER_LINE);
const _: () = assert!(OWNER_WORD == KEY_LINES * farsight_base::WORDS_PER_LINE - 1);
// A short value's line: a stamp, the values, and their versions in what is left.
const _: () =
    assert!(8 + SHORT_VALUES_PER_LINE * (8 + PAIR_VERSION_BITS as usize / 8) == farsight_base::LINE_BYTES);

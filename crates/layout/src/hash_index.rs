//! Index of a hash table in a memory pool: words that name blocks, in buckets that READs fetch whole.
//!
//! Invariant: a key has [`HASH_PLACES`] places, the slots of two combined buckets, wherever its partition
//! stands. Partition, subtable, buckets and fingerprint come from bits that do not overlap. So none says
//! anything about another.
//!
//! What a slot says is a hint. The object to which it leads is a block with key, version and checksum
//! ([`crate::value_block`]); a reader believes nothing else.
//!
//! Invariant: the word of a slot does not recur. It has the generation of the object's memory, which its node
//! counts. Where the field of the table stands in other blocks, an object has that generation. So who finds
//! a slot's word and an object's generation the same found them together.
//!
//! The first word of an overflow is the greatest version of a pair that was removed from the group. So a key
//! that comes again has a greater version than it ever had.
//!
//! A subtable that is split keeps its words for good, *sealed*: no writer expects them. Its halves have each
//! slot at the place that it had, so the bits that choose buckets choose the same ones again.
//!
//! A live slot says whether compute nodes may keep its value: not yet, they may, or not any more
//! ([`Sharing`]). Counters behind the directories say how often that ended, by partitions.
//!
//! Nothing here says who may write a slot: that is the protocol's.

mod bucket;
mod directory;
mod place;
mod shape;
mod slot;

pub use bucket::{BucketFault, BucketHeader, Candidate, CombinedBucket, SlotPlace};
pub use directory::{DIRECTORY_LINES, DIRECTORY_UNIT_BITS, DIRECTORY_WORDS, Halves, Subtable};
pub use place::{BucketCount, BucketCountError, KeyHash, KeyPlaces};
pub use shape::{IndexShape, IndexTooSmall};
pub use slot::{HashSlot, ObjectPlace, ObjectRef, Sharing, SlotState};

/// Bits of a key's hash that choose its partition, the highest.
pub const HASH_PARTITION_BITS: u32 = 10;
/// Bits behind those that choose its subtable, once its partition is split.
pub const HASH_SPLIT_BITS: u32 = 6;
/// Bits behind those, twice: each choose a bucket.
pub const HASH_BUCKET_BITS: u32 = 24;
/// Partitions of a table.
pub const HASH_PARTITIONS: usize = 1 << HASH_PARTITION_BITS;
/// Lines of counters behind the directories of a node's partitions.
pub const CLOSINGS_LINES: usize = 8;
/// Counters in those.
pub const CLOSINGS: usize = CLOSINGS_LINES * farsight_base::WORDS_PER_LINE;

/// Slots of a bucket: its line less the header.
pub const BUCKET_SLOTS: usize = 7;
/// Buckets of a group: two that keys choose, and between them the one into which both flow over.
pub const GROUP_BUCKETS: usize = 3;
/// Buckets of a combined bucket: one that was chosen, and the overflow.
pub const COMBINED_BUCKETS: usize = 2;
/// Slots in which a key may stand.
pub const HASH_PLACES: usize = 2 * COMBINED_BUCKETS * BUCKET_SLOTS;

/// Bit of a bucket's header where its depth begins; below it is the prefix.
pub const BUCKET_DEPTH_SHIFT: u32 = 32;
/// Bits of a bucket's depth.
pub const BUCKET_DEPTH_BITS: u32 = 8;

/// Bits of a slot that hold the object's length in lines.
pub const OBJECT_LINES_BITS: u32 = 8;
/// Lines of an object at most.
pub const OBJECT_LINES_MAX: u8 = 254;
/// Bits of a slot that hold the object's offset in lines.
pub const OBJECT_OFFSET_BITS: u32 = 32;
/// Bits of a slot that hold the generation of the object's memory.
pub const OBJECT_GENERATION_BITS: u32 = 13;
/// Bit of a slot that says that compute nodes may keep the value.
pub const SLOT_SHARED_BIT: u32 = 61;
/// Bit of a slot that says that a writer has it, or with the next one that it is sealed.
pub const SLOT_RESERVED_BIT: u32 = 62;
/// Bit of a slot that says that there is an object.
pub const SLOT_LIVE_BIT: u32 = 63;

const _: () = assert!(HASH_PARTITION_BITS + HASH_SPLIT_BITS + 2 * HASH_BUCKET_BITS == u64::BITS);
const _: () = assert!(1 + BUCKET_SLOTS == farsight_base::WORDS_PER_LINE);
const _: () = assert!(HASH_PARTITION_BITS + HASH_SPLIT_BITS <= BUCKET_DEPTH_SHIFT);

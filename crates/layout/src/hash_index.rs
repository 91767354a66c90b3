//! Index of a hash table in a memory pool: words that name blocks, in buckets that READs fetch whole.
//!
//! Invariant: a key has [`HASH_PLACES`] places, the slots of two combined buckets, wherever its partition
//! stands. Partition, subtable, buckets and fingerprint come from bits that do not overlap. So none says
//! anything about another.
//!
//! What a slot says is a hint. The block to which it leads has its key, version and checksum
//! ([`crate::value_block`]); a reader believes nothing else. A slot whose key was removed keeps the time of
//! that, and is used anew once nobody's address of it can count any more.
//!
//! Nothing here says who may write a slot: that is the protocol's.

mod bucket;
mod place;
mod slot;

pub use bucket::{BucketFault, BucketHeader, Candidate, CombinedBucket, SlotPlace};
pub use place::{BucketCount, BucketCountError, KeyHash, KeyPlaces};
pub use slot::{HashSlot, SlotState, TooLate};

/// Bits of a key's hash that choose its partition, the highest.
pub const HASH_PARTITION_BITS: u32 = 10;
/// Bits behind those that choose its subtable, once its partition is split.
pub const HASH_SPLIT_BITS: u32 = 6;
/// Bits behind those, twice: each choose a bucket.
pub const HASH_BUCKET_BITS: u32 = 24;
/// Partitions of a table.
pub const HASH_PARTITIONS: usize = 1 << HASH_PARTITION_BITS;

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

/// Bit of a removed key's slot where the time begins; below it are zeros.
pub const SLOT_REMOVED_SHIFT: u32 = 16;
/// Bits of that time, in ms since the pool began.
pub const SLOT_REMOVED_BITS: u32 = 47;

const _: () = assert!(HASH_PARTITION_BITS + HASH_SPLIT_BITS + 2 * HASH_BUCKET_BITS == u64::BITS);
const _: () = assert!(1 + BUCKET_SLOTS == farsight_base::WORDS_PER_LINE);
const _: () = assert!(HASH_PARTITION_BITS + HASH_SPLIT_BITS <= BUCKET_DEPTH_SHIFT);
const _: () = assert!(
    SLOT_REMOVED_SHIFT + SLOT_REMOVED_BITS == crate::value_block::REFERENCE_LIVE_BIT,
    "a removed key's slot is not live"
);

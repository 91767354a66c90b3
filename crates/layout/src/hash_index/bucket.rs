//! The checked view of a combined bucket: two lines that a READ returned.

use farsight_base::{Line, WORDS_PER_LINE};

use super::{
    BUCKET_DEPTH_BITS, BUCKET_DEPTH_SHIFT, BUCKET_SLOTS, COMBINED_BUCKETS, HASH_PARTITION_BITS,
    HASH_SPLIT_BITS, HashSlot, KeyHash, SlotState,
};
use crate::value_block::BlockRef;

/// The first word of a bucket: the highest bits of the hashes of all its keys, and how many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketHeader {
    depth: u32,
    prefix: u32,
}

/// Where a slot stands in its subtable. The order of places is that in which they are searched: of two slots
/// with one key, the one at the lower place counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlotPlace {
    /// The bucket's line in the subtable.
    pub line: u32,
    /// The slot in the bucket, from 0.
    pub slot: u8,
}

/// A slot that may be of the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Where it stands.
    pub place: SlotPlace,
    /// The block that it names.
    pub reference: BlockRef,
}

/// Why lines are no combined bucket of a key. All of these mean: look the partition up again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BucketFault {
    /// There is no such header.
    #[error("bucket {bucket}: header {got:#018x} has no depth that there is, or bits that mean nothing")]
    Header {
        /// Which of the two.
        bucket: usize,
        /// The word.
        got: u64,
    },
    /// The bucket is of other keys: the partition was split, or the line is none of its subtable.
    #[error("bucket {bucket}: expected keys of prefix {expected:#x}, got {got:#x}, of depth {depth}")]
    OtherPrefix {
        /// Which of the two.
        bucket: usize,
        /// The bucket's depth.
        depth: u32,
        /// The key's bits.
        expected: u32,
        /// The bucket's.
        got: u32,
    },
}

impl BucketHeader {
    /// The header of a subtable's buckets.
    ///
    /// # Panics
    /// If there is no subtable of this depth.
    #[must_use]
    pub fn new(hash: KeyHash, depth: u32) -> Self {
        Self { depth, prefix: hash.prefix(depth) }
    }

    /// Its word.
    #[must_use]
    pub fn word(self) -> u64 {
        u64::from(self.prefix) | u64::from(self.depth) << BUCKET_DEPTH_SHIFT
    }

    /// The header in a word, if it is one.
    #[must_use]
    pub fn parse(word: u64) -> Option<Self> {
        let (depth, prefix) = ((word >> BUCKET_DEPTH_SHIFT) as u32, word as u32);
        let depths = HASH_PARTITION_BITS..=HASH_PARTITION_BITS + HASH_SPLIT_BITS;
        let is_one = depths.contains(&depth) && depth >> BUCKET_DEPTH_BITS == 0 && prefix >> depth == 0;
        is_one.then_some(Self { depth, prefix })
    }
}

/// Two buckets that are a combined bucket of a key.
#[derive(Clone, Copy, Debug)]
pub struct CombinedBucket<'a> {
    lines: &'a [Line; COMBINED_BUCKETS],
    first_line: u32,
}

impl<'a> CombinedBucket<'a> {
    /// The view of lines that begin at `first_line` of a subtable.
    ///
    /// # Errors
    /// [`BucketFault`]: they are not those of this hash.
    pub fn parse(
        lines: &'a [Line; COMBINED_BUCKETS],
        first_line: u32,
        hash: KeyHash,
    ) -> Result<Self, BucketFault> {
        for (bucket, line) in lines.iter().enumerate() {
            let got = line.0[0];
            let Some(header) = BucketHeader::parse(got) else {
                return Err(BucketFault::Header { bucket, got });
            };
            let (depth, got, expected) = (header.depth, header.prefix, hash.prefix(header.depth));
            if got != expected {
                return Err(BucketFault::OtherPrefix { bucket, depth, expected, got });
            }
        }
        Ok(Self { lines, first_line })
    }

    /// Every slot and its place, the lowest first.
    pub fn slots(self) -> impl Iterator<Item = (SlotPlace, HashSlot)> + 'a {
        (self.first_line..).zip(self.lines).flat_map(|(line, bucket)| {
            let words: &'a [u64; WORDS_PER_LINE] = &bucket.0;
            (0..BUCKET_SLOTS as u8)
                .zip(&words[1..])
                .map(move |(slot, word)| (SlotPlace { line, slot }, HashSlot(*word)))
        })
    }

    /// Live slots with this fingerprint, the lowest place first.
    pub fn candidates(self, fingerprint: u8) -> impl Iterator<Item = Candidate> + 'a {
        self.slots().filter_map(move |(place, slot)| match slot.state() {
            SlotState::Live(reference) if reference.fingerprint() == fingerprint => {
                Some(Candidate { place, reference })
            }
            _ => None,
        })
    }

    /// The lowest place that another key may take ([`HashSlot::is_free`]), and the word that stands there.
    #[must_use]
    pub fn free(self, now_ms: u64, lease_ms: u64) -> Option<(SlotPlace, HashSlot)> {
        self.slots().find(|(_, slot)| slot.is_free(now_ms, lease_ms))
    }
}

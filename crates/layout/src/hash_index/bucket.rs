//! The checked view of a combined bucket: two lines that a READ returned.

use farsight_base::{Line, WORDS_PER_LINE};

use super::{
    BUCKET_DEPTH_BITS, BUCKET_DEPTH_SHIFT, BUCKET_SLOTS, COMBINED_BUCKETS, GROUP_BUCKETS,
    HASH_PARTITION_BITS, HASH_SPLIT_BITS, HashSlot, KeyHash, ObjectRef, Sharing, SlotState,
};

use crate::PAIR_VERSION_BITS;

/// The first word of a bucket that keys choose: the highest bits of the hashes of all its keys, and how
/// many. A word of zeros is that of a partition's first subtable, which one says its place alone.
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
    /// The object that it names.
    pub object: ObjectRef,
    /// How the value is shared, if the slot is live.
    pub sharing: Sharing,
}

impl Candidate {
    /// The slot's word, if it is live.
    #[must_use]
    pub fn live(self) -> HashSlot {
        HashSlot::live_in(self.object, self.sharing)
    }
}

/// Why lines are no combined bucket of a key. All of these mean: look the partition up again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BucketFault {
    /// There is no such header.
    #[error("header {got:#018x} has no depth that there is, or bits that mean nothing")]
    Header {
        /// The word.
        got: u64,
    },
    /// The bucket is of other keys: the partition was split, or the line is none of its subtable.
    #[error("expected keys of prefix {expected:#x}, got {got:#x}, of depth {depth}")]
    OtherPrefix {
        /// The bucket's depth.
        depth: u32,
        /// The key's bits.
        expected: u32,
        /// The bucket's.
        got: u32,
    },
    /// The overflow says a version that there is not.
    #[error("the greatest version that was removed: expected below 2^{PAIR_VERSION_BITS}, got {got}")]
    Version {
        /// The word.
        got: u64,
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

    /// The header of one half's buckets, of the subtable of this hash at `depth`.
    ///
    /// # Panics
    /// As [`KeyHash::half`].
    #[must_use]
    pub fn of_half(hash: KeyHash, depth: u32, half: usize) -> Self {
        Self { depth: depth + 1, prefix: hash.prefix(depth + 1) & !1 | half as u32 }
    }

    /// So many of the highest bits of their hashes its keys share.
    #[must_use]
    pub fn depth(self) -> u32 {
        self.depth
    }

    /// Those bits.
    #[must_use]
    pub fn prefix(self) -> u32 {
        self.prefix
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
    /// The view of lines that begin at `first_line`, counted from one at which a group begins.
    ///
    /// # Errors
    /// [`BucketFault`]: they are not those of this hash.
    ///
    /// # Panics
    /// If no combined bucket begins there.
    pub fn parse(
        lines: &'a [Line; COMBINED_BUCKETS],
        first_line: u32,
        hash: KeyHash,
    ) -> Result<Self, BucketFault> {
        let overflow = overflow_of(first_line);
        let (got, removed) = (lines[1 - overflow].0[0], lines[overflow].0[0]);
        if removed >> PAIR_VERSION_BITS != 0 {
            return Err(BucketFault::Version { got: removed });
        }
        let bucket = Self { lines, first_line };
        if got == 0 {
            return Ok(bucket);
        }
        let header = BucketHeader::parse(got).ok_or(BucketFault::Header { got })?;
        let (depth, got, expected) = (header.depth, header.prefix, hash.prefix(header.depth));
        if got != expected {
            return Err(BucketFault::OtherPrefix { depth, expected, got });
        }
        Ok(bucket)
    }

    /// The greatest version of a pair that was removed from the group.
    #[must_use]
    pub fn removed_version(self) -> u64 {
        self.lines[overflow_of(self.first_line)].0[0]
    }

    /// The line of the overflow, whose first word that version is.
    #[must_use]
    pub fn overflow_line(self) -> u32 {
        self.first_line + overflow_of(self.first_line) as u32
    }

    /// True if one of its slots is at this place.
    #[must_use]
    pub fn contains(self, place: SlotPlace) -> bool {
        (self.first_line..self.first_line + COMBINED_BUCKETS as u32).contains(&place.line)
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

    /// Slots with this fingerprint that are live, or were when they were sealed, the lowest place first.
    pub fn candidates(self, fingerprint: u8) -> impl Iterator<Item = Candidate> + 'a {
        self.slots().filter_map(move |(place, slot)| match slot.state() {
            SlotState::Live(object) | SlotState::Sealed(Some(object))
                if object.fingerprint == fingerprint =>
            {
                Some(Candidate { place, object, sharing: slot.sharing() })
            }
            _ => None,
        })
    }

    /// True if a slot is sealed: the subtable is being split, or was.
    #[must_use]
    pub fn is_sealed(self) -> bool {
        self.slots().any(|(_, slot)| matches!(slot.state(), SlotState::Sealed(_)))
    }

    /// Slots that writers have for keys with this fingerprint, the lowest place first.
    pub fn reserved(self, fingerprint: u8) -> impl Iterator<Item = Candidate> + 'a {
        self.slots().filter_map(move |(place, slot)| match slot.state() {
            SlotState::Reserved(object) if object.fingerprint == fingerprint => {
                Some(Candidate { place, object, sharing: slot.sharing() })
            }
            _ => None,
        })
    }

    /// How many slots are used.
    #[must_use]
    pub fn used(self) -> usize {
        self.slots().filter(|(_, slot)| slot.state() != SlotState::Unused).count()
    }

    /// The lowest place that a key may take, and its word.
    #[must_use]
    pub fn free(self) -> Option<(SlotPlace, HashSlot)> {
        self.slots().find(|(_, slot)| slot.state() == SlotState::Unused)
    }
}

/// Which of the two lines of a combined bucket is the overflow: a group is an even bucket, the overflow, an
/// odd bucket.
fn overflow_of(first_line: u32) -> usize {
    match first_line as usize % GROUP_BUCKETS {
        0 => 1,
        1 => 0,
        _ => panic!("no combined bucket begins at line {first_line}"),
    }
}

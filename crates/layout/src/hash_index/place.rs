//! Where a key may stand.

use farsight_base::prng::mix;

use super::{COMBINED_BUCKETS, GROUP_BUCKETS, HASH_BUCKET_BITS, HASH_PARTITION_BITS, HASH_SPLIT_BITS};
use crate::value_block::BlockRef;

/// A key's hash: partition, split, first bucket, second bucket, highest bits first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KeyHash(pub u64);

/// Buckets of a subtable that keys choose from. Each two share an overflow bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketCount(u32);

/// Why there is no subtable of so many buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("buckets of a subtable: expected an even number from 2 to {}, got {got}", BucketCount::MAX)]
pub struct BucketCountError {
    /// The number.
    pub got: u32,
}

/// The lines of a subtable that hold a key's combined buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyPlaces {
    /// By combined bucket: its first line. It has [`COMBINED_BUCKETS`] lines.
    pub first_lines: [u32; 2],
}

impl KeyHash {
    /// The hash of a key.
    ///
    /// It is that of the words of the key, the last one filled with zeros, behind its length. Whoever chooses
    /// keys can choose ones that share their places; their inserts then find no room.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        let (words, rest) = key.as_chunks();
        let mut hash = mix(key.len() as u64 + 1);
        for word in words {
            hash = mix(hash.rotate_left(1) ^ u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        Self(mix(hash.rotate_left(1) ^ u64::from_le_bytes(last)))
    }

    /// The key's partition.
    #[must_use]
    pub fn partition(self) -> usize {
        (self.0 >> (u64::BITS - HASH_PARTITION_BITS)) as usize
    }

    /// The highest `depth` bits, by which a subtable of that depth is chosen.
    ///
    /// # Panics
    /// If a subtable has no such depth.
    #[must_use]
    pub fn prefix(self, depth: u32) -> u32 {
        let depths = HASH_PARTITION_BITS..=HASH_PARTITION_BITS + HASH_SPLIT_BITS;
        assert!(depths.contains(&depth), "a subtable of depth {depth}");
        (self.0 >> (u64::BITS - depth)) as u32
    }

    /// The half of a subtable of this depth to which the key goes when it is split.
    ///
    /// # Panics
    /// If no subtable of this depth is split.
    #[must_use]
    pub fn half(self, depth: u32) -> usize {
        (self.prefix(depth + 1) & 1) as usize
    }

    /// The key's combined buckets in a subtable; they differ.
    #[must_use]
    pub fn places(self, count: BucketCount) -> KeyPlaces {
        let bits = |shift: u32| self.0 >> shift & ((1 << HASH_BUCKET_BITS) - 1);
        let below = |bits: u64, bound: u32| ((bits * u64::from(bound)) >> HASH_BUCKET_BITS) as u32;
        let first = below(bits(HASH_BUCKET_BITS), count.0);
        let second = (first + 1 + below(bits(0), count.0 - 1)) % count.0;
        KeyPlaces { first_lines: [first, second].map(BucketCount::first_line) }
    }

    /// The key's fingerprint, which is of another hash.
    #[must_use]
    pub fn fingerprint(key: &[u8]) -> u8 {
        BlockRef::fingerprint_of(key)
    }
}

impl BucketCount {
    /// The most buckets: as many as a hash's bits choose evenly from.
    pub const MAX: u32 = 1 << 20;

    /// So many buckets.
    ///
    /// # Errors
    /// [`BucketCountError`].
    pub fn new(count: u32) -> Result<Self, BucketCountError> {
        if (2..=Self::MAX).contains(&count) && count.is_multiple_of(2) {
            Ok(Self(count))
        } else {
            Err(BucketCountError { got: count })
        }
    }

    /// Lines of the subtable.
    #[must_use]
    pub fn lines(self) -> u32 {
        self.0 / 2 * GROUP_BUCKETS as u32
    }

    /// The first line of a combined bucket: a group is an even bucket, the overflow, an odd bucket.
    fn first_line(bucket: u32) -> u32 {
        bucket / 2 * GROUP_BUCKETS as u32 + bucket % 2
    }
}

impl KeyPlaces {
    /// Whether a line is of one of the combined buckets.
    #[must_use]
    pub fn contain(self, line: u32) -> bool {
        self.first_lines.iter().any(|first| (*first..*first + COMBINED_BUCKETS as u32).contains(&line))
    }
}

//! A group's image: its segments and its leaf table.

use farsight_base::{LeafNumber, WORDS_PER_LINE};

use super::{
    GROUP_HEADER_WORDS, GROUP_LEAVES_MAX, GROUP_MAGIC, ImageError, SEGMENT_WORDS, checksum, demand, too_short,
};

const PIECE: &str = "group image";
/// The word that holds the checksum of all others.
const CHECKSUM_WORD: usize = 2;

/// One leaf of a group's table: `{place 32, fence hint 32}`, lowest bits first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupEntry(pub u64);

impl GroupEntry {
    /// The entry of these fields.
    #[inline]
    #[must_use]
    pub fn new(place: LeafNumber, hint: u32) -> Self {
        Self(u64::from(place.0) | u64::from(hint) << 32)
    }

    /// The leaf's place, as in a next word.
    #[inline]
    #[must_use]
    pub fn place(self) -> LeafNumber {
        LeafNumber(self.0 as u32)
    }

    /// The leaf's low fence, as its segment sees it.
    #[inline]
    #[must_use]
    pub fn hint(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// When a group was trained.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupTime {
    /// How often the group was trained before.
    pub generation: u32,
    /// What the group's split counter showed before its leaves were looked at, lowest bits.
    pub splits: u32,
}

/// A group's image: its segments, its leaves in key order. Which group it is, its first segment's first key
/// says: the group's boundary, which no other group of any directory has at any time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupImage {
    /// When it was trained.
    pub time: GroupTime,
    /// The words of its segments, in key order; what they mean is the model's.
    pub segments: Vec<[u64; SEGMENT_WORDS]>,
    /// Its leaves.
    pub entries: Vec<GroupEntry>,
}

impl GroupImage {
    /// The image's words: whole lines.
    ///
    /// # Panics
    /// If there is no leaf, or more than [`GROUP_LEAVES_MAX`], or not one segment to at most as many leaves.
    #[must_use]
    pub fn to_words(&self) -> Vec<u64> {
        let (leaves, segments) = (self.entries.len(), self.segments.len());
        assert!((1..=GROUP_LEAVES_MAX).contains(&leaves), "a group of {leaves} leaves");
        assert!((1..=leaves).contains(&segments), "{segments} segments over {leaves} leaves");
        let mut words = vec![
            GROUP_MAGIC | (leaves as u64) << 32 | (segments as u64) << 48,
            u64::from(self.time.generation) | u64::from(self.time.splits) << 32,
            0,
        ];
        words.extend(self.segments.iter().flatten());
        words.extend(self.entries.iter().map(|entry| entry.0));
        words[CHECKSUM_WORD] = checksum(&words);
        words.resize(words.len().next_multiple_of(WORDS_PER_LINE), 0);
        words
    }

    /// The image that these words are, whole.
    ///
    /// # Errors
    /// [`ImageError`]: they are none.
    pub fn from_words(words: &[u64]) -> Result<Self, ImageError> {
        let Some(([shape, time, sum], body)) = words.split_first_chunk::<GROUP_HEADER_WORDS>() else {
            return Err(too_short(PIECE, GROUP_HEADER_WORDS, words.len()));
        };
        demand(PIECE, "magic", GROUP_MAGIC, shape & 0xffff_ffff)?;
        let (leaves, segments) = ((shape >> 32 & 0xffff) as usize, (shape >> 48) as usize);
        let wrong = |what, expected: usize, got: usize| {
            Err(ImageError { piece: PIECE, what, expected: expected as u64, got: got as u64 })
        };
        if !(1..=GROUP_LEAVES_MAX).contains(&leaves) {
            return wrong("leaves", GROUP_LEAVES_MAX, leaves);
        }
        if !(1..=leaves).contains(&segments) {
            return wrong("segments", leaves, segments);
        }
        let used = segments * SEGMENT_WORDS + leaves;
        let padded = (GROUP_HEADER_WORDS + used).next_multiple_of(WORDS_PER_LINE);
        demand(PIECE, "words", padded as u64, words.len() as u64)?;
        let (body, padding) = body.split_at(used);
        demand(PIECE, "padding", 0, padding.iter().fold(0, |all, word| all | word))?;
        demand(PIECE, "checksum", checksum([shape, time, &0].into_iter().chain(body)), *sum)?;
        let (segments, entries) = body.split_at(segments * SEGMENT_WORDS);
        Ok(Self {
            time: GroupTime { generation: *time as u32, splits: (time >> 32) as u32 },
            segments: segments.as_chunks().0.to_vec(),
            entries: entries.iter().map(|entry| GroupEntry(*entry)).collect(),
        })
    }
}

const _: () = assert!(GROUP_LEAVES_MAX <= 0xffff && GROUP_MAGIC >> 32 == 0);

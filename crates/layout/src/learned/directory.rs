//! A directory: which group a key belongs to, and where the groups' images are.

use farsight_base::WORDS_PER_LINE;

use super::{
    DIRECTORY_GROUPS_MAX, DIRECTORY_HEADER_WORDS, DIRECTORY_MAGIC, DIRECTORY_SLOT_WORDS, ImageError,
    POINTER_FROZEN_BIT, POINTER_GENERATION_BITS, POINTER_LINES_BITS, checksum, demand, too_short,
};

const PIECE: &str = "directory";
/// The word that holds the checksum of the header and the boundaries.
const CHECKSUM_WORD: usize = 2;
/// The bits of a generation that a pointer holds.
const GENERATION_MASK: u32 = (1 << POINTER_GENERATION_BITS) - 1;
/// Bits of a line's number.
const LINE_BITS: u32 = 32;

/// The root word: `{line of the directory 32, number of the directory 32}`, lowest bits first; zero: there is
/// none yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RootWord(pub u64);

impl RootWord {
    /// The root of directory `number`, which begins at `line` of the meta region.
    ///
    /// # Panics
    /// If the number is 0.
    #[must_use]
    pub fn new(line: u32, number: u32) -> Self {
        assert!(number != 0, "directories are numbered from 1");
        Self(u64::from(line) | u64::from(number) << LINE_BITS)
    }

    /// The line at which the directory begins, if there is one.
    #[must_use]
    pub fn line(self) -> Option<u32> {
        (self.number() != 0).then_some(self.0 as u32)
    }

    /// The directory's number; 0 if there is none.
    #[must_use]
    pub fn number(self) -> u32 {
        (self.0 >> LINE_BITS) as u32
    }
}

/// Where a group's newest image is: `{first line 32, lines 12, generation's lowest bits 19, frozen 1}`,
/// lowest bits first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupPointer(pub u64);

impl GroupPointer {
    /// The pointer to an image of so many lines.
    ///
    /// # Panics
    /// If the lines are none or too many for the pointer's bits.
    #[must_use]
    pub fn new(line: u32, lines: u32, generation: u32) -> Self {
        assert!(lines != 0 && lines >> POINTER_LINES_BITS == 0, "an image of {lines} lines");
        let generation = u64::from(generation & GENERATION_MASK);
        let above = u64::from(lines) | generation << POINTER_LINES_BITS;
        Self(u64::from(line) | above << LINE_BITS)
    }

    /// The image's first line in the meta region.
    #[must_use]
    pub fn line(self) -> u32 {
        self.0 as u32
    }

    /// The image's lines.
    #[must_use]
    pub fn lines(self) -> u32 {
        (self.0 >> LINE_BITS) as u32 & ((1 << POINTER_LINES_BITS) - 1)
    }

    /// The lowest bits of the image's generation.
    #[must_use]
    pub fn generation(self) -> u32 {
        (self.0 >> (LINE_BITS + POINTER_LINES_BITS)) as u32 & GENERATION_MASK
    }

    /// Whether an image of this generation is the one meant.
    #[must_use]
    pub fn names(self, generation: u32) -> bool {
        generation & GENERATION_MASK == self.generation()
    }
}

impl GroupPointer {
    /// The same, never to change again.
    #[must_use]
    pub fn frozen(self) -> Self {
        Self(self.0 | 1 << POINTER_FROZEN_BIT)
    }

    /// The same, as it stands in a directory that is not being replaced.
    #[must_use]
    pub fn thawed(self) -> Self {
        Self(self.0 & !(1 << POINTER_FROZEN_BIT))
    }

    /// Whether it will not change any more.
    #[must_use]
    pub fn is_frozen(self) -> bool {
        self.0 >> POINTER_FROZEN_BIT & 1 == 1
    }
}

/// A group's slot: two words that change on their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DirectorySlot {
    /// Where the newest image is; exchanged by compare-and-swap.
    pub pointer: GroupPointer,
    /// Splits of the group's leaves so far; each adds one.
    pub splits: u64,
}

/// A directory: its number, the groups' boundaries, and their slots as they were when it was READ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Directory {
    /// Its number: greater than that of any directory before.
    pub number: u32,
    /// The least key of each group: 0 first, strictly increasing. Never changes.
    pub boundaries: Vec<u64>,
    /// The groups' slots.
    pub slots: Vec<DirectorySlot>,
}

impl Directory {
    /// Lines of the header.
    pub const HEADER_LINES: usize = DIRECTORY_HEADER_WORDS / WORDS_PER_LINE;

    /// The directory's words: whole lines.
    ///
    /// # Panics
    /// If there is no group, or too many, or not a slot to each.
    #[must_use]
    pub fn to_words(&self) -> Vec<u64> {
        let groups = self.boundaries.len();
        assert!((1..=DIRECTORY_GROUPS_MAX).contains(&groups), "a directory of {groups} groups");
        assert_eq!(self.slots.len(), groups, "a slot to each group");
        let mut words = vec![0; DIRECTORY_HEADER_WORDS];
        words[0] = DIRECTORY_MAGIC | (groups as u64) << 32;
        words[1] = self.number.into();
        words[CHECKSUM_WORD] = checksum(words[..CHECKSUM_WORD].iter().chain(&self.boundaries));
        words.extend(&self.boundaries);
        words.resize(slots_word(groups), 0);
        words.extend(self.slots.iter().flat_map(|slot| [slot.pointer.0, slot.splits]));
        words.resize(words.len().next_multiple_of(WORDS_PER_LINE), 0);
        words
    }

    /// Lines of the whole directory whose header these words begin with.
    ///
    /// # Errors
    /// [`ImageError`]: they are no directory.
    pub fn lines(header: &[u64]) -> Result<usize, ImageError> {
        let Some(shape) = header.first().filter(|_| header.len() >= DIRECTORY_HEADER_WORDS) else {
            return Err(too_short(PIECE, DIRECTORY_HEADER_WORDS, header.len()));
        };
        demand(PIECE, "magic", DIRECTORY_MAGIC, shape & 0xffff_ffff)?;
        let groups = (shape >> 32) as usize;
        if !(1..=DIRECTORY_GROUPS_MAX).contains(&groups) {
            let (expected, got) = (DIRECTORY_GROUPS_MAX as u64, groups as u64);
            return Err(ImageError { piece: PIECE, what: "groups", expected, got });
        }
        Ok((slots_word(groups) + groups * DIRECTORY_SLOT_WORDS).div_ceil(WORDS_PER_LINE))
    }

    /// The directory that these words are.
    ///
    /// # Errors
    /// [`ImageError`]: they are none.
    pub fn from_words(words: &[u64]) -> Result<Self, ImageError> {
        demand(PIECE, "words", (Self::lines(words)? * WORDS_PER_LINE) as u64, words.len() as u64)?;
        let groups = (words[0] >> 32) as usize;
        let (header, rest) = words.split_at(DIRECTORY_HEADER_WORDS);
        let boundaries = &rest[..groups];
        let sum = checksum(header[..CHECKSUM_WORD].iter().chain(boundaries));
        demand(PIECE, "checksum", sum, header[CHECKSUM_WORD])?;
        let spare = header[CHECKSUM_WORD + 1..].iter().fold(header[1] >> 32, |all, word| all | word);
        demand(PIECE, "spare bits of the header", 0, spare)?;
        let behind = &words[DIRECTORY_HEADER_WORDS + groups..slots_word(groups)];
        demand(PIECE, "words behind the boundaries", 0, behind.iter().fold(0, |all, word| all | word))?;
        demand(PIECE, "first boundary", 0, boundaries[0])?;
        if let Some(pair) = boundaries.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(ImageError { piece: PIECE, what: "boundary", expected: pair[0], got: pair[1] });
        }
        let slots = words[slots_word(groups)..].as_chunks::<DIRECTORY_SLOT_WORDS>().0;
        let slot = |&[pointer, splits]: &[u64; 2]| DirectorySlot { pointer: GroupPointer(pointer), splits };
        Ok(Self {
            number: header[1] as u32,
            boundaries: boundaries.to_vec(),
            slots: slots[..groups].iter().map(slot).collect(),
        })
    }

    /// The word of a directory of `groups` groups at which the slot of `group` begins.
    #[must_use]
    pub fn slot_word(groups: usize, group: usize) -> usize {
        slots_word(groups) + group * DIRECTORY_SLOT_WORDS
    }
}

/// The word at which the slots of so many groups begin.
fn slots_word(groups: usize) -> usize {
    (DIRECTORY_HEADER_WORDS + groups).next_multiple_of(WORDS_PER_LINE)
}

const _: () = assert!(DIRECTORY_HEADER_WORDS.is_multiple_of(WORDS_PER_LINE) && DIRECTORY_MAGIC >> 32 == 0);
const _: () = assert!(LINE_BITS + POINTER_LINES_BITS + POINTER_GENERATION_BITS == POINTER_FROZEN_BIT);

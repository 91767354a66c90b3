//! A directory: which group a key belongs to, and where the groups' images are.

use farsight_base::WORDS_PER_LINE;

use super::{
    DIRECTORY_CAPACITY_MIN, DIRECTORY_GROUPS_MAX, DIRECTORY_HEADER_WORDS, DIRECTORY_MAGIC,
    DIRECTORY_SLOT_WORDS, ImageError, POINTER_FROZEN_BIT, POINTER_GENERATION_BITS, POINTER_LINES_BITS,
    checksum, demand, too_short,
};

const PIECE: &str = "directory";
/// The word that holds the checksum of the header and the boundaries.
const CHECKSUM_WORD: usize = 2;
/// The bits of a generation that a pointer holds.
const GENERATION_MASK: u32 = (1 << POINTER_GENERATION_BITS) - 1;
/// Bits of a line's number.
const LINE_BITS: u32 = 32;
/// Bits of a directory's number.
const NUMBER_BITS: u32 = 32;

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

impl DirectorySlot {
    /// The first `groups` of the slots that these words are.
    ///
    /// # Panics
    /// If they are fewer.
    #[must_use]
    pub fn of_words(words: &[u64], groups: usize) -> Vec<Self> {
        let slots = words.as_chunks::<DIRECTORY_SLOT_WORDS>().0[..groups].iter();
        slots.map(|&[pointer, splits]| Self { pointer: GroupPointer(pointer), splits }).collect()
    }
}

/// How many groups a directory has, and how many its *run* of lines has room for. Where its words stand in
/// the run follows from the capacity alone. So in a run that is used again, by a directory of the same
/// capacity, a pointer's word stays a pointer's and a counter's a counter's. A compute node that still knows
/// the directory before therefore meets words of the same kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectoryShape {
    groups: usize,
    capacity: u32,
}

impl DirectoryShape {
    /// The shape for so many groups, of at least this capacity, which is 0 or another directory's.
    ///
    /// # Panics
    /// If there is no group, or too many.
    #[must_use]
    pub fn new(groups: usize, capacity_min: u32) -> Self {
        assert!((1..=DIRECTORY_GROUPS_MAX).contains(&groups), "a directory of {groups} groups");
        let capacity = (groups as u32).next_power_of_two().max(DIRECTORY_CAPACITY_MIN).max(capacity_min);
        Self { groups, capacity }
    }

    /// The shape of the directory that begins with these words.
    ///
    /// # Errors
    /// [`ImageError`]: they are no directory.
    pub fn of_header(header: &[u64]) -> Result<Self, ImageError> {
        let Some([shape, sizes, ..]) = header.first_chunk::<DIRECTORY_HEADER_WORDS>() else {
            return Err(too_short(PIECE, DIRECTORY_HEADER_WORDS, header.len()));
        };
        demand(PIECE, "magic", DIRECTORY_MAGIC, shape & 0xffff_ffff)?;
        let (groups, capacity) = ((shape >> 32) as usize, (sizes >> NUMBER_BITS) as u32);
        let wrong = |what, expected: usize, got: u64| {
            Err(ImageError { piece: PIECE, what, expected: expected as u64, got })
        };
        if !(1..=DIRECTORY_GROUPS_MAX).contains(&groups) {
            return wrong("groups", DIRECTORY_GROUPS_MAX, groups as u64);
        }
        let least = Self::new(groups, 0).capacity;
        if !capacity.is_power_of_two() || !(least..=DIRECTORY_GROUPS_MAX as u32).contains(&capacity) {
            return wrong("capacity", least as usize, capacity.into());
        }
        Ok(Self { groups, capacity })
    }

    /// The directory's groups.
    #[must_use]
    pub fn groups(self) -> usize {
        self.groups
    }

    /// Groups that the run has room for.
    #[must_use]
    pub fn capacity(self) -> u32 {
        self.capacity
    }

    /// Lines of the run.
    #[must_use]
    pub fn run_lines(self) -> usize {
        self.slot_word(self.capacity as usize) / WORDS_PER_LINE
    }

    /// Lines that header and boundaries take up, at the run's begin.
    #[must_use]
    pub fn head_lines(self) -> usize {
        (DIRECTORY_HEADER_WORDS + self.groups).div_ceil(WORDS_PER_LINE)
    }

    /// Lines that the groups' slots take up.
    #[must_use]
    pub fn slot_lines(self) -> usize {
        (self.groups * DIRECTORY_SLOT_WORDS).div_ceil(WORDS_PER_LINE)
    }

    /// The word of the run at which the slot of `group` begins; that of group 0 begins a line.
    #[must_use]
    pub fn slot_word(self, group: usize) -> usize {
        DIRECTORY_HEADER_WORDS + self.capacity as usize + group * DIRECTORY_SLOT_WORDS
    }
}

/// A directory: its number, the groups' boundaries, and their slots as they were when it was READ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Directory {
    /// Its number: greater than that of any directory before.
    pub number: u32,
    /// Groups that its run has room for.
    pub capacity: u32,
    /// The least key of each group: 0 first, strictly increasing. Never changes.
    pub boundaries: Vec<u64>,
    /// The groups' slots.
    pub slots: Vec<DirectorySlot>,
}

impl Directory {
    /// Lines of the header.
    pub const HEADER_LINES: usize = DIRECTORY_HEADER_WORDS / WORDS_PER_LINE;

    /// Its shape.
    ///
    /// # Panics
    /// If there is no group, or too many.
    #[must_use]
    pub fn shape(&self) -> DirectoryShape {
        DirectoryShape::new(self.boundaries.len(), self.capacity)
    }

    /// The words of header and boundaries: whole lines, [`DirectoryShape::head_lines`].
    ///
    /// # Panics
    /// As [`Directory::shape`], or if the capacity is not that of its shape.
    #[must_use]
    pub fn head_words(&self) -> Vec<u64> {
        let shape = self.shape();
        assert_eq!(shape.capacity, self.capacity, "the capacity for {} groups", shape.groups);
        let mut words = vec![0; DIRECTORY_HEADER_WORDS];
        words[0] = DIRECTORY_MAGIC | (shape.groups as u64) << 32;
        words[1] = u64::from(self.number) | u64::from(self.capacity) << NUMBER_BITS;
        words[CHECKSUM_WORD] = checksum(words[..CHECKSUM_WORD].iter().chain(&self.boundaries));
        words.extend(&self.boundaries);
        words.resize(shape.head_lines() * WORDS_PER_LINE, 0);
        words
    }

    /// The words of the slots: whole lines, [`DirectoryShape::slot_lines`].
    ///
    /// # Panics
    /// As [`Directory::shape`], or if there is not a slot to each group.
    #[must_use]
    pub fn slot_words(&self) -> Vec<u64> {
        assert_eq!(self.slots.len(), self.boundaries.len(), "a slot to each group");
        let mut words: Vec<u64> = self.slots.iter().flat_map(|slot| [slot.pointer.0, slot.splits]).collect();
        words.resize(self.shape().slot_lines() * WORDS_PER_LINE, 0);
        words
    }

    /// The directory of this head and these slots.
    ///
    /// # Errors
    /// [`ImageError`]: they are none.
    pub fn from_words(head: &[u64], slots: &[u64]) -> Result<Self, ImageError> {
        let shape = DirectoryShape::of_header(head)?;
        let lines_of = |lines: usize| (lines * WORDS_PER_LINE) as u64;
        demand(PIECE, "words of the head", lines_of(shape.head_lines()), head.len() as u64)?;
        demand(PIECE, "words of the slots", lines_of(shape.slot_lines()), slots.len() as u64)?;
        let (header, rest) = head.split_at(DIRECTORY_HEADER_WORDS);
        let (boundaries, behind) = rest.split_at(shape.groups);
        let sum = checksum(header[..CHECKSUM_WORD].iter().chain(boundaries));
        demand(PIECE, "checksum", sum, header[CHECKSUM_WORD])?;
        let any = |words: &[u64]| words.iter().fold(0, |all, word| all | word);
        demand(PIECE, "spare words of the header", 0, any(&header[CHECKSUM_WORD + 1..]))?;
        demand(PIECE, "words behind the boundaries", 0, any(behind))?;
        demand(PIECE, "first boundary", 0, boundaries[0])?;
        if let Some(pair) = boundaries.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(ImageError { piece: PIECE, what: "boundary", expected: pair[0], got: pair[1] });
        }
        Ok(Self {
            number: header[1] as u32,
            capacity: shape.capacity,
            boundaries: boundaries.to_vec(),
            slots: DirectorySlot::of_words(slots, shape.groups),
        })
    }
}

const _: () = assert!(DIRECTORY_HEADER_WORDS.is_multiple_of(WORDS_PER_LINE) && DIRECTORY_MAGIC >> 32 == 0);
// So boundaries and slots begin lines, and a run is whole lines, whatever the capacity.
const _: () = assert!((DIRECTORY_CAPACITY_MIN as usize).is_multiple_of(WORDS_PER_LINE));
const _: () = assert!(DIRECTORY_CAPACITY_MIN.is_power_of_two() && DIRECTORY_GROUPS_MAX.is_power_of_two());
const _: () = assert!(LINE_BITS + POINTER_LINES_BITS + POINTER_GENERATION_BITS == POINTER_FROZEN_BIT);

//! XStore's sub-models where clients READ them: the root line of a table's meta region, and its records.
//!
//! Invariant: whatever bytes stand there, they are a root or a record by the rules of the format, or they are
//! none. A record is believed whole: its checksum covers its length, its kind, its generation and all of its
//! words. So one that is written anew while it is READ, or whose lines have become others', is none. What it
//! says is a guess all the same: leaves' fences decide.
//!
//! Protocol: the records of neighbouring numbers stand in neighbouring *slots*, and a root says where those
//! of each number are. A part of the model that is longer than a slot stands elsewhere; then its slot says
//! where. The server writes a generation's records, then its root.

use farsight_base::words::bytes_of;
use farsight_base::{Line, WORDS_PER_LINE};

#[cfg(injected)]
use crate::injected;

/// Lines of a slot.
pub const PUBLISHED_SLOT_LINES: usize = 5;
/// Words of a record before its part of the model.
pub const PUBLISHED_HEADER_WORDS: usize = 2;
/// Runs of slots that a root names at most.
pub const PUBLISHED_EXTENTS_MAX: usize = 10;
/// Lines of a record at most.
pub const PUBLISHED_LINES_MAX: usize = 128;
/// The kind of a record that is a part of the model.
pub const PUBLISHED_KIND_PART: u8 = 1;
/// The kind of a record that says where another one stands.
pub const PUBLISHED_KIND_ELSEWHERE: u8 = 2;

const SLOT_WORDS: usize = PUBLISHED_SLOT_LINES * WORDS_PER_LINE;
const LENGTH_BITS: u32 = 24;
/// Where a root's extents begin, two to a word.
const EXTENTS_WORD: usize = 3;

const _: () = assert!(EXTENTS_WORD + PUBLISHED_EXTENTS_MAX.div_ceil(2) == WORDS_PER_LINE);
const _: () = assert!(PUBLISHED_LINES_MAX * WORDS_PER_LINE < 1 << LENGTH_BITS);

/// Where the slots of a generation are; by default nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PublishedRoot {
    /// The generation; zero: none.
    pub generation: u64,
    /// Numbers whose slots are in the first extent, from number zero on.
    pub first_numbers: u32,
    /// Numbers whose slots are in each further extent.
    pub further_numbers: u32,
    /// The first line of each extent; zero: there is none.
    pub extents: [u32; PUBLISHED_EXTENTS_MAX],
}

impl PublishedRoot {
    /// The root's line.
    #[must_use]
    pub fn to_line(&self) -> Line {
        let mut line = Line::ZERO;
        line.0[1] = self.generation;
        line.0[2] = u64::from(self.first_numbers) | u64::from(self.further_numbers) << u32::BITS;
        for (index, first) in self.extents.iter().enumerate() {
            line.0[EXTENTS_WORD + index / 2] |= u64::from(*first) << (u32::BITS * (index as u32 % 2));
        }
        line.0[0] = u64::from(checksum_of_root(&line));
        line
    }

    /// The root in this line; `None` if there is none.
    #[must_use]
    pub fn from_line(line: &Line) -> Option<Self> {
        let words = &line.0;
        if words[0] != u64::from(checksum_of_root(line)) || words[1] == 0 {
            return None;
        }
        let half = |index: usize| words[EXTENTS_WORD + index / 2] >> (u32::BITS * (index as u32 % 2));
        Some(Self {
            generation: words[1],
            first_numbers: words[2] as u32,
            further_numbers: (words[2] >> u32::BITS) as u32,
            extents: std::array::from_fn(|index| half(index) as u32),
        })
    }

    /// Which extent has the slot of `number`, and the how manieth it is there; `None` behind the last.
    #[must_use]
    pub fn place(&self, number: u32) -> Option<(usize, u32)> {
        let Some(behind) = number.checked_sub(self.first_numbers) else { return Some((0, number)) };
        let extent = 1 + behind.checked_div(self.further_numbers)? as usize;
        (extent < PUBLISHED_EXTENTS_MAX).then_some((extent, behind % self.further_numbers))
    }

    /// The first line of the slot of `number`; `None` if it has none.
    #[must_use]
    pub fn slot(&self, number: u32) -> Option<u64> {
        let (extent, index) = self.place(number)?;
        let first = Some(self.extents[extent]).filter(|first| *first != 0)?;
        Some(u64::from(first) + u64::from(index) * PUBLISHED_SLOT_LINES as u64)
    }
}

fn checksum_of_root(line: &Line) -> u32 {
    crc32c::crc32c(&bytes_of(std::slice::from_ref(line))[8..])
}

/// What a record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PublishedRecord<'a> {
    /// A part of the model, as bytes of words; the low half of the first is its number.
    Part(&'a [u8]),
    /// The part stands in a record of its own.
    Elsewhere {
        /// Its first line.
        first_line: u32,
        /// Its lines, 1 to [`PUBLISHED_LINES_MAX`].
        lines: u32,
    },
}

/// Why lines are not the record that was looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordFault {
    /// The kind is not one of the format's.
    #[error("a record of kind {got}, expected {PUBLISHED_KIND_PART} or {PUBLISHED_KIND_ELSEWHERE}")]
    Kind {
        /// What stands there.
        got: u8,
    },
    /// The length leads out of what was READ, or is not the kind's.
    #[error("a record of {got} words in room for {room}")]
    Length {
        /// Words of the record.
        got: usize,
        /// Words that were READ behind the header.
        room: usize,
    },
    /// The checksum is not that of the words: they are of several records, or memory lost a bit.
    #[error("a record with checksum {got:#x}, its words have {expected:#x}")]
    Checksum {
        /// That of the words.
        expected: u32,
        /// What stands there.
        got: u32,
    },
    /// It is of another generation.
    #[error("a record of generation {got}, expected {expected}")]
    Generation {
        /// The one that was looked for.
        expected: u64,
        /// What stands there.
        got: u64,
    },
    /// It is of another number.
    #[error("a record of number {got}, expected {expected}")]
    Number {
        /// The one that was looked for.
        expected: u32,
        /// What stands there.
        got: u32,
    },
}

/// The words of a record of this kind and generation around `body`.
fn to_words(kind: u8, generation: u64, body: &[u64]) -> Vec<u64> {
    let mut words = vec![u64::from(kind) << (LENGTH_BITS + u32::BITS) | (body.len() as u64) << u32::BITS];
    words.push(generation);
    words.extend(body);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    words[0] |= u64::from(crc32c::crc32c(&bytes[4..]));
    words
}

/// The words of the record of a part of the model, the low half of whose first word is its number; `None` if
/// it is longer than any record.
#[must_use]
pub fn part_record(generation: u64, part: &[u64]) -> Option<Vec<u64>> {
    let has_room = PUBLISHED_HEADER_WORDS + part.len() <= PUBLISHED_LINES_MAX * WORDS_PER_LINE;
    has_room.then(|| to_words(PUBLISHED_KIND_PART, generation, part))
}

/// The words of the record that stands in the slot of `number` if that of its part has these lines.
#[must_use]
pub fn elsewhere_record(generation: u64, number: u32, first_line: u32, lines: u32) -> Vec<u64> {
    let place = u64::from(first_line) | u64::from(lines) << u32::BITS;
    to_words(PUBLISHED_KIND_ELSEWHERE, generation, &[u64::from(number), place])
}

/// True if a record of so many words fits a slot.
#[must_use]
pub const fn fits_slot(words: usize) -> bool {
    words <= SLOT_WORDS
}

/// The record of `number` and `generation` that begins `lines`.
///
/// # Errors
/// [`RecordFault`].
pub fn published_record(
    lines: &[Line],
    generation: u64,
    number: u32,
) -> Result<PublishedRecord<'_>, RecordFault> {
    let bytes = bytes_of(lines);
    let word = |index: usize| {
        let word = bytes.get(8 * index..8 * index + 8).and_then(|bytes| bytes.first_chunk());
        word.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    let (checksum, shape) = (word(0) as u32, word(0) >> u32::BITS);
    let (length, kind) = ((shape & ((1 << LENGTH_BITS) - 1)) as usize, (shape >> LENGTH_BITS) as u8);
    if kind != PUBLISHED_KIND_PART && kind != PUBLISHED_KIND_ELSEWHERE {
        return Err(RecordFault::Kind { got: kind });
    }
    let room = (bytes.len() / 8).saturating_sub(PUBLISHED_HEADER_WORDS);
    let has_length = if kind == PUBLISHED_KIND_PART { length >= 1 } else { length == 2 };
    if length > room || !has_length {
        return Err(RecordFault::Length { got: length, room });
    }
    let end = 8 * (PUBLISHED_HEADER_WORDS + length);
    let expected = crc32c::crc32c(&bytes[4..end]);
    if checksum != expected && !accepts_any_words() {
        return Err(RecordFault::Checksum { expected, got: checksum });
    }
    if word(1) != generation && !accepts_any_words() {
        return Err(RecordFault::Generation { expected: generation, got: word(1) });
    }
    let body = &bytes[8 * PUBLISHED_HEADER_WORDS..end];
    let got = word(PUBLISHED_HEADER_WORDS) as u32;
    if got != number {
        return Err(RecordFault::Number { expected: number, got });
    }
    if kind == PUBLISHED_KIND_PART {
        return Ok(PublishedRecord::Part(body));
    }
    let place = word(PUBLISHED_HEADER_WORDS + 1);
    let (first_line, lines) = (place as u32, (place >> u32::BITS) as u32);
    if !(1..=PUBLISHED_LINES_MAX as u32).contains(&lines) {
        return Err(RecordFault::Length { got: lines as usize * WORDS_PER_LINE, room });
    }
    Ok(PublishedRecord::Elsewhere { first_line, lines })
}

#[cfg(injected)]
fn accepts_any_words() -> bool {
    injected::RECORD_UNCHECKED.is_injected()
}

#[cfg(not(injected))]
const fn accepts_any_words() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(words: &[u64]) -> Vec<Line> {
        let line = |words: &[u64]| Line(std::array::from_fn(|index| *words.get(index).unwrap_or(&0)));
        words.chunks(WORDS_PER_LINE).map(line).collect()
    }

    #[test]
    fn a_root_comes_back_and_names_slots() {
        let mut root =
            PublishedRoot { generation: 7, first_numbers: 100, further_numbers: 64, ..Default::default() };
        (root.extents[0], root.extents[1], root.extents[9]) = (1, 501, u32::MAX);
        assert_eq!(PublishedRoot::from_line(&root.to_line()), Some(root));
        assert_eq!([0, 99, 100, 163].map(|number| root.slot(number)), [1, 496, 501, 816].map(Some));
        assert_eq!(root.slot(164), None, "no second further extent");
        assert_eq!(root.slot(100 + 8 * 64 + 63), Some(u64::from(u32::MAX) + 315));
        assert_eq!((root.slot(100 + 9 * 64), root.slot(u32::MAX)), (None, None));
        let none = PublishedRoot { further_numbers: 0, ..root };
        assert_eq!(none.slot(100), None);
        assert_eq!(PublishedRoot::from_line(&Line::ZERO), None);
        for bit in 0..512 {
            let mut line = root.to_line();
            line.0[bit / 64] ^= 1 << (bit % 64);
            assert_eq!(PublishedRoot::from_line(&line), None, "bit {bit}");
        }
    }

    #[test]
    fn a_record_comes_back_and_no_other_is_taken_for_it() {
        let part = [9, 1, 2, 3, u64::MAX];
        let lines = lines_of(&part_record(5, &part).expect("a short part"));
        let bytes: Vec<u8> = part.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(published_record(&lines, 5, 9), Ok(PublishedRecord::Part(&bytes)));
        assert_eq!(published_record(&lines, 6, 9), Err(RecordFault::Generation { expected: 6, got: 5 }));
        assert_eq!(published_record(&lines, 5, 8), Err(RecordFault::Number { expected: 8, got: 9 }));
        for bit in 0..64 * (PUBLISHED_HEADER_WORDS + part.len()) {
            let mut flipped = lines.clone();
            flipped[bit / 512].0[bit / 64 % 8] ^= 1 << (bit % 64);
            assert!(published_record(&flipped, 5, 9).is_err(), "bit {bit}");
        }
        let place = lines_of(&elsewhere_record(5, 9, 77, 13));
        let elsewhere = PublishedRecord::Elsewhere { first_line: 77, lines: 13 };
        assert_eq!(published_record(&place, 5, 9), Ok(elsewhere));
        for lines in [0, PUBLISHED_LINES_MAX as u32 + 1, u32::MAX] {
            let place = lines_of(&elsewhere_record(5, 9, 77, lines));
            assert!(matches!(published_record(&place, 5, 9), Err(RecordFault::Length { .. })));
        }
        assert_eq!(published_record(&[Line::ZERO], 0, 0), Err(RecordFault::Kind { got: 0 }));
        assert!(published_record(&[], 0, 0).is_err());
        assert_eq!(part_record(5, &[0; PUBLISHED_LINES_MAX * WORDS_PER_LINE]), None);
    }

    #[cfg(injected)]
    #[test]
    fn a_record_that_nobody_checks_is_found() {
        farsight_base::injection::assert_found(
            &injected::RECORD_UNCHECKED,
            a_record_comes_back_and_no_other_is_taken_for_it,
        );
    }
}

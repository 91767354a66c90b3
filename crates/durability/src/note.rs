//! Notes of a frame: who sends calls that may be repeated, and what these were answered.
//!
//! Invariant: what a frame notes of a call stands in the frame that has the call's records. So a crash leaves
//! both or neither.
//!
//! A note begins with three words: {kind 8, zero 8, calls unanswered 16, bytes of the reply 32}, the author,
//! and a number. Then comes the reply, padded to words. Most replies end with words of which each is that
//! before and one: versions that follow each other. A note of [`NOTE_CALL_IN_ROW`] leaves those out, and has
//! their count before what is left. docs/protocol/repeats.md says what a recovery makes of notes.

use crate::frame::FrameFault;

/// The first byte of a note by which all authors are forgotten.
pub const NOTE_ALL_FORGOTTEN: u8 = 1;
/// The first byte of a note of an author.
pub const NOTE_AUTHOR: u8 = 2;
/// The first byte of a note of a call.
pub const NOTE_CALL: u8 = 3;
/// The first byte of a note of a call whose reply ends with words in a row.
pub const NOTE_CALL_IN_ROW: u8 = 4;
/// Bytes of a note before a reply.
pub const NOTE_HEADER_BYTES: usize = 24;
/// Words in a row that a note leaves out at most: a message has fewer.
const IN_ROW_MAX: u64 = 1 << 20;
/// The same at least: what says how many takes one.
const IN_ROW_MIN: u64 = 2;

/// One note.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note<'a> {
    /// Authors that were noted before are forgotten. What is kept of some follows in the same frame.
    AllForgotten,
    /// There is this author. It awaits no answers to calls below a number.
    Author {
        /// Its number.
        author: u64,
        /// The least number that may be unanswered.
        first_unanswered: u64,
    },
    /// A call was executed.
    Call {
        /// Whose.
        author: u64,
        /// Its number among the author's calls.
        sequence: u64,
        /// Calls of the author that are unanswered, up to this one.
        unanswered: u16,
        /// What it is answered by.
        reply: NotedReply<'a>,
    },
}

/// A reply as it is noted: its begin, and how many words come behind that, each one more than that before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotedReply<'a> {
    begin: &'a [u8],
    in_row: u64,
}

impl<'a> NotedReply<'a> {
    /// The same reply, of which the words in a row at its end are left out if they are several.
    #[must_use]
    pub fn of(reply: &'a [u8]) -> Self {
        let (words, rest) = reply.as_chunks::<8>();
        let is_in_row = |pair: &&[[u8; 8]]| {
            u64::from_le_bytes(pair[1]).checked_sub(u64::from_le_bytes(pair[0])) == Some(1)
        };
        let in_row = words.windows(2).rev().take(IN_ROW_MAX as usize).take_while(is_in_row).count();
        if !rest.is_empty() || (in_row as u64) < IN_ROW_MIN {
            return Self { begin: reply, in_row: 0 };
        }
        Self { begin: &reply[..8 * (words.len() - in_row)], in_row: in_row as u64 }
    }

    /// The whole reply.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut reply = self.begin.to_vec();
        if let Some(last) = self.begin.last_chunk() {
            let last = u64::from_le_bytes(*last);
            reply.extend((1..=self.in_row).flat_map(|behind| last.wrapping_add(behind).to_le_bytes()));
        }
        reply
    }

    /// Bytes that it takes in a note.
    fn bytes(&self) -> usize {
        self.begin.len() + if self.in_row > 0 { 8 } else { 0 }
    }

    /// What stands in a note of this kind.
    fn parse(kind: u8, bytes: &'a [u8]) -> Result<Self, FrameFault> {
        if kind == NOTE_CALL {
            return Ok(Self { begin: bytes, in_row: 0 });
        }
        let cut = FrameFault::Cut { needed_bytes: 16, got_bytes: bytes.len() as u64 };
        let (in_row, begin) = bytes.split_first_chunk().ok_or(cut)?;
        let in_row = u64::from_le_bytes(*in_row);
        if !(IN_ROW_MIN..=IN_ROW_MAX).contains(&in_row) {
            let (what, expected) =
                ("words of a reply that are left out, two or more and at most", IN_ROW_MAX);
            return Err(FrameFault::Field { what, expected, got: in_row });
        }
        if begin.is_empty() || !begin.len().is_multiple_of(8) {
            let (what, expected) =
                ("bytes of a reply, whole words", begin.len().next_multiple_of(8).max(8) as u64);
            return Err(FrameFault::Field { what, expected, got: begin.len() as u64 });
        }
        Ok(Self { begin, in_row })
    }
}

impl<'a> Note<'a> {
    /// Appends it.
    pub(crate) fn push(&self, into: &mut Vec<u8>) {
        let none = NotedReply { begin: &[], in_row: 0 };
        let (kind, unanswered, reply, author, number) = match *self {
            Self::AllForgotten => (NOTE_ALL_FORGOTTEN, 0, none, 0, 0),
            Self::Author { author, first_unanswered } => (NOTE_AUTHOR, 0, none, author, first_unanswered),
            Self::Call { author, sequence, unanswered, reply } => {
                let kind = if reply.in_row > 0 { NOTE_CALL_IN_ROW } else { NOTE_CALL };
                (kind, unanswered, reply, author, sequence)
            }
        };
        let first = u64::from(kind) | u64::from(unanswered) << 16 | (reply.bytes() as u64) << 32;
        for word in [first, author, number] {
            into.extend_from_slice(&word.to_le_bytes());
        }
        if reply.in_row > 0 {
            into.extend_from_slice(&reply.in_row.to_le_bytes());
        }
        into.extend_from_slice(reply.begin);
        into.resize(into.len() + reply.bytes().next_multiple_of(8) - reply.bytes(), 0);
    }

    /// The note that begins `bytes`, and what stands behind it.
    ///
    /// # Errors
    /// [`FrameFault`].
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), FrameFault> {
        let cut =
            |needed: usize| FrameFault::Cut { needed_bytes: needed as u64, got_bytes: bytes.len() as u64 };
        let (header, behind) =
            bytes.split_first_chunk::<NOTE_HEADER_BYTES>().ok_or(cut(NOTE_HEADER_BYTES))?;
        let word = |index: usize| u64::from_le_bytes(header.as_chunks::<8>().0[index]);
        let (first, author, number) = (word(0), word(1), word(2));
        let (unanswered, reply_bytes) = ((first >> 16) as u16, (first >> 32) as usize);
        let padded_bytes = reply_bytes.next_multiple_of(8);
        let (padded, behind) =
            behind.split_at_checked(padded_bytes).ok_or(cut(NOTE_HEADER_BYTES + padded_bytes))?;
        let reply = padded.get(..reply_bytes).unwrap_or_default();
        let note = match first as u8 {
            NOTE_ALL_FORGOTTEN => Self::AllForgotten,
            NOTE_AUTHOR => Self::Author { author, first_unanswered: number },
            kind @ (NOTE_CALL | NOTE_CALL_IN_ROW) => {
                let reply = NotedReply::parse(kind, reply)?;
                Self::Call { author, sequence: number, unanswered, reply }
            }
            kind => {
                let (expected, got) = (NOTE_CALL_IN_ROW.into(), kind.into());
                return Err(FrameFault::Field { what: "kind of a note, at most", expected, got });
            }
        };
        Ok((note, behind))
    }

    /// Refuses bytes that are no notes, one behind the other.
    pub(crate) fn check_all(mut bytes: &[u8]) -> Result<(), FrameFault> {
        while !bytes.is_empty() {
            bytes = Note::parse(bytes)?.1;
        }
        Ok(())
    }
}

/// Notes in the order in which they were written, with bytes of their own.
#[derive(Clone, Default, Debug)]
pub struct NoteBatch(Vec<u8>);

impl NoteBatch {
    /// Appends those that stand in these bytes, which were checked.
    pub(crate) fn extend(&mut self, notes: &[u8]) {
        self.0.extend_from_slice(notes);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.len()
    }

    /// The notes.
    pub fn iter(&self) -> impl Iterator<Item = Note<'_>> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (note, behind) = Note::parse(rest).ok()?;
            rest = behind;
            Some(note)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_come_back_one_behind_the_other() {
        let reply = NotedReply::of(&[7; 21]);
        let notes = [
            Note::AllForgotten,
            Note::Author { author: 3, first_unanswered: u64::MAX },
            Note::Call { author: u64::MAX, sequence: 9, unanswered: 8, reply },
            Note::Call { author: 4, sequence: 1, unanswered: 1, reply: NotedReply::of(&[]) },
        ];
        let mut bytes = Vec::new();
        for note in &notes {
            note.push(&mut bytes);
        }
        assert_eq!(bytes.len(), 4 * NOTE_HEADER_BYTES + 24);
        let mut batch = NoteBatch::default();
        batch.extend(&bytes);
        assert_eq!(batch.iter().collect::<Vec<_>>(), notes);
        assert_eq!(Note::check_all(&bytes), Ok(()));
        for end in (0..bytes.len()).filter(|end| ![0, 24, 48, 96].contains(end)) {
            assert!(Note::check_all(&bytes[..end]).is_err(), "cut at {end}");
        }
        bytes[0] = NOTE_CALL_IN_ROW + 1;
        assert!(Note::check_all(&bytes).is_err(), "a kind that is none");
    }
    #[test]
    fn words_in_a_row_are_left_out_and_come_back() {
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let row: Vec<u64> = [3, 3].into_iter().chain(1000..1128).collect();
        let cases = [
            (words(&row), 127),
            (words(&[5, 6, 7]), 2),
            (words(&[5, 6]), 0),
            (words(&[4, u64::MAX - 1, u64::MAX]), 0),
            (words(&[u64::MAX, 0, 1]), 0),
            (words(&[1, 2, 3, 9]), 0),
            ([&words(&[1, 2, 3, 4])[..], b"behind"].concat(), 0),
            (Vec::new(), 0),
        ];
        for (reply, in_row) in cases {
            let noted = NotedReply::of(&reply);
            assert_eq!((noted.in_row, noted.to_vec()), (in_row, reply.clone()));
            let note = Note::Call { author: 1, sequence: 2, unanswered: 3, reply: noted };
            let mut bytes = Vec::new();
            note.push(&mut bytes);
            assert_eq!(Note::parse(&bytes), Ok((note, &[][..])));
            let whole_bytes = NOTE_HEADER_BYTES + reply.len().next_multiple_of(8);
            assert_eq!(
                bytes.len(),
                if in_row > 0 { whole_bytes + 8 - 8 * in_row as usize } else { whole_bytes }
            );
        }
    }

    #[test]
    fn notes_that_leave_out_what_cannot_be_are_refused() {
        let note = |bytes: u64, words: &[u64]| {
            let first = u64::from(NOTE_CALL_IN_ROW) | bytes << 32;
            let all = [first, 1, 2].into_iter().chain(words.iter().copied());
            Note::parse(&all.flat_map(u64::to_le_bytes).collect::<Vec<u8>>()).is_ok()
        };
        assert!(note(16, &[2, 7]) && note(16, &[IN_ROW_MAX, 7]));
        assert!(!note(16, &[1, 7]) && !note(16, &[IN_ROW_MAX + 1, 7]));
        assert!(!note(8, &[2]) && !note(0, &[]) && !note(15, &[2, 7]) && !note(12, &[2, 7]));
    }
}

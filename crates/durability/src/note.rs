//! Notes of a frame: who sends calls that may be repeated, and what these were answered.
//!
//! Invariant: what a frame notes of a call stands in the frame that has the call's records. So a crash leaves
//! both or neither.
//!
//! A note begins with three words: {kind 8, zero 8, calls unanswered 16, bytes of the reply 32}, the author,
//! and a number. Then comes the reply, padded to words. docs/protocol/repeats.md says what a recovery makes
//! of them.

use crate::frame::FrameFault;

/// The first byte of a note by which all authors are forgotten.
pub const NOTE_ALL_FORGOTTEN: u8 = 1;
/// The first byte of a note of an author.
pub const NOTE_AUTHOR: u8 = 2;
/// The first byte of a note of a call.
pub const NOTE_CALL: u8 = 3;
/// Bytes of a note before a reply.
pub const NOTE_HEADER_BYTES: usize = 24;

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
        reply: &'a [u8],
    },
}

impl<'a> Note<'a> {
    /// Appends it.
    pub(crate) fn push(&self, into: &mut Vec<u8>) {
        let (kind, unanswered, reply, author, number) = match *self {
            Self::AllForgotten => (NOTE_ALL_FORGOTTEN, 0, &[][..], 0, 0),
            Self::Author { author, first_unanswered } => (NOTE_AUTHOR, 0, &[][..], author, first_unanswered),
            Self::Call { author, sequence, unanswered, reply } => {
                (NOTE_CALL, unanswered, reply, author, sequence)
            }
        };
        let first = u64::from(kind) | u64::from(unanswered) << 16 | (reply.len() as u64) << 32;
        for word in [first, author, number] {
            into.extend_from_slice(&word.to_le_bytes());
        }
        into.extend_from_slice(reply);
        into.resize(into.len() + reply.len().next_multiple_of(8) - reply.len(), 0);
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
            NOTE_CALL => Self::Call { author, sequence: number, unanswered, reply },
            kind => {
                let (expected, got) = (NOTE_CALL.into(), kind.into());
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
        let reply = [7; 21];
        let notes = [
            Note::AllForgotten,
            Note::Author { author: 3, first_unanswered: u64::MAX },
            Note::Call { author: u64::MAX, sequence: 9, unanswered: 8, reply: &reply },
            Note::Call { author: 4, sequence: 1, unanswered: 1, reply: &[] },
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
        bytes[0] = NOTE_CALL + 1;
        assert!(Note::check_all(&bytes).is_err(), "a kind that is none");
    }
}

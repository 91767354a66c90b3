//! Calls that have an identity, so that a repeated one never acts twice.
//!
//! Invariant: of one author no two calls that differ have the same sequence number.
//!
//! An *author* is one session at one node, under a number that the node drew. Its calls that write go in an
//! envelope: a header with the author as its argument, a word with the sequence number, then the request
//! itself. The header's table is the number of the author's connection, its count says how many calls are
//! unanswered up to this one. So the node knows which answers nobody asks for any more. The steps stand in
//! docs/protocol/repeats.md.

use serde::{Deserialize, Serialize};

use crate::request::{IDENTIFIED, WRITE, WRITE_STAGED, WRITE_VALUES};
use crate::{DecodeError, HEADER_BYTES};

/// Bytes of an envelope before the request in it.
pub const ENVELOPE_BYTES: usize = HEADER_BYTES + 8;
/// Calls of one author that are unanswered at most.
pub const CALLS_UNANSWERED_MAX: usize = 8;

/// The number of an author at a node. A client that knows it writes in the author's name. In answers it has
/// eight bytes, whatever it is, so that runs of a simulation that draw other numbers are alike.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(from = "[u8; 8]", into = "[u8; 8]")]
pub struct AuthorId(pub u64);

impl From<[u8; 8]> for AuthorId {
    fn from(bytes: [u8; 8]) -> Self {
        Self(u64::from_le_bytes(bytes))
    }
}

impl From<AuthorId> for [u8; 8] {
    fn from(AuthorId(number): AuthorId) -> Self {
        number.to_le_bytes()
    }
}

/// Which call it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallId {
    /// Whose.
    pub author: AuthorId,
    /// The number of the connection over which the author sent it, counted by the author.
    pub connection: u32,
    /// Its number among the author's calls.
    pub sequence: u64,
    /// Calls of the author that are unanswered, up to this one: those with the last numbers.
    pub unanswered: u16,
}

impl CallId {
    /// The least number of a call that is unanswered.
    #[must_use]
    pub fn first_unanswered(&self) -> u64 {
        self.sequence + 1 - u64::from(self.unanswered)
    }

    /// Puts an encoded request into an envelope.
    pub fn enclose(&self, request: &mut Vec<u8>) {
        let mut envelope = [0; ENVELOPE_BYTES];
        envelope[0] = IDENTIFIED;
        envelope[2..4].copy_from_slice(&self.unanswered.to_le_bytes());
        envelope[4..8].copy_from_slice(&self.connection.to_le_bytes());
        envelope[8..HEADER_BYTES].copy_from_slice(&self.author.0.to_le_bytes());
        envelope[HEADER_BYTES..].copy_from_slice(&self.sequence.to_le_bytes());
        request.splice(0..0, envelope);
    }

    /// Takes a request that writes out of its envelope, if it is in one.
    ///
    /// # Errors
    /// [`DecodeError`] for an envelope that no encoder writes, or around any other request.
    pub fn open(frame: &[u8]) -> Result<(Option<Self>, &[u8]), DecodeError> {
        if frame.first() != Some(&IDENTIFIED) {
            return Ok((None, frame));
        }
        let Some((envelope, request)) = frame.split_first_chunk::<ENVELOPE_BYTES>() else {
            let expected = format!("{ENVELOPE_BYTES} B");
            return Err(DecodeError::new("an envelope", 0, expected, format!("{} B", frame.len())));
        };
        if envelope[1] != 0 {
            return Err(DecodeError::new("an envelope's flags", 1, "0".into(), envelope[1].to_string()));
        }
        if !matches!(request.first(), Some(&(WRITE | WRITE_VALUES | WRITE_STAGED))) {
            let expected = format!("{WRITE}, {WRITE_VALUES} or {WRITE_STAGED}");
            let got = request.first().map_or_else(|| "nothing".to_owned(), u8::to_string);
            return Err(DecodeError::new("the request in an envelope", ENVELOPE_BYTES, expected, got));
        }
        let word = |at: usize| u64::from_le_bytes(envelope[at..at + 8].try_into().expect("eight bytes"));
        let id = Self {
            author: AuthorId(word(8)),
            connection: u32::from_le_bytes(envelope[4..8].try_into().expect("four bytes")),
            sequence: word(HEADER_BYTES),
            unanswered: u16::from_le_bytes([envelope[2], envelope[3]]),
        };
        let (most, unanswered) = (CALLS_UNANSWERED_MAX as u64, u64::from(id.unanswered));
        // Sequence numbers begin with one, so that none is below them.
        if !(1..=most).contains(&unanswered) || unanswered > id.sequence || id.sequence == u64::MAX {
            let expected = format!("1 to {most}, up to the call's number");
            let got = format!("{unanswered}, number {}", id.sequence);
            return Err(DecodeError::new("an envelope's unanswered calls", 2, expected, got));
        }
        Ok((Some(id), request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, TableId, WriteOperation};

    const ID: CallId = CallId { author: AuthorId(0xfeed), connection: 3, sequence: 9, unanswered: 8 };

    fn write() -> Vec<u8> {
        let mut request = Vec::new();
        Request::begin_write(&mut request, TableId(1), WriteOperation::Put, 0, 8);
        request
    }

    #[test]
    fn what_is_enclosed_comes_out() {
        let request = write();
        let mut frame = request.clone();
        ID.enclose(&mut frame);
        assert_eq!(frame.len(), request.len() + ENVELOPE_BYTES);
        assert_eq!(CallId::open(&frame), Ok((Some(ID), &request[..])));
        assert_eq!(ID.first_unanswered(), 2);
        assert_eq!(CallId::open(&request), Ok((None, &request[..])));
        assert_eq!(CallId::open(&[]), Ok((None, &[][..])));
        assert!(Request::decode(&frame).is_err(), "an envelope is no request");
    }

    #[test]
    fn what_no_encoder_writes_is_refused() {
        let refused = |id: CallId, change: fn(&mut Vec<u8>)| {
            let mut frame = write();
            id.enclose(&mut frame);
            change(&mut frame);
            CallId::open(&frame).expect_err("it is refused").what
        };
        assert_eq!(refused(ID, |frame| frame.truncate(ENVELOPE_BYTES - 1)), "an envelope");
        assert_eq!(refused(ID, |frame| frame.truncate(ENVELOPE_BYTES)), "the request in an envelope");
        assert_eq!(refused(ID, |frame| frame[1] = 1), "an envelope's flags");
        assert_eq!(refused(ID, |frame| frame[ENVELOPE_BYTES] = 2), "the request in an envelope");
        for (sequence, unanswered) in [(9, 0), (9, 9), (3, 4), (u64::MAX, 1)] {
            let what = refused(CallId { sequence, unanswered, ..ID }, |_| ());
            assert_eq!(what, "an envelope's unanswered calls");
        }
    }
}

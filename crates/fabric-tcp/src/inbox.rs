//! What arrives on a client's queue pair: lines, kept where they landed until they are taken.
//!
//! Invariant: lines that a slot refers to (*staged*) keep their places. When there is no room behind them the
//! inbox grows, up to a bound. Beyond that they are copied out, slot by slot, and what is not parsed moves to
//! the front.

use std::io;
use std::ops::Range;

use farsight_base::words::{bytes_of, bytes_of_mut};
use farsight_base::{LINE_BYTES, Line};

use farsight_fabric_net::{Received, Stream};

/// Lines that an inbox has room for at first.
const INBOX_LINES: usize = 1024;
/// Bytes received at a time: what is taken at once is taken from a near cache.
const RECEIVED_BYTES: usize = INBOX_LINES * LINE_BYTES;
/// Lines that it grows to, unless one READ is longer.
const INBOX_LINES_MAX: usize = 16 << 10;

/// A buffer of arriving lines.
#[derive(Debug)]
pub(crate) struct Inbox {
    lines: Vec<Line>,
    filled_bytes: usize,
    /// Lines before this are parsed.
    parsed: usize,
    /// Lines that must lie there at once for the parser to go on.
    needed: usize,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self { lines: vec![Line::ZERO; INBOX_LINES], filled_bytes: 0, parsed: 0, needed: 1 }
    }

    /// The next `count` lines, if they have arrived; otherwise they are what is needed next.
    #[inline]
    pub(crate) fn next(&mut self, count: usize) -> Option<Range<usize>> {
        let end = self.parsed + count;
        if end * LINE_BYTES > self.filled_bytes {
            self.needed = count;
            return None;
        }
        let first = std::mem::replace(&mut self.parsed, end);
        Some(first..end)
    }

    /// Lines that have been parsed.
    #[inline]
    pub(crate) fn lines(&self, range: Range<usize>) -> &[Line] {
        &self.lines[range]
    }

    /// Their bytes.
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        bytes_of(&self.lines[range])
    }

    /// True if nothing can be received before what is staged has been copied out, because there is no room
    /// and no more to be had.
    pub(crate) fn is_cramped(&mut self) -> bool {
        let is_full = |inbox: &Self| {
            inbox.parsed + inbox.needed > inbox.lines.len()
                || inbox.filled_bytes == inbox.lines.len() * LINE_BYTES
        };
        while is_full(self) && self.lines.len() < INBOX_LINES_MAX {
            let wanted = 2 * self.lines.len();
            self.lines.resize(wanted, Line::ZERO);
        }
        is_full(self)
    }

    /// Makes room, when nothing is staged.
    pub(crate) fn make_room(&mut self) {
        let unparsed = self.parsed * LINE_BYTES..self.filled_bytes;
        self.filled_bytes = unparsed.len();
        if !unparsed.is_empty() {
            bytes_of_mut(&mut self.lines).copy_within(unparsed, 0);
        }
        self.parsed = 0;
        if self.lines.len() < self.needed {
            self.lines.resize(self.needed, Line::ZERO);
        } else if self.lines.len() > INBOX_LINES_MAX.max(self.needed)
            && self.filled_bytes <= INBOX_LINES_MAX * LINE_BYTES
        {
            self.lines.truncate(INBOX_LINES_MAX.max(self.needed));
            self.lines.shrink_to(0);
        }
    }

    /// True if no more has to move to the front than has been parsed: so each line moves once, on average.
    pub(crate) fn is_cheaply_emptied(&self) -> bool {
        let parsed_bytes = self.parsed * LINE_BYTES;
        self.filled_bytes - parsed_bytes <= parsed_bytes
    }

    /// Takes what has arrived.
    pub(crate) fn receive(&mut self, stream: &mut Stream) -> io::Result<Received> {
        let room = &mut bytes_of_mut(&mut self.lines)[self.filled_bytes..];
        let most = room.len().min(RECEIVED_BYTES);
        let received = stream.receive(&mut room[..most])?;
        if let Received::Bytes(length_bytes) = received {
            self.filled_bytes += length_bytes;
        }
        Ok(received)
    }
}

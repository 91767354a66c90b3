//! What a port has to send on one queue, gathered as lines so that a region's are copied once.
//!
//! Invariant: between two visits it is empty: what the kernel did not take has moved to the queue, which is
//! not served before that has gone.

use std::io;

use farsight_base::words::{bytes_of, bytes_of_mut};
use farsight_base::{LINE_BYTES, Line};

use crate::MESSAGE_BYTES_MAX;
use crate::frames::{Heading, lines_of_bytes};
use farsight_fabric_net::Stream;

/// Lines gathered before they are sent.
pub(crate) const OUTPUT_LINES: usize = 4096;
/// Lines of the longest reply with its heading.
pub(crate) const REPLY_LINES_MAX: usize = 1 + MESSAGE_BYTES_MAX / LINE_BYTES;

const _: () = assert!(REPLY_LINES_MAX <= OUTPUT_LINES);

/// Lines to be sent.
#[derive(Debug)]
pub(crate) struct Output {
    lines: Box<[Line]>,
    used: usize,
    sent_bytes: usize,
    /// The newest number that clients are told, as far as this port knows: every heading carries it.
    pub(crate) notice: u64,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self { lines: vec![Line::ZERO; OUTPUT_LINES].into(), used: 0, sent_bytes: 0, notice: 0 }
    }

    /// Lines that still have room.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.lines.len() - self.used
    }

    /// Lines that wait to be sent, or to be forgotten with them.
    pub(crate) fn used_lines(&self) -> usize {
        self.used
    }

    /// The next lines, to be filled; there must be room.
    #[inline]
    pub(crate) fn next(&mut self, line_count: usize) -> &mut [Line] {
        let first = self.used;
        self.used += line_count;
        &mut self.lines[first..self.used]
    }

    /// A heading.
    pub(crate) fn push(&mut self, heading: &Heading) {
        self.next(1)[0] = heading.encode();
    }

    /// Bytes, padded to lines with zeros; there must be room.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        let into = bytes_of_mut(self.next(lines_of_bytes(bytes.len())));
        let (text, padding) = into.split_at_mut(bytes.len());
        text.copy_from_slice(bytes);
        padding.fill(0);
    }

    /// Words, padded to lines with zeros.
    pub(crate) fn push_words(&mut self, words: &[u64]) {
        let lines = words.chunks(Line::ZERO.0.len());
        for words in lines {
            let line = &mut self.next(1)[0];
            *line = Line::ZERO;
            line.0[..words.len()].copy_from_slice(words);
        }
    }

    /// A reply, padded to lines with zeros.
    pub(crate) fn push_reply(&mut self, sequence: u64, verb: u32, reply: &[u8]) {
        let (length_bytes, notice) = (reply.len() as u32, self.notice);
        self.push(&Heading::Reply { sequence, verb, length_bytes, notice });
        self.push_bytes(reply);
    }

    /// Sends what is gathered. False if the kernel did not take all of it.
    pub(crate) fn flush(&mut self, stream: &mut Stream) -> io::Result<bool> {
        let unsent = &bytes_of(&self.lines[..self.used])[self.sent_bytes..];
        self.sent_bytes += stream.send(unsent)?;
        let is_sent = self.sent_bytes == self.used * LINE_BYTES && !stream.has_unsent();
        if is_sent {
            self.clear();
        }
        Ok(is_sent)
    }

    /// Moves what was not sent to `rest`.
    pub(crate) fn move_rest(&mut self, rest: &mut Vec<u8>) {
        rest.extend_from_slice(&bytes_of(&self.lines[..self.used])[self.sent_bytes..]);
        self.clear();
    }

    fn clear(&mut self) {
        (self.used, self.sent_bytes) = (0, 0);
    }
}

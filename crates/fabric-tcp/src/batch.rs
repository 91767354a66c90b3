//! The batch that a client is posting, and what it expects back for one that was sent.
//!
//! Bounds: a frame is closed before it grows beyond [`FRAME_BYTES_MAX`], so a doorbell that carries many long
//! calls or a long WRITE sends several; any other sends one.

use farsight_fabric::Slot;
use farsight_fabric::filter::Filter;

use crate::BATCH_VERBS_MAX;
use crate::frames::{
    BatchHeader, FRAME_BYTES_MAX, FRAME_REGIONS_MAX, HEADER_BYTES, VERB_BYTES, Verb, VerbKind,
};
use crate::grants::{TOKEN_BYTES, Token};

/// Words of the longest WRITE in one frame; a longer one becomes several.
pub(crate) const WRITE_WORDS_MAX: usize = 4096;
/// Frames whose lists are kept to be used again: more than a session's operations have under way at a queue,
/// however slowly its server answers.
const SPARE_FRAMES_MAX: usize = 64;

/// A verb whose result is to come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaited {
    pub(crate) slot: Slot,
    /// Of the posting: a slot may hold another verb by the time that the result comes.
    pub(crate) serial: u64,
    pub(crate) kind: VerbKind,
    /// Its region's place among those of its frame; [`OpenBatch::add`] says which.
    pub(crate) region: u8,
    /// Lines of a READ.
    pub(crate) count: u32,
    /// Of a filtered READ.
    pub(crate) filter: Filter,
    /// False for a part of a WRITE that is not its last.
    pub(crate) completes: bool,
}

impl Awaited {
    /// True if its region is one of the frame's that are withdrawn.
    #[inline]
    pub(crate) fn is_withdrawn(&self, withdrawn: u16) -> bool {
        withdrawn >> self.region & 1 == 1
    }
}

/// A frame that was sent: what its results are for, verbs first.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    pub(crate) sequence: u64,
    pub(crate) verbs: Vec<Awaited>,
    /// `None` for a call that is answered: the server answers calls in any order.
    pub(crate) calls: Vec<Option<Awaited>>,
    /// Calls that are answered.
    pub(crate) calls_done: usize,
    /// True while the verbs' results have not come, if there are verbs.
    pub(crate) awaits_verbs: bool,
}

impl Sent {
    /// True once all of it is answered.
    pub(crate) fn is_answered(&self) -> bool {
        !self.awaits_verbs && self.calls_done == self.calls.len()
    }

    /// The place among the calls of the one that this reply answers; `None` if none waits for it.
    pub(crate) fn call_of(&self, verb: u32) -> Option<usize> {
        let call = (verb as usize).checked_sub(self.verbs.len())?;
        (!self.awaits_verbs && self.calls.get(call)?.is_some()).then_some(call)
    }
}

/// The frame that is being posted to.
#[derive(Debug, Default)]
pub(crate) struct OpenBatch {
    tokens: Vec<Token>,
    verbs: Vec<u8>,
    verb_payload: Vec<u8>,
    calls: Vec<u8>,
    call_payload: Vec<u8>,
    sent: Sent,
    /// Empty lists of frames that were answered.
    spare: Vec<Sent>,
    /// Frames that are closed and not sent.
    closed: Vec<Sent>,
    closed_bytes: Vec<u8>,
    last_sequence: u64,
}

impl OpenBatch {
    fn is_empty(&self) -> bool {
        self.sent.verbs.is_empty() && self.sent.calls.is_empty()
    }

    /// Closes the frame if a further verb with this payload, perhaps of a further region, does not fit.
    #[inline]
    fn make_room(&mut self, payload_bytes: usize) {
        let count = self.sent.verbs.len() + self.sent.calls.len();
        let body_bytes = (self.tokens.len() + 1) * TOKEN_BYTES
            + (count + 1) * VERB_BYTES
            + self.verb_payload.len()
            + self.call_payload.len();
        if count == BATCH_VERBS_MAX || HEADER_BYTES + body_bytes + payload_bytes > FRAME_BYTES_MAX {
            self.close();
        }
    }

    /// Adds a verb on the region behind `token`, of `awaited.kind`, with the words that it carries.
    #[inline]
    pub(crate) fn add(&mut self, awaited: Awaited, token: &Token, offset_bytes: u64, words: &[u64]) {
        self.make_room(words.len() * 8);
        // Nearly always the last one named.
        let named = self.tokens.iter().rposition(|named| named == token);
        let region = named.unwrap_or_else(|| {
            if self.tokens.len() == FRAME_REGIONS_MAX {
                self.close();
            }
            self.tokens.push(*token);
            self.tokens.len() - 1
        });
        let verb = Verb { kind: awaited.kind, region: region as u8, count: awaited.count, offset_bytes };
        self.verbs.extend_from_slice(&verb.encode());
        for word in words {
            self.verb_payload.extend_from_slice(&word.to_le_bytes());
        }
        self.sent.verbs.push(Awaited { region: region as u8, ..awaited });
    }

    /// Adds a call.
    pub(crate) fn add_call(&mut self, awaited: Awaited, request: &[u8]) {
        self.make_room(request.len().next_multiple_of(8));
        let verb = Verb { kind: VerbKind::Call, region: 0, count: request.len() as u32, offset_bytes: 0 };
        self.calls.extend_from_slice(&verb.encode());
        self.call_payload.extend_from_slice(request);
        self.call_payload.resize(self.call_payload.len().next_multiple_of(8), 0);
        self.sent.calls.push(Some(awaited));
    }

    fn close(&mut self) {
        if self.is_empty() {
            return;
        }
        self.last_sequence += 1;
        self.sent.sequence = self.last_sequence;
        self.sent.awaits_verbs = !self.sent.verbs.is_empty();
        let tokens = self.tokens.as_flattened();
        let parts = [tokens, &self.verbs, &self.calls, &self.verb_payload, &self.call_payload];
        let header = BatchHeader {
            region_count: self.tokens.len() as u8,
            verb_count: (self.sent.verbs.len() + self.sent.calls.len()) as u16,
            body_bytes: parts.iter().map(|part| part.len()).sum::<usize>() as u32,
            sequence: self.last_sequence,
        };
        self.closed_bytes.extend_from_slice(&header.encode());
        for part in parts {
            self.closed_bytes.extend_from_slice(part);
        }
        self.tokens.clear();
        for part in [&mut self.verbs, &mut self.calls, &mut self.verb_payload, &mut self.call_payload] {
            part.clear();
        }
        let next = self.spare.pop().unwrap_or_default();
        self.closed.push(std::mem::replace(&mut self.sent, next));
    }

    /// Closes the batch: appends its bytes to `output`, and hands each frame to `sent`.
    pub(crate) fn finish(&mut self, output: &mut Vec<u8>, sent: impl FnMut(Sent)) {
        self.close();
        output.append(&mut self.closed_bytes);
        self.closed.drain(..).for_each(sent);
    }

    /// Takes back the lists of a frame whose results have come, to be used again.
    pub(crate) fn recycle(&mut self, mut used: Sent) {
        if self.spare.len() < SPARE_FRAMES_MAX {
            used.verbs.clear();
            used.calls.clear();
            self.spare.push(Sent { verbs: used.verbs, calls: used.calls, ..Sent::default() });
        }
    }
}

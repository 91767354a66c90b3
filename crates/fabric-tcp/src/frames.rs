//! Frames of a queue pair: batches from the client, lines from the server (docs/protocol/tcp.md).
//!
//! Invariant: a batch decodes only if it is one that [`crate::batch::OpenBatch`] writes: lengths add up to
//! the byte, reserved fields are zero, verbs come before calls. What a verb names is checked elsewhere, at
//! its execution.

use farsight_base::{LINE_BYTES, Line};
use farsight_fabric::filter::Filter;

use crate::grants::{TOKEN_BYTES, Token};
use crate::{BATCH_VERBS_MAX, MESSAGE_BYTES_MAX};

/// Bytes of a batch's header.
pub(crate) const HEADER_BYTES: usize = 16;
/// Bytes that describe one verb.
pub(crate) const VERB_BYTES: usize = 16;
/// Bytes of the longest batch: the longest call, every verb and a table of regions fit beside each other.
pub(crate) const FRAME_BYTES_MAX: usize = 96 << 10;
/// Regions that one batch names: as many as a heading has bits for those that are withdrawn.
pub(crate) const FRAME_REGIONS_MAX: usize = u16::BITS as usize;
/// What stands for a filtered READ that found nothing, where others have the number of a word.
pub(crate) const NOT_PICKED: u8 = u8::MAX;
/// Lines of the longest READ.
pub(crate) const READ_LINES_MAX: usize = 1 << 16;

const KIND_BATCH: u8 = 1;
const KIND_COMPLETIONS: u32 = 1;
const KIND_REPLY: u32 = 2;

const _: () = assert!(
    HEADER_BYTES + FRAME_REGIONS_MAX * TOKEN_BYTES + BATCH_VERBS_MAX * VERB_BYTES + MESSAGE_BYTES_MAX
        < FRAME_BYTES_MAX
);

/// What a verb does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum VerbKind {
    ReadPlain = 1,
    ReadStamped = 2,
    Write = 3,
    CompareSwap = 4,
    FetchAdd = 5,
    Call = 6,
    ReadFiltered = 7,
}

impl VerbKind {
    #[inline(always)]
    fn decode(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::ReadPlain,
            2 => Self::ReadStamped,
            3 => Self::Write,
            4 => Self::CompareSwap,
            5 => Self::FetchAdd,
            6 => Self::Call,
            7 => Self::ReadFiltered,
            _ => return None,
        })
    }

    /// True for what a READ is.
    #[inline]
    pub(crate) fn is_read(self) -> bool {
        matches!(self, Self::ReadPlain | Self::ReadStamped | Self::ReadFiltered)
    }

    /// True for what yields the word that it found.
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }
}

/// A verb as its 16 bytes describe it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Verb {
    pub(crate) kind: VerbKind,
    /// Which of the frame's regions.
    pub(crate) region: u8,
    /// Lines of a READ, words of a WRITE, one for an atomic, bytes of a call.
    pub(crate) count: u32,
    pub(crate) offset_bytes: u64,
}

impl Verb {
    /// The verb's bytes.
    #[inline]
    pub(crate) fn encode(&self) -> [u8; VERB_BYTES] {
        let low = u64::from(self.kind as u8) | u64::from(self.region) << 8 | u64::from(self.count) << 32;
        let mut bytes = [0; VERB_BYTES];
        bytes[..8].copy_from_slice(&low.to_le_bytes());
        bytes[8..].copy_from_slice(&self.offset_bytes.to_le_bytes());
        bytes
    }

    #[inline(always)]
    fn decode(bytes: &[u8; VERB_BYTES]) -> Result<Self, Malformed> {
        let low = u64::from_le_bytes(*bytes.first_chunk().expect("16 bytes"));
        let kind = VerbKind::decode(low as u8);
        let kind = kind.ok_or(Malformed::Verb { what: "kind", got: u64::from(low as u8) })?;
        let reserved = low >> 16 & 0xffff;
        if reserved != 0 {
            return Err(Malformed::Verb { what: "reserved field", got: reserved });
        }
        let offset_bytes = u64::from_le_bytes(*bytes.last_chunk().expect("16 bytes"));
        Ok(Self { kind, region: (low >> 8) as u8, count: (low >> 32) as u32, offset_bytes })
    }

    /// Bytes of the verb's part of the payload.
    #[inline]
    pub(crate) fn payload_bytes(&self) -> usize {
        match self.kind {
            VerbKind::ReadPlain | VerbKind::ReadStamped => 0,
            VerbKind::Write => self.count as usize * 8,
            VerbKind::CompareSwap | VerbKind::ReadFiltered => 16,
            VerbKind::FetchAdd => 8,
            VerbKind::Call => (self.count as usize).next_multiple_of(8),
        }
    }

    #[inline]
    fn check(&self, region_count: usize) -> Result<(), Malformed> {
        let most = match self.kind {
            VerbKind::ReadPlain | VerbKind::ReadStamped | VerbKind::ReadFiltered => READ_LINES_MAX,
            VerbKind::Write => FRAME_BYTES_MAX / 8,
            VerbKind::CompareSwap | VerbKind::FetchAdd => 1,
            VerbKind::Call => MESSAGE_BYTES_MAX,
        };
        if self.count as usize > most || self.kind.is_atomic() && self.count != 1 {
            return Err(Malformed::Verb { what: "count", got: u64::from(self.count) });
        }
        let is_call = self.kind == VerbKind::Call;
        if is_call && (self.region, self.offset_bytes) != (0, 0) {
            return Err(Malformed::Verb { what: "address of a call", got: self.offset_bytes });
        }
        if !is_call && usize::from(self.region) >= region_count {
            return Err(Malformed::Verb { what: "region", got: u64::from(self.region) });
        }
        Ok(())
    }
}

/// Why bytes are no batch.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("a frame's {what} is {got}")]
    Header { what: &'static str, got: u64 },
    #[error("a verb's {what} is {got}")]
    Verb { what: &'static str, got: u64 },
    #[error("a verb follows a call")]
    Order,
    #[error("a frame of {expected} B has {got}")]
    Length { expected: usize, got: usize },
    #[error("a call's padding is not zero")]
    Padding,
}

/// A batch's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BatchHeader {
    pub(crate) region_count: u8,
    pub(crate) verb_count: u16,
    /// Bytes behind the header.
    pub(crate) body_bytes: u32,
    /// Counts a queue's batches, from one.
    pub(crate) sequence: u64,
}

impl BatchHeader {
    /// The header's bytes.
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let low = u64::from(KIND_BATCH)
            | u64::from(self.region_count) << 8
            | u64::from(self.verb_count) << 16
            | u64::from(self.body_bytes) << 32;
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&low.to_le_bytes());
        bytes[8..].copy_from_slice(&self.sequence.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Malformed> {
        let [kind, region_count, v0, v1, b0, b1, b2, b3] = *bytes.first_chunk().expect("16 bytes");
        if kind != KIND_BATCH {
            return Err(Malformed::Header { what: "kind", got: u64::from(kind) });
        }
        let header = Self {
            region_count,
            verb_count: u16::from_le_bytes([v0, v1]),
            body_bytes: u32::from_le_bytes([b0, b1, b2, b3]),
            sequence: u64::from_le_bytes(*bytes.last_chunk().expect("16 bytes")),
        };
        let refused = |what, got| Err(Malformed::Header { what, got });
        match header {
            _ if usize::from(region_count) > FRAME_REGIONS_MAX => {
                refused("number of regions", u64::from(region_count))
            }
            Self { verb_count, .. } if !(1..=BATCH_VERBS_MAX).contains(&usize::from(verb_count)) => {
                refused("number of verbs", u64::from(verb_count))
            }
            Self { body_bytes, .. } if body_bytes as usize > FRAME_BYTES_MAX - HEADER_BYTES => {
                refused("length", u64::from(body_bytes))
            }
            header => Ok(header),
        }
    }
}

/// The first frame of `bytes` as its header and its body; `None` if it has not arrived whole.
pub(crate) fn first_frame(bytes: &[u8]) -> Result<Option<(BatchHeader, &[u8])>, Malformed> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let header = BatchHeader::decode(header)?;
    Ok(rest.get(..header.body_bytes as usize).map(|body| (header, body)))
}

/// A batch whose form has been checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch<'f> {
    pub(crate) header: BatchHeader,
    tokens: &'f [u8],
    verbs: &'f [[u8; VERB_BYTES]],
    payload: &'f [u8],
    /// Verbs that are no calls.
    pub(crate) one_sided: usize,
}

impl<'f> Batch<'f> {
    /// The batch of this header and body.
    pub(crate) fn decode(header: BatchHeader, body: &'f [u8]) -> Result<Self, Malformed> {
        let tokens_bytes = usize::from(header.region_count) * TOKEN_BYTES;
        let described_bytes = tokens_bytes + usize::from(header.verb_count) * VERB_BYTES;
        let short = |expected| Malformed::Length { expected, got: body.len() };
        let (described, payload) = body.split_at_checked(described_bytes).ok_or(short(described_bytes))?;
        let (tokens, verbs) = described.split_at(tokens_bytes);
        let mut batch = Self { header, tokens, verbs: verbs.as_chunks().0, payload, one_sided: 0 };
        let (mut payload_bytes, mut has_calls, mut checked_filter) = (0, false, None);
        for index in 0..batch.len() {
            let verb = Verb::decode(&batch.verbs[index])?;
            verb.check(usize::from(header.region_count))?;
            let end = payload_bytes + verb.payload_bytes();
            if verb.kind == VerbKind::ReadFiltered {
                let payload = payload.get(payload_bytes..end).ok_or(short(described_bytes + end))?;
                let (_, filter) = filter_words(payload);
                // One is nearly always as the one before.
                if checked_filter != Some((filter, verb.count)) {
                    let found = Filter::decode(filter, verb.count as usize);
                    found.ok_or(Malformed::Verb { what: "filter", got: filter })?;
                    checked_filter = Some((filter, verb.count));
                }
            }
            if verb.kind == VerbKind::Call {
                has_calls = true;
                let padding = payload.get(payload_bytes + verb.count as usize..end);
                if padding.ok_or(short(described_bytes + end))?.iter().any(|byte| *byte != 0) {
                    return Err(Malformed::Padding);
                }
            } else if has_calls {
                return Err(Malformed::Order);
            } else {
                batch.one_sided += 1;
            }
            payload_bytes = end;
        }
        if payload_bytes == payload.len() { Ok(batch) } else { Err(short(described_bytes + payload_bytes)) }
    }

    /// Verbs and calls.
    pub(crate) fn len(&self) -> usize {
        self.verbs.len()
    }

    /// One verb.
    #[inline]
    pub(crate) fn verb(&self, index: usize) -> Verb {
        Verb::decode(&self.verbs[index]).expect("each verb was checked")
    }

    /// The part of the payload that begins at `at`, for `verb`.
    pub(crate) fn payload(&self, at: usize, verb: &Verb) -> &'f [u8] {
        let length_bytes =
            if verb.kind == VerbKind::Call { verb.count as usize } else { verb.payload_bytes() };
        &self.payload[at..at + length_bytes]
    }

    /// What a filtered READ wants, and its filter, which was checked; its payload begins at `at`.
    #[inline]
    pub(crate) fn filter(&self, at: usize, verb: &Verb) -> (u64, Filter) {
        let (wanted, filter) = filter_words(&self.payload[at..at + verb.payload_bytes()]);
        (wanted, Filter::from_word(filter))
    }

    /// The tokens of the regions that the batch names.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = &'f Token> {
        self.tokens.chunks_exact(TOKEN_BYTES).map(|token| token.try_into().expect("chunks of a token"))
    }
}

/// The payload of a filtered READ: the word wanted, and the filter's.
#[inline(always)]
fn filter_words(payload: &[u8]) -> (u64, u64) {
    let word = |bytes: Option<&[u8; 8]>| u64::from_le_bytes(*bytes.expect("16 bytes"));
    (word(payload.first_chunk()), word(payload.last_chunk()))
}

/// Why a verb was not executed, as the server's frame says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Denial {
    /// The token names nothing, or nothing any more.
    NoGrant = 1,
    /// The range does not lie in the region.
    Bounds = 2,
    /// The address is no multiple of a line or word.
    Misaligned = 3,
    /// The client may only READ the region.
    ReadOnly = 4,
}

impl Denial {
    const ALL: [Self; 4] = [Self::NoGrant, Self::Bounds, Self::Misaligned, Self::ReadOnly];

    /// For people.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::NoGrant => "the server has taken the region away from this client",
            Self::Bounds => "the region ends before",
            Self::Misaligned => "the address is no multiple of the verb's unit",
            Self::ReadOnly => "clients may only READ this region",
        }
    }
}

/// The line with which a frame of the server begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heading {
    /// Results of a batch's verbs follow: a byte for each filtered READ, padded to lines, lines of READs,
    /// then words of atomics, padded to lines.
    Completions {
        sequence: u64,
        /// How many verbs of the batch were executed.
        executed: u32,
        /// Why the next one was not. The connection ends then.
        denial: Option<Denial>,
        /// Those of the bytes and of the READs.
        lines: u32,
        words: u32,
        /// Filtered READs among the verbs executed.
        picks: u32,
        /// The batch's regions that are withdrawn, a bit each, the first one's lowest. Verbs on them count as
        /// executed, did nothing, and have neither lines nor words nor picks.
        withdrawn: u16,
        /// The newest number that the server tells its clients.
        notice: u64,
    },
    /// The reply to a call follows, padded to lines.
    Reply {
        sequence: u64,
        /// The call's place in its batch.
        verb: u32,
        length_bytes: u32,
        /// As in completions.
        notice: u64,
    },
}

impl Heading {
    /// The heading's line.
    pub(crate) fn encode(&self) -> Line {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let mut line = Line::ZERO;
        match *self {
            Self::Completions { sequence, executed, denial, lines, words, picks, withdrawn, notice } => {
                let denial = denial.map_or(0, |denial| denial as u32);
                line.0[..6].copy_from_slice(&[
                    pair(KIND_COMPLETIONS, executed),
                    sequence,
                    pair(denial, lines),
                    pair(words, picks),
                    notice,
                    withdrawn.into(),
                ]);
            }
            Self::Reply { sequence, verb, length_bytes, notice } => {
                let length = pair(length_bytes, 0);
                line.0[..5].copy_from_slice(&[pair(KIND_REPLY, verb), sequence, length, 0, notice]);
            }
        }
        line
    }

    /// The heading in a line, if it is one that [`Heading::encode`] writes.
    pub(crate) fn decode(line: &Line) -> Option<Self> {
        let halves = |word: usize| (line.0[word] as u32, (line.0[word] >> 32) as u32);
        let ((kind, first), sequence, notice) = (halves(0), line.0[1], line.0[4]);
        let heading = match kind {
            KIND_COMPLETIONS => {
                let (denial, lines) = halves(2);
                let denial = match denial {
                    0 => None,
                    code => Some(Denial::ALL.into_iter().find(|denial| *denial as u32 == code)?),
                };
                let ((words, picks), withdrawn) = (halves(3), line.0[5] as u16);
                let executed = first;
                Self::Completions { sequence, executed, denial, lines, words, picks, withdrawn, notice }
            }
            KIND_REPLY => Self::Reply { sequence, verb: first, length_bytes: halves(2).0, notice },
            _ => return None,
        };
        (heading.encode() == *line).then_some(heading)
    }
}

/// Lines that so many bytes take.
pub(crate) fn lines_of_bytes(length_bytes: usize) -> usize {
    length_bytes.div_ceil(LINE_BYTES)
}

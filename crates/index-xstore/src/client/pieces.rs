//! Values that no message carries: they go to the server and come from it in pieces.
//!
//! Invariant: what goes in pieces shows at once, when the write that names it is executed. What comes in
//! pieces is of one version: the server keeps a copy of it meanwhile.
//!
//! Protocol of a write: the pieces go out in calls, several in flight, and the call that writes follows the
//! last one. One queue pair's calls execute in order. A value of which a piece is refused has failed; nothing
//! more of it is sent.
//!
//! Protocol of a read: the first call's reply says how long the value is, and brings as much of it as a reply
//! carries. All others bring as much, so the client knows their offsets and has several in flight.

use farsight_base::LeafNumber;
use farsight_fabric::QueuePair;
use farsight_fabric::lane::Lane;
use farsight_layout::value_block::draft_checksum;
use farsight_protocol::{
    DecodeError, EXPECTED_VERSION_BYTES, ErrorCode, HEADER_BYTES, Operand, PIECE_HEAD_BYTES, PairsReader,
    Reply, Request, ServerError, StagedWrite, TableId, ValueEntries, ValuePiece, WriteOperation,
};

use super::authorship::envelope_bytes;
use super::fill::call;
use super::write::CALLS_IN_FLIGHT;
use super::{XClient, XStoreError};

/// A value under way to the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces {
    /// The number under which the server knows it.
    pub(super) number: u64,
    /// Bytes of it that were sent.
    sent_bytes: usize,
}

/// True if no message carries such a write, but its value goes in pieces.
pub(super) fn goes_in_pieces<Q: QueuePair>(operation: WriteOperation, operand: &[u8]) -> bool {
    StagedWrite::has(operation)
        && envelope_bytes::<Q>() + HEADER_BYTES + ValueEntries::entry_bytes(operand.len())
            > Q::MESSAGE_BYTES_MAX
}

/// By what code a value fails whose piece was refused so; `None` if the refusal is of more than that value.
pub(super) fn code_of_refused_piece(error: &ServerError) -> Option<ErrorCode> {
    let is_of_value =
        matches!(error.code, ErrorCode::RegionFull | ErrorCode::NoMemory | ErrorCode::OutOfResources);
    is_of_value.then_some(error.code)
}

impl Pieces {
    pub(super) fn new(number: u64) -> Self {
        Self { number, sent_bytes: 0 }
    }

    /// Encodes the next piece. False if all were sent.
    pub(super) fn encode_next<Q: QueuePair>(
        &mut self,
        request: &mut Vec<u8>,
        table: TableId,
        key: u64,
        value: &[u8],
    ) -> bool {
        let rest = &value[self.sent_bytes..];
        let room_bytes = (Q::MESSAGE_BYTES_MAX - PIECE_HEAD_BYTES) / 8 * 8;
        let piece = &rest[..rest.len().min(room_bytes)];
        if piece.is_empty() {
            return false;
        }
        let [value_bytes, offset] = [value.len(), self.sent_bytes].map(|bytes| bytes as u32);
        Request::stage_value(
            request,
            table,
            ValuePiece { number: self.number, key, value_bytes, offset, piece },
        );
        self.sent_bytes += piece.len();
        true
    }

    /// Encodes the write of the value, all of whose pieces were sent.
    pub(super) fn encode_write(
        self,
        request: &mut Vec<u8>,
        table: TableId,
        operation: WriteOperation,
        (key, hint): (u64, LeafNumber),
        operand: Operand<'_>,
    ) {
        let expected = operand.argument.first_chunk::<EXPECTED_VERSION_BYTES>();
        let write = StagedWrite {
            number: self.number,
            operation,
            key,
            hint,
            checksum: draft_checksum(&key.to_le_bytes(), operand.value),
            expected_version: expected.map_or(0, |bytes| u64::from_le_bytes(*bytes)),
        };
        Request::write_staged(request, table, write);
    }
}

/// A piece that came.
struct FetchedPiece<'r> {
    version: u64,
    value_bytes: usize,
    piece: &'r [u8],
}

impl<'r> FetchedPiece<'r> {
    /// Decodes one of a value of so many bytes at most.
    fn decode(frame: &'r [u8], value_bytes_max: usize) -> Result<Self, XStoreError> {
        let reply = Reply::decode(frame)??;
        let (version, piece) = PairsReader::of_any_length(reply.words()?).value()?;
        let value_bytes = usize::try_from(reply.argument).unwrap_or(usize::MAX);
        // What is not whole goes on: a piece that brings nothing would not.
        let is_sound = value_bytes <= value_bytes_max
            && piece.len() <= value_bytes
            && (!piece.is_empty() || value_bytes == 0);
        if is_sound {
            return Ok(Self { version, value_bytes, piece });
        }
        let expected = format!("a piece of a value of up to {value_bytes_max} B");
        let got = format!("{} B of {value_bytes} B", piece.len());
        Err(DecodeError::new("a piece of a value", 8, expected, got).into())
    }
}

impl XClient {
    /// A number under which the server keeps something for this session: no other of this process has it.
    pub(super) fn next_number(&mut self) -> u64 {
        self.numbers_given = self.numbers_given.wrapping_add(1);
        // The address of what is this session's alone.
        let own = std::ptr::from_ref(&*self.sent).addr() as u64;
        own << u16::BITS | u64::from(self.numbers_given)
    }

    /// Lets the server give back what it keeps under this number.
    pub(super) fn let_go<Q: QueuePair>(&mut self, queue: &mut Q, number: u64) -> Result<(), XStoreError> {
        Request::let_go(&mut self.request, self.cache.table().id, number);
        call(queue, &self.request, &mut self.reply).map(drop)
    }

    /// The value of `key`, into `value`, in place of what that holds; returns its version. The server finds
    /// it.
    pub(super) fn fetch_value<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        key: u64,
        value: &mut Vec<u8>,
    ) -> Result<Option<u64>, XStoreError> {
        value.clear();
        let (number, table) = (self.next_number(), self.cache.table().id);
        let values = self.cache.table().definition.values;
        let longest = values.bytes_max() + values.deadline_bytes();
        Request::fetch_value(&mut self.request, table, number, key, 0);
        call(queue, &self.request, &mut self.reply)?;
        let FetchedPiece { version, value_bytes, piece } = FetchedPiece::decode(&self.reply, longest)?;
        if version == 0 {
            return Ok(None);
        }
        let piece_bytes = piece.len();
        value.reserve(value_bytes);
        value.extend_from_slice(piece);
        let mut asked_bytes = piece_bytes;
        let (mut first, mut in_flight) = (0, 0);
        let mut fetched = Ok(());
        // Each turn brings a piece, or sends nothing any more.
        loop {
            while fetched.is_ok() && asked_bytes < value_bytes && in_flight < CALLS_IN_FLIGHT {
                Request::fetch_value(&mut self.request, table, number, key, asked_bytes as u64);
                queue.post_call((first + in_flight) % CALLS_IN_FLIGHT, &self.request)?;
                queue.doorbell()?;
                in_flight += 1;
                asked_bytes += piece_bytes;
            }
            if in_flight == 0 {
                break;
            }
            Lane::new(queue).await_reply(first, &mut self.reply)?;
            (first, in_flight) = ((first + 1) % CALLS_IN_FLIGHT, in_flight - 1);
            if fetched.is_ok() {
                let expected_bytes = piece_bytes.min(value_bytes - value.len());
                fetched = FetchedPiece::decode(&self.reply, longest).and_then(|fetched| {
                    fetched.check(version, value_bytes, expected_bytes)?;
                    value.extend_from_slice(fetched.piece);
                    Ok(())
                });
            }
        }
        fetched.map(|()| Some(version))
    }
}

impl FetchedPiece<'_> {
    /// Refuses a later piece that does not follow.
    fn check(&self, version: u64, value_bytes: usize, piece_bytes: usize) -> Result<(), DecodeError> {
        if (self.version, self.value_bytes, self.piece.len()) == (version, value_bytes, piece_bytes) {
            return Ok(());
        }
        let expected = format!("{piece_bytes} B of version {version}, {value_bytes} B");
        let got = format!("{} B of version {}, {} B", self.piece.len(), self.version, self.value_bytes);
        Err(DecodeError::new("a later piece of a value", HEADER_BYTES, expected, got))
    }
}

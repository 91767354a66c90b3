//! Values that no message carries, on their way to the server in pieces. The other way is in
//! [`fetch`](super::fetch).
//!
//! Invariant: what goes in pieces shows at once, when the write that names it is executed.
//!
//! Protocol: the pieces go out in calls, several in flight, and the call that writes follows the
//! last one. One queue pair's calls execute in order. A value of which a piece is refused has failed; nothing
//! more of it is sent.

use farsight_base::LeafNumber;
use farsight_fabric::QueuePair;
use farsight_layout::value_block::draft_checksum;
use farsight_protocol::{
    EXPECTED_VERSION_BYTES, ErrorCode, HEADER_BYTES, Operand, PIECE_HEAD_BYTES, Request, ServerError,
    StagedWrite, TableId, ValueEntries, ValuePiece, WriteOperation,
};

use super::authorship::envelope_bytes;
use super::fill::call;
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

impl XClient {
    /// Lets the server give back what it keeps under this number.
    pub(super) fn let_go<Q: QueuePair>(&mut self, queue: &mut Q, number: u64) -> Result<(), XStoreError> {
        Request::let_go(&mut self.request, self.cache.table().id, number);
        call(queue, &self.request, &mut self.reply).map(drop)
    }
}

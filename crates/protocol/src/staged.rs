//! Values longer than a message: they come and go in pieces.
//!
//! Each belongs to a client, under a number that the client chose. Numbers of one client are its own in one
//! table.
//!
//! A piece: key word, a word of the value's length 32 and the piece's offset 32, lowest bits first, then the
//! piece, padded to words. The last piece alone may be no whole number of words. A write: key word, a word of
//! hint 32 and checksum 32, and the expected version if the operation has one.

use farsight_base::LeafNumber;

use crate::request::{FETCH_VALUE, LET_GO, LOAD_LONG, STAGE_VALUE, WRITE_STAGED, exact, header};
use crate::wire::{put, put_padded};
use crate::{DecodeError, EXPECTED_VERSION_BYTES, HEADER_BYTES, Request, TableId, WriteOperation, padded};

/// Bytes of a piece's frame before the piece.
pub const PIECE_HEAD_BYTES: usize = HEADER_BYTES + 16;

/// A piece of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValuePiece<'a> {
    /// The number under which its client knows the value; in a bulk load, that of the load's piece.
    pub number: u64,
    /// The key.
    pub key: u64,
    /// Bytes of the whole value.
    pub value_bytes: u32,
    /// Bytes of it before the piece.
    pub offset: u32,
    /// The piece, which does not end behind the value.
    pub piece: &'a [u8],
}

/// A write of a value that came in pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StagedWrite {
    /// The number under which its client knows the value.
    pub number: u64,
    /// The kind: one of [`StagedWrite::has`].
    pub operation: WriteOperation,
    /// The key.
    pub key: u64,
    /// Where the client believes the key to be; hostile until checked.
    pub hint: LeafNumber,
    /// The checksum of key and value ([`draft_checksum`](farsight_layout::value_block::draft_checksum)).
    pub checksum: u32,
    /// The version that is expected. Zero if the operation expects none.
    pub expected_version: u64,
}

impl StagedWrite {
    /// True for operations whose value may come in pieces: all that neither compare nor add values.
    #[must_use]
    pub fn has(operation: WriteOperation) -> bool {
        use WriteOperation::{CompareAndSet, Insert, Put, Swap, Update};
        matches!(operation, Insert | Update | Put | CompareAndSet | Swap)
    }

    /// What it expects, as an operand says it.
    #[must_use]
    pub fn argument(&self) -> ([u8; EXPECTED_VERSION_BYTES], usize) {
        let bytes = if expects_version(self.operation) { EXPECTED_VERSION_BYTES } else { 0 };
        (self.expected_version.to_le_bytes(), bytes)
    }

    pub(crate) fn decode(number: u64, flags: u8, body: &[u8]) -> Result<Self, DecodeError> {
        let operation = WriteOperation::from_number(flags).filter(|kind| Self::has(*kind));
        let operation = operation.ok_or_else(|| {
            let expected = "0, 1, 2, 4 or 8".to_owned();
            DecodeError::new("the kind of a write of a staged value", 1, expected, flags.to_string())
        })?;
        let has_version = expects_version(operation);
        let words = exact("a write of a staged value", body, 2 + usize::from(has_version))?;
        let (key, second) = (words.get(0), words.get(1));
        let expected_version = if has_version { words.get(2) } else { 0 };
        let (hint, checksum) = (LeafNumber(second as u32), (second >> u32::BITS) as u32);
        Ok(Self { number, operation, key, hint, checksum, expected_version })
    }
}

fn expects_version(operation: WriteOperation) -> bool {
    operation == WriteOperation::CompareAndSet
}

impl<'a> ValuePiece<'a> {
    /// True if the value ends with this piece.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.offset as usize + self.piece.len() == self.value_bytes as usize
    }

    /// Appends its body to a frame.
    fn put(&self, into: &mut Vec<u8>) {
        put(into, self.key);
        put(into, u64::from(self.value_bytes) | u64::from(self.offset) << u32::BITS);
        put_padded(into, self.piece);
    }

    pub(crate) fn decode(number: u64, body: &'a [u8]) -> Result<Self, DecodeError> {
        let (head, padded_piece) = body.split_at(body.len().min(PIECE_HEAD_BYTES - HEADER_BYTES));
        let words = exact("a piece's key and lengths", head, 2)?;
        let (key, second) = (words.get(0), words.get(1));
        let (value_bytes, offset) = (second as u32, (second >> u32::BITS) as u32);
        let left_bytes = value_bytes.saturating_sub(offset) as usize;
        let bytes = left_bytes.min(padded_piece.len());
        if bytes == 0 || padded(bytes) != padded_piece.len() {
            let expected = format!("1 to {left_bytes} B in whole words");
            let got = format!("{} B", padded_piece.len());
            return Err(DecodeError::new("a piece of a value", PIECE_HEAD_BYTES, expected, got));
        }
        Ok(Self { number, key, value_bytes, offset, piece: &padded_piece[..bytes] })
    }
}

impl<'a> Request<'a> {
    /// Decodes the rest of a request about a value in pieces, whose header was looked at.
    pub(crate) fn decode_in_pieces(
        operation: u8,
        flags: u8,
        table: TableId,
        number: u64,
        body: &'a [u8],
    ) -> Result<Self, DecodeError> {
        match operation {
            STAGE_VALUE => Ok(Self::StageValue { table, piece: ValuePiece::decode(number, body)? }),
            LOAD_LONG => Ok(Self::LoadLong { table, part: ValuePiece::decode(number, body)? }),
            WRITE_STAGED => Ok(Self::WriteStaged { table, write: StagedWrite::decode(number, flags, body)? }),
            FETCH_VALUE => {
                let words = exact("the key and the offset of a fetch", body, 2)?;
                Ok(Self::FetchValue { table, number, key: words.get(0), offset: words.get(1) })
            }
            LET_GO => {
                exact("what is needed no more", body, 0)?;
                Ok(Self::LetGo { table, number })
            }
            other => {
                let expected = "1 to 8, or 16 to 24".to_owned();
                Err(DecodeError::new("a request's operation", 0, expected, other.to_string()))
            }
        }
    }
}

impl Request<'_> {
    /// Encodes a piece of a value.
    pub fn stage_value(into: &mut Vec<u8>, table: TableId, piece: ValuePiece<'_>) {
        header(into, STAGE_VALUE, 0, 1, table, piece.number);
        piece.put(into);
    }

    /// Encodes a part of a value of a bulk load; its number is that of the load's piece.
    pub fn load_long(into: &mut Vec<u8>, table: TableId, part: ValuePiece<'_>) {
        header(into, LOAD_LONG, 0, 1, table, part.number);
        part.put(into);
    }

    /// Encodes a write of a value whose pieces were sent before.
    ///
    /// # Panics
    /// For an operation whose value does not come in pieces.
    pub fn write_staged(into: &mut Vec<u8>, table: TableId, write: StagedWrite) {
        assert!(StagedWrite::has(write.operation), "no {:?} of a staged value", write.operation);
        header(into, WRITE_STAGED, write.operation as u8, 1, table, write.number);
        put(into, write.key);
        put(into, u64::from(write.hint.0) | u64::from(write.checksum) << u32::BITS);
        if expects_version(write.operation) {
            put(into, write.expected_version);
        }
    }
}

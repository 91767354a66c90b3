//! Values that come in pieces, because no message carries them.
//!
//! Invariant: a staged value is a draft that nothing names, in a place of its own from its first piece on. So
//! no reader sees it, and its end finds the memory that it needs.
//!
//! Protocol:
//! 1. [`StagedValue::begin`] takes the place. Pieces are appended in their order.
//! 2. [`StagedValue::end`] makes the whole value a draft; [`BlockTree::write_draft`] writes it as any other.
//! 3. One that comes to nothing gives its place back ([`StagedValue::give_back`]).

use farsight_base::words::{CopyMode, bytes_of, copy_lines};
use farsight_base::{LeafNumber, Line};
use farsight_blocks::{BlockSpace, BlockWriter};
use farsight_layout::value_block::{
    BlockPlace, BlockRef, BlockTooLong, DraftInPieces, block_bytes, block_lines,
};
use farsight_protocol::{WriteEntry, WriteOperation, WriteOutcome};

use super::block_copy::KEY_BYTES;
use super::block_exchange::Exchanged;
use super::block_leaf::reference_in;
use super::block_tree::{BlockTree, BlockWriteError};
use super::block_versioned::StagedReference;
use super::error::WriteError;

/// A value of which pieces are there.
#[derive(Debug)]
pub struct StagedValue {
    key: u64,
    place: BlockPlace,
    draft: DraftInPieces,
}

/// A write of a draft: where it goes, and what it expects.
#[derive(Clone, Copy, Debug)]
pub struct DraftWrite<'a> {
    /// The kind: one that neither compares nor adds values.
    pub operation: WriteOperation,
    /// The key.
    pub key: u64,
    /// Where a client believes it to be.
    pub hint: LeafNumber,
    /// The version that is expected, as an operand says it; empty if none is.
    pub argument: &'a [u8],
    /// The longest value before that a swap's answer has room for.
    pub old_bytes_max: usize,
}

impl StagedValue {
    /// Takes a place for a value of so many bytes.
    ///
    /// # Errors
    /// [`BlockWriteError`]: it is too long, or there is no memory for it.
    pub fn begin(writer: &mut BlockWriter, key: u64, value_bytes: usize) -> Result<Self, BlockWriteError> {
        let too_long = |source| BlockWriteError::TooLong { key, source };
        BlockTooLong::check(KEY_BYTES, value_bytes).map_err(too_long)?;
        let lines = block_lines(KEY_BYTES, value_bytes) as u32;
        let place = writer.allocate(lines).map_err(|source| BlockWriteError::NoRoom { key, source })?;
        let words = writer.space().words(place).expect("a place of the space");
        let draft = DraftInPieces::begin(words, &key.to_le_bytes(), value_bytes).map_err(too_long)?;
        Ok(Self { key, place, draft })
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Bytes of the whole value.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        self.draft.value_bytes()
    }

    /// Bytes of it that are there.
    #[must_use]
    pub fn written_bytes(&self) -> usize {
        self.draft.written_bytes()
    }

    /// The checksum of key and of what is there of the value.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        self.draft.checksum()
    }

    /// Writes the next piece.
    ///
    /// # Panics
    /// If the value has not so many more bytes.
    pub fn append(&mut self, space: &BlockSpace, piece: &[u8]) {
        let words = space.words(self.place).expect("a place of the space");
        self.draft.append(words, piece);
    }

    /// Makes the whole value a draft.
    ///
    /// # Panics
    /// If pieces are missing.
    #[must_use]
    pub fn end(self, space: &BlockSpace) -> StagedReference {
        self.draft.end(space.words(self.place).expect("a place of the space"));
        BlockRef::new(&self.key.to_le_bytes(), self.place).0.to_le_bytes()
    }

    /// Gives its place back.
    pub fn give_back(self, writer: &mut BlockWriter) {
        writer.give_back(self.place);
    }
}

impl BlockTree {
    /// Puts the value of a draft into `value`, in place of what that holds.
    pub fn copy_draft(space: &BlockSpace, staged: StagedReference, value_bytes: usize, value: &mut Vec<u8>) {
        let place = space.place(reference_in(&staged)).expect("the place that was taken for the draft");
        let mut lines = vec![Line::ZERO; place.lines as usize];
        copy_lines(space.words(place).expect("words of the place"), &mut lines, CopyMode::Plain);
        value.clear();
        value.extend_from_slice(&bytes_of(&lines)[block_bytes(KEY_BYTES, 0)..][..value_bytes]);
    }

    /// Does one write, whose value is a draft already. A draft that is not stored is given back.
    pub fn write_draft(
        &self,
        writer: &mut BlockWriter,
        staged: StagedReference,
        write: DraftWrite<'_>,
        mut done: impl FnMut(Exchanged<'_>),
    ) {
        let DraftWrite { operation, key, hint, argument, old_bytes_max } = write;
        let mut operand = staged.to_vec();
        if operation == WriteOperation::Swap {
            operand.extend_from_slice(&(old_bytes_max as u64).to_le_bytes());
        } else {
            operand.extend_from_slice(argument);
        }
        let entry = WriteEntry { key, hint, value: &operand };
        let mut end = |outcome: Result<WriteOutcome, WriteError>, is_hint_wrong, old: Option<&[u8]>| {
            let is_replaced = matches!(outcome, Ok(WriteOutcome::Replaced(_)));
            if !is_replaced && !matches!(outcome, Ok(WriteOutcome::Inserted(_))) {
                Self::unstage(writer, staged);
            }
            let old = old.filter(|_| is_replaced && operation.returns_value());
            done(Exchanged { outcome: outcome.map_err(BlockWriteError::from), is_hint_wrong, old });
        };
        if operation.is_conditional() {
            self.tree().exchange_many(operation, [entry], |outcome, is_hint_wrong, old| {
                end(outcome, is_hint_wrong, Some(old));
            });
        } else {
            self.tree().write_many(operation, [entry], |outcome, is_hint_wrong| {
                end(outcome, is_hint_wrong, None);
            });
        }
    }
}

//! Calls of a table of blocks that bring or fetch a value piece by piece, and what gives back those that come
//! to nothing.
//!
//! Invariant: a value that is staged is seen by nobody, and one call makes it seen at once. Whatever ends
//! otherwise gives its place back: a refused piece, a refused write, the client's end, silence.

use std::sync::Arc;
use std::time::Duration;

use farsight_base::ClientId;
use farsight_base::clock::MonotonicNs;
use farsight_index_xstore::server::{BlockRoom, BlockTree, DraftWrite, StagedReference, StagedValue};
use farsight_protocol::{ErrorCode, ReplyWriter, ServerError, StagedWrite, ValuePiece};

use super::block_part::{BlockPart, sent};
use super::in_pieces::{Coming, Going, UnderWay};
use crate::BackgroundState;
use crate::engine::{BackgroundWork, Call, Executed};
#[cfg(injected)]
use crate::injected;
#[cfg(injected)]
use farsight_base::LeafNumber;
#[cfg(injected)]
use farsight_protocol::{WriteEntry, WriteOperation};

/// Bytes of a piece in an answer before its bytes: version and length.
const PIECE_HEAD_BYTES: usize = 16;

impl BlockPart {
    /// Takes a piece of a value.
    pub(super) fn stage_piece(
        &self,
        piece: ValuePiece<'_>,
        call: &mut Call<'_, '_>,
    ) -> Result<Executed, ServerError> {
        let ValuePiece { number, key, value_bytes, offset, piece } = piece;
        let (value_bytes, offset) = (value_bytes as usize, offset as usize);
        let (client, name) = (call.client, &self.part.name);
        let Coming { mut staged, share } = if offset == 0 {
            // What was under this number is needed no more.
            self.let_go(client, number);
            let share = self.part.memory.of_value(client, value_bytes as u64)?;
            let begun = self.with_writer(|writer| StagedValue::begin(writer, key, value_bytes));
            Coming { staged: begun.map_err(|error| self.refused_block(&error))?, share }
        } else {
            self.in_pieces.take_coming(name, client, number)?
        };
        let expected = (staged.key(), staged.value_bytes(), staged.written_bytes());
        if expected != (key, value_bytes, offset) {
            self.give_back(UnderWay::Coming(Coming { staged, share }));
            let text = format!(
                "table {name:?}: expected a piece of key {} of {} B from byte {} on, got one of key {key} of \
                 {value_bytes} B from byte {offset} on",
                expected.0, expected.1, expected.2
            );
            return Err(ServerError::new(ErrorCode::BadRequest, text));
        }
        staged.append(self.tree.space(), piece);
        #[cfg(injected)]
        if injected::STAGED_VALUE_SHOWN.is_injected() {
            self.show(key, value_bytes, piece);
        }
        call.answer.set(1, staged.written_bytes() as u64);
        self.keep(client, number, UnderWay::Coming(Coming { staged, share }));
        // It looks when the value was heard of.
        Ok(Executed { operations: 0, wakes_background: offset == 0 })
    }

    /// Takes a staged value out, to be written. It is whole, and what its client sent.
    pub(super) fn take_staged(
        &self,
        client: ClientId,
        write: &StagedWrite,
    ) -> Result<(StagedReference, usize), ServerError> {
        let name = &self.part.name;
        let Coming { staged, share } = self.in_pieces.take_coming(name, client, write.number)?;
        let got = (staged.key(), staged.written_bytes(), staged.checksum());
        let value_bytes = staged.value_bytes();
        if got == (write.key, value_bytes, write.checksum) {
            return Ok((staged.end(self.tree.space()), value_bytes));
        }
        self.give_back(UnderWay::Coming(Coming { staged, share }));
        let text = format!(
            "table {name:?}: expected a value of key {} of {value_bytes} B, checksum {:#x}, got one of key {} of {} B, \
             checksum {:#x}",
            write.key, write.checksum, got.0, got.1, got.2
        );
        Err(ServerError::new(ErrorCode::BadRequest, text))
    }

    /// Writes a staged value.
    pub(super) fn write_staged(
        &self,
        write: StagedWrite,
        call: &mut Call<'_, '_>,
    ) -> Result<Executed, ServerError> {
        let (staged, _) = self.take_staged(call.client, &write)?;
        let StagedWrite { operation, key, hint, .. } = write;
        let (argument, argument_bytes) = write.argument();
        let old_bytes_max = call.room_bytes().saturating_sub(ReplyWriter::exchanged_value_bytes(0)) / 8 * 8;
        let argument = &argument[..argument_bytes];
        let draft = DraftWrite { operation, key, hint, argument, old_bytes_max };
        self.with_writer(|writer| {
            self.tree.write_draft(writer, staged, draft, |exchanged| {
                let sent = sent(exchanged.outcome, exchanged.is_hint_wrong);
                if operation.returns_value() {
                    call.answer.push_exchanged_value(sent, exchanged.old);
                } else {
                    call.answer.push_outcome(sent);
                }
            });
        });
        Ok(self.part.written(1, call))
    }

    /// Sends a piece of a value.
    pub(super) fn fetch_piece(
        &self,
        number: u64,
        key: u64,
        offset: u64,
        call: &mut Call<'_, '_>,
    ) -> Result<Executed, ServerError> {
        let (client, name) = (call.client, &self.part.name);
        let going = if offset == 0 {
            self.let_go(client, number);
            let mut room = BlockRoom::default();
            let found = self.tree.get(key, &mut room).map_err(|error| self.refused_read(&error))?;
            let Some((value, version)) = found else {
                call.answer.push_long_value(0, &[]);
                call.answer.set(1, 0);
                return Ok(Executed::operations(1));
            };
            let share = self.part.memory.of_copy(client, value.len() as u64)?;
            Going { key, version, value: value.to_vec(), _share: share }
        } else {
            self.in_pieces.take_going(name, client, number)?
        };
        #[cfg(injected)]
        let going = if injected::PIECE_OF_NEWER_VALUE.is_injected() { self.renewed(going) } else { going };
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = going.value.get(begin..).filter(|_| going.key == key);
        let Some(rest) = rest.filter(|rest| offset == 0 || !rest.is_empty()) else {
            let (other, bytes) = (going.key, going.value.len());
            let text = format!(
                "table {name:?}: expected to send a piece of key {other} of {bytes} B, got key {key} from byte {offset} \
                 on"
            );
            return Err(ServerError::new(ErrorCode::BadRequest, text));
        };
        let room_bytes = call.room_bytes().saturating_sub(PIECE_HEAD_BYTES) / 8 * 8;
        let piece = &rest[..rest.len().min(room_bytes)];
        call.answer.push_long_value(going.version, piece);
        call.answer.set(1, going.value.len() as u64);
        let wakes_background = piece.len() < rest.len();
        if wakes_background {
            self.keep(client, number, UnderWay::Going(going));
        }
        Ok(Executed { operations: u64::from(offset == 0), wakes_background })
    }

    /// Keeps a value for its client's next call.
    fn keep(&self, client: ClientId, number: u64, value: UnderWay) {
        if let Some(other) = self.in_pieces.put(client, number, value) {
            self.give_back(other);
        }
    }

    /// Gives back what a client has under this number.
    pub(super) fn let_go(&self, client: ClientId, number: u64) {
        if let Some(value) = self.in_pieces.take(client, number) {
            self.give_back(value);
        }
    }

    /// Gives back what a client has that has ended.
    pub(super) fn let_go_all_of(&self, client: ClientId) {
        let values = self.in_pieces.take_all_of(client);
        #[cfg(injected)]
        if injected::STAGED_VALUE_LEAKED.is_injected() {
            return;
        }
        for value in values {
            self.give_back(value);
        }
    }

    fn give_back(&self, value: UnderWay) {
        match value {
            UnderWay::Coming(Coming { staged, share: _ }) => {
                self.with_writer(|writer| staged.give_back(writer));
            }
            UnderWay::Going(_) => {}
        }
    }

    /// Replaces the key's value by one that begins so.
    #[cfg(injected)]
    fn show(&self, key: u64, value_bytes: usize, piece: &[u8]) {
        let value: Vec<u8> = piece.iter().copied().chain(std::iter::repeat(0)).take(value_bytes).collect();
        let entry = WriteEntry { key, hint: LeafNumber::NONE, value: &value };
        self.with_writer(|writer| {
            self.tree.write_many(writer, WriteOperation::Update, [entry].into_iter(), |_, _| {});
        });
    }

    /// The same with the bytes that the key has now, if they are as many.
    #[cfg(injected)]
    fn renewed(&self, going: Going) -> Going {
        let mut room = BlockRoom::default();
        match self.tree.get(going.key, &mut room) {
            Ok(Some((value, _))) if value.len() == going.value.len() => {
                Going { value: value.to_vec(), ..going }
            }
            _ => going,
        }
    }

    /// The bytes of a draft's value, into `value`, in place of what that holds.
    pub(super) fn copy_draft(&self, staged: StagedReference, value_bytes: usize, value: &mut Vec<u8>) {
        BlockTree::copy_draft(self.tree.space(), staged, value_bytes, value);
    }
}

/// What the background does for a table of blocks besides.
pub(super) struct SilenceWatch {
    part: Arc<BlockPart>,
    others: Box<dyn BackgroundWork>,
}

impl SilenceWatch {
    /// Besides `others` of the same table.
    pub(super) fn new(part: Arc<BlockPart>, others: Box<dyn BackgroundWork>) -> Self {
        Self { part, others }
    }
}

impl BackgroundWork for SilenceWatch {
    fn step(&mut self, now: MonotonicNs, budget: usize, processor_time: fn() -> Duration) -> BackgroundState {
        let (silent, looks_at) = self.part.in_pieces.take_silent(now);
        for value in silent {
            self.part.give_back(value);
        }
        match self.others.step(now, budget, processor_time) {
            BackgroundState::Working => BackgroundState::Working,
            BackgroundState::Idle { again_at } => {
                BackgroundState::Idle { again_at: again_at.into_iter().chain(looks_at).min() }
            }
        }
    }
}

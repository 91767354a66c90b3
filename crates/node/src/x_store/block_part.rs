//! A part whose values have any length: a tree of references, and what calls do with the blocks.
//!
//! Requests that are not for values of any length are those of a part of values of one word, the references.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use farsight_base::clock::MonotonicNs;
use farsight_base::{ClientId, LINE_BYTES};
use farsight_blocks::{BlockSpace, BlockWriter};
use farsight_index::LeafListener;
use farsight_index_xstore::server::{
    BlockLeaf, BlockReadError, BlockRoom, BlockTree, BlockWriteError, Exchanged, ModelStore,
};
use farsight_protocol::{
    BlockSpaceStats, Direction, ErrorCode, RegionInfo, ReplyWriter, Request, SentOutcome, ServerError, Space,
    ValueEntries, Words, WriteOperation, WriteOutcome, padded,
};

use super::block_pieces::SilenceWatch;
use super::damaged::DamagedPairs;
use super::in_pieces::InPieces;
use super::sweep::DeadlineSweep;
use super::{Part, code_of, too_small};
use crate::bulk_load::Piece;
use crate::engine::{BackgroundWork, Call, Executed, HostedStats, HostedTable};
use crate::logged::LoggedTable;
use crate::new_table::NewTable;
use crate::scrub::Checked;
use crate::table_name::TableName;

/// The number by which references name a part's space: it has one.
const SPACE: u8 = 0;
/// Bytes of a pair in an answer before its value: key, version and length.
const PAIR_HEAD_BYTES: usize = 24;
/// Pairs that one look into the tree gathers for a scan at most.
const SCANNED_TOGETHER: usize = 64;

/// What a node keeps of a table with values of any length, or of its part of one.
pub(crate) struct BlockPart {
    pub(super) part: Arc<Part<BlockLeaf>>,
    pub(super) tree: BlockTree,
    /// Supplies of blocks that no call uses now: as many as calls ever wrote side by side.
    writers: Mutex<Vec<BlockWriter>>,
    /// Values that no message carries, on their way.
    pub(super) in_pieces: InPieces,
    /// What readers have found of damaged pairs.
    pub(super) damaged: DamagedPairs,
}

impl BlockPart {
    /// An empty part with two regions of its own.
    pub(crate) fn new(new: &NewTable<'_>) -> Result<Self, ServerError> {
        let leaves = new.read_only_region()?;
        let space = Arc::new(BlockSpace::new(new.growing_region()?, SPACE, new.memory_bytes()));
        let models = Arc::new(ModelStore::beside(new.model_region()?, new.publishes_models()));
        let listener = Arc::clone(&models) as Arc<dyn LeafListener>;
        let tree = BlockTree::new(leaves, space, new.id().0, new.unix_time(), listener);
        let tree = tree.map_err(|error| too_small(new, &error))?;
        let part = Arc::new(Part::new(new, Arc::clone(tree.tree()), models, Some(Arc::clone(tree.space()))));
        Ok(Self {
            part,
            tree,
            writers: Mutex::default(),
            in_pieces: InPieces::default(),
            damaged: DamagedPairs::default(),
        })
    }

    fn get(&self, keys: Words<'_>, call: &mut Call<'_, '_>) -> Result<Executed, ServerError> {
        let mut room = BlockRoom::default();
        let mut answered = 0;
        // Of the longest value that an answer of its own carries.
        let longest = call.room_bytes().saturating_sub(ValueEntries::entry_bytes(0)) / 8 * 8;
        for key in keys.iter() {
            let found = self.tree.get_short(key, longest, &mut room);
            let (value, version) =
                found.map_err(|error| self.refused_read(&error))?.unwrap_or((Some(&[]), 0));
            let value = value.filter(|value| value.len() <= longest);
            let value_bytes = value.map_or(0, <[u8]>::len);
            if answered > 0 && call.room_bytes() < ValueEntries::entry_bytes(value_bytes) {
                break;
            }
            match value {
                Some(value) => call.answer.push_long_value(version, value),
                None => call.answer.push_elsewhere(version),
            }
            answered += 1;
        }
        call.answer.set(answered, 0);
        Ok(Executed::operations(answered.into()))
    }

    fn scan(
        &self,
        direction: Direction,
        from: u64,
        limit: u16,
        call: &mut Call<'_, '_>,
    ) -> Result<Executed, ServerError> {
        let mut room = BlockRoom::default();
        let wanted = usize::from(limit).min(SCANNED_TOGETHER);
        let mut count = 0;
        let longest = call.room_bytes().saturating_sub(PAIR_HEAD_BYTES) / 8 * 8;
        // A pair whose value no answer carries ends it.
        let mut is_full = false;
        let found = |key, version, value: Option<&[u8]>| {
            let value = value.filter(|value| value.len() <= longest);
            let pair_bytes = PAIR_HEAD_BYTES + padded(value.map_or(0, <[u8]>::len));
            if is_full || (count > 0 && call.room_bytes() < pair_bytes) {
                return ControlFlow::Break(());
            }
            match value {
                Some(value) => call.answer.push_long_pair(key, version, value),
                None => call.answer.push_pair_elsewhere(key, version),
            }
            is_full = value.is_none();
            count += 1;
            ControlFlow::Continue(())
        };
        let scanned = self.tree.scan_short(direction, from, wanted, longest, &mut room, found);
        let next = scanned.map_err(|error| self.refused_read(&error))?;
        call.answer.set(count, direction.argument(next));
        Ok(Executed::operations(1))
    }

    fn write(
        &self,
        operation: WriteOperation,
        entries: ValueEntries<'_>,
        call: &mut Call<'_, '_>,
    ) -> Executed {
        let count = self.with_writer(|writer| {
            if operation.is_conditional() {
                return self.exchange(writer, operation, entries, call);
            }
            self.tree.write_many(writer, operation, entries.iter(), |outcome, is_hint_wrong| {
                call.answer.push_outcome(sent(outcome, is_hint_wrong));
            });
            entries.len()
        });
        self.part.written(count, call)
    }

    /// Does something with a supply of blocks that nobody else uses meanwhile.
    pub(super) fn with_writer<T>(&self, work: impl FnOnce(&mut BlockWriter) -> T) -> T {
        let lock = || self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = lock().pop();
        let mut writer = taken.unwrap_or_else(|| BlockWriter::new(Arc::clone(self.tree.space())));
        let done = work(&mut writer);
        lock().push(writer);
        done
    }

    /// Gives back what supplies have that nobody uses.
    pub(super) fn release_at_hand(&self) {
        let supplies = std::mem::take(&mut *self.writers.lock().unwrap_or_else(PoisonError::into_inner));
        drop(supplies);
    }

    /// Conditional writes. Returns how many were executed: as many as the answer has room for.
    fn exchange(
        &self,
        writer: &mut BlockWriter,
        operation: WriteOperation,
        entries: ValueEntries<'_>,
        call: &mut Call<'_, '_>,
    ) -> usize {
        let head_bytes = ReplyWriter::exchanged_value_bytes(0);
        // In whole words.
        let room_bytes = |call: &Call<'_, '_>| call.room_bytes().saturating_sub(head_bytes) / 8 * 8;
        let first = room_bytes(call);
        // A value before may leave no room for another outcome, even without a value.
        let has_room = Cell::new(true);
        let done = |Exchanged { outcome, is_hint_wrong, old }: Exchanged<'_>| {
            let sent = sent(outcome, is_hint_wrong);
            if operation.returns_value() {
                call.answer.push_exchanged_value(sent, old);
            } else {
                call.answer.push_outcome(sent);
            }
            has_room.set(call.room_bytes() >= head_bytes);
            room_bytes(call)
        };
        let fitting = entries.iter().take_while(|_| operation != WriteOperation::Swap || has_room.get());
        let count = self.tree.exchange_many(writer, operation, fitting, first, done);
        if count > 0 || entries.is_empty() {
            return count;
        }
        // The first value before is longer than any answer.
        let outcome = WriteOutcome::Failed(ErrorCode::OutOfResources);
        call.answer.push_exchanged_value(SentOutcome { outcome, is_hint_wrong: false }, None);
        1
    }

    pub(super) fn refused_block(&self, error: &BlockWriteError) -> ServerError {
        refused_block(&self.part.name, error)
    }

    pub(super) fn refused_read(&self, error: &BlockReadError) -> ServerError {
        match error {
            BlockReadError::Contended(error) => self.part.contended(error),
            BlockReadError::Damaged { key, version, .. } => {
                self.damaged.note(*key, *version);
                let text = format!("table {:?}, {error}: write the key again", self.part.name);
                ServerError::new(ErrorCode::Damaged, text)
            }
        }
    }
}

/// What is sent of a write.
pub(super) fn sent(outcome: Result<WriteOutcome, BlockWriteError>, is_hint_wrong: bool) -> SentOutcome {
    let outcome = outcome.unwrap_or_else(|error| WriteOutcome::Failed(code_of_block(&error)));
    SentOutcome { outcome, is_hint_wrong }
}

/// The refusal of a block of the table of this name.
pub(super) fn refused_block(table: &TableName, error: &BlockWriteError) -> ServerError {
    ServerError::new(code_of_block(error), format!("table {table:?}, {error}"))
}

/// The code by which clients know this failure of one write.
fn code_of_block(error: &BlockWriteError) -> ErrorCode {
    match error {
        BlockWriteError::TooLong { .. } => ErrorCode::WrongValueSize,
        BlockWriteError::NoRoom { source, .. } if source.system.is_some() => ErrorCode::NoMemory,
        BlockWriteError::NoRoom { .. } => ErrorCode::RegionFull,
        BlockWriteError::Tree(error) => code_of(error),
    }
}

impl HostedTable for BlockPart {
    fn regions(&self) -> Vec<RegionInfo> {
        let region = self.tree.space().region();
        let lines = region.words().len() * 8 / LINE_BYTES;
        let capacity = u32::try_from(lines).unwrap_or(u32::MAX);
        let blocks = RegionInfo { space: Space::Blocks, id: region.id().0, capacity };
        [self.part.regions(), vec![blocks]].concat()
    }

    fn execute(&self, request: &Request<'_>, call: &mut Call<'_, '_>) -> Result<Executed, ServerError> {
        match *request {
            Request::GetValues { keys, .. } => self.get(keys, call),
            Request::ScanValues { direction, from, limit, .. } => self.scan(direction, from, limit, call),
            Request::WriteValues { operation, entries, .. } => Ok(self.write(operation, entries, call)),
            Request::StageValue { piece, .. } => self.stage_piece(piece, call),
            Request::WriteStaged { write, .. } => self.write_staged(write, call),
            Request::FetchValue { number, key, offset, .. } => self.fetch_piece(number, key, offset, call),
            Request::LetGo { number, .. } => {
                self.let_go(call.client, number);
                Ok(Executed::default())
            }
            Request::LoadValues { last, piece, entries, .. } => {
                self.part.bulk_load(Piece::of_any_length(piece, last, entries), call)
            }
            Request::LoadLong { part, .. } => self.part.bulk_load(Piece::of_long_value(part), call),
            _ => self.part.execute_request(request, call),
        }
    }

    fn stats(&self, now: MonotonicNs) -> HostedStats {
        let space = self.tree.space();
        let of_blocks = space.stats();
        let of_part = self.part.stats(now);
        HostedStats {
            blocks: Some(BlockSpaceStats {
                live_bytes: of_blocks.live_bytes,
                free_bytes: of_blocks.free_bytes,
                quarantined_bytes: of_blocks.quarantined_bytes,
                lost_bytes: of_blocks.lost_bytes,
                used_bytes: of_blocks.used_bytes,
                limit_bytes: of_blocks.limit_bytes,
            }),
            huge_page_bytes: of_part.huge_page_bytes + space.region().huge_page_bytes(),
            ..of_part
        }
    }

    fn forget(&self, client: ClientId) {
        self.part.forget(client);
        self.let_go_all_of(client);
    }

    fn check(&self, from: u64, limit: usize) -> Option<Checked> {
        Some(self.check_blocks(from, limit))
    }

    fn background(self: Arc<Self>) -> Option<Box<dyn BackgroundWork>> {
        let training = Arc::clone(&self.part).background()?;
        let mut work = training;
        if self.tree.now_ms().is_some() {
            work = Box::new(DeadlineSweep::new(Arc::clone(&self), work));
        }
        Some(Box::new(SilenceWatch::new(self, work)))
    }

    fn pending_training(&self) -> u64 {
        self.part.pending_training()
    }

    fn logged(&self) -> Option<&dyn LoggedTable> {
        Some(self)
    }

    fn leave_out_versions(&self, last: u64) -> bool {
        self.part.leave_out_versions(last)
    }
}

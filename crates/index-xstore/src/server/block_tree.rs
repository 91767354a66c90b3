//! A tree of values of any length, each in a block.
//!
//! Protocol of a write:
//! 1. Take a place and write the block as a draft.
//! 2. Write the reference as a value of one word. The latch's holder seals the block first; the block before
//!    is retired.
//! 3. A write that stored nothing gives its place back, which no reader knows.
//!
//! Protocol of a read:
//! 1. Read reference and version, and copy the block.
//! 2. Count the copy if it is of that version, table and key.
//! 3. Otherwise read the reference again. Another version: begin anew. The same: the block was published all
//!    the time, and such blocks do not change. So its memory is damaged ([`BlockReadError::Damaged`]).

use std::ops::ControlFlow;
use std::sync::Arc;

use farsight_base::clock::UnixTime;
use farsight_base::{LeafNumber, Line};
use farsight_blocks::{BlockSpace, BlockWriter, NoRoom};
use farsight_fabric::Region;
use farsight_index::{Backoff, Contended, Direction, LeafListener, Pair, Pairs, RegionFull, Waited};
use farsight_layout::SHORT_VALUE_BYTES;
use farsight_layout::value_block::{BLOCK_VALUE_BYTES_MAX, BlockFault, BlockTooLong};
use farsight_protocol::{WriteEntry, WriteOperation, WriteOutcome};

use super::block_copy::{Copied, Named, copy, is_longer};
use super::block_draft::Draft;
use super::block_leaf::{BlockLeaf, reference_in};
use super::error::WriteError;
use super::tree::XTree;

/// A write to a tree of blocks that could not be done. The tree is as it was.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BlockWriteError {
    /// The value is longer than any.
    #[error("key {key}: {source}")]
    TooLong {
        /// The key.
        key: u64,
        /// The lengths.
        source: BlockTooLong,
    },
    /// There is no memory for the block.
    #[error("key {key}: {source}")]
    NoRoom {
        /// The key.
        key: u64,
        /// The space.
        source: NoRoom,
    },
    /// The tree refused the pair.
    #[error(transparent)]
    Tree(#[from] WriteError),
}

/// A read that has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BlockReadError {
    /// A wait came to its bound.
    #[error(transparent)]
    Contended(#[from] Contended),
    /// Memory lost a bit of the pair's block. Its bytes are no answer; a write of the key replaces them.
    #[error("key {key}: the block of version {version} is damaged: {fault}")]
    Damaged {
        /// The key.
        key: u64,
        /// The pair's version.
        version: u64,
        /// What is wrong with the block.
        fault: BlockFault,
    },
}

/// A concurrent B+tree whose values have any length. All of its methods may be called by any thread at any
/// time.
pub struct BlockTree {
    tree: Arc<XTree<BlockLeaf>>,
}

/// What is stored of a value, unless it was left where it is, and its version.
pub type ShortValue<'r> = (Option<&'r [u8]>, u64);

/// Where a read copies blocks, reused.
#[derive(Debug, Default)]
pub struct BlockRoom {
    lines: Vec<Line>,
    pairs: Pairs,
}

impl BlockTree {
    /// An empty tree of the table with this number: leaves in an unused `region`, blocks in `space`. With a
    /// clock, what is stored of each value begins with its pair's deadline.
    ///
    /// # Errors
    /// [`RegionFull`] if the region does not hold a single leaf.
    pub fn new(
        region: Arc<dyn Region>,
        space: Arc<BlockSpace>,
        table: u32,
        unix_time: Option<Arc<dyn UnixTime>>,
        listener: Arc<dyn LeafListener>,
    ) -> Result<Self, RegionFull> {
        let tree = XTree::new(BlockLeaf::new(space, table, unix_time), region, listener)?;
        Ok(Self { tree: Arc::new(tree) })
    }

    /// The tree of references, for its trainer.
    #[must_use]
    pub fn tree(&self) -> &Arc<XTree<BlockLeaf>> {
        &self.tree
    }

    /// Where the blocks stand.
    #[must_use]
    pub fn space(&self) -> &Arc<BlockSpace> {
        self.tree.format().space()
    }

    /// Does the writes in their order, as [`XTree::write_many`] does. Conditional ones that bring a value are
    /// for [`BlockTree::exchange_many`].
    ///
    /// # Panics
    /// For those.
    pub fn write_many<'e>(
        &self,
        writer: &mut BlockWriter,
        operation: WriteOperation,
        entries: impl IntoIterator<Item = WriteEntry<'e>>,
        mut done: impl FnMut(Result<WriteOutcome, BlockWriteError>, bool),
    ) {
        if !operation.has_value() {
            return self.tree.write_many(operation, entries, |outcome, is_elsewhere| {
                done(outcome.map_err(BlockWriteError::from), is_elsewhere);
            });
        }
        assert!(!operation.is_conditional(), "{operation:?} looks before it writes");
        let drafts: Vec<_> = entries
            .into_iter()
            .map(|entry| Ok((entry, Draft::write(writer, entry.key, entry.value)?)))
            .collect();
        let drafted = drafts.iter().flatten();
        let references = drafted.map(|(entry, draft)| WriteEntry { value: &draft.reference, ..*entry });
        let mut outcomes = Vec::with_capacity(drafts.len());
        self.tree.write_many(operation, references, |outcome, is_elsewhere| {
            outcomes.push((outcome, is_elsewhere));
        });
        let mut outcomes = outcomes.into_iter();
        for drafted in drafts {
            let draft = match drafted {
                Ok((_, draft)) => draft,
                Err(error) => {
                    done(Err(error), false);
                    continue;
                }
            };
            let (outcome, is_elsewhere) = outcomes.next().expect("an outcome a draft");
            if !matches!(outcome, Ok(WriteOutcome::Inserted(_) | WriteOutcome::Replaced(_))) {
                writer.give_back(draft.place);
            }
            done(outcome.map_err(BlockWriteError::from), is_elsewhere);
        }
    }

    /// What is stored of the value of `key`, in `room`, and its version; `None` if the key is absent. A
    /// deadline may have passed: its reader looks.
    ///
    /// # Errors
    /// [`BlockReadError`].
    pub fn get<'r>(
        &self,
        key: u64,
        room: &'r mut BlockRoom,
    ) -> Result<Option<(&'r [u8], u64)>, BlockReadError> {
        let copied = self.copy_newest(key, usize::MAX, &mut room.lines)?;
        Ok(copied.and_then(|(version, copied)| Some((copied?.value(&room.lines), version))))
    }

    /// The same, but that a value of more bytes than `value_bytes_max` may be left where it is: then there is
    /// its version alone.
    ///
    /// # Errors
    /// [`BlockReadError`].
    pub fn get_short<'r>(
        &self,
        key: u64,
        value_bytes_max: usize,
        room: &'r mut BlockRoom,
    ) -> Result<Option<ShortValue<'r>>, BlockReadError> {
        let copied = self.copy_newest(key, value_bytes_max, &mut room.lines)?;
        Ok(copied.map(|(version, copied)| (copied.map(|copied| copied.value(&room.lines)), version)))
    }

    /// Hands up to `limit` pairs with keys from `from` on to `found`, as [`XTree::scan`] finds them, and
    /// returns what that returns. A pair at which `found` breaks off is the one from which to go on.
    ///
    /// # Errors
    /// [`BlockReadError`]; pairs before it were handed on.
    pub fn scan(
        &self,
        direction: Direction,
        from: u64,
        limit: usize,
        room: &mut BlockRoom,
        mut found: impl FnMut(u64, u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<Option<u64>, BlockReadError> {
        self.scan_short(direction, from, limit, usize::MAX, room, |key, version, value| {
            found(key, version, value.expect("values of any length are copied"))
        })
    }

    /// The same, but that values of more bytes than `value_bytes_max` may be left where they are.
    ///
    /// # Errors
    /// As [`BlockTree::scan`].
    pub fn scan_short(
        &self,
        direction: Direction,
        from: u64,
        limit: usize,
        value_bytes_max: usize,
        room: &mut BlockRoom,
        mut found: impl FnMut(u64, u64, Option<&[u8]>) -> ControlFlow<()>,
    ) -> Result<Option<u64>, BlockReadError> {
        let BlockRoom { lines, pairs } = room;
        pairs.reset(SHORT_VALUE_BYTES);
        let next = self.tree.scan(direction, from, limit, pairs)?;
        for index in 0..pairs.len() {
            let Pair { key, version, value } = pairs.pair(index);
            let named = Named { reference: reference_in(value), version };
            let copied = match self.copy_short(key, named, value_bytes_max, lines) {
                Ok(copied) => Some((version, copied)),
                // A pair that was removed since is left out: it is absent at an instant during the scan.
                Err(_) => self.copy_newest(key, value_bytes_max, lines)?,
            };
            if let Some((version, copied)) = copied
                && found(key, version, copied.map(|copied| copied.value(lines))).is_break()
            {
                return Ok(Some(key));
            }
        }
        Ok(next)
    }

    /// Copies a block, unless its value has more bytes than that.
    fn copy_short(
        &self,
        key: u64,
        named: Named,
        value_bytes_max: usize,
        lines: &mut Vec<Line>,
    ) -> Result<Option<Copied>, BlockFault> {
        if value_bytes_max < BLOCK_VALUE_BYTES_MAX && is_longer(self.blocks(), named, value_bytes_max) {
            return Ok(None);
        }
        copy(self.blocks(), key, named, lines).map(Some)
    }

    /// The version of `key` at some instant of the call, and a copy of its block, unless its value has more
    /// bytes than that.
    fn copy_newest(
        &self,
        key: u64,
        value_bytes_max: usize,
        lines: &mut Vec<Line>,
    ) -> Result<Option<(u64, Option<Copied>)>, BlockReadError> {
        let mut backoff = Backoff::new();
        let mut newest = self.named(key)?;
        // Ends by the backoff, or sooner.
        loop {
            let Some(named) = newest else { return Ok(None) };
            let fault = match self.copy_short(key, named, value_bytes_max, lines) {
                Ok(copied) => return Ok(Some((named.version, copied))),
                Err(fault) => fault,
            };
            newest = self.named(key)?;
            if newest == Some(named) {
                return Err(BlockReadError::Damaged { key, version: named.version, fault });
            }
            backoff.pause(key, Waited::Block)?;
        }
    }

    /// The space of its blocks, and the table's number in them.
    pub(super) fn blocks(&self) -> (&BlockSpace, u16) {
        let format = self.tree.format();
        (format.space(), format.table())
    }

    /// The time by which pairs end now; `None` if they have no deadlines.
    #[must_use]
    pub fn now_ms(&self) -> Option<u64> {
        self.tree.format().now_ms()
    }

    /// The version of `key`, without a look at its block; `None` if the key is absent. `hint` as in
    /// [`XTree::get_hinted`].
    ///
    /// # Errors
    /// [`Contended`].
    pub fn version_of(&self, key: u64, hint: LeafNumber) -> Result<Option<u64>, Contended> {
        self.tree.get_hinted(key, hint, &mut [0; SHORT_VALUE_BYTES])
    }

    fn named(&self, key: u64) -> Result<Option<Named>, Contended> {
        let mut value = [0; SHORT_VALUE_BYTES];
        let version = self.tree.get(key, &mut value)?;
        Ok(version.map(|version| Named { reference: reference_in(&value), version }))
    }
}

//! Blocks of writes whose version was drawn before: those of a log.
//!
//! Protocol:
//! 1. [`BlockTree::stage`] takes the memory of a write to come, and drafts its block. So nothing can fail for
//!    want of memory once the log has the write.
//! 2. [`BlockTree::apply`] stores the draft's reference, as [`XTree::apply`](super::tree::XTree::apply) does.
//! 3. A recovery does both at once where it can ([`BlockTree::write_over`]): nobody reads meanwhile.
//! 4. What the log refused is given back ([`BlockTree::unstage`]); no reader knew of it.

use farsight_base::words::prefetch;
use farsight_base::{LINE_BYTES, LeafNumber};
use farsight_blocks::BlockWriter;
use farsight_index::{LatchedLeaf, Place};
use farsight_layout::SHORT_VALUE_BYTES;
use farsight_layout::value_block::{block_lines, write_draft};
use farsight_protocol::{WriteEntry, WriteOutcome};

use super::block_copy::KEY_BYTES;
use super::block_draft::Draft;
use super::block_leaf::reference_in;
use super::block_tree::{BlockTree, BlockWriteError};
use super::error::WriteError;
use super::stats::Tally;
use super::versioned::{Applied, VersionedWrite};
use super::write_many::AccessPath;

/// Lines of a block that are prefetched before it is written over. What is behind them comes by itself.
const LINES_AHEAD: usize = 4;
/// Words of a line.
const LINE_WORDS: usize = LINE_BYTES / 8;

/// The reference of a block that is a draft yet.
pub type StagedReference = [u8; SHORT_VALUE_BYTES];

impl BlockTree {
    /// Drafts the block of a write to come.
    ///
    /// # Errors
    /// [`BlockWriteError`]: it is too long, or there is no memory for it.
    pub fn stage(
        writer: &mut BlockWriter,
        key: u64,
        value: &[u8],
    ) -> Result<StagedReference, BlockWriteError> {
        Draft::write(writer, key, value).map(|draft| draft.reference)
    }

    /// Gives the memory of a draft back that will not be stored.
    pub fn unstage(writer: &mut BlockWriter, staged: StagedReference) {
        let place = writer.space().place(reference_in(&staged));
        writer.give_back(place.expect("the place that was taken for the draft"));
    }

    /// Stores the staged pair under its version, whose value is the reference; without one, removes the key.
    /// Nothing changes if the key has that version or a greater one.
    ///
    /// # Errors
    /// [`WriteError`].
    ///
    /// # Panics
    /// If the value is no reference.
    pub fn apply(&self, writer: &mut BlockWriter, write: VersionedWrite<'_>) -> Result<Applied, WriteError> {
        let staged = write.value.map(|value| value.try_into().expect("the reference that was staged"));
        let applied = self.tree().apply(write);
        if let Some(staged) = staged.filter(|_| !applied.as_ref().is_ok_and(|applied| applied.is_stored)) {
            Self::unstage(writer, staged);
        }
        applied
    }

    /// Stores a pair in the memory of the block that it replaces. So it does if the key has an older version,
    /// whose block has as many lines as the new one. False otherwise, and nothing changes.
    ///
    /// Nobody else may read or write the pair meanwhile: a reader would take the block for damaged.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn write_over(&self, write: VersionedWrite<'_>) -> Result<bool, WriteError> {
        let VersionedWrite { key, version, value: Some(value), hint, slot } = write else { return Ok(false) };
        let mut tally = Tally::begin(LeafNumber::NONE);
        let path = AccessPath { hint, slot, route: None };
        let mut latched = self.tree().latch_counted(key, path, &mut tally)?;
        let Place::Here(slot) = latched.place else { return Ok(false) };
        let mut reference = StagedReference::default();
        let before = latched.leaf.pair(slot, &mut reference);
        let place = self.tree().format().place_of(reference_in(&reference), before);
        let lines = block_lines(KEY_BYTES, value.len());
        let Some(place) = place.filter(|place| before < version && place.lines as usize == lines) else {
            return Ok(false);
        };
        let words = self.space().words(place).expect("words of the place");
        // It is too long for any block.
        let Ok(()) = write_draft(words, &key.to_le_bytes(), value) else { return Ok(false) };
        latched.leaf.update(slot, version, &reference);
        drop(latched);
        tally.note(WriteOutcome::Replaced(version));
        self.tree().flush(&mut tally);
        Ok(true)
    }

    /// Asks for the blocks that writes of these entries replace. The lines of their leaves were requested
    /// before ([`XTree::prefetch_hinted`](super::tree::XTree::prefetch_hinted)).
    pub fn prefetch_replaced(&self, entries: &[WriteEntry<'_>]) {
        for entry in entries {
            let mut reference = StagedReference::default();
            // A guess: what is not found so its write waits for.
            let Ok(Some(_)) = self.tree().get_hinted(entry.key, entry.hint, &mut reference) else { continue };
            let place = self.space().place(reference_in(&reference));
            if let Some(words) = place.and_then(|place| self.space().words(place)) {
                words.iter().step_by(LINE_WORDS).take(LINES_AHEAD).for_each(prefetch);
            }
        }
    }

    /// Writes the block of a pair of exactly this version anew: memory has lost some of it. False, and
    /// nothing changes, if the key has another version or is absent.
    ///
    /// # Errors
    /// [`BlockWriteError`].
    pub fn repair(
        &self,
        writer: &mut BlockWriter,
        key: u64,
        version: u64,
        value: &[u8],
    ) -> Result<bool, BlockWriteError> {
        let staged = Self::stage(writer, key, value)?;
        let repaired = self.tree().repair(key, version, &staged);
        if !matches!(repaired, Ok(true)) {
            Self::unstage(writer, staged);
        }
        Ok(repaired?)
    }
}

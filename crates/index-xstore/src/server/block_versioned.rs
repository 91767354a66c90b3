//! Blocks of writes whose version was drawn before: those of a log.
//!
//! Protocol:
//! 1. [`BlockTree::stage`] takes the memory of a write to come, and drafts its block. So nothing can fail for
//!    want of memory once the log has the write.
//! 2. [`BlockTree::apply`] stores the draft's reference, as [`XTree::apply`](super::tree::XTree::apply) does.
//! 3. What the log refused is given back ([`BlockTree::unstage`]); no reader knew of it.

use farsight_base::LeafNumber;
use farsight_blocks::BlockWriter;
use farsight_layout::SHORT_VALUE_BYTES;

use super::block_draft::Draft;
use super::block_leaf::reference_in;
use super::block_tree::{BlockTree, BlockWriteError};
use super::error::WriteError;
use super::versioned::Applied;

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

    /// Stores the staged pair under a version that was drawn; without one, removes the key. Nothing changes
    /// if the key has that version or a greater one.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn apply(
        &self,
        writer: &mut BlockWriter,
        key: u64,
        version: u64,
        staged: Option<StagedReference>,
        hint: LeafNumber,
    ) -> Result<Applied, WriteError> {
        let applied = self.tree().apply(key, version, staged.as_ref().map(|bytes| &bytes[..]), hint);
        if let Some(staged) = staged.filter(|_| !applied.as_ref().is_ok_and(|applied| applied.is_stored)) {
            Self::unstage(writer, staged);
        }
        applied
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

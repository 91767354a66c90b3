//! INSERT: stores a pair whose key is absent.

use farsight_base::LeafNumber;
use farsight_index::{LatchedLeaf, LeafFormat, Place};
use farsight_protocol::{WriteEntry, WriteOperation, WriteOutcome};

use super::error::WriteError;
use super::latch::LatchedPlace;
use super::stats::Tally;
use super::tree::XTree;

impl<F: LeafFormat> XTree<F> {
    /// Stores a pair: [`WriteOutcome::Inserted`], or [`WriteOutcome::Exists`] and nothing changed. `hint` is
    /// where a client believes the key to be, or [`LeafNumber::NONE`].
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn insert(&self, key: u64, value: &[u8], hint: LeafNumber) -> Result<WriteOutcome, WriteError> {
        self.write_one(WriteOperation::Insert, WriteEntry { key, hint, value })
    }

    #[inline]
    pub(super) fn insert_latched<'t>(
        &'t self,
        latched: LatchedPlace<'t, F>,
        key: u64,
        value: &[u8],
        tally: &mut Tally,
    ) -> Result<WriteOutcome, WriteError> {
        match latched.place {
            Place::Here(slot) => Ok(WriteOutcome::Exists(latched.leaf.version(slot))),
            _ => self.add(latched, key, value, tally).map(WriteOutcome::Inserted),
        }
    }

    /// Adds the vacant key to the held leaf, which splits if it must. Returns the version.
    #[inline]
    pub(super) fn add<'t>(
        &'t self,
        mut latched: LatchedPlace<'t, F>,
        key: u64,
        value: &[u8],
        tally: &mut Tally,
    ) -> Result<u64, WriteError> {
        let version = self.next_version(key)?;
        if !latched.leaf.insert(key, version, value) {
            self.add_to_full(latched, key, version, value, tally)?;
        }
        Ok(version)
    }
}

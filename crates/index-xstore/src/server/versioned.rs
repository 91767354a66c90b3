//! Writes whose version was drawn before: those of a log, applied once they are durable, or found again.
//!
//! Invariant: of two such writes of a key the one of the greater version counts, whatever their order.

use farsight_base::LeafNumber;
use farsight_base::sync::Ordering;
use farsight_index::{LatchedLeaf, LeafFormat, Place};
use farsight_protocol::WriteOutcome;

use super::error::WriteError;
use super::stats::Tally;
use super::tree::XTree;
use super::write_many::AccessPath;

/// A write whose version was drawn before.
#[derive(Clone, Copy, Debug)]
pub struct VersionedWrite<'v> {
    /// The key.
    pub key: u64,
    /// The version that was drawn for it.
    pub version: u64,
    /// The value as leaves have it; `None` for a removal.
    pub value: Option<&'v [u8]>,
    /// Where the key may be.
    pub hint: LeafNumber,
    /// Where in that leaf it was seen, if it was: a hint, too.
    pub slot: Option<usize>,
}

/// What became of a write whose version was drawn before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Applied {
    /// The hint led to the key's leaf.
    pub is_hinted: bool,
    /// The value is stored now. False for a removal, and where the key had a version that is not smaller.
    pub is_stored: bool,
}

impl<F: LeafFormat> XTree<F> {
    /// Draws versions for so many writes that come later, of `key` and others, and returns the first.
    ///
    /// # Errors
    /// [`WriteError::VersionsExhausted`].
    pub fn draw_versions(&self, key: u64, count: u64) -> Result<u64, WriteError> {
        self.take_versions(count).ok_or(WriteError::VersionsExhausted { key })
    }

    /// The greatest version that was drawn or left out.
    #[must_use]
    pub fn version_max(&self) -> u64 {
        // Relaxed: as in `take_versions`.
        self.versions_taken.load(Ordering::Relaxed)
    }

    /// Stores a pair of its version; without a value, removes the key. Nothing changes if the key has that
    /// version or a greater one.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn apply(&self, write: VersionedWrite<'_>) -> Result<Applied, WriteError> {
        // Relaxed: a guess.
        let mut tally = Tally::begin(LeafNumber(self.last_leaf.load(Ordering::Relaxed)));
        let applied = self.apply_counted(write, &mut tally);
        self.last_leaf.store(tally.last_leaf.0, Ordering::Relaxed);
        self.flush(&mut tally);
        applied
    }

    /// The same for many, in their order. Each outcome is handed to `done`. The lines of hinted leaves' keys
    /// are prefetched; those of values were when the writes were decided.
    ///
    /// # Errors
    /// [`WriteError`] of the first write that fails. Those behind it are not done.
    pub fn apply_many(
        &self,
        writes: &[VersionedWrite<'_>],
        mut done: impl FnMut(Applied),
    ) -> Result<(), WriteError> {
        self.prefetch_keys(writes.iter().map(|write| write.hint));
        // Relaxed: a guess.
        let mut tally = Tally::begin(LeafNumber(self.last_leaf.load(Ordering::Relaxed)));
        let applied = writes.iter().try_for_each(|write| {
            done(self.apply_counted(*write, &mut tally)?);
            Ok(())
        });
        self.last_leaf.store(tally.last_leaf.0, Ordering::Relaxed);
        self.flush(&mut tally);
        applied
    }

    #[inline(always)]
    fn apply_counted(&self, write: VersionedWrite<'_>, tally: &mut Tally) -> Result<Applied, WriteError> {
        let VersionedWrite { key, version, value, hint, slot } = write;
        if let Some(value) = value {
            self.check_value(key, value)?;
        }
        let mut latched = self.latch_counted(key, AccessPath { hint, slot, route: None }, tally)?;
        let is_hinted = latched.is_hinted;
        let is_stored = match (latched.place, value) {
            (Place::Here(slot), _) if latched.leaf.version(slot) >= version => false,
            (Place::Here(slot), Some(value)) => {
                latched.leaf.update(slot, version, value);
                true
            }
            (Place::Here(_), None) => {
                let outcome = self.remove_latched(latched, tally);
                tally.note(outcome);
                false
            }
            (_, Some(value)) => {
                if !latched.leaf.insert(key, version, value) {
                    self.add_to_full(latched, key, version, value, tally)?;
                }
                tally.note(WriteOutcome::Inserted(version));
                true
            }
            (_, None) => false,
        };
        Ok(Applied { is_hinted, is_stored })
    }

    /// Stores the value of a pair of exactly this version once more: memory has lost some of it. False, and
    /// nothing changes, if the key has another version or is absent.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn repair(&self, key: u64, version: u64, value: &[u8]) -> Result<bool, WriteError> {
        self.check_value(key, value)?;
        // Relaxed: a guess.
        let mut tally = Tally::begin(LeafNumber(self.last_leaf.load(Ordering::Relaxed)));
        let path = AccessPath { hint: LeafNumber::NONE, slot: None, route: None };
        let mut latched = self.latch_counted(key, path, &mut tally)?;
        let is_there = match latched.place {
            Place::Here(slot) if latched.leaf.version(slot) == version => {
                latched.leaf.update(slot, version, value);
                true
            }
            _ => false,
        };
        drop(latched);
        self.flush(&mut tally);
        Ok(is_there)
    }
}

//! What the log needs of a table: decided and applied are its writes by one thread, the sequencer.

use std::ops::RangeInclusive;

use farsight_base::{ClientId, LeafNumber};
use farsight_fabric::Reserved;
use farsight_index_xstore::server::{Sighting, StagedReference, VersionedWrite};
use farsight_protocol::{ErrorCode, ServerError, StagedWrite, WriteEntry};

/// Takes one pair of a scan: its key, its version and its value.
pub type PairVisitor<'v> = dyn FnMut(u64, u64, &[u8]) + 'v;

/// A table whose pairs a log can keep.
///
/// Only the sequencer writes it. So what it finds when it decides is still so when it applies, but for pairs
/// that have ended meanwhile: the background removes those.
pub trait LoggedTable: Send + Sync {
    /// Where these keys are or belong, as hints.
    fn leaves_of(&self, keys: &[u64], hints: &mut Vec<LeafNumber>);

    /// The same, sooner where the keys ascend. Asks for what [`LoggedTable::prefetch`] reads.
    fn leaves_of_run(&self, keys: &[u64], hints: &mut Vec<LeafNumber>);

    /// Asks for the memory that looks at these entries touch, and then their writes.
    fn prefetch(&self, entries: &[WriteEntry<'_>]);

    /// Asks for what writes of these entries replace outside their leaves, behind [`LoggedTable::prefetch`].
    fn prefetch_replaced(&self, _entries: &[WriteEntry<'_>]) {}

    /// Asks for what [`LoggedTable::look`] touches of these entries.
    fn prefetch_keys(&self, entries: &[WriteEntry<'_>]);

    /// Whether a key is there, and whether `hint` is right. Asks for what its write touches.
    ///
    /// # Errors
    /// [`ServerError`]: it could not be read in time.
    fn look(&self, key: u64, hint: LeafNumber) -> Result<Sighting, ServerError>;

    /// The version of a key, if it is there, and its value into place if that is `wanted`. `hint` is where a
    /// client believes the key to be.
    ///
    /// # Errors
    /// [`ServerError`]: it could not be read in time, or the value that is wanted is damaged.
    fn pair_of(
        &self,
        key: u64,
        hint: LeafNumber,
        wanted: bool,
        value: &mut Vec<u8>,
    ) -> Result<Option<u64>, ServerError>;

    /// The time by which pairs end now; `None` if they have no deadlines. If they have, each value here
    /// stands behind its deadline.
    fn now_ms(&self) -> Option<u64> {
        None
    }

    /// Takes the memory that a value needs outside its leaf, and writes it there. The reference to it, which
    /// is to be applied in the value's place; `None` where leaves hold values.
    ///
    /// # Errors
    /// [`ServerError`]: there is no memory for it.
    fn stage(&self, _key: u64, _value: &[u8]) -> Result<Option<StagedReference>, ServerError> {
        Ok(None)
    }

    /// Applies a write in the memory that the value before has outside its leaf. False, and nothing changes,
    /// if it has none or another size, or is not older. Nobody else may use the pair meanwhile.
    ///
    /// # Errors
    /// [`ServerError`]; then the pair is lost.
    fn write_over(&self, _write: VersionedWrite<'_>) -> Result<bool, ServerError> {
        Ok(false)
    }

    /// Takes what a client has staged for this write, piece by piece, and copies it into `value`. The
    /// reference to it is to be applied in the value's place, or unstaged.
    ///
    /// # Errors
    /// [`ServerError`]: there is no such value, or it is not whole.
    fn take_staged(
        &self,
        _client: ClientId,
        write: &StagedWrite,
        _value: &mut Vec<u8>,
    ) -> Result<StagedReference, ServerError> {
        let text = format!("key {}: this table's values do not come in pieces", write.key);
        Err(ServerError::new(ErrorCode::BadRequest, text))
    }

    /// Gives what was staged back: it will not be applied.
    fn unstage(&self, _staged: StagedReference) {}

    /// Makes certain that so many inserts to come have room, wherever their keys belong.
    ///
    /// # Errors
    /// [`ServerError`]: there is no room for as many, or no memory.
    fn reserve(&self, inserts: u64) -> Result<(), ServerError>;

    /// Draws the versions of so many writes to come, of `key` and others. Returns the first.
    ///
    /// # Errors
    /// [`ServerError`]: there are no more.
    fn draw_versions(&self, key: u64, count: u64) -> Result<u64, ServerError>;

    /// The greatest version that was drawn.
    fn version_max(&self) -> u64;

    /// Stores pairs of versions that were drawn, in their order: the value of each, or the reference that was
    /// staged for it. Without either, removes the key. Nothing changes if the key has a version that is not
    /// smaller. Tells `done` of each whether its hint was right.
    ///
    /// # Errors
    /// [`ServerError`] of the first that fails. Those behind it are not applied.
    fn apply(&self, writes: &[VersionedWrite<'_>], done: &mut dyn FnMut(bool)) -> Result<(), ServerError>;

    /// Gives back memory for values that writers have at hand.
    fn release_at_hand(&self) {}

    /// Takes keys and versions of pairs whose values readers have found damaged since it was asked last.
    fn take_damaged(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }

    /// Stores the value of a damaged pair once more. False, and nothing changes, if the key has another
    /// version by now, or is absent.
    ///
    /// # Errors
    /// [`ServerError`]: there is no memory for it.
    fn repair(&self, _key: u64, _version: u64, _value: &[u8]) -> Result<bool, ServerError> {
        Ok(false)
    }

    /// Hands up to `limit` pairs of these keys to `visit`, in order. Returns the key from which to go on, or
    /// `None` at the end.
    ///
    /// # Errors
    /// [`ServerError`]: they could not be read in time, or one is damaged.
    fn scan(
        &self,
        keys: RangeInclusive<u64>,
        limit: usize,
        visit: &mut PairVisitor<'_>,
    ) -> Result<Option<u64>, ServerError>;

    /// Begins to load the table, which is empty, with so many pairs, if that is known. Leaves are filled to
    /// their end if the pairs have no room otherwise.
    ///
    /// # Errors
    /// [`ServerError`]: it is not.
    fn begin_load(&self, pairs: Option<u64>) -> Result<Box<dyn VersionedLoad>, ServerError>;

    /// Notes that its model has to be trained. The caller wakes the background.
    fn want_training(&self);

    /// True if something waits to be trained.
    fn wants_training(&self) -> bool;
}

/// A load of pairs that have versions already. Dropped, it gives everything back.
pub trait VersionedLoad: Send {
    /// Appends a pair with a greater key.
    ///
    /// # Errors
    /// [`ServerError`] naming the pair.
    fn push(&mut self, key: u64, version: u64, value: &[u8]) -> Result<(), ServerError>;

    /// Memory for a value of so many bytes that is gathered, until it is pushed.
    ///
    /// # Errors
    /// [`ServerError`]: there is none.
    fn set_aside(&self, value_bytes: u64) -> Result<Option<Reserved>, ServerError> {
        let _ = value_bytes;
        Ok(None)
    }

    /// Makes all pairs visible at once.
    ///
    /// # Errors
    /// [`ServerError`].
    fn finish(self: Box<Self>) -> Result<u64, ServerError>;
}

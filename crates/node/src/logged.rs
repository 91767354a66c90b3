//! What the log needs of a table: decided and applied are its writes by one thread, the sequencer.

use farsight_base::LeafNumber;
use farsight_index::Pairs;
use farsight_protocol::ServerError;

/// A table whose pairs a log can keep.
///
/// Only the sequencer writes it. So what it finds when it decides is still so when it applies.
pub trait LoggedTable: Send + Sync {
    /// The version of a key, if it is there, and its value into place.
    ///
    /// # Errors
    /// [`ServerError`]: it could not be read in time.
    fn pair_of(&self, key: u64, value: &mut Vec<u8>) -> Result<Option<u64>, ServerError>;

    /// Makes certain that so many inserts to come have room, wherever their keys belong.
    ///
    /// # Errors
    /// [`ServerError`]: there is no room for as many, or no memory.
    fn reserve(&self, inserts: u64) -> Result<(), ServerError>;

    /// Draws the version of a write to come.
    ///
    /// # Errors
    /// [`ServerError`]: there are no more.
    fn draw_version(&self, key: u64) -> Result<u64, ServerError>;

    /// The greatest version that was drawn.
    fn version_max(&self) -> u64;

    /// Stores a pair of a version that was drawn; without a value, removes the key. Nothing changes if the
    /// key has a version that is not smaller. Returns whether `hint` was right.
    ///
    /// # Errors
    /// [`ServerError`].
    fn apply(
        &self,
        key: u64,
        version: u64,
        value: Option<&[u8]>,
        hint: LeafNumber,
    ) -> Result<bool, ServerError>;

    /// Appends up to `limit` pairs from the key `from` on. Returns the key from which to go on, or `None` at
    /// the end.
    ///
    /// # Errors
    /// [`ServerError`]: they could not be read in time.
    fn scan(&self, from: u64, limit: usize, into: &mut Pairs) -> Result<Option<u64>, ServerError>;

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

    /// Makes all pairs visible at once.
    ///
    /// # Errors
    /// [`ServerError`].
    fn finish(self: Box<Self>) -> Result<u64, ServerError>;
}

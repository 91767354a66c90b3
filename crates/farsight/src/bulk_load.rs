//! A bulk load with typed keys.

use std::marker::PhantomData;

use farsight_client::LoadError;

use crate::Key;

/// A bulk load under way: many times faster than puts. The table must be empty (in a pool, one that never had
/// a pair) and the pairs sorted. The table shows nothing until [`BulkLoad::finish`] has returned; dropped
/// before that, the load leaves it empty. A table that keeps no order is filled by writes: its pairs show as
/// they come.
pub struct BulkLoad<K> {
    load: farsight_client::BulkLoad,
    key: PhantomData<fn(K)>,
}

impl<K: Key> BulkLoad<K> {
    pub(crate) fn new(load: farsight_client::BulkLoad) -> Self {
        Self { load, key: PhantomData }
    }

    /// Adds a pair, whose key must come after that of the pair before.
    ///
    /// # Errors
    /// [`LoadError`]: keys out of order or repeated (its texts show them as the integers that stand for
    /// them), a value of the wrong size, a table that is not empty.
    #[inline]
    pub fn push(&mut self, key: K, value: &[u8]) -> Result<(), LoadError> {
        self.load.push(key.encode(), value)
    }

    /// Makes the pairs visible, all at once. Returns their number.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn finish(self) -> Result<u64, LoadError> {
        self.load.finish()
    }
}

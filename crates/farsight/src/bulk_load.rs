//! A bulk load with typed keys.

use std::marker::PhantomData;

use farsight_client::LoadError;

use crate::Key;
use crate::provider::{ProviderBulkLoad, on_fabric};

/// A bulk load under way: many times faster than puts, for a table that is empty (in a pool, one that never
/// had a pair) and pairs that are sorted.
/// The table shows nothing until [`BulkLoad::finish`] has returned; dropped before that, the load leaves it
/// empty.
pub struct BulkLoad<K> {
    provider: ProviderBulkLoad,
    key: PhantomData<fn(K)>,
}

impl<K: Key> BulkLoad<K> {
    pub(crate) fn new(provider: ProviderBulkLoad) -> Self {
        Self { provider, key: PhantomData }
    }

    /// Adds a pair, whose key must come after that of the pair before.
    ///
    /// # Errors
    /// [`LoadError`]: keys out of order or repeated (its texts show them as the integers that stand for
    /// them), a value of the wrong size, a table that is not empty.
    #[inline]
    pub fn push(&mut self, key: K, value: &[u8]) -> Result<(), LoadError> {
        on_fabric!(ProviderBulkLoad, &mut self.provider, load => load.push(key.encode(), value))
    }

    /// Makes the pairs visible, all at once. Returns their number.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn finish(self) -> Result<u64, LoadError> {
        on_fabric!(ProviderBulkLoad, self.provider, load => load.finish())
    }
}

//! What a batch of scans found, with typed keys.

use std::marker::PhantomData;

use crate::Key;

/// The pairs of a batch of scans, scan after scan: flat arrays, to be reused from batch to batch.
#[derive(Clone, Debug)]
pub struct Pairs<K: ?Sized> {
    encoded: farsight_index::Pairs,
    key: PhantomData<fn(&K)>,
}

/// One stored pair, borrowed from [`Pairs`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pair<'a, K> {
    /// The key.
    pub key: K,
    /// The version: it grows with each write of the key.
    pub version: u64,
    /// The value.
    pub value: &'a [u8],
}

impl<K: ?Sized> Default for Pairs<K> {
    fn default() -> Self {
        Self { encoded: farsight_index::Pairs::default(), key: PhantomData }
    }
}

impl<K: Key> Pairs<K> {
    pub(crate) fn from_encoded(encoded: farsight_index::Pairs) -> Self {
        Self { encoded, key: PhantomData }
    }

    /// Pairs of all scans.
    #[must_use]
    pub fn len(&self) -> usize {
        self.encoded.len()
    }

    /// True without pairs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.encoded.is_empty()
    }

    /// Scans of the batch.
    #[must_use]
    pub fn scans(&self) -> usize {
        self.encoded.scans()
    }

    /// The pairs of scan `index`, in key order.
    #[must_use]
    pub fn scan(&self, index: usize) -> impl ExactSizeIterator<Item = Pair<'_, K>> {
        self.encoded.scan(index).map(typed)
    }

    /// The pairs of all scans, scan after scan.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Pair<'_, K>> {
        (0..self.len()).map(|at| typed(self.encoded.pair(at)))
    }

    /// The values of all pairs, one behind the other.
    #[must_use]
    pub fn values(&self) -> &[u8] {
        self.encoded.values()
    }

    pub(crate) fn encoded_mut(&mut self) -> &mut farsight_index::Pairs {
        &mut self.encoded
    }
}

#[inline]
fn typed<K: Key>(pair: farsight_index::Pair<'_>) -> Pair<'_, K> {
    Pair { key: K::decode(pair.key), version: pair.version, value: pair.value }
}

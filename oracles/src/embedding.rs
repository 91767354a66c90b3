//! How identities become the keys of a table, and keys identities.

use crate::Identity;

/// A map from identities to keys of one kind.
///
/// Invariant: the map keeps the order and is injective, and [`Self::identity`] undoes it. The order of keys
/// is that of their bytes; a `u64` stands for its eight bytes, the highest first.
pub trait Embedding {
    /// The kind of key.
    type Key: Ord;

    /// The greatest identity that has a key; all below it have one, too.
    fn last(&self) -> Identity {
        Identity::MAX
    }

    /// The key of `identity`.
    ///
    /// # Panics
    /// If `identity` is above [`Self::last`].
    fn key(&self, identity: Identity) -> Self::Key;

    /// Whose key this is; `None` if no identity has it.
    fn identity(&self, key: &Self::Key) -> Option<Identity>;
}

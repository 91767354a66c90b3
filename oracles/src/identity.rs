//! What a judge knows a key by.

use std::fmt;

/// A key as a judge knows it: a number, whose order is that of the keys. Identities need not be dense.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Identity(pub u64);

impl Identity {
    /// The least.
    pub const MIN: Self = Self(0);
    /// The greatest.
    pub const MAX: Self = Self(u64::MAX);

    /// The identity so many before this one, or the least.
    #[must_use]
    pub fn before(self, count: u64) -> Self {
        Self(self.0.saturating_sub(count))
    }

    /// The identity so many behind this one, or the greatest.
    #[must_use]
    pub fn behind(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

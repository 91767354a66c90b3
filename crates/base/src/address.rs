//! Newtypes for what would otherwise be bare integers: regions, addresses in them, leaves, clients, epochs.

use std::fmt;

/// A registered region of a server's memory, by the number that the server gave it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RegionId(pub u32);

impl fmt::Display for RegionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "region {}", self.0)
    }
}

/// A place in a region: what a verb names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteAddress {
    /// The region.
    pub region: RegionId,
    /// Bytes from the region's start.
    pub offset_bytes: u64,
}

impl fmt::Display for RemoteAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} + {:#x}", self.region, self.offset_bytes)
    }
}

/// A leaf's place in its region, counted in leaves (the paper's ALN, actual leaf number).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LeafNumber(pub u32);

impl LeafNumber {
    /// No leaf: the right end of the chain.
    pub const NONE: Self = Self(u32::MAX);

    /// This number, or `None` for [`LeafNumber::NONE`].
    #[must_use]
    pub fn some(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
    }
}

impl fmt::Display for LeafNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "leaf {}", self.0)
    }
}

/// A client as its server counts them; never given twice within an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ClientId(pub u64);

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {}", self.0)
    }
}

/// The time from a server's start to its end. A restart has another, so all that a client cached before it
/// is void. Their order means nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {:016x}", self.0)
    }
}

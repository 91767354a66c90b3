//! Whether a node has tables that it alone should train.
//!
//! Invariant: compute nodes write such tables one-sided, so nothing tells their node when they do. What it
//! hears of is that they grow: a compute node requests leaves, about once in 64 splits.

use std::sync::Arc;

use crate::{NodeState, Signal};

/// A node as the pool of one node that it may be.
pub struct OwnPool(Arc<NodeState>);

impl OwnPool {
    pub(crate) fn of(state: Arc<NodeState>) -> Self {
        Self(state)
    }

    /// True if it has tables that compute nodes write and train, and is no part of a larger pool. Nodes of
    /// one do not know how to be let in at each other.
    #[must_use]
    pub fn has_tables(&self) -> bool {
        let is_alone = self.0.tables.place().is_some_and(|place| place.epochs.len() == 1);
        is_alone && self.0.tables.all().iter().any(|table| table.blocks().is_ok())
    }

    /// Raised when such a table was made, has grown, or is gone, and when a client has ended.
    #[must_use]
    pub fn news(&self) -> Arc<Signal> {
        Arc::clone(&self.0.own_pool)
    }
}

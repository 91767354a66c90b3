//! A node as one who keeps the map of its pool, for whom that map is kept elsewhere, too.
//!
//! Invariant: what is learned elsewhere are addresses, and those of the node's own list alone. Lists are
//! changed by the pool's own steps ([`crate::taking_in`]).

use std::sync::Arc;

use farsight_base::Epoch;
use farsight_protocol::{PoolAddresses, PoolMap};

use crate::NodeState;

/// The map as the node has it.
pub struct OwnMap(Arc<NodeState>);

impl OwnMap {
    pub(crate) fn of(state: Arc<NodeState>) -> Self {
        Self(state)
    }

    /// What the node knows of it.
    #[must_use]
    pub fn map(&self) -> PoolMap {
        self.0.map()
    }

    /// True if the node is its pool's coordinator.
    #[must_use]
    pub fn is_coordinator(&self) -> bool {
        self.0.tables.place().is_some() && self.0.is_coordinator()
    }

    /// Takes the addresses of the nodes of this pool, in place of those that the node had. False if they
    /// belong to another list than its own, or no pool can have them.
    #[must_use]
    pub fn learn_addresses(
        &self,
        pool: u64,
        (term, epochs): (u32, &[u64]),
        addresses: PoolAddresses,
    ) -> bool {
        let mut view = self.0.pool_view();
        let is_own = self.0.tables.pool() == Some(Epoch(pool))
            && self.0.tables.place().is_some_and(|place| place.epochs == epochs)
            && view.taking_in.check_term(term).is_ok();
        if is_own && addresses.are_known() && addresses.check(epochs.len()).is_ok() {
            view.addresses = addresses;
            return true;
        }
        false
    }
}

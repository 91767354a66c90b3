//! How a compute node that has drawn many lock values goes on under another number.
//!
//! Invariant: nothing is drawn under a number before all nodes know it as one of this compute node's. So a
//! fence for any of its numbers ends all of its connections. All else stays: connections, queue pairs,
//! caches, and blocks, which are the first number's.
//!
//! Protocol: the session that finds the next number due asks for it, before it writes. The others write on
//! under the former number meanwhile, of which as many values are left again. If the number is refused, the
//! compute node uses up half of those. Then it connects anew.

use farsight_fabric::{Connection, FabricError};
use farsight_index_rolex::{ComputeNodeLocks, NextNumber};
use farsight_protocol::{ComputeNode, ControlRequest};

use super::Nodes;
use crate::CatalogueError;

impl<C: Connection> Nodes<C> {
    /// Gets this compute node its next number, if that is due; then as [`Nodes::check_usable`].
    pub(crate) fn prepare_to_write(&self) -> Result<(), FabricError> {
        match self.locks.get().and_then(ComputeNodeLocks::next_number) {
            Some(next) => self.get_next_number(next),
            None => self.check_usable(),
        }
    }

    #[cold]
    fn get_next_number(&self, next: NextNumber<'_>) -> Result<(), FabricError> {
        // A poisoned compute node gets none.
        self.check_usable()?;
        match self.register_again() {
            Ok(number) => next.go_on_under(number.0),
            Err(CatalogueError::Fabric(error)) => return Err(error),
            Err(_) => next.give_up(),
        }
        Ok(())
    }

    fn register_again(&self) -> Result<ComputeNode, CatalogueError> {
        let (coordinator, lost) = (self.pool_name()?, self.lost);
        let compute_node = self.ask(0, &ControlRequest::RegisterAgain { lost })?;
        for node in 1..self.count() {
            self.ask::<()>(node, &ControlRequest::AnnounceAgain { coordinator, compute_node, lost })?;
        }
        Ok(compute_node)
    }
}

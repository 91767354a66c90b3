//! Whether a compute node is poisoned, though its connections stand.
//!
//! An operation that the fabric broke off may have left a lock behind. Others can take it over, once the
//! compute node is fenced; that compute node itself never does, for nobody fences itself. So it goes on under
//! another number, with other connections, and its sessions find that out with their next write, or when they
//! find themselves fenced.

use std::sync::Arc;

use farsight_base::sync::{AtomicBool, Ordering};
use farsight_fabric::FabricError;

/// The flag of one compute node, shared by its sessions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Poisoned(Arc<AtomicBool>);

impl Poisoned {
    /// Poisons the compute node.
    pub(crate) fn raise(&self) {
        // Relaxed, here and below: it publishes nothing, and who sees it late is fenced.
        self.0.store(true, Ordering::Relaxed);
    }

    /// Fails if the compute node, connected to `peer`, is poisoned.
    pub(crate) fn check(&self, peer: &str) -> Result<(), FabricError> {
        if !self.0.load(Ordering::Relaxed) {
            return Ok(());
        }
        let reason = "an operation broke off, perhaps under a lock: this compute node is poisoned".to_owned();
        Err(FabricError::Disconnected { peer: peer.to_owned(), reason })
    }
}

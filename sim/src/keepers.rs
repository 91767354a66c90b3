//! Who hears, in each program that keeps values, which of them count no more: a process a node.
//!
//! Invariant: it is of its program's group. So rules stop and kill it with the program's sessions.

use std::sync::Arc;

use farsight_client::Table;

use crate::client::{End, Plan};
use crate::cluster::Cluster;

impl<C: Cluster> Plan<C> {
    /// Starts who hears which kept values count no more, for as long as the program lives.
    pub(crate) fn start_keepers(&self, table: &Table) -> Result<(), End> {
        let keepers = table.keepers();
        let keepers =
            keepers.map_err(|error| self.end("who keeps values", &error, self.allowed.opening(&error)))?;
        for (node, keeper) in keepers.into_iter().enumerate() {
            let (simulation, programs) = (self.simulation.clone(), Arc::clone(&self.programs));
            self.simulation.process(&format!("keeper {node}"), self.group, move || {
                keeper.run(|| programs.have_work() && !simulation.is_killed());
            });
        }
        Ok(())
    }
}

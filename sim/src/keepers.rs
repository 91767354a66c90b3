//! Who hears, in each program that keeps values, which of them count no more: a process a node.
//!
//! Invariant: it is of its program's group. So rules stop and kill it with the program's sessions.

use std::sync::Arc;

use farsight_client::{Table, ValueCache};

use crate::client::{End, Plan};
use crate::cluster::Cluster;

impl<C: Cluster> Plan<C> {
    /// Has a program keep values of the table.
    pub(crate) fn keep_values(&self, table: &Table, cache: ValueCache) -> Result<(), End> {
        let are_kept = table
            .set_value_cache(cache)
            .map_err(|error| self.end("values to be kept", &error, self.allowed.opening(&error)))?;
        if !are_kept {
            self.journal.complain("no values are kept".to_owned());
        }
        self.start_keepers(table)
    }

    /// Starts who hears which kept values count no more, for as long as the program lives.
    fn start_keepers(&self, table: &Table) -> Result<(), End> {
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

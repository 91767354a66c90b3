//! New nodes in the places of lost ones.

use farsight_client::{RepairError, RepairProgress, Repaired};
use farsight_fabric::Connection;

use crate::client::{OverFabric, Way, dial, with_ways};
use crate::{Addresses, ConnectError, ConnectOptions, PoolRepairError};

/// Takes new nodes into a pool, in the places of nodes that it has lost. A lost node is started again first,
/// empty, at its address. This copies to it what it is to have of each table with replicas, and has the pool
/// go on with it. From then on another node may be lost.
///
/// While it copies nobody reads or writes: operations wait for up to ten seconds, and fail then. Tables
/// without replicas have lost a part for good: they are named in what this returns.
///
/// It may be cut at any point, and done again. `progress` hears how far it is.
///
/// # Errors
/// [`PoolRepairError`]. What was taken in before stays so.
pub fn repair(
    to: impl Into<Addresses>,
    options: &ConnectOptions,
    progress: &mut dyn FnMut(RepairProgress<'_>),
) -> Result<Vec<Repaired>, PoolRepairError> {
    let to = to.into();
    let nodes = to.urls().len();
    Ok(with_ways(&to, options, &mut Repairing { nodes, progress })??)
}

struct Repairing<'p> {
    nodes: usize,
    progress: &'p mut dyn FnMut(RepairProgress<'_>),
}

impl OverFabric for Repairing<'_> {
    type Done = Result<Vec<Repaired>, RepairError>;

    fn run<C: Connection>(&mut self, ways: &[Way<C>]) -> Result<Self::Done, ConnectError> {
        Ok(farsight_client::repair(&dial(ways), self.nodes, self.progress))
    }
}

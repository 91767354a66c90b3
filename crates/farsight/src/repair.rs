//! New nodes in the places of lost ones.

use farsight_client::{DialTo, FoundPool, RepairError, RepairProgress, Repaired};
use farsight_fabric::Connection;

use crate::client::{OverFabric, found, with_ways};
use crate::{Addresses, ConnectError, ConnectOptions, PoolRepairError};

/// Takes new nodes into a pool, in the places of nodes that it has lost. A lost node is started again first,
/// empty, at its address. Or another node is started elsewhere, empty, and `to` names that, too: clients
/// learn its address from the pool's other nodes. By the pool's name no address is needed: a new node that
/// is registered under it is taken in. This copies to it what it is to have of each table with
/// replicas, and has the pool go on with it. From then on another node may be lost.
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
    Ok(with_ways(&to.into(), options, &mut Repairing { progress })??)
}

struct Repairing<'p> {
    progress: &'p mut dyn FnMut(RepairProgress<'_>),
}

impl OverFabric for Repairing<'_> {
    type Done = Result<Vec<Repaired>, RepairError>;
    const WITH_STRANGERS: bool = true;

    fn run<C: Connection>(&mut self, given: Vec<String>, to: DialTo<C>) -> Result<Self::Done, ConnectError> {
        let FoundPool { dial, strangers, .. } = found(farsight_client::find_pool(given, to))?;
        Ok(farsight_client::repair(&dial, strangers, self.progress))
    }
}

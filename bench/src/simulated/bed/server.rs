//! A testbed of one server, with machines that have a connection and a cache each.

use std::sync::Arc;

use farsight::Access;
use farsight_base::sync::AtomicUsize;
use farsight_client::Table;
use farsight_fabric_sim::ReliableConnection;
use farsight_node::NodeOptions;
use farsight_sim::Node;

use super::{Bed, TABLE, definition, fill, leaf_bytes};
use crate::driver::{Cancellation, DriverError};
use crate::simulated::{SEED, SimulatedPlan};
use crate::workload::KeySpace;

const ADDRESS: &str = "sim://server";

impl Bed {
    /// A server with a loaded and trained table, and machines with full caches.
    pub(in crate::simulated) fn of_server(
        plan: &SimulatedPlan,
        space: &KeySpace,
        cancellation: &Cancellation,
    ) -> Result<Self, DriverError> {
        let simulation = super::simulation(&plan.profile);
        // The cores are the fabric's; steps that share one thread need no more than one worker.
        let options = NodeOptions {
            workers: 1,
            table_memory_bytes: leaf_bytes(plan, space),
            publishes_models: plan.publishes_models,
            ..NodeOptions::default()
        };
        let node = Node::<ReliableConnection>::start(&simulation, ADDRESS, &options, SEED);
        let clients = (0..plan.machines).map(|_| node.connect()).collect::<Result<Vec<_>, _>>()?;
        let mut load = clients[0].create_table(definition(plan))?.bulk_load()?;
        fill(space.loaded(), plan.value_bytes, cancellation, |key, value| load.push(key, value))?;
        load.finish()?;
        super::pool::await_training(&simulation, &clients[0])?;
        let tables: Vec<Table> =
            clients.iter().map(|client| client.open_table(TABLE)).collect::<Result<_, _>>()?;
        if plan.access == Access::OneSided {
            for table in &tables {
                cancellation.check()?;
                if let Some(bytes) = plan.cache_bytes {
                    table.set_cache_bytes(bytes)?;
                }
                table.session(plan.access)?.prefill()?;
            }
        }
        let left = Arc::new(AtomicUsize::new(1));
        let (client, executed) = (None, Vec::new());
        Ok(Self { tables, client, executed, _peers: Box::new(node), simulation, left })
    }
}

//! A testbed of one server, with machines that have a connection and a cache each.

use std::time::Duration;

use farsight::Access;
use farsight_client::{Client, Table};
use farsight_fabric_sim::{ReliableConnection, Simulation};
use farsight_server::ServerOptions;
use farsight_sim::Node;

use super::{Bed, TABLE, definition, fill, leaf_bytes};
use crate::driver::{Cancellation, DriverError};
use crate::simulated::{SEED, SimulatedPlan};
use crate::workload::KeySpace;

const ADDRESS: &str = "sim://server";
/// The most virtual time that training may take, and between two looks at it.
const TRAINING_MAX: Duration = Duration::from_secs(60);
const TRAINING_LOOK: Duration = Duration::from_millis(1);

impl Bed {
    /// A server with a loaded and trained table, and machines with full caches.
    pub(in crate::simulated) fn of_server(
        plan: &SimulatedPlan,
        space: &KeySpace,
        cancellation: &Cancellation,
    ) -> Result<Self, DriverError> {
        let simulation = super::simulation(&plan.profile);
        // The cores are the fabric's; steps that share one thread need no more than one worker.
        let options = ServerOptions {
            workers: 1,
            table_memory_bytes: leaf_bytes(plan, space),
            ..ServerOptions::default()
        };
        let node = Node::<ReliableConnection>::start(&simulation, ADDRESS, &options, SEED);
        let clients = (0..plan.machines).map(|_| node.connect()).collect::<Result<Vec<_>, _>>()?;
        let mut load = clients[0].create_table(definition(plan))?.bulk_load()?;
        fill(space.loaded(), plan.value_bytes, cancellation, |key, value| load.push(key, value))?;
        load.finish()?;
        await_training(&simulation, &clients[0])?;
        let tables: Vec<Table> =
            clients.iter().map(|client| client.open_table(TABLE)).collect::<Result<_, _>>()?;
        if plan.access == Access::OneSided {
            for table in &tables {
                cancellation.check()?;
                table.session(plan.access)?.prefill()?;
            }
        }
        Ok(Self { tables, _peers: Box::new(node), simulation })
    }
}

fn await_training(simulation: &Simulation, client: &Client) -> Result<(), DriverError> {
    let deadline = simulation.now().plus(TRAINING_MAX);
    loop {
        let pending = client.pending_training()?;
        let generation = client.stats()?.tables.first().map_or(0, |table| table.model.generation);
        if pending == 0 && generation > 0 {
            return Ok(());
        }
        if simulation.now() > deadline {
            let evidence = format!("its model has generation {generation}, {pending} sub-models wait");
            return Err(DriverError::Restless { seconds: TRAINING_MAX.as_secs(), evidence });
        }
        simulation.sleep(TRAINING_LOOK);
    }
}

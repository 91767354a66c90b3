//! The suite.

use farsight_conformance::engine::Seed;
use farsight_conformance::engine::raw_pool::RawPool;
use farsight_conformance::fabric::FabricUnderTest;
use farsight_conformance::fabric::shm::Shm;
use farsight_conformance::fabric::tcp::Tcp;
use farsight_fabric::FabricError;
use farsight_fabric_sim::{ReliableConnection, SimConnection, SimHost, Simulation, Timing};

const TABLE_BYTES: u64 = 64 << 20;
/// Regions of the simulation keep a history.
const SIMULATED_TABLE_BYTES: u64 = 4 << 20;

mod one_memory_node {
    use super::*;

    farsight_conformance::engine_suite!(RawPool::start([Shm::new()], TABLE_BYTES));
}

mod three_memory_nodes {
    use super::*;

    farsight_conformance::engine_suite!(RawPool::start([Shm::new(), Shm::new(), Shm::new()], TABLE_BYTES));
}

/// TCP, where a verb wakes two processes.
#[derive(Default)]
struct Slow(Tcp);

impl FabricUnderTest for Slow {
    type Host = <Tcp as FabricUnderTest>::Host;
    type Connection = <Tcp as FabricUnderTest>::Connection;

    fn listen(&self, format_version: u32) -> Self::Host {
        self.0.listen(format_version)
    }

    fn connect(&self, format_version: u32) -> Result<Self::Connection, FabricError> {
        self.0.connect(format_version)
    }

    fn rounds(&self, usual: usize) -> usize {
        usual / 20
    }
}

mod over_tcp {
    use super::*;

    farsight_conformance::engine_suite!(RawPool::start([Slow::default(), Slow::default()], TABLE_BYTES));
}

/// A memory node of a simulation, by its address.
struct Node(Simulation, &'static str);

impl FabricUnderTest for Node {
    type Host = SimHost<ReliableConnection>;
    type Connection = SimConnection<ReliableConnection>;

    fn listen(&self, format_version: u32) -> Self::Host {
        self.0.listen(self.1, format_version)
    }

    fn connect(&self, format_version: u32) -> Result<Self::Connection, FabricError> {
        self.0.connect(self.1, format_version)
    }

    fn rounds(&self, usual: usize) -> usize {
        usual / 20
    }
}

fn simulated() -> impl Iterator<Item = Node> {
    let seed = Seed::new("the engine suite over simulated cards").random(0).next_u64();
    let simulation = Simulation::beside_threads(seed, Timing::default(), Vec::new());
    ["sim://a", "sim://b", "sim://c"].into_iter().map(move |address| Node(simulation.clone(), address))
}

mod over_simulated_cards {
    use super::*;

    farsight_conformance::engine_suite!(RawPool::start(simulated(), SIMULATED_TABLE_BYTES));
}

//! Nodes of one simulation as subjects of the suites, with threads beside it.

use farsight_fabric::FabricError;
use farsight_fabric_sim::{Kind, SimConnection, SimHost, Simulation, Timing};

use super::FabricUnderTest;

/// A node, by its address.
pub struct SimNode<K> {
    simulation: Simulation,
    address: String,
    kind: std::marker::PhantomData<fn() -> K>,
}

impl<K: Kind> SimNode<K> {
    /// So many nodes of one simulation.
    #[must_use]
    pub fn several(seed: u64, count: usize) -> Vec<Self> {
        let simulation = Simulation::beside_threads(seed, Timing::default(), Vec::new());
        let node = |index| Self {
            simulation: simulation.clone(),
            address: format!("sim://{index}"),
            kind: std::marker::PhantomData,
        };
        (0..count).map(node).collect()
    }
}

impl<K: Kind> FabricUnderTest for SimNode<K> {
    type Host = SimHost<K>;
    type Connection = SimConnection<K>;

    fn listen(&self, format_version: u32) -> SimHost<K> {
        self.simulation.listen(&self.address, format_version)
    }

    fn connect(&self, format_version: u32) -> Result<SimConnection<K>, FabricError> {
        self.simulation.connect(&self.address, format_version)
    }

    fn queues_take_memory(&self) -> bool {
        false
    }
}

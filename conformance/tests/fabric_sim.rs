//! The suite of the verb contract over the simulated fabric, beside real threads: with the weakest card,
//! which promises nothing that it need not.

use farsight_conformance::fabric::FabricUnderTest;
use farsight_fabric::FabricError;
use farsight_fabric_sim::{SimConnection, SimHost, Simulation, Timing, Weakest};

const ADDRESS: &str = "sim://server";

struct Sim(Simulation);

impl FabricUnderTest for Sim {
    type Host = SimHost<Weakest>;
    type Connection = SimConnection<Weakest>;

    fn listen(&self, format_version: u32) -> SimHost<Weakest> {
        self.0.listen(ADDRESS, format_version)
    }

    fn connect(&self, format_version: u32) -> Result<SimConnection<Weakest>, FabricError> {
        self.0.connect(ADDRESS, format_version)
    }

    fn queues_take_memory(&self) -> bool {
        false
    }
}

farsight_conformance::fabric_suite!(Sim(Simulation::beside_threads(1, Timing::default(), Vec::new())));

//! The lane over several nodes, on each fabric that a pool may use.

mod shm {
    use farsight_conformance::fabric::shm::Shm;

    farsight_conformance::pool_lane_suite!([Shm::new(), Shm::new(), Shm::new()]);
}

mod tcp {
    use farsight_conformance::fabric::tcp::Tcp;

    farsight_conformance::pool_lane_suite!([Tcp::default(), Tcp::default(), Tcp::default()]);
}

mod sim {
    use farsight_conformance::fabric::FabricUnderTest;
    use farsight_fabric::FabricError;
    use farsight_fabric_sim::{ReliableConnection, SimConnection, SimHost, Simulation, Timing};

    /// A node of a simulation, by its address.
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
    }

    fn nodes() -> [Node; 3] {
        let simulation = Simulation::beside_threads(1, Timing::default(), Vec::new());
        ["sim://a", "sim://b", "sim://c"].map(|address| Node(simulation.clone(), address))
    }

    farsight_conformance::pool_lane_suite!(nodes());
}

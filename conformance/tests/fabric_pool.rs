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
    use farsight_conformance::fabric::sim::SimNode;
    use farsight_fabric_sim::ReliableConnection;

    farsight_conformance::pool_lane_suite!(SimNode::<ReliableConnection>::several(1, 3));
}

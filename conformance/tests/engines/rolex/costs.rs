//! What operations cost, over the fabrics that every machine has.

use farsight_conformance::engine::pool_costs;
use farsight_conformance::fabric::shm::Shm;
use farsight_conformance::fabric::sim::SimNode;
use farsight_conformance::fabric::tcp::Tcp;
use farsight_fabric_sim::ReliableConnection;

mod over_shared_memory {
    use super::*;

    farsight_conformance::pool_costs_suite!(|nodes| (0..nodes).map(|_| Shm::new()).collect::<Vec<_>>());
}

mod over_tcp {
    use super::*;

    farsight_conformance::pool_costs_suite!(|nodes| (0..nodes).map(|_| Tcp::default()).collect::<Vec<_>>());

    #[test]
    fn gets_of_long_values_bring_their_lines_alone() {
        pool_costs::gets_of_long_values_bring_their_lines_alone(|nodes| {
            (0..nodes).map(|_| Tcp::default()).collect()
        });
    }
}

mod over_simulated_cards {
    use super::*;

    farsight_conformance::pool_costs_suite!(|nodes| Vec::from_iter(SimNode::<ReliableConnection>::several(
        1, nodes
    )));

    #[test]
    fn gets_of_long_values_bring_their_lines_alone() {
        pool_costs::gets_of_long_values_bring_their_lines_alone(|nodes| {
            Vec::from_iter(SimNode::<ReliableConnection>::several(1, nodes))
        });
    }
}

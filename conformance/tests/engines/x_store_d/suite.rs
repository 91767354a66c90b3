//! The suite, with ranges that part its sets of keys.

use farsight_conformance::engine::Seed;
use farsight_conformance::engine::pool_store::PoolStore;
use farsight_conformance::fabric::shm::Shm;
use farsight_conformance::fabric::sim::SimNode;
use farsight_conformance::fabric::slow::Slow;
use farsight_conformance::fabric::tcp::Tcp;
use farsight_fabric_sim::{Kind, ReliableConnection, Weakest};

const TABLE_BYTES: u64 = 64 << 20;
/// Regions of the simulation keep a history.
const SIMULATED_TABLE_BYTES: u64 = 4 << 20;
/// Between the numbers that doubles round, where half of all keys lie, and among the last keys of all.
const BOUNDARIES: [u64; 3] = [1 << 53, 1 << 63, u64::MAX - 150];

mod one_memory_node {
    use super::*;

    farsight_conformance::engine_suite!(PoolStore::x_store_d([Shm::new()], &[], TABLE_BYTES));
}

mod four_memory_nodes {
    use super::*;

    farsight_conformance::engine_suite!(PoolStore::x_store_d(
        [(); 4].map(|()| Shm::new()),
        &BOUNDARIES,
        TABLE_BYTES
    ));
}

mod over_tcp {
    use super::*;

    farsight_conformance::engine_suite!(PoolStore::x_store_d(
        [(); 3].map(|()| Slow::<Tcp>::default()),
        &BOUNDARIES[..2],
        TABLE_BYTES
    ));
}

mod blocks {
    use super::*;

    farsight_conformance::block_suite!(PoolStore::x_store_d(
        [(); 3].map(|()| Slow(Shm::new())),
        &BOUNDARIES[..2],
        TABLE_BYTES
    ));
}

mod blocks_with_deadlines_over_tcp {
    use super::*;

    farsight_conformance::block_suite!(
        PoolStore::x_store_d([(); 2].map(|()| Slow::<Tcp>::default()), &BOUNDARIES[1..2], TABLE_BYTES)
            .with_deadlines()
    );
}

fn simulated<K: Kind>() -> PoolStore<Slow<SimNode<K>>> {
    let seed = Seed::new("XStore-D over simulated cards").random(0).next_u64();
    let nodes = SimNode::several(seed, 3).into_iter().map(Slow);
    PoolStore::x_store_d(nodes, &BOUNDARIES[1..], SIMULATED_TABLE_BYTES)
}

mod over_reliable_connections {
    use super::*;

    farsight_conformance::engine_suite!(simulated::<ReliableConnection>());
}

mod over_the_weakest_cards {
    use super::*;

    farsight_conformance::engine_suite!(simulated::<Weakest>());
}

/// A part of it: clients and leaves are XStore's, whose whole suite runs so.
#[test]
fn by_narrower_vectors() {
    farsight_conformance::widths::run_narrower("one_memory_node::values_of_8", "by_narrower_vectors");
}

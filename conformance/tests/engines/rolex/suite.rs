//! The suite.

use farsight_conformance::engine::Seed;
use farsight_conformance::engine::pool_store::PoolStore;
use farsight_conformance::engine::raw_pool::RawPool;
use farsight_conformance::fabric::shm::Shm;
use farsight_conformance::fabric::sim::SimNode;
use farsight_conformance::fabric::slow::Slow;
use farsight_conformance::fabric::tcp::Tcp;
use farsight_fabric_sim::ReliableConnection;

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

/// The same as programs use it: memory nodes with processors, clients with numbers.
mod real_memory_nodes {
    use super::*;

    farsight_conformance::engine_suite!(PoolStore::rolex([Shm::new(), Shm::new()], TABLE_BYTES));
}

mod over_tcp {
    use super::*;

    farsight_conformance::engine_suite!(PoolStore::rolex(
        [Slow::<Tcp>::default(), Slow::default()],
        TABLE_BYTES
    ));
}

fn simulated() -> impl Iterator<Item = Slow<SimNode<ReliableConnection>>> {
    let seed = Seed::new("the engine suite over simulated cards").random(0).next_u64();
    SimNode::several(seed, 3).into_iter().map(Slow)
}

mod over_simulated_cards {
    use super::*;

    farsight_conformance::engine_suite!(RawPool::start(simulated(), SIMULATED_TABLE_BYTES));
}

/// A part of it: values of each size, of which vectors make the difference.
#[test]
fn by_narrower_vectors() {
    farsight_conformance::widths::run_narrower("one_memory_node::values_of", "by_narrower_vectors");
}

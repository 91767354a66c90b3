//! Tables that are dropped, renamed and swapped, on each fabric of every machine and of every engine.

use farsight_conformance::engine::Seed;
use farsight_conformance::engine::pool_store::PoolStore;
use farsight_conformance::fabric::shm::Shm;
use farsight_conformance::fabric::sim::SimNode;
use farsight_conformance::fabric::slow::Slow;
use farsight_conformance::fabric::tcp::Tcp;
use farsight_fabric_sim::{Kind, ReliableConnection, Weakest};

const TABLE_BYTES: u64 = 1 << 20;
const BOUNDARIES: [u64; 1] = [1 << 63];

mod x_store_over_shared_memory {
    use super::*;

    farsight_conformance::names_suite!(PoolStore::x_store_d([Shm::new()], &[], TABLE_BYTES));
}

mod x_store_d_over_shared_memory {
    use super::*;

    farsight_conformance::names_suite!(PoolStore::x_store_d(
        [(); 2].map(|()| Shm::new()),
        &BOUNDARIES,
        TABLE_BYTES
    ));
}

mod rolex_over_shared_memory {
    use super::*;

    farsight_conformance::names_suite!(PoolStore::rolex([(); 2].map(|()| Shm::new()), TABLE_BYTES));
}

mod x_store_over_tcp {
    use super::*;

    farsight_conformance::names_suite!(PoolStore::x_store_d([Tcp::default()], &[], TABLE_BYTES));
}

mod x_store_d_over_tcp {
    use super::*;

    farsight_conformance::names_suite!(PoolStore::x_store_d(
        [(); 2].map(|()| Tcp::default()),
        &BOUNDARIES,
        TABLE_BYTES
    ));
}

mod rolex_over_tcp {
    use super::*;

    farsight_conformance::names_suite!(PoolStore::rolex([(); 2].map(|()| Tcp::default()), TABLE_BYTES));
}

fn simulated<K: Kind>(nodes: usize) -> impl Iterator<Item = Slow<SimNode<K>>> {
    let seed = Seed::new("names over simulated cards").random(0).next_u64();
    SimNode::several(seed, nodes).into_iter().map(Slow)
}

mod x_store_over_the_weakest_cards {
    use super::*;

    farsight_conformance::names_suite!(PoolStore::x_store_d(simulated::<Weakest>(1), &[], TABLE_BYTES));
}

mod rolex_over_reliable_connections {
    use super::*;

    farsight_conformance::names_suite!(PoolStore::rolex(simulated::<ReliableConnection>(2), TABLE_BYTES));
}

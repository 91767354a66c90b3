//! The suite of the engine contract over XStore tables that a node keeps on a disk: all writes go by the log,
//! and are answered later. Over each fabric that needs no device; of blocks, with deadlines and without, over
//! shared memory.

use farsight_conformance::engine::pool_store::PoolStore;
use farsight_conformance::fabric::shm::Shm;
use farsight_conformance::fabric::slow::Slow;
use farsight_conformance::fabric::tcp::Tcp;

const TABLE_BYTES: u64 = 64 << 20;

mod over_shared_memory {
    use super::*;

    farsight_conformance::engine_suite!(PoolStore::durable(Slow(Shm::new()), TABLE_BYTES));
}

mod over_tcp {
    use super::*;

    farsight_conformance::engine_suite!(PoolStore::durable(Slow::<Tcp>::default(), TABLE_BYTES));
}

mod blocks {
    use super::*;

    farsight_conformance::block_suite!(PoolStore::durable(Slow(Shm::new()), TABLE_BYTES));
}

mod blocks_with_deadlines {
    use super::*;

    farsight_conformance::block_suite!(PoolStore::durable(Slow(Shm::new()), TABLE_BYTES).with_deadlines());
}

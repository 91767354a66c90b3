//! Conditional writes of clients at once, over real fabrics: what each is told, judged as one history.

use std::sync::Arc;

use farsight_conformance::contended_suite;
use farsight_conformance::engine::direct::DirectStore;
use farsight_conformance::engine::harness::XStore;
use farsight_conformance::engine::pool_store::PoolStore;
use farsight_conformance::fabric::shm::Shm;
use farsight_conformance::fabric::tcp::Tcp;
use farsight_oracles::{EightBytes, Embedding as _, Identity};

const TABLE_BYTES: u64 = 64 << 20;
/// The first of the keys, and one more, of different nodes.
const BOUNDARIES: [u64; 1] = [1 << 39];

mod xstore {
    use super::*;

    mod over_shared_memory {
        use super::*;

        contended_suite!(XStore::start(TABLE_BYTES, 1));
    }

    mod over_tcp {
        use super::*;

        contended_suite!(DirectStore::start(Arc::new(Tcp::default()), TABLE_BYTES));
    }

    mod with_a_log {
        use super::*;

        contended_suite!(PoolStore::durable(Shm::new(), TABLE_BYTES));
    }
}

mod xstore_d {
    use super::*;

    #[test]
    fn keys_lie_on_different_nodes() {
        let key = |identity| EightBytes::default().key(Identity(identity));
        assert!(key(77) < BOUNDARIES[0] && BOUNDARIES[0] < key(1 << 40));
    }

    mod over_shared_memory {
        use super::*;

        contended_suite!(PoolStore::x_store_d([Shm::new(), Shm::new()], &BOUNDARIES, TABLE_BYTES));
    }

    mod over_tcp {
        use super::*;

        contended_suite!(PoolStore::x_store_d([Tcp::default(), Tcp::default()], &BOUNDARIES, TABLE_BYTES));
    }
}

mod rolex {
    use super::*;

    mod over_shared_memory {
        use super::*;

        contended_suite!(PoolStore::rolex([Shm::new(), Shm::new()], TABLE_BYTES));
    }

    mod over_tcp {
        use super::*;

        contended_suite!(PoolStore::rolex([Tcp::default(), Tcp::default()], TABLE_BYTES));
    }
}

mod flexkv {
    use super::*;

    mod over_shared_memory {
        use super::*;

        contended_suite!(PoolStore::flexkv([Shm::new(), Shm::new()], TABLE_BYTES));
    }

    mod over_tcp {
        use super::*;

        contended_suite!(PoolStore::flexkv([Tcp::default(), Tcp::default()], TABLE_BYTES));
    }
}

//! Tables that are dropped, renamed and swapped over RDMA, whose cards forget the keys of what is gone.

use farsight_conformance::engine::pool_store::PoolStore;
use farsight_conformance::fabric::verbs::{Verbs, is_asked_for};

/// All of it is locked in memory.
const TABLE_BYTES: u64 = 1 << 20;

mod x_store {
    use super::*;

    farsight_conformance::names_suite!(
        PoolStore::x_store_d([Verbs::new()], &[], TABLE_BYTES),
        if is_asked_for()
    );
}

mod rolex {
    use super::*;

    farsight_conformance::names_suite!(
        PoolStore::rolex([Verbs::new(), Verbs::new()], TABLE_BYTES),
        if is_asked_for()
    );
}

//! XStore-D over RDMA: a range of the keys at each of two memory nodes. What is particular of it over queue
//! pairs is that a batch goes to two of them. The rest of its suite is what XStore's is over one.

use farsight_conformance::engine::pool_store::PoolStore;
use farsight_conformance::engine::{batches, operations};
use farsight_conformance::fabric::verbs::{Verbs, is_asked_for};

/// All of it is locked in memory.
const TABLE_BYTES: u64 = 4 << 20;
/// Half of all keys lie on either side.
const BOUNDARY: u64 = 1 << 63;

fn store() -> PoolStore<Verbs> {
    PoolStore::x_store_d([Verbs::new(), Verbs::new()], &[BOUNDARY], TABLE_BYTES)
}

#[test]
fn values_of_8_bytes() {
    if is_asked_for() {
        operations::values_of_8_bytes(&store());
    }
}

#[test]
fn gets_of_every_batch_size() {
    if is_asked_for() {
        batches::gets_of_every_batch_size(&store());
    }
}

#[test]
fn scans_of_every_length() {
    if is_asked_for() {
        batches::scans_of_every_length(&store());
    }
}

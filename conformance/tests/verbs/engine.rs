//! The suite of the engine contract over XStore, by a server that listens here alone, and by one whose tables
//! are in shared memory.

use std::sync::Arc;

use farsight::{Access, WriteOperation};
use farsight_conformance::engine::direct::DirectStore;
use farsight_conformance::engine::{EngineUnderTest, SessionUnderTest, TableUnderTest, operations};
use farsight_conformance::fabric::FabricUnderTest;
use farsight_conformance::fabric::shm::Shm;
use farsight_conformance::fabric::verbs::{Verbs, is_asked_for};
use farsight_layout::FORMAT_VERSION;

/// All of it is locked in memory.
const TABLE_BYTES: u64 = 16 << 20;

farsight_conformance::engine_suite!(
    DirectStore::start(Arc::new(Verbs::new()), TABLE_BYTES),
    if is_asked_for()
);

/// One server, two fabrics, the same pairs: the card READs what lies in the other fabric's memory file.
#[test]
fn tables_of_another_fabric_are_served() {
    if !is_asked_for() {
        return;
    }
    let shm = Shm::new();
    let store = DirectStore::start_beside(shm.listen(FORMAT_VERSION), Arc::new(Verbs::new()), TABLE_BYTES);
    operations::values_of_8_bytes(&store);
    let table = store.table(8);
    let mut by_rdma = table.session(Access::OneSided);
    by_rdma.write(WriteOperation::Insert, &[(7, vec![7; 8])]);
    let by_shm = farsight_conformance::engine::direct::connect(&shm);
    let table = by_shm.open_table(table.name()).expect("the same table");
    let mut value = [0; 8];
    let session = table.session(Access::OneSided);
    session.expect("a session").get(7, &mut value).expect("a get").expect("the pair");
    assert_eq!(value, [7; 8]);
}

/// Batches of GETs, of keys that are there and of others, call nobody once the cache is filled.
#[test]
fn gets_call_nobody() {
    if !is_asked_for() {
        return;
    }
    let store = DirectStore::start(Arc::new(Verbs::new()), TABLE_BYTES);
    let table = store.table(8);
    let mut session = table.session(Access::OneSided);
    let entries: Vec<(u64, Vec<u8>)> = (0..500).map(|key| (key * 3, vec![key as u8; 8])).collect();
    session.write(WriteOperation::Insert, &entries);
    table.await_training();
    let keys: Vec<u64> = (0..1500).collect();
    // Fills the cache.
    session.multi_get(&keys);
    let served = store.server().stats();
    let found = session.multi_get(&keys);
    assert_eq!(found.iter().flatten().count(), 500);
    let calls = |stats: &farsight_protocol::NodeStats| stats.calls;
    assert_eq!(calls(&store.server().stats()), calls(&served), "a GET called the server");
}

mod reference {
    use farsight_conformance::engine::pool_store::PoolStore;

    use super::*;

    farsight_conformance::engine_suite!(PoolStore::reference(Verbs::new(), TABLE_BYTES), if is_asked_for());
}

//! The suite of the engine contract over the reference engine, on every fabric; over RDMA in
//! `verbs/engine.rs`. A map behind a lock passes it. So it asks for nothing that only XStore or ROLEX has.

use std::sync::Arc;

use farsight_client::{
    Access, CatalogueError, ClientOptions, EngineKind, LoadError, NewTable, PoolClient, WriteError,
};
use farsight_conformance::engine::SessionUnderTest as _;
use farsight_conformance::engine::direct::SessionView;
use farsight_conformance::engine::pool_store::PoolStore;
use farsight_conformance::fabric::FabricUnderTest as _;
use farsight_conformance::fabric::shm::Shm;
use farsight_conformance::fabric::sim::SimNode;
use farsight_conformance::fabric::slow::Slow;
use farsight_conformance::fabric::tcp::Tcp;
use farsight_conformance::reference::Engines;
use farsight_conformance::reference::later::LETS_GO;
use farsight_layout::FORMAT_VERSION;
use farsight_node::{Node, NodeOptions};
use farsight_protocol::{Direction, ErrorCode, WriteOperation};

const TABLE_BYTES: u64 = 64 << 20;

mod over_shared_memory {
    use super::*;

    farsight_conformance::engine_suite!(PoolStore::reference(Shm::new(), TABLE_BYTES));
}

mod over_tcp {
    use super::*;

    farsight_conformance::engine_suite!(PoolStore::reference(Slow::<Tcp>::default(), TABLE_BYTES));
}

mod answering_later_over_shared_memory {
    use super::*;

    farsight_conformance::engine_suite!(PoolStore::answering_later(Slow(Shm::new()), TABLE_BYTES));
}

mod answering_later_over_tcp {
    use super::*;

    farsight_conformance::engine_suite!(PoolStore::answering_later(Slow::<Tcp>::default(), TABLE_BYTES));
}

mod over_simulated_cards {
    use farsight_conformance::engine::Seed;
    use farsight_fabric_sim::Weakest;

    use super::*;

    fn start() -> PoolStore<Slow<SimNode<Weakest>>> {
        let seed = Seed::new("the reference engine over simulated cards").random(0).next_u64();
        let node = SimNode::several(seed, 1).into_iter().next().expect("one node");
        PoolStore::reference(Slow(node), TABLE_BYTES)
    }

    farsight_conformance::engine_suite!(start());
}

#[test]
fn a_bulk_load_is_the_same_for_an_engine_of_calls() {
    let store = PoolStore::reference(Shm::new(), TABLE_BYTES);
    let table = store.create("loaded", 8);
    let mut load = table.bulk_load().expect("a load");
    for key in 0..10_000_u64 {
        load.push(key * 3, &key.to_le_bytes()).expect("an ascending pair");
    }
    let mut session = SessionView::<u64>::new(table.session(Access::OneSided).expect("a session"));
    assert_eq!(session.get(3), None, "nothing is visible before the end");
    assert_eq!(load.finish().expect("the end"), 10_000);
    assert_eq!(session.get(3).expect("loaded").0, 1_u64.to_le_bytes());
    assert_eq!(session.scan_all(Direction::Ascending, 29_990).len(), 3);
    let second = table.bulk_load().expect("a load").finish().expect_err("it holds pairs");
    assert!(matches!(second, LoadError::Refused { source, .. } if source.code == ErrorCode::BadLoad));
}

/// A node answers every call: one that its table lets go of is refused, and the client says that it cannot
/// know what became of it.
#[test]
fn a_call_that_is_let_go_of_is_refused() {
    let store = PoolStore::answering_later(Shm::new(), TABLE_BYTES);
    let table = store.create(LETS_GO, 8);
    let mut session = table.session(Access::OneSided).expect("a session");
    for key in 0..200_u64 {
        let let_go = session.write_one(WriteOperation::Put, key, &[1; 8]).expect_err("nobody answers");
        assert!(matches!(let_go, WriteError::Indeterminate { .. }), "{let_go:?}");
        assert!(format!("{let_go:?}").contains("let go of this call"), "{let_go:?}");
    }
    let mut value = [0; 8];
    assert!(session.get(7, &mut value).expect("the session goes on").is_some());
}

/// What an engine cannot do, and who does not know it, is said by name.
#[test]
fn an_engine_is_refused_by_name_where_it_is_not_known() {
    let store = PoolStore::reference(Shm::new(), TABLE_BYTES);
    drop(store.create("known", 8));
    let connection = || store.subject().connect(FORMAT_VERSION).expect("a connection");
    let plain = PoolClient::of_pool(vec![connection()], ClientOptions::default()).expect("a client");
    let error = plain.open_table("known").map(drop).expect_err("no such engine");
    let CatalogueError::UnknownEngine { source, .. } = &error else { panic!("{error}") };
    assert_eq!(
        source.to_string(),
        "no engine is called \"reference\"; there are xstore, rolex, xstore-d, flexkv"
    );
    let ranges = NewTable { engine: Some(EngineKind::XSTORE_D), ..store.new_table("alone", 8) };
    assert_eq!(store.connect().create_table(ranges).expect("on one node").info().engine.name, "xstore");

    let plain = Shm::new();
    let options = NodeOptions { table_memory_bytes: TABLE_BYTES, ..NodeOptions::default() };
    let _node = Node::start(vec![Arc::new(plain.listen(FORMAT_VERSION))], &options).expect("a node");
    let connection = plain.connect(FORMAT_VERSION).expect("a connection");
    let client =
        PoolClient::with_engines::<Engines>(vec![connection], ClientOptions::default()).expect("a client");
    let error = client.create_table(store.new_table("unknown", 8)).map(drop).expect_err("no such engine");
    let CatalogueError::Refused { source, .. } = &error else { panic!("{error}") };
    assert!(source.text.contains("\"unknown\": no engine is called \"reference\""), "{source}");

    let both = [store.subject(), &plain].map(|node| node.connect(FORMAT_VERSION).expect("a connection"));
    let client =
        PoolClient::with_engines::<Engines>(both.into(), ClientOptions::default()).expect("a client");
    let error = client.create_table(store.new_table("several", 8)).map(drop).expect_err("of one node");
    let CatalogueError::Unfit { source, .. } = &error else { panic!("{error}") };
    assert_eq!(source.to_string(), "a table of reference has 1 to 1 nodes, not 2");
}

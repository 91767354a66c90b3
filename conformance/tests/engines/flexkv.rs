//! The suite of the engine contract over FlexKV: over shared memory, TCP and simulated cards, on one node and
//! on several, with values of one size and of any length. It keeps no order, so what the suite scans of other
//! engines it gets here.

use farsight_conformance::engine::Seed;
use farsight_conformance::engine::pool_store::PoolStore;
use farsight_conformance::fabric::shm::Shm;
use farsight_conformance::fabric::sim::SimNode;
use farsight_conformance::fabric::slow::Slow;
use farsight_conformance::fabric::tcp::Tcp;
use farsight_fabric_sim::Weakest;

const TABLE_BYTES: u64 = 64 << 20;
/// Regions of the simulation keep a history.
const SIMULATED_TABLE_BYTES: u64 = 16 << 20;

mod one_node {
    use super::*;

    farsight_conformance::engine_suite!(@unordered PoolStore::flexkv([Shm::new()], TABLE_BYTES), true);
}

mod blocks_on_three_nodes {
    use super::*;

    farsight_conformance::block_suite!(@unordered
        PoolStore::flexkv([Shm::new(), Shm::new(), Shm::new()], TABLE_BYTES));
}

mod over_tcp {
    use super::*;

    farsight_conformance::engine_suite!(@unordered
        PoolStore::flexkv([Slow::<Tcp>::default(), Slow::default()], TABLE_BYTES), true);
}

mod blocks_over_tcp {
    use super::*;

    farsight_conformance::block_suite!(@unordered PoolStore::flexkv([Slow::<Tcp>::default()], TABLE_BYTES));
}

mod over_simulated_cards {
    use super::*;

    fn start() -> PoolStore<Slow<SimNode<Weakest>>> {
        let seed = Seed::new("FlexKV over simulated cards").random(0).next_u64();
        PoolStore::flexkv(SimNode::several(seed, 2).into_iter().map(Slow), SIMULATED_TABLE_BYTES)
    }

    farsight_conformance::engine_suite!(@unordered start(), true);
}

mod costs {
    use farsight::{Access, Meters, WriteOperation};
    use farsight_conformance::engine::costs::MeteredSession as _;
    use farsight_conformance::engine::direct::SessionView;
    use farsight_conformance::engine::{EngineUnderTest as _, SessionUnderTest as _, TableUnderTest as _};

    use super::*;

    const KEYS: u64 = 1_000;
    /// Keys of each step of a test.
    const ASKED: u64 = 200;

    /// Whether the session that is measured knows the addresses of the keys that are there.
    #[derive(Clone, Copy)]
    enum Addresses {
        Known,
        Unknown,
    }

    /// What one operation of `run` costs over two nodes, on a table with the first [`KEYS`] keys.
    fn cost_each(addresses: Addresses, run: impl Fn(&mut SessionView, u64)) -> [f64; 4] {
        let pool = PoolStore::flexkv([Shm::new(), Shm::new()], TABLE_BYTES);
        let table = pool.table(8);
        let mut session = table.session(Access::OneSided);
        let entries: Vec<_> = (0..KEYS).map(|key| (key, key.to_le_bytes().to_vec())).collect();
        session.write(WriteOperation::Put, &entries);
        if let Addresses::Unknown = addresses {
            // Another compute node's, whose clock may be behind. It learns that from the newest version.
            session = table.session(Access::OneSided);
            session.write(WriteOperation::Put, &[(KEYS - 1, vec![7; 8])]);
        }
        let before = session.meters();
        (0..ASKED).for_each(|key| run(&mut session, key));
        let Meters { doorbells, reads, writes, atomics, .. } = session.meters() - before;
        [doorbells, reads, writes, atomics].map(|count| count as f64 / ASKED as f64)
    }

    fn write(addresses: Addresses, operation: WriteOperation, first: u64) -> [f64; 4] {
        cost_each(addresses, |session, key| {
            let value = if operation.has_value() { vec![7; 8] } else { Vec::new() };
            session.write(operation, &[(first + key, value)]);
        })
    }

    /// Nearly one: some objects have the fingerprint of another key, and are read, too.
    #[track_caller]
    fn assert_about(what: &str, got: [f64; 4], expected: [f64; 4]) {
        println!("{what}: round trips, READs, WRITEs, atomics: {got:?}");
        for (got, expected) in got.iter().zip(expected) {
            assert!((expected..=expected + 0.1).contains(got), "{what}: {got}, budget {expected}");
        }
    }

    #[test]
    fn a_get_is_two_round_trips_and_one_with_an_address() {
        let get = |addresses| cost_each(addresses, |session, key| drop(session.get(key)));
        assert_about("GET", get(Addresses::Unknown), [2.0, 3.0, 0.0, 0.0]);
        assert_about("GET by address", get(Addresses::Known), [1.0, 2.0, 0.0, 0.0]);
        let absent = cost_each(Addresses::Known, |session, key| drop(session.get(KEYS + key)));
        assert_about("GET of an absent key", absent, [1.0, 2.0, 0.0, 0.0]);
    }

    #[test]
    fn an_update_is_three_round_trips_and_one_with_an_address() {
        for operation in [WriteOperation::Update, WriteOperation::Put] {
            let unknown = write(Addresses::Unknown, operation, 0);
            assert_about(&format!("{operation:?}"), unknown, [3.0, 3.0, 1.0, 1.0]);
            let known = write(Addresses::Known, operation, 0);
            assert_about(&format!("{operation:?} by address"), known, [1.0, 0.0, 1.0, 1.0]);
        }
        let swap = write(Addresses::Known, WriteOperation::Swap, 0);
        assert_about("Swap by address", swap, [2.0, 2.0, 1.0, 1.0]);
    }

    #[test]
    fn an_insert_is_three_round_trips() {
        let insert = write(Addresses::Known, WriteOperation::Insert, KEYS);
        assert_about("insert", insert, [3.0, 4.0, 1.0, 2.0]);
    }

    #[test]
    fn a_remove_is_four_round_trips() {
        let got = write(Addresses::Unknown, WriteOperation::Remove, 0);
        // The overflow may say enough by then: a compare-and-swap less.
        assert!((1.5..=2.1).contains(&got[3]), "{got:?}");
        assert_about("remove", got, [4.0, 5.0, 0.0, got[3]]);
    }
}

/// Scans are refused by the engine's name.
#[test]
fn what_needs_an_order_is_refused() {
    use farsight::Access;
    use farsight_conformance::engine::{EngineUnderTest as _, TableUnderTest as _};
    use farsight_index::Pairs;
    use farsight_protocol::Direction;

    let pool = PoolStore::flexkv([Shm::new()], TABLE_BYTES);
    let mut view = pool.table(8).session(Access::OneSided);
    let scans = [farsight_client::ScanRequest { from: 0, limit: 1 }];
    let error = view.session().scan_batch(Direction::Ascending, &scans, &mut Pairs::default());
    let text = farsight::with_causes(&error.expect_err("no order"));
    assert!(text.contains("flexkv keeps no order") && text.contains("use xstore or rolex"), "{text}");
}

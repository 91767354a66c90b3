//! What operations cost over three memory nodes, by the meters: at each node what XStore costs there.

use std::collections::BTreeMap;

use farsight::{Access, Meters, WriteOperation};
use farsight_base::prng::mix;
use farsight_conformance::engine::SessionUnderTest;
use farsight_conformance::engine::costs::MeteredSession;
use farsight_conformance::engine::direct::SessionView;
use farsight_conformance::engine::pool_store::{PoolStore, await_training};
use farsight_conformance::fabric::FabricUnderTest;
use farsight_conformance::fabric::shm::Shm;
use farsight_conformance::fabric::sim::SimNode;
use farsight_conformance::fabric::tcp::Tcp;
use farsight_fabric_sim::ReliableConnection;
use farsight_protocol::Direction;

const THIRDS: [u64; 2] = [u64::MAX / 3, u64::MAX / 3 * 2];
const NODES: u64 = 3;
const BATCH: usize = 64;
const LEAF_BYTES: u64 = 448;

/// A loaded and trained table.
struct Loaded<F: FabricUnderTest> {
    store: PoolStore<F>,
    keys: Vec<u64>,
    session: SessionView,
}

impl<F: FabricUnderTest> Loaded<F> {
    fn new(subjects: impl IntoIterator<Item = F>, keys: u64, table_memory_bytes: u64) -> Self {
        let store = PoolStore::x_store_d(subjects, &THIRDS, table_memory_bytes);
        let table = store.create("t", 8);
        let pairs: BTreeMap<u64, u64> = (0..keys).map(|index| (mix(index) & !1, index)).collect();
        let mut load = table.bulk_load().expect("a load");
        for (key, value) in &pairs {
            load.push(*key, &value.to_le_bytes()).expect("ascending");
        }
        assert_eq!(load.finish().expect("the load"), keys);
        await_training(&store.connect());
        let mut session = SessionView::new(table.session(Access::OneSided).expect("a session"));
        session.prefill();
        Self { store, keys: pairs.into_keys().collect(), session }
    }

    /// What `body` cost, and whether all of it came out at first try.
    fn cost(&mut self, body: impl FnOnce(&mut SessionView)) -> (Meters, bool) {
        let (meters, counters) = (self.session.meters(), self.session.counters());
        body(&mut self.session);
        let now = self.session.counters();
        assert_eq!(now.fallbacks, counters.fallbacks, "nothing falls back in a table that nobody writes");
        (self.session.meters() - meters, now.slow_path == counters.slow_path)
    }

    /// Keys in batches, from all parts.
    fn batches(&self) -> Vec<Vec<u64>> {
        let spread = self.keys.len() / BATCH;
        let batch = |first: usize| (0..BATCH).map(|index| self.keys[index * spread + first]).collect();
        (0..spread).step_by(spread / 50).map(batch).collect()
    }

    /// READs, bytes and doorbells of batches that came out at first try.
    fn batches_cost(&mut self, reads: u64, bytes: u64, doorbells: u64) {
        let mut straight = 0;
        for keys in self.batches() {
            let (meters, is_straight) = self.cost(|session| {
                assert!(session.multi_get(&keys).iter().all(Option::is_some), "all keys are stored");
            });
            assert_eq!(meters.calls, 0, "{meters:?}");
            if is_straight {
                straight += 1;
                let got = (meters.reads, meters.read_bytes, meters.doorbells);
                assert_eq!(got, (reads, bytes, doorbells), "{meters:?}");
            }
        }
        assert!(straight > 25, "{straight} of 50 batches came out at first try");
    }
}

#[test]
fn a_get_reads_what_xstore_reads() {
    let shm = [(); 3].map(|()| Shm::new());
    let mut loaded = Loaded::new(shm, 100_000, 64 << 20);
    loaded.batches_cost(2 * 64, 64 * 256, 2 * NODES);
    for key in loaded.keys.clone().into_iter().step_by(500) {
        let (meters, is_straight) = loaded.cost(|session| assert!(session.get(key).is_some(), "{key}"));
        if is_straight {
            assert_eq!((meters.reads, meters.read_bytes, meters.doorbells), (1, LEAF_BYTES, 1), "{meters:?}");
        }
        let (meters, _) = loaded.cost(|session| assert_eq!(session.get(key + 1), None));
        assert_eq!(meters.calls, 0, "a miss is proved by reading");
    }
}

#[test]
fn over_sockets_a_batch_is_one_round_trip_at_each_node() {
    let tcp = [(); 3].map(|()| Tcp::default());
    let mut loaded = Loaded::new(tcp, 20_000, 64 << 20);
    loaded.batches_cost(64, 64 * LEAF_BYTES, NODES);
}

#[test]
fn over_cards_a_batch_is_two_round_trips_at_each_node() {
    let mut loaded = Loaded::new(SimNode::<ReliableConnection>::several(1, 3), 5_000, 4 << 20);
    loaded.batches_cost(2 * 64, 64 * 256, 2 * NODES);
}

#[test]
fn writes_are_calls_for_128_entries_of_a_node() {
    let shm = [(); 3].map(|()| Shm::new());
    let mut loaded = Loaded::new(shm, 60_000, 64 << 20);
    // 500 of each node: four calls there.
    let keys: Vec<u64> = (0..1_500).map(|index| loaded.keys[index * 40]).collect();
    let of_first = keys.iter().filter(|key| **key < THIRDS[0]).count();
    assert!((385..=512).contains(&of_first), "{of_first} keys of the first node");
    let pairs: Vec<(u64, Vec<u8>)> = keys.iter().map(|key| (*key, vec![7; 8])).collect();
    let new: Vec<(u64, Vec<u8>)> = keys.iter().map(|key| (key | 1, vec![7; 8])).collect();
    let bare: Vec<(u64, Vec<u8>)> = keys.iter().map(|key| (*key, Vec::new())).collect();
    for (operation, entries) in [
        (WriteOperation::Insert, &new),
        (WriteOperation::Update, &pairs),
        (WriteOperation::Put, &pairs),
        (WriteOperation::Remove, &bare),
    ] {
        let (meters, _) =
            loaded.cost(|session| assert_eq!(session.write(operation, entries).len(), entries.len()));
        assert_eq!((meters.calls, meters.doorbells), (12, 12), "{operation:?}: {meters:?}");
        assert_eq!((meters.reads, meters.writes, meters.atomics), (0, 0, 0), "{operation:?}: {meters:?}");
    }
    let stats = loaded.store.connect().node_stats().expect("statistics");
    let tree = |node: usize| stats[node].tables[0].part.expect("a part").tree;
    let (hits, all) = (0..3).fold((0, 0), |(hits, all), node| {
        (hits + tree(node).hint_hits, all + tree(node).hint_hits + tree(node).descents)
    });
    assert!(hits as f64 > 0.9 * all as f64, "{hits} of {all} writes by hint");
}

#[test]
fn scans_go_on_at_the_next_node() {
    let shm = [(); 3].map(|()| Shm::new());
    let mut loaded = Loaded::new(shm, 60_000, 64 << 20);
    for boundary in THIRDS {
        let first = loaded.keys.partition_point(|key| *key < boundary);
        let from = first - 30;
        let expected: Vec<u64> = loaded.keys[from..from + 60].to_vec();
        let (meters, _) = loaded.cost(|session| {
            let found = session.scan_batch(Direction::Ascending, &[(expected[0], 60)]).pop().expect("a scan");
            assert_eq!(found.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), expected);
        });
        assert_eq!((meters.calls, meters.read_bytes), (0, meters.reads * LEAF_BYTES), "{meters:?}");
        // Six leaves are planned for 60 pairs, four for the thirty that are left, and a leaf more for a tie.
        assert!((7..=14).contains(&meters.reads), "{meters:?}");
    }
    let all = loaded.session.scan_all(Direction::Ascending, 0);
    assert_eq!(all.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), loaded.keys);
}

//! Space that comes back: leaves that removals leave nearly empty are merged, and so are the inner nodes
//! above them. So a tree takes space for the pairs that it has, not for those that it once had.

mod common;

use std::collections::BTreeMap;
use std::thread;

use common::{Fixture, stamp_of};
use farsight_base::LeafNumber;
use farsight_base::prng::{SplitMix64, mix};
use farsight_index::{Direction, Pairs};
use farsight_index_xstore::server::WriteError;
use farsight_protocol::TreeStats;

/// Children that an inner node has at least, but for the root.
const CHILDREN_MIN: u64 = 12;

/// Inner nodes are as few as their children allow. (That none is lost: a node that leaves the tree without
/// being given back counts for ever.)
fn assert_few_inner_nodes(stats: &TreeStats) {
    let bound = stats.leaves / CHILDREN_MIN + stats.leaves / CHILDREN_MIN / (CHILDREN_MIN - 1) + 1;
    assert!(
        stats.inner_nodes <= bound.max(u64::from(stats.inner_levels)),
        "at most {bound} inner nodes: {stats:?}"
    );
}

/// A queue of `live` keys that `passing` keys pass through: ascending inserts, the oldest removed.
fn pass_through(fixture: &Fixture, live: u64, passing: u64) {
    for key in 0..passing {
        let stored = fixture.tree.insert(key, &fixture.value(key, 1), LeafNumber::NONE);
        stored.unwrap_or_else(|error| panic!("after {key} keys, {:?}: {error}", fixture.tree.stats()));
        if let Some(oldest) = key.checked_sub(live) {
            fixture.tree.remove(oldest, LeafNumber::NONE).unwrap();
        }
    }
}

#[test]
fn a_queue_keeps_the_leaves_that_it_needs() {
    const LIVE: u64 = 2_000;
    let fixture = Fixture::new(8, 40_000);
    let mut leaves_max = 0;
    for round in 1..=10 {
        let keys = (round - 1) * 10_000..round * 10_000;
        for key in keys {
            fixture.insert(key);
            if let Some(oldest) = key.checked_sub(LIVE) {
                fixture.tree.remove(oldest, LeafNumber::NONE).unwrap();
            }
        }
        assert_eq!(fixture.check_structure().len() as u64, LIVE);
        let stats = fixture.tree.stats();
        println!("round {round}: {stats:?}");
        leaves_max = leaves_max.max(stats.leaves);
        assert_few_inner_nodes(&stats);
    }
    // Ascending inserts leave fourteen pairs a leaf.
    let needed = LIVE.div_ceil(14);
    assert!(leaves_max <= needed + 4, "{leaves_max} leaves, {needed} hold as many pairs");
}

#[test]
fn a_queue_passes_through_a_small_region_for_ever() {
    const LIVE: u64 = 1_000;
    // Leaves for less than twice the queue, through which hundreds of times as many pairs pass.
    let fixture = Fixture::new(8, 120);
    pass_through(&fixture, LIVE, 400_000);
    let keys = fixture.check_structure();
    assert_eq!(keys.len() as u64, LIVE);
    for key in keys {
        fixture.tree.remove(key, LeafNumber::NONE).unwrap();
    }
    let stats = fixture.tree.stats();
    assert_eq!((stats.leaves, stats.inner_nodes, stats.inner_levels), (1, 1, 1), "{stats:?}");
}

/// A queue whose other end moves, too: descending inserts, the greatest removed.
#[test]
fn a_queue_from_above_keeps_the_leaves_that_it_needs() {
    let fixture = Fixture::new(8, 100);
    for step in 0..50_000 {
        fixture.insert(u64::MAX - step);
        if let Some(oldest) = step.checked_sub(200) {
            fixture.tree.remove(u64::MAX - oldest, LeafNumber::NONE).unwrap();
        }
    }
    assert_eq!(fixture.check_structure().len(), 200);
    assert!(fixture.tree.leaf_count() <= 40, "{:?}", fixture.tree.stats());
}

#[test]
fn what_few_of_many_pairs_leave_is_small() {
    for (name, is_loaded) in [("loaded", true), ("inserted", false)] {
        let mut keys: Vec<u64> = (0..40_000).map(mix).collect();
        let fixture = if is_loaded {
            keys.sort_unstable();
            Fixture::loaded(8, 8_000, &keys)
        } else {
            let fixture = Fixture::new(8, 8_000);
            fixture.insert_all(&keys);
            fixture
        };
        keys.sort_unstable_by_key(|key| mix(key ^ 7));
        let (removed, kept) = keys.split_at(keys.len() * 95 / 100);
        for key in removed {
            fixture.tree.remove(*key, LeafNumber::NONE).unwrap();
        }
        assert_eq!(fixture.check_structure().len(), kept.len());
        let stats = fixture.tree.stats();
        assert_few_inner_nodes(&stats);
        let bytes_per_pair = stats.leaves * fixture.tree.slab().block_bytes() / stats.pairs;
        println!("{name}: {bytes_per_pair} B a pair, {stats:?}");
        assert!(bytes_per_pair <= 60, "{name}: {bytes_per_pair} B a pair, {stats:?}");
    }
}

/// A region full of pairs says so; the removal of neighbours gives room for any other keys.
#[test]
fn removed_neighbours_make_room_in_a_full_region() {
    let fixture = Fixture::new(8, 40);
    let full = (0..)
        .map(mix)
        .find_map(|key| fixture.tree.insert(key, &fixture.value(key, 1), LeafNumber::NONE).err())
        .expect("forty leaves end");
    assert!(matches!(full, WriteError::RegionFull { .. }), "{full}");
    let stored = fixture.check_structure();
    for key in &stored[..stored.len() / 2] {
        fixture.tree.remove(*key, LeafNumber::NONE).unwrap();
    }
    // Any other keys: half as many as there were, where the others are.
    let mut more = 0;
    for key in stored[stored.len() / 2..].iter().map(|key| key + 1).take(100) {
        fixture.insert(key);
        more += 1;
    }
    assert_eq!(fixture.check_structure().len(), stored.len() - stored.len() / 2 + more);
}

/// However many pairs are wanted, one call looks at few leaves, and the next goes on where it ended.
#[test]
fn a_scan_is_bounded_a_call() {
    let keys: Vec<u64> = (0..10_000).map(|key| 3 * key).collect();
    let fixture = Fixture::loaded(8, 1_000, &keys);
    let mut found = Vec::new();
    let (mut cursor, mut calls) = (Some(0), 0);
    while let Some(from) = cursor {
        let mut pairs = Pairs::default();
        pairs.reset(8);
        cursor = fixture.tree.scan(Direction::Ascending, from, usize::MAX, &mut pairs).unwrap();
        assert!(pairs.len() <= 256 * 16, "{} pairs in one call", pairs.len());
        found.extend((0..pairs.len()).map(|index| pairs.pair(index).key));
        calls += 1;
    }
    assert_eq!(found, keys);
    // Loaded leaves have twelve pairs.
    assert_eq!(calls, 10_000_usize.div_ceil(12).div_ceil(256));
    let mut pairs = Pairs::default();
    pairs.reset(8);
    assert_eq!(
        fixture.tree.scan(Direction::Ascending, 5, 0, &mut pairs),
        Ok(Some(5)),
        "nothing was wanted, nothing is known"
    );
    assert_eq!(
        fixture.tree.scan(Direction::Ascending, 5, 2, &mut pairs),
        Ok(Some(10)),
        "behind keys 6 and 9"
    );
}

/// One way to choose which keys come and go.
#[derive(Clone, Copy, Debug)]
enum Mix {
    /// Keys in a window that slides over the key space, up or down.
    Sliding { step: i64 },
    /// Any keys of a pool.
    Anywhere,
    /// The least keys go first: the first children of all levels.
    LeastFirst,
    /// Whole ranges go at once.
    Ranges,
}

const MIXES: [Mix; 5] =
    [Mix::Sliding { step: 3 }, Mix::Sliding { step: -3 }, Mix::Anywhere, Mix::LeastFirst, Mix::Ranges];
const WINDOW: u64 = 6_000;

/// A tree and the map that says what it holds.
struct Compared {
    fixture: Fixture,
    map: BTreeMap<u64, u32>,
    stamp: u32,
}

impl Compared {
    fn put(&mut self, key: u64) {
        self.stamp += 1;
        self.fixture.tree.put(key, &self.fixture.value(key, self.stamp), LeafNumber::NONE).unwrap();
        self.map.insert(key, self.stamp);
    }

    fn remove(&mut self, key: u64) {
        self.fixture.tree.remove(key, LeafNumber::NONE).unwrap();
        self.map.remove(&key);
    }

    /// One step of a mix: `grows` says whether more keys come or go.
    fn step(&mut self, mix_of_keys: Mix, at: u64, grows: bool, random: &mut SplitMix64) {
        let low = match mix_of_keys {
            Mix::Sliding { step } => (1_u64 << 40).wrapping_add_signed(at as i64 * step),
            _ => 1 << 40,
        };
        if random.below(10) < if grows { 8 } else { 2 } {
            return self.put(low + random.below(WINDOW));
        }
        match mix_of_keys {
            Mix::Sliding { .. } | Mix::LeastFirst => {
                if let Some((key, _)) = self.map.first_key_value() {
                    self.remove(*key);
                }
            }
            Mix::Anywhere => self.remove(low + random.below(WINDOW)),
            Mix::Ranges => {
                let from = low + random.below(WINDOW);
                let range: Vec<u64> = self.map.range(from..).take(20).map(|(key, _)| *key).collect();
                for key in range {
                    self.remove(key);
                }
            }
        }
    }

    fn check(&self) {
        assert!(self.fixture.check_structure().iter().eq(self.map.keys()));
        let mut pairs = Pairs::default();
        pairs.reset(self.fixture.value_bytes);
        self.fixture.scan(0, usize::MAX, &mut pairs);
        assert!(pairs.scan(0).map(|pair| (pair.key, stamp_of(pair.key, pair.value))).eq(self.map.clone()));
        let mut value = vec![0; self.fixture.value_bytes];
        for (key, stamp) in &self.map {
            self.fixture.tree.get(*key, &mut value).unwrap().expect("stored");
            assert_eq!(stamp_of(*key, &value), *stamp, "key {key}");
        }
        let stats = self.fixture.tree.stats();
        assert_few_inner_nodes(&stats);
        // Neighbours together have more than twelve pairs, or neither has few.
        assert!(stats.leaves <= stats.pairs / 4 + 2, "{stats:?}");
    }
}

#[test]
fn keys_that_come_and_go_agree_with_a_map_and_leave_no_space() {
    let mut random = SplitMix64::fresh();
    for value_bytes in [8, 24] {
        for mix_of_keys in MIXES {
            println!("{value_bytes} B, {mix_of_keys:?}");
            let fixture = Fixture::new(value_bytes, 3_000);
            let mut compared = Compared { fixture, map: BTreeMap::new(), stamp: 0 };
            for at in 0..60_000 {
                compared.step(mix_of_keys, at, at / 10_000 % 2 == 0, &mut random);
                if at % 5_000 == 4_999 {
                    compared.check();
                }
            }
            let rest: Vec<u64> = compared.map.keys().copied().collect();
            for key in rest {
                compared.remove(key);
            }
            compared.check();
            let stats = compared.fixture.tree.stats();
            assert!(stats.merges > 500, "{stats:?}");
            assert_eq!((stats.leaves, stats.inner_nodes), (1, 1), "{stats:?}");
        }
    }
}

/// Queues beside each other, each with its own thread: their leaves meet, and so do the nodes above.
#[test]
fn queues_beside_each_other_leave_no_space() {
    const QUEUES: u64 = 4;
    const LIVE: u64 = 400;
    let fixture = Fixture::new(8, 600);
    let shared = &fixture;
    thread::scope(|scope| {
        for queue in 0..QUEUES {
            scope.spawn(move || {
                let key = |place: u64| place * QUEUES + queue;
                for place in 0..50_000 {
                    shared.insert(key(place));
                    if let Some(oldest) = place.checked_sub(LIVE) {
                        shared.tree.remove(key(oldest), LeafNumber::NONE).unwrap();
                    }
                }
            });
        }
    });
    let keys = fixture.check_structure();
    assert_eq!(keys.len() as u64, QUEUES * LIVE);
    for key in keys {
        fixture.tree.remove(key, LeafNumber::NONE).unwrap();
    }
    let stats = fixture.tree.stats();
    assert_eq!((stats.pairs, stats.leaves, stats.inner_nodes), (0, 1, 1), "{stats:?}");
}

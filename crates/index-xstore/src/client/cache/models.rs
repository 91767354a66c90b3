//! Models of the shared cache: sessions read sub-models while others replace them, and take up a generation
//! while it is replaced.

use std::sync::Arc;

#[cfg(loom)]
use farsight_base::injected;
#[cfg(loom)]
use farsight_base::injection::assert_found;
use farsight_base::sync::model::{check, thread};
use farsight_model::{TrainOptions, train};
use farsight_protocol::{KeyKind, PoolPlace, RegionInfo, Space, TableDefinition, TableEngine, TableId};

use super::super::{Access, XClient};
use super::*;

/// A sub-model of two leaves that can be told apart from all others; their numbers are so far apart. Those of
/// neighbours stand in a line, others in lines.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Fetched(u32, u32);

const FORMS: [u32; 2] = [1, 2];

impl Fetched {
    fn record(self) -> SubModelRecord {
        SubModelRecord { base: u64::from(self.0), leaf_count: 2, ..SubModelRecord::default() }
    }

    fn leaves(self) -> [LeafNumber; 2] {
        [LeafNumber(self.0 << 8), LeafNumber(self.0 << 8 | self.1)]
    }

    fn entries(self) -> [u64; 2] {
        self.leaves().map(|leaf| TableEntry::new(leaf, 0, self.0 as u16).0)
    }
}

fn top() -> TopModel {
    train(&[0, 1 << 40], TrainOptions::default()).expect("two leaves").top
}

fn new_model() -> Arc<Generation> {
    let mut model = Generation::new(1, top(), 2).expect("memory");
    model.own_lines = OwnLines::new(2).expect("memory");
    model.places = (0..2).map(|_| AtomicU32::new(0)).collect();
    Arc::new(model)
}

fn put(model: &Generation, index: u32, fetched: Fetched) {
    model.put(index, &fetched.record(), &fetched.entries());
}

/// A session sees sub-models as some installer wrote them, never half empty: each leaf is of the sub-model,
/// or of one that got the block later.
fn sub_models_are_seen_written(form: u32) {
    let model = new_model();
    put(&model, 0, Fetched(1, form));
    let filled = Arc::clone(&model);
    let installer = thread::spawn(move || {
        put(&filled, 0, Fetched(2, form));
        // The first one's block is used again; a line is taken for the first time.
        put(&filled, 1, Fetched(3, form));
    });
    let known = [1, 2, 3].map(|fetched| Fetched(fetched, form).leaves());
    assert!(model.sub_model(0).is_some(), "it was there from the beginning");
    for read in [0, 1, 0].into_iter().filter_map(|index| model.sub_model(index)) {
        // Looks at the hints, too.
        let likeliest = read.likeliest(5);
        assert_eq!(read.leaf_count(), 2, "a block stays one for two leaves");
        for position in 0..2 {
            let leaf = read.leaf(position);
            assert!(known.iter().any(|leaves| leaves[position as usize] == leaf), "{leaf} at {position}");
        }
        assert!(known.concat().contains(&likeliest), "{likeliest} is of none");
    }
    installer.join().unwrap();
    for (index, last) in [(0, Fetched(2, form)), (1, Fetched(3, form))] {
        let read = model.sub_model(index).expect("nobody writes any more");
        assert_eq!([0, 1].map(|position| read.leaf(position)), last.leaves());
    }
}

/// Two sessions that fetched at the same time: one after the other is installed, no block is lost.
fn installers_take_turns(form: u32) {
    let model = new_model();
    let filled = Arc::clone(&model);
    let installer = thread::spawn(move || put(&filled, 0, Fetched(1, form)));
    put(&model, 0, Fetched(2, form));
    installer.join().unwrap();
    let read = model.sub_model(0).expect("two were installed");
    let leaves = [0, 1].map(|position| read.leaf(position));
    assert!(
        [Fetched(1, form), Fetched(2, form)].iter().any(|fetched| fetched.leaves() == leaves),
        "{leaves:?}"
    );
    let filled = model.filled();
    assert_eq!(filled.sub_models, 1);
    assert_eq!(filled.in_own_lines + model.arena.live_lines() as u64, 1, "a block is lost");
}

/// A session that hears of a generation finds it; generations only grow.
fn a_session_takes_up_generations_in_order() {
    let definition = TableDefinition::new("t", KeyKind::U64, 8);
    let table = TableInfo {
        id: TableId(0),
        definition,
        engine: TableEngine::XStore { boundaries: Vec::new() },
        block_lines: 7,
        format_version: 1,
        place: PoolPlace { epochs: vec![1], index: 0 },
        regions: vec![RegionInfo { space: Space::Leaves, id: 0, capacity: 4 }],
    };
    let cache = XCache::new(&table, 1 << 20).expect("values of 8 B");
    cache.install(1, top()).expect("a model of few sub-models");
    let shared = Arc::clone(&cache);
    let installers = [2, 3].map(|generation| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || shared.install(generation, top()).expect("as the first"))
    });
    let mut session = XClient::new(Arc::clone(&cache), Access::OneSided);
    let mut before = 1;
    for _ in 0..2 {
        let heard = cache.generation();
        session.pin();
        let pinned = session.model.as_ref().expect("the first was there").generation();
        assert!(pinned >= heard && pinned >= before, "{pinned} after {before}, heard of {heard}");
        before = pinned;
    }
    for installer in installers {
        installer.join().unwrap();
    }
    session.pin();
    assert_eq!(session.model.as_ref().map(|model| model.generation()), Some(3));
}

#[test]
fn sessions_read_what_was_installed() {
    for form in FORMS {
        check(3, move || sub_models_are_seen_written(form));
        check(3, move || installers_take_turns(form));
    }
}

#[test]
fn generations_are_swapped_whole() {
    check(3, a_session_takes_up_generations_in_order);
}

/// Shuttle's memory knows no orderings.
#[cfg(loom)]
#[test]
fn each_ordering_of_the_cache_is_needed() {
    for bug in [&injected::ACQUIRE_LOADS, &injected::RELEASE_STORES] {
        for form in FORMS {
            assert_found(bug, || check(2, move || sub_models_are_seen_written(form)));
        }
    }
}

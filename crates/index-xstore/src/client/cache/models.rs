//! Models of the shared cache: sessions read sub-models while others replace them, and take up a generation
//! while it is replaced.

use std::sync::Arc;

#[cfg(loom)]
use farsight_base::injected as orderings;
use farsight_base::injection::assert_found;
use farsight_base::sync::model::{check, thread};
use farsight_index::EngineKind;
use farsight_model::{TrainOptions, train};
use farsight_protocol::{KeyKind, PoolPlace, RegionInfo, Space, TableDefinition, TableId};

use super::super::{Access, XClient};
use super::*;
use crate::client::arena::CHUNK_LINES;
use crate::client::block::CachedSubModel;
use crate::client::own_lines::OwnLines;
use crate::injected;
use farsight_layout::SubModelRecord;

/// Words of a session's stack: its scratch memory comes by there.
const STACK_WORDS: usize = 1 << 17;

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
        self.leaves().map(|leaf| TableEntry::new(leaf, self.0 as u16).0)
    }
}

fn top() -> TopModel {
    train(&[0, 1 << 40], TrainOptions::default()).expect("two leaves").top
}

/// A region's leaves: more than any number of [`Fetched`], and less than its greatest hint.
const LEAVES: u64 = 1 << 10;

/// A generation with two of the top model's numbers.
fn new_model() -> Arc<Generation> {
    let mut model = Generation::new(1, top(), LEAVES, 2, u64::MAX).expect("memory");
    model.own_lines = OwnLines::new(2).expect("memory");
    model.places = (0..2).map(|_| AtomicU32::new(0)).collect();
    Arc::new(model)
}

fn sub_model(model: &Generation, number: u32) -> Option<CachedSubModel<'_>> {
    model.at(model.place(number))
}

fn put(model: &Generation, index: u32, fetched: Fetched) {
    model.put(index, &fetched.record(), &fetched.entries());
}

/// A sub-model of five leaves, whose hints stand where one of two leaves has its leaves' numbers.
fn put_of_five(model: &Generation, number: u32) {
    let record = SubModelRecord { leaf_count: 5, ..SubModelRecord::default() };
    let entries = [3, 9, 4, 8, 5].map(|leaf| TableEntry::new(LeafNumber(leaf), u16::MAX).0);
    model.put(number, &record, &entries);
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
    assert!(sub_model(&model, 0).is_some(), "it was there from the beginning");
    for read in [0, 1, 0].into_iter().filter_map(|index| sub_model(&model, index)) {
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
        let read = sub_model(&model, index).expect("nobody writes any more");
        assert_eq!([0, 1].map(|position| read.leaf(position)), last.leaves());
    }
}

/// A session may hold a block that is given to a sub-model of another length: what it takes for leaves'
/// numbers are hints by then. Wherever that leads is in the region.
fn a_block_of_another_length_leads_nowhere_else() {
    let model = new_model();
    put(&model, 0, Fetched(1, 2));
    let filled = Arc::clone(&model);
    let installer = thread::spawn(move || {
        put(&filled, 0, Fetched(2, 2));
        put_of_five(&filled, 1);
    });
    for read in [0, 0].into_iter().filter_map(|number| sub_model(&model, number)) {
        let leaves = (0..read.leaf_count()).map(|position| read.leaf(position));
        for leaf in leaves {
            assert!(u64::from(leaf.0) < LEAVES, "{leaf} is none of the region's");
        }
    }
    installer.join().unwrap();
}

/// A budget has room for two blocks of a line. What comes in drives one out that a session is in: the session
/// finds nothing there, or goes on in the block, which is another's by then.
fn what_is_read_may_be_driven_out() {
    let mut model = Generation::new(1, top(), LEAVES, 2, 0).expect("memory");
    model.places = (0..3).map(|_| AtomicU32::new(0)).collect();
    model.own_lines = OwnLines::none(3).expect("memory");
    assert!(model.arena.set_lines_max(CHUNK_LINES));
    let model = Arc::new(model);
    put(&model, 0, Fetched(1, 2));
    put(&model, 1, Fetched(2, 2));
    let filled = Arc::clone(&model);
    let installer = thread::spawn(move || put_of_five(&filled, 2));
    for _ in 0..2 {
        let Some(read) = model.at(model.locate(0).place) else { continue };
        for leaf in (0..read.leaf_count()).map(|position| read.leaf(position)) {
            assert!(u64::from(leaf.0) < LEAVES, "{leaf} is none of the region's");
        }
    }
    installer.join().unwrap();
    assert_eq!((model.filled().sub_models, model.arena.live_lines()), (2, 2), "one was driven out");
}

/// Two sessions that fetched at the same time: one after the other is installed, no block is lost.
fn installers_take_turns(form: u32) {
    let model = new_model();
    let filled = Arc::clone(&model);
    let installer = thread::spawn(move || put(&filled, 0, Fetched(1, form)));
    put(&model, 0, Fetched(2, form));
    installer.join().unwrap();
    let read = sub_model(&model, 0).expect("two were installed");
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
        engine: EngineKind::XSTORE.table(&[], 1),
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
    let session = thread::Builder::new().stack_size(STACK_WORDS).spawn(move || {
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
    });
    session.expect("a thread").join().unwrap();
}

#[test]
fn sessions_read_what_was_installed() {
    for form in FORMS {
        check(3, move || sub_models_are_seen_written(form));
        check(3, move || installers_take_turns(form));
    }
}

#[test]
fn blocks_are_given_to_sub_models_of_any_length() {
    check(2, a_block_of_another_length_leads_nowhere_else);
    let bug = &injected::REUSED_BLOCK_TRUSTED;
    assert_found(bug, || check(2, a_block_of_another_length_leads_nowhere_else));
}

#[test]
fn what_a_budget_drives_out_leads_nowhere_else() {
    check(2, what_is_read_may_be_driven_out);
    let bug = &injected::REUSED_BLOCK_TRUSTED;
    assert_found(bug, || check(2, what_is_read_may_be_driven_out));
}

#[test]
fn generations_are_swapped_whole() {
    check(3, a_session_takes_up_generations_in_order);
}

/// Shuttle's memory knows no orderings.
#[cfg(loom)]
#[test]
fn each_ordering_of_the_cache_is_needed() {
    for bug in [&orderings::ACQUIRE_LOADS, &orderings::RELEASE_STORES] {
        for form in FORMS {
            assert_found(bug, || check(2, move || sub_models_are_seen_written(form)));
        }
    }
}

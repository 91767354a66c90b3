//! Models of the shared cache: sessions read records and table entries while others replace them, and take
//! up a generation while it is replaced.

use std::sync::Arc;

use farsight_base::sync::model::{check, thread};
#[cfg(loom)]
use farsight_base::sync::planted::{Bug, assert_found};
use farsight_model::{TrainOptions, train};
use farsight_protocol::{KeyKind, TableDefinition, TableId};

use super::super::{Access, XClient};
use super::*;

/// A sub-model of two leaves that can be told apart from all others, in its table as in its record.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Fetched(u64);

impl Fetched {
    fn record(self) -> SubModelRecord {
        SubModelRecord { base: self.0, slope: self.0 as f32, leaf_count: 2, ..SubModelRecord::default() }
    }

    fn entries(self) -> [u64; 2] {
        [self.0 << 8, self.0 << 8 | 1]
    }

    /// What a session has read, which must be one sub-model's.
    fn of(read: &CachedSubModel) -> Self {
        let fetched = Self(read.model.base);
        assert_eq!(read.model, model_of(&fetched.record()), "a torn record");
        fetched
    }
}

fn top() -> TopModel {
    train(&[0, 1 << 40], TrainOptions::default()).expect("two leaves").top
}

fn new_model() -> Arc<CachedModel> {
    let mut model = CachedModel::new(1, top(), 2);
    // Two sub-models share a line.
    model.lines = Box::new([RecordLine(std::array::from_fn(|_| AtomicU64::new(0)))]);
    Arc::new(model)
}

fn put(model: &CachedModel, index: u32, fetched: Fetched) {
    model.put(index, &fetched.record(), &fetched.entries());
}

/// A session sees whole records, each with its own block; in the block stand entries of the sub-model, or of
/// one that got the block later.
fn records_are_swapped_whole() {
    let model = new_model();
    put(&model, 0, Fetched(1));
    let filled = Arc::clone(&model);
    let installer = thread::spawn(move || {
        put(&filled, 0, Fetched(2));
        // The first one's block is used again, for a neighbour in the same line.
        put(&filled, 1, Fetched(3));
    });
    for _ in 0..2 {
        let Some(read) = model.sub_model(0) else { continue };
        let fetched = Fetched::of(&read);
        let window = model.window(&read, &(0..2));
        for index in 0..2 {
            let entry = window.entry(index).0;
            let later = if fetched == Fetched(1) { Fetched(3) } else { fetched };
            let known = [fetched, later].map(|one| one.entries()[index as usize]);
            assert!(known.contains(&entry), "entry {index} of {fetched:?} is {entry:#x}");
        }
    }
    installer.join().unwrap();
    for (index, last) in [(0, Fetched(2)), (1, Fetched(3))] {
        let read = model.sub_model(index).expect("nobody writes any more");
        let window = model.window(&read, &(0..2));
        let entries = [0, 1].map(|index| window.entry(index).0);
        assert_eq!((Fetched::of(&read), entries), (last, last.entries()));
    }
}

/// Two sessions that fetched at the same time: one after the other is installed, no block is lost.
fn installers_take_turns() {
    let model = new_model();
    let filled = Arc::clone(&model);
    let installer = thread::spawn(move || put(&filled, 0, Fetched(1)));
    put(&model, 0, Fetched(2));
    installer.join().unwrap();
    let read = model.sub_model(0).expect("two were installed");
    Fetched::of(&read);
    assert_eq!(*model.filled.lock().unwrap(), 1);
    assert_eq!(model.arena.live_bytes(), 8 * 2, "a block is lost");
}

/// A session that hears of a generation finds it; generations only grow.
fn a_session_takes_up_generations_in_order() {
    let definition = TableDefinition { name: "t".into(), key_kind: KeyKind::U64, value_bytes: 8 };
    let table =
        TableInfo { id: TableId(0), definition, format_version: 1, leaf_region: 0, capacity_leaves: 4 };
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
    check(3, records_are_swapped_whole);
    check(3, installers_take_turns);
}

#[test]
fn generations_are_swapped_whole() {
    check(3, a_session_takes_up_generations_in_order);
}

/// Shuttle's memory knows no orderings.
#[cfg(loom)]
#[test]
fn each_ordering_of_the_cache_is_needed() {
    for bug in [Bug::AcquireFences, Bug::ReleaseFences, Bug::ReleaseStores] {
        assert_found(bug, || check(2, records_are_swapped_whole));
    }
}

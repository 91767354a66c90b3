//! Models of what the sessions of a process share. One of them puts in groups and directories while others
//! predict. Several find synonyms, and find them to be none, at once.

use std::sync::Arc;

use farsight_base::RegionId;
use farsight_base::injection::assert_found;
use farsight_base::sync::model::{check, thread};
use farsight_index::Direction;
use farsight_layout::learned::{DirectorySlot, GroupTime};
use farsight_layout::pool::BlockGeometry;

use super::*;
use crate::LeafPlace;
use crate::injected;
use crate::walk::FoundLeaf;

fn place(number: u32) -> LeafPlace {
    LeafPlace::new(0, number).expect("a small number")
}

fn new_cache() -> Arc<RolexCache> {
    let geometry = BlockGeometry::new(8).expect("values of 8 B");
    let table = PoolTable::new(geometry, &[(RegionId(0), 100 * geometry.bytes() as u64)]);
    RolexCache::new(table, MetaRegion { region: RegionId(1), lines: 100 })
}

/// A session finds a leaf.
fn note(session: &CacheSession, group: GroupId, low: u64, place: LeafPlace) {
    session.note_found(group, [FoundLeaf { steps: 1, low, place }].into_iter());
}

/// A group of two leaves, whose places say which generation it is of.
fn group(generation: u32) -> Group {
    let first = 10 * generation;
    Group::train(GroupTime { generation, splits: 0 }, &[(0, place(first)), (1 << 40, place(first + 1))])
}

fn directory(number: u32) -> Directory {
    Directory { number, capacity: 8, boundaries: vec![0], slots: vec![DirectorySlot::default()] }
}

/// The generation that a session sees: the same in both leaves, and never an older one than before.
fn seen(session: &CacheSession) -> u32 {
    let leaf = |key| session.predict(key).expect("a group is there").leaves()[0].number();
    let [low, high] = [leaf(0), leaf(1 << 41)];
    assert!(high / 10 >= low / 10 && low % 10 == 0 && high % 10 == 1, "leaves {low} and {high}");
    high / 10
}

/// Sessions see whole groups, and newer ones only.
fn groups_are_swapped_whole() {
    let cache = new_cache();
    cache.directory().install(0, GroupPointer::default(), group(2));
    let installers = [3, 4].map(|generation| {
        let cache = Arc::clone(&cache);
        thread::spawn(move || cache.directory().install(0, GroupPointer::default(), group(generation)))
    });
    let session = CacheSession::new(Arc::clone(&cache));
    let mut before = 2;
    for _ in 0..2 {
        let now = seen(&session);
        assert!(now >= before, "generation {now} after {before}");
        before = now;
    }
    for installer in installers {
        installer.join().unwrap();
    }
    assert_eq!([seen(&session), seen(&CacheSession::new(cache))], [4, 4]);
}

/// No synonym that two sessions find at once is lost, nor one that is found while a group is put in.
fn synonyms_are_all_kept() {
    let cache = new_cache();
    cache.directory().install(0, GroupPointer::default(), group(2));
    let id = GroupId { directory: 0, group: 0 };
    let finders = [(50, 70), (60, 80)].map(|(number, low)| {
        let cache = Arc::clone(&cache);
        thread::spawn(move || note(&CacheSession::new(cache), id, low, place(number)))
    });
    cache.directory().install(0, GroupPointer::default(), group(3));
    for finder in finders {
        finder.join().unwrap();
    }
    let session = CacheSession::new(cache);
    for (key, number) in [(0, 30), (70, 50), (79, 50), (80, 60), (1 << 40, 31)] {
        assert_eq!(session.predict(key).expect("a group is there").leaves(), [place(number)], "key {key}");
    }
}

/// The range that a session predicts from key 0 on: the places, by number.
fn range(session: &CacheSession) -> Vec<u32> {
    let mut leaves = Vec::new();
    session.predict_range(Direction::Ascending, 0, 10, &mut leaves);
    leaves.into_iter().map(LeafPlace::number).collect()
}

/// A session that begins after a synonym was forgotten does not see it again, though another is found, and a
/// group put in, meanwhile. None of these is lost.
fn the_forgotten_stay_forgotten() {
    let cache = new_cache();
    cache.directory().install(0, GroupPointer::default(), group(2));
    let id = GroupId { directory: 0, group: 0 };
    let session = CacheSession::new(Arc::clone(&cache));
    note(&session, id, 70, place(50));
    assert_eq!(range(&session), [20, 50, 21]);
    let forgetful = CacheSession::new(Arc::clone(&cache));
    let finder = CacheSession::new(Arc::clone(&cache));
    let others = [
        thread::spawn(move || forgetful.forget_synonym(70, place(50))),
        thread::spawn(move || note(&finder, id, 80, place(60))),
    ];
    cache.directory().install(0, GroupPointer::default(), group(3));
    for other in others {
        other.join().unwrap();
    }
    assert_eq!(range(&session), [30, 60, 31]);
}

/// A range is of one group and its synonyms: in key order, none twice, and never older than one before.
fn ranges_are_of_one_group() {
    let cache = new_cache();
    cache.directory().install(0, GroupPointer::default(), group(2));
    let id = GroupId { directory: 0, group: 0 };
    let (installed, found) = (Arc::clone(&cache), CacheSession::new(Arc::clone(&cache)));
    let others = [
        thread::spawn(move || installed.directory().install(0, GroupPointer::default(), group(3))),
        thread::spawn(move || note(&found, id, 70, place(50))),
    ];
    let session = CacheSession::new(cache);
    let steps = [vec![20, 21], vec![20, 50, 21], vec![30, 31], vec![30, 50, 31]];
    let mut before: Vec<u32> = Vec::new();
    for _ in 0..2 {
        let now = range(&session);
        assert!(steps.contains(&now), "{now:?} is of no group");
        let is_newer = now[0] >= before.first().copied().unwrap_or_default();
        assert!(is_newer && (now.contains(&50) || !before.contains(&50)), "{now:?} after {before:?}");
        before = now;
    }
    for other in others {
        other.join().unwrap();
    }
    assert_eq!(range(&session), [30, 50, 31]);
}

/// A session takes up a directory whole, and goes on with the one it has until then.
fn directories_are_taken_up_in_order() {
    let cache = new_cache();
    let installers = [1, 2].map(|number| {
        let cache = Arc::clone(&cache);
        thread::spawn(move || cache.install_directory(number, &directory(number)))
    });
    let session = CacheSession::new(Arc::clone(&cache));
    let mut before = 0;
    for _ in 0..2 {
        let heard = cache.number();
        let now = session.directory();
        assert_eq!(now.line, now.number, "the directory is one");
        assert!(u64::from(now.number) >= heard && now.number >= before, "{} after {before}", now.number);
        before = now.number;
    }
    for installer in installers {
        installer.join().unwrap();
    }
    assert_eq!(session.directory().number, 2);
}

#[test]
fn what_sessions_share_is_swapped_whole() {
    check(3, groups_are_swapped_whole);
    check(2, synonyms_are_all_kept);
    check(3, directories_are_taken_up_in_order);
}

#[test]
fn synonyms_and_ranges_are_of_one_moment() {
    check(2, the_forgotten_stay_forgotten);
    check(2, ranges_are_of_one_group);
}

#[test]
fn the_lock_of_a_group_is_needed() {
    assert_found(&injected::CHANGED_UNLOCKED, || check(2, synonyms_are_all_kept));
    assert_found(&injected::CHANGED_UNLOCKED, || check(2, the_forgotten_stay_forgotten));
}

/// loom forgets the load of a version that others have loaded since.
#[cfg(shuttle)]
#[test]
fn the_version_of_a_group_is_taken_with_its_content() {
    for model in [groups_are_swapped_whole, ranges_are_of_one_group] {
        assert_found(&injected::VERSION_TAKEN_LATE, || check(2, model));
    }
}

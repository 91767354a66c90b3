//! Every write of a leaf, stopped after every word that it stores. A session that repairs the leaf finds the
//! pairs that stood there before or those after. A reader takes each line at its own moment meanwhile, and
//! each of its words at one of their own. It finds what was there at some moment of the READ.

mod reader;
mod world;

use farsight_base::prng::SplitMix64;
use farsight_layout::pool::{BlockSearch, search_block};
use farsight_layout::{KEY_LINES, LEAF_SLOTS};
use farsight_protocol::WriteOperation;
use world::{Change, Model, World};

/// Changes of a table with short values; of others, a third.
const ROUNDS: usize = 300;

/// Of the injected bugs, which must be found in each run.
#[cfg(injected)]
const SEED: u64 = 0xf6;
/// Value sizes of each shape: four, two and one to a line, several lines.
const VALUE_SIZES: [usize; 5] = [8, 16, 24, 56, 217];

#[cfg(injected)]
#[test]
fn a_slot_that_is_used_again_is_found() {
    // Three runs in ten draw no repairer that stumbles over it.
    let test = || (0..50).for_each(|_| a_slot_is_not_used_twice_though_a_repair_lies_between());
    farsight_base::injection::assert_found(&farsight_layout::injected::UNSHOWN_CLEARED, test);
}

#[cfg(injected)]
#[test]
fn journals_that_lack_and_leaves_that_open_early_are_found() {
    use farsight_layout::injected::{BORN_OPENED_EARLY, JOURNAL_CLEARED_EARLY, JOURNAL_MISSING};
    for bug in [&JOURNAL_MISSING, &JOURNAL_CLEARED_EARLY, &BORN_OPENED_EARLY] {
        let test = || {
            every_cut_is_repaired(8, ROUNDS, &mut SplitMix64::new(SEED));
        };
        farsight_base::injection::assert_found(bug, test);
    }
}

/// Applies each prefix of a change, repairs, and compares; then goes on, now and then with a repaired leaf.
/// Returns how many leaves were merged.
fn every_cut_is_repaired(value_bytes: usize, rounds: usize, random: &mut SplitMix64) -> u32 {
    let (mut world, mut model) = (World::new(value_bytes), Model::default());
    let (mut undone, mut done, mut merges) = (0, 0, 0);
    for round in 0..rounds {
        let change = world.random_change(random, &model, world::is_shrinking(round));
        let (stores, outcome) = world.plan(&change, random);
        merges += u32::from(outcome.is_none());
        let mut after = model.clone();
        world::apply(&mut after, &change, outcome);
        let stopped = random.below(stores.len() as u64 + 1) as usize;
        let closed_before = world.closed();
        let mut next = None;
        for cut in 0..=stores.len() {
            let mut crashed = world.clone();
            crashed.store(&stores[..cut]);
            crashed.repair(random);
            let (chain, closed) = (crashed.chain(), crashed.closed());
            let is_right = |block: &usize| chain.contains(block) || closed.contains(block);
            assert!(closed_before.iter().all(is_right), "round {round}: open and in no chain at {cut}");
            let found = crashed.pairs();
            let (is_before, is_after) = (found == model.pairs, found == after.pairs);
            let is_right = is_before && cut < stores.len() || is_after && cut > 0;
            assert!(is_right, "round {round}, {change:?} stopped at {cut} of {}", stores.len());
            undone += u32::from(!is_after);
            done += u32::from(!is_before && cut < stores.len());
            if cut == stopped {
                next = Some((crashed, if is_before { model.clone() } else { after.clone() }));
            }
        }
        if random.below(4) == 0 {
            (world, model) = next.expect("one of the cuts");
        } else {
            world.store(&stores);
            model = after;
        }
        world.log.clear();
    }
    assert!(undone > 100 && done > 20, "{undone} undone, {done} done by others");
    merges
}

#[test]
fn a_write_stopped_anywhere_is_done_or_not_done() {
    let (mut merges, mut random) = (0, SplitMix64::fresh());
    for value_bytes in VALUE_SIZES {
        let rounds = if value_bytes == 8 { ROUNDS } else { ROUNDS / 3 };
        merges += every_cut_is_repaired(value_bytes, rounds, &mut random);
    }
    // One run in a hundred draws no merge so far.
    for _ in 0..20 {
        if merges == 0 {
            merges += every_cut_is_repaired(8, ROUNDS, &mut random);
        }
    }
    assert!(merges > 0, "no leaf was merged");
}

#[test]
fn readers_find_what_was_there_at_some_moment_of_the_read() {
    let mut random = SplitMix64::fresh();
    for value_bytes in VALUE_SIZES {
        reader::reads_at_many_moments(value_bytes, &mut random);
    }
}

/// A slot whose insert died behind a compaction is not given to another key under the same incarnation. A
/// READ that has the value's line from before the repair, and the key's from after, would mix the two.
#[test]
fn a_slot_is_not_used_twice_though_a_repair_lies_between() {
    for value_bytes in VALUE_SIZES {
        let random = &mut SplitMix64::fresh();
        let change = |operation, key| Change::Write { operation, key, value: vec![key as u8; value_bytes] };
        let insert = |key| change(WriteOperation::Insert, key);
        let mut world = World::new(value_bytes);
        let keys = 0..LEAF_SLOTS as u64;
        let removed = keys.clone().take(LEAF_SLOTS / 2 + 1).map(|key| change(WriteOperation::Remove, key));
        for change in keys.map(insert).chain(removed) {
            let (stores, _) = world.plan(&change, random);
            world.store(&stores);
        }
        let (dying, next) = (70, 80);
        let (stores, _) = world.plan(&insert(dying), random);
        let mut hits = 0;
        for cut in 0..=stores.len() {
            let mut crashed = world.clone();
            crashed.store(&stores[..cut]);
            let before = crashed.lines(0);
            crashed.repair(random);
            let (stores, _) = crashed.plan(&insert(next), random);
            crashed.store(&stores);
            let leaf_lines = crashed.geometry.leaf().leaf_lines();
            let mut lines = crashed.lines(0);
            lines.truncate(leaf_lines);
            lines[KEY_LINES..].copy_from_slice(&before[KEY_LINES..leaf_lines]);
            let mut value = vec![0; value_bytes];
            if let BlockSearch::Hit(_) = search_block(&crashed.geometry, &lines, next, &mut value) {
                assert_eq!(value, vec![next as u8; value_bytes], "stopped at {cut}: the value of {dying}");
                hits += 1;
            }
        }
        assert_eq!(hits, 0, "the value was not there yet");
    }
}

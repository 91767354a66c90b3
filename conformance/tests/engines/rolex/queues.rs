//! A table that is filled at one end and emptied at the other takes no more memory however long that goes on.
//! Trainers put shrunk groups together, the leaves at which those began go back, and directories stand where
//! directories stood.

use farsight::{Access, WriteOperation};
use farsight_base::prng::SplitMix64;
use farsight_conformance::engine::model::{Model, random_value};
use farsight_conformance::engine::raw_pool::{RawPool, RawPoolTable};
use farsight_conformance::engine::{EngineUnderTest as _, Seed, TableUnderTest};
use farsight_conformance::fabric::shm::Shm;
use farsight_index_rolex::GroupSizes;
use farsight_oracles::{EightBytes, Identity};

type Session = <RawPoolTable<Shm> as TableUnderTest>::Session;

/// Pairs of a leaf, at least, as splits leave it.
const PAIRS_PER_LEAF: usize = 8;
/// Leaves that sessions keep for splits to come, at most.
const KEPT_LEAVES: usize = 150;
/// Pairs in the queue, at most; they come and go by so many.
const HELD: u64 = 24_000;
const AT_ONCE: u64 = 4_000;
/// How often as many leave it as are in it: thirty groups' worth of leaves, and more.
const PASSES: u64 = 12;

/// Groups at most of a table that nobody writes, whose images name so many leaves. Two neighbours have more
/// than one group's leaves, unless all that could be put together save too few groups. An image has room for
/// a line more.
fn groups_max(leaves: usize) -> usize {
    let sizes = GroupSizes::USUAL;
    let needed = 2 * (leaves + leaves / 8) / sizes.leaves + 1;
    needed + sizes.saved_min.max(needed / 7 + 1)
}

fn change(model: &mut Model, session: &mut Session, operation: WriteOperation, keys: std::ops::Range<u64>) {
    let mut random = SplitMix64::new(keys.start);
    let mut value = || if operation.has_value() { random_value(&mut random, 8) } else { Vec::new() };
    let entries: Vec<(Identity, Vec<u8>)> = keys.map(|key| (Identity(key), value())).collect();
    model.write(session, operation, &entries, false);
}

#[test]
fn a_queue_takes_no_more_memory_however_long_it_runs() {
    let seed = Seed::new("queues");
    let mut random = seed.random(0);
    let pool = RawPool::start([Shm::new(), Shm::new()], 8 << 20);
    let table = pool.table(8);
    let [mut session, mut old] = [(); 2].map(|()| table.session(Access::OneSided));
    let mut model = Model::new(EightBytes::Plain);
    change(&mut model, &mut session, WriteOperation::Put, 0..HELD);
    table.await_training();
    model.check_all(&mut old);
    let leaves_max = HELD as usize / PAIRS_PER_LEAF + 1;
    let (mut lines, mut leaves_most, mut groups_most) = (0, 0, 0);
    for first in (0..PASSES * HELD).step_by(AT_ONCE as usize) {
        change(&mut model, &mut session, WriteOperation::Remove, first..first + AT_ONCE);
        change(&mut model, &mut session, WriteOperation::Put, first + HELD..first + HELD + AT_ONCE);
        table.await_training();
        let (leaves, (_, groups)) = (table.leaves_in_use(), table.directory());
        leaves_most = leaves_most.max(leaves);
        groups_most = groups_most.max(groups);
        assert!(leaves <= leaves_max + groups + KEPT_LEAVES, "at {first}: {leaves} leaves");
        assert!(groups <= groups_max(leaves_max), "at {first}: {groups} groups");
        if first == PASSES * HELD / 2 {
            lines = table.lines_in_use();
            // A compute node that has slept since the beginning.
            model.check_scans(&mut old, &[(Identity::MIN, 50), (Identity(first + HELD / 2), 50)]);
            let asked: Vec<Identity> = (0..300).map(|_| Identity(first + random.below(2 * HELD))).collect();
            model.check_multi_get(&mut old, &asked);
        }
    }
    println!("{leaves_most} leaves, {groups_most} groups, {} directories", table.directory().0);
    assert_eq!(table.lines_in_use(), lines, "lines of images and directories");
    model.check_all(&mut session);
    model.check_all(&mut old);
    let end = PASSES * HELD;
    change(&mut model, &mut session, WriteOperation::Remove, end..end + HELD);
    table.await_training();
    assert!(table.directory().1 <= groups_max(0), "{} groups of an empty table", table.directory().1);
    model.check_all(&mut old);
    change(&mut model, &mut old, WriteOperation::Put, 0..AT_ONCE);
    model.check_all(&mut session);
}

#[test]
fn a_table_that_is_emptied_has_few_groups() {
    const KEYS: u64 = 100_000;
    let pool = RawPool::start([Shm::new(), Shm::new(), Shm::new()], 8 << 20);
    let table = pool.table(8);
    let [mut session, mut old] = [(); 2].map(|()| table.session(Access::OneSided));
    let mut model = Model::new(EightBytes::Plain);
    for round in 0..2 {
        for first in (0..KEYS).step_by(AT_ONCE as usize) {
            change(&mut model, &mut session, WriteOperation::Put, first..first + AT_ONCE);
            table.await_training();
        }
        let (_, groups) = table.directory();
        assert!(groups > groups_max(0), "{groups} groups");
        if round == 0 {
            model.check_all(&mut old);
        }
        change(&mut model, &mut session, WriteOperation::Remove, 0..KEYS);
        table.await_training();
        let (number, groups) = table.directory();
        println!("{groups} groups, {number} directories, {} leaves", table.leaves_in_use());
        assert!(groups <= groups_max(0), "{groups} groups");
    }
    model.check_all(&mut session);
    model.check_all(&mut old);
}

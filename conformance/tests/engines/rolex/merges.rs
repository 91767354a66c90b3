//! Leaves that lose their last pair go back to their memory nodes. They do so under readers, scans and
//! inserts beside, and though the trainer that merges them dies between any two of its changes.

use std::time::{Duration, Instant};

use farsight::{Access, WriteOperation};
use farsight_base::prng::SplitMix64;
use farsight_conformance::engine::dying::{DyingQueue, Lifetime, Stop};
use farsight_conformance::engine::model::{Model, random_value};
use farsight_conformance::engine::raw_pool::{MORTAL, RawPool, RawPoolTable};
use farsight_conformance::engine::{EngineUnderTest as _, Seed, TableUnderTest};
use farsight_conformance::fabric::shm::Shm;
use farsight_index_rolex::{ComputeNodeLocks, GroupSizes};
use farsight_oracles::{EightBytes, Identity};

/// Groups so small that a small table has many.
const SMALL_GROUPS: GroupSizes = GroupSizes { leaves: 12, saved_min: 2 };

/// Leaves that sessions keep for splits to come, at most, in each of these tests.
const KEPT_LEAVES: usize = 150;

/// How long one waits for a lock before it is clear that it does: far less than a lease.
const LOCK_WAIT: Duration = Duration::from_millis(10);

type Session = <RawPoolTable<Shm> as TableUnderTest>::Session;

fn put(model: &mut Model, session: &mut Session, keys: impl Iterator<Item = u64>, random: &mut SplitMix64) {
    let entries: Vec<(Identity, Vec<u8>)> =
        keys.map(|key| (Identity(key), random_value(random, 8))).collect();
    model.write(session, WriteOperation::Put, &entries, false);
}

fn remove(model: &mut Model, session: &mut Session, keys: impl Iterator<Item = u64>) {
    let entries: Vec<(Identity, Vec<u8>)> = keys.map(|key| (Identity(key), Vec::new())).collect();
    model.write(session, WriteOperation::Remove, &entries, false);
}

#[test]
fn what_is_emptied_goes_back_and_is_used_again() {
    const KEYS: u64 = 6_000;
    const STEP: u64 = 1 << 40;
    let seed = Seed::new("what is emptied goes back");
    let mut random = seed.random(0);
    let pool = RawPool::start([Shm::new(), Shm::new(), Shm::new()], 2 << 20);
    let table = pool.table(8);
    let [mut session, mut old] = [(); 2].map(|()| table.session(Access::OneSided));
    let mut model = Model::new(EightBytes::Plain);
    put(&mut model, &mut session, (0..KEYS).map(|key| key * STEP), &mut random);
    table.await_training();
    let full = table.leaves_in_use();
    model.check_all(&mut old);
    for cycle in 0..5 {
        // All but every hundredth key, from another one on each time.
        let first = random.below(KEYS);
        let doomed = (0..KEYS).map(|key| (key + first) % KEYS).filter(|key| key % 100 != cycle);
        remove(&mut model, &mut session, doomed.map(|key| key * STEP));
        model.check_scans(&mut session, &[(Identity::MIN, 50), (Identity(random.next_u64()), 20)]);
        table.await_training();
        let emptied = table.leaves_in_use();
        // Each pair left may keep a leaf, and each group its first.
        let expected = KEYS as usize / 100 + full / 256 + KEPT_LEAVES;
        assert!(emptied < expected, "cycle {cycle}: {emptied} leaves of {full}, {expected} expected");
        // A compute node whose hints are older than any of this.
        model.check_scans(&mut old, &[(Identity::MIN, 100), (Identity(random.next_u64()), 100)]);
        let asked: Vec<Identity> = (0..200).map(|_| Identity(random.below(KEYS) * STEP)).collect();
        model.check_multi_get(&mut old, &asked);
        let beside = cycle + 1;
        put(&mut model, &mut session, (0..KEYS).map(|key| key * 7 % KEYS * STEP + beside), &mut random);
        model.check_all(&mut session);
        assert!(table.leaves_in_use() < 2 * full, "cycle {cycle}: {} leaves", table.leaves_in_use());
        remove(&mut model, &mut session, (0..KEYS).map(|key| key * STEP + beside));
        put(&mut model, &mut session, (0..KEYS).map(|key| key * STEP), &mut random);
    }
    model.check_all(&mut old);
}

/// One compute node that fills a stretch of its own keys and empties it again, among those of others.
fn come_and_go(table: &RawPoolTable<Shm>, own: u64, workers: u64, random: &mut SplitMix64) -> Model {
    const KEYS: u64 = 3_000;
    let mut session = table.session(Access::OneSided);
    let mut model = Model::new(EightBytes::Plain);
    for round in 0..60 {
        let first = random.below(KEYS);
        let stretch = move || (first..first + 120).map(move |key| key * workers + own);
        put(&mut model, &mut session, stretch(), random);
        let asked: Vec<Identity> = (0..30).map(|_| Identity(random.below(KEYS) * workers + own)).collect();
        model.check_multi_get(&mut session, &asked);
        if round % 8 < 7 {
            remove(&mut model, &mut session, stretch());
        }
        model.check_own_part(&mut session, (Identity(first * workers), 100), |key| key.0 % workers == own);
    }
    model
}

#[test]
fn beside_readers_scans_and_inserts() {
    come_and_go_beside_others(GroupSizes::USUAL);
}

/// The same, while groups come and go.
#[test]
fn beside_readers_scans_and_inserts_in_many_directories() {
    come_and_go_beside_others(SMALL_GROUPS);
}

fn come_and_go_beside_others(sizes: GroupSizes) {
    const WORKERS: u64 = 3;
    let seed = Seed::new("merges beside others");
    let pool = RawPool::with_sizes([Shm::new(), Shm::new(), Shm::new()], 16 << 20, sizes);
    let table = pool.table(8);
    let mut merged = 0;
    let models: Vec<Model> = std::thread::scope(|scope| {
        let start = |own| {
            let (table, mut random) = (&table, seed.random(own));
            scope.spawn(move || come_and_go(table, own, WORKERS, &mut random))
        };
        let workers: Vec<_> = (0..WORKERS).map(start).collect();
        let mut trainer = table.trainer_of(ComputeNodeLocks::new(MORTAL - 2), sizes, |queue| queue);
        while !workers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            merged += trainer.step().expect("training works").merged;
        }
        workers.into_iter().map(|worker| worker.join().expect("a worker")).collect()
    });
    table.await_training();
    models[0].check_with(&models[1..], &mut table.session(Access::OneSided));
    assert!(merged > 0, "no leaf was merged beside the others");
    assert!(sizes == GroupSizes::USUAL || table.directory().0 > 5, "{} directories", table.directory().0);
}

#[test]
fn a_trainer_that_dies_anywhere_loses_nothing() {
    assert!(die_anywhere(GroupSizes::USUAL) > 20);
}

/// The same, among directories that replace one another.
#[test]
fn nor_does_one_that_makes_directories() {
    die_anywhere(SMALL_GROUPS);
}

/// Trainers that die after some of their changes; gives how many leaves they merged.
fn die_anywhere(sizes: GroupSizes) -> usize {
    const KEYS: u64 = 900;
    const TRIALS: usize = 120;
    let seed = Seed::new("trainers die in merges");
    let mut random = seed.random(0);
    let pool = RawPool::with_sizes([Shm::new(), Shm::new()], 4 << 20, sizes);
    let table = pool.table(8);
    let [mut session, mut old] = [(); 2].map(|()| table.session(Access::OneSided));
    let mut model = Model::new(EightBytes::Plain);
    put(&mut model, &mut session, 0..KEYS, &mut random);
    table.await_training();
    model.check_all(&mut old);
    let locks = ComputeNodeLocks::new(MORTAL);
    let (mut deaths, mut merged) = (0, 0);
    for trial in 0..TRIALS {
        let first = random.below(KEYS - 200);
        remove(&mut model, &mut session, first..first + 100 + random.below(100));
        let life = Lifetime::new();
        let mut mortal = table.trainer_of(locks.clone(), sizes, |queue| DyingQueue::new(queue, life.clone()));
        life.renew(random.below(260));
        // More than it takes to take over what another one froze.
        for _ in 0..8 {
            let Ok(step) = mortal.step() else {
                deaths += 1;
                break;
            };
            merged += step.merged;
        }
        // A session that comes by goes on: under locks that nobody gives back, among journals.
        let asked: Vec<Identity> = (0..40).map(|_| Identity(random.below(KEYS))).collect();
        model.check_multi_get(&mut session, &asked);
        put(&mut model, &mut session, (first..first + 200).step_by(1 + trial % 5), &mut random);
        if trial % 10 == 0 {
            model.check_all(&mut session);
            // A lock that the dead left is given back when somebody wants its leaf, and no sooner. A group
            // with one does not come to rest.
            put(&mut model, &mut session, 0..KEYS, &mut random);
            table.await_training();
        }
    }
    model.check_all(&mut table.session(Access::OneSided));
    model.check_all(&mut old);
    assert!(deaths > TRIALS / 4, "{deaths} deaths, {merged} leaves merged");
    merged
}

/// A trainer that merges leaves stops between two of its changes. Another one makes each of those leaves the
/// first of a group of its own, which the first trainer does not hear of.
#[test]
fn no_leaf_is_merged_at_which_a_group_begins_meanwhile() {
    const KEYS: u64 = 200;
    const STOPS: u64 = 90;
    const CHANGES: u64 = 2;
    let [whole, of_a_leaf] =
        [(64, 1), (1, usize::MAX)].map(|(leaves, saved_min)| GroupSizes { leaves, saved_min });
    let mut random = Seed::new("stops in merges").random(0);
    let pool = RawPool::with_sizes([Shm::new(), Shm::new()], 4 << 20, whole);
    let table = pool.table(8);
    let [mut session, mut old] = [(); 2].map(|()| table.session(Access::OneSided));
    let mut model = Model::new(EightBytes::Plain);
    let locks = [MORTAL - 2, MORTAL - 3].map(ComputeNodeLocks::new);
    let (mut merged, mut cut) = (0, 0);
    for stop in 0..STOPS {
        // One in six goes on to the end, however many changes that takes.
        let changes = if stop % 6 == 5 { u64::MAX - 1 } else { stop * CHANGES + random.below(CHANGES) };
        put(&mut model, &mut session, 0..KEYS, &mut random);
        table.await_training();
        remove(&mut model, &mut session, KEYS / 8..KEYS * 7 / 8);
        let stop = Stop::default();
        let life = Lifetime::with_stop(stop.clone(), changes);
        let wrap = |queue| DyingQueue::new(queue, life.clone());
        std::thread::scope(|scope| {
            let (table, locks) = (&table, &locks);
            let merge = || {
                let mut trainer = table.trainer_of(locks[0].clone(), whole, wrap);
                trainer.step().expect("training works").merged
            };
            let merging = scope.spawn(merge);
            while !stop.is_reached() && !merging.is_finished() {
                std::thread::yield_now();
            }
            let cutting = scope.spawn(|| {
                let mut trainer = table.trainer_of(locks[1].clone(), of_a_leaf, |queue| queue);
                trainer.step().expect("training works").directories
            });
            // If it waits for a lock, the one that stopped has that.
            let begun = Instant::now();
            while !cutting.is_finished() && begun.elapsed() < LOCK_WAIT {
                std::thread::yield_now();
            }
            stop.end();
            merged += merging.join().expect("the one that merges");
            cut += cutting.join().expect("the one that cuts");
        });
        model.check_all(&mut session);
        model.check_all(&mut old);
    }
    assert!(merged > 50 && cut > STOPS as usize / 2, "{merged} leaves merged, {cut} directories");
}

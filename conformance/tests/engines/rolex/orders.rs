//! Keys where they hurt most, in the orders that hurt most: every distribution in every order, trained at
//! times or never. A compute node beside has hints as old as the table. Then the test removes all of it.

use farsight::{Access, WriteOperation};
use farsight_base::prng::SplitMix64;
use farsight_conformance::engine::model::{Model, random_value};
use farsight_conformance::engine::raw_pool::RawPool;
use farsight_conformance::engine::{EngineUnderTest as _, Seed, SessionUnderTest as _, TableUnderTest as _};
use farsight_conformance::fabric::shm::Shm;
use farsight_oracles::{EightBytes, Identity, sets};
use farsight_protocol::Direction;

const KEYS: u64 = 800;

/// Distinct keys, ascending.
fn distributions(random: &mut SplitMix64) -> Vec<(&'static str, Vec<Identity>)> {
    let uniform: Vec<u64> = (0..KEYS).map(|_| random.next_u64()).collect();
    let powers = (0..KEYS).map(|key| (1 << random.below(64)) ^ key).collect();
    // Islands at both ends and in the middle, whose keys are one apart.
    let islands = [0, u64::MAX - KEYS / 4 + 1, 1 << 63, 1 << 33];
    let islands = islands.into_iter().flat_map(|first| (0..KEYS / 4).map(move |key| first + key)).collect();
    let named = [
        ("uniform", uniform),
        ("around powers of two", powers),
        ("around 2^53", ((1 << 53) - KEYS / 2..(1 << 53) + KEYS / 2).collect()),
        ("islands", islands),
        ("both ends", (0..KEYS / 2).flat_map(|key| [key, u64::MAX - key]).collect()),
    ];
    let sorted = |keys: Vec<u64>| sets::tidied(keys.into_iter().map(Identity).collect());
    named.into_iter().map(|(name, keys)| (name, sorted(keys))).collect()
}

fn shuffled(mut keys: Vec<Identity>, random: &mut SplitMix64) -> Vec<Identity> {
    for last in (1..keys.len()).rev() {
        keys.swap(last, random.below(last as u64 + 1) as usize);
    }
    keys
}

/// The same keys in orders of insertion.
fn orders(keys: &[Identity], random: &mut SplitMix64) -> Vec<(&'static str, Vec<Identity>)> {
    // All into the same leaf: from both ends to the middle.
    let inwards = (0..keys.len()).map(|at| if at % 2 == 0 { at / 2 } else { keys.len() - 1 - at / 2 });
    vec![
        ("ascending", keys.to_vec()),
        ("descending", keys.iter().rev().copied().collect()),
        ("into one hot leaf", inwards.map(|at| keys[at]).collect()),
        ("at random", shuffled(keys.to_vec(), random)),
    ]
}

/// Inserts keys in their order, trained after each `train_every` of them, and removes them in another.
fn fill_and_empty(pool: &RawPool<Shm>, keys: &[Identity], train_every: usize, random: &mut SplitMix64) {
    let table = pool.table(8);
    let mut session = table.session(Access::OneSided);
    // It knows the first leaf, and whatever else it finds by walking.
    let mut old = table.session(Access::OneSided);
    let mut model = Model::new(EightBytes::Plain);
    model.check_get(&mut old, keys[0]);
    for (chunk, keys) in keys.chunks(100).enumerate() {
        let entries: Vec<(Identity, Vec<u8>)> =
            keys.iter().map(|key| (*key, random_value(random, 8))).collect();
        model.write(&mut session, WriteOperation::Insert, &entries, false);
        if ((chunk + 1) * 100).is_multiple_of(train_every) {
            table.await_training();
        }
        let neighbours = keys.iter().flat_map(|key| [key.before(1), *key, key.behind(1)]);
        model.check_multi_get(&mut old, &neighbours.step_by(7).collect::<Vec<_>>());
    }
    model.check_all(&mut session);
    model.check_scans(&mut old, &[(Identity::MIN, 40), (keys[keys.len() / 2], 40), (Identity::MAX, 3)]);
    for keys in shuffled(keys.to_vec(), random).chunks(200) {
        let entries: Vec<(Identity, Vec<u8>)> = keys.iter().map(|key| (*key, Vec::new())).collect();
        model.write(&mut session, WriteOperation::Remove, &entries, false);
        table.await_training();
        model.check_multi_get(&mut old, &keys[..50.min(keys.len())]);
    }
    assert_eq!(old.scan_all(Direction::Ascending, 0), [], "all is removed");
}

fn in_every_order(test: &str, train_every: usize) {
    let seed = Seed::new(test);
    let mut random = seed.random(0);
    for (place, keys) in distributions(&mut random) {
        let pool = RawPool::start([Shm::new(), Shm::new()], 2 << 20);
        for (order, keys) in orders(&keys, &mut random) {
            println!("{place}, {order}");
            fill_and_empty(&pool, &keys, train_every, &mut random);
        }
    }
}

#[test]
fn trained_now_and_then() {
    in_every_order("hard orders, trained now and then", 300);
}

#[test]
fn all_leaves_synonyms() {
    in_every_order("hard orders, never trained", usize::MAX);
}

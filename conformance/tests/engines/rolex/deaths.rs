//! Sessions that die between any two of their changes, under a lock or not. The next session that comes by
//! finds what was written or what stood there before, and goes on.

use std::collections::BTreeMap;

use farsight::{Access, WriteOperation, WriteOutcome};
use farsight_base::prng::SplitMix64;
use farsight_conformance::engine::asking::Asking;
use farsight_conformance::engine::dying::{DyingQueue, Lifetime};
use farsight_conformance::engine::model::random_value;
use farsight_conformance::engine::raw_pool::{MORTAL, RawPool};
use farsight_conformance::engine::{
    EngineUnderTest as _, Seed, SessionUnderTest, Stored, TableUnderTest as _,
};
use farsight_conformance::fabric::shm::Shm;
use farsight_oracles::{EightBytes, Embedding as _, Identity};
use farsight_protocol::Direction;

const TRIALS: usize = 600;
const KEYS: u64 = 150;
/// Where the keys lie.
const EMBEDDING: EightBytes = EightBytes::Plain;

type Pairs = BTreeMap<Identity, Stored>;
type Write = (WriteOperation, Identity, Vec<u8>);

fn random_write(random: &mut SplitMix64, value_bytes: usize, trial: usize) -> Write {
    use WriteOperation::{Insert, Put, Remove, Swap, Update};
    let is_growing = (trial / 150).is_multiple_of(2);
    let operations = if is_growing { [Insert, Put, Swap, Update] } else { [Remove, Remove, Update, Swap] };
    let operation = operations[random.below(4) as usize];
    let value = if operation == Remove { Vec::new() } else { random_value(random, value_bytes) };
    (operation, Identity(random.below(KEYS)), value)
}

/// What became of a write whose session died: nothing, or all of it.
fn resolve(
    survivor: &mut impl SessionUnderTest<Key = u64>,
    pairs: &mut Pairs,
    (operation, key, value): &Write,
) -> bool {
    let (before, found) = (pairs.get(key).cloned(), survivor.get(EMBEDDING.key(*key)));
    if found == before {
        return false;
    }
    match (operation, found) {
        (WriteOperation::Remove, None) => drop(pairs.remove(key)),
        (
            WriteOperation::Insert | WriteOperation::Put | WriteOperation::Update | WriteOperation::Swap,
            Some((stored, version)),
        ) => {
            assert_eq!(stored, *value, "key {key}: the value of nobody");
            assert!(before.is_none_or(|(_, old)| version > old), "key {key}: version {version}");
            pairs.insert(*key, (stored, version));
        }
        (_, found) => panic!("key {key}: {operation:?} of {before:?} left {found:?}"),
    }
    true
}

fn die_again_and_again(test: &str, nodes: usize, value_bytes: usize) {
    let seed = Seed::new(test);
    let mut random = seed.random(0);
    let pool = RawPool::start((0..nodes).map(|_| Shm::new()), 16 << 20);
    let table = pool.table(value_bytes);
    let life = Lifetime::new();
    let mut mortal = table.session_of(MORTAL, |queue| DyingQueue::new(queue, life.clone()));
    let mut survivor = table.session(Access::OneSided);
    let mut pairs = Pairs::new();
    let (mut undone, mut done) = (0, 0);
    for trial in 0..TRIALS {
        let write = random_write(&mut random, value_bytes, trial);
        let (operation, key, value) = &write;
        let changes_max = if random.below(4) == 0 { 120 } else { 10 };
        life.renew(random.below(changes_max));
        match mortal.try_write(*operation, EMBEDDING.key(*key), value) {
            Ok(WriteOutcome::Inserted(version) | WriteOutcome::Replaced(version)) => {
                pairs.insert(*key, (value.clone(), version));
            }
            Ok(WriteOutcome::Removed(_)) => drop(pairs.remove(key)),
            Ok(WriteOutcome::Exists(_) | WriteOutcome::Absent) => {}
            Ok(refused @ (WriteOutcome::Failed(_) | WriteOutcome::Differs(_))) => {
                panic!("refused: {refused:?}");
            }
            Err(_) if random.below(2) == 0 => {
                // The session that comes next writes to the same leaf.
                let neighbour = Identity((key.0 + 1) % KEYS);
                let value = random_value(&mut random, value_bytes);
                let put = [(neighbour, value.clone())];
                let outcome = Asking::of(&mut survivor, &EMBEDDING).write(WriteOperation::Put, &put).pop();
                let Some(WriteOutcome::Inserted(version) | WriteOutcome::Replaced(version)) = outcome else {
                    panic!("a put was {outcome:?}");
                };
                pairs.insert(neighbour, (value, version));
                *(if resolve(&mut survivor, &mut pairs, &write) { &mut done } else { &mut undone }) += 1;
            }
            Err(_) => {
                *(if resolve(&mut survivor, &mut pairs, &write) { &mut done } else { &mut undone }) += 1;
            }
        }
        if trial % 25 == 0 {
            let found = Asking::of(&mut survivor, &EMBEDDING).scan_all(Direction::Ascending, Identity::MIN);
            let found: Pairs = found.into_iter().collect();
            assert_eq!(found, pairs, "trial {trial}");
        }
    }
    // Deaths behind a lock's release are seldom, so few are done; those that others finish are among them.
    assert!(undone > 50 && done > 5, "{undone} undone, {done} done");
}

#[test]
fn with_one_memory_node() {
    die_again_and_again("deaths with one memory node", 1, 8);
}

#[test]
fn with_three_memory_nodes() {
    die_again_and_again("deaths with three memory nodes", 3, 8);
}

#[test]
fn with_values_of_several_lines() {
    die_again_and_again("deaths with values of several lines", 3, 100);
}

#[test]
fn a_fabric_that_failed_is_not_asked_for_the_rest_of_a_call() {
    let pool = RawPool::start([Shm::new()], 16 << 20);
    let table = pool.table(8);
    let life = Lifetime::new();
    let mut mortal = table.session_of(MORTAL, |queue| DyingQueue::new(queue, life.clone()));
    let value = [7; 8];
    mortal.try_write(WriteOperation::Put, 7, &value).expect("a put");
    life.renew(0);
    let before = mortal.meters().doorbells;
    // One behind the other, for they are of one key: each could wait as long as the fabric lets it.
    let outcomes = mortal.try_writes(WriteOperation::Put, &[(7, &value[..]); 5]);
    assert!(outcomes.len() == 5 && outcomes.iter().all(Result::is_err), "{outcomes:?}");
    assert_eq!(mortal.meters().doorbells - before, 1);
}

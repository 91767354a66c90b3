//! Loads: all pairs are there at once, in leaves over all memory nodes that one READ finds; and what is
//! refused.

#[expect(dead_code, reason = "training's tests use more of it")]
mod common;

use std::convert::Infallible;
use std::ops::Range;

use common::{Pool, Queue, owner};
use farsight_fabric::QueuePair;
use farsight_fabric::lane::{PoolLane, PoolSlot};
use farsight_index::{Answers, OldValues, Writes};
use farsight_index_rolex::{BulkLoadError, BulkLoaded, BulkLoader, LineSource, Trained, Trainer};
use farsight_protocol::WriteOperation;

fn load(pool: &Pool, queues: &mut [Queue], keys: &[u64]) -> Result<BulkLoaded, BulkLoadError> {
    let mut loader = BulkLoader::new(pool.session(1));
    for key in keys {
        loader.push(queues, *key, &key.wrapping_mul(3).to_le_bytes())?;
    }
    let mut trainer = pool.trainer();
    loader.finish(queues, &mut trainer, &pool.lines())
}

#[test]
fn every_pair_is_found_by_one_read() {
    let pool = Pool::new(3, 2_000, 20_000);
    let mut queues = pool.queues();
    let mut random = farsight_base::prng::SplitMix64::new(1);
    let mut keys: Vec<u64> = (0..20_000).map(|_| random.next_u64()).collect();
    keys.extend([0, 1, 2, u64::MAX]);
    keys.sort_unstable();
    keys.dedup();
    let loaded = load(&pool, &mut queues, &keys).expect("the pool has room");
    assert_eq!(loaded.pairs, keys.len() as u64);
    let session = pool.session(2);
    let mut answers = Answers::default();
    // The directory and all groups.
    session.prefill(&mut queues).expect("the learned index");
    let reads = |queues: &[Queue]| queues.iter().map(|queue| queue.meters().reads).sum::<u64>();
    let before = reads(&queues);
    session.multi_get(&mut queues, &keys, &mut answers).expect("GETs");
    for (key, answer) in keys.iter().zip(answers.iter()) {
        assert_eq!(answer, Some((&key.wrapping_mul(3).to_le_bytes()[..], 1)), "key {key}");
    }
    let leaves_a_key = (reads(&queues) - before) as f64 / keys.len() as f64;
    println!("{leaves_a_key:.4} leaves READ a GET, {} leaves", loaded.leaves);
    assert!(leaves_a_key <= 1.01, "{leaves_a_key} leaves READ a GET");
}

/// A leaf that split off since a compute node fetched the model is a *synonym* that it does not know. A GET
/// of one of its keys takes a round trip more, once.
#[test]
fn an_unknown_synonym_is_a_second_round_trip_once() {
    const STEP: u64 = 1 << 20;
    let pool = Pool::new(1, 2_000, 20_000);
    let mut queues = pool.queues();
    let keys: Vec<u64> = (1..2_000).map(|key| key * STEP).collect();
    load(&pool, &mut queues, &keys).expect("the pool has room");
    let (reader, writer) = (pool.session(2), pool.session(3));
    let mut answers = Answers::default();
    reader.multi_get(&mut queues, &keys, &mut answers).expect("GETs");
    let before = pool.chain();
    let new: Vec<u64> = (1..=8).map(|key| 1_000 * STEP + key).collect();
    for key in &new {
        let write = Writes { operation: WriteOperation::Insert, keys: &[*key], values: &[7; 8], bounds: &[] };
        let mut outcomes = Vec::new();
        writer.write_many(&mut queues, write, &mut outcomes, &mut OldValues::default());
        outcomes.pop().expect("an outcome").expect("a write");
    }
    let chain = pool.chain();
    let at = chain.iter().position(|leaf| !before.contains(leaf)).expect("a leaf has split");
    let of = |leaf: usize| -> Vec<u64> {
        let all = keys.iter().chain(&new).copied();
        all.filter(|key| owner(&chain, *key) == chain[leaf].1).collect()
    };
    let (stayed, moved) = (of(at - 1), of(at));
    let mut costs_of = |keys: &[u64]| -> Vec<(u64, u64)> {
        let mut cost = |key: &u64| {
            let before = queues[0].meters();
            reader.multi_get(&mut queues, &[*key], &mut answers).expect("a GET");
            assert!(answers.get(0).is_some(), "key {key} is there");
            let cost = queues[0].meters() - before;
            (cost.doorbells, cost.reads)
        };
        keys.iter().map(&mut cost).collect()
    };
    assert!(stayed.len() + moved.len() == 20 && moved.len() > 2, "{} and {} keys", stayed.len(), moved.len());
    let costs = costs_of(&moved);
    assert_eq!(costs[0], (2, 2), "round trips and READs, of a leaf that the reader does not know");
    assert!(costs[1..].iter().all(|cost| *cost == (1, 1)), "now it knows: {costs:?}");
    assert!(costs_of(&stayed).iter().all(|cost| *cost == (1, 1)), "in the leaf where they were");
}

#[test]
fn what_cannot_be_loaded_is_named() {
    let pool = Pool::new(2, 100, 2_000);
    let mut queues = pool.queues();
    let refused =
        |keys: &[u64], queues: &mut [Queue]| load(&pool, queues, keys).expect_err("is refused").to_string();
    let many: Vec<u64> = (1..5_000).collect();
    assert!(refused(&many, &mut queues).starts_with("the memory nodes have no more blocks"));
    let pool = Pool::new(1, 100, 2_000);
    let mut queues = pool.queues();
    let mut outcomes = Vec::new();
    let write = Writes { operation: WriteOperation::Put, keys: &[9], values: &[0; 8], bounds: &[] };
    pool.session(2).write_many(&mut queues, write, &mut outcomes, &mut OldValues::default());
    outcomes.pop().expect("an outcome").expect("a write");
    let error = load(&pool, &mut queues, &[7]).expect_err("is not empty");
    assert!(matches!(error, BulkLoadError::NotEmpty), "{error}");
    // Nothing of it is there.
    let mut answers = Answers::default();
    pool.session(3).multi_get(&mut queues, &[7, 9], &mut answers).expect("GETs");
    assert!(answers.iter().map(|answer| answer.is_some()).eq([false, true]));
}

/// A memory node that has no lines.
struct NoLines;

impl LineSource for NoLines {
    type Error = Infallible;

    async fn more<Q: QueuePair>(
        &self,
        _: &PoolSlot<'_, '_, Q>,
        _: u32,
    ) -> Result<Option<Range<u32>>, Infallible> {
        Ok(None)
    }
}

/// Loads these keys with a loader that ends behind the attachment.
fn load_without_directory(pool: &Pool, queues: &mut [Queue], keys: &[u64]) {
    let mut loader = BulkLoader::new(pool.session(1));
    for key in keys {
        loader.push(queues, *key, &key.to_le_bytes()).expect("the pool has room");
    }
    let ended = loader.finish(queues, &mut pool.trainer(), &NoLines).expect_err("no lines");
    assert!(matches!(ended, BulkLoadError::Directory(_)), "{ended}");
}

fn train(pool: &Pool, trainer: &mut Trainer, queues: &mut [Queue]) {
    for _ in 0..100 {
        let lines = pool.lines();
        let step = PoolLane::new(queues).block_on(async |slot| trainer.step(&slot, &lines, 16).await);
        if step.expect("the fabric works").expect("training works") == Trained::default() {
            return;
        }
    }
    panic!("training does not end");
}

/// Leaves that a session with a fresh cache READs for each of these keys.
fn leaves_a_get(pool: &Pool, queues: &mut [Queue], keys: &[u64]) -> f64 {
    let (session, mut answers) = (pool.session(9), Answers::default());
    session.prefill(queues).expect("the learned index");
    let reads = |queues: &[Queue]| queues.iter().map(|queue| queue.meters().reads).sum::<u64>();
    let before = reads(queues);
    session.multi_get(queues, keys, &mut answers).expect("GETs");
    assert!(answers.iter().all(|answer| answer.is_some()), "all pairs are there");
    (reads(queues) - before) as f64 / keys.len() as f64
}

#[test]
fn a_load_whose_loader_ends_without_a_directory_is_trained_by_others() {
    let pool = Pool::new(2, 2_000, 20_000);
    let mut queues = pool.queues();
    let keys: Vec<u64> = (1..20_000).map(|key| key << 30).collect();
    load_without_directory(&pool, &mut queues, &keys);
    train(&pool, &mut pool.trainer(), &mut queues);
    let leaves = leaves_a_get(&pool, &mut queues, &keys);
    assert!(leaves <= 1.01, "{leaves} leaves READ a GET");
}

/// A directory of the empty table knows of no leaf that a later load brings.
#[test]
fn a_load_into_a_table_that_has_a_directory_is_trained() {
    let pool = Pool::new(2, 2_000, 20_000);
    let mut queues = pool.queues();
    load(&pool, &mut queues, &[]).expect("a load of nothing makes a directory");
    let mut trainer = pool.trainer();
    train(&pool, &mut trainer, &mut queues);
    let keys: Vec<u64> = (1..20_000).map(|key| key << 30).collect();
    load(&pool, &mut queues, &keys).expect("the table never held a pair");
    train(&pool, &mut trainer, &mut queues);
    let leaves = leaves_a_get(&pool, &mut queues, &keys);
    assert!(leaves <= 1.01, "{leaves} leaves READ a GET");
}

#[cfg(injected)]
#[test]
fn a_load_that_is_not_counted_with_its_attachment_is_found() {
    let bug = &farsight_index_rolex::injected::LOAD_COUNTED_AHEAD;
    farsight_base::injection::assert_found(bug, a_load_into_a_table_that_has_a_directory_is_trained);
}

/// Leaves that split behind the attachment are not in the loader's list.
#[test]
fn splits_between_a_load_and_its_directory_are_trained() {
    let pool = Pool::new(1, 2_000, 20_000);
    let mut queues = pool.queues();
    let keys: Vec<u64> = (1..600).map(|key| key << 30).collect();
    load_without_directory(&pool, &mut queues, &keys);
    let loaded = pool.chain();
    let (writer, counted) = (pool.session(2), 2);
    let new: Vec<u64> = (0..40).map(|index| (300 << 30) + 1 + index).collect();
    for key in &new {
        let write = Writes { operation: WriteOperation::Insert, keys: &[*key], values: &[7; 8], bounds: &[] };
        let mut outcomes = Vec::new();
        writer.write_many(&mut queues, write, &mut outcomes, &mut OldValues::default());
        outcomes.pop().expect("an outcome").expect("a write");
    }
    assert!(pool.chain().len() > loaded.len(), "leaves have split");
    let mut trainer = pool.trainer();
    let lines = pool.lines();
    let published = PoolLane::new(&mut queues)
        .block_on(async |slot| trainer.publish_leaves(&slot, &lines, &loaded, counted).await);
    assert!(published.expect("the fabric works").expect("there are lines"), "it is the first directory");
    train(&pool, &mut trainer, &mut queues);
    let leaves = leaves_a_get(&pool, &mut queues, &new);
    assert!(leaves <= 1.01, "{leaves} leaves READ a GET");
}

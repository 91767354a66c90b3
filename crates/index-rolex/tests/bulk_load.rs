//! Loads: all pairs are there at once, in leaves over all memory nodes that one READ finds; and what is
//! refused.

#[expect(dead_code, reason = "training's tests use more of it")]
mod common;

use common::{Pool, Queue};
use farsight_fabric::QueuePair as _;
use farsight_index::Answers;
use farsight_index_rolex::{BulkLoadError, BulkLoaded, BulkLoader, Write};
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
    // The first batch fetches the directory and the groups.
    session.multi_get(&mut queues, &keys, &mut answers).expect("GETs");
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

#[test]
fn what_cannot_be_loaded_is_named() {
    let pool = Pool::new(2, 100, 2_000);
    let mut queues = pool.queues();
    let refused =
        |keys: &[u64], queues: &mut [Queue]| load(&pool, queues, keys).expect_err("is refused").to_string();
    assert_eq!(refused(&[5, 5], &mut queues), "pair 1: key 5 does not ascend after 5");
    let many: Vec<u64> = (1..5_000).collect();
    assert!(refused(&many, &mut queues).starts_with("the memory nodes have no more blocks"));
    let pool = Pool::new(1, 100, 2_000);
    let mut queues = pool.queues();
    let mut outcomes = Vec::new();
    let write = Write { operation: WriteOperation::Put, key: 9, value: &[0; 8] };
    pool.session(2).write_many(&mut queues, &[write], &mut outcomes);
    outcomes.pop().expect("an outcome").expect("a write");
    let error = load(&pool, &mut queues, &[7]).expect_err("is not empty");
    assert!(matches!(error, BulkLoadError::NotEmpty), "{error}");
    // Nothing of it is there.
    let mut answers = Answers::default();
    pool.session(3).multi_get(&mut queues, &[7, 9], &mut answers).expect("GETs");
    assert!(answers.iter().map(|answer| answer.is_some()).eq([false, true]));
}

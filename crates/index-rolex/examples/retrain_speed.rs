//! How long it takes to train one group of 128 leaves full of pairs anew, on one core, over shared memory.
//! The trainer READs the split counter, the image and the leaves, fits, WRITEs the new image, and publishes
//! it.

#[expect(dead_code, reason = "the tests use more of it")]
#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use common::Pool;
use farsight_fabric::lane::PoolLane;
use farsight_index::{OldValues, Writes};
use farsight_index_rolex::{CacheSession, RolexCache};
use farsight_layout::LEAF_SLOTS;
use farsight_protocol::WriteOperation;

const LEAVES: usize = 128;
const ROUNDS: usize = 2_000;

fn main() {
    let pool = Pool::new(1, 1_000, 10_000);
    let mut queues = pool.queues();
    let session = CacheSession::new(RolexCache::new(pool.table.clone(), pool.meta));
    let mut trainer = pool.trainer();
    // Ascending inserts leave full leaves; uneven keys make some segments.
    let writer = pool.session(1);
    let mut random = farsight_base::prng::SplitMix64::new(1);
    let (mut key, mut outcomes) = (0, Vec::new());
    for _ in 0..LEAVES * LEAF_SLOTS {
        key += 1 + random.below(1 << 40);
        let write = Writes {
            operation: WriteOperation::Insert,
            keys: &[key],
            values: &key.to_le_bytes(),
            bounds: &[],
        };
        writer.write_many(&mut queues, write, &mut outcomes, &mut OldValues::default());
    }
    assert!(outcomes.iter().all(Result::is_ok), "all pairs are written");
    let lines = pool.lines();
    let mut times_us: Vec<f64> = Vec::new();
    for round in 0..=ROUNDS {
        PoolLane::new(&mut queues)
            .block_on(async |slot| {
                session.count_split(&slot, 0).await.expect("a split is counted");
                let begun = Instant::now();
                let done = trainer.step(&slot, &lines, 1).await.expect("training works");
                assert_eq!((done.groups, done.leaves), (1, LEAVES));
                // The first round makes the directory.
                if round > 0 {
                    times_us.push(begun.elapsed().as_secs_f64() * 1e6);
                }
            })
            .expect("the fabric works");
    }
    times_us.sort_by(f64::total_cmp);
    let at = |share: f64| times_us[(times_us.len() as f64 * share) as usize];
    println!(
        "{LEAVES} leaves of {LEAF_SLOTS} pairs trained anew: median {:.1} us, 90 % below {:.1} us",
        at(0.5),
        at(0.9)
    );
}

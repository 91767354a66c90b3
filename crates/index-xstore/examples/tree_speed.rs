//! Loads a tree and prints what single threads do on it by direct calls, what training costs, and peak
//! memory.
//!
//! `cargo run --release -p farsight-index-xstore --example tree_speed [-- KEYS]`

use std::sync::Arc;
use std::time::Instant;

use farsight_base::clock::MonotonicNs;
use farsight_base::prng::{SplitMix64, mix};
use farsight_base::sync::AtomicU64;
use farsight_base::{LeafNumber, RegionId};
use farsight_fabric::Region;
use farsight_index::{Answers, Direction, LeafFormat, LeafListener, Pairs};
use farsight_index_xstore::server::{ModelStore, Trainer, TrainingStep, XStoreLeaf, XTree};
use farsight_model::TrainOptions;
use farsight_protocol::{WriteEntry, WriteOperation};

const GETS: usize = 2_000_000;
const WRITES: usize = 1_000_000;
const SCANS: usize = 200_000;
const BATCH: usize = 64;

/// A region in this process's ordinary memory.
struct HeapRegion(Vec<AtomicU64>);

impl Region for HeapRegion {
    fn id(&self) -> RegionId {
        RegionId(1)
    }
    fn words(&self) -> &[AtomicU64] {
        // Line-aligned, as copies of lines are fastest.
        let address = self.0.as_ptr().addr();
        let skipped = (address.next_multiple_of(64) - address) / 8;
        &self.0[skipped..self.0.len() - (8 - skipped)]
    }
    fn huge_page_bytes(&self) -> u64 {
        0
    }
    fn collapse_to_huge_pages(&self, _used_bytes: u64) -> u64 {
        0
    }
}

/// Runs `work` and prints operations a second, by the thread's processor time and by the clock.
fn timed(name: &str, operations: usize, work: impl FnOnce()) {
    let (begin, begin_ns) = (Instant::now(), processor_ns());
    work();
    let (wall_ns, ns) = (begin.elapsed().as_nanos() as f64, processor_ns() - begin_ns);
    let count = operations as f64;
    let (per_us, wall_per_us) = (count / ns * 1e3, count / wall_ns * 1e3);
    println!("{name:<34}{per_us:>9.2} M/s{:>9.0} ns   (by the clock {wall_per_us:.2} M/s)", ns / count);
}

/// Processor time of this thread: other processes on the machine do not count.
fn processor_ns() -> f64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    schedstat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds first")
}

fn main() {
    let count: usize =
        std::env::args().nth(1).map_or(10_000_000, |keys| keys.parse().expect("a count of keys"));
    let format = XStoreLeaf::new(8).expect("8 B values");
    let leaves = count / 12 * 2 + 1_000_000;
    let words = (0..leaves * format.leaf_words() + 8).map(|_| AtomicU64::new(0)).collect();
    let store = Arc::new(ModelStore::new());
    let listener = Arc::clone(&store) as Arc<dyn LeafListener>;
    let tree = XTree::new(format, Arc::new(HeapRegion(words)), listener).expect("a region");
    let tree = Arc::new(tree);
    let mut keys: Vec<u64> = (0..count as u64).map(|index| mix(index) | 1).collect();
    keys.sort_unstable();
    keys.dedup();

    timed("bulk load", keys.len(), || {
        let values = keys.iter().map(|key| key.to_le_bytes()).collect::<Vec<_>>();
        tree.bulk_load(keys.iter().copied().zip(values.iter().map(<[u8; 8]>::as_slice))).expect("loads");
    });
    reads(&tree, &keys);
    training(&tree, &store);
    writes(&tree, &keys);
    retraining(&tree, &store);
    println!("{:?}", tree.stats());
    println!(
        "leaves {} MB, inner nodes {} MB, peak {}",
        tree.slab().touched_bytes() >> 20,
        tree.inner_bytes() >> 20,
        peak_memory()
    );
}

fn reads(tree: &XTree<XStoreLeaf>, keys: &[u64]) {
    let mut random = SplitMix64::new(1);
    let wanted: Vec<u64> = (0..GETS).map(|_| keys[random.below(keys.len() as u64) as usize]).collect();
    timed("get, one at a time", GETS / 4, || {
        let mut value = [0; 8];
        for key in &wanted[..GETS / 4] {
            assert!(tree.get(*key, &mut value).expect("no writer").is_some());
        }
    });
    timed("get, batches of 64", GETS, || {
        let mut answers = Answers::default();
        for batch in wanted.chunks(BATCH) {
            tree.get_many(batch, &mut answers).expect("no writer");
            assert!(answers.iter().all(|answer| answer.is_some()));
        }
    });
    timed("scan of 50", SCANS, || {
        let mut pairs = Pairs::default();
        for key in &wanted[..SCANS] {
            pairs.reset(8);
            tree.scan(Direction::Ascending, *key, 50, &mut pairs).expect("no writer");
        }
    });
}

fn writes(tree: &XTree<XStoreLeaf>, keys: &[u64]) {
    let mut random = SplitMix64::new(2);
    let mut fresh = || -> Vec<u64> { (0..WRITES).map(|_| random.next_u64() & !1).collect() };
    let batch_of = |keys: &[u64]| -> Vec<WriteEntry<'static>> {
        keys.iter().map(|key| WriteEntry { key: *key, hint: LeafNumber::NONE, value: &[7; 8] }).collect()
    };
    for round in ["first", "second", "third"] {
        let single = fresh();
        timed(&format!("insert, one at a time, {round}"), WRITES / 4, || {
            for key in &single[..WRITES / 4] {
                tree.insert(*key, &[7; 8], LeafNumber::NONE).expect("room");
            }
        });
        let batched = batch_of(&fresh());
        timed(&format!("insert, batches of 64, {round}"), WRITES, || {
            for batch in batched.chunks(BATCH) {
                tree.write_many(WriteOperation::Insert, batch.iter().copied(), |outcome, _| {
                    outcome.expect("room");
                });
            }
        });
    }
    let present: Vec<u64> = (0..WRITES).map(|_| keys[random.below(keys.len() as u64) as usize]).collect();
    let batched = batch_of(&present);
    timed("update, batches of 64", WRITES, || {
        for batch in batched.chunks(BATCH) {
            tree.write_many(WriteOperation::Update, batch.iter().copied(), |outcome, _| {
                outcome.expect("present");
            });
        }
    });
    let ascending: Vec<u64> = (0..WRITES as u64).map(|index| (1 << 63) + 2 * index).collect();
    let batched = batch_of(&ascending);
    timed("insert ascending, batches of 64", WRITES, || {
        for batch in batched.chunks(BATCH) {
            tree.write_many(WriteOperation::Insert, batch.iter().copied(), |outcome, _| {
                outcome.expect("room");
            });
        }
    });
}

fn training(tree: &Arc<XTree<XStoreLeaf>>, store: &Arc<ModelStore>) {
    for top in [farsight_model::TopKind::Linear, farsight_model::TopKind::Radix] {
        let options = TrainOptions { top, ..TrainOptions::default() };
        let mut trainer = Trainer::new(Arc::clone(tree), Arc::clone(store), options);
        let mut pieces = Vec::new();
        loop {
            let begin_ns = processor_ns();
            let step = trainer.step(MonotonicNs(0), usize::MAX).expect("trains");
            pieces.push((processor_ns() - begin_ns) / 1e6);
            if matches!(step, TrainingStep::Published { .. }) {
                break;
            }
        }
        println!(
            "whole training, {top:?}: {:.0} ms (collect and top, sub-models, images: {pieces:.0?})",
            pieces.iter().sum::<f64>()
        );
        println!("{:?}", store.stats(MonotonicNs(0)));
    }
}

fn retraining(tree: &Arc<XTree<XStoreLeaf>>, store: &Arc<ModelStore>) {
    let mut trainer = Trainer::new(Arc::clone(tree), Arc::clone(store), TrainOptions::default());
    while !matches!(trainer.step(MonotonicNs(0), usize::MAX).expect("trains"), TrainingStep::Published { .. })
    {
    }
    let mut random = SplitMix64::new(3);
    while store.pending() < 10_000 && store.pending() + 100 < store.stats(MonotonicNs(0)).sub_models as usize
    {
        for _ in 0..10_000 {
            tree.insert(random.next_u64() & !1, &[9; 8], LeafNumber::NONE).expect("room");
        }
    }
    let pending = store.pending();
    timed("retrain a sub-model", pending, || {
        trainer.step(MonotonicNs(0), pending).expect("trains");
    });
}

fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.map_or_else(|| "unknown".into(), |line| line.trim_start_matches("VmHWM:").trim().to_string())
}

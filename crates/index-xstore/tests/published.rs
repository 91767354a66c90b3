//! The region where clients READ sub-models: every number has its record there, whatever the trainer does,
//! and the space of records that were replaced is used again.

mod common;

use std::sync::Arc;

use common::{Fixture, HeapRegion};
use farsight_base::clock::MonotonicNs;
use farsight_base::prng::SplitMix64;
use farsight_base::sync::Ordering;
use farsight_base::{Line, WORDS_PER_LINE};
use farsight_fabric::Region;
use farsight_index::LeafFormat as _;
use farsight_index_xstore::server::{ModelSlot, ModelStore, PublishedModel, Trainer, XStoreLeaf, XTree};
use farsight_layout::published::{PUBLISHED_SLOT_LINES, PublishedRecord, PublishedRoot, published_record};
use farsight_model::{TopKind, TrainOptions};

const OPTIONS: TrainOptions = TrainOptions { top: TopKind::Radix, target_leaves_per_sub_model: 8 };
const VALUE_BYTES: usize = 8;

/// A tree, and its models in a region of so many lines.
fn fixture(leaves: usize, lines: usize) -> (Fixture, Arc<dyn Region>, Trainer<XStoreLeaf>) {
    let format = XStoreLeaf::new(VALUE_BYTES).unwrap();
    let models: Arc<dyn Region> = Arc::new(HeapRegion::new(lines * WORDS_PER_LINE));
    let store = Arc::new(ModelStore::beside(Arc::clone(&models), true));
    let region = Arc::new(HeapRegion::new(leaves * format.leaf_words()));
    let tree = Arc::new(XTree::new(format, region, Arc::clone(&store) as _).unwrap());
    let trainer = Trainer::new(Arc::clone(&tree), Arc::clone(&store), OPTIONS);
    (Fixture { tree, store, value_bytes: VALUE_BYTES }, models, trainer)
}

fn read(region: &dyn Region, first: u64, lines: usize) -> Vec<Line> {
    let words = &region.words()[first as usize * WORDS_PER_LINE..][..lines * WORDS_PER_LINE];
    let line = |words: &[_; WORDS_PER_LINE]| {
        Line(std::array::from_fn(|index| {
            let word: &farsight_base::sync::AtomicU64 = &words[index];
            word.load(Ordering::Relaxed)
        }))
    };
    words.as_chunks().0.iter().map(line).collect()
}

/// The words of the part that the record of `number` says, as a client READs it.
fn part_of(region: &dyn Region, root: &PublishedRoot, number: u32) -> Option<Vec<u64>> {
    let words = |part: &[u8]| part.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let slot = read(region, root.slot(number)?, PUBLISHED_SLOT_LINES);
    match published_record(&slot, root.generation, number).ok()? {
        PublishedRecord::Part(part) => Some(words(part)),
        PublishedRecord::Elsewhere { first_line, lines } => {
            let lines = read(region, first_line.into(), lines as usize);
            match published_record(&lines, root.generation, number).ok()? {
                PublishedRecord::Part(part) => Some(words(part)),
                PublishedRecord::Elsewhere { .. } => None,
            }
        }
    }
}

fn words_of(number: u32, slot: &ModelSlot) -> Vec<u64> {
    match slot {
        ModelSlot::SubModel(image) => {
            let head = [u64::from(number)].into_iter().chain(image.record.to_words());
            head.chain(image.entries.iter().copied()).collect()
        }
        ModelSlot::Branch(branch) => {
            let head = u64::from(number) | (branch.children.len() as u64) << 32;
            let pair = |pair: &[u32]| u64::from(pair[0]) | u64::from(*pair.get(1).unwrap_or(&0)) << 32;
            let rest = branch.boundaries.iter().copied().chain(branch.children.chunks(2).map(pair));
            [head].into_iter().chain(rest).collect()
        }
    }
}

/// Each number of the current model has the record of what it stands for. Returns how many there are.
fn check(region: &dyn Region, store: &ModelStore) -> u32 {
    let model: Arc<PublishedModel> = store.current().expect("a model");
    let root = PublishedRoot::from_line(&read(region, 0, 1)[0]).expect("a root");
    assert_eq!(root.generation, model.generation());
    let mut numbers = 0;
    while let Some(slot) = model.slot(numbers) {
        assert_eq!(part_of(region, &root, numbers), Some(words_of(numbers, &slot)), "number {numbers}");
        numbers += 1;
    }
    assert!(numbers >= model.top_count());
    numbers
}

#[test]
fn every_number_has_its_record_while_a_table_grows() {
    let (fixture, region, mut trainer) = fixture(20_000, 40_000);
    let mut random = SplitMix64::new(3);
    let mut most = 0;
    for round in 0..30_u64 {
        for _ in 0..if round % 10 == 0 { 12_000 } else { 400 } {
            // At first anywhere, then in one place, so that there are branches.
            let anywhere = random.next_u64();
            let key = if round % 10 == 0 { anywhere } else { (1 << 60) + (anywhere >> 34) };
            let mut value = [0; VALUE_BYTES];
            if fixture.tree.get(key, &mut value).unwrap().is_none() {
                fixture.insert(key);
            }
        }
        trainer.run_to_idle(MonotonicNs(round)).unwrap();
        most = most.max(check(&*region, &fixture.store) - fixture.store.current().unwrap().top_count());
    }
    assert!(most > 20, "{most} numbers below branches");
}

#[test]
fn the_space_of_replaced_records_is_used_again() {
    let (fixture, region, mut trainer) = fixture(4_000, 8_000);
    let mut used = [0; 2];
    for round in 0..120_u64 {
        for step in 0..500 {
            fixture.insert((round * 500 + step) << 8);
            if let Some(old) = (round * 500 + step).checked_sub(4_000) {
                fixture.tree.remove(old << 8, farsight_base::LeafNumber::NONE).unwrap();
            }
        }
        trainer.run_to_idle(MonotonicNs(round)).unwrap();
        check(&*region, &fixture.store);
        let lines = fixture.store.used_lines();
        used[usize::from(round >= 60)] = lines.max(used[usize::from(round >= 60)]);
    }
    let [early, late] = used;
    assert!(late <= 2 * early, "{early} lines at most at first, {late} later");
}

/// Numbers for which there is no room have no record, and none that is another's.
#[test]
fn a_region_without_room_says_nothing_wrong() {
    let (fixture, region, mut trainer) = fixture(4_000, 60);
    fixture.insert_all(&(0..30_000).map(|key| key << 20).collect::<Vec<_>>());
    trainer.run_to_idle(MonotonicNs(0)).unwrap();
    let model = fixture.store.current().unwrap();
    let root = PublishedRoot::from_line(&read(&*region, 0, 1)[0]).unwrap_or_default();
    let found = (0..model.top_count()).filter_map(|number| {
        let part = part_of(&*region, &root, number)?;
        assert_eq!(Some(part), model.slot(number).map(|slot| words_of(number, &slot)), "number {number}");
        Some(())
    });
    assert!(found.count() < model.top_count() as usize, "60 lines are not enough");
    assert!(fixture.store.used_lines() <= 60);
}

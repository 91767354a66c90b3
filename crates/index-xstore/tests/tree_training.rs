//! Keys found as clients find them: top model, sub-model, table entry, the leaf's own fences, and siblings.
//! After a training no sibling is needed; without one no key is lost.

mod common;

use std::collections::VecDeque;
use std::sync::Arc;

use common::Fixture;
use farsight_base::LeafNumber;
use farsight_base::clock::MonotonicNs;
use farsight_base::prng::{SplitMix64, mix};
use farsight_index::model_of;
use farsight_index_xstore::server::{
    ModelSlot, PublishedModel, SubModelImage, Trainer, TrainingStep, XStoreLeaf,
};
use farsight_layout::{KeyLines, KeySearch, TableEntry};
use farsight_model::{TopKind, TrainOptions};

const OPTIONS: TrainOptions = TrainOptions { top: TopKind::Radix, target_leaves_per_sub_model: 8 };

/// Three and a half times the target.
const LEAVES_MAX: usize = 28;

fn trainer(fixture: &Fixture) -> Trainer<XStoreLeaf> {
    Trainer::new(fixture.tree.clone(), fixture.store.clone(), OPTIONS)
}

fn datasets() -> Vec<(&'static str, Vec<u64>)> {
    let sorted = |mut keys: Vec<u64>| {
        keys.sort_unstable();
        keys.dedup();
        keys
    };
    let edges = [0, 1 << 53, u64::MAX]
        .into_iter()
        .flat_map(|centre: u64| (0..200).map(move |step| centre.wrapping_add(step).wrapping_sub(100)));
    vec![
        ("uniform", sorted((0..20_000).map(mix).collect())),
        ("dense", (0..20_000).collect()),
        (
            "clusters",
            sorted((0..20_000).map(|index| (mix(index / 500) & !0xff_ffff) + mix(index) % 9_000).collect()),
        ),
        ("edges", sorted(edges.collect())),
        ("skewed", sorted((0..20_000).map(|index| mix(index) >> (mix(index + 1) % 50)).collect())),
        ("one", vec![5]),
    ]
}

/// What one lookup cost.
struct Found {
    is_present: bool,
    leaves_read: usize,
    sibling_steps: u64,
}

/// The sub-model of a key.
fn image_of(model: &PublishedModel, key: u64) -> Arc<SubModelImage> {
    match model.slot(model.path(key).sub_model) {
        Some(ModelSlot::SubModel(image)) => image,
        other => panic!("the way of {key} ends at {other:?}"),
    }
}

/// Looks a key up through the published model; `None` if only the server could answer.
fn find(fixture: &Fixture, model: &PublishedModel, key: u64) -> Option<Found> {
    let image = image_of(model, key);
    let record = image.record;
    let sub_model = model_of(&record);
    assert_eq!(image.entries.len(), record.leaf_count as usize);
    let entry = |position: u32| TableEntry(image.entries[position as usize]);
    let chosen = sub_model.choose(key, sub_model.predict(key), |position| entry(position).hint());
    let mut leaves_read = 0;
    for position in chosen.rev() {
        let mut leaf = entry(position).leaf();
        for sibling_steps in 0..fixture.tree.leaf_count() {
            leaves_read += 1;
            let lines = fixture.key_lines(leaf);
            match KeyLines(&lines).search(key) {
                KeySearch::Hit { .. } => return Some(Found { is_present: true, leaves_read, sibling_steps }),
                KeySearch::Absent => return Some(Found { is_present: false, leaves_read, sibling_steps }),
                KeySearch::Right(next) => leaf = next,
                KeySearch::Left | KeySearch::Foreign => break,
                KeySearch::Changing => panic!("nobody writes"),
            }
        }
    }
    None
}

/// Every leaf stands in the table of every sub-model that its fences meet, as it is now.
fn assert_tables_are_current(fixture: &Fixture, model: &PublishedModel) {
    let leaves = fixture.leaves();
    for (index, leaf) in leaves.leaves.iter().enumerate() {
        let low = leaves.low_fences[index];
        let last = leaves.low_fences.get(index + 1).map_or(u64::MAX, |next| next - 1);
        for key in [low, low + (last - low) / 2, last] {
            let image = image_of(model, key);
            assert!(
                image.interval.is_some_and(|(low, high)| (low..=high).contains(&key)),
                "{key} of {image:?}"
            );
            assert!(image.entries.len() <= LEAVES_MAX, "{} leaves in a sub-model", image.entries.len());
            let entries = image.entries.iter().map(|word| TableEntry(*word));
            let found = entries.filter(|entry| entry.leaf() == *leaf).collect::<Vec<_>>();
            assert_eq!(found.len(), 1, "{leaf} in the sub-model of {key}");
        }
    }
}

#[test]
fn every_key_is_found_at_once_after_training() {
    for (name, keys) in datasets() {
        let fixture = Fixture::loaded(8, 8_000, &keys);
        assert!(fixture.store.current().is_none());
        trainer(&fixture).run_to_idle(MonotonicNs(0)).unwrap();
        let model = fixture.store.current().unwrap();
        assert_eq!(model.generation(), 1);
        assert_tables_are_current(&fixture, &model);
        let mut read = 0;
        for key in &keys {
            let found = find(&fixture, &model, *key).expect("in a candidate");
            assert!(found.is_present && found.sibling_steps == 0, "{name}: key {key}");
            read += found.leaves_read;
        }
        for probe in (0..5_000).map(mix).chain([0, u64::MAX]) {
            let found = find(&fixture, &model, probe).expect("fences decide for absent keys, too");
            assert_eq!(found.is_present, keys.binary_search(&probe).is_ok());
        }
        assert!(
            read as f64 <= keys.len() as f64 * 1.02,
            "{name}: {read} leaves read for {} keys",
            keys.len()
        );
    }
}

/// Leaves are merged under a model: the tables follow, those of neighbours and those of a queue that moves
/// on.
#[test]
fn merges_retrain_the_tables_that_name_their_leaves() {
    let mut keys: Vec<u64> = (0..20_000).map(|index| mix(index) >> 1).collect();
    keys.sort_unstable();
    let fixture = Fixture::loaded(8, 8_000, &keys);
    let mut trainer = trainer(&fixture);
    let remove = |key: u64| {
        fixture.tree.remove(key, LeafNumber::NONE).unwrap();
    };
    trainer.run_to_idle(MonotonicNs(0)).unwrap();
    // Of a loaded leaf's twelve pairs nine stay, then six, then three.
    for rest in 1..4 {
        keys.iter().skip(rest).step_by(4).for_each(|key| remove(*key));
        let stats = fixture.tree.stats();
        assert_eq!(stats.merges > 100, rest == 3, "{stats:?}");
        assert_eq!(fixture.store.pending() > 0, stats.merges > 0, "merges mark what names their leaves");
        trainer.run_to_idle(MonotonicNs(0)).unwrap();
        assert_tables_are_current(&fixture, &fixture.store.current().unwrap());
    }
    let mut live: VecDeque<u64> = keys.into_iter().step_by(4).collect();
    for step in 0..20_000 {
        live.push_back((1 << 63) + step);
        fixture.insert((1 << 63) + step);
        live.pop_front().into_iter().for_each(remove);
        if step % 4_000 == 0 {
            trainer.run_to_idle(MonotonicNs(0)).unwrap();
            assert_tables_are_current(&fixture, &fixture.store.current().unwrap());
        }
    }
    trainer.run_to_idle(MonotonicNs(0)).unwrap();
    let model = fixture.store.current().unwrap();
    assert_tables_are_current(&fixture, &model);
    for key in live {
        let found = find(&fixture, &model, key).expect("in a candidate");
        assert!(found.is_present && found.sibling_steps == 0, "key {key}");
    }
}

/// A queue moves on: sub-models of what was drained are trained again once, not with each merge of the leaf
/// that takes their keys over.
#[test]
fn a_queue_does_not_train_what_was_drained_again_and_again() {
    const BATCH: u64 = 1_000;
    let keys: Vec<u64> = (0..40_000).map(|index| index << 20).collect();
    let fixture = Fixture::loaded(8, 8_000, &keys);
    let mut trainer = trainer(&fixture);
    trainer.run_to_idle(MonotonicNs(0)).unwrap();
    let sub_models = fixture.store.stats(MonotonicNs(0)).sub_models as usize;
    assert!(sub_models > 100, "{sub_models}");
    for batch in 0..30 {
        for index in batch * BATCH..(batch + 1) * BATCH {
            fixture.insert((40_000 + index) << 20);
            fixture.tree.remove(index << 20, LeafNumber::NONE).unwrap();
        }
        // Those of the keys that went, and of those that came.
        let pending = fixture.store.pending();
        assert!(pending <= 2 + sub_models / 20, "{pending} of {sub_models} in batch {batch}");
        trainer.run_to_idle(MonotonicNs(0)).unwrap();
    }
}

/// Who comes to a leaf that was merged is told where its keys are.
#[test]
fn a_merged_leaf_names_the_one_that_took_over() {
    let keys: Vec<u64> = (0..2_400).map(|index| 10 * index).collect();
    let fixture = Fixture::loaded(8, 400, &keys);
    let before = fixture.leaves();
    // Of twelve pairs a leaf two stay.
    keys.iter().filter(|key| **key / 10 % 6 != 0).for_each(|key| {
        fixture.tree.remove(*key, LeafNumber::NONE).unwrap();
    });
    let mut merged = 0;
    for (leaf, low) in before.leaves.iter().copied().zip(&before.low_fences) {
        let key = keys[keys.partition_point(|key| key < low)].next_multiple_of(60);
        let (mut at, mut steps) = (leaf, 0);
        loop {
            let lines = fixture.key_lines(at);
            match KeyLines(&lines).search(key) {
                KeySearch::Hit { .. } => break,
                KeySearch::Foreign => at = KeyLines(&lines).next(),
                found => panic!("{leaf} leads key {key} to {at}, which says {found:?}"),
            }
            steps += 1;
            assert!(steps < 8, "{steps} steps from {leaf}");
        }
        merged += usize::from(steps > 0);
    }
    assert!(merged > 100, "{merged} leaves were merged");
}

#[test]
fn no_key_is_lost_without_retraining_and_none_walks_after_it() {
    for (name, keys) in datasets() {
        let fixture = Fixture::loaded(8, 30_000, &keys);
        let mut trainer = trainer(&fixture);
        trainer.run_to_idle(MonotonicNs(0)).unwrap();
        let old_model = fixture.store.current().unwrap();
        let mut random = SplitMix64::new(1);
        let mut inserted = keys.clone();
        // Beside stored keys, anywhere, and in a run.
        for index in 0..3_000 {
            let beside = keys[random.below(keys.len() as u64) as usize].wrapping_add(random.below(9));
            for key in [beside, random.next_u64(), (1 << 60) + index] {
                fixture.insert(key);
                inserted.push(key);
            }
        }
        for key in &inserted {
            assert!(
                find(&fixture, &old_model, *key).is_some_and(|found| found.is_present),
                "{name}: key {key}"
            );
        }
        trainer.run_to_idle(MonotonicNs(0)).unwrap();
        let model = fixture.store.current().unwrap();
        assert_tables_are_current(&fixture, &model);
        for key in &inserted {
            let found = find(&fixture, &model, *key).expect("trained");
            assert!(found.is_present && found.sibling_steps == 0, "{name}: key {key} after training");
        }
        fixture.check_structure();
    }
}

#[test]
fn a_split_retrains_its_sub_models_alone_and_merges_with_others() {
    let keys: Vec<u64> = (0..40_000).map(|index| index * 1_000).collect();
    let fixture = Fixture::loaded(8, 10_000, &keys);
    let mut trainer = trainer(&fixture);
    trainer.run_to_idle(MonotonicNs(5)).unwrap();
    assert!(!trainer.has_work());
    assert_eq!(trainer.step(MonotonicNs(10), 100), Ok(TrainingStep::Idle));
    let before = fixture.store.current().unwrap();
    // Twenty splits in the range of one or two sub-models.
    let splits = fixture.tree.stats().splits;
    let mut key = 20_000_000;
    while fixture.tree.stats().splits < splits + 20 {
        key += 7;
        fixture.insert(key);
    }
    let pending = fixture.store.pending();
    assert!((1..=4).contains(&pending), "{pending} sub-models pending after 20 splits");
    let stats = fixture.store.stats(MonotonicNs(110));
    assert_eq!((stats.pending, stats.lag_ns, stats.retrained), (pending as u64, 100, 0));
    assert_eq!(trainer.step(MonotonicNs(120), 1), Ok(TrainingStep::Retrained(1)));
    trainer.run_to_idle(MonotonicNs(130)).unwrap();
    let after = fixture.store.current().unwrap();
    assert_eq!(after.generation(), before.generation(), "no whole training");
    let stats = fixture.store.stats(MonotonicNs(200));
    assert_eq!((stats.pending, stats.lag_ns, stats.retrained), (0, 0, pending as u64));
    assert!(stats.window_leaves_mean >= 1.0 && stats.window_leaves_max < 60, "{stats:?}");
    assert_tables_are_current(&fixture, &after);
}

#[test]
fn growth_and_shrinkage_train_the_whole_again() {
    let fixture = Fixture::new(8, 10_000);
    let mut trainer = trainer(&fixture);
    trainer.run_to_idle(MonotonicNs(0)).unwrap();
    let generation = || fixture.store.current().unwrap().generation();
    assert_eq!(generation(), 1, "an empty tree has a model, too");
    let keys: Vec<u64> = (0..30_000).map(mix).collect();
    for key in &keys {
        fixture.insert(*key);
        if key % 512 == 0 {
            trainer.run_to_idle(MonotonicNs(0)).unwrap();
        }
    }
    trainer.run_to_idle(MonotonicNs(0)).unwrap();
    let grown = generation();
    assert!((5..=14).contains(&grown), "{grown} generations while leaves doubled about eleven times");
    for key in &keys {
        fixture.tree.remove(*key, LeafNumber::NONE).unwrap();
    }
    trainer.run_to_idle(MonotonicNs(0)).unwrap();
    assert!(generation() > grown);
    let model = fixture.store.current().unwrap();
    assert_tables_are_current(&fixture, &model);
    assert!(find(&fixture, &model, keys[0]).is_some_and(|found| !found.is_present));
}

#[test]
fn changes_during_a_whole_training_are_carried_over() {
    for top in [TopKind::Radix, TopKind::Linear] {
        let fixture = Fixture::new(8, 20_000);
        let options = TrainOptions { top, ..OPTIONS };
        let mut trainer = Trainer::new(fixture.tree.clone(), fixture.store.clone(), options);
        let mut fresh = (0..).map(|index| mix(index) | 1);
        let mut random = SplitMix64::new(3);
        for generation in 1..4 {
            // Doubles the leaves, so that a whole training is due.
            let leaves = fixture.tree.leaf_count();
            while fixture.tree.leaf_count() < (2 * leaves).max(500) {
                fixture.insert(fresh.next().unwrap());
            }
            let mut steps = 0;
            // Splits and merges between the steps of each phase.
            while trainer.step(MonotonicNs(0), 3).unwrap() != (TrainingStep::Published { generation }) {
                steps += 1;
                (0..10).for_each(|_| fixture.insert(fresh.next().unwrap()));
                for _ in 0..5 {
                    let key = mix(random.below(5_000)) | 1;
                    fixture.tree.remove(key, LeafNumber::NONE).unwrap();
                }
            }
            assert!(steps > 40, "{steps} steps");
            assert!(fixture.store.pending() > 10, "what changed meanwhile is pending");
            while trainer.step(MonotonicNs(0), 1).unwrap() == TrainingStep::Retrained(1) {}
            assert_tables_are_current(&fixture, &fixture.store.current().unwrap());
        }
        fixture.check_structure();
    }
}

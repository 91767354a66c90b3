//! The promise: whatever the fences and the key, the leaf that owned the key at training is among the
//! candidates.

use crate::oracle::{check_key, check_sub_model, edge, fences, owner, telling_keys};
use farsight_model::{TopKind, TrainOptions, TrainedModel, Training, train, train_sub_model};
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;

fn trained(fences: &[u64], top: TopKind, target: u32) -> TrainedModel {
    let model = train(fences, TrainOptions { top, target_leaves_per_sub_model: target }).expect("trains");
    assert_eq!(model.sub_models.len(), model.top.sub_model_count() as usize);
    model
}

fn kind() -> impl Strategy<Value = TopKind> {
    prop_oneof![Just(TopKind::Radix), Just(TopKind::Linear)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_key_is_found(
        fences in fences(),
        top in kind(),
        target in prop_oneof![Just(24_u32), 1_u32..40],
        keys in proptest::collection::vec(edge(), 0..300),
    ) {
        let model = trained(&fences, top, target);
        for key in telling_keys(&fences).into_iter().chain(keys) {
            check_key(&model, &fences, key);
        }
        for sub_model in 0..model.top.sub_model_count() {
            let interval = model.top.interval(sub_model);
            let trained = model.sub_models[sub_model as usize].interval;
            prop_assert_eq!(trained, interval.as_ref().map(|keys| (*keys.start(), *keys.end())));
            if let Some(interval) = interval {
                for key in [*interval.start(), *interval.end()] {
                    check_key(&model, &fences, key);
                }
            }
        }
    }

    #[test]
    fn dispatch_is_monotone_and_intervals_tile_all_keys(
        fences in fences(),
        top in kind(),
        keys in proptest::collection::vec(edge(), 1..300),
    ) {
        let top = trained(&fences, top, 3).top;
        let mut keys: Vec<u64> = telling_keys(&fences).into_iter().chain(keys).collect();
        keys.sort_unstable();
        prop_assert!(keys.is_sorted_by_key(|key| top.dispatch(*key)));
        prop_assert!(top.dispatch(u64::MAX) < top.sub_model_count());
        let mut next = Some(0);
        for sub_model in 0..top.sub_model_count() {
            if let Some(interval) = top.interval(sub_model) {
                prop_assert_eq!(Some(*interval.start()), next);
                prop_assert_eq!(top.dispatch(*interval.start()), sub_model);
                prop_assert_eq!(top.dispatch(*interval.end()), sub_model);
                next = interval.end().checked_add(1);
            }
        }
        prop_assert_eq!(next, None, "keys from here on are dispatched nowhere");
    }

    #[test]
    fn retraining_one_sub_model_after_splits_keeps_the_promise(
        fences in fences(),
        top in kind(),
        pick in any::<proptest::sample::Index>(),
        splits in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u64>()), 1..60),
    ) {
        let model = trained(&fences, top, 24);
        // A sub-model with keys: the one of some fence.
        let sub_model = model.top.dispatch(fences[pick.index(fences.len())]);
        let interval = model.top.interval(sub_model).expect("a key was dispatched here");
        let (low, high) = interval.into_inner();
        let old = &model.sub_models[sub_model as usize];
        let leaves = old.first_leaf..old.first_leaf + old.model.leaf_count as usize;
        prop_assert_eq!(leaves.start, owner(&fences, low));
        prop_assert_eq!(leaves.end - 1, owner(&fences, high));
        let mut after = fences[leaves].to_vec();
        for (leaf, key) in splits {
            let leaf = leaf.index(after.len());
            let end = after.get(leaf + 1).map_or(high, |next| next - 1);
            if after[leaf] < end {
                // Anywhere in the leaf, but above its low fence; of a leaf that straddles, perhaps outside.
                let fence = after[leaf] + 1 + key % (end - after[leaf]);
                after.insert(leaf + 1, fence);
            }
        }
        // Splits of the first leaf below the interval leave it to other sub-models.
        let after = &after[owner(&after, low)..];
        let retrained = train_sub_model(low, high, after).expect("few leaves");
        for key in telling_keys(after) {
            if low <= key && key <= high {
                check_sub_model(&retrained, 0, after, key);
            }
        }
        check_sub_model(&retrained, 0, after, low);
        check_sub_model(&retrained, 0, after, high);
    }

    #[test]
    fn training_in_steps_is_training(fences in fences(), top in kind(), budget in 1_usize..9) {
        let options = TrainOptions { top, target_leaves_per_sub_model: 5 };
        let mut training = Training::new(fences.clone(), options).expect("good fences");
        let trained = train(&fences, options).expect("trains");
        let mut steps = 0;
        while !training.is_complete() {
            training.step(budget).expect("few leaves");
            steps += 1;
        }
        prop_assert!(steps >= trained.sub_models.len().div_ceil(budget), "{} steps", steps);
        prop_assert_eq!(training.finish().expect("is complete"), (trained, fences));
    }
}

#[test]
fn the_smallest_stores() {
    for fences in [vec![0], vec![0, 1], vec![0, u64::MAX], vec![0, 1 << 53], vec![0, u64::MAX - 1, u64::MAX]]
    {
        for top in [TopKind::Radix, TopKind::Linear] {
            for target in [1, 24] {
                let model = trained(&fences, top, target);
                for key in telling_keys(&fences) {
                    assert_eq!(check_key(&model, &fences, key), 1, "{key} of {fences:?} is not ambiguous");
                }
            }
        }
    }
}

#[test]
fn no_insert_of_millions_is_lost() {
    let mut rng = SmallRng::seed_from_u64(11);
    // Half of the leaves uneven by octaves, half even.
    let mut fences: Vec<u64> =
        (0..40_000).map(|index| rng.next_u64() >> if index % 2 == 0 { index % 50 } else { 0 }).collect();
    fences.push(0);
    fences.sort_unstable();
    fences.dedup();
    for top in [TopKind::Radix, TopKind::Linear] {
        let model = trained(&fences, top, 24);
        for index in 0..2_000_000_u64 {
            let key = rng.next_u64() >> (index % 60);
            check_key(&model, &fences, key);
        }
    }
}

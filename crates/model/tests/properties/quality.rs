//! How narrow the answers are and what the model costs, whatever the distribution; and what training refuses.

use crate::oracle::{check_key, check_sub_model};
use farsight_model::{
    LEAVES_PER_SUB_MODEL_MAX, TopKind, TrainError, TrainOptions, TrainedModel, shortest_fence, train,
    train_sub_model,
};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, LogNormal, Normal};

const KEYS: usize = 600_000;
const KEYS_PER_LEAF: usize = 12;
/// A sub-model in a client's cache, but for its leaves' hints: two words and its place.
const SUB_MODEL_BYTES: usize = 20;

fn sorted(mut draw: impl FnMut(&mut SmallRng) -> u64) -> Vec<u64> {
    let mut rng = SmallRng::seed_from_u64(5);
    let mut keys: Vec<u64> = (0..KEYS).map(|_| draw(&mut rng)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn datasets() -> Vec<(&'static str, Vec<u64>)> {
    let normal = Normal::new(2_f64.powi(63), 2_f64.powi(58)).expect("finite");
    let lognormal = LogNormal::new(0.0, 2.0).expect("finite");
    let city = Normal::new(0.0, 2_f64.powi(48)).expect("finite");
    let mut rng = SmallRng::seed_from_u64(6);
    let centres: Vec<u64> = (0..KEYS / 1_000).map(|_| rng.random()).collect();
    let centre = |rng: &mut SmallRng, count: usize| centres[rng.random_range(0..count)];
    vec![
        ("uniform", sorted(SmallRng::random)),
        ("narrow", sorted(|rng| rng.random_range(1 << 50..(1 << 50) + (1 << 40)))),
        ("dense", (1_000_000..1_000_000 + KEYS as u64).collect()),
        ("normal", sorted(|rng| normal.sample(rng) as u64)),
        ("lognormal", sorted(|rng| (lognormal.sample(rng) * 1e15) as u64)),
        ("islands", sorted(|rng| centre(rng, KEYS / 1_000).saturating_add(rng.random_range(0..1 << 20)))),
        ("cities", sorted(|rng| centre(rng, 200).wrapping_add(city.sample(rng) as i64 as u64))),
        ("exponential", sorted(|rng| 2_f64.powf(rng.random_range(20.0..64.0)) as u64)),
    ]
}

fn radix(fences: &[u64]) -> TrainedModel {
    train(fences, TrainOptions::default()).expect("trains")
}

#[test]
fn one_candidate_and_few_bytes_whatever_the_distribution() {
    for (name, keys) in datasets() {
        let mut fences = vec![0];
        let leaf_edges = keys.windows(2).skip(KEYS_PER_LEAF - 1).step_by(KEYS_PER_LEAF);
        fences.extend(leaf_edges.map(|pair| shortest_fence(pair[0], pair[1])));
        let model = radix(&fences);
        let (mut candidates, mut ties) = (0, 0);
        for key in &keys {
            let found = check_key(&model, &fences, *key);
            candidates += found;
            ties += usize::from(found > 1);
        }
        let per_key = |count: usize| count as f64 / keys.len() as f64;
        assert!(per_key(candidates) <= 1.02, "{name}: {} candidates a key", per_key(candidates));
        assert!(per_key(ties) <= 0.01, "{name}: {} ties a key", per_key(ties));
        let bytes = model.top.to_words().len() * 8 + model.sub_models.len() * SUB_MODEL_BYTES;
        assert!(per_key(bytes) <= 0.15, "{name}: {} bytes a key", per_key(bytes));
        let leaves = model.sub_models.iter().map(|sub_model| sub_model.model.leaf_count);
        let mean = f64::from(leaves.clone().sum::<u32>()) / model.sub_models.len() as f64;
        assert!((15.0..24.0).contains(&mean), "{name}: {mean} leaves a sub-model");
        assert!(leaves.max() <= Some(2 * 18 + 2), "{name}: a sub-model of many leaves");
    }
}

#[test]
fn the_linear_top_is_right_where_it_is_bad() {
    // Nearly all leaves in one sub-model, and errors beyond 16 bits.
    let mut fences: Vec<u64> = (0..300_000).map(|index| index * 3).collect();
    fences.extend((0..100).map(|index| u64::MAX - (index << 50)).rev());
    let model = train(&fences, TrainOptions { top: TopKind::Linear, target_leaves_per_sub_model: 24 })
        .expect("trains");
    let largest = model.sub_models.iter().max_by_key(|sub| sub.model.leaf_count).expect("some").model;
    assert!(largest.leaf_count >= 300_000, "{largest:?} is not the bad case");
    for key in (0..900_000).step_by(101).chain((0..100).map(|index| u64::MAX - (index << 49))) {
        check_key(&model, &fences, key);
    }
    // The same leaves as one sub-model: its line is dragged away by the last few.
    let whole = train_sub_model(0, u64::MAX, &fences).expect("few enough leaves");
    assert_eq!(whole.error_high.max(whole.error_low), u16::MAX, "{whole:?} does not saturate");
    for key in (0..900_000).step_by(997).chain((0..100).map(|index| u64::MAX - (index << 49))) {
        check_sub_model(&whole, 0, &fences, key);
    }
}

#[test]
fn bad_fences_are_refused_by_name() {
    let refused = |fences: &[u64]| train(fences, TrainOptions::default()).expect_err("is refused");
    assert_eq!(refused(&[]), TrainError::NoLeaves);
    assert_eq!(refused(&[7, 8]), TrainError::FirstFence { got: 7 });
    assert_eq!(refused(&[0, 5, 5]), TrainError::FencesNotIncreasing { leaf: 2, previous: 5, got: 5 });
    assert_eq!(refused(&[0, 0]), TrainError::FencesNotIncreasing { leaf: 1, previous: 0, got: 0 });
    assert_eq!(refused(&[0, 5, 3]).to_string(), "training: fence of leaf 2: expected more than 5, got 3");
    let fences: Vec<u64> = (0..=LEAVES_PER_SUB_MODEL_MAX as u64).collect();
    assert_eq!(
        train_sub_model(0, u64::MAX, &fences),
        Err(TrainError::SubModelTooLarge {
            boundary_low: 0,
            boundary_high: u64::MAX,
            leaf_count: LEAVES_PER_SUB_MODEL_MAX + 1
        })
    );
    let model = train_sub_model(1, u64::MAX, &fences[1..]).map(|model| model.leaf_count);
    assert_eq!(model, Ok(LEAVES_PER_SUB_MODEL_MAX as u32));
}

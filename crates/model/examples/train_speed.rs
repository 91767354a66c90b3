//! Trains on 10 M keys of several distributions and prints what it cost and how well lookups go.
//!
//! `cargo run --release -p farsight-model --example train_speed [-- KEYS]`

use std::hint::black_box;
use std::time::Instant;

use farsight_model::{SubModel, TopKind, TrainOptions, TrainedModel, TrainedSubModel, shortest_fence, train};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, LogNormal, Normal};

const KEYS_PER_LEAF: usize = 12;
const PROBES: usize = 1_000_000;
/// A sub-model in a client's cache.
const SUB_MODEL_BYTES: usize = 32;

fn main() {
    let key_count =
        std::env::args().nth(1).map_or(10_000_000, |count| count.parse().expect("a number of keys"));
    println!(
        "{:<16} {:<6} {:<8} {:>8} {:>10} {:>8} {:>8} {:>8} {:>9} {:>9} {:>8} {:>8} {:>9} {:>9} {:>9}",
        "keys",
        "fences",
        "top",
        "train ms",
        "sub-models",
        "leaves",
        "max",
        "window",
        "candid.",
        "absent c.",
        "ties %",
        "top KB",
        "B/key",
        "disp. ns",
        "choose ns"
    );
    for (name, generate) in DATASETS {
        let keys = generate(key_count);
        for short in [true, false] {
            let fences = fences(&keys, short);
            for (top_name, top) in [("radix", TopKind::Radix), ("linear", TopKind::Linear)] {
                if top == TopKind::Linear && !short {
                    continue;
                }
                let start = Instant::now();
                let model = train(&fences, TrainOptions { top, ..TrainOptions::default() }).expect("trains");
                let train_ms = start.elapsed().as_secs_f64() * 1e3;
                print!(
                    "{name:<16} {:<6} {top_name:<8} {train_ms:>8.1}",
                    if short { "short" } else { "keys" }
                );
                report(&model, &fences, &keys);
            }
        }
    }
}

fn report(model: &TrainedModel, fences: &[u64], keys: &[u64]) {
    let leaves: Vec<usize> = model.sub_models.iter().map(|sub| sub.model.leaf_count as usize).collect();
    let mut rng = SmallRng::seed_from_u64(1);
    let present: Vec<u64> = (0..PROBES).map(|_| keys[rng.random_range(0..keys.len())]).collect();
    // Where inserts go: between two neighbouring keys, those in proportion to their density.
    let absent: Vec<u64> = (0..PROBES)
        .map(|_| {
            let index = rng.random_range(1..keys.len());
            keys[index - 1] + rng.random_range(0..keys[index] - keys[index - 1])
        })
        .collect();
    let lookups = probe(model, fences, &present);
    let dispatch_ns = ns_per_key(&present, |key| model.top.dispatch(key));
    let table = Table::new(model, fences);
    let choose_ns = ns_per_key(&present, |key| table.choose(model, key));
    let top_bytes = model.top.to_words().len() * 8;
    println!(
        " {:>10} {:>8.1} {:>8} {:>8.2} {:>9.4} {:>9.4} {:>8.3} {:>8} {:>9.3} {:>9.1} {:>9.1}",
        leaves.len(),
        leaves.iter().sum::<usize>() as f64 / leaves.len() as f64,
        leaves.iter().max().expect("one sub-model at least"),
        lookups.window,
        lookups.candidates,
        probe(model, fences, &absent).candidates,
        lookups.ties * 100.0,
        top_bytes / 1024,
        (top_bytes + leaves.len() * SUB_MODEL_BYTES) as f64 / keys.len() as f64,
        dispatch_ns,
        choose_ns,
    );
}

/// The best of a hundred parts, since others use the machine.
fn ns_per_key(keys: &[u64], lookup: impl Fn(u64) -> u32) -> f64 {
    let part_ns = |part: &[u64]| {
        let start = Instant::now();
        let sum: u64 = part.iter().map(|key| u64::from(lookup(*key))).sum();
        black_box(sum);
        start.elapsed().as_secs_f64() * 1e9 / part.len() as f64
    };
    keys.chunks(keys.len() / 100).map(part_ns).fold(f64::INFINITY, f64::min)
}

/// What a client keeps: sub-models, each with its place in one table of hints.
struct Table {
    sub_models: Vec<(SubModel, u32)>,
    hints: Vec<u16>,
}

impl Table {
    fn new(model: &TrainedModel, fences: &[u64]) -> Self {
        let mut table = Self { sub_models: Vec::new(), hints: Vec::new() };
        for TrainedSubModel { model, first_leaf, .. } in &model.sub_models {
            table.sub_models.push((*model, table.hints.len() as u32));
            let leaves = &fences[*first_leaf..][..model.leaf_count as usize];
            table.hints.extend(leaves.iter().map(|fence| model.leaf_hint(*fence)));
        }
        table
    }

    /// The whole way of a key: dispatch, predict, choose.
    fn choose(&self, model: &TrainedModel, key: u64) -> u32 {
        let (sub_model, place) = &self.sub_models[model.top.dispatch(key) as usize];
        let window = sub_model.predict(key);
        place + sub_model.choose(key, window, |position| self.hints[(place + position) as usize]).start
    }
}

struct Lookups {
    window: f64,
    candidates: f64,
    ties: f64,
}

fn probe(model: &TrainedModel, fences: &[u64], keys: &[u64]) -> Lookups {
    let (mut window_sum, mut candidate_sum, mut ties) = (0_u64, 0_u64, 0_u64);
    for key in keys {
        let sub = &model.sub_models[model.top.dispatch(*key) as usize];
        let window = sub.model.predict(*key);
        let hint_at = |position: u32| sub.model.leaf_hint(fences[sub.first_leaf + position as usize]);
        let candidates = sub.model.choose(*key, window.clone(), hint_at);
        let owner = fences.partition_point(|fence| fence <= key) - 1;
        assert!(candidates.contains(&((owner - sub.first_leaf) as u32)), "{key} lost");
        window_sum += window.len() as u64;
        candidate_sum += candidates.len() as u64;
        ties += u64::from(candidates.len() > 1);
    }
    let count = keys.len() as f64;
    Lookups {
        window: window_sum as f64 / count,
        candidates: candidate_sum as f64 / count,
        ties: ties as f64 / count,
    }
}

fn fences(keys: &[u64], short: bool) -> Vec<u64> {
    let mut fences = vec![0];
    for index in (KEYS_PER_LEAF..keys.len()).step_by(KEYS_PER_LEAF) {
        fences.push(if short { shortest_fence(keys[index - 1], keys[index]) } else { keys[index] });
    }
    fences
}

type Generate = fn(usize) -> Vec<u64>;

const DATASETS: [(&str, Generate); 11] = [
    ("uniform", |count| sorted(count, SmallRng::random)),
    ("uniform-2^40", |count| sorted(count, |rng| rng.random_range(1 << 50..(1 << 50) + (1 << 40)))),
    ("dense", |count| (1_000_000..1_000_000 + count as u64).collect()),
    ("normal", |count| {
        let normal = Normal::new(2_f64.powi(63), 2_f64.powi(58)).expect("finite");
        sorted(count, |rng| normal.sample(rng) as u64)
    }),
    ("lognormal", |count| {
        let lognormal = LogNormal::new(0.0, 2.0).expect("finite");
        sorted(count, |rng| (lognormal.sample(rng) * 1e15) as u64)
    }),
    ("clustered-wide", |count| clustered(count, 1_000, |rng| rng.random_range(0..1 << 34))),
    ("clustered", |count| {
        let islands = sorted(count.div_ceil(1_000), SmallRng::random);
        sorted(count, |rng| {
            islands[rng.random_range(0..islands.len())].saturating_add(rng.random_range(0..1 << 20))
        })
    }),
    // Each half of an interval is denser than the other, down to the last: as cells of a map are.
    ("cascade", |count| {
        sorted(count, |rng| {
            (0..64).fold(0, |key: u64, _| {
                let dense_half = (key ^ 0x5bd1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63;
                key << 1 | if rng.random_bool(0.7) { dense_half } else { 1 - dense_half }
            })
        })
    }),
    ("clustered-tiny", |count| clustered(count, count / 100, |rng| rng.random_range(0..1 << 12))),
    ("longitudes", |count| {
        let city = Normal::new(0.0, 2_f64.powi(48)).expect("finite");
        clustered(count, 3_000, |rng| city.sample(rng) as i64 as u64)
    }),
    ("exponential", |count| sorted(count, |rng| 2_f64.powf(rng.random_range(20.0..64.0)) as u64)),
];

/// Distinct keys in order, about `count`.
fn sorted(count: usize, mut draw: impl FnMut(&mut SmallRng) -> u64) -> Vec<u64> {
    let mut rng = SmallRng::seed_from_u64(7);
    let mut keys: Vec<u64> = (0..count).map(|_| draw(&mut rng)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Clusters of unequal weight around uniform centres.
fn clustered(count: usize, clusters: usize, spread: impl Fn(&mut SmallRng) -> u64) -> Vec<u64> {
    let mut rng = SmallRng::seed_from_u64(3);
    let centres: Vec<u64> = (0..clusters).map(|_| rng.random()).collect();
    sorted(count, |rng| {
        let pick = rng.random_range(0.0..1.0_f64).powi(2) * clusters as f64;
        centres[pick as usize].wrapping_add(spread(rng))
    })
}

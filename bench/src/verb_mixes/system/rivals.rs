//! The verbs of FUSEE, Aceso and Clover.

use super::{
    BUCKET_BYTES, Cached, Circumstances, Costs, HOPS_MAX, Kind, LOG_BYTES, SLOT_BYTES, SPACE_BATCH,
    WORD_BYTES, read_buckets,
};
use crate::verb_mixes::program::{Machine, Stage, Verb};

/// FUSEE: replicas of the index agree by votes of their CASes, and each key is prefetched with its buckets.
pub(super) fn fusee(costs: &Costs, at: &Circumstances<'_>) -> Vec<Stage> {
    let (begin, object_bytes) = (costs.begin(at.kind), costs.object_bytes);
    let primary = at.replicas[0];
    let read_object = || Stage::new(0).read(primary, object_bytes);
    let is_write = at.kind != Kind::Search;
    let mut first = read_buckets(begin, primary);
    if is_write {
        first = first.write(at.replicas, object_bytes);
    }
    let mut stages = match at.cached {
        Cached::Nothing if at.kind == Kind::Insert => vec![first],
        Cached::Nothing => vec![first, read_object()],
        Cached::Address { newer: 0 } | Cached::Value => vec![first.read(primary, object_bytes)],
        Cached::Address { .. } => vec![first.read(primary, object_bytes), read_object()],
    };
    if is_write {
        stages.push(swaps(Stage::new(0), &at.replicas[1..], at.lock));
        stages.push(Stage::new(0).write(at.replicas, LOG_BYTES));
        let mut last = swaps(Stage::new(0), &at.replicas[..1], at.lock);
        if at.kind == Kind::Update {
            last = last.write(&at.replicas[..1], WORD_BYTES);
        }
        stages.push(last);
    }
    stages
}

fn swaps(mut stage: Stage, machines: &[Machine], lock: usize) -> Stage {
    for machine in machines {
        stage = stage.post(*machine, Verb::Swap { lock });
    }
    stage
}

/// Aceso: one copy of the index, of slots of 16 B in buckets twice as large, and objects with two deltas.
pub(super) fn aceso(costs: &Costs, at: &Circumstances<'_>) -> Vec<Stage> {
    let (begin, object_bytes) = (costs.begin(at.kind), costs.object_bytes);
    let primary = at.replicas[0];
    let read_object = || Stage::new(0).read(primary, object_bytes);
    let beside_slot = |stage: Stage| stage.read(primary, object_bytes).read(primary, SLOT_BYTES);
    let buckets = |stage: Stage| stage.read(primary, 2 * BUCKET_BYTES).read(primary, 2 * BUCKET_BYTES);
    let mut stages = match at.cached {
        Cached::Nothing if at.kind == Kind::Insert => vec![buckets(begin)],
        Cached::Nothing => vec![buckets(begin), read_object()],
        // An update goes by the slot, whatever object stands there.
        Cached::Address { newer: 0 } | Cached::Value => vec![beside_slot(begin)],
        Cached::Address { .. } if at.kind == Kind::Update => vec![beside_slot(begin)],
        Cached::Address { .. } => vec![beside_slot(begin), read_object()],
    };
    if at.kind != Kind::Search {
        stages.push(Stage::new(0).write(at.replicas, object_bytes));
        stages.push(swaps(Stage::new(0), &at.replicas[..1], at.lock));
    }
    stages
}

/// Clover: a key's versions are a chain, and a metadata server knows where each begins.
pub(super) fn clover(costs: &Costs, at: &Circumstances<'_>) -> Vec<Stage> {
    let (begin, object_bytes) = (costs.begin(at.kind), costs.object_bytes);
    let (primary, server) = (at.replicas[0], at.metadata_server);
    let call = || costs.metadata_call(at.number);
    if at.kind == Kind::Insert {
        return vec![begin.write(at.replicas, object_bytes), Stage::new(0).post(server, call())];
    }
    let is_search = at.kind == Kind::Search;
    // To the newest version: an update needs the end of the chain, a search what stands there.
    let mut stages = match at.cached {
        Cached::Nothing => vec![begin.post(server, call())],
        Cached::Address { newer } => {
            let links = if is_search { newer + 1 } else { newer };
            let mut stages = vec![begin];
            for link in 0..links.min(HOPS_MAX) {
                let stage = if link == 0 { stages.pop().expect("the first") } else { Stage::new(0) };
                stages.push(stage.read(primary, object_bytes));
            }
            if links > HOPS_MAX {
                stages.push(Stage::new(0).post(server, call()));
            }
            stages
        }
        Cached::Value => unreachable!("Clover caches addresses"),
    };
    let is_told_by_server = !matches!(at.cached, Cached::Address { newer } if newer < HOPS_MAX);
    if is_search {
        if is_told_by_server {
            stages.push(Stage::new(0).read(primary, object_bytes));
        }
        return stages;
    }
    let is_first_empty = stages.len() == 1 && stages[0].verbs.is_empty();
    let publish = if is_first_empty { stages.pop().expect("the first") } else { Stage::new(0) };
    let publish = publish.write(at.replicas, object_bytes);
    stages.push(swaps(publish, &at.replicas[..1], at.lock));
    stages.push(Stage::new(0).write(at.replicas, WORD_BYTES));
    // The shortcut to the new version, and now and then memory for the next ones.
    let mut last = Stage::new(0).write(at.replicas, WORD_BYTES).post(server, call());
    if at.number.is_multiple_of(SPACE_BATCH) {
        last = last.post(server, call());
    }
    stages.push(last);
    stages
}

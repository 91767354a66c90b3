//! FlexKV's verbs, in its three ways.

use super::{Cached, Circumstances, Costs, Kind, REPLY_BYTES, REQUEST_BYTES, WORD_BYTES, read_buckets};
use crate::verb_mixes::program::{Call, Machine, Stage, Verb};

/// An operation on a partition that `owner` proxies.
pub(super) fn proxied(costs: &Costs, at: &Circumstances<'_>, owner: Machine) -> Vec<Stage> {
    let (begin, object_bytes) = (costs.begin(at.kind), costs.object_bytes);
    let primary = at.replicas[0];
    if at.kind == Kind::Search {
        let call = || costs.proxy_call(at.partition, costs.prices.core_pair_ps, Vec::new());
        return match at.cached {
            Cached::Value => vec![begin],
            Cached::Address { newer: 0 } => vec![begin.read(primary, object_bytes)],
            // The cached object is marked.
            Cached::Address { .. } => vec![
                begin.read(primary, object_bytes),
                Stage::new(0).post(owner, call()),
                Stage::new(0).read(primary, object_bytes),
            ],
            Cached::Nothing => {
                vec![begin.post(owner, call()), Stage::new(0).read(primary, object_bytes)]
            }
        };
    }
    let mut stages = vec![begin.write(at.replicas, object_bytes)];
    if at.cached == Cached::Nothing {
        stages[0] = read_buckets(std::mem::take(&mut stages[0]), primary);
    }
    if at.cached == Cached::Nothing && at.kind == Kind::Update {
        stages.push(Stage::new(0).read(primary, object_bytes));
    }
    stages.push(Stage::new(0).post(owner, commit(costs, at)));
    stages
}

/// The call by which a proxy publishes a slot.
fn commit(costs: &Costs, at: &Circumstances<'_>) -> Verb {
    let mut publish = Stage::new(0).write(at.replicas, WORD_BYTES);
    if at.kind == Kind::Update {
        // Addresses are cached of primaries alone, so only that object is marked.
        publish = publish.write(&at.replicas[..1], WORD_BYTES);
    }
    for sharer in at.sharers {
        let invalidate = costs.proxy_call(at.partition, costs.prices.core_pair_ps, Vec::new());
        publish = publish.post(*sharer, invalidate);
    }
    costs.proxy_call(at.partition, costs.prices.core_write_entry_ps, vec![publish])
}

/// An operation on a partition that nobody proxies. The index is of one primary and its backups.
pub(super) fn one_sided(costs: &Costs, at: &Circumstances<'_>) -> Vec<Stage> {
    let (begin, object_bytes) = (costs.begin(at.kind), costs.object_bytes);
    let primary = at.replicas[0];
    let read_object = || Stage::new(0).read(primary, object_bytes);
    if at.kind == Kind::Search {
        return match at.cached {
            Cached::Address { newer: 0 } => vec![begin.read(primary, object_bytes)],
            Cached::Address { .. } => {
                vec![begin.read(primary, object_bytes), read_buckets(Stage::new(0), primary), read_object()]
            }
            _ => vec![read_buckets(begin, primary), read_object()],
        };
    }
    let begin = begin.write(at.replicas, object_bytes);
    let mut stages = match at.cached {
        Cached::Nothing if at.kind == Kind::Update => vec![read_buckets(begin, primary), read_object()],
        Cached::Nothing => vec![read_buckets(begin, primary)],
        _ => vec![begin.read(primary, WORD_BYTES)],
    };
    stages.push(Stage::new(0).post(primary, Verb::Swap { lock: at.lock }));
    let mut rest = Stage::new(0).write(&at.replicas[1..], WORD_BYTES);
    if at.kind == Kind::Update {
        rest = rest.write(&at.replicas[..1], WORD_BYTES);
    } else {
        // Another INSERT of the key may have taken another slot.
        rest = read_buckets(rest, primary);
    }
    stages.push(rest);
    stages
}

/// An operation of FlexKV-OP: all is done by the key's owner, to which the client sends the value.
pub(super) fn owned(costs: &Costs, at: &Circumstances<'_>) -> Vec<Stage> {
    let owner = at.owner.expect("every key has an owner");
    let object_bytes = costs.object_bytes;
    let (request_bytes, reply_bytes, work_ps, stages) = match at.kind {
        Kind::Search => {
            let read = Stage::new(0).read(at.replicas[0], object_bytes);
            let stages = if at.is_value_at_owner { Vec::new() } else { vec![read] };
            (REQUEST_BYTES, REPLY_BYTES + object_bytes, costs.prices.core_pair_ps, stages)
        }
        Kind::Update | Kind::Insert => {
            let stages = [object_bytes, WORD_BYTES].map(|bytes| Stage::new(0).write(at.replicas, bytes));
            (REQUEST_BYTES + object_bytes, REPLY_BYTES, costs.prices.core_write_entry_ps, stages.into())
        }
    };
    let thread = costs.proxy_thread(at.partition);
    let call = Call { thread, request_bytes, reply_bytes, work_ps, stages };
    vec![costs.begin(at.kind).post(owner, Verb::Call(call))]
}

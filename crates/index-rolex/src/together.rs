//! Several writes to one leaf under one lock, as one list of WRITEs: a function of the locked leaf's copy,
//! without I/O.
//!
//! Invariant: after any prefix of the WRITEs the leaf is as if the writes had been made one after the other,
//! each under a lock of its own. Their order is that in which they are planned here. It is free: all of them
//! are under way. Writes that only replace one key's value one after the other are the last of them
//! alone: nobody sees the leaf between them. So it is with writes that look at the value first, of which each
//! sees what the one before stored.

use farsight_index::{Decision, HeldPair, decide};
use farsight_layout::pool::{LockedLeaf, Writes};
use farsight_layout::{KeySearch, VALUE_BYTES_MAX};
use farsight_protocol::WriteOperation::{self, Put, Update};
use farsight_protocol::WriteOutcome;

use crate::Write;
use crate::gate::{Asked, End};
use crate::overtaken::next_version;
use crate::plan::{Planned, plan_locked};
use crate::write::may_be_merged;

/// What is planned of one write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Not looked at yet.
    Open,
    /// It is done with the WRITEs.
    Done(WriteOutcome),
    /// Nothing: it concerns more than this leaf, or the trainer.
    Own,
    /// Nothing: there was no room for its WRITEs.
    Later,
}

/// How the writes that were taken come out, once the WRITEs are executed.
pub(crate) fn ends<'t>(taken: &'t [Asked], parts: &[Part]) -> impl Iterator<Item = (&'t Asked, End)> {
    let end = |part: &Part| match part {
        Part::Done(outcome) => End::Done(*outcome),
        Part::Later => End::Later,
        Part::Own | Part::Open => End::Own,
    };
    taken.iter().zip(parts.iter().map(end))
}

/// Plans a session's own write and those that it took, in at most `writes_max` WRITEs. The own one's part;
/// the others' are added to `parts`. The lock's release is left to the caller.
pub(crate) fn plan_together(
    leaf: &mut LockedLeaf<'_>,
    (own, taken): (&Write<'_>, &[Asked]),
    writes_max: usize,
    writes: &mut Writes,
    parts: &mut Vec<Part>,
) -> Part {
    let write_of = |index: usize| if index == taken.len() { *own } else { taken[index].write() };
    let count = taken.len() + 1;
    let writes_each = leaf.change_writes_max();
    let first = parts.len();
    parts.resize(first + count, Part::Open);
    plan_each(leaf, (count, write_of), (writes_max, writes_each), writes, &mut parts[first..]);
    parts.pop().expect("the own one's")
}

/// Fills in the parts of so many writes, beginning with those of the last one's key.
fn plan_each<'w>(
    leaf: &mut LockedLeaf<'_>,
    (count, write_of): (usize, impl Fn(usize) -> Write<'w> + Copy),
    (writes_max, writes_each): (usize, usize),
    writes: &mut Writes,
    parts: &mut [Part],
) {
    for begin in (0..count).rev() {
        if parts[begin] != Part::Open {
            continue;
        }
        let key = write_of(begin).key;
        let of_key = (0..=begin).filter(|index| write_of(*index).key == key);
        plan_key(leaf, (of_key, write_of), (writes_max, writes_each), writes, parts);
    }
}

/// Fills in the parts of all writes of one key.
fn plan_key<'w>(
    leaf: &mut LockedLeaf<'_>,
    (of_key, write_of): (impl Iterator<Item = usize> + Clone, impl Fn(usize) -> Write<'w> + Copy),
    (writes_max, writes_each): (usize, usize),
    writes: &mut Writes,
    parts: &mut [Part],
) {
    if of_key.clone().all(|index| matches!(write_of(index).operation, Update | Put))
        && writes.len() + writes_each <= writes_max
        && replace_once(leaf, (of_key.clone(), write_of), writes, parts)
    {
        return;
    }
    let is_kept = |index| !write_of(index).operation.may_remove();
    if of_key.clone().any(|index| write_of(index).operation.is_conditional())
        && of_key.clone().nth(1).is_some()
        && of_key.clone().all(is_kept)
        && writes.len() + writes_each <= writes_max
        && change_once(leaf, (of_key.clone(), write_of), writes, parts)
    {
        return;
    }
    for index in of_key {
        let write = write_of(index);
        parts[index] = match is_alone(leaf, write.operation, write.key) {
            false => Part::Own,
            true if writes.len() + writes_each > writes_max => Part::Later,
            true => match plan_locked(leaf, None, &write, writes) {
                Planned::Done(outcome) => Part::Done(outcome),
                _ => Part::Own,
            },
        };
    }
}

/// Replaces a present key's value by each of these writes' in turn, of which the last one remains. False, and
/// nothing planned: the key is absent, or there are no more versions.
fn replace_once<'w>(
    leaf: &mut LockedLeaf<'_>,
    (of_key, write_of): (impl Iterator<Item = usize> + Clone, impl Fn(usize) -> Write<'w>),
    writes: &mut Writes,
    parts: &mut [Part],
) -> bool {
    let Some(last) = of_key.clone().last().map(write_of) else { return false };
    let KeySearch::Hit { slot, .. } = leaf.search(last.key) else { return false };
    let mut version = leaf.newest_version();
    for index in of_key.clone() {
        let Some(next) = next_version(version, false) else {
            of_key.for_each(|index| parts[index] = Part::Open);
            return false;
        };
        version = next;
        parts[index] = Part::Done(WriteOutcome::Replaced(version));
    }
    leaf.update(slot, version, last.value, writes);
    true
}

/// Changes a present key's value by each of these writes in turn, none of which removes it. One change of the
/// leaf, to the last value, does all. False, and nothing planned: the key is absent, or there are no more
/// versions. It is no part of its caller, whose other writes would pay for that.
#[inline(never)]
fn change_once<'w>(
    leaf: &mut LockedLeaf<'_>,
    (of_key, write_of): (impl Iterator<Item = usize> + Clone, impl Fn(usize) -> Write<'w>),
    writes: &mut Writes,
    parts: &mut [Part],
) -> bool {
    let Some(key) = of_key.clone().next().map(|index| write_of(index).key) else { return false };
    let KeySearch::Hit { slot, .. } = leaf.search(key) else { return false };
    let (mut version, mut newest) = (leaf.version(slot), leaf.newest_version());
    let mut value = [0; VALUE_BYTES_MAX];
    let value = &mut value[..leaf.value_bytes()];
    leaf.value(slot, value);
    for index in of_key.clone() {
        let write = write_of(index);
        write.note_old(Some(value));
        parts[index] =
            Part::Done(match decide(write.operation, write.value, Some(HeldPair { version, value })) {
                Decision::Leave(outcome) => outcome,
                Decision::Store(stored) => {
                    let Some(next) = next_version(newest, write.operation.is_conditional()) else {
                        of_key.for_each(|index| parts[index] = Part::Open);
                        return false;
                    };
                    value.copy_from_slice(stored.bytes());
                    (version, newest) = (next, next);
                    WriteOutcome::Replaced(version)
                }
                Decision::Remove => unreachable!("none of these operations removes a key"),
            });
    }
    if version != leaf.version(slot) {
        leaf.update(slot, version, value, writes);
    }
    true
}

/// True if a write changes one slot of the leaf at most, and leaves nothing for a trainer to do.
fn is_alone(leaf: &LockedLeaf<'_>, operation: WriteOperation, key: u64) -> bool {
    match leaf.search(key) {
        KeySearch::Hit { .. } if operation.may_remove() => leaf.sorted().1 > 1 || !may_be_merged(leaf),
        KeySearch::Hit { .. } => true,
        KeySearch::Absent => !operation.may_insert() || leaf.free_slot().is_some(),
        _ => false,
    }
}

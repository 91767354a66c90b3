//! One write to one leaf, as the WRITEs that do it: a function of the locked leaf's copy, without I/O.
//!
//! Invariant: the plan ends with the lock's release. Every prefix of it is a leaf that readers may see and
//! that [`LockedLeaf::repair`] completes or undoes (docs/protocol/rolex.md; the tests try all of them).

use std::cell::Cell;

use farsight_index::{Decision, HeldPair, decide};
use farsight_layout::pool::{LockWord, LockedLeaf, Writes};
use farsight_layout::{KeySearch, LEAF_SLOTS, LeafSlot, VALUE_BYTES_MAX};
use farsight_model::shortest_fence;
use farsight_protocol::{ErrorCode, WriteOperation, WriteOutcome};

/// What is to be written.
#[derive(Clone, Copy, Debug)]
pub struct Write<'v> {
    /// What the caller requests.
    pub operation: WriteOperation,
    /// The key.
    pub key: u64,
    /// The operand: mostly the value ([`WriteOperation::operand_bytes`]).
    pub value: &'v [u8],
    /// Where the value before goes, if the operation returns it; else empty. What is planned may be planned
    /// anew: the last one counts.
    pub old: &'v [Cell<u8>],
}

impl Write<'_> {
    /// Notes what the key held before; zeros for nothing.
    pub(crate) fn note_old(&self, value: Option<&[u8]>) {
        match value {
            Some(value) => self.old.iter().zip(value).for_each(|(place, byte)| place.set(*byte)),
            None => self.old.iter().for_each(|place| place.set(0)),
        }
    }
}

/// What became of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planned {
    /// The WRITEs do it; this is its outcome.
    Done(WriteOutcome),
    /// Nothing is planned: the leaf must be split, and there is no block for its right half.
    NeedsBlock,
    /// Nothing is planned: the key does not belong to this leaf.
    Elsewhere,
    /// What is planned must not be executed: no writer leaves such a leaf.
    Damaged,
}

/// Plans `write` on `leaf`, which is consistent and locked, and the lock's release. If the leaf must be split
/// its upper half goes to `room`, a block of the same memory node that is no leaf of the chain.
pub fn plan(
    leaf: &mut LockedLeaf<'_>,
    room: Option<&mut LockedLeaf<'_>>,
    write: &Write<'_>,
    writes: &mut Writes,
) -> Planned {
    let planned = plan_locked(leaf, room, write, writes);
    if matches!(planned, Planned::Done(_)) {
        leaf.unlock(LockWord::FREE, writes);
    }
    planned
}

/// [`plan`], without the lock's release.
pub(crate) fn plan_locked(
    leaf: &mut LockedLeaf<'_>,
    room: Option<&mut LockedLeaf<'_>>,
    write: &Write<'_>,
    writes: &mut Writes,
) -> Planned {
    use WriteOperation::{Insert, Put, Remove, Update};
    let found = leaf.search(write.key);
    let mut write = *write;
    let stored;
    let is_conditional = write.operation.is_conditional();
    if is_conditional {
        match decide_on(leaf, found, &write) {
            Some(Decision::Leave(outcome)) => return Planned::Done(outcome),
            Some(Decision::Remove) => write.operation = Remove,
            Some(Decision::Store(value)) => {
                stored = value;
                (write.operation, write.value) = (Put, stored.bytes());
            }
            None => return Planned::Elsewhere,
        }
    }
    let write = &write;
    let outcome = match (found, write.operation) {
        (KeySearch::Hit { slot, .. }, Insert) => WriteOutcome::Exists(leaf.version(slot)),
        (KeySearch::Hit { slot, .. }, Update | Put) => update(leaf, slot, (write, is_conditional), writes),
        (KeySearch::Hit { slot, .. }, Remove) => {
            leaf.remove(slot, writes);
            WriteOutcome::Removed(leaf.version(slot))
        }
        (KeySearch::Absent, Update | Remove) => WriteOutcome::Absent,
        (KeySearch::Absent, Insert | Put) => match insert(leaf, room, write, writes) {
            Ok(outcome) => outcome,
            Err(planned) => return planned,
        },
        _ => return Planned::Elsewhere,
    };
    Planned::Done(outcome)
}

/// What a conditional write does to its key, at `found`; `None`: the key is not this leaf's. Notes the value
/// before. It is no part of its caller, whose other writes would pay for that.
#[inline(never)]
fn decide_on<'v>(leaf: &LockedLeaf<'_>, found: KeySearch, write: &Write<'v>) -> Option<Decision<'v>> {
    let mut value = [0; VALUE_BYTES_MAX];
    let value = &mut value[..leaf.value_bytes()];
    let held = match found {
        KeySearch::Hit { slot, .. } => {
            leaf.value(slot, value);
            Some(HeldPair { version: leaf.version(slot), value })
        }
        KeySearch::Absent => None,
        _ => return None,
    };
    write.note_old(held.map(|held| held.value));
    Some(decide(write.operation, write.value, held))
}

/// The version that the next write to the leaf gets, if there is one.
fn next_version(leaf: &LockedLeaf<'_>, is_conditional: bool) -> Result<u64, WriteOutcome> {
    crate::overtaken::next_version(leaf.newest_version(), is_conditional)
        .ok_or(WriteOutcome::Failed(ErrorCode::VersionsExhausted))
}

fn update(
    leaf: &mut LockedLeaf<'_>,
    slot: LeafSlot,
    (write, is_conditional): (&Write<'_>, bool),
    writes: &mut Writes,
) -> WriteOutcome {
    match next_version(leaf, is_conditional) {
        Ok(version) => {
            leaf.update(slot, version, write.value, writes);
            WriteOutcome::Replaced(version)
        }
        Err(refused) => refused,
    }
}

/// Inserts an absent key, unless that takes a block and there is none, or the leaf is damaged.
fn insert(
    leaf: &mut LockedLeaf<'_>,
    room: Option<&mut LockedLeaf<'_>>,
    write: &Write<'_>,
    writes: &mut Writes,
) -> Result<WriteOutcome, Planned> {
    let version = match next_version(leaf, false) {
        Ok(version) => version,
        Err(refused) => return Ok(refused),
    };
    let inserted = WriteOutcome::Inserted(version);
    if let Some(slot) = leaf.free_slot() {
        leaf.insert(slot, write.key, version, write.value, writes);
        return Ok(inserted);
    }
    let (pairs, count) = leaf.sorted();
    if count <= LEAF_SLOTS / 2 {
        leaf.compact(writes);
        insert_into_free(leaf, write, version, writes)?;
    } else {
        let separator = separator(leaf, &pairs[..count], write.key).ok_or(Planned::Damaged)?;
        let right = room.ok_or(Planned::NeedsBlock)?;
        leaf.split(separator, right, writes);
        if write.key < separator {
            insert_into_free(leaf, write, version, writes)?;
        } else {
            insert_into_free(right, write, version, writes)?;
        }
        right.unlock(LockWord::FREE, writes);
    }
    leaf.clear_journal(writes);
    Ok(inserted)
}

fn insert_into_free(
    leaf: &mut LockedLeaf<'_>,
    write: &Write<'_>,
    version: u64,
    writes: &mut Writes,
) -> Result<(), Planned> {
    let slot = leaf.free_slot().ok_or(Planned::Damaged)?;
    leaf.insert(slot, write.key, version, write.value, writes);
    Ok(())
}

/// Where a full leaf is split for `key`: in the middle, but at the end of all keys behind the last, so that
/// ascending inserts leave full leaves. There it takes the separator with the most trailing zeros, so that
/// the fence hints of tables tell neighbours apart. `None` if its keys do not lie between its fences.
fn separator(leaf: &LockedLeaf<'_>, pairs: &[(u64, LeafSlot)], key: u64) -> Option<u64> {
    let fences = leaf.fences()?;
    let separator = match pairs.last() {
        Some((last, _)) if fences.high.is_none() && *last < key => shortest_fence(*last, key),
        _ => {
            let [left, right] = [pairs.len() / 2 - 1, pairs.len() / 2].map(|index| pairs[index].0);
            (left < right).then(|| shortest_fence(left, right))?
        }
    };
    (fences.low < separator && fences.contain(separator)).then_some(separator)
}

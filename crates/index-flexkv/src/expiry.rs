//! Pairs that end by themselves: what stands before a value is its pair's deadline.
//!
//! Invariant: to a write a pair is absent from its deadline on, by the nodes' time as this compute node knows
//! it. So a write that finds one that has ended decides as if the key were absent, and takes its slot over.
//! Reads give out what is stored, and their callers take the deadline off.
//!
//! A write by an address would not know whether the pair has ended that it replaces. So in a table with
//! deadlines each write looks.
//!
//! Protocol by which memory comes back:
//! 1. The background of a shard's head finds objects whose pairs have ended. With each exchange of memory it
//!    names some to the compute node that asks.
//! 2. Before its next writes, or when it is refused memory, that compute node READs them.
//! 3. It removes each pair, by key and version, if its deadline has passed here, too. That is a removal as
//!    any other ([`crate::remove`]). But it decides the other way round: a pair that has not ended is absent
//!    to it.
//!
//! A compute node that ends before step 3 leaves the pairs to the next pass of the background.

use farsight_base::Line;
use farsight_base::words::bytes_of;
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{QueuePair, ReadMode};
use farsight_index::HeldPair;
use farsight_layout::Deadline;
use farsight_layout::value_block::ValueBlock;
use farsight_protocol::{ErrorCode, INTEGER_BYTES, ObjectMemory, Operand, ServerError, WriteOperation};

#[cfg(injected)]
use crate::injected;
use crate::look::{Looked, value_of};
use crate::object::place_of;
use crate::session::VERBS_A_WRITE;
use crate::write::{Write, replaces_any_value};
use crate::{FlexError, FlexSession};

/// No batch of writes takes longer.
const BATCH_MS: u64 = 60_000;
/// Removals side by side.
const REMOVALS: usize = 16;
/// Attempts of a write that is refused memory while pairs that have ended have it.
pub(crate) const ROOM_ATTEMPTS: usize = 16;

/// A pair as a write finds it.
#[derive(Clone, Copy)]
pub(crate) struct FoundPair<'l> {
    /// As it is to the write; `None` if the key is absent, or its pair has ended.
    pub(crate) pair: Option<HeldPair<'l>>,
    /// The pair's deadline.
    pub(crate) deadline: Deadline,
}

/// True if what failed is that there is no memory.
pub(crate) fn is_without_room<T>(outcome: &Result<T, FlexError>) -> bool {
    let Err(FlexError::Call { source }) = outcome else { return false };
    source.downcast_ref::<ServerError>().is_some_and(|error| error.code == ErrorCode::RegionFull)
}

impl FlexSession {
    /// True if pairs have deadlines.
    pub(crate) fn has_deadlines(&self) -> bool {
        self.table.values().expiry().is_some()
    }

    /// True if a write of this kind replaces a pair without having looked at it.
    pub(crate) fn is_blind(&self, operation: WriteOperation) -> bool {
        replaces_any_value(operation) && !self.has_deadlines()
    }

    /// What a write has found. `lines` have its object.
    pub(crate) fn held<'l>(
        &self,
        write: &Write<'_>,
        looked: Looked,
        lines: &'l [Line],
    ) -> Result<FoundPair<'l>, FlexError> {
        let Looked::Present { version, .. } = looked else {
            return Ok(FoundPair { pair: None, deadline: Deadline::NEVER });
        };
        let stored = value_of(lines);
        if !self.has_deadlines() {
            return Ok(FoundPair {
                pair: Some(HeldPair { version, value: stored }),
                deadline: Deadline::NEVER,
            });
        }
        let (deadline, value) = Deadline::split(stored)
            .ok_or_else(|| FlexError::NoDeadline { key: write.key.into(), got_bytes: stored.len() })?;
        let has_ended = deadline != Deadline::NEVER && deadline.is_past(self.unix_ms()?);
        #[cfg(injected)]
        let has_ended = has_ended && !injected::ENDED_PAIR_HELD.is_injected();
        let is_there = has_ended == write.is_ending;
        Ok(FoundPair { pair: is_there.then_some(HeldPair { version, value }), deadline })
    }

    /// What is stored of a sum: it keeps the deadline of the pair that was there.
    pub(crate) fn stored_sum(
        &self,
        operand: Operand<'_>,
        held: FoundPair<'_>,
        sum: [u8; INTEGER_BYTES],
    ) -> Vec<u8> {
        if !self.has_deadlines() {
            return sum.to_vec();
        }
        let own = operand.value.to_vec();
        let deadline = held.pair.map_or(own, |_| held.deadline.to_bytes().to_vec());
        [&deadline[..], &sum].concat()
    }

    /// True if one of these stored values may end so soon that another write of its key comes behind that.
    pub(crate) fn may_end_soon<'v>(&self, mut stored: impl Iterator<Item = &'v [u8]>) -> bool {
        if !self.has_deadlines() {
            return false;
        }
        let Ok(now_ms) = self.unix_ms() else { return true };
        stored.any(|stored| {
            let deadline = Deadline::split(stored).map_or(Deadline::NEVER, |(deadline, _)| deadline);
            deadline.is_past(now_ms.saturating_add(BATCH_MS))
        })
    }

    /// The nodes' time of day.
    fn unix_ms(&self) -> Result<u64, FlexError> {
        self.calls.unix_ms().map_err(FlexError::of_call)
    }

    /// Removes pairs that have ended, of which nodes have told. Called once a batch of writes.
    pub(crate) fn end_pairs<Q: QueuePair>(&self, queues: &mut [Q]) -> Result<(), FlexError> {
        let ended = self.stock.take_ended();
        if ended.is_empty() {
            return Ok(());
        }
        let width = (Q::SLOTS / VERBS_A_WRITE).min(REMOVALS);
        self.run(queues, width, ended.into_iter(), &async |slot, (shard, memory)| {
            self.end_pair(&slot, shard, memory).await
        })
    }

    /// The same, of a write that is refused memory. False if no node has told of any.
    pub(crate) async fn end_some<Q: QueuePair>(&self, slot: &PoolSlot<'_, '_, Q>) -> Result<bool, FlexError> {
        let ended = self.stock.take_ended();
        for (shard, memory) in &ended {
            self.end_pair(slot, *shard, *memory).await?;
        }
        Ok(!ended.is_empty())
    }

    /// Removes the pair whose object this is, if it has ended.
    async fn end_pair<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        shard: usize,
        memory: ObjectMemory,
    ) -> Result<(), FlexError> {
        let place = place_of(memory);
        // The node's word: it may name what is no object.
        if !place.is_sound() || !self.table.has_object(shard, place) {
            return Ok(());
        }
        let (tail, mut lines) = (self.table.tail(shard), vec![Line::ZERO; place.lines.into()]);
        slot.read(tail.node, tail.object_address(place), &mut lines, ReadMode::Plain).await?;
        // Another pair's by now, or damaged: the key is not known.
        let Ok(block) = ValueBlock::parse(bytes_of(&lines)) else { return Ok(()) };
        let Some(key) = self.table.key_of(block.key()).filter(|_| block.table() == place.generation) else {
            return Ok(());
        };
        let version = block.version().to_le_bytes();
        let operand = Operand { argument: &version, value: &[] };
        let (operation, then) = (WriteOperation::RemoveIf, &[][..]);
        let write = Write { operation, key, operand, absorbed: 0, then, is_ending: true };
        match Box::pin(self.write(slot, write, &mut Vec::new())).await {
            // The background finds it again.
            Ok(_) | Err(FlexError::Contended { .. } | FlexError::Late { .. } | FlexError::Damaged { .. }) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use farsight_base::LINE_BYTES;
    use farsight_index::Writes;
    use farsight_layout::hash_index::{Candidate, ObjectPlace, ObjectRef, Sharing, SlotPlace};
    use farsight_layout::value_block::{RecordKind, push_record};
    use farsight_protocol::ValueKind;

    use super::*;
    use crate::session::tests::{NOW_MS, session_of};

    /// The object of key 5, of version 9, with this deadline.
    fn lines_of(deadline: Deadline) -> Vec<Line> {
        let mut bytes = Vec::new();
        let stored = [&deadline.to_bytes()[..], b"value"].concat();
        push_record(&mut bytes, RecordKind::Pair, 9, 1, &5_u64.to_le_bytes(), &stored).expect("a record");
        bytes.resize(bytes.len().next_multiple_of(LINE_BYTES), 0);
        let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        words.as_chunks().0.iter().map(|words| Line(*words)).collect()
    }

    fn looked() -> Looked {
        let place = ObjectPlace { offset_lines: 1, lines: 1, generation: 1 };
        let object = ObjectRef::new(&5_u64.to_le_bytes(), place);
        let found = Candidate { place: SlotPlace { line: 0, slot: 0 }, object, sharing: Sharing::Unshared };
        Looked::Present { found, version: 9 }
    }

    #[test]
    fn a_pair_is_absent_to_writes_from_its_deadline_on() {
        let session = session_of(1, ValueKind::blocks(100).expiring(0), &Arc::default());
        let write = |is_ending| {
            let operand = Operand { argument: &[], value: &[] };
            let (operation, then) = (WriteOperation::Update, &[][..]);
            Write { operation, key: 5.into(), operand, absorbed: 0, then, is_ending }
        };
        let deadlines =
            [(NOW_MS - 1, true), (NOW_MS, true), (NOW_MS + 1, false), (u64::MAX, false), (0, false)];
        for (deadline, has_ended) in deadlines {
            let lines = lines_of(Deadline(deadline));
            let held = |is_ending| session.held(&write(is_ending), looked(), &lines).expect("a deadline");
            let pair = HeldPair { version: 9, value: b"value" };
            assert_eq!(held(false).pair, (!has_ended).then_some(pair), "{deadline}");
            assert_eq!(held(true).pair, has_ended.then_some(pair), "{deadline}: to what removes it");
            assert_eq!(held(false).deadline, Deadline(deadline));
            let sum = |held| session.stored_sum(Operand { argument: &[], value: &[7; 8] }, held, [1; 8]);
            let own = if has_ended { [7; 8] } else { deadline.to_le_bytes() };
            assert_eq!(sum(held(false)), [own, [1; 8]].concat(), "{deadline}");
        }
        let absent = session.held(&write(false), Looked::Absent, &[]).expect("no pair");
        assert_eq!(absent.pair, None);
        let plain = session_of(1, ValueKind::blocks(100), &Arc::default());
        let lines = lines_of(Deadline(NOW_MS));
        let held = plain.held(&write(false), looked(), &lines).expect("a pair").pair.expect("it stays");
        assert_eq!(held.value.len(), 13, "all of it is the value");
    }

    #[test]
    fn writes_that_may_end_soon_are_not_combined() {
        let session = session_of(1, ValueKind::blocks(100).expiring(0), &Arc::default());
        let is_combined = |first: u64, second: u64| {
            let values = [first.to_le_bytes(), second.to_le_bytes()].concat();
            let writes = Writes {
                operation: WriteOperation::Put,
                keys: &[5.into(), 5.into()],
                values: &values,
                bounds: &[0, 8, 16],
            };
            session.combine(writes).is_some()
        };
        assert!(is_combined(0, u64::MAX));
        assert!(is_combined(NOW_MS + BATCH_MS + 1, 0));
        assert!(!is_combined(NOW_MS + BATCH_MS, 0));
        assert!(!is_combined(0, NOW_MS - 1));
    }

    #[cfg(injected)]
    #[test]
    fn a_pair_that_has_ended_and_is_held_is_found() {
        farsight_base::injection::assert_found(
            &injected::ENDED_PAIR_HELD,
            a_pair_is_absent_to_writes_from_its_deadline_on,
        );
    }
}

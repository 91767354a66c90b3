//! Replicas brought to what the head has: of a subtable that is split, and of a whole shard.
//!
//! A writer that ended may have left replicas that differ in a slot ([`crate::chain`]). The head's node has
//! to know that none does before it frees memory that ended compute nodes wrote. Its own slots do not name
//! that memory, and the tail's may.
//!
//! Protocol, of a compute node that the head's node has requested it of:
//! 1. READ directory and subtables of each partition, at the tail, and behind that at the head.
//! 2. Have the other replicas follow wherever the two differ.
//! 3. Tell the head's node. What it found unnamed before it asked, nobody names now.

use farsight_base::Line;
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{QueuePair, ReadMode};
use farsight_index::Key;
use farsight_layout::hash_index::{DIRECTORY_LINES, HASH_PARTITIONS, Halves, SlotPlace, SlotState};

use crate::chain::Change;
use crate::split::{is_reserved, slots_of};
use crate::table::Replica;
use crate::{FlexError, FlexSession};

/// Attempts to have a shard settled before this compute node writes there.
const SETTLINGS_MAX: u32 = 64;

impl FlexSession {
    /// Does what heads' nodes have requested: fences compute nodes, and settles shards. Called once a batch
    /// of writes.
    pub(crate) fn settle_wanted<Q: QueuePair>(&self, queues: &mut [Q]) -> Result<(), FlexError> {
        'shards: for shard in self.stock.unsettled() {
            self.stock.fence_ended(&*self.calls, shard)?;
            for _ in 0..SETTLINGS_MAX {
                let Some(number) = self.stock.take_wanted(&*self.calls, shard)? else { continue 'shards };
                self.run(queues, 1, std::iter::once(shard), &async |slot, shard| {
                    self.settle_shard(&slot, shard).await
                })?;
                self.stock.note_settled(&*self.calls, shard, number)?;
            }
            let source = format!("shard {shard} is not settled after {SETTLINGS_MAX} attempts").into();
            return Err(FlexError::Call { source });
        }
        Ok(())
    }

    /// Steps 1 and 2.
    async fn settle_shard<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        shard: usize,
    ) -> Result<(), FlexError> {
        let (shape, chain) = (self.table.shape(shard), self.table.chain(shard));
        let (head, tail) = (&chain[0], &chain[chain.len() - 1]);
        let mut lines = vec![Line::ZERO; shape.buckets().lines() as usize];
        let mut at_head = lines.clone();
        for partition in (shard..HASH_PARTITIONS).step_by(self.table.shards()) {
            let words = self.level_directory(slot, shard, partition).await?;
            let mut left = vec![shape.root(partition)];
            while let Some(subtable) = left.pop() {
                let first_line = shape.unit_line(subtable.unit());
                self.read_unit(slot, tail, first_line, &mut lines).await?;
                self.read_unit(slot, head, first_line, &mut at_head).await?;
                self.level(slot, (0.into(), shard), first_line, (&mut lines, &at_head)).await?;
                let halves =
                    subtable.directory_word().and_then(|word| Halves::parse(words(word), shape.units()));
                if let Some(halves) = halves {
                    left.extend([0, 1].map(|half| subtable.half(half, halves)));
                }
            }
        }
        Ok(())
    }

    /// Has all replicas have the words of a partition's directory that the head has: those words.
    pub(crate) async fn level_directory<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        shard: usize,
        partition: usize,
    ) -> Result<impl Fn(usize) -> u64 + use<Q>, FlexError> {
        let (shape, chain) = (self.table.shape(shard), self.table.chain(shard));
        let line = shape.directory_line(partition);
        let at_tail = read_directory(slot, &chain[chain.len() - 1], line).await?;
        let at_head = read_directory(slot, &chain[0], line).await?;
        for (index, word) in at_head.iter().flat_map(|line| line.0).enumerate() {
            // What names no units of the shard no compute node wrote: the look that meets it says so.
            if word == at_tail[index / 8].0[index % 8] || Halves::parse(word, shape.units()).is_none() {
                continue;
            }
            for at in &chain[1..] {
                let mut address = at.index_address(line);
                address.offset_bytes += index as u64 * 8;
                slot.post_compare_swap(at.node, 0, address, 0, word);
                slot.completed().await;
                slot.take_word(at.node, 0)?;
            }
        }
        Ok(move |index: usize| at_head[index / 8].0[index % 8])
    }

    /// Has the tail's slots have what the head's have, where nobody else has done so. `lines` are the tail's,
    /// and were READ before.
    pub(crate) async fn level<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        of: (Key<'_>, usize),
        first_line: u32,
        (lines, at_head): (&mut [Line], &[Line]),
    ) -> Result<(), FlexError> {
        let mut seals = Vec::new();
        let slots = slots_of(first_line, lines).zip(slots_of(first_line, at_head));
        let behind: Vec<_> = slots.filter(|((_, before), (_, after))| before != after).collect();
        for ((place, before), (_, after)) in behind {
            match after.state() {
                SlotState::Sealed(_) => seals.push((place, (before, after))),
                _ => self.help(slot, of, place, (before, after)).await?,
            }
            if !is_reserved(after) {
                lines[(place.line - first_line) as usize].0[1 + usize::from(place.slot)] = after.0;
            }
        }
        self.carry_all(slot, of.1, &seals).await
    }

    /// Has the replicas behind the head follow, with many slots.
    pub(crate) async fn carry_all<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        shard: usize,
        changes: &[(SlotPlace, Change)],
    ) -> Result<(), FlexError> {
        for at in &self.table.chain(shard)[1..] {
            for some in changes.chunks(slot.verbs()) {
                for (verb, (place, (before, after))) in some.iter().enumerate() {
                    slot.post_compare_swap(at.node, verb, at.slot_address(*place), before.0, after.0);
                }
                slot.completed().await;
                for verb in 0..some.len() {
                    slot.take_word(at.node, verb)?;
                }
            }
        }
        Ok(())
    }
}

pub(crate) async fn read_directory<Q: QueuePair>(
    slot: &PoolSlot<'_, '_, Q>,
    at: &Replica,
    line: u32,
) -> Result<[Line; DIRECTORY_LINES], FlexError> {
    let mut lines = [Line::ZERO; DIRECTORY_LINES];
    slot.read(at.node, at.index_address(line), &mut lines, ReadMode::Plain).await?;
    Ok(lines)
}

//! A slot that names no image of its group: it is trained anew from its leaves alone.
//!
//! Invariant: a slot's image stands whole before the slot names it, and its lines are written anew no sooner
//! than the slot names another. So a pointer that was the same in several steps, and under which no image of
//! the group was ever found, is a wrong one. A trainer that slept over several directories exchanged it
//! ([`runs`](super::runs)), or something else wrote the memory.
//!
//! Protocol: the group's leaves follow those of the group before, whose image names them; the first group's
//! begin at the table's first leaf. If that image is wrong, too, it comes first. Until then, readers ask
//! again, with pauses.

use farsight_fabric::QueuePair;
use farsight_fabric::lane::PoolSlot;
use farsight_layout::learned::{DirectorySlot, GroupTime};

use super::{LineSource, Outcome, TrainError, Trainer};
use crate::LeafPlace;

/// Steps in a row that find no image under the same pointer before the group is trained anew.
const STALE_STEPS_MAX: u32 = 4;

impl Trainer {
    /// Notes that no image of this group was found where its slot points to; trains it anew if that was so
    /// again and again.
    pub(super) async fn note_stale<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        group: usize,
        slots: &[DirectorySlot],
    ) -> Result<Outcome, TrainError<S::Error>> {
        let (seen, before) = (slots[group], group.saturating_sub(1));
        let Some(current) = self.current.as_mut() else { return Ok(Outcome::Lost) };
        let (pointer, steps) = &mut current.rests[group].stale;
        *steps = if *pointer == seen.pointer { *steps + 1 } else { 1 };
        *pointer = seen.pointer;
        if *steps < STALE_STEPS_MAX {
            return Ok(Outcome::Lost);
        }
        let boundary = current.boundaries[group];
        let known = match group {
            0 => LeafPlace::new(0, 0).map(|first| vec![first]),
            _ => self.leaves_named(slot, before..group, slots).await?,
        };
        let Some(known) = known else { return Ok(Outcome::Lost) };
        let collected = self.collect_groups(slot, before..group + 1, &known).await?;
        let Some((mut leaves, _)) = collected else { return Ok(Outcome::Lost) };
        leaves.retain(|leaf| leaf.low >= boundary);
        if leaves.first().is_none_or(|leaf| leaf.low != boundary) {
            return Ok(Outcome::Lost);
        }
        // It says that it is older than the counter, so it is trained again as any other.
        let trained_at = (seen.splits as u32).wrapping_sub(1);
        let generation = seen.pointer.generation().wrapping_add(1);
        let time = GroupTime { generation, splits: trained_at };
        let pointer = self.write_image(slot, source, time, &leaves).await?;
        if !self.exchange(slot, group, seen.pointer, pointer).await? {
            return Ok(Outcome::Lost);
        }
        Ok(Outcome::Published { leaves: leaves.len(), merged: 0 })
    }
}

//! Removals: how a pair leaves its slot, and no later pair of its key has a version as low.
//!
//! Invariant: an insert that goes live behind a removal has seen an overflow that says the removed version.
//! It READs the overflows behind its reservation. So either that READ comes behind the overflow's change, or
//! the reservation was there when the remover looked for reservations, behind that change. Then the insert
//! lost it, and begins anew.
//!
//! Protocol, once the pair was found:
//! 1. Compare the overflow's version with what was read, and swap it for the removed one, if it is less.
//! 2. READ both buckets again: in the same batch, where a READ executes behind the atomics before it
//!    ([`read_after_atomic`](farsight_fabric::Guarantees::read_after_atomic)).
//! 3. Swap each reserved slot with the key's fingerprint for zero.
//! 4. Compare the pair's slot with its word, and swap it for zero. That is the removal's effect.
//!
//! Without step 3 an insert could READ the overflow before step 1 and the slot behind step 4, by one READ:
//! its lines come in any order.

use farsight_fabric::QueuePair;
use farsight_fabric::lane::PoolSlot;
use farsight_layout::hash_index::{Candidate, HashSlot, SlotPlace};
use farsight_protocol::WriteOutcome;

#[cfg(injected)]
use crate::injected;
use crate::insert::SWAP_VERB;
use crate::look::{ATTEMPTS_MAX, Buckets};
use crate::table::KeyLines;
use crate::{FlexError, FlexSession};

impl FlexSession {
    /// Removes a pair that was found. `None` if the write has to begin anew.
    pub(crate) async fn remove<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        of: (u64, KeyLines),
        buckets: &mut Buckets,
        (found, version): (Candidate, u64),
    ) -> Result<Option<WriteOutcome>, FlexError> {
        let expected = HashSlot::live(found.object);
        self.note_removed(slot, of, buckets, (found.place, version)).await?;
        self.clear_reserved(slot, of, buckets).await?;
        if !self.swap(slot, of, found.place, expected, HashSlot::default()).await? {
            return Ok(None);
        }
        self.forget(of.0, of.1, expected);
        self.note_freed(of.1.node, found.object.place);
        Ok(Some(WriteOutcome::Removed(version)))
    }

    /// Makes the group's overflow say that a pair of this version was removed, and READs the buckets behind
    /// that.
    async fn note_removed<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (u64, KeyLines),
        buckets: &mut Buckets,
        (place, version): (SlotPlace, u64),
    ) -> Result<(), FlexError> {
        let bucket = buckets.views(of).find(|bucket| bucket.contains(place));
        let bucket = bucket.expect("the pair was found in one of them");
        let (at, mut found) =
            (self.table.index_address(of.node, bucket.overflow_line()), bucket.removed_version());
        #[cfg(injected)]
        if injected::REMOVED_VERSION_FORGOTTEN.is_injected() {
            return Ok(());
        }
        for _ in 0..ATTEMPTS_MAX {
            let is_said = found >= version;
            if !is_said {
                slot.post_compare_swap(of.node, SWAP_VERB, at, found, version);
                if !Q::GUARANTEES.read_after_atomic {
                    slot.completed().await;
                }
            }
            self.read_buckets(slot, of, buckets).await?;
            // Whatever became of the swap, no pair has changed.
            if is_said {
                return Ok(());
            }
            let before = std::mem::replace(&mut found, slot.take_word(of.node, SWAP_VERB)?);
            if found == before || found >= version {
                return Ok(());
            }
        }
        Err(FlexError::Contended { key, attempts: ATTEMPTS_MAX })
    }

    /// Clears slots that inserts of the key may have reserved.
    async fn clear_reserved<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (u64, KeyLines),
        buckets: &Buckets,
    ) -> Result<(), FlexError> {
        #[cfg(injected)]
        if injected::RESERVATIONS_LEFT.is_injected() {
            return Ok(());
        }
        let mut reserved = self.buffers.candidates.lend();
        buckets.reserved(of, &mut reserved);
        for rival in reserved.iter() {
            // Whose key it has does not matter: its writer begins anew.
            let word = HashSlot::reserved(rival.object);
            self.swap(slot, (key, of), rival.place, word, HashSlot::default()).await?;
        }
        Ok(())
    }
}

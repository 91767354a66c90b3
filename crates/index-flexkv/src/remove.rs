//! Removals: how a pair leaves its slot, and no later pair of its key has a version as low.
//!
//! Invariant: an insert that goes live behind a removal has seen an overflow that says the removed version.
//! It READs the overflows behind its reservation. So either that READ comes behind the overflow's change, or
//! the reservation was there when the remover looked for reservations, behind that change. Then the insert
//! lost it, and begins anew.
//!
//! Protocol, once the pair was found and nobody gives it out any more ([`crate::closing`]):
//! 1. Compare the overflow's version with what was read, and swap it for the removed one, if it is less.
//! 2. READ both buckets again: in the same batch, where a READ executes behind the atomics before it
//!    ([`read_after_atomic`](farsight_fabric::Guarantees::read_after_atomic)).
//! 3. Clear each reserved slot with the key's fingerprint.
//! 4. Compare the pair's slot with its word, and swap it for the same, *emptied*. That is the removal's
//!    effect.
//!
//! Steps 2 and 3 are the head's, where a shard has replicas. Step 1 is for all of them, before step 4.
//!
//! Without step 3 an insert could READ the overflow before step 1 and the slot behind step 4, by one READ:
//! its lines come in any order.

use farsight_fabric::QueuePair;
use farsight_fabric::lane::PoolSlot;
use farsight_index::Key;
use farsight_layout::hash_index::{Candidate, HashSlot, SlotPlace};

use crate::chain::SWAP_VERB;
#[cfg(injected)]
use crate::injected;
use crate::look::{ATTEMPTS_MAX, Buckets};
use crate::table::KeyLines;
use crate::{FlexError, FlexSession};

impl FlexSession {
    /// Removes a pair that was found. False if the write has to begin anew.
    pub(crate) async fn remove<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        of: (Key<'_>, KeyLines),
        buckets: &mut Buckets,
        (found, version): (Candidate, u64),
    ) -> Result<bool, FlexError> {
        let expected = found.live();
        self.note_removed(slot, of, buckets, (found.place, version)).await?;
        self.clear_reserved(slot, of, buckets).await?;
        if !self.change(slot, of, found.place, (expected, expected.emptied())).await? {
            return Ok(false);
        }
        self.forget(of.1, expected);
        self.note_freed(of.1.shard, found.object.place);
        Ok(true)
    }

    /// Makes the group's overflow say that a pair of this version was removed, and READs the buckets behind
    /// that.
    async fn note_removed<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (Key<'_>, KeyLines),
        buckets: &mut Buckets,
        (place, version): (SlotPlace, u64),
    ) -> Result<(), FlexError> {
        let bucket = buckets.views(of).find(|bucket| bucket.contains(place));
        let bucket = bucket.expect("the pair was found in one of them");
        let (line, found) = (bucket.overflow_line(), bucket.removed_version());
        #[cfg(injected)]
        if injected::REMOVED_VERSION_FORGOTTEN.is_injected() {
            return Ok(());
        }
        let chain = self.table.chain(of.shard);
        // What each overflow says, as far as is known: the tail's was READ.
        let mut said = vec![found; chain.len()];
        for _ in 0..ATTEMPTS_MAX {
            let is_behind = said.iter().any(|said| *said < version);
            for (at, said) in chain.iter().zip(&said).filter(|(_, said)| **said < version) {
                slot.post_compare_swap(at.node, SWAP_VERB, at.index_address(line), *said, version);
            }
            if is_behind && !Q::GUARANTEES.read_after_atomic {
                slot.completed().await;
            }
            self.read_buckets(slot, of, &chain[0], buckets).await?;
            for (at, said) in chain.iter().zip(&mut said).filter(|(_, said)| **said < version) {
                let found = slot.take_word(at.node, SWAP_VERB)?;
                *said = if found == *said { version } else { found };
            }
            // Whatever became of the swaps, no pair has changed.
            if said.iter().all(|said| *said >= version) {
                return Ok(());
            }
        }
        Err(FlexError::Contended { key: key.into(), attempts: ATTEMPTS_MAX })
    }

    /// Clears slots that inserts of the key may have reserved.
    async fn clear_reserved<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (Key<'_>, KeyLines),
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
            self.clear_reservation(slot, (key, of), rival.place, word).await?;
        }
        Ok(())
    }
}

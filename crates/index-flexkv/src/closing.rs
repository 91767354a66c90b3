//! How kept values stay what their keys have: leases by READs, and writers who wait for them.
//!
//! A live slot is *unshared*, *shared* or *closing* ([`Sharing`]). It goes through these in their order, by
//! compare-and-swap, and none comes again: a new object's slot begins unshared.
//!
//! Invariants:
//! - a compute node begins to keep a value only if a READ found its slot shared. It notes what the counter of
//!   its partition had reached before that READ was posted;
//! - it gives a kept value out only at a moment less than [`LEASE`] after it posted a READ that found the
//!   counter at that number;
//! - a writer that replaces or removes a pair swaps a slot that is unshared, or one that it saw closing. Then
//!   it has added to the counter since. Since that was done all who keep values have let go of those noted
//!   below, or it has waited for [`LEASES_OVER`]. A split, which seals slots, does so before the directory
//!   names the halves.
//!
//! Why a kept value is its key's at that moment: suppose it was replaced before. The writer added to the
//! counter more than a lease earlier, so the lease's READ was posted, and executed, behind that. Or this
//! process has let go since, and knows of that addition. Either way the counter is known to have reached it,
//! and has the number that was noted. So the number was noted behind that addition, too. Then the READ of the
//! slot executed behind the slot's closing, and did not find it shared.
//!
//! A [recall](../../../docs/protocol/flexkv.md#recalls) is a call to the tail's node. That tells all who keep
//! values of the table. It makes the wait shorter, and promises nothing else. Whatever becomes of it, the
//! writer goes on after [`LEASES_OVER`], by its own clock.
//!
//! A writer that ends between two steps leaves a slot closing, or a counter higher. The key's next writer
//! adds to the counter and waits, as if it had closed the slot itself. Nobody asks whether any sharer lives:
//! one that is stopped, or dead, gives nothing out behind its lease.
//!
//! Clocks need not agree, but run at about one rate: a writer waits for a quarter more than a lease lasts.
//!
//! With replicas, slots become shared and closing by changes of their chain ([`crate::chain`]). Counters are
//! those of the tail, where leases and slots are READ. A closing is counted when the tail has it, so all of
//! the above is so of the tail's slot. When the tail is lost, nobody believes what he read there, kept values
//! included, before the pool goes on with another one. Who connects again keeps nothing yet.

use farsight_base::clock::MonotonicNs;
use farsight_fabric::QueuePair;
use farsight_fabric::lane::PoolSlot;
use farsight_index::Key;
use farsight_layout::hash_index::{Candidate, Sharing};
use farsight_protocol::{Recalled, Reply};

use crate::chain::SWAP_VERB;
#[cfg(injected)]
use crate::injected;
use crate::look::Looked;
use crate::table::KeyLines;
use crate::values::LEASES_OVER;
use crate::{FlexError, FlexSession};

impl FlexSession {
    /// Makes sure that nobody gives out a pair that was found. `None`: the slot has another word by now, and
    /// the write begins anew.
    pub(crate) async fn close<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (Key<'_>, KeyLines),
        looked: Looked,
    ) -> Result<Option<Looked>, FlexError> {
        let Looked::Present { found, version } = looked else { return Ok(Some(looked)) };
        #[cfg(injected)]
        if injected::SHARED_NOT_CLOSED.is_injected() {
            return Ok(Some(looked));
        }
        let closing = Candidate { sharing: Sharing::Closing, ..found };
        match found.sharing {
            Sharing::Unshared => return Ok(Some(looked)),
            Sharing::Closing => {}
            Sharing::Shared => {
                let change = (found.live(), closing.live());
                let at_head = self.swap_head(slot, (key, of), found.place, change).await;
                let at_head = at_head.map_err(FlexError::unchanged)?;
                let followed = self.follow(slot, (key, of), found.place, change, at_head).await;
                // Somebody else may have closed it.
                if !followed.map_err(FlexError::unchanged)? && at_head != change.1 {
                    return Ok(None);
                }
            }
        }
        self.await_leases(slot, of).await?;
        Ok(Some(Looked::Present { found: closing, version }))
    }

    /// Waits until nobody gives out a value of the key's partition that it keeps now, and whose slot is not
    /// shared any more. It waits for all who keep values, and no longer than leases last.
    pub(crate) async fn await_leases<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        of: KeyLines,
    ) -> Result<(), FlexError> {
        let (tail, shape) = (self.table.tail(of.shard), self.table.shape(of.shard));
        #[cfg(injected)]
        let tail = if injected::COUNTED_AT_HEAD.is_injected() { self.table.head(of.shard) } else { tail };
        #[cfg(injected)]
        if injected::CLOSING_NOT_COUNTED.is_injected() {
            slot.pause(LEASES_OVER).await;
            return Ok(());
        }
        let mut counter = tail.index_address(shape.closings_line());
        counter.offset_bytes += shape.closings_counter(of.hash.partition()) as u64 * 8;
        slot.post_fetch_add(tail.node, SWAP_VERB, counter, 1);
        slot.completed().await;
        let closings = slot.take_word(tail.node, SWAP_VERB)?.saturating_add(1);
        self.count(|counters| counters.closings += 1);
        // The clock is looked at behind the addition: every lease that did not see it began before.
        let until = slot.now().plus(LEASES_OVER);
        let counter = shape.closings_counter(of.hash.partition());
        let recalled = Recalled { shard: of.shard as u8, counter: counter as u8, closings };
        // The call is of others.
        self.values.let_go(&[recalled]);
        if self.recall_kept(slot, tail.node, recalled, until).await? {
            self.count(|counters| counters.recalls += 1);
        } else {
            slot.pause(until.since(slot.now())).await;
        }
        Ok(())
    }

    /// Has all who keep values let go of those that are recalled. False if somebody may have not, by `until`.
    async fn recall_kept<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        node: usize,
        recalled: Recalled,
        until: MonotonicNs,
    ) -> Result<bool, FlexError> {
        let (mut frame, mut reply) = (Vec::new(), Vec::new());
        self.calls.write_recall(recalled, &mut frame);
        if !slot.call_until(node, &frame, &mut reply, until).await? {
            return Ok(false);
        }
        // A node that refuses it, or answers something else, says nothing of others.
        Ok(matches!(Reply::decode(&reply), Ok(Ok(answer)) if answer.control() == Ok(true)))
    }
}

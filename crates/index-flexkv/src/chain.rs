//! Replicas of a shard: a chain of nodes. Changes begin at its head, and readers read its tail (chain
//! replication: van Renesse and Schneider, OSDI'04; here without any processor of the nodes).
//!
//! Invariants:
//! - a slot has the same words at all replicas, one after the other, and none has a word before those that
//!   are nearer to the head. Reservations are the exception: the head alone has them;
//! - the head's slot changes only when the tail has its word. So each replica has the head's word or the one
//!   before it;
//! - no word recurs in a slot ([`farsight_layout::hash_index`]). So a compare-and-swap that finds another
//!   word than the one before was made already, by somebody else;
//! - an object stands at all replicas before the head names it;
//! - no two live slots of the tail have one key.
//!
//! Protocol of a change, once the tail was seen to have the slot's word:
//! 1. Compare the head's slot with that word, and swap it for the new one. This decides between writers. It
//!    had another word: steps 2 and 3 with that, for the sake of its writer, and begin anew.
//! 2. A new key went live: READ the buckets of the tail, behind that. A slot there may have the key still,
//!    which the head has emptied: do step 3 for that slot first.
//! 3. Compare the slot of each replica behind the head with the word before, and swap it for the new one, one
//!    replica after the other. The tail's is the change's effect.
//!
//! A writer that ends between two steps leaves replicas that differ in a slot. Readers see the old word. The
//! next writer of the slot goes on with step 2. Nobody has to know whether the first one lives: to do a step
//! twice changes nothing.
//!
//! A chain without one of its nodes has the same invariants.

use farsight_base::Line;
use farsight_base::words::bytes_of;
use farsight_fabric::QueuePair;
use farsight_fabric::ReadMode;
use farsight_fabric::lane::PoolSlot;
use farsight_index::Key;
use farsight_layout::hash_index::{Candidate, HashSlot, SlotPlace, SlotState};
use farsight_layout::value_block::ValueBlock;

#[cfg(injected)]
use crate::injected;
use crate::look::{Buckets, KEY_LINES, Object};
use crate::table::KeyLines;
use crate::{FlexError, FlexSession};

/// The verb of a slot's compare-and-swap; others are those of buckets and of the object that is written.
pub(crate) const SWAP_VERB: usize = KEY_LINES + 1;

/// A change of a slot: its word before, and behind.
pub(crate) type Change = (HashSlot, HashSlot);

impl FlexSession {
    /// Changes a slot at all replicas; false if the head had another word.
    pub(crate) async fn change<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (Key<'_>, KeyLines),
        place: SlotPlace,
        (before, after): Change,
    ) -> Result<bool, FlexError> {
        let found = self.swap_head(slot, (key, of), place, (before, after)).await?;
        self.follow(slot, (key, of), place, (before, after), found).await
    }

    /// Steps 2 and 3 of a change of which the head had the word `found`, or of the one that came first.
    pub(crate) async fn follow<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (Key<'_>, KeyLines),
        place: SlotPlace,
        (before, after): Change,
        found: HashSlot,
    ) -> Result<bool, FlexError> {
        if found == before {
            self.carry(slot, (key, of.shard), place, (before, after)).await?;
            return Ok(true);
        }
        self.help(slot, (key, of.shard), place, (before, found)).await?;
        Ok(false)
    }

    /// Swaps the head's slot alone. The word that it had: as expected, or another one.
    pub(crate) async fn swap_head<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (Key<'_>, KeyLines),
        place: SlotPlace,
        change: Change,
    ) -> Result<HashSlot, FlexError> {
        self.post_swap_head(slot, of, place, change);
        slot.completed().await;
        self.take_head(slot, (key, of))
    }

    /// Posts that.
    pub(crate) fn post_swap_head<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        of: KeyLines,
        place: SlotPlace,
        (before, after): Change,
    ) {
        let head = self.table.head(of.shard);
        slot.post_compare_swap(head.node, SWAP_VERB, head.slot_address(place), before.0, after.0);
    }

    /// Takes what the head had.
    pub(crate) fn take_head<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (Key<'_>, KeyLines),
    ) -> Result<HashSlot, FlexError> {
        let found = slot.take_word(self.table.head(of.shard).node, SWAP_VERB);
        found.map(HashSlot).map_err(|source| FlexError::of_swap(key, source))
    }

    /// Step 3: has the replicas behind the head follow.
    pub(crate) async fn carry<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, shard): (Key<'_>, usize),
        place: SlotPlace,
        (before, after): Change,
    ) -> Result<(), FlexError> {
        let mut rest = &self.table.chain(shard)[1..];
        #[cfg(injected)]
        if injected::TAIL_LEFT_BEHIND.is_injected() {
            rest = &rest[..rest.len().saturating_sub(1)];
        }
        while let Some((at, behind)) = rest.split_first() {
            slot.post_compare_swap(at.node, SWAP_VERB, at.slot_address(place), before.0, after.0);
            slot.completed().await;
            slot.take_word(at.node, SWAP_VERB).map_err(|source| FlexError::of_swap(key, source))?;
            rest = behind;
        }
        Ok(())
    }

    /// Goes on with a change that the head has, perhaps, and the tail had not yet.
    pub(crate) async fn help<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, shard): (Key<'_>, usize),
        place: SlotPlace,
        (before, found): Change,
    ) -> Result<(), FlexError> {
        if !self.table.is_replicated(shard) {
            return Ok(());
        }
        match (before.state(), found.state()) {
            (_, SlotState::Reserved(_) | SlotState::Corrupt) => Ok(()),
            (SlotState::Unused, SlotState::Live(object)) => {
                let candidate = Candidate { place, object, sharing: found.sharing() };
                self.help_insert(slot, (key, shard), candidate, (before, found)).await
            }
            _ => self.carry(slot, (key, shard), place, (before, found)).await,
        }
    }

    /// Goes on with somebody's insert. Its key may be another one than `key`, of the same subtable.
    async fn help_insert<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, shard): (Key<'_>, usize),
        candidate: Candidate,
        change: Change,
    ) -> Result<(), FlexError> {
        let head = self.table.head(shard);
        let inserted = {
            let mut lines = self.object_buffer();
            let read = self.read_object(slot, (key, shard), head, candidate, &mut lines).await?;
            if matches!(read, Object::Stale(_)) { None } else { inserted_key(candidate, &lines) }
        };
        let Some(inserted) = inserted.as_deref().and_then(|bytes| self.table.key_of(bytes)) else {
            // It was replaced meanwhile, hence carried on; or it is damaged, and nobody knows whose it is.
            return self.carry(slot, (key, shard), candidate.place, change).await;
        };
        let at = self.table.lines_of(inserted);
        let is_there = at.first_lines.iter().any(|first| (*first..first + 2).contains(&candidate.place.line));
        if at.shard != shard || !is_there {
            // The subtable was split meanwhile: then nobody was left behind.
            return Ok(());
        }
        let mut buckets = Buckets::default();
        self.read_buckets(slot, at, head, &mut buckets).await?;
        self.end_insert(slot, (inserted, at), &buckets, candidate.place, change).await
    }

    /// Steps 2 and 3 of an insert. The head had `buckets` once the slot was reserved.
    pub(crate) async fn end_insert<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (Key<'_>, KeyLines),
        buckets: &Buckets,
        place: SlotPlace,
        change: Change,
    ) -> Result<(), FlexError> {
        if !self.table.is_replicated(of.shard) {
            return Ok(());
        }
        let mut at_tail = Buckets::default();
        self.read_buckets(slot, of, self.table.tail(of.shard), &mut at_tail).await?;
        let mut left = Vec::new();
        at_tail.candidates(of, &mut left);
        for candidate in left {
            let live = candidate.live();
            let is_emptied = buckets.word(of, candidate.place) == Some(live.emptied());
            #[cfg(injected)]
            let is_emptied = is_emptied && !injected::REMOVAL_LEFT_BEHIND.is_injected();
            if is_emptied {
                self.carry(slot, (key, of.shard), candidate.place, (live, live.emptied())).await?;
            }
        }
        self.carry(slot, (key, of.shard), place, change).await
    }

    /// Has the tail of the key's buckets have what the head has.
    pub(crate) async fn settle<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (Key<'_>, KeyLines),
    ) -> Result<(), FlexError> {
        if !self.table.is_replicated(of.shard) {
            return Ok(());
        }
        let (mut at_tail, mut at_head) = (Buckets::default(), Buckets::default());
        // One after the other: the head's words are not older than the tail's.
        self.read_buckets(slot, of, self.table.tail(of.shard), &mut at_tail).await?;
        self.read_buckets(slot, of, self.table.head(of.shard), &mut at_head).await?;
        for (place, before) in at_tail.slots(of) {
            match at_head.word(of, place) {
                Some(found) if found != before => {
                    self.help(slot, (key, of.shard), place, (before, found)).await?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Clears a slot that another writer has reserved: it has the word again that it had before.
    pub(crate) async fn clear_reservation<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        of: (Key<'_>, KeyLines),
        place: SlotPlace,
        reserved: HashSlot,
    ) -> Result<(), FlexError> {
        let mut before = HashSlot::default();
        if self.table.is_replicated(of.1.shard) {
            let (tail, mut line) = (self.table.tail(of.1.shard), [Line::ZERO]);
            slot.read(tail.node, tail.index_address(place.line), &mut line, ReadMode::Plain).await?;
            before = HashSlot(line[0].0[1 + usize::from(place.slot)]);
            if before.state() != SlotState::Unused {
                // It is not reserved any more, or was sealed.
                return Ok(());
            }
        }
        self.swap_head(slot, of, place, (reserved, before)).await.map(drop)
    }
}

/// The bytes of the key of an object that a slot names, if it is that object.
fn inserted_key(candidate: Candidate, lines: &[Line]) -> Option<Vec<u8>> {
    let block = ValueBlock::parse(bytes_of(lines)).ok()?;
    (block.table() == candidate.object.place.generation).then(|| block.key().to_vec())
}

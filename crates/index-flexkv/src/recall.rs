//! What a compute node remembers of a key, used: a round trip less for a GET, two or three less for a
//! replacement.
//!
//! Invariant: an address decides nothing by itself. A GET answers by an object only if the slot's word, READ
//! in the same operation, names it. A replacement takes effect only by a compare-and-swap that finds the
//! remembered word.
//!
//! Protocol of a look:
//! 1. READ the slot's line, and beside that the object that was remembered.
//! 2. The slot has the remembered word: the object is the key's, as it stood when the slot was READ.
//! 3. The slot names another object with the key's fingerprint: READ that one. If it is the key's, it was so
//!    when the slot was READ.
//! 4. Else forget the address, and look in the buckets.
//!
//! Protocol of a put or an update, of which the value before is not asked:
//! 1. WRITE the new object, of a version above the remembered one. Behind it, in the same batch, compare the
//!    slot with the remembered word and swap it. Without the promise of order
//!    ([`atomic_after_write`](farsight_fabric::Guarantees::atomic_after_write)), or to several replicas
//!    ([`crate::chain`]), these are two round trips.
//! 2. The slot had another word: forget the address, and begin as without one. The object is written already.
//!
//! Where step 2 is what mostly comes of step 1, a write begins as without an address ([`crate::doubts`]).

use farsight_base::{Line, RemoteAddress};
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{QueuePair, ReadMode};
use farsight_index::Key;
use farsight_layout::hash_index::{Candidate, HashSlot, Sharing, SlotPlace, SlotState};
use farsight_protocol::WriteOutcome;

use crate::addresses::Address;
#[cfg(injected)]
use crate::injected;
use crate::look::{Looked, Object, identify};
use crate::object::NewObject;
use crate::table::KeyLines;
use crate::{FlexError, FlexSession};

/// The verbs of a look: the slot's line, its object.
const SLOT_VERB: usize = 0;
const OBJECT_VERB: usize = 1;

impl FlexSession {
    /// Looks a key up by its address, and beside that WRITEs `new` if it is not there yet. `object` holds its
    /// object then. `None`: look in the buckets.
    pub(crate) async fn recall<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (Key<'_>, KeyLines),
        new: &mut NewObject,
        object: &mut Vec<Line>,
    ) -> Result<Option<Looked>, FlexError> {
        let Some(Address { place, word, .. }) = self.known_address(of) else { return Ok(None) };
        let Some((candidate, at)) = self.named(of, place, word) else { return Ok(None) };
        let is_written_beside = new.is_to_be_written();
        object.resize(candidate.object.place.lines.into(), Line::ZERO);
        let tail = self.table.tail(of.shard);
        slot.post_read(tail.node, SLOT_VERB, tail.index_address(place.line), 1, ReadMode::Plain);
        slot.post_read(tail.node, OBJECT_VERB, at, object.len(), ReadMode::Plain);
        if is_written_beside {
            self.post_object(slot, new, of.shard);
        }
        slot.completed().await;
        let mut bucket = [Line::ZERO];
        slot.take_read(tail.node, SLOT_VERB, &mut bucket)?;
        slot.take_read(tail.node, OBJECT_VERB, object)?;
        if is_written_beside {
            self.take_written(slot, new, of.shard)?;
        }
        let now = HashSlot(bucket[0].0[1 + usize::from(place.slot)]);
        #[cfg(injected)]
        let now = if injected::SLOT_NOT_COMPARED.is_injected() { word } else { now };
        if now.is_alike(word) {
            // An object that is not the slot's any more is used anew: the buckets tell.
            let generation = candidate.object.place.generation;
            let Object::OfKey(version) = identify(key, generation, object) else { return Ok(None) };
            self.count(|counters| counters.address_hits += 1);
            let found = Candidate { sharing: now.sharing(), ..candidate };
            return Ok(Some(Looked::Present { found, version }));
        }
        self.forget(of, word);
        let Some((found, _)) = self.named(of, place, now) else { return Ok(None) };
        let object = self.read_object(slot, (key, of.shard), tail, found, object).await?;
        let Object::OfKey(version) = object else { return Ok(None) };
        Ok(Some(self.present(of, found, version)))
    }

    /// Replaces a pair by its address; `None` if there is none, or another write came first. `object` is
    /// prepared, of a version above the address's.
    pub(crate) async fn replace_recalled<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (Key<'_>, KeyLines),
        object: &mut NewObject,
        address: Address,
    ) -> Result<Option<WriteOutcome>, FlexError> {
        let Some(swap) = self.begin_replacement((key, of), object, address) else { return Ok(None) };
        let words = (address.place, address.word, swap.1);
        let is_swapped = self.write_and_swap(slot, (key, of), object, words).await?;
        Ok(self.end_replacement(of, object, address, swap, is_swapped))
    }

    /// What a replacement by an address replaces, and by which word; `None` if the address is of no use, or
    /// somebody may keep the value.
    pub(crate) fn begin_replacement(
        &self,
        (key, of): (Key<'_>, KeyLines),
        object: &NewObject,
        Address { place, word, .. }: Address,
    ) -> Option<(Candidate, HashSlot)> {
        let (before, _) = self.named(of, place, word)?;
        let is_kept = before.sharing != Sharing::Unshared;
        #[cfg(injected)]
        let is_kept = is_kept && !injected::SHARED_NOT_CLOSED.is_injected();
        if is_kept {
            return None;
        }
        #[cfg(injected)]
        if injected::FREED_BEFORE_REPLACED.is_injected() {
            self.note_freed(of.shard, before.object.place);
        }
        Some((before, HashSlot::live(object.reference(key.as_bytes()))))
    }

    /// Notes what became of a replacement; `None` if another write came first.
    pub(crate) fn end_replacement(
        &self,
        of: KeyLines,
        object: &mut NewObject,
        Address { place, word, .. }: Address,
        (before, new): (Candidate, HashSlot),
        is_swapped: bool,
    ) -> Option<WriteOutcome> {
        self.doubts.note(of.hash, is_swapped);
        if !is_swapped {
            self.forget(of, word);
            self.count(|counters| counters.retries += 1);
            return None;
        }
        self.count(|counters| counters.address_hits += 1);
        self.remember(of, place, new, object.version);
        self.publish(of.shard, object, Some(before.object.place));
        Some(WriteOutcome::Replaced(object.version))
    }

    /// WRITEs an object, then swaps a slot; false if the slot had another word.
    async fn write_and_swap<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (Key<'_>, KeyLines),
        object: &mut NewObject,
        (place, word, new): (SlotPlace, HashSlot, HashSlot),
    ) -> Result<bool, FlexError> {
        let is_in_order = Q::GUARANTEES.atomic_after_write;
        #[cfg(injected)]
        let is_in_order = is_in_order || injected::SWAPPED_BESIDE_WRITE.is_injected();
        let is_at_once = is_in_order && !self.table.is_replicated(of.shard);
        #[cfg(injected)]
        let is_at_once = is_at_once || injected::NAMED_BEFORE_REPLICAS.is_injected();
        self.post_object(slot, object, of.shard);
        if !is_at_once {
            slot.completed().await;
            self.take_written(slot, object, of.shard)?;
            return self.change(slot, (key, of), place, (word, new)).await;
        }
        self.post_swap_head(slot, of, place, (word, new));
        slot.completed().await;
        let found = self.take_head(slot, (key, of))?;
        self.take_written(slot, object, of.shard)?;
        self.follow(slot, (key, of), place, (word, new), found).await
    }

    /// A candidate of the key that a slot names by this word, and its object's address at the tail.
    pub(crate) fn named(
        &self,
        of: KeyLines,
        place: SlotPlace,
        word: HashSlot,
    ) -> Option<(Candidate, RemoteAddress)> {
        let SlotState::Live(object) = word.state() else { return None };
        let is_one = object.fingerprint == of.fingerprint && self.table.has_object(of.shard, object.place);
        let candidate = Candidate { place, object, sharing: word.sharing() };
        is_one.then(|| (candidate, self.table.tail(of.shard).object_address(object.place)))
    }

    /// What is remembered of a key, in the subtable that it is of by now. A split has left it at its place
    /// there, with the same word.
    pub(crate) fn known_address(&self, of: KeyLines) -> Option<Address> {
        let mut address = self.addresses.borrow().sets().get(of.hash, of.identity)?;
        address.place.line = self.table.shape(of.shard).line_in(of.subtable, address.place.line);
        Some(address)
    }

    /// Remembers a key's address.
    pub(crate) fn remember(&self, of: KeyLines, place: SlotPlace, word: HashSlot, version: u64) {
        self.addresses.borrow().sets().remember(of.hash, of.identity, Address { place, word, version });
    }

    /// Forgets a key's address, if its word is this one.
    pub(crate) fn forget(&self, of: KeyLines, word: HashSlot) {
        self.addresses.borrow().sets().forget(of.hash, of.identity, word);
    }

    /// A pair that was found, remembered.
    pub(crate) fn present(&self, of: KeyLines, found: Candidate, version: u64) -> Looked {
        self.remember(of, found.place, found.live(), version);
        Looked::Present { found, version }
    }
}

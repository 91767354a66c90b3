//! Inserts: how a key that was not found gets a slot, and no second one.
//!
//! Invariant: of two inserts of one key that run at once, at least one sees the other's slot reserved or live
//! before it makes its own live. For each reserves its slot before it reads the buckets again.
//!
//! Protocol, once the object is written:
//! 1. Compare a free slot with zero, and swap it for the object's word, *reserved*. Readers see no key there.
//! 2. READ both buckets again: in the same batch, where a READ executes behind the atomics before it
//!    ([`read_after_atomic`](farsight_fabric::Guarantees::read_after_atomic)). READ the objects of slots with
//!    the key's fingerprint.
//! 3. A live slot has the key: give the own slot up, and begin the write anew. It finds the key.
//! 4. Another slot is reserved for the key. At a lower place: give the own slot up, and begin anew later. At
//!    a higher one, or if the other one stays: swap that slot for zero, whose writer begins anew.
//! 5. Write the object again if its version is not above what the overflows say was removed. A removal that
//!    they do not say yet clears the reservation ([`crate::remove`]).
//! 6. Compare the own slot with its word, and swap it for the same, *live*. That is the write's effect.
//!    Somebody else gave the slot up meanwhile: begin anew.
//!
//! A writer that ends in between leaves a slot reserved. The next insert or removal of the key gives it up.

use farsight_fabric::QueuePair;
use farsight_fabric::lane::PoolSlot;
use farsight_layout::hash_index::{Candidate, HashSlot, SlotPlace};

#[cfg(injected)]
use crate::injected;
use crate::look::{Buckets, KEY_LINES, Object};
use crate::object::NewObject;
use crate::table::KeyLines;
use crate::{FlexError, FlexSession};

/// The verb of a slot's compare-and-swap; others are those of buckets and of the object that is written.
pub(crate) const SWAP_VERB: usize = KEY_LINES + 1;

/// Attempts of a write after which a slot that another one has reserved is cleared, wherever it is.
const PATIENT_ATTEMPTS: u32 = 8;

/// Looks of one attempt, each of which found another slot of the key to be cleared.
const ROUNDS_MAX: u32 = 8;

/// What stands between an insert and its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rival {
    /// Nobody.
    None,
    /// The key is in the table.
    Live,
    /// Another insert of it, in this slot.
    Reserved(Candidate),
    /// A slot changed while it was looked at.
    Unknown,
}

impl FlexSession {
    /// Publishes `object` as that of a key which `buckets` have not. False if the write has to begin anew:
    /// then no slot names the object.
    pub(crate) async fn insert<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (u64, KeyLines),
        (buckets, object): (&mut Buckets, &mut NewObject),
        value: &[u8],
        attempt: u32,
    ) -> Result<bool, FlexError> {
        let reference = object.reference(&key.to_le_bytes());
        let (reserved, live) = (HashSlot::reserved(reference), HashSlot::live(reference));
        let Some(place) = buckets.free(of) else {
            return self.make_room(slot, (key, of), buckets, attempt).await;
        };
        if !self.reserve(slot, (key, of), (place, reserved), buckets).await? {
            return Ok(false);
        }
        for _ in 0..ROUNDS_MAX {
            match self.rival(slot, (key, of), buckets, (place, reserved), attempt).await? {
                Rival::None => {
                    // Another pair of the key may have come and gone since it was looked for.
                    self.ready(slot, (key, of), object, value, buckets.removed_version(of)).await?;
                    let is_live = self.swap(slot, (key, of), place, reserved, live).await?;
                    if is_live {
                        self.remember(key, of, place, live, object.version);
                    }
                    return Ok(is_live);
                }
                Rival::Reserved(other) if place < other.place || attempt >= PATIENT_ATTEMPTS => {
                    // Its writer begins anew, unless it was quicker: the next look tells.
                    let word = HashSlot::reserved(other.object);
                    self.swap(slot, (key, of), other.place, word, HashSlot::default()).await?;
                    self.read_buckets(slot, of, buckets).await?;
                }
                Rival::Live | Rival::Reserved(_) | Rival::Unknown => break,
            }
        }
        self.swap(slot, (key, of), place, reserved, HashSlot::default()).await?;
        Ok(false)
    }

    /// Takes a free slot, and READs both buckets behind that. False if the slot is not free any more.
    async fn reserve<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (u64, KeyLines),
        (place, reserved): (SlotPlace, HashSlot),
        buckets: &mut Buckets,
    ) -> Result<bool, FlexError> {
        let is_in_order = Q::GUARANTEES.read_after_atomic;
        #[cfg(injected)]
        let is_in_order = is_in_order || injected::READ_BESIDE_RESERVATION.is_injected();
        self.post_swap(slot, of, place, (HashSlot::default(), reserved));
        if !is_in_order {
            slot.completed().await;
        }
        self.post_buckets(slot, of);
        slot.completed().await;
        let is_reserved = take_swapped(slot, (key, of), HashSlot::default())?;
        buckets.take(slot, of)?;
        Ok(is_reserved)
    }

    /// Gives slots up that others have reserved, where no slot is free, or splits the subtable. False: the
    /// write begins anew.
    async fn make_room<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        of: (u64, KeyLines),
        buckets: &Buckets,
        attempt: u32,
    ) -> Result<bool, FlexError> {
        let Some((place, word)) = buckets.any_reserved(of.1) else {
            self.split(slot, of).await?;
            return Ok(false);
        };
        if attempt >= PATIENT_ATTEMPTS {
            // Its writer begins anew, or has ended.
            self.swap(slot, of, place, word, HashSlot::default()).await?;
        }
        Ok(false)
    }

    /// Looks through both buckets for another slot of the key than the `own` one.
    async fn rival<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (u64, KeyLines),
        buckets: &Buckets,
        own: (SlotPlace, HashSlot),
        attempt: u32,
    ) -> Result<Rival, FlexError> {
        #[cfg(injected)]
        if injected::BUCKETS_NOT_READ_AGAIN.is_injected() {
            return Ok(Rival::None);
        }
        if buckets.word(of, own.0) != Some(own.1) {
            return Ok(Rival::Unknown);
        }
        let (mut candidates, mut object) = (self.buffers.candidates.lend(), self.object_buffer());
        buckets.candidates(of, &mut candidates);
        for candidate in candidates.iter() {
            match self.read_object(slot, (key, of.node), *candidate, &mut object).await? {
                Object::OfKey(_) => return Ok(Rival::Live),
                Object::OfOther => {}
                Object::Stale(_) => return Ok(Rival::Unknown),
            }
        }
        buckets.reserved(of, &mut candidates);
        for candidate in candidates.iter().filter(|candidate| candidate.place != own.0) {
            match self.read_object(slot, (key, of.node), *candidate, &mut object).await? {
                Object::OfOther => {}
                // Its writer lives, and changes it.
                Object::Stale(_) if attempt < PATIENT_ATTEMPTS => return Ok(Rival::Unknown),
                // Or memory lost a bit, and nobody knows whose it is.
                Object::OfKey(_) | Object::Stale(_) => return Ok(Rival::Reserved(*candidate)),
            }
        }
        Ok(Rival::None)
    }

    /// Compares a slot with a word and swaps it for another; false if it was neither.
    pub(crate) async fn swap<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (u64, KeyLines),
        place: SlotPlace,
        expected: HashSlot,
        new: HashSlot,
    ) -> Result<bool, FlexError> {
        self.post_swap(slot, of, place, (expected, new));
        slot.completed().await;
        take_swapped(slot, (key, of), expected)
    }

    /// Posts the compare-and-swap of a slot.
    pub(crate) fn post_swap<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        of: KeyLines,
        place: SlotPlace,
        (expected, new): (HashSlot, HashSlot),
    ) {
        let at = self.table.slot_address(of.node, place);
        slot.post_compare_swap(of.node, SWAP_VERB, at, expected.0, new.0);
    }
}

/// Whether the slot had the expected word.
pub(crate) fn take_swapped<Q: QueuePair>(
    slot: &PoolSlot<'_, '_, Q>,
    (key, of): (u64, KeyLines),
    expected: HashSlot,
) -> Result<bool, FlexError> {
    let found = slot.take_word(of.node, SWAP_VERB).map_err(|source| FlexError::of_swap(key, source))?;
    Ok(found == expected.0)
}

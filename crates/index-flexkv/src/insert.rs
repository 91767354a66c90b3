//! Inserts: how a key that was not found gets a slot, and no second one.
//!
//! Invariant: of two inserts of one key that run at once, at least one sees the other's slot reserved or live
//! before it makes its own live. For each reserves its slot before it reads the buckets again.
//!
//! Protocol, once the object is written:
//! 1. Compare a free slot with its word, and swap it for the object's, *reserved*. Readers see no key there.
//! 2. READ both buckets again: in the same batch, where a READ executes behind the atomics before it
//!    ([`read_after_atomic`](farsight_fabric::Guarantees::read_after_atomic)). READ the objects of slots with
//!    the key's fingerprint. A write that others wait for looks at the clock first: its slot was reserved in
//!    time ([`crate::proxied`]).
//! 3. A live slot has the key: give the own slot up, and begin the write anew. It finds the key.
//! 4. Another slot is reserved for the key. At a lower place: give the own slot up, and begin anew later. At
//!    a higher one, or if the other one stays: clear that slot, whose writer begins anew.
//! 5. Write the object again if its version is not above what the overflows say was removed. A removal that
//!    they do not say yet clears the reservation ([`crate::remove`]).
//! 6. Compare the own slot with its word, and swap it for the same, *live*. That is the write's effect.
//!    Somebody else gave the slot up meanwhile: begin anew.
//!
//! All of that is the head's, where a shard has replicas. The others follow behind step 6 ([`crate::chain`]).
//!
//! A writer that ends in between leaves a slot reserved. The next insert or removal of the key gives it up.

use farsight_fabric::QueuePair;
use farsight_fabric::lane::PoolSlot;
use farsight_index::Key;
use farsight_layout::hash_index::{Candidate, HashSlot, SlotPlace};

use crate::chain::Change;
#[cfg(injected)]
use crate::injected;
use crate::look::{Buckets, Object, post_buckets};
use crate::object::NewObject;
use crate::table::KeyLines;
use crate::{FlexError, FlexSession};

/// Attempts of a write after which a slot that another one has reserved is cleared, wherever it is.
const PATIENT_ATTEMPTS: u32 = 8;

/// Free slots that one attempt tries to take.
const RESERVATIONS: u32 = 3;

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
        (key, of): (Key<'_>, KeyLines),
        (buckets, object): (&mut Buckets, &mut NewObject),
        value: &[u8],
        attempt: u32,
    ) -> Result<bool, FlexError> {
        let reference = object.reference(key.as_bytes());
        let (reserved, live) = (HashSlot::reserved(reference), HashSlot::live(reference));
        let Some((place, free)) = self.reserve_any(slot, (key, of), reserved, buckets, attempt).await? else {
            return Ok(false);
        };
        // Or somebody may have written the key before it was reserved, and removed it.
        if self.is_late() {
            self.swap_head(slot, (key, of), place, (reserved, free)).await?;
            return Err(FlexError::Late { key: key.into() });
        }
        for _ in 0..ROUNDS_MAX {
            match self.rival(slot, (key, of), buckets, (place, reserved), attempt).await? {
                Rival::None => {
                    // Another pair of the key may have come and gone since it was looked for.
                    self.ready(slot, (key, of), object, value, buckets.removed_version(of)).await?;
                    if self.swap_head(slot, (key, of), place, (reserved, live)).await? != reserved {
                        return Ok(false);
                    }
                    self.end_insert(slot, (key, of), buckets, place, (free, live)).await?;
                    self.remember(of, place, live, object.version);
                    return Ok(true);
                }
                Rival::Reserved(other) if place < other.place || attempt >= PATIENT_ATTEMPTS => {
                    // Its writer begins anew, unless it was quicker: the next look tells.
                    let word = HashSlot::reserved(other.object);
                    self.clear_reservation(slot, (key, of), other.place, word).await?;
                    self.read_buckets(slot, of, self.table.head(of.shard), buckets).await?;
                }
                Rival::Live | Rival::Reserved(_) | Rival::Unknown => break,
            }
        }
        self.swap_head(slot, (key, of), place, (reserved, free)).await?;
        // What the tail does not show yet shows where the write begins anew.
        self.settle(slot, (key, of)).await?;
        Ok(false)
    }

    /// Takes a free slot of those that `buckets` have, the tail's. They are the head's then. `None`: the
    /// write begins anew.
    async fn reserve_any<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (Key<'_>, KeyLines),
        reserved: HashSlot,
        buckets: &mut Buckets,
        attempt: u32,
    ) -> Result<Option<(SlotPlace, HashSlot)>, FlexError> {
        let at_tail = buckets.clone();
        let mut free = buckets.free(of);
        for _ in 0..RESERVATIONS {
            let Some((place, word)) = free else {
                self.make_room(slot, (key, of), buckets, attempt).await?;
                return Ok(None);
            };
            if self.reserve(slot, (key, of), place, (word, reserved), buckets).await? {
                return Ok(Some((place, word)));
            }
            // The head's slots that the tail has free, too.
            free = buckets.free_in(of, &at_tail);
        }
        Ok(None)
    }

    /// Takes a free slot, and READs both buckets behind that. False if the slot is not free any more.
    async fn reserve<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (Key<'_>, KeyLines),
        place: SlotPlace,
        (free, reserved): Change,
        buckets: &mut Buckets,
    ) -> Result<bool, FlexError> {
        let is_in_order = Q::GUARANTEES.read_after_atomic;
        #[cfg(injected)]
        let is_in_order = is_in_order || injected::READ_BESIDE_RESERVATION.is_injected();
        let head = self.table.head(of.shard);
        self.post_swap_head(slot, of, place, (free, reserved));
        if !is_in_order {
            slot.completed().await;
        }
        post_buckets(slot, of, head);
        slot.completed().await;
        let found = self.take_head(slot, (key, of))?;
        buckets.take(slot, head.node)?;
        if found != free {
            self.help(slot, (key, of.shard), place, (free, found)).await?;
        }
        Ok(found == free)
    }

    /// Gives slots up that others have reserved, where no slot is free, or splits the subtable.
    async fn make_room<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        of: (Key<'_>, KeyLines),
        buckets: &mut Buckets,
        attempt: u32,
    ) -> Result<(), FlexError> {
        if self.table.is_replicated(of.1.shard) {
            // The head alone shows what is reserved.
            self.read_buckets(slot, of.1, self.table.head(of.1.shard), buckets).await?;
        }
        let Some((place, word)) = buckets.any_reserved(of.1) else {
            return self.split(slot, of).await;
        };
        if attempt >= PATIENT_ATTEMPTS {
            // Its writer begins anew, or has ended.
            self.clear_reservation(slot, of, place, word).await?;
        }
        Ok(())
    }

    /// Looks through both buckets for another slot of the key than the `own` one.
    async fn rival<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (Key<'_>, KeyLines),
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
        let head = self.table.head(of.shard);
        let (mut candidates, mut object) = (self.buffers.candidates.lend(), self.object_buffer());
        buckets.candidates(of, &mut candidates);
        for candidate in candidates.iter() {
            match self.read_object(slot, (key, of.shard), head, *candidate, &mut object).await? {
                Object::OfKey(_) => return Ok(Rival::Live),
                Object::OfOther => {}
                Object::Stale(_) => return Ok(Rival::Unknown),
            }
        }
        buckets.reserved(of, &mut candidates);
        for candidate in candidates.iter().filter(|candidate| candidate.place != own.0) {
            match self.read_object(slot, (key, of.shard), head, *candidate, &mut object).await? {
                Object::OfOther => {}
                // Its writer lives, and changes it.
                Object::Stale(_) if attempt < PATIENT_ATTEMPTS => return Ok(Rival::Unknown),
                // Or memory lost a bit, and nobody knows whose it is.
                Object::OfKey(_) | Object::Stale(_) => return Ok(Rival::Reserved(*candidate)),
            }
        }
        Ok(Rival::None)
    }
}

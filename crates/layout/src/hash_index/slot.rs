//! A slot's word.

use super::{
    OBJECT_GENERATION_BITS, OBJECT_LINES_BITS, OBJECT_LINES_MAX, OBJECT_OFFSET_BITS, SLOT_LIVE_BIT,
    SLOT_RESERVED_BIT, SLOT_SHARED_BIT,
};
use crate::value_block::{BlockRef, REFERENCE_FINGERPRINT_BITS};

const LINES_SHIFT: u32 = REFERENCE_FINGERPRINT_BITS;
const OFFSET_SHIFT: u32 = LINES_SHIFT + OBJECT_LINES_BITS;
const GENERATION_SHIFT: u32 = OFFSET_SHIFT + OBJECT_OFFSET_BITS;

const _: () = assert!(GENERATION_SHIFT + OBJECT_GENERATION_BITS == SLOT_SHARED_BIT);
const _: () = assert!(SLOT_SHARED_BIT + 1 == SLOT_RESERVED_BIT && SLOT_RESERVED_BIT + 1 == SLOT_LIVE_BIT);

const SHARED: u64 = 1 << SLOT_SHARED_BIT;
const RESERVED: u64 = 1 << SLOT_RESERVED_BIT;
const LIVE: u64 = 1 << SLOT_LIVE_BIT;
/// The three bits together.
const STATE: u64 = LIVE | RESERVED | SHARED;
/// What says that a slot is live and that nobody keeps its value any longer.
const CLOSING: u64 = RESERVED | SHARED;
const SEALED: u64 = LIVE | RESERVED;
const LIVE_SHARED: u64 = LIVE | SHARED;
const SEALED_SHARED: u64 = SEALED | SHARED;

/// Memory of one object, in one of its uses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectPlace {
    /// Its first line in the node's space of objects.
    pub offset_lines: u32,
    /// Its lines, from 1 to [`OBJECT_LINES_MAX`].
    pub lines: u8,
    /// Which of the memory's uses; never 0.
    pub generation: u16,
}

/// What a slot names: an object's place, and a hint of its key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ObjectRef {
    /// Where it stands.
    pub place: ObjectPlace,
    /// The fingerprint of its key: most other keys have another one.
    pub fingerprint: u8,
}

/// A slot: `{fingerprint 8, lines 8, offset in lines 32, generation 13, shared 1, reserved 1, live 1}`, the
/// lowest bits first. A word without the last three names nothing; what else it has, it had when it was live.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct HashSlot(pub u64);

/// Whether compute nodes may keep the value of a live slot. It goes through these in their order, none twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Sharing {
    /// Nobody keeps it.
    Unshared,
    /// Somebody may keep it, and give it out while a lease lasts.
    Shared,
    /// Nobody begins to keep it. Leases on it may last.
    Closing,
}

/// What a slot says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotState {
    /// No key stands here.
    Unused,
    /// A writer has this slot for a key that is not in the table yet.
    Reserved(ObjectRef),
    /// An object stands there.
    Live(ObjectRef),
    /// The subtable is being split, or was: this word does not change any more. It names what was live.
    Sealed(Option<ObjectRef>),
    /// Nobody who keeps to the format wrote this word.
    Corrupt,
}

impl ObjectPlace {
    /// True for a place that a slot has bits for.
    #[must_use]
    pub fn is_sound(self) -> bool {
        (1..=OBJECT_LINES_MAX).contains(&self.lines)
            && self.generation != 0
            && self.generation >> OBJECT_GENERATION_BITS == 0
    }
}

impl ObjectRef {
    /// The reference to the object of this key, which stands there.
    ///
    /// # Panics
    /// If a slot has no bits for the place.
    #[must_use]
    pub fn new(key: &[u8], place: ObjectPlace) -> Self {
        assert!(place.is_sound(), "an object at {place:?}");
        Self { place, fingerprint: BlockRef::fingerprint_of(key) }
    }

    fn word(self) -> u64 {
        let ObjectPlace { offset_lines, lines, generation } = self.place;
        u64::from(self.fingerprint)
            | u64::from(lines) << LINES_SHIFT
            | u64::from(offset_lines) << OFFSET_SHIFT
            | u64::from(generation) << GENERATION_SHIFT
    }
}

impl HashSlot {
    /// The slot of an object.
    #[must_use]
    pub fn live(object: ObjectRef) -> Self {
        Self(object.word() | LIVE)
    }

    /// The slot that a writer has for an object.
    #[must_use]
    pub fn reserved(object: ObjectRef) -> Self {
        Self(object.word() | RESERVED)
    }

    /// The slot of an object whose value is so shared.
    #[must_use]
    pub fn live_in(object: ObjectRef, sharing: Sharing) -> Self {
        let state = match sharing {
            Sharing::Unshared => LIVE,
            Sharing::Shared => LIVE_SHARED,
            Sharing::Closing => CLOSING,
        };
        Self(object.word() | state)
    }

    /// How a live slot's value is shared; of any other slot: not.
    #[must_use]
    pub fn sharing(self) -> Sharing {
        match self.0 & STATE {
            LIVE_SHARED => Sharing::Shared,
            CLOSING => Sharing::Closing,
            _ => Sharing::Unshared,
        }
    }

    /// True if a slot was sealed whose value somebody may keep.
    #[must_use]
    pub fn was_shared(self) -> bool {
        self.0 & STATE == SEALED_SHARED
    }

    /// True if both are live and name one object, however its value is shared.
    #[must_use]
    pub fn is_alike(self, other: Self) -> bool {
        let of = |slot: Self| if let SlotState::Live(object) = slot.state() { Some(object) } else { None };
        self == other || of(self).is_some() && of(self) == of(other)
    }

    /// The word that this slot has when its pair is removed: it does not recur either, and names nothing.
    #[must_use]
    pub fn emptied(self) -> Self {
        Self(self.0 & !STATE)
    }

    /// The word that this slot has from its subtable's split on: what is live stays named, what a writer has
    /// reserved does not.
    #[must_use]
    pub fn sealed(self) -> Self {
        match self.state() {
            SlotState::Unused | SlotState::Reserved(_) => Self(SEALED),
            SlotState::Live(_) | SlotState::Sealed(_) | SlotState::Corrupt => Self(self.0 | SEALED),
        }
    }

    /// What it says.
    #[inline]
    #[must_use]
    pub fn state(self) -> SlotState {
        if self.0 == SEALED {
            return SlotState::Sealed(None);
        }
        let place = ObjectPlace {
            offset_lines: (self.0 >> OFFSET_SHIFT) as u32,
            lines: (self.0 >> LINES_SHIFT) as u8,
            generation: (self.0 >> GENERATION_SHIFT) as u16 & ((1 << OBJECT_GENERATION_BITS) - 1),
        };
        let object = ObjectRef { place, fingerprint: self.0 as u8 };
        match self.0 & STATE {
            0 if self.0 == 0 || place.is_sound() => SlotState::Unused,
            _ if !place.is_sound() => SlotState::Corrupt,
            RESERVED => SlotState::Reserved(object),
            LIVE | LIVE_SHARED | CLOSING => SlotState::Live(object),
            SEALED | SEALED_SHARED => SlotState::Sealed(Some(object)),
            _ => SlotState::Corrupt,
        }
    }
}

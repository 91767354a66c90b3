//! Room for batches of GETs, so that a thread which reads on and on allocates and clears none of it anew.
//!
//! Invariant: a room is one call's at a time. The value of a key that was absent is zeros, whatever the call
//! before left there.

use std::sync::{Mutex, PoisonError};

use farsight::Answers;
use pyo3::prelude::*;

use crate::keys::Keys;
use crate::typed_table::Operations;

/// Bytes of keys and values with which a room is kept, together.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// What one call asks for and finds.
#[derive(Default)]
pub(crate) struct Room {
    /// Bits of keys of eight bytes.
    pub(crate) bits: Vec<u64>,
    pub(crate) found: Found,
}

/// What one call finds.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) answers: Answers,
    /// By key one if it was found, else zero.
    pub(crate) mask: Vec<u8>,
}

impl Found {
    /// Gets these keys.
    pub(crate) fn read(&mut self, operations: &dyn Operations, keys: Keys<'_>) -> PyResult<()> {
        operations.multi_get(keys, &mut self.answers)?;
        self.mask.clear();
        self.mask.extend(self.answers.versions().iter().map(|version| u8::from(*version > 0)));
        if self.mask.contains(&0) {
            for (index, _) in self.mask.iter().enumerate().filter(|(_, found)| **found == 0) {
                self.answers.value_mut(index).fill(0);
            }
        }
        Ok(())
    }
}

impl Room {
    fn bytes(&self) -> usize {
        size_of_val(&self.bits[..]) + self.found.answers.values().len()
    }
}

/// Rooms that no call uses: as many as there ever were calls at once.
#[derive(Default)]
pub(crate) struct Rooms {
    idle: Mutex<Vec<Room>>,
}

impl Rooms {
    pub(crate) fn take(&self) -> Room {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    pub(crate) fn put_back(&self, room: Room) {
        if room.bytes() <= KEPT_BYTES_MAX {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(room);
        }
    }
}

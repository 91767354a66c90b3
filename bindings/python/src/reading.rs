//! Room for batches of GETs, so that a thread which reads on and on allocates and clears none of it anew.
//!
//! Invariant: a room is one call's at a time. The value of a key that was absent is zeros, whatever the call
//! before left there.

use std::sync::{Mutex, PoisonError};

use farsight::Answers;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::typed_table::Operations;

/// Bytes of keys and values with which a room is kept, together.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// What one call asks for and finds.
#[derive(Default)]
pub(crate) struct Room {
    keys: Vec<u64>,
    pub(crate) answers: Answers,
    /// By key one if it was found, else zero.
    pub(crate) found: Vec<u8>,
}

impl Room {
    /// Takes keys out of a buffer, which others may change once the interpreter's lock is released.
    pub(crate) fn ask(&mut self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<()> {
        let buffer = PyBuffer::<u64>::get(keys)?;
        self.keys.resize(buffer.item_count(), 0);
        buffer.copy_to_slice(py, &mut self.keys)
    }

    /// Asks for one key.
    pub(crate) fn ask_one(&mut self, key: u64) {
        self.keys.clear();
        self.keys.push(key);
    }

    /// Gets the keys requested.
    pub(crate) fn read(&mut self, operations: &dyn Operations) -> PyResult<()> {
        operations.multi_get(&self.keys, &mut self.answers)?;
        self.found.clear();
        self.found.extend(self.answers.versions().iter().map(|version| u8::from(*version > 0)));
        if self.found.contains(&0) {
            for (index, _) in self.found.iter().enumerate().filter(|(_, found)| **found == 0) {
                self.answers.value_mut(index).fill(0);
            }
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        size_of_val(&self.keys[..]) + self.answers.values().len()
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

//! Buffers that a session's operations take and give back, so that a warm session allocates nothing.
//!
//! Invariant: a buffer is lent to one operation at a time. Those that nobody uses have [`KEPT_BYTES_MAX`]
//! together at most: what an uncommon operation needed beyond that is freed when it ends.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};

use farsight_layout::pool;

use crate::Pairs;

/// Bytes that a session keeps room for, of each kind of buffer, between two operations.
pub const KEPT_BYTES_MAX: usize = 1 << 20;

/// A buffer that is used again.
pub trait Buffer: Default {
    /// Bytes of its memory, used or not.
    fn room_bytes(&self) -> usize;
}

impl<T> Buffer for Vec<T> {
    fn room_bytes(&self) -> usize {
        self.capacity() * size_of::<T>()
    }
}

impl Buffer for Pairs {
    fn room_bytes(&self) -> usize {
        Self::room_bytes(self)
    }
}

impl Buffer for pool::Writes {
    fn room_bytes(&self) -> usize {
        Self::room_bytes(self)
    }
}

impl<A: Buffer, B: Buffer> Buffer for (A, B) {
    fn room_bytes(&self) -> usize {
        self.0.room_bytes() + self.1.room_bytes()
    }
}

/// Buffers of one kind.
#[derive(Debug, Default)]
pub struct Kept<T> {
    free: RefCell<Vec<T>>,
    /// Bytes of all that are free.
    bytes: Cell<usize>,
}

/// A buffer that goes back when the operation that has it ends.
#[derive(Debug)]
pub struct Lent<'k, T: Buffer> {
    buffer: T,
    kept: &'k Kept<T>,
}

impl<T: Buffer> Kept<T> {
    /// A buffer that nobody uses, with whatever is in it, or a new one.
    #[inline]
    pub fn take(&self) -> T {
        let buffer = self.free.borrow_mut().pop().unwrap_or_default();
        self.bytes.set(self.bytes.get().saturating_sub(buffer.room_bytes()));
        buffer
    }

    /// [`Kept::take`], for one operation.
    #[inline]
    pub fn lend(&self) -> Lent<'_, T> {
        Lent { buffer: self.take(), kept: self }
    }

    /// Keeps a buffer, if there is room.
    #[inline]
    pub fn give(&self, buffer: T) {
        let bytes = self.bytes.get() + buffer.room_bytes();
        if bytes <= KEPT_BYTES_MAX {
            self.bytes.set(bytes);
            self.free.borrow_mut().push(buffer);
        }
    }
}

impl<T: Buffer> Deref for Lent<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.buffer
    }
}

impl<T: Buffer> DerefMut for Lent<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.buffer
    }
}

impl<T: Buffer> Drop for Lent<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.kept.give(std::mem::take(&mut self.buffer));
    }
}

/// Empties a buffer that is kept by itself, and frees what it has beyond [`KEPT_BYTES_MAX`].
pub fn clear_kept<T>(buffer: &mut Vec<T>) {
    buffer.clear();
    buffer.shrink_to(KEPT_BYTES_MAX / size_of::<T>());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_as_far_as_there_is_room() {
        let kept = Kept::<Vec<u8>>::default();
        let (mut one, mut other) = (kept.lend(), kept.lend());
        one.extend([7; 100]);
        other.reserve(KEPT_BYTES_MAX);
        let place = one.as_ptr();
        drop((one, other));
        assert_eq!(kept.free.borrow().len(), 1, "one of them alone fits");
        let again = kept.lend();
        assert_eq!((&again[..], again.as_ptr(), kept.bytes.get()), (&[7; 100][..], place, 0));
    }
}

//! Memory for values that must not move, such as futures: kept from one use to the next, for any types.
//!
//! Invariant: a value that was put in a place stays there until it is dropped there. All values of a use are
//! dropped before the memory can be used again. For [`PinnedMemory::with_places`] lends their owner, and
//! never gives it away.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::pin::Pin;
use std::ptr::NonNull;

/// Memory that [`PinnedMemory::with_places`] lends. It is as large as its largest use, and never shrinks.
#[derive(Debug)]
pub struct PinnedMemory {
    /// Of `layout`; none of it is allocated while that has no size.
    first: NonNull<u8>,
    layout: Layout,
}

/// Places for values of one type, the first of which hold one each, or did.
#[derive(Debug)]
pub struct Places<'m, T> {
    first: NonNull<Option<T>>,
    /// Places, and those from the first on that were written.
    capacity: usize,
    count: usize,
    memory: PhantomData<&'m mut PinnedMemory>,
    values: PhantomData<T>,
}

// SAFETY: between two uses the memory holds no value, and it belongs to no thread.
unsafe impl Send for PinnedMemory {}

impl Default for PinnedMemory {
    fn default() -> Self {
        Self { first: NonNull::dangling(), layout: Layout::new::<()>() }
    }
}

impl PinnedMemory {
    /// Runs `body` with `capacity` places, and drops what it left in them.
    ///
    /// # Panics
    /// If no memory can be so large.
    pub fn with_places<T, R>(&mut self, capacity: usize, body: impl FnOnce(&mut Places<'_, T>) -> R) -> R {
        let wanted = Layout::array::<Option<T>>(capacity).expect("a few places");
        self.reserve(wanted);
        // Memory of no size has no places: those of values without size may be anywhere.
        let first = if wanted.size() == 0 { NonNull::dangling() } else { self.first.cast() };
        // Dropped here, and with it what it owns, also when the body panics.
        let mut places = Places { first, capacity, count: 0, memory: PhantomData, values: PhantomData };
        body(&mut places)
    }

    /// Makes the memory as large as `wanted`, and as aligned.
    fn reserve(&mut self, wanted: Layout) {
        if wanted.size() <= self.layout.size() && wanted.align() <= self.layout.align() {
            return;
        }
        let size = wanted.size().max(self.layout.size());
        let align = wanted.align().max(self.layout.align());
        let layout = Layout::from_size_align(size, align).expect("a few places");
        if size > 0 {
            *self = Self::default();
            // SAFETY: the layout's size is not zero.
            let allocated = unsafe { alloc(layout) };
            self.first = NonNull::new(allocated).unwrap_or_else(|| handle_alloc_error(layout));
            self.layout = layout;
        }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: `first` was allocated with this layout, and no use of it is under way.
            unsafe { dealloc(self.first.as_ptr(), self.layout) };
        }
    }
}

impl<T> Places<'_, T> {
    /// Puts `value` in the next place.
    ///
    /// # Panics
    /// If there is none left.
    pub fn add(&mut self, value: T) {
        assert!(self.count < self.capacity, "a value for each of {} places", self.capacity);
        // SAFETY: the place is one of the `capacity` that the memory has room for, as `add`'s check says.
        let place = unsafe { self.first.add(self.count) };
        // SAFETY: the memory is aligned for the type and lent to `self` alone; nothing was written there in
        // this use, so nothing is overwritten that wants to be dropped.
        unsafe { place.write(Some(value)) };
        self.count += 1;
    }

    /// Places that were given a value.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Place `index`, to look at its value, drop it, or replace it.
    ///
    /// # Panics
    /// If it was given none.
    pub fn place(&mut self, index: usize) -> Pin<&mut Option<T>> {
        assert!(index < self.count, "place {index} of {}", self.count);
        // SAFETY: the place is one of those that the memory has room for, for `count` is at most `capacity`.
        let mut place = unsafe { self.first.add(index) };
        // SAFETY: it was written by `add`, and is reached by this borrow of `self` alone.
        let value = unsafe { place.as_mut() };
        // SAFETY: nothing here moves the value. Its memory is not used otherwise until it was dropped:
        // `Places`, which `with_places` alone owns, drops it before its memory is free.
        unsafe { Pin::new_unchecked(value) }
    }
}

impl<T> Drop for Places<'_, T> {
    fn drop(&mut self) {
        let written = NonNull::slice_from_raw_parts(self.first, self.count);
        // SAFETY: so many places hold an `Option<T>` that `add` wrote, and nobody uses them any more.
        unsafe { written.drop_in_place() };
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::rc::Rc;

    use super::*;

    #[test]
    fn values_stay_and_are_dropped_once() {
        let mut memory = PinnedMemory::default();
        let owner = Rc::new(());
        for capacity in [3, 40, 1, 17] {
            memory.with_places(capacity, |places| {
                (0..capacity).for_each(|number| places.add((number, Rc::clone(&owner))));
                assert_eq!((places.count(), Rc::strong_count(&owner)), (capacity, capacity + 1));
                places.place(0).set(None);
                for number in 1..capacity {
                    assert_eq!(
                        places.place(number).as_ref().get_ref().as_ref().map(|held| held.0),
                        Some(number)
                    );
                }
                assert_eq!(Rc::strong_count(&owner), capacity);
            });
            assert_eq!(Rc::strong_count(&owner), 1);
        }
    }

    #[test]
    fn a_use_that_panics_leaves_nothing() {
        let (mut memory, owner) = (PinnedMemory::default(), Rc::new(()));
        let used = catch_unwind(AssertUnwindSafe(|| {
            memory.with_places(1, |places| {
                places.add(Rc::clone(&owner));
                places.add(Rc::clone(&owner));
            });
        }));
        assert!(used.is_err() && Rc::strong_count(&owner) == 1);
    }

    #[test]
    fn memory_is_aligned_and_kept() {
        #[repr(align(256))]
        struct Wide(u8);
        let mut memory = PinnedMemory::default();
        memory.with_places(4, |places| places.add(7_u8));
        let place = |places: &mut Places<'_, Wide>| {
            places.add(Wide(9));
            let place = places.place(0);
            assert_eq!(place.as_ref().get_ref().as_ref().map(|wide| wide.0), Some(9));
            std::ptr::from_ref(place.as_ref().get_ref()).addr()
        };
        let first = memory.with_places(4, place);
        assert!(first.is_multiple_of(256));
        memory.with_places(1000, |places: &mut Places<'_, u8>| places.add(7));
        assert_eq!(memory.with_places(3, place), first, "nothing is allocated for what there is room for");
        memory.with_places(3, |places| (0..3).for_each(|_| places.add(())));
        memory.with_places(0, |places: &mut Places<'_, u64>| assert_eq!(places.count(), 0));
    }
}

//! Loom's atomics, whose orderings an injected bug takes away.

use std::sync::atomic::Ordering;

use crate::injected;

fn of_load(ordering: Ordering) -> Ordering {
    match ordering {
        Ordering::Acquire if injected::ACQUIRE_LOADS.is_injected() => Ordering::Relaxed,
        ordering => ordering,
    }
}

fn of_store(ordering: Ordering) -> Ordering {
    match ordering {
        Ordering::Release if injected::RELEASE_STORES.is_injected() => Ordering::Relaxed,
        ordering => ordering,
    }
}

/// A fence.
#[track_caller]
pub fn fence(ordering: Ordering) {
    let is_missing = match ordering {
        Ordering::Acquire => injected::ACQUIRE_FENCES.is_injected(),
        Ordering::Release => injected::RELEASE_FENCES.is_injected(),
        Ordering::SeqCst => injected::SEQ_CST_FENCES.is_injected(),
        _ => false,
    };
    if !is_missing {
        loom::sync::atomic::fence(ordering);
    }
}

macro_rules! atomic {
    ($name:ident, $inner:ident, $value:ty) => {
        /// The standard library's atomic of this name, checked.
        #[derive(Debug, Default)]
        pub struct $name(loom::sync::atomic::$inner);

        #[allow(missing_docs, clippy::must_use_candidate, reason = "the standard library's methods")]
        impl $name {
            #[track_caller]
            #[must_use]
            pub fn new(value: $value) -> Self {
                Self(loom::sync::atomic::$inner::new(value))
            }

            #[track_caller]
            pub fn load(&self, ordering: Ordering) -> $value {
                self.0.load(of_load(ordering))
            }

            #[track_caller]
            pub fn store(&self, value: $value, ordering: Ordering) {
                self.0.store(value, of_store(ordering));
            }

            #[track_caller]
            pub fn swap(&self, value: $value, ordering: Ordering) -> $value {
                self.0.swap(value, of_load(of_store(ordering)))
            }

            #[track_caller]
            pub fn compare_exchange(
                &self,
                expected: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.0.compare_exchange(expected, new, of_load(of_store(success)), of_load(failure))
            }

            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                expected: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(expected, new, success, failure)
            }
        }
    };
}

macro_rules! arithmetic {
    ($name:ident, $value:ty) => {
        #[allow(missing_docs, clippy::must_use_candidate, reason = "the standard library's methods")]
        impl $name {
            #[track_caller]
            pub fn fetch_add(&self, value: $value, ordering: Ordering) -> $value {
                self.0.fetch_add(value, of_load(of_store(ordering)))
            }

            #[track_caller]
            pub fn fetch_sub(&self, value: $value, ordering: Ordering) -> $value {
                self.0.fetch_sub(value, of_load(of_store(ordering)))
            }

            #[track_caller]
            pub fn fetch_max(&self, value: $value, ordering: Ordering) -> $value {
                self.0.fetch_max(value, of_load(of_store(ordering)))
            }

            #[track_caller]
            pub fn fetch_or(&self, value: $value, ordering: Ordering) -> $value {
                self.0.fetch_or(value, of_load(of_store(ordering)))
            }

            #[track_caller]
            pub fn fetch_and(&self, value: $value, ordering: Ordering) -> $value {
                self.0.fetch_and(value, of_load(of_store(ordering)))
            }

            #[track_caller]
            pub fn fetch_update(
                &self,
                store: Ordering,
                load: Ordering,
                change: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                self.0.fetch_update(of_load(of_store(store)), of_load(load), change)
            }
        }
    };
}

atomic!(AtomicBool, AtomicBool, bool);
atomic!(AtomicU32, AtomicU32, u32);
atomic!(AtomicU64, AtomicU64, u64);
atomic!(AtomicUsize, AtomicUsize, usize);
arithmetic!(AtomicU32, u32);
arithmetic!(AtomicU64, u64);
arithmetic!(AtomicUsize, usize);

//! The only door to atomics, and to the locks of code that model checkers run. Behind it stand the standard
//! library's, or those of a checker.
//!
//! Under `cfg(loom)` every load may return each value that the C++ memory model allows, and every schedule is
//! tried. Under `cfg(shuttle)` memory is sequentially consistent and schedules are drawn at random, which
//! reaches models too large for loom (`model`). Neither type has the size of its word, so under a checker
//! shared memory is a slice of these types and never a mapping. The module `injection` of this crate makes
//! models fail on purpose.

#[cfg(loom)]
mod weakened;

#[cfg(any(loom, shuttle))]
pub mod model;

#[cfg(all(any(loom, shuttle), not(portable_words)))]
compile_error!(
    "a model checker sees no vector moves: add --cfg portable_words, as `cargo xtask models` does"
);

/// Atomics of the whole process, in statics: outside of every model, whose atomics live as long as one
/// schedule.
pub mod process {
    pub use std::sync::atomic::{AtomicBool, AtomicU8};
}

#[cfg(not(any(loom, shuttle)))]
pub use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

#[cfg(shuttle)]
pub use shuttle::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

#[cfg(loom)]
pub use {
    loom::{
        hint::spin_loop,
        sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard},
    },
    std::sync::atomic::Ordering,
    weakened::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence},
};

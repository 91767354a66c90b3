//! The only door to atomics, so that a model checker can be put behind it in one place.

pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

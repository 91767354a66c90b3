//! The only door to atomics, so that a model checker can be put behind it in one place.

#![expect(clippy::disallowed_types, reason = "the one place that may name them")]

pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

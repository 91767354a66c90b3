//! What the engines share: where reads put their answers, what a session counts, slabs of leaves, and the way a
//! tree knows its leaves.
//!
//! Invariant: nothing here names an engine or a provider.

#![forbid(unsafe_code)]

mod answers;
mod counters;

pub use answers::{Answers, Pair, Pairs};
pub use counters::Counters;

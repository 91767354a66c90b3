//! What nodes tell compute nodes that keep values: which of them count no more.

use serde::{Deserialize, Serialize};

/// Recalls of a table that a node has under way at most, and so of those that it tells at once.
pub const RECALLS_MAX: usize = 32;

/// Values that are not given out any more: those noted when a counter of closings was lower.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recalled {
    /// The shard whose counter that is; this node is its tail.
    pub shard: u8,
    /// The counter's number.
    pub counter: u8,
    /// What it has reached.
    pub closings: u64,
}

/// What a compute node is told that keeps values.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Recalls {
    /// The number of the last one.
    pub number: u64,
    /// Up to [`RECALLS_MAX`] of them.
    pub recalled: Vec<Recalled>,
}

impl Recalls {
    /// The longest that there are.
    #[must_use]
    pub fn longest() -> Self {
        let recalled = Recalled { shard: u8::MAX, counter: u8::MAX, closings: u64::MAX };
        Self { number: u64::MAX, recalled: vec![recalled; RECALLS_MAX] }
    }
}

//! Compute nodes that have ended here with memory in hand, and may not have at the shard's other nodes.
//!
//! Invariant: what one of them had in hand stays in its hand until it has ended everywhere. One that lost its
//! connection to the head may WRITE at another replica before it notices. So memory that was given to others
//! in between would be spoiled there.
//!
//! Protocol:
//! 1. The head's node tells a compute node that calls which ones have ended.
//! 2. That one [fences](crate::fence) them at all nodes, and says so.
//! 3. The head's node takes over what they had.
//!
//! Several compute nodes may be told of one, one after the other did not answer. Any answer will do.

use std::collections::BTreeSet;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_protocol::{ComputeNode, POOL_ENDED_MAX};

/// Time for a compute node to fence others before the next one is told.
const PATIENCE: Duration = Duration::from_millis(500);

/// Those that are to be fenced.
#[derive(Debug, Default)]
pub(super) struct Ended {
    unfenced: BTreeSet<ComputeNode>,
    told_at: Option<MonotonicNs>,
}

impl Ended {
    /// Notes one that has ended here.
    pub(super) fn note(&mut self, compute_node: ComputeNode) {
        self.unfenced.insert(compute_node);
    }

    /// Which are to be fenced by a compute node that calls now: the first ones, or none.
    pub(super) fn tell(&mut self, now: MonotonicNs) -> Vec<ComputeNode> {
        let is_told = self.told_at.is_some_and(|at| now.since(at) < PATIENCE);
        if is_told || self.unfenced.is_empty() {
            return Vec::new();
        }
        self.told_at = Some(now);
        self.unfenced.iter().copied().take(POOL_ENDED_MAX).collect()
    }

    /// Takes note that this one has ended everywhere. False if it was not waited for.
    pub(super) fn end(&mut self, compute_node: ComputeNode) -> bool {
        // The next ones need not wait.
        self.told_at = None;
        self.unfenced.remove(&compute_node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_compute_node_at_a_time_is_told() {
        let (mut ended, now) = (Ended::default(), MonotonicNs(0));
        assert_eq!(ended.tell(now), []);
        (1..=100).map(ComputeNode).for_each(|compute_node| ended.note(compute_node));
        let told: Vec<_> = (1..=64).map(ComputeNode).collect();
        assert_eq!(ended.tell(now), told, "the first ones");
        assert_eq!(ended.tell(now), [], "somebody fences them");
        assert_eq!(ended.tell(now.plus(PATIENCE)), told, "or has ended");
        assert!(ended.end(ComputeNode(1)));
        assert!(!ended.end(ComputeNode(1)), "another one said so");
        assert_eq!(ended.tell(now), (2..=65).map(ComputeNode).collect::<Vec<_>>());
    }
}

//! What nodes of a pool and compute nodes know of each other.
//!
//! A pool is an ordered list of memory nodes, of which the first is *the coordinator*: its epoch names the
//! pool, and it numbers tables and compute nodes. Steps and what is refused: docs/protocol/pool.md.

use std::time::Duration;

use farsight_base::Epoch;
use serde::{Deserialize, Serialize};

use crate::TableId;

/// Memory nodes of a pool at most.
pub const POOL_NODES_MAX: usize = 16;
/// Blocks that one call gives, takes or names at most.
pub const POOL_BLOCKS_MAX: usize = 1024;
/// The longest lease of a leaf's lock that a memory node can be told.
pub const LEASE_MAX: Duration = Duration::from_secs(60);

/// Ended compute nodes that one call names at most.
pub const POOL_ENDED_MAX: usize = 64;
/// Numbers that one compute node has at most: at 2^30 locks each, for 43 h of 7 million locks a second.
pub const POOL_NUMBERS_MAX: usize = 1024;

/// Dropped tables that one call names at most.
pub const POOL_DROPPED_MAX: usize = 1024;

/// A compute node, by the number that the coordinator gave it. Never given twice in the coordinator's epoch,
/// never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ComputeNode(pub u32);

impl std::fmt::Display for ComputeNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "compute node {}", self.0)
    }
}

/// A node's place in a pool, as a client's list of addresses has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolPlace {
    /// The nodes' epochs, in the order of the list; the first is the coordinator's. A node with a directory
    /// of data has the epoch of its first life there.
    #[serde(with = "crate::exact::words")]
    pub epochs: Vec<u64>,
    /// The node's index in the list.
    pub index: u8,
}

impl PoolPlace {
    /// A place whose index lies in its list.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        (1..=POOL_NODES_MAX).contains(&self.epochs.len()) && usize::from(self.index) < self.epochs.len()
    }

    /// The coordinator's epoch, which names the pool.
    #[must_use]
    pub fn coordinator(&self) -> Epoch {
        Epoch(self.epochs[0])
    }
}

impl std::fmt::Display for PoolPlace {
    /// Counts from 1, as people do; the coordinator is number 1.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "number {} of {}", u32::from(self.index) + 1, self.epochs.len())
    }
}

/// What a node says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeHello {
    /// Its epoch, the same at each of its addresses. With a directory of data it is that of its first life
    /// there, so that it is the same node after a restart.
    pub epoch: u64,
    /// Its place in a pool, once a table was made.
    pub place: Option<PoolPlace>,
    /// The nodes that this one's pool goes on without.
    pub lost: LostNodes,
    /// How many nodes its pool has taken in, in place of lost ones.
    pub term: u32,
    /// What names its pool: the epoch of the coordinator that it had first.
    pub pool: Option<u64>,
    /// It knows by which addresses clients reach the nodes of its pool.
    pub knows_addresses: bool,
}

/// Nodes without which a pool goes on, a bit each by their places.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LostNodes(pub u16);

impl LostNodes {
    /// These places.
    #[must_use]
    pub fn of(places: impl IntoIterator<Item = usize>) -> Self {
        Self(places.into_iter().fold(0, |bits, place| bits | 1 << place))
    }

    /// True for a node that is one of them.
    #[must_use]
    pub fn contains(self, place: usize) -> bool {
        self.0.checked_shr(place as u32).is_some_and(|bits| bits & 1 == 1)
    }

    /// How many there are.
    #[must_use]
    pub fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// These and the others.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The first of `nodes` that is none of them: the pool's coordinator.
    #[must_use]
    pub fn coordinator(self, nodes: usize) -> Option<usize> {
        (0..nodes).find(|place| !self.contains(*place))
    }

    /// True if more than half of `nodes` are none of them: no two sets of nodes go on without each other.
    #[must_use]
    pub fn leave_a_majority(self, nodes: usize) -> bool {
        2 * self.count() < nodes
    }

    /// The nodes without which a pool of so many can go on: some are missing, and each node that is there
    /// says, by its place, without which others it does. All of those, if it cannot.
    ///
    /// Two nodes may each have been left out by some of the others, which nobody brought to an end. Then one
    /// of them can go on with all that have not left it out. Whatever these have left out is left out, too.
    #[must_use]
    pub fn agreed(missing: Self, said_by: &[(usize, Self)], nodes: usize) -> Self {
        let closed = |mut lost: Self| {
            // Each round adds a node, or changes nothing.
            for _ in 0..nodes {
                let stay = said_by.iter().filter(|(place, _)| !lost.contains(*place));
                lost = stay.fold(lost, |lost, (_, said)| lost.and(*said));
            }
            lost
        };
        let all = said_by.iter().fold(missing, |lost, (_, said)| lost.and(*said));
        let ways = std::iter::once(missing).chain(said_by.iter().map(|(_, said)| missing.and(*said)));
        ways.map(closed).find(|lost| lost.leave_a_majority(nodes)).unwrap_or(all)
    }
}

/// What a node says to who would have its pool go on without others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LeftOut {
    /// It goes on without these: those that were named, and perhaps others.
    Done(LostNodes),
    /// Not yet, or not at all as things are.
    Wait {
        /// The nodes without which it would go on.
        lost: LostNodes,
        /// Before this time has passed another request changes nothing.
        pause_ms: u32,
        /// What is waited for.
        why: String,
    },
}

/// A life of a node with a directory of data: from one start to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeLife {
    /// Which one it is, from one.
    pub number: u64,
    /// Its epoch, which a life of a copy of the directory does not have.
    pub epoch: u64,
}

/// What a node says of lives: its own, and those that it has been told of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeLives {
    /// Its own; none without a directory of data.
    pub own: Option<NodeLife>,
    /// The newest of each node of its pool that it has been told of, in their order. Empty without a pool,
    /// and without a directory.
    pub met: Vec<Option<NodeLife>>,
}

/// What a region of a table is for, and blocks are taken from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Space {
    /// The leaves of a table on this node, in leaves.
    Leaves,
    /// The region of models, in lines: in a table of ROLEX that of its directory and models, on the
    /// coordinator, whose line zero is never given.
    Meta,
    /// The blocks of values of any length on this node, in lines. In a table of FlexKV compute nodes write
    /// them, as objects; in others the node does.
    Blocks,
    /// The index of a hash table on this node, in lines.
    Index,
}

/// Memory of an object that a compute node was given, in one of its uses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ObjectMemory {
    /// Its first line in the space of blocks.
    pub offset_lines: u32,
    /// Its lines.
    pub lines: u8,
    /// Which of its uses: counted by the node.
    pub generation: u16,
}

/// Memory that a compute node is given for objects.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ObjectGrant {
    /// The memory.
    pub given: Vec<ObjectMemory>,
    /// The compute node is to see to it that all replicas of the shard have what its head has, and to say so
    /// under this number.
    pub settle: Option<u32>,
    /// Compute nodes that have ended at this node with memory in hand, at most [`POOL_ENDED_MAX`]. They are
    /// to be fenced at all nodes, and this one is to be told.
    pub fence: Vec<ComputeNode>,
    /// Objects of pairs whose deadlines have passed, at most [`POOL_ENDED_MAX`]. The compute node is to
    /// remove those pairs.
    pub ended: Vec<ObjectMemory>,
}

/// What a node says to a compute node that wants to split a subtable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SplitGrant {
    /// Split it into these units, which are nobody else's.
    Units([u32; 2]),
    /// It is split.
    Done,
    /// Somebody else splits it. After this time another one may.
    Wait {
        /// The time.
        pause_us: u32,
    },
    /// The index has no units left.
    Full {
        /// Units that it has.
        units: u32,
        /// Of those, units with subtables that were split, which rest.
        resting: u32,
    },
}

/// Consecutive blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Blocks {
    /// The first.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// Under which call blocks became a compute node's. A node gives each number once for a space: so what a
/// compute node does late with blocks that it had once does nothing to those that it has now.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Claim(pub u64);

impl Claim {
    /// That of all blocks that were allocated.
    pub const ALLOCATED: Self = Self(0);
}

/// What became of blocks that a compute node wanted to adopt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Adopted {
    /// They are its own, under this claim; or else the newest claim, to adopt under later.
    pub claim: Claim,
    /// Whether they are.
    pub is_done: bool,
}

/// Blocks of a compute node that has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TakenBlocks {
    /// They are who asked's, under this claim.
    pub claim: Claim,
    /// These.
    pub blocks: Vec<Blocks>,
}

/// The lock of a leaf as somebody found it who waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LockSeen {
    /// The table.
    pub table: TableId,
    /// The leaf's block on the node that is asked.
    pub block: u32,
    /// Its lock word.
    pub word: u64,
}

/// What came of a fence at one node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Fenced {
    /// None of the compute node's verbs can execute there any more.
    Done,
    /// Not yet, or not at all as things are.
    Wait {
        /// Before this time has passed another request changes nothing.
        pause_ms: u32,
        /// What is waited for.
        why: String,
    },
}

impl Fenced {
    /// Not before `pause` has passed.
    #[must_use]
    pub fn wait(pause: Duration, why: impl Into<String>) -> Self {
        let pause_ms = u32::try_from(pause.as_micros().div_ceil(1_000)).unwrap_or(u32::MAX).max(1);
        Self::Wait { pause_ms, why: why.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_left_each_other_out_are_told_apart() {
        let [none, a, b, c] = [0, 1, 2, 4].map(LostNodes);
        let without = |said: [LostNodes; 3], missing| {
            let said_by: Vec<_> = said.into_iter().enumerate().collect();
            LostNodes::agreed(missing, &said_by, 3)
        };
        assert_eq!(without([none, none, none], none), none);
        assert_eq!(without([none, none, a], none), a, "one has left it out, and the other can");
        assert_eq!(without([b, a, a], none), a, "what it says itself is nothing to the others");
        assert_eq!(without([b, none, a], none), a, "the second node has not left out the third");
        assert_eq!(without([none, none, none], c), c, "it was not reached");
        assert_eq!(without([none, none, a], b), a.and(b), "too few are left");
    }
}

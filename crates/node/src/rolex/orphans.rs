//! Blocks that compute nodes which have ended left: by their numbers, and by whose they were.
//!
//! Invariant: both have the same blocks. So a call that takes some of one compute node's looks at those
//! alone, however many others have left.

use std::collections::BTreeMap;

use farsight_protocol::{Blocks, ComputeNode};

use super::runs::Runs;

/// The orphans of one region.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    all: Runs<ComputeNode>,
    by_owner: BTreeMap<ComputeNode, Runs<()>>,
}

impl Orphans {
    /// How many blocks they are.
    pub(crate) fn blocks(&self) -> u64 {
        self.all.blocks()
    }

    /// Adds a run that was `owner`'s, and is none's here.
    pub(crate) fn insert(&mut self, run: Blocks, owner: ComputeNode) {
        self.all.insert(run, owner);
        self.by_owner.entry(owner).or_default().insert(run, ());
    }

    /// Takes away whatever of `run` is here.
    pub(crate) fn remove(&mut self, run: Blocks) {
        for (piece, owner) in self.all.within(run) {
            let of_owner = self.by_owner.get_mut(&owner).expect("its blocks are here, by their numbers");
            of_owner.remove(piece);
            if of_owner.blocks() == 0 {
                self.by_owner.remove(&owner);
            }
        }
        self.all.remove(run);
    }

    /// Compute nodes that left some, up to so many of them.
    pub(crate) fn owners(&self, count: usize) -> Vec<ComputeNode> {
        self.by_owner.keys().copied().take(count).collect()
    }

    /// Takes up to `limit` blocks that were `owner`'s, the first ones.
    pub(crate) fn take(&mut self, owner: ComputeNode, limit: u32) -> Vec<Blocks> {
        let (mut taken, mut left) = (Vec::new(), limit);
        for (run, ()) in self.by_owner.get(&owner).into_iter().flat_map(Runs::iter) {
            if left == 0 {
                break;
            }
            let run = Blocks { first: run.first, count: run.count.min(left) };
            left -= run.count;
            taken.push(run);
        }
        for run in &taken {
            self.remove(*run);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_found_by_number_and_by_owner() {
        let run = |first, count| Blocks { first, count };
        let [first, second] = [ComputeNode(7), ComputeNode(3)];
        let mut orphans = Orphans::default();
        orphans.insert(run(10, 4), first);
        orphans.insert(run(14, 4), second);
        orphans.insert(run(18, 4), first);
        assert_eq!((orphans.blocks(), orphans.owners(64)), (12, vec![second, first]));
        assert_eq!(orphans.owners(1), [second]);
        orphans.remove(run(12, 4));
        assert_eq!(orphans.take(second, 9), [run(16, 2)]);
        assert_eq!((orphans.owners(64), orphans.take(second, 9)), (vec![first], vec![]));
        assert_eq!(orphans.take(first, 3), [run(10, 2), run(18, 1)]);
        assert_eq!(orphans.take(first, 3), [run(19, 3)]);
        assert_eq!((orphans.blocks(), orphans.owners(64)), (0, vec![]));
    }
}

//! Who has which block of a region.
//!
//! Invariant: every block below `next` is free, or was given out; of the latter some have an owner that
//! lives, some are orphans, and the others were taken over by whoever looked at them. None is two of these.

use farsight_protocol::{Blocks, ComputeNode, ErrorCode, ServerError, SpaceStats};

use crate::runs::{Runs, end};

/// The blocks of one region.
#[derive(Debug)]
pub(crate) struct BlockSpace {
    /// What a block is called in errors.
    what: &'static str,
    capacity: u32,
    reserved: u32,
    /// Blocks from here on were never given out.
    next: u32,
    free: Runs<()>,
    owned: Runs<ComputeNode>,
    orphans: Runs<()>,
}

impl BlockSpace {
    /// So many blocks, the first few of which are never given.
    pub(crate) fn new(what: &'static str, capacity: u32, reserved: u32) -> Self {
        let (free, owned, orphans) = (Runs::default(), Runs::default(), Runs::default());
        let reserved = reserved.min(capacity);
        Self { what, capacity, reserved, next: reserved, free, owned, orphans }
    }

    /// Blocks of the space.
    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Gives `owner` up to `count` consecutive blocks, at least one.
    pub(crate) fn allocate_some(&mut self, owner: ComputeNode, count: u32) -> Result<Blocks, ServerError> {
        let found = match self.free.first() {
            Some(run) => Blocks { first: run.first, count: run.count.min(count) },
            None => Blocks { first: self.next, count: (self.capacity - self.next).min(count) },
        };
        if found.count == 0 {
            return Err(self.full(count));
        }
        Ok(self.give(owner, found))
    }

    /// Gives `owner` `count` consecutive blocks.
    pub(crate) fn allocate_exact(&mut self, owner: ComputeNode, count: u32) -> Result<Blocks, ServerError> {
        let fits = self.free.iter().map(|(run, ())| run).find(|run| run.count >= count);
        let found = match fits {
            Some(run) => Blocks { first: run.first, count },
            None if self.capacity - self.next >= count => Blocks { first: self.next, count },
            None => return Err(self.full(count)),
        };
        Ok(self.give(owner, found))
    }

    fn give(&mut self, owner: ComputeNode, found: Blocks) -> Blocks {
        if found.first == self.next {
            self.next += found.count;
        } else {
            self.free.remove(found);
        }
        self.owned.insert(found, owner);
        found
    }

    /// Takes back blocks that were given out; all of them or none.
    pub(crate) fn free(&mut self, runs: &[Blocks]) -> Result<(), ServerError> {
        let mut sorted = runs.to_vec();
        sorted.sort_unstable_by_key(|run| run.first);
        for (index, run) in sorted.iter().enumerate() {
            let behind = sorted.get(index + 1).map_or(u64::from(self.next), |next| u64::from(next.first));
            let is_given = run.count > 0
                && run.first >= self.reserved
                && end(*run) <= behind.min(u64::from(self.next))
                && self.free.overlap(*run).is_none();
            if !is_given {
                let text = format!(
                    "{} {} to {} cannot be freed: they are named twice, free already, or were never given out",
                    self.what,
                    run.first,
                    end(*run)
                );
                return Err(ServerError::new(ErrorCode::BadRequest, text));
            }
        }
        for run in sorted {
            self.owned.remove(run);
            self.orphans.remove(run);
            self.free.insert(run, ());
        }
        Ok(())
    }

    /// Gives `owner` up to `limit` orphans, to look at.
    pub(crate) fn take_orphans(&mut self, owner: ComputeNode, limit: u32) -> Vec<Blocks> {
        let mut taken = Vec::new();
        let mut left = limit;
        while left > 0
            && let Some(run) = self.orphans.first()
        {
            let run = Blocks { first: run.first, count: run.count.min(left) };
            left -= run.count;
            self.orphans.remove(run);
            self.owned.insert(run, owner);
            taken.push(run);
        }
        taken
    }

    /// Takes the blocks of a compute node none of whose verbs can execute any more: those that nobody has
    /// written are free, the others orphans. Where a written piece may have blocks without a word, all up to
    /// `margin` blocks behind a run's last written one count as written.
    pub(crate) fn end(
        &mut self,
        owner: ComputeNode,
        margin: Option<u32>,
        is_unwritten: impl Fn(u32) -> bool,
    ) {
        let runs: Vec<Blocks> =
            self.owned.iter().filter(|(_, tag)| *tag == owner).map(|(run, _)| run).collect();
        for run in runs {
            self.owned.remove(run);
            let behind = run.first + run.count;
            let last = (run.first..behind).rev().find(|block| !is_unwritten(*block));
            let kept = last.zip(margin).map_or(run.first, |(last, margin)| behind.min(last + 1 + margin));
            for first in run.first..behind {
                let block = Blocks { first, count: 1 };
                let is_free = first >= kept && is_unwritten(first);
                let into = if is_free { &mut self.free } else { &mut self.orphans };
                into.insert(block, ());
            }
        }
    }

    /// How the blocks, each of so many bytes, are used.
    pub(crate) fn stats(&self, block_bytes: u64) -> SpaceStats {
        SpaceStats {
            capacity: u64::from(self.capacity),
            block_bytes,
            used: u64::from(self.next - self.reserved) - self.free.blocks(),
            owned: self.owned.blocks(),
            orphaned: self.orphans.blocks(),
        }
    }

    fn full(&self, count: u32) -> ServerError {
        let text = format!(
            "of {} {} none are left for {count}: {} are free, in runs too short; give the node more memory",
            self.capacity,
            self.what,
            self.free.blocks()
        );
        ServerError::new(ErrorCode::RegionFull, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ComputeNode = ComputeNode(1);
    const B: ComputeNode = ComputeNode(2);

    fn run(first: u32, count: u32) -> Blocks {
        Blocks { first, count }
    }

    #[test]
    fn blocks_are_given_once_until_freed() {
        let mut space = BlockSpace::new("leaves", 10, 0);
        assert_eq!(space.allocate_some(A, 4), Ok(run(0, 4)));
        assert_eq!(space.allocate_some(B, 4), Ok(run(4, 4)));
        assert_eq!(space.allocate_some(A, 4), Ok(run(8, 2)));
        assert_eq!(space.allocate_some(A, 1).unwrap_err().code, ErrorCode::RegionFull);
        space.free(&[run(5, 2), run(1, 1)]).unwrap();
        assert_eq!(space.allocate_some(A, 4), Ok(run(1, 1)));
        assert_eq!(space.allocate_some(A, 4), Ok(run(5, 2)));
    }

    #[test]
    fn exact_blocks_are_consecutive_and_spare_the_reserved() {
        let mut space = BlockSpace::new("lines", 10, 1);
        assert_eq!(space.allocate_exact(A, 3), Ok(run(1, 3)));
        assert_eq!(space.allocate_exact(A, 3), Ok(run(4, 3)));
        space.free(&[run(1, 2)]).unwrap();
        assert_eq!(space.allocate_exact(B, 3), Ok(run(7, 3)));
        assert_eq!(space.allocate_exact(B, 3).unwrap_err().code, ErrorCode::RegionFull);
        assert_eq!(space.allocate_exact(B, 2), Ok(run(1, 2)));
        assert!(space.free(&[run(0, 1)]).is_err(), "a reserved block was never given");
    }

    #[test]
    fn what_cannot_be_freed_leaves_everything_as_it_was() {
        let mut space = BlockSpace::new("leaves", 10, 0);
        space.allocate_some(A, 6).unwrap();
        space.free(&[run(2, 1)]).unwrap();
        for wrong in [
            vec![run(0, 1), run(2, 1)],
            vec![run(0, 2), run(1, 1)],
            vec![run(5, 2)],
            vec![run(0, 0)],
            vec![run(u32::MAX, u32::MAX)],
        ] {
            assert_eq!(space.free(&wrong).unwrap_err().code, ErrorCode::BadRequest, "{wrong:?}");
        }
        assert_eq!(space.stats(64).used, 5);
        space.free(&[run(0, 2), run(3, 3)]).unwrap();
        assert_eq!(space.stats(64).used, 0);
        assert_eq!(space.allocate_some(B, 10), Ok(run(0, 6)));
    }

    #[test]
    fn a_piece_may_have_blocks_without_a_word() {
        let mut space = BlockSpace::new("lines", 100, 1);
        space.allocate_exact(A, 40).unwrap();
        space.allocate_exact(B, 10).unwrap();
        // Written are 1, 5 and 20 of the first, nothing of the second.
        let is_unwritten = |block: u32| ![1, 5, 20].contains(&block);
        space.end(A, Some(4), is_unwritten);
        space.end(B, Some(4), is_unwritten);
        assert_eq!(space.stats(64).orphaned, 24);
        assert_eq!(space.allocate_exact(A, 26), Ok(run(25, 26)));
    }

    #[test]
    fn an_ended_owner_leaves_what_it_wrote_to_be_looked_at() {
        let mut space = BlockSpace::new("leaves", 100, 0);
        space.allocate_some(A, 8).unwrap();
        space.allocate_some(B, 8).unwrap();
        space.free(&[run(3, 1)]).unwrap();
        space.end(A, None, |block| block >= 5);
        let stats = space.stats(64);
        assert_eq!((stats.used, stats.owned, stats.orphaned), (12, 8, 4));
        assert_eq!(space.take_orphans(B, 3), [run(0, 3)]);
        assert_eq!(space.take_orphans(B, 3), [run(4, 1)]);
        assert_eq!(space.take_orphans(B, 3), []);
        // Whoever looks at them ends, too: they are orphans again.
        space.end(B, None, |_| false);
        assert_eq!((space.stats(64).owned, space.stats(64).orphaned), (0, 12));
        // One of them is found to be of no use.
        space.free(&[run(4, 1)]).unwrap();
        assert_eq!(space.stats(64).orphaned, 11);
    }
}

//! Who has which block of a region.
//!
//! Invariant: every block below `next` is free, or was given out. Most of the latter have an owner that
//! lives. Some are orphans of one that has ended, and the others are the table's for good. None is two of
//! these. Only its owner frees a block, and names the [claim](Claim) under which it has it.
//!
//! A compute node adopts blocks that it saw in the chain. It has to know that none of them was free between
//! that look and the adoption: it might be another's by then, who has not linked it yet. So claims are
//! numbered in one sequence with the moments at which blocks become free. The compute node names the newest
//! number that it had heard of before it looked.

use std::ops::DerefMut;

use farsight_protocol::{
    Adopted, Blocks, Claim, ComputeNode, ErrorCode, POOL_ENDED_MAX, ServerError, SpaceStats, TakenBlocks,
};

use super::orphans::Orphans;
use super::runs::{Runs, end};

/// Runs of blocks that are listed, or change hands, under one hold of the lock when a compute node ends.
const RUNS_A_STEP: usize = 256;

/// Who has a block, and how it came to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Holder {
    pub(crate) owner: ComputeNode,
    pub(crate) claim: Claim,
}

impl Holder {
    /// Who was given a block that was free.
    pub(crate) fn allocated(owner: ComputeNode) -> Self {
        Self { owner, claim: Claim::ALLOCATED }
    }
}

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
    owned: Runs<Holder>,
    orphans: Orphans,
    /// The newest claim, or moment at which blocks became free.
    newest: Claim,
    /// The last such moment.
    freed_at: Claim,
}

impl BlockSpace {
    /// So many blocks, the first few of which are never given.
    pub(crate) fn new(what: &'static str, capacity: u32, reserved: u32) -> Self {
        let (free, owned, orphans) = (Runs::default(), Runs::default(), Orphans::default());
        let reserved = reserved.min(capacity);
        let (newest, freed_at) = (Claim::ALLOCATED, Claim::ALLOCATED);
        Self { what, capacity, reserved, next: reserved, free, owned, orphans, newest, freed_at }
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
        self.owned.insert(found, Holder::allocated(owner));
        found
    }

    fn next_claim(&mut self) -> Claim {
        self.newest.0 += 1;
        self.newest
    }

    fn set_free(&mut self, piece: Blocks) {
        self.free.insert(piece, ());
        self.freed_at = self.next_claim();
    }

    /// Refuses runs that name a block twice, or one that was never given out.
    fn check_given(&self, what: &str, runs: &[Blocks]) -> Result<(), ServerError> {
        let mut sorted = runs.to_vec();
        sorted.sort_unstable_by_key(|run| run.first);
        for (index, run) in sorted.iter().enumerate() {
            let behind = sorted.get(index + 1).map_or(u64::from(self.next), |next| u64::from(next.first));
            let is_given =
                run.count > 0 && run.first >= self.reserved && end(*run) <= behind.min(u64::from(self.next));
            if !is_given {
                return Err(self.wrong(what, *run, "named twice, or were never given out"));
            }
        }
        Ok(())
    }

    /// Takes back those of the blocks that are `holder`'s; how many.
    pub(crate) fn free(&mut self, holder: Holder, runs: &[Blocks]) -> Result<u64, ServerError> {
        self.check_given("freed", runs)?;
        let mut freed = 0;
        for run in runs {
            let pieces = self.owned.within(*run).into_iter().filter(|(_, tag)| *tag == holder);
            for (piece, _) in pieces {
                self.owned.remove(piece);
                self.set_free(piece);
                freed += u64::from(piece.count);
            }
        }
        Ok(freed)
    }

    /// Takes given blocks from their owners and gives them to `owner`; all of them, or none if a block has
    /// become free since it had heard of claim `known`.
    pub(crate) fn adopt(
        &mut self,
        owner: ComputeNode,
        known: Claim,
        runs: &[Blocks],
    ) -> Result<Adopted, ServerError> {
        self.check_given("adopted", runs)?;
        if !(self.freed_at..=self.newest).contains(&known) {
            return Ok(Adopted { claim: self.newest, is_done: false });
        }
        if let Some(run) = runs.iter().find(|run| self.free.overlap(**run).is_some()) {
            return Err(self.wrong("adopted", *run, "free, some of them"));
        }
        let claim = self.next_claim();
        for run in runs {
            self.owned.remove(*run);
            self.orphans.remove(*run);
            self.owned.insert(*run, Holder { owner, claim });
        }
        Ok(Adopted { claim, is_done: true })
    }

    /// Makes those of the blocks that are `holder`'s nobody's.
    pub(crate) fn pin(&mut self, holder: Holder, runs: &[Blocks]) -> Result<(), ServerError> {
        self.check_given("pinned", runs)?;
        for run in runs {
            for (piece, tag) in self.owned.within(*run) {
                if tag == holder {
                    self.owned.remove(piece);
                }
            }
        }
        Ok(())
    }

    /// Compute nodes that have ended and left orphans, some of them.
    pub(crate) fn ended(&self) -> Vec<ComputeNode> {
        self.orphans.owners(POOL_ENDED_MAX)
    }

    /// Gives `owner` up to `limit` orphans of `of`, to look at.
    pub(crate) fn take_orphans(&mut self, owner: ComputeNode, of: ComputeNode, limit: u32) -> TakenBlocks {
        let (claim, blocks) = (self.next_claim(), self.orphans.take(of, limit));
        for run in &blocks {
            self.owned.insert(*run, Holder { owner, claim });
        }
        TakenBlocks { claim, blocks }
    }

    fn wrong(&self, what: &str, run: Blocks, why: &str) -> ServerError {
        let text = format!("{} {} to {} cannot be {what}: they are {why}", self.what, run.first, end(run));
        ServerError::new(ErrorCode::BadRequest, text)
    }

    /// What a compute node has of the next `runs` runs of blocks, from block `first` on; and where those
    /// behind them begin, if there are any.
    pub(crate) fn owned_from(
        &self,
        owner: ComputeNode,
        first: u32,
        runs: usize,
    ) -> (Vec<Blocks>, Option<u32>) {
        let mut behind = self.owned.iter_from(first);
        let next = behind.by_ref().take(runs);
        let own = next.filter(|(_, tag)| tag.owner == owner).map(|(run, _)| run).collect();
        (own, behind.next().map(|(run, _)| run.first))
    }

    /// Takes blocks of a compute node none of whose verbs can execute any more, as they were
    /// [judged](judge). Those that somebody adopted meanwhile stay its adopter's.
    pub(crate) fn end(&mut self, owner: ComputeNode, judged: &[(Blocks, Remains)]) {
        for (run, remains) in judged {
            for (piece, _) in self.owned.within(*run).into_iter().filter(|(_, tag)| tag.owner == owner) {
                self.owned.remove(piece);
                match remains {
                    Remains::Unwritten => self.set_free(piece),
                    Remains::Written => self.orphans.insert(piece, owner),
                }
            }
        }
    }

    /// How the blocks, each of so many bytes, are used.
    pub(crate) fn stats(&self, block_bytes: u64) -> SpaceStats {
        SpaceStats {
            capacity: u64::from(self.capacity),
            block_bytes,
            used: u64::from(self.next) - self.free.blocks(),
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

/// Takes over what a compute node had: a table's worth of blocks, perhaps. `lock` locks their space, and all
/// others' calls wait for that. So it is let go behind each few runs, and while blocks are looked at.
pub(crate) fn end_in_steps<Space: DerefMut<Target = BlockSpace>>(
    lock: impl Fn() -> Space,
    owner: ComputeNode,
    margin: Option<u32>,
    is_unwritten: impl Fn(u32) -> bool,
) {
    let mut next = Some(0);
    while let Some(first) = next {
        let runs;
        (runs, next) = lock().owned_from(owner, first, RUNS_A_STEP);
        let judged = judge(&runs, margin, &is_unwritten);
        for judged in judged.chunks(RUNS_A_STEP) {
            lock().end(owner, judged);
        }
    }
}

/// What a compute node that has ended leaves in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Remains {
    /// Nothing: they are free.
    Unwritten,
    /// Something may lead to them: they are orphans.
    Written,
}

/// Looks at the blocks of a compute node that has ended, each of them: nobody waits for it meanwhile. Where a
/// written piece may have blocks without a word, all up to `margin` blocks behind a run's last written one
/// count as written.
pub(crate) fn judge(
    runs: &[Blocks],
    margin: Option<u32>,
    is_unwritten: impl Fn(u32) -> bool,
) -> Vec<(Blocks, Remains)> {
    let mut judged: Vec<(Blocks, Remains)> = Vec::new();
    for run in runs {
        let behind = run.first + run.count;
        let last = (run.first..behind).rev().find(|block| !is_unwritten(*block));
        let kept = last.zip(margin).map_or(run.first, |(last, margin)| behind.min(last + 1 + margin));
        for first in run.first..behind {
            let is_free = first >= kept && is_unwritten(first);
            let remains = if is_free { Remains::Unwritten } else { Remains::Written };
            match judged.last_mut() {
                Some((before, same)) if *same == remains && before.first + before.count == first => {
                    before.count += 1;
                }
                _ => judged.push((Blocks { first, count: 1 }, remains)),
            }
        }
    }
    judged
}

#[cfg(test)]
mod tests {
    use std::cell::{RefCell, RefMut};
    use std::ops::Deref;

    use super::super::runs::steps;
    use super::*;

    /// A hold of the lock that takes no more steps than it may.
    struct Hold<'s>(RefMut<'s, BlockSpace>);

    impl<'s> Hold<'s> {
        /// Several a run that a call gives or takes: what it takes to find, to take away and to insert it.
        const STEPS_MAX: u64 = 10 * 1024;

        fn of(space: &'s RefCell<BlockSpace>) -> Self {
            steps::reset();
            Self(space.borrow_mut())
        }
    }

    impl Deref for Hold<'_> {
        type Target = BlockSpace;

        fn deref(&self) -> &BlockSpace {
            &self.0
        }
    }

    impl DerefMut for Hold<'_> {
        fn deref_mut(&mut self) -> &mut BlockSpace {
            &mut self.0
        }
    }

    impl Drop for Hold<'_> {
        fn drop(&mut self) {
            let steps = steps::taken();
            assert!(
                std::thread::panicking() || steps <= Self::STEPS_MAX,
                "{steps} steps under one hold of the lock"
            );
        }
    }

    #[test]
    fn nobody_waits_long_for_a_compute_node_that_ends_with_a_million_blocks() {
        const BLOCKS: u32 = 1 << 20;
        let space = RefCell::new(BlockSpace::new("leaves", 2 * BLOCKS, 0));
        let lock = || Hold::of(&space);
        // Every other block is another's, and of the rest every other one was never written.
        for _ in 0..BLOCKS / 4 {
            lock().allocate_some(A, 2).unwrap();
            lock().allocate_some(B, 2).unwrap();
        }
        end_in_steps(lock, A, None, |block| block % 2 == 1);
        end_in_steps(lock, B, None, |block| block % 2 == 0);
        let (ended, c) = (lock().ended(), ComputeNode(3));
        assert_eq!(ended, [A, B]);
        let mut seen = 0;
        for owner in ended {
            loop {
                let TakenBlocks { claim, blocks: taken } = lock().take_orphans(c, owner, 1024);
                if taken.is_empty() {
                    break;
                }
                seen += taken.iter().map(|run| run.count).sum::<u32>();
                let (linked, unlinked) = taken.split_at(taken.len() / 2);
                let holder = Holder { owner: c, claim };
                lock().pin(holder, linked).unwrap();
                lock().free(holder, unlinked).unwrap();
                assert!(lock().ended().len() <= 2);
                lock().allocate_some(c, 1).unwrap();
            }
        }
        assert_eq!(seen, BLOCKS / 2);
        assert_eq!(lock().stats(64).orphaned, 0);
        assert_eq!(lock().ended(), []);
    }

    impl BlockSpace {
        fn look_and_end(
            &mut self,
            owner: ComputeNode,
            margin: Option<u32>,
            is_unwritten: impl Fn(u32) -> bool,
        ) {
            let judged = judge(&self.owned_by(owner), margin, is_unwritten);
            self.end(owner, &judged);
        }

        /// Adopts blocks that were seen in use just now.
        fn adopt_now(&mut self, owner: ComputeNode, runs: &[Blocks]) -> Result<Holder, ServerError> {
            let Adopted { claim, is_done } = self.adopt(owner, self.newest, runs)?;
            assert!(is_done);
            Ok(Holder { owner, claim })
        }

        fn owned_by(&self, owner: ComputeNode) -> Vec<Blocks> {
            self.owned_from(owner, 0, usize::MAX).0
        }
    }

    #[test]
    fn what_is_adopted_while_an_ended_ones_blocks_are_looked_at_stays_its_adopters() {
        let mut space = BlockSpace::new("leaves", 10, 0);
        space.allocate_some(A, 8).unwrap();
        let judged = judge(&space.owned_by(A), None, |block| block >= 4);
        assert_eq!(judged, [(run(0, 4), Remains::Written), (run(4, 4), Remains::Unwritten)]);
        space.adopt_now(B, &[run(3, 2)]).unwrap();
        space.end(A, &judged);
        let stats = space.stats(64);
        assert_eq!((stats.used, stats.owned, stats.orphaned), (5, 2, 3));
        assert_eq!(space.owned_by(B), [run(3, 2)]);
    }

    #[test]
    fn what_an_owner_has_is_found_in_steps() {
        let mut space = BlockSpace::new("leaves", 100, 0);
        for _ in 0..5 {
            space.allocate_some(A, 3).unwrap();
            space.allocate_some(B, 4).unwrap();
        }
        let (mut found, mut next, mut steps) = (Vec::new(), Some(0), 0);
        while let Some(first) = next {
            let own;
            (own, next) = space.owned_from(B, first, 3);
            assert!(own.len() <= 2);
            found.extend(own);
            steps += 1;
        }
        assert_eq!((found, steps), (space.owned_by(B), 4));
        assert_eq!(space.owned_by(B).len(), 5);
    }

    const A: ComputeNode = ComputeNode(1);
    const B: ComputeNode = ComputeNode(2);
    const GIVEN_A: Holder = Holder { owner: A, claim: Claim::ALLOCATED };
    const GIVEN_B: Holder = Holder { owner: B, claim: Claim::ALLOCATED };

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
        assert_eq!(space.free(GIVEN_B, &[run(5, 2), run(1, 1)]), Ok(2), "block 1 is another's");
        assert_eq!(space.free(GIVEN_A, &[run(5, 2), run(1, 1)]), Ok(1));
        assert_eq!(space.allocate_some(A, 4), Ok(run(1, 1)));
        assert_eq!(space.allocate_some(A, 4), Ok(run(5, 2)));
    }

    #[test]
    fn exact_blocks_are_consecutive_and_spare_the_reserved() {
        let mut space = BlockSpace::new("lines", 10, 1);
        assert_eq!(space.allocate_exact(A, 3), Ok(run(1, 3)));
        assert_eq!(space.allocate_exact(A, 3), Ok(run(4, 3)));
        assert_eq!(space.free(GIVEN_A, &[run(1, 2)]), Ok(2));
        assert_eq!(space.allocate_exact(B, 3), Ok(run(7, 3)));
        assert_eq!(space.allocate_exact(B, 3).unwrap_err().code, ErrorCode::RegionFull);
        assert_eq!(space.allocate_exact(B, 2), Ok(run(1, 2)));
        assert!(space.free(GIVEN_A, &[run(0, 1)]).is_err(), "a reserved block was never given");
    }

    #[test]
    fn what_cannot_be_freed_leaves_everything_as_it_was() {
        let mut space = BlockSpace::new("leaves", 10, 0);
        space.allocate_some(A, 6).unwrap();
        assert_eq!(space.free(GIVEN_A, &[run(2, 1)]), Ok(1));
        assert_eq!(space.free(GIVEN_A, &[run(2, 1)]), Ok(0), "it is free");
        for wrong in
            [vec![run(0, 2), run(1, 1)], vec![run(5, 2)], vec![run(0, 0)], vec![run(u32::MAX, u32::MAX)]]
        {
            assert_eq!(space.free(GIVEN_A, &wrong).unwrap_err().code, ErrorCode::BadRequest, "{wrong:?}");
        }
        assert_eq!(space.stats(64).used, 5);
        assert_eq!(space.free(GIVEN_A, &[run(0, 2), run(3, 3)]), Ok(5));
        assert_eq!(space.stats(64).used, 0);
        assert_eq!(space.allocate_some(B, 10), Ok(run(0, 6)));
    }

    #[test]
    fn who_adopts_a_block_alone_frees_it_and_nobody_one_that_is_pinned() {
        let mut space = BlockSpace::new("leaves", 10, 0);
        space.allocate_some(A, 6).unwrap();
        let adopted = space.adopt_now(B, &[run(2, 2)]).unwrap();
        assert_eq!(space.free(GIVEN_A, &[run(0, 6)]), Ok(4));
        assert_eq!(space.adopt_now(A, &[run(3, 2)]).unwrap_err().code, ErrorCode::BadRequest, "4 is free");
        assert_eq!(space.free(GIVEN_B, &[run(3, 1)]), Ok(0), "not under that claim");
        assert_eq!(space.free(adopted, &[run(3, 1)]), Ok(1));
        assert_eq!(space.pin(GIVEN_A, &[run(2, 1)]), Ok(()), "it is not his");
        assert_eq!((space.stats(64).used, space.stats(64).owned), (1, 1));
        assert_eq!(space.pin(adopted, &[run(2, 1)]), Ok(()));
        assert_eq!((space.stats(64).used, space.stats(64).owned), (1, 0));
        assert_eq!(space.free(adopted, &[run(2, 1)]), Ok(0));
        space.look_and_end(B, None, |_| false);
        assert_eq!((space.ended(), space.stats(64).orphaned), (vec![], 0));
        let adopted = space.adopt_now(A, &[run(2, 1)]).unwrap();
        assert_eq!(space.free(adopted, &[run(2, 1)]), Ok(1));
    }

    #[test]
    fn nobody_adopts_what_may_have_been_free_since_it_looked() {
        let mut space = BlockSpace::new("leaves", 10, 0);
        space.allocate_some(A, 6).unwrap();
        let known = space.newest;
        assert_eq!(space.free(GIVEN_A, &[run(5, 1)]), Ok(1));
        // It may be B's by now, who has not linked it; so may any other, as far as A can tell.
        assert_eq!(space.allocate_some(B, 1), Ok(run(5, 1)));
        let refused = space.adopt(A, known, &[run(5, 1)]).unwrap();
        assert_eq!(refused, Adopted { claim: space.newest, is_done: false });
        assert_eq!(space.owned_by(B), [run(5, 1)]);
        assert!(space.adopt(A, refused.claim, &[run(5, 1)]).unwrap().is_done);
        // Others that adopt or take something free nothing.
        let known = space.newest;
        space.adopt_now(B, &[run(0, 1)]).unwrap();
        assert_eq!(space.take_orphans(B, A, 9).blocks, []);
        assert!(space.adopt(A, known, &[run(1, 1)]).unwrap().is_done);
        let to_come = Claim(space.newest.0 + 1);
        assert!(!space.adopt(A, to_come, &[run(1, 1)]).unwrap().is_done, "nobody has heard of that");
        // Blocks that an ended compute node never wrote become free, too.
        let known = space.newest;
        space.look_and_end(A, None, |_| true);
        assert!(!space.adopt(B, known, &[run(0, 1)]).unwrap().is_done);
    }

    /// Of two trainers of one compute node one looks at what an ended one left, and the other merges it away.
    #[test]
    fn what_was_adopted_since_is_neither_pinned_nor_freed_by_who_had_it_before() {
        let mut space = BlockSpace::new("leaves", 10, 0);
        space.allocate_some(A, 2).unwrap();
        space.look_and_end(A, None, |_| false);
        let looker = Holder { owner: B, claim: space.take_orphans(B, A, 2).claim };
        let merger = space.adopt_now(B, &[run(0, 2)]).unwrap();
        assert_eq!(space.pin(looker, &[run(0, 1)]), Ok(()));
        assert_eq!(space.free(looker, &[run(1, 1)]), Ok(0));
        assert_eq!(space.free(merger, &[run(0, 2)]), Ok(2));
        // A session of B has one of them now: who merged it away does not free it again.
        assert_eq!(space.allocate_some(B, 1), Ok(run(0, 1)));
        assert_eq!((space.free(merger, &[run(0, 2)]), space.stats(64).used), (Ok(0), 1));
    }

    #[test]
    fn a_piece_may_have_blocks_without_a_word() {
        let mut space = BlockSpace::new("lines", 100, 1);
        space.allocate_exact(A, 40).unwrap();
        space.allocate_exact(B, 10).unwrap();
        // Written are 1, 5 and 20 of the first, nothing of the second.
        let is_unwritten = |block: u32| ![1, 5, 20].contains(&block);
        space.look_and_end(A, Some(4), is_unwritten);
        space.look_and_end(B, Some(4), is_unwritten);
        assert_eq!(space.stats(64).orphaned, 24);
        assert_eq!(space.allocate_exact(A, 26), Ok(run(25, 26)));
    }

    #[test]
    fn an_ended_owner_leaves_what_it_wrote_to_be_looked_at() {
        let mut space = BlockSpace::new("leaves", 100, 0);
        space.allocate_some(A, 8).unwrap();
        space.allocate_some(B, 8).unwrap();
        assert_eq!(space.free(GIVEN_A, &[run(3, 1)]), Ok(1));
        space.look_and_end(A, None, |block| block >= 5);
        let stats = space.stats(64);
        assert_eq!((stats.used, stats.owned, stats.orphaned), (12, 8, 4));
        assert_eq!(space.ended(), [A]);
        assert_eq!(space.take_orphans(B, B, 3).blocks, []);
        assert_eq!(space.take_orphans(B, A, 3).blocks, [run(0, 3)]);
        assert_eq!(space.take_orphans(B, A, 3).blocks, [run(4, 1)]);
        assert_eq!((space.take_orphans(B, A, 3).blocks, space.ended()), (vec![], vec![]));
        // The compute node that looks at them ends, too: they are orphans again.
        space.look_and_end(B, None, |_| false);
        assert_eq!((space.stats(64).owned, space.stats(64).orphaned), (0, 12));
        // One of them is found to be of no use, by who took it.
        assert_eq!(space.free(GIVEN_A, &[run(4, 1)]), Ok(0));
        let TakenBlocks { claim, blocks } = space.take_orphans(A, B, 100);
        assert_eq!(blocks, [run(0, 3), run(4, 1), run(8, 8)]);
        let holder = Holder { owner: A, claim };
        assert_eq!((space.free(holder, &[run(4, 1)]), space.stats(64).used), (Ok(1), 11));
    }
}

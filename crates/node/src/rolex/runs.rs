//! Sets of block numbers, kept as runs.
//!
//! Invariant: runs are not empty, do not overlap, and two that touch have different tags.

use std::collections::BTreeMap;

use farsight_protocol::Blocks;

/// Runs of blocks, each with a tag.
#[derive(Clone, Debug)]
pub(crate) struct Runs<Tag> {
    by_first: BTreeMap<u32, (u32, Tag)>,
    blocks: u64,
}

impl<Tag> Default for Runs<Tag> {
    fn default() -> Self {
        Self { by_first: BTreeMap::new(), blocks: 0 }
    }
}

/// How many runs a thread has looked at.
#[cfg(test)]
pub(super) mod steps {
    use std::cell::Cell;

    thread_local! {
        static TAKEN: Cell<u64> = const { Cell::new(0) };
    }

    pub(crate) fn reset() {
        TAKEN.set(0);
    }

    pub(crate) fn taken() -> u64 {
        TAKEN.get()
    }

    pub(super) fn take() {
        TAKEN.set(TAKEN.get() + 1);
    }
}

/// The block behind the last of a run.
pub(crate) fn end(run: Blocks) -> u64 {
    u64::from(run.first) + u64::from(run.count)
}

impl<Tag: Copy + PartialEq> Runs<Tag> {
    /// Blocks in all runs.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The runs with their tags, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Blocks, Tag)> {
        self.iter_from(0)
    }

    /// Those that begin at block `first` or behind it.
    pub(crate) fn iter_from(&self, first: u32) -> impl Iterator<Item = (Blocks, Tag)> {
        let runs = self.by_first.range(first..);
        #[cfg(test)]
        let runs = runs.inspect(|_| steps::take());
        runs.map(|(first, (count, tag))| (Blocks { first: *first, count: *count }, *tag))
    }

    /// The first run.
    pub(crate) fn first(&self) -> Option<Blocks> {
        self.iter().next().map(|(run, _)| run)
    }

    /// A block that is in `run` and in these runs.
    pub(crate) fn overlap(&self, run: Blocks) -> Option<u32> {
        #[cfg(test)]
        steps::take();
        let before = self.by_first.range(..=run.first).next_back();
        if before.is_some_and(|(first, (count, _))| {
            end(Blocks { first: *first, count: *count }) > run.first.into()
        }) {
            return Some(run.first);
        }
        let (first, _) = self.by_first.range(run.first..).next()?;
        (u64::from(*first) < end(run)).then_some(*first)
    }

    /// What of `run` is in these runs, in pieces of one tag, ascending.
    pub(crate) fn within(&self, run: Blocks) -> Vec<(Blocks, Tag)> {
        let before = self.by_first.range(..run.first).next_back();
        let behind = self.by_first.range(run.first..).take_while(|(first, _)| u64::from(**first) < end(run));
        let clip = |(first, (count, tag)): (&u32, &(u32, Tag))| {
            #[cfg(test)]
            steps::take();
            let from = (*first).max(run.first);
            let to = end(Blocks { first: *first, count: *count }).min(end(run));
            let count = to.saturating_sub(from.into()) as u32;
            (count > 0).then_some((Blocks { first: from, count }, *tag))
        };
        before.into_iter().chain(behind).filter_map(clip).collect()
    }

    /// Adds a run that overlaps none.
    pub(crate) fn insert(&mut self, mut run: Blocks, tag: Tag) {
        debug_assert!(run.count > 0 && self.overlap(run).is_none(), "{run:?}");
        #[cfg(test)]
        steps::take();
        self.blocks += u64::from(run.count);
        if let Some((first, (count, other))) = self.by_first.range(..run.first).next_back()
            && *other == tag
            && first + count == run.first
        {
            run = Blocks { first: *first, count: count + run.count };
        }
        if let Ok(behind) = u32::try_from(end(run))
            && let Some((count, _)) = self.by_first.get(&behind).filter(|(_, other)| *other == tag)
        {
            run.count += count;
            self.by_first.remove(&behind);
        }
        self.by_first.insert(run.first, (run.count, tag));
    }

    /// Takes away whatever of `run` is in these runs.
    pub(crate) fn remove(&mut self, run: Blocks) {
        while let Some(block) = self.overlap(run) {
            let (first, (count, tag)) =
                self.by_first.range(..=block).next_back().expect("an overlap is in a run");
            let (first, found_end, tag) = (*first, end(Blocks { first: *first, count: *count }), *tag);
            let (cut_first, cut_end) = (first.max(run.first), found_end.min(end(run)));
            self.by_first.remove(&first);
            self.blocks -= cut_end - u64::from(cut_first);
            if first < cut_first {
                self.by_first.insert(first, (cut_first - first, tag));
            }
            if cut_end < found_end {
                // Both lie below a run's end, whose blocks have numbers of 32 bits.
                self.by_first.insert(cut_end as u32, ((found_end - cut_end) as u32, tag));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use farsight_base::prng::SplitMix64;

    use super::*;

    #[test]
    fn runs_behave_as_a_map_of_blocks_does() {
        const BLOCKS: u64 = 96;
        let mut random = SplitMix64::new(5);
        let mut below = |bound: u64| random.next_u64() % bound;
        for _ in 0..200 {
            let mut runs = Runs::default();
            let mut twin: BTreeMap<u32, u8> = BTreeMap::new();
            for _ in 0..60 {
                let first = below(BLOCKS) as u32;
                let run = Blocks { first, count: 1 + below(12) as u32 };
                let numbers = run.first..run.first + run.count;
                let overlap = numbers.clone().find(|number| twin.contains_key(number));
                assert_eq!(runs.overlap(run), overlap, "{run:?} in {runs:?}");
                let within = runs.within(run).into_iter().flat_map(|(piece, tag)| {
                    (piece.first..piece.first + piece.count).map(move |number| (number, tag))
                });
                let expected = twin.range(run.first..run.first + run.count);
                assert!(within.eq(expected.map(|(number, tag)| (*number, *tag))), "{run:?} of {runs:?}");
                if overlap.is_none() {
                    let tag = below(2) as u8;
                    runs.insert(run, tag);
                    twin.extend(numbers.map(|number| (number, tag)));
                } else {
                    runs.remove(run);
                    twin.retain(|number, _| !numbers.contains(number));
                }
                let all = runs.iter().flat_map(|(run, tag)| {
                    (run.first..run.first + run.count).map(move |number| (number, tag))
                });
                assert!(all.eq(twin.iter().map(|(number, tag)| (*number, *tag))), "{runs:?}");
                assert_eq!(runs.blocks(), twin.len() as u64);
                let touching = runs.iter().zip(runs.iter().skip(1));
                assert!(
                    touching.into_iter().all(|((run, tag), (next, other))| {
                        end(run) < u64::from(next.first) || tag != other
                    }),
                    "{runs:?}"
                );
            }
        }
    }

    #[test]
    fn the_last_block_has_a_number() {
        let mut runs = Runs::default();
        runs.insert(Blocks { first: u32::MAX, count: 1 }, ());
        runs.insert(Blocks { first: u32::MAX - 1, count: 1 }, ());
        assert_eq!(runs.first(), Some(Blocks { first: u32::MAX - 1, count: 2 }));
        runs.remove(Blocks { first: 0, count: u32::MAX });
        assert_eq!(runs.first(), Some(Blocks { first: u32::MAX, count: 1 }));
    }
}

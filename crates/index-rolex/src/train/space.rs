//! Lines of the meta region that belong to one trainer.
//!
//! Invariant: lines that the memory node gave are in the free list, or in use by this trainer's own pieces,
//! published or not, for as long as it lives. So no lines are ever in two free lists.

use std::ops::Range;

use farsight_fabric::QueuePair;
use farsight_fabric::lane::PoolSlot;

/// Where a trainer gets lines of the meta region from: the memory node that holds it.
pub trait LineSource {
    /// What can go wrong.
    type Error;

    /// At least `lines` consecutive lines that nobody else has, `None` if there are none; may call a memory
    /// node by `slot`.
    fn more<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        lines: u32,
    ) -> impl Future<Output = Result<Option<Range<u32>>, Self::Error>>;
}

/// Pieces are multiples of so many lines, so that one that is free fits others.
const GRAIN_LINES: u32 = 4;

/// Free lines of the meta region.
#[derive(Debug, Default)]
pub(super) struct FreeLines {
    /// Ascending, not adjacent.
    ranges: Vec<Range<u32>>,
}

/// Lines that a piece of so many takes up.
pub(super) fn rounded(lines: usize) -> u32 {
    (lines as u32).next_multiple_of(GRAIN_LINES)
}

impl FreeLines {
    /// The first line of `lines` consecutive ones, which are free no more.
    pub(super) fn take(&mut self, lines: usize) -> Option<u32> {
        let wanted = rounded(lines);
        let index = self.ranges.iter().position(|range| range.end - range.start >= wanted)?;
        let range = &mut self.ranges[index];
        let first = range.start;
        range.start += wanted;
        if range.start == range.end {
            self.ranges.remove(index);
        }
        Some(first)
    }

    /// Takes lines as [`FreeLines::take`] does, and more from `source` if there are not enough; `None` if it
    /// has none.
    pub(super) async fn take_or_ask<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        lines: usize,
        source: &S,
    ) -> Result<Option<u32>, S::Error> {
        loop {
            if let Some(first) = self.take(lines) {
                return Ok(Some(first));
            }
            let Some(more) = source.more(slot, rounded(lines)).await? else { return Ok(None) };
            self.add(more);
        }
    }

    /// Gives back what [`FreeLines::take`] took, or what a trainer that has ended had taken.
    pub(super) fn give(&mut self, first: u32, lines: usize) {
        self.add(first..first + rounded(lines));
    }

    fn add(&mut self, range: Range<u32>) {
        let at = self.ranges.partition_point(|other| other.start < range.start);
        self.ranges.insert(at, range);
        if self.ranges.get(at + 1).is_some_and(|next| self.ranges[at].end == next.start) {
            self.ranges[at].end = self.ranges.remove(at + 1).end;
        }
        if at > 0 && self.ranges[at - 1].end == self.ranges[at].start {
            self.ranges[at - 1].end = self.ranges.remove(at).end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farsight_base::prng::SplitMix64;

    #[test]
    fn lines_are_given_once_and_come_back_whole() {
        let mut random = SplitMix64::new(9);
        let mut free = FreeLines::default();
        free.add(8..1_008);
        let mut taken: Vec<(u32, usize)> = Vec::new();
        for _ in 0..20_000 {
            if random.below(2) == 0 {
                let lines = 1 + random.below(40) as usize;
                if let Some(first) = free.take(lines) {
                    let range = first..first + rounded(lines);
                    assert!(range.start >= 8 && range.end <= 1_008, "{range:?}");
                    for (other, lines) in &taken {
                        let other = *other..other + rounded(*lines);
                        assert!(range.end <= other.start || other.end <= range.start, "{range:?} {other:?}");
                    }
                    taken.push((first, lines));
                }
            } else if !taken.is_empty() {
                let (first, lines) = taken.swap_remove(random.below(taken.len() as u64) as usize);
                free.give(first, lines);
            }
        }
        for (first, lines) in taken {
            free.give(first, lines);
        }
        assert_eq!((free.ranges.len(), free.ranges[0].clone()), (1, 8..1_008));
    }
}

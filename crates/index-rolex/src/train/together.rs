//! Groups that have shrunk are put together with their neighbours. So a table that loses its leaves loses
//! groups, too: also one that is filled at one end and emptied at the other.
//!
//! Invariant: when nothing is left to do, all groups that could be saved by putting neighbours together are
//! fewer than a directory is worth. It ends, because each such directory has fewer groups than the one
//! before.
//!
//! Protocol: images are as long as their groups have leaves. So the slots alone say which neighbours have
//! together no more leaves than one group shall have. Their leaves are collected as one group's are, from the
//! union of what their images name. The splits counted in all of them before that are the new group's. Then a
//! directory is published as if a group had grown. Leaves at which the old groups began are ordinary ones
//! from then on. Those that are empty are merged when the new group is trained.

use std::ops::Range;

use farsight_fabric::QueuePair;
use farsight_fabric::lane::PoolSlot;
use farsight_layout::learned::DirectorySlot;

use super::directory::{Replacement, splits_of};
use super::{GroupSizes, LineSource, TrainError, Trained, Trainer, leaves_of};
use crate::LeafPlace;
use crate::cache::LearnedError;
use crate::cache::fetch::read_group;

/// Putting groups together is worth a directory if it saves this share of all groups.
const SAVED_SHARE: usize = 8;
/// Leaves that are collected for one directory, so that a step ends in time; more, if fewer are not worth it.
const LEAVES_AT_ONCE: usize = 64 * GroupSizes::USUAL.leaves;

impl GroupSizes {
    /// Groups that are to be saved for a new directory in place of one of so many.
    fn worth(&self, groups: usize) -> usize {
        self.saved_min.max(groups / SAVED_SHARE)
    }

    /// Runs of groups that are to be put together, each; none if they are not worth a directory.
    fn small(&self, slots: &[DirectorySlot]) -> Vec<Range<usize>> {
        let worth = self.worth(slots.len());
        let (mut small, mut saved, mut collected, mut begin) = (Vec::new(), 0, 0, 0);
        while begin < slots.len() && (saved < worth || collected < LEAVES_AT_ONCE) {
            let (mut end, mut leaves) = (begin, 0);
            while let Some(slot) = slots.get(end)
                && (end == begin || leaves + leaves_of(slot.pointer) <= self.leaves)
            {
                leaves += leaves_of(slot.pointer);
                end += 1;
            }
            if end - begin > 1 {
                saved += end - begin - 1;
                collected += leaves;
                small.push(begin..end);
            }
            begin = end;
        }
        if saved < worth {
            small.clear();
        }
        small
    }
}

impl Trainer {
    /// Makes a directory of fewer groups, if that is worth it. If there are no lines for it, that is tried
    /// again some steps later.
    pub(super) async fn make_smaller<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        slots: &[DirectorySlot],
    ) -> Result<Trained, TrainError<S::Error>> {
        if self.current.as_mut().is_some_and(|current| current.together.passes()) {
            return Ok(Trained::FULL);
        }
        let made = match self.put_together(slot, source, slots).await {
            Ok(together) if together.is_empty() => return Ok(Trained::default()),
            Ok(together) => self.replace_directory(slot, source, together).await,
            Err(error) => Err(error),
        };
        let made = TrainError::unless_full(made)?;
        if let Some(current) = self.current.as_mut().filter(|_| made.is_none()) {
            current.together.note_full();
        }
        Ok(made.unwrap_or(Trained::FULL))
    }

    /// Writes the images of groups that take the place of several small ones; none if they are not worth it.
    async fn put_together<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        slots: &[DirectorySlot],
    ) -> Result<Vec<Replacement>, TrainError<S::Error>> {
        let (mut replacements, mut saved) = (Vec::new(), 0);
        for groups in self.sizes.small(slots) {
            // An image of which another trainer has just put a newer one in the place is left for later.
            let Some(known) = self.leaves_named(slot, groups.clone(), slots).await? else { continue };
            let collected = self.collect_groups(slot, groups.clone(), &known).await?;
            let Some((leaves, rest)) = collected else { return Ok(Vec::new()) };
            let splits = splits_of(&slots[groups.clone()]);
            let pieces = self.cut(slot, source, &leaves, rest, splits).await?;
            if pieces.len() < groups.len() {
                saved += groups.len() - pieces.len();
                replacements.push(Replacement { groups, pieces });
            }
        }
        if saved < self.sizes.worth(slots.len()) {
            replacements.clear();
        }
        Ok(replacements)
    }

    /// The leaves that the images of these groups name; nothing if one of them is none.
    pub(super) async fn leaves_named<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        groups: Range<usize>,
        slots: &[DirectorySlot],
    ) -> Result<Option<Vec<LeafPlace>>, LearnedError> {
        let Some(current) = &self.current else { return Ok(None) };
        let mut known = Vec::new();
        for group in groups {
            let (pointer, boundary) = (slots[group].pointer.thawed(), current.boundaries[group]);
            match read_group(slot, &self.table, self.meta, pointer, boundary).await {
                Ok(image) => known.extend(image.places(&self.table)),
                Err(LearnedError::Stale(_)) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(known))
    }
}

#[cfg(test)]
mod tests {
    use farsight_base::prng::SplitMix64;
    use farsight_layout::learned::GroupPointer;

    use super::*;

    fn slots(lines: &[u32]) -> Vec<DirectorySlot> {
        let slot = |lines: &u32| DirectorySlot { pointer: GroupPointer::new(8, *lines, 1), splits: 3 };
        lines.iter().map(slot).collect()
    }

    #[test]
    fn neighbours_that_fit_are_put_together_if_that_is_worth_it() {
        // Of 65 lines: what a cut leaves; of 33: half of that, of which two are one leaf too many.
        assert!(GroupSizes::USUAL.small(&slots(&[65; 100])).is_empty());
        assert!(GroupSizes::USUAL.small(&slots(&[33; 100])).is_empty());
        assert!(GroupSizes::USUAL.small(&slots(&[1; 8])).is_empty(), "seven groups saved");
        let small = GroupSizes::USUAL.small(&slots(&[1; 9]));
        assert_eq!((small.len(), small.first()), (1, Some(&(0..9))));
        assert_eq!(GroupSizes::USUAL.small(&slots(&[1; 1_000]))[..2], [0..256, 256..512]);
        let lines: Vec<u32> = [65, 20, 20, 65].repeat(8);
        let small = GroupSizes::USUAL.small(&slots(&lines));
        assert_eq!((small.len(), small[0].clone(), small[7].clone()), (8, 1..3, 29..31));
        assert!(GroupSizes::USUAL.small(&slots(&[65, 20, 20, 65].repeat(7))).is_empty());
    }

    #[test]
    fn it_ends_with_about_twice_as_many_groups_as_the_leaves_need() {
        let mut random = SplitMix64::new(3);
        for _ in 0..200 {
            let count = 1 + random.below(2_000) as usize;
            let mut lines: Vec<u32> = (0..count).map(|_| 1 + random.below(65) as u32 / 4).collect();
            for _ in 0..1_000 {
                let small = GroupSizes::USUAL.small(&slots(&lines));
                if small.is_empty() {
                    break;
                }
                for groups in small.into_iter().rev() {
                    let leaves: u32 = lines[groups.clone()].iter().map(|lines| lines * 8 - 6).sum();
                    lines.splice(groups, [(leaves + 6).div_ceil(8)]);
                }
            }
            let leaves: u32 = lines.iter().map(|lines| lines * 8 - 6).sum();
            let needed = 2 * leaves as usize / GroupSizes::USUAL.leaves + 1;
            let most = (needed + 8).max(needed * 8 / 7 + 1);
            assert!(lines.len() <= most, "{} groups of {leaves} leaves", lines.len());
        }
    }
}

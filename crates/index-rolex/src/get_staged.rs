//! GETs in a staged batch: each step is a loop over the keys, with one doorbell a memory node between them.
//!
//! Invariant: what this answers the lane's GET ([`super::get`]) would, by the same view of the same lines.
//! Keys with several candidates, and whatever does not come out at the first try, are left to it. It goes on
//! from what was seen here. Where a leaf is long and a network brings it, only its key part is READ at first
//! ([`super::get_in_two`]).

use farsight_base::Line;
use farsight_fabric::mapped::{part, take_part};
use farsight_fabric::{QueuePair, ReadMode};
use farsight_index::Answers;
use farsight_layout::pool::hit_in_block;
use farsight_layout::{KEY_LINES, LeafSlot, SHORT_VALUE_BYTES, read_short_value, with_value_lines};

use crate::cache::BATCH;
use crate::get::Looked;
use crate::transfer::PostedTo;
use crate::{LeafPlace, RolexError, RolexSession};

/// Lines of a leaf up to which a GET READs all of it: the one round trip is worth the bytes. Values of up to
/// 48 B have such leaves.
const WHOLE_LINES_MAX: usize = 24;

/// Where the keys of a batch are, and which of them share a READ.
pub(crate) type Posted<'p> = (&'p [Option<LeafPlace>; BATCH], &'p Shared);

/// Which keys of a batch are of one leaf, and share its READ.
pub(crate) struct Shared {
    /// For each key the next one of its leaf; 0: there is none.
    next: [usize; BATCH],
    /// True for the first of its leaf, in whose slot the READ is.
    is_first: [bool; BATCH],
}

impl Shared {
    /// True for the first key of its leaf.
    pub(crate) fn is_first(&self, index: usize) -> bool {
        self.is_first[index]
    }

    /// The first key of a leaf and the others; of a key that is none, nothing.
    pub(crate) fn keys_from(&self, index: usize) -> impl Iterator<Item = usize> {
        let first = self.is_first[index].then_some(index);
        std::iter::successors(first, |at| Some(self.next[*at]).filter(|next| *next > 0))
    }
}

impl RolexSession {
    /// Puts the values of `keys`, at most [`BATCH`], into `answers`, from answer `first` on. Puts the numbers
    /// of the keys that are left to the lane into `slow_path`, each with what its leaf turned out to be, if
    /// it was READ.
    pub(crate) fn get_staged<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        keys: &[u64],
        first: usize,
        answers: &mut Answers,
        slow_path: &mut Vec<(usize, Option<Looked>)>,
    ) -> Result<(), RolexError> {
        const { assert!(Q::SLOTS >= BATCH, "a slot a key") };
        let mut leaves = [None; BATCH];
        self.hints.predict_each(keys, &mut leaves[..keys.len()]);
        let leaf_lines = self.table().geometry().leaf().leaf_lines();
        let mut posted = PostedTo::default();
        // Keys of one leaf share its READ, unless a READ costs less than looking for them.
        let is_shared = queues.iter_mut().any(|queue| queue.mapped().is_none());
        let is_in_two = is_shared && leaf_lines > WHOLE_LINES_MAX;
        let lines = if is_in_two { KEY_LINES } else { leaf_lines };
        let mut shared = Shared { next: [0; BATCH], is_first: [true; BATCH] };
        for (index, leaf) in leaves[..keys.len()].iter().enumerate() {
            let Some(place) = leaf else { continue };
            if is_shared && let Some(before) = leaves[..index].iter().rposition(|other| other == leaf) {
                (shared.next[before], shared.is_first[index]) = (index, false);
                continue;
            }
            let from = self.table().address(*place, 0);
            queues[place.node()].post_read(index, from, lines, ReadMode::Stamped);
            posted.note(*place);
        }
        posted.ring(queues)?;
        let reads = (&leaves, &shared);
        if is_in_two {
            return self.take_in_two(queues, keys, reads, first, answers, slow_path);
        }
        with_value_lines!(self.table().geometry().leaf(), VALUE_LINES => {
            self.take_leaves::<VALUE_LINES, Q>(queues, keys, reads, first, answers, slow_path)
        })
    }

    /// Search and accept: each key in its leaf, all keys of a leaf when its READ is taken.
    fn take_leaves<const VALUE_LINES: usize, Q: QueuePair>(
        &self,
        queues: &mut [Q],
        keys: &[u64],
        (leaves, shared): Posted<'_>,
        first: usize,
        answers: &mut Answers,
        slow_path: &mut Vec<(usize, Option<Looked>)>,
    ) -> Result<(), RolexError> {
        let leaf_geometry = *self.table().geometry().leaf();
        let value_bytes = leaf_geometry.value_bytes();
        let mut block = self.block();
        let lines = &mut block[..leaf_geometry.leaf_lines()];
        let (versions, values) = answers.part_mut(first, keys.len());
        for (index, leaf) in leaves[..keys.len()].iter().enumerate() {
            let Some(place) = leaf else {
                slow_path.push((first + index, None));
                continue;
            };
            let queue = &mut queues[place.node()];
            if shared.next[index] > 0 && shared.is_first[index] {
                queue.take_read(index, lines)?;
            }
            for at in shared.keys_from(index) {
                let mut looked = None;
                let choose = |key_lines: &[Line; KEY_LINES]| {
                    let Some(hit) = hit_in_block(key_lines, keys[at]) else {
                        looked = Looked::at(*place, key_lines, keys[at]);
                        return None;
                    };
                    Some((leaf_geometry.value_place(hit.0).line, hit))
                };
                let keep = |(slot, incarnation): (LeafSlot, u32), lines: &[Line; VALUE_LINES]| {
                    if value_bytes == SHORT_VALUE_BYTES {
                        read_short_value(&lines[0], slot, incarnation, &mut values.as_chunks_mut().0[at])
                    } else {
                        let into = &mut values[at * value_bytes..][..value_bytes];
                        leaf_geometry.read_value(lines, leaf_geometry.value_place(slot), incarnation, into)
                    }
                };
                let found = match shared.next[index] {
                    0 => take_part(queue, index, lines, choose, keep)?,
                    _ => part(lines, choose, keep),
                };
                match found {
                    Some(Ok(version)) => versions[at] = version,
                    None if looked.is_none() => {}
                    _ => slow_path.push((first + at, looked)),
                }
            }
        }
        Ok(())
    }
}

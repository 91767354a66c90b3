//! GETs in a staged batch: each step is a loop over the keys, with one doorbell a memory node between them.
//!
//! Invariant: what this answers the lane's GET ([`super::get`]) would, by the same view of the same lines.
//! Keys with several candidates, and whatever does not come out at the first try, are left to it. It goes on
//! from what was seen here.

use std::iter::zip;

use farsight_base::Line;
use farsight_fabric::mapped::take_part;
use farsight_fabric::{QueuePair, ReadMode};
use farsight_index::Answers;
use farsight_layout::pool::hit_in_block;
use farsight_layout::{KEY_LINES, LeafSlot, SHORT_VALUE_BYTES, read_short_value, with_value_lines};

use crate::cache::BATCH;
use crate::get::Looked;
use crate::transfer::PostedTo;
use crate::{LeafPlace, RolexError, RolexSession};

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
        for (index, leaf) in leaves[..keys.len()].iter().enumerate() {
            let Some(place) = leaf else { continue };
            let from = self.table().address(*place, 0);
            queues[place.node()].post_read(index, from, leaf_lines, ReadMode::Stamped);
            posted.note(*place);
        }
        posted.ring(queues)?;
        with_value_lines!(self.table().geometry().leaf(), VALUE_LINES => {
            self.take_leaves::<VALUE_LINES, Q>(queues, keys, &leaves, first, answers, slow_path)
        })
    }

    /// Search and accept: each key in the leaf that was READ for it.
    fn take_leaves<const VALUE_LINES: usize, Q: QueuePair>(
        &self,
        queues: &mut [Q],
        keys: &[u64],
        leaves: &[Option<LeafPlace>; BATCH],
        first: usize,
        answers: &mut Answers,
        slow_path: &mut Vec<(usize, Option<Looked>)>,
    ) -> Result<(), RolexError> {
        let leaf_geometry = *self.table().geometry().leaf();
        let value_bytes = leaf_geometry.value_bytes();
        let mut block = self.block();
        let lines = &mut block[..leaf_geometry.leaf_lines()];
        let (versions, values) = answers.part_mut(first, keys.len());
        for (index, (key, leaf)) in zip(keys, leaves).enumerate() {
            let Some(place) = leaf else {
                slow_path.push((first + index, None));
                continue;
            };
            let mut looked = None;
            let choose = |key_lines: &[Line; KEY_LINES]| {
                let Some(hit) = hit_in_block(key_lines, *key) else {
                    looked = Looked::at(*place, key_lines, *key);
                    return None;
                };
                Some((leaf_geometry.value_place(hit.0).line, hit))
            };
            let keep = |(slot, incarnation): (LeafSlot, u32), lines: &[Line; VALUE_LINES]| {
                if value_bytes == SHORT_VALUE_BYTES {
                    read_short_value(&lines[0], slot, incarnation, &mut values.as_chunks_mut().0[index])
                } else {
                    let into = &mut values[index * value_bytes..][..value_bytes];
                    leaf_geometry.read_value(lines, leaf_geometry.value_place(slot), incarnation, into)
                }
            };
            match take_part(&mut queues[place.node()], index, lines, choose, keep)? {
                Some(Ok(version)) => versions[index] = version,
                None if looked.is_none() => {}
                _ => slow_path.push((first + index, looked)),
            }
        }
        Ok(())
    }
}

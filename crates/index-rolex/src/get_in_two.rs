//! GETs of long values in a staged batch over a network: the key part of each leaf, then the values alone.
//!
//! Invariant: as of [`super::get_staged`]. A value is believed if its lines are even and of the incarnation
//! under which its key was found. No slot is used twice within one, so the value is that key's, and stood
//! there at some instant between both READs (docs/protocol/rolex.md).
//!
//! A leaf of 16 values of 100 B has 35 lines. Of these a GET needs the three of the key part and two of its
//! value. So a batch takes a round trip more, and a link carries a seventh.

use farsight_base::{Line, WORDS_PER_LINE};
use farsight_fabric::{QueuePair, ReadMode};
use farsight_index::Answers;
use farsight_layout::pool::hit_in_block;
use farsight_layout::{KEY_LINES, LeafSlot};

use crate::cache::BATCH;
use crate::get::Looked;
use crate::get_staged::Posted;
use crate::transfer::PostedTo;
use crate::{LeafPlace, RolexError, RolexSession};

/// A key that was found: its leaf, and its value's slot and incarnation.
type Found = (LeafPlace, (LeafSlot, u32));

impl RolexSession {
    /// Search, then READ and accept the values of the keys that are there. Key parts are posted.
    pub(crate) fn take_in_two<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        keys: &[u64],
        posted: Posted<'_>,
        first: usize,
        answers: &mut Answers,
        slow_path: &mut Vec<(usize, Option<Looked>)>,
    ) -> Result<(), RolexError> {
        let mut found = [None; BATCH];
        take_key_parts(queues, keys, posted, &mut found, |index, looked| {
            slow_path.push((first + index, looked));
        })?;
        let leaf = *self.table().geometry().leaf();
        let mut values_posted = PostedTo::default();
        for (index, found) in found.iter().enumerate() {
            let Some((place, (slot, _))) = found else { continue };
            let from = self.table().address(*place, leaf.value_place(*slot).line * WORDS_PER_LINE);
            queues[place.node()].post_read(index, from, leaf.lines_per_value(), ReadMode::Stamped);
            values_posted.note(*place);
        }
        values_posted.ring(queues)?;
        let (versions, values) = answers.part_mut(first, keys.len());
        let mut block = self.block();
        let lines = &mut block[..leaf.lines_per_value()];
        for (index, found) in found.iter().enumerate() {
            let Some((place, (slot, incarnation))) = found else { continue };
            queues[place.node()].take_read(index, lines)?;
            let into = &mut values[index * leaf.value_bytes()..][..leaf.value_bytes()];
            match leaf.read_value(lines, leaf.value_place(*slot), *incarnation, into) {
                Ok(version) => versions[index] = version,
                Err(_) => slow_path.push((first + index, None)),
            }
        }
        Ok(())
    }
}

/// Looks for each key in its leaf's key part. What is neither found nor absent is `left`.
fn take_key_parts<Q: QueuePair>(
    queues: &mut [Q],
    keys: &[u64],
    (leaves, shared): Posted<'_>,
    found: &mut [Option<Found>; BATCH],
    mut left: impl FnMut(usize, Option<Looked>),
) -> Result<(), RolexError> {
    let mut key_lines = [Line::ZERO; KEY_LINES];
    for (index, leaf) in leaves[..keys.len()].iter().enumerate() {
        let Some(place) = leaf else {
            left(index, None);
            continue;
        };
        if shared.is_first(index) {
            queues[place.node()].take_read(index, &mut key_lines)?;
        }
        for at in shared.keys_from(index) {
            if let Some(hit) = hit_in_block(&key_lines, keys[at]) {
                found[at] = Some((*place, hit));
            } else if let Some(looked) = Looked::at(*place, &key_lines, keys[at]) {
                left(at, Some(looked));
            }
        }
    }
    Ok(())
}

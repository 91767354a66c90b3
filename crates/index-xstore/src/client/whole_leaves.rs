//! GETs of many keys where a round trip costs more than the bytes that it brings: each key's leaf is fetched
//! *whole*, so that key and value come in one round trip instead of two.
//!
//! Lines of one READ may be of different instants in any order; why what they prove is still linearizable is
//! in docs/protocol/xstore.md, where a single GET does the same. What does not come out clean goes to the
//! lane.
//!
//! Protocol: keys are taken as many at a time as the queue pair has slots for; a doorbell goes out for each
//! piece of them, so that the server works on the first while the others are predicted, and on the others while
//! the leaves of the first are searched.

use farsight_base::LeafNumber;
use farsight_fabric::{CostClass, QueuePair, ReadMode};
use farsight_index::Answers;
use farsight_layout::{KeyLines, KeySearch};

use super::lookup::Start;
use super::multi_get::{Locate as _, Predicted};
use super::refresh::request_slot;
use super::{Access, BATCH, XClient, XStoreError};

/// Lines of the longest leaf that is fetched whole: those of values of up to 48 B. Of a longer one the second
/// round trip is cheaper than the lines that nobody asked for.
const WHOLE_LEAF_LINES_MAX: usize = 19;
/// Keys of one doorbell.
const PIECE: usize = 256;

const _: () = assert!(PIECE.is_multiple_of(BATCH), "keys are predicted a batch at a time");

/// Keys that share a round trip: whole pieces, and none in the slot of a request for a part of the model.
pub(super) const fn keys_together<Q: QueuePair>() -> usize {
    let slots = request_slot::<Q>();
    if slots < PIECE { slots } else { slots / PIECE * PIECE }
}

impl XClient {
    /// True if leaves are better fetched whole over this fabric.
    #[inline(always)]
    pub(super) fn prefers_whole_leaves<Q: QueuePair>(&self) -> bool {
        matches!(Q::GUARANTEES.cost_class, CostClass::Socket)
            && self.access == Access::OneSided
            && self.cache.geometry().leaf_lines() <= WHOLE_LEAF_LINES_MAX
    }

    /// The values of `keys` into `answers`, which has been made as long.
    ///
    /// # Errors
    /// [`XStoreError`].
    pub(super) fn get_by_whole_leaves<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
        answers: &mut Answers,
    ) -> Result<(), XStoreError> {
        for (chunk, keys) in keys.chunks(keys_together::<Q>()).enumerate() {
            self.begin_whole_leaves(queue, keys)?;
            self.end_whole_leaves(queue, keys, answers, chunk * keys_together::<Q>())?;
        }
        Ok(())
    }

    /// Posts and rings the READs of `keys`, at most [`keys_together`].
    pub(super) fn begin_whole_leaves<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
    ) -> Result<(), XStoreError> {
        self.pin();
        let mut irregular = std::mem::take(&mut self.irregular);
        irregular.clear();
        let done = self.post_whole_leaves(queue, keys, &mut irregular);
        self.irregular = irregular;
        done
    }

    /// Waits for the READs of `keys`, and answers them from index `first` on.
    pub(super) fn end_whole_leaves<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
        answers: &mut Answers,
        first: usize,
    ) -> Result<(), XStoreError> {
        let mut irregular = std::mem::take(&mut self.irregular);
        let mut done = self.take_whole_leaves(queue, keys, answers, first, &mut irregular);
        self.counters.irregular += irregular.len() as u64;
        if done.is_ok() && !irregular.is_empty() {
            done = self.lookup_each(queue, keys, &irregular, answers, first);
        }
        self.irregular = irregular;
        done
    }

    /// Predict and resolve, a loop a step over each batch, and post the READ of each leaf.
    fn post_whole_leaves<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
        irregular: &mut Vec<(usize, Start)>,
    ) -> Result<(), XStoreError> {
        let (region, geometry) = (self.cache.region(), *self.cache.geometry());
        self.leaves.clear();
        for (batch, of_batch) in keys.chunks(BATCH).enumerate() {
            let predicted = self.model.as_deref().map(|model| Predicted::new(model, of_batch));
            for (index, key) in of_batch.iter().enumerate() {
                let leaf =
                    predicted.as_ref().map_or(LeafNumber::NONE, |predicted| predicted.leaf(index, *key));
                let slot = self.leaves.len();
                self.leaves.push(leaf);
                if leaf == LeafNumber::NONE {
                    irregular.push((slot, Start::Unrouted));
                } else {
                    let from = geometry.address(region, leaf, 0);
                    queue.post_read(slot, from, geometry.leaf_lines(), ReadMode::Stamped);
                }
            }
            let done = batch * BATCH + of_batch.len();
            if done.is_multiple_of(PIECE) || done == keys.len() {
                queue.doorbell()?;
            }
        }
        Ok(())
    }

    /// Search each leaf, and accept the value found in it.
    fn take_whole_leaves<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
        answers: &mut Answers,
        first: usize,
        irregular: &mut Vec<(usize, Start)>,
    ) -> Result<(), XStoreError> {
        let geometry = *self.cache.geometry();
        let lines = &mut *self.scratch.leaf_lines;
        for (index, (key, leaf)) in keys.iter().zip(&self.leaves).enumerate() {
            if *leaf == LeafNumber::NONE {
                continue;
            }
            queue.settle_slot(index)?;
            let lines = queue.view_read(index, lines)?;
            let key_lines = lines.first_chunk().expect("a leaf has a key part");
            match KeyLines(key_lines).search(*key) {
                KeySearch::Hit { slot, incarnation } => {
                    let place = geometry.value_place(slot);
                    let value_lines = &lines[place.line..][..geometry.lines_per_value()];
                    let into = answers.value_mut(first + index);
                    match geometry.read_value(value_lines, place, incarnation, into) {
                        Ok(version) => answers.set_version(first + index, version),
                        Err(_) => irregular.push((index, Start::Again(*leaf))),
                    }
                }
                KeySearch::Absent => {}
                other => irregular.push((index, Start::after(*leaf, other))),
            }
        }
        Ok(())
    }
}

//! GETs of many keys where a round trip costs more than the bytes that it brings. Each key's leaf is READ
//! *whole*, so that key and value come in one round trip instead of two. The READ is *filtered*: where the
//! server's processor executes it, only the key's line and its value's come back. Of a key that is not there
//! the key part comes back.
//!
//! Lines of one READ may be of different instants in any order. Why what they prove is still linearizable is
//! in docs/protocol/xstore.md, where a single GET does the same. The lines that come back prove what they say
//! by themselves, so a filter is believed nothing. What does not come out clean goes to the lane.
//!
//! Protocol: the client takes as many keys at a time as the queue pair has slots for. It rings a doorbell for
//! each piece of them. So the server works on the first while the client predicts the others, and on the
//! others while the client searches the leaves of the first.

use farsight_base::LeafNumber;
use farsight_fabric::{CostClass, QueuePair};
use farsight_index::Answers;

use super::leaf::Looked;
use super::lookup::Start;
use super::multi_get::{Locate as _, Predicted};
use super::refresh::request_slot;
use super::{Access, BATCH, XClient, XStoreError};

/// Lines of the longest leaf that is fetched whole: those of values of up to 48 B. Of a longer one the second
/// round trip is cheaper than the lines that nobody wants.
const WHOLE_LEAF_LINES_MAX: usize = 19;
/// Keys of one doorbell.
const PIECE: usize = 256;

const _: () = assert!(PIECE.is_multiple_of(BATCH), "keys are predicted a batch at a time");

/// Keys, or leaves of scans, that share a round trip: whole pieces, and none in the slot of a request for a
/// part of the model.
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
            && self.cache.reader().leaf_lines() <= WHOLE_LEAF_LINES_MAX
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
        let mut slow_path = std::mem::take(&mut self.slow_path);
        slow_path.clear();
        let done = self.post_whole_leaves(queue, keys, &mut slow_path);
        self.slow_path = slow_path;
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
        let mut slow_path = std::mem::take(&mut self.slow_path);
        let mut done = self.take_whole_leaves(queue, keys, answers, first, &mut slow_path);
        if done.is_ok() && slow_path.iter().any(|(_, start)| *start == Start::Unrouted) {
            done = self.answer_unrouted(queue, keys, answers, first, &mut slow_path);
        }
        self.counters.slow_path += slow_path.len() as u64;
        if done.is_ok() && !slow_path.is_empty() {
            done = self.lookup_each(queue, keys, &slow_path, answers, first);
        } else if done.is_ok() {
            if self.published.is_in_use() {
                done = self.end_published(queue);
            }
            if done.is_ok() && !self.refreshes.is_idle() {
                done = self.renew_model(queue, 0);
            }
        }
        self.slow_path = slow_path;
        done
    }

    /// READs the sub-models of the keys of `slow_path` that have none, and then their leaves.
    #[cold]
    fn answer_unrouted<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
        answers: &mut Answers,
        first: usize,
        slow_path: &mut Vec<(usize, Start)>,
    ) -> Result<(), XStoreError> {
        let Some(model) = self.model.clone().filter(|_| self.published.is_there()) else { return Ok(()) };
        let unrouted = slow_path.iter().filter(|(_, start)| *start == Start::Unrouted);
        self.read_sub_models(queue, &model, unrouted.map(|(index, _)| keys[*index]))?;
        self.leaves.fill(LeafNumber::NONE);
        let (region, reader) = (self.cache.region(), *self.cache.reader());
        let mut posted = 0;
        let mut left = std::mem::take(slow_path);
        for (index, start) in left.drain(..) {
            let leaf = if start == Start::Unrouted {
                self.published_leaf(&model, keys[index])
            } else {
                LeafNumber::NONE
            };
            if leaf == LeafNumber::NONE {
                slow_path.push((index, start));
                continue;
            }
            self.leaves[index] = leaf;
            let from = reader.address(region, leaf);
            queue.post_filtered_read(index, from, reader.leaf_lines(), keys[index], reader.filter());
            posted += 1;
            if posted % PIECE == 0 {
                queue.doorbell()?;
            }
        }
        queue.doorbell()?;
        self.take_whole_leaves(queue, keys, answers, first, slow_path)
    }

    /// Predict and resolve, a loop a step over each batch, and post the READ of each leaf.
    fn post_whole_leaves<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
        slow_path: &mut Vec<(usize, Start)>,
    ) -> Result<(), XStoreError> {
        let (region, reader) = (self.cache.region(), *self.cache.reader());
        let filter = reader.filter();
        self.leaves.clear();
        for (batch, of_batch) in keys.chunks(BATCH).enumerate() {
            let refreshes = &mut self.refreshes;
            let predicted = self.model.as_deref().map(|model| Predicted::new(model, of_batch, refreshes));
            for (index, key) in of_batch.iter().enumerate() {
                let leaf =
                    predicted.as_ref().map_or(LeafNumber::NONE, |predicted| predicted.leaf(index, *key));
                let slot = self.leaves.len();
                self.leaves.push(leaf);
                if leaf == LeafNumber::NONE {
                    slow_path.push((slot, Start::Unrouted));
                } else {
                    let from = reader.address(region, leaf);
                    queue.post_filtered_read(slot, from, reader.leaf_lines(), *key, filter);
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
        slow_path: &mut Vec<(usize, Start)>,
    ) -> Result<(), XStoreError> {
        let reader = *self.cache.reader();
        let lines = &mut *self.scratch.leaf_lines;
        for (index, (key, leaf)) in keys.iter().zip(&self.leaves).enumerate() {
            if *leaf == LeafNumber::NONE {
                continue;
            }
            queue.drain_slot(index)?;
            let into = answers.value_mut(first + index);
            match reader.search_filtered(&queue.view_filtered(index, lines)?, *key, into) {
                Looked::Value(version) => answers.set_version(first + index, version),
                Looked::Absent => {}
                Looked::Again => slow_path.push((index, Start::Again(*leaf))),
                Looked::Elsewhere(found) => slow_path.push((index, Start::after(*leaf, found))),
            }
        }
        Ok(())
    }
}

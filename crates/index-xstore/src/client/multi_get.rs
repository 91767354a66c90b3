//! GETs in staged batches: the hot path.
//!
//! A step is a loop over the batch; between two steps the batch's READs go out in one doorbell. While one
//! key's line is on its way the others are worked on, so the loop runs at the rate of lines, not of their
//! latency. Keys whose hints tie get a second round of the same steps, at the tie's other candidate. What
//! that does not answer either leaves for the lane.

#[cfg(planted)]
use farsight_base::sync::planted::{Bug, is_planted};
use farsight_base::{LeafNumber, Line};
use farsight_fabric::{QueuePair, ReadMode};
use farsight_index::Answers;
use farsight_layout::{Geometry, KEY_LINES, KeyLines, KeySearch, LeafSlot};
use farsight_model::KeyHint;
use farsight_protocol::{PairsReader, Request};

use super::cache::{CachedModel, Window};
use super::lookup::Start;
use super::{Access, BATCH, XClient, XStoreError};

/// Arrays of a batch, reused.
pub(super) struct Scratch {
    sub_models: [u32; BATCH],
    leaves: [LeafNumber; BATCH],
    hits: [Option<(LeafSlot, u32)>; BATCH],
    irregular: Vec<(usize, Start)>,
    value_lines: Vec<Line>,
    pub(super) leaf_lines: Vec<Line>,
}

impl Scratch {
    pub(super) fn new(geometry: &Geometry) -> Self {
        Self {
            sub_models: [0; BATCH],
            leaves: [LeafNumber::NONE; BATCH],
            hits: [None; BATCH],
            irregular: Vec::with_capacity(BATCH),
            value_lines: vec![Line::ZERO; geometry.lines_per_value()],
            leaf_lines: vec![Line::ZERO; geometry.leaf_lines()],
        }
    }
}

impl XClient {
    /// The values of `keys`, in their order.
    ///
    /// # Errors
    /// [`XStoreError`]; then `answers` means nothing.
    pub fn multi_get<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
        answers: &mut Answers,
    ) -> Result<(), XStoreError> {
        const { assert!(Q::SLOTS >= BATCH, "a batch needs a slot a key") };
        answers.reset(keys.len(), self.cache.geometry().value_bytes());
        for (batch, keys) in keys.chunks(BATCH).enumerate() {
            match self.access {
                Access::OneSided => self.get_batch(queue, keys, answers, batch * BATCH)?,
                Access::Rpc => self.get_batch_by_call(queue, keys, answers, batch * BATCH)?,
            }
        }
        self.counters.gets += keys.len() as u64;
        Ok(())
    }

    fn get_batch<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
        answers: &mut Answers,
        first: usize,
    ) -> Result<(), XStoreError> {
        self.pin();
        self.scratch.irregular.clear();
        if let Some(model) = self.model.take() {
            self.predict_and_post(&model, queue, keys);
            let mut done = self.search_and_accept(queue, keys, answers, first);
            self.counters.irregular += self.scratch.irregular.len() as u64;
            if done.is_ok() && self.post_ties(&model, queue, keys) {
                done = self.search_and_accept(queue, keys, answers, first);
            }
            self.model = Some(model);
            done?;
        } else {
            self.scratch.irregular.extend((0..keys.len()).map(|index| (index, Start::Unrouted)));
            self.counters.irregular += keys.len() as u64;
        }
        if self.scratch.irregular.is_empty() {
            return Ok(());
        }
        let irregular = std::mem::take(&mut self.scratch.irregular);
        let done = self.lookup_each(queue, keys, &irregular, answers, first);
        self.scratch.irregular = irregular;
        done
    }

    /// Predict, one loop a level of the model; resolve, and post the READ of each key part.
    #[inline(always)]
    fn predict_and_post<Q: QueuePair>(&mut self, model: &CachedModel, queue: &mut Q, keys: &[u64]) {
        let scratch = &mut *self.scratch;
        for (sub_model, key) in scratch.sub_models.iter_mut().zip(keys) {
            *sub_model = model.top().dispatch(*key);
            model.prefetch_sub_model(*sub_model);
        }
        let mut predictions = [(Window::default(), KeyHint::default()); BATCH];
        for ((prediction, index), key) in predictions.iter_mut().zip(&scratch.sub_models).zip(keys) {
            if let Some(sub_model) = model.sub_model(*index) {
                let window = model.window(&sub_model, &sub_model.model.predict(*key));
                window.prefetch();
                *prediction = (window, sub_model.model.key_hint(*key));
            }
        }
        let (region, geometry) = (self.cache.region(), *self.cache.geometry());
        let predictions = predictions[..keys.len()].iter().zip(&mut scratch.leaves).enumerate();
        for (index, ((window, hint), leaf)) in predictions {
            if window.is_empty() {
                *leaf = LeafNumber::NONE;
                scratch.irregular.push((index, Start::Unrouted));
                continue;
            }
            *leaf = window.entry(window.choose(*hint).end - 1).leaf();
            queue.post_read(index, geometry.address(region, *leaf, 0), KEY_LINES, ReadMode::Stamped);
        }
    }

    /// The batch from the doorbell of its key parts on: those of [`LeafNumber::NONE`] take no part.
    fn search_and_accept<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
        answers: &mut Answers,
        first: usize,
    ) -> Result<(), XStoreError> {
        queue.doorbell()?;
        queue.settle()?;
        self.search_and_post(queue, keys)?;
        queue.doorbell()?;
        queue.settle()?;
        self.accept(queue, keys, answers, first)
    }

    /// Takes the keys that lie left of the leaf predicted out of the irregular ones, and posts the READ of
    /// the candidate before. True if there are any.
    #[inline]
    fn post_ties<Q: QueuePair>(&mut self, model: &CachedModel, queue: &mut Q, keys: &[u64]) -> bool {
        let Scratch { leaves, irregular, .. } = &mut *self.scratch;
        if !irregular.iter().any(|(_, start)| *start == Start::Left) {
            return false;
        }
        leaves[..keys.len()].fill(LeafNumber::NONE);
        let (region, geometry) = (self.cache.region(), *self.cache.geometry());
        let before = irregular.len();
        irregular.retain(|&(index, start)| {
            let route =
                model.route(keys[index]).filter(|route| start == Start::Left && route.first < route.last);
            let Some(route) = route else { return true };
            let leaf = model.leaf(&route.sub_model, route.last - 1);
            leaves[index] = leaf;
            queue.post_read(index, geometry.address(region, leaf, 0), KEY_LINES, ReadMode::Stamped);
            false
        });
        irregular.len() < before
    }

    /// Search each key part, and post the READ of each value found.
    #[inline(always)]
    fn search_and_post<Q: QueuePair>(&mut self, queue: &mut Q, keys: &[u64]) -> Result<(), XStoreError> {
        let scratch = &mut *self.scratch;
        let (region, geometry) = (self.cache.region(), *self.cache.geometry());
        let mut lines = [Line::ZERO; KEY_LINES];
        for (index, key) in keys.iter().enumerate() {
            scratch.hits[index] = None;
            let leaf = scratch.leaves[index];
            if leaf == LeafNumber::NONE {
                continue;
            }
            queue.take_read(index, &mut lines)?;
            match KeyLines(&lines).search(*key) {
                KeySearch::Hit { slot, incarnation } => {
                    scratch.hits[index] = Some((slot, incarnation));
                    let from = geometry.address(region, leaf, geometry.value_place(slot).line);
                    queue.post_read(index, from, geometry.lines_per_value(), ReadMode::Stamped);
                }
                KeySearch::Absent => {}
                #[cfg(planted)]
                KeySearch::Right(_) if is_planted(Bug::NoSiblingStep) => {}
                other => scratch.irregular.push((index, Start::after(leaf, other))),
            }
        }
        Ok(())
    }

    /// Accept each value that is of the incarnation under which its key was found.
    #[inline(always)]
    fn accept<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
        answers: &mut Answers,
        first: usize,
    ) -> Result<(), XStoreError> {
        let scratch = &mut *self.scratch;
        let geometry = *self.cache.geometry();
        // One line, known when this is compiled, is taken in half the instructions of a number of lines.
        let (mut line, is_one_line) = ([Line::ZERO], geometry.lines_per_value() == 1);
        for index in 0..keys.len() {
            let Some((slot, incarnation)) = scratch.hits[index] else { continue };
            let place = geometry.value_place(slot);
            let into = answers.value_mut(first + index);
            let accepted = if is_one_line {
                queue.take_read(index, &mut line)?;
                geometry.read_value(&line, place, incarnation, into)
            } else {
                queue.take_read(index, &mut scratch.value_lines)?;
                geometry.read_value(&scratch.value_lines, place, incarnation, into)
            };
            match accepted {
                Ok(version) => answers.set_version(first + index, version),
                Err(_) => scratch.irregular.push((index, Start::Again(scratch.leaves[index]))),
            }
        }
        Ok(())
    }

    fn get_batch_by_call<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
        answers: &mut Answers,
        first: usize,
    ) -> Result<(), XStoreError> {
        Request::get(&mut self.request, self.cache.table().id, keys);
        let value_bytes = self.cache.geometry().value_bytes();
        let reply = super::fill::call(queue, &self.request, &mut self.reply)?;
        let mut values = PairsReader::new(reply.words()?, value_bytes);
        for index in first..first + keys.len() {
            let (version, value) = values.value()?;
            answers.value_mut(index).copy_from_slice(value);
            answers.set_version(index, version);
        }
        Ok(())
    }
}

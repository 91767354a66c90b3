//! GETs in staged batches: the hot path.
//!
//! A step is a loop over the batch; between two steps the batch's READs go out in one doorbell. While one
//! key's line is on its way the others are worked on, so the loop runs at the rate of lines, not of their
//! latency. Key part and value are a chain of READs: the fabric runs the steps around them. Keys whose hints
//! tie, or whose leaf was split since its sub-model was trained, get a second round of the same steps. It
//! goes to the tie's other candidate or the leaf's right sibling, for all of a batch together. Keys that it
//! does not answer either leave for the lane.

use std::sync::Arc;

use farsight_base::words::{SharedLine, Widest};
use farsight_base::{LeafNumber, Line};
use farsight_fabric::chained::{CHAINS_MAX, Chains, read_chained};
use farsight_fabric::{FabricError, QueuePair};
use farsight_index::Answers;
use farsight_protocol::{PairsReader, Request};

use super::cache::{BatchKeys, CachedModel, Place};
use super::leaf::{self, Hit, KEY_LINES, LeafReader, NO_HIT, Search, with_value_lines};
use super::lookup::Start;
use super::refresh::Refreshes;
use super::{Access, BATCH, XClient, XStoreError};
#[cfg(injected)]
use crate::injected;

const _: () = assert!(BATCH <= CHAINS_MAX, "a batch is READ in one chain a key");

/// Arrays of a batch, reused.
pub(super) struct Scratch {
    leaves: [LeafNumber; BATCH],
    hits: [Hit; BATCH],
    pub(super) slow_path: Vec<(usize, Start)>,
    pub(super) leaf_lines: Vec<Line>,
    pub(super) sibling_lines: Vec<Line>,
}

impl Scratch {
    pub(super) fn new(reader: &LeafReader) -> Self {
        Self {
            leaves: [LeafNumber::NONE; BATCH],
            hits: [NO_HIT; BATCH],
            slow_path: Vec::with_capacity(BATCH),
            leaf_lines: vec![Line::ZERO; reader.leaf_lines()],
            sibling_lines: vec![Line::ZERO; reader.leaf_lines()],
        }
    }
}

/// Where a batch's keys are looked for; a trait, because closures are not inlined for sure.
pub(super) trait Locate {
    /// What a key without a leaf means: that it has no route, or that it takes no part.
    const IS_UNROUTED_WITHOUT: bool;

    /// The leaf of key `index`, which is `key`, or [`LeafNumber::NONE`].
    fn leaf(&self, index: usize, key: u64) -> LeafNumber;
}

/// Leaves that are resolved when a step takes them, from sub-models that were prefetched before.
pub(super) struct Predicted<'a> {
    model: &'a CachedModel,
    places: [Place; BATCH],
    /// The keys that have no sub-model.
    lacking: BatchKeys,
}

impl<'a> Predicted<'a> {
    #[inline(always)]
    pub(super) fn new(model: &'a CachedModel, keys: &[u64], refreshes: &mut Refreshes) -> Self {
        let mut places = [Place::default(); BATCH];
        let mut below: BatchKeys = 0;
        for (index, (place, key)) in places.iter_mut().zip(keys).enumerate() {
            *place = model.place(model.top().dispatch(*key));
            if place.is_sub_model() {
                model.prefetch(*place);
            } else {
                below |= 1 << index;
            }
        }
        let lacking = if below == 0 { 0 } else { model.locate_all(keys, &mut places, below, refreshes) };
        Self { model, places, lacking }
    }
}

impl Locate for Predicted<'_> {
    const IS_UNROUTED_WITHOUT: bool = true;

    #[inline(always)]
    fn leaf(&self, index: usize, key: u64) -> LeafNumber {
        self.model.likeliest(self.places[index], key)
    }
}

/// Leaves that are known.
struct Candidates([LeafNumber; BATCH]);

impl Locate for Candidates {
    const IS_UNROUTED_WITHOUT: bool = false;

    #[inline(always)]
    fn leaf(&self, index: usize, _: u64) -> LeafNumber {
        self.0[index]
    }
}

/// No leaf: for the steps behind the first.
pub(super) struct Nowhere;

impl Locate for Nowhere {
    const IS_UNROUTED_WITHOUT: bool = false;

    #[inline(always)]
    fn leaf(&self, _: usize, _: u64) -> LeafNumber {
        LeafNumber::NONE
    }
}

/// A batch from its keys' leaves on.
pub(super) struct Steps<'a, L> {
    reader: LeafReader,
    keys: [u64; BATCH],
    locate: &'a L,
    leaves: &'a mut [LeafNumber; BATCH],
    hits: &'a mut [Hit; BATCH],
    slow_path: &'a mut Vec<(usize, Start)>,
    versions: &'a mut [u64],
    values: &'a mut [u8],
}

impl<L: Locate, const VALUE_LINES: usize> Chains<KEY_LINES, VALUE_LINES> for Steps<'_, L> {
    /// Resolve: the line where the leaf's key part begins.
    #[inline(always)]
    fn first(&mut self, index: usize) -> Option<u64> {
        let leaf = self.locate.leaf(index, self.keys[index]);
        self.leaves[index] = leaf;
        if leaf == LeafNumber::NONE {
            if L::IS_UNROUTED_WITHOUT {
                self.leave(index, Start::Unrouted);
            }
            return None;
        }
        Some(self.reader.line(leaf))
    }

    /// Search the key part: on a hit, the line where the value begins.
    #[inline(always)]
    fn second(&mut self, index: usize, lines: &[Line; KEY_LINES]) -> Option<u64> {
        let Some(hit) = leaf::find(lines, self.keys[index]) else {
            self.leave_unless_absent(index, lines);
            return None;
        };
        self.hits[index] = hit;
        Some(self.reader.value_line(self.leaves[index], hit))
    }

    /// Accept the value if it is of the incarnation under which its key was found.
    #[inline(always)]
    fn end(&mut self, index: usize, lines: &[Line; VALUE_LINES]) {
        let hit = self.hits[index];
        let accepted = if self.reader.has_short_values() {
            leaf::accept_short(&lines[0], hit, &mut self.values.as_chunks_mut().0[index])
        } else {
            let value_bytes = self.reader.value_bytes();
            self.reader.accept(lines, hit, &mut self.values[index * value_bytes..][..value_bytes])
        };
        match accepted {
            Ok(version) => self.versions[index] = version,
            Err(_) => self.leave(index, Start::Again(self.leaves[index])),
        }
    }

    #[inline(always)]
    fn second_in_place(
        &mut self,
        index: usize,
        lines: &[SharedLine; KEY_LINES],
        widest: Widest,
    ) -> Option<u64> {
        let hit = leaf::find_in_place(lines, self.keys[index], widest)?;
        self.hits[index] = hit;
        Some(self.reader.value_line(self.leaves[index], hit))
    }

    #[inline(always)]
    fn end_in_place(&mut self, index: usize, lines: &[SharedLine; VALUE_LINES]) -> bool {
        let hit = self.hits[index];
        if !self.reader.has_short_values() {
            return false;
        }
        let Some(pair) = leaf::accept_in_place(&lines[0], hit) else { return false };
        self.values.as_chunks_mut().0[index] = pair.value.to_le_bytes();
        self.versions[index] = pair.version;
        true
    }
}

impl<L> Steps<'_, L> {
    /// What comes of a key part that shows no hit.
    #[inline(never)]
    fn leave_unless_absent(&mut self, index: usize, lines: &[Line; KEY_LINES]) {
        match leaf::search(lines, self.keys[index]) {
            Search::Absent => {}
            #[cfg(injected)]
            Search::Right { .. } if injected::NO_SIBLING_STEP.is_injected() => {}
            other => self.leave(index, Start::after(self.leaves[index], other)),
        }
    }

    #[cold]
    #[inline(never)]
    fn leave(&mut self, index: usize, start: Start) {
        self.slow_path.push((index, start));
    }
}

impl Scratch {
    /// The steps of a batch whose answers go to these versions and values.
    #[inline(always)]
    pub(super) fn steps<'a, L: Locate>(
        &'a mut self,
        reader: &LeafReader,
        keys: &[u64],
        (versions, values): (&'a mut [u64], &'a mut [u8]),
        locate: &'a L,
    ) -> Steps<'a, L> {
        let Self { leaves, hits, slow_path, .. } = self;
        // As long as the batch's other arrays: no index into it is looked at twice.
        let mut batch = [0; BATCH];
        batch[..keys.len()].copy_from_slice(keys);
        Steps { reader: *reader, keys: batch, locate, leaves, hits, slow_path, versions, values }
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
        self.reset_answers(answers, keys.len());
        if self.prefers_whole_leaves::<Q>() {
            self.counters.gets += keys.len() as u64;
            return self.get_by_whole_leaves(queue, keys, answers);
        }
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
        self.scratch.slow_path.clear();
        if let Some(model) = self.model.take() {
            let predicted = Predicted::new(&model, keys, &mut self.refreshes);
            let done = if predicted.lacking != 0 && self.published.is_there() {
                self.read_leaves_of_all(queue, keys, answers.part_mut(first, keys.len()), &predicted, &model)
            } else {
                self.read_leaves(queue, keys, answers.part_mut(first, keys.len()), &predicted)
                    .map_err(XStoreError::from)
            };
            self.model = Some(model);
            done?;
        } else {
            self.leave_unrouted(keys.len());
        }
        self.finish_batch(queue, keys, answers, first)
    }

    /// [`XClient::read_leaves`] of a batch some keys of which have no sub-model: those are READ first.
    #[cold]
    fn read_leaves_of_all<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
        into: (&mut [u64], &mut [u8]),
        predicted: &Predicted<'_>,
        model: &Arc<CachedModel>,
    ) -> Result<(), XStoreError> {
        let lacks = |index: usize| predicted.lacking >> index & 1 == 1;
        let lacking = keys.iter().enumerate().filter(|(index, _)| lacks(*index));
        self.read_sub_models(queue, model, lacking.map(|(_, key)| *key))?;
        let mut leaves = [LeafNumber::NONE; BATCH];
        for (index, (leaf, key)) in leaves.iter_mut().zip(keys).enumerate() {
            *leaf = if lacks(index) { self.published_leaf(model, *key) } else { predicted.leaf(index, *key) };
            if *leaf == LeafNumber::NONE {
                self.scratch.slow_path.push((index, Start::Unrouted));
            }
        }
        Ok(self.read_leaves(queue, keys, into, &Candidates(leaves))?)
    }

    /// Without a model all keys of a batch go by the slow path.
    #[cold]
    pub(super) fn leave_unrouted(&mut self, count: usize) {
        self.scratch.slow_path.extend((0..count).map(|index| (index, Start::Unrouted)));
    }

    /// What the straight way did not answer of a batch: first of its neighbours, then of the lane.
    #[inline(always)]
    pub(super) fn finish_batch<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
        answers: &mut Answers,
        first: usize,
    ) -> Result<(), XStoreError> {
        self.counters.slow_path += self.scratch.slow_path.len() as u64;
        if !self.scratch.slow_path.is_empty()
            && let Some(model) = self.model.take()
        {
            let done = self.read_neighbours(queue, keys, answers.part_mut(first, keys.len()), &model);
            self.model = Some(model);
            done?;
        }
        if self.scratch.slow_path.is_empty() {
            if self.published.is_in_use() {
                self.end_published(queue)?;
            }
            return if self.refreshes.is_idle() { Ok(()) } else { self.renew_model(queue, 0) };
        }
        let slow_path = std::mem::take(&mut self.scratch.slow_path);
        let done = self.lookup_each(queue, keys, &slow_path, answers, first);
        self.scratch.slow_path = slow_path;
        done
    }

    /// A second round of a batch's steps, for the keys that lie beside the leaf predicted, and for those
    /// whose sub-models have not been READ yet.
    #[cold]
    fn read_neighbours<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
        into: (&mut [u64], &mut [u8]),
        model: &Arc<CachedModel>,
    ) -> Result<(), XStoreError> {
        let slow_path = std::mem::take(&mut self.scratch.slow_path);
        let unrouted = slow_path.iter().filter(|(_, start)| *start == Start::Unrouted);
        let mut unrouted = unrouted.map(|(index, _)| keys[*index]).peekable();
        let is_due = unrouted.peek().is_some() && !self.published.is_in_use() && self.published.is_there();
        let done = if is_due { self.read_sub_models(queue, model, unrouted) } else { Ok(()) };
        let has_neighbour = |start| matches!(start, Start::Left | Start::Named { .. });
        let is_wanted = is_due || slow_path.iter().any(|(_, start)| has_neighbour(*start));
        self.scratch.slow_path = slow_path;
        done?;
        if is_wanted {
            let neighbours = self.take_neighbours(model, keys, is_due);
            self.read_leaves(queue, keys, into, &neighbours)?;
        }
        Ok(())
    }

    /// READs, searches and accepts each key's leaf that `locate` names; keys of [`LeafNumber::NONE`] take no
    /// part.
    #[inline(always)]
    fn read_leaves<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
        into: (&mut [u64], &mut [u8]),
        locate: &impl Locate,
    ) -> Result<(), FabricError> {
        let region = self.cache.region();
        let mut steps = self.scratch.steps(self.cache.reader(), keys, into, locate);
        with_value_lines!(self.cache.reader(), VALUE_LINES => {
            read_chained::<KEY_LINES, VALUE_LINES>(queue, region, keys.len(), &mut steps)
        })
    }

    /// Takes the keys that lie beside the leaf predicted off the slow path. Gives each the leaf where it is
    /// looked for next: the position before, or what that leaf names. So it does with those whose sub-models
    /// were READ just now.
    #[cold]
    fn take_neighbours(&mut self, model: &CachedModel, keys: &[u64], have_been_read: bool) -> Candidates {
        self.refreshes.follow(model);
        let mut candidates = [LeafNumber::NONE; BATCH];
        let mut slow_path = std::mem::take(&mut self.scratch.slow_path);
        slow_path.retain(|&(index, start)| {
            candidates[index] = match start {
                Start::Named { leaf, above } if self.cache.is_leaf(leaf) => {
                    self.counters.sibling_steps += 1;
                    self.refreshes.count_walk(model, keys[index]);
                    self.trail.find(keys[index], above).unwrap_or(leaf)
                }
                Start::Left => {
                    let route = model.route(keys[index]);
                    let route = route.or_else(|| self.published.route(model, keys[index]));
                    let route = route.filter(|route| route.last > 0);
                    route.map_or(LeafNumber::NONE, |route| route.sub_model.leaf(route.last - 1))
                }
                Start::Unrouted if have_been_read => self.published_leaf(model, keys[index]),
                _ => LeafNumber::NONE,
            };
            candidates[index] == LeafNumber::NONE
        });
        self.scratch.slow_path = slow_path;
        Candidates(candidates)
    }

    fn get_batch_by_call<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
        answers: &mut Answers,
        first: usize,
    ) -> Result<(), XStoreError> {
        if self.by_values {
            return self.get_values_by_call(queue, keys, answers, first);
        }
        Request::get(&mut self.request, self.cache.table().id, keys);
        let value_bytes = self.cache.reader().value_bytes();
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

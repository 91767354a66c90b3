//! The slow path of a GET, in the lane: it walks to the leaf that owns the key, repeats READs of changing
//! lines, and at last calls the server.
//!
//! Steps, from where the batch left off:
//! 1. READ a key part. If its lines are changing, READ again.
//! 2. On a hit READ its value, and accept.
//! 3. On `Right` follow the sibling: the leaf was split since its sub-model was trained.
//! 4. On `Left` go to the candidate before, for hints may tie, or fall back.
//! 5. After [`READS_MAX`] READs, or without a route, *fall back*: the server looks the key up and sends its
//!    sub-model along.

use std::cell::RefCell;

use farsight_base::{LeafNumber, Line};
use farsight_fabric::QueuePair;
use farsight_fabric::ReadMode;
use farsight_fabric::lane::{Lane, LaneSlot};
use farsight_index::{Answers, Counters, Kept};
use farsight_layout::{VALUE_BYTES_MAX, VALUE_LINES_MAX};
use farsight_protocol::{ModelReader, PairsReader, Reply, Request};

use super::cache::{CachedModel, XCache};
use super::fill::are_of_one_generation;
use super::leaf::{self, Hit, KEY_LINES, Search};
use super::refresh::Refreshes;
use super::{BATCH, READS_MAX, XClient, XStoreError};
#[cfg(injected)]
use crate::injected;

/// Where a lookup goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Start {
    /// There is no model, or not this part of it.
    Unrouted,
    /// This leaf, once more.
    Again(LeafNumber),
    /// The right sibling of the leaf predicted.
    Right(LeafNumber),
    /// The key lies left of the leaf predicted.
    Left,
}

impl Start {
    /// Where to go on after `leaf` said `found`, which is neither a hit nor a proved miss.
    pub(super) fn after(leaf: LeafNumber, found: Search) -> Self {
        match found {
            Search::Right(next) => Self::Right(next),
            Search::Left => Self::Left,
            Search::Foreign => Self::Unrouted,
            Search::Changing | Search::Hit(_) | Search::Absent => Self::Again(leaf),
        }
    }
}

/// What the lookups of one batch share.
struct Shared<'a> {
    cache: &'a XCache,
    model: Option<&'a CachedModel>,
    counters: RefCell<&'a mut Counters>,
    refreshes: RefCell<&'a mut Refreshes>,
    frames: &'a Kept<Frames>,
    newer_generation: RefCell<u64>,
}

/// The frames of a call: a request, and room for its reply.
pub(super) type Frames = (Vec<u8>, Vec<u8>);

impl XClient {
    /// Looks up `keys[index]` for each of `slow_path`, side by side.
    pub(super) fn lookup_each<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
        slow_path: &[(usize, Start)],
        answers: &mut Answers,
        first: usize,
    ) -> Result<(), XStoreError> {
        let model = self.model.clone();
        if let Some(model) = &model {
            self.refreshes.follow(model);
        }
        let model = model.as_deref();
        let shared = Shared::new(&self.cache, model, &mut self.counters, &mut self.refreshes, &self.frames);
        let answers = RefCell::new(answers);
        let failure = RefCell::new(None);
        let lane = Lane::new(queue);
        lane.run(&mut self.lane_memory, BATCH, slow_path, |slot, &(index, start)| {
            let (shared, answers, failure) = (&shared, &answers, &failure);
            async move {
                let mut value = [0; VALUE_BYTES_MAX];
                let value = &mut value[..shared.cache.reader().value_bytes()];
                match shared.lookup(&slot, keys[index], start, value).await {
                    Ok(version) => {
                        let mut answers = answers.borrow_mut();
                        answers.value_mut(first + index).copy_from_slice(value);
                        answers.set_version(first + index, version);
                    }
                    Err(error) => *failure.borrow_mut() = Some(error),
                }
            }
        })?;
        let newer = *shared.newer_generation.borrow();
        if let Some(error) = failure.into_inner() {
            return Err(error);
        }
        self.renew_model(queue, newer)
    }

    /// After lookups: fetches the generation `newer` that a reply named, or takes what was requested before
    /// and requests what these lookups lacked.
    pub(super) fn renew_model<Q: QueuePair>(&mut self, queue: &mut Q, newer: u64) -> Result<(), XStoreError> {
        self.take_refresh(queue)?;
        if newer > 0 {
            self.fetch_generation(queue, newer)
        } else if self.wants_model() {
            self.fetch_model(queue)
        } else {
            self.ask_for_refresh(queue)
        }
    }

    /// Looks `key` up, alone; its version, or `None` if it is absent.
    #[cold]
    pub(super) fn lookup_one<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        key: u64,
        start: Start,
        value: &mut [u8],
    ) -> Result<Option<u64>, XStoreError> {
        let model = self.model.clone();
        if let Some(model) = &model {
            self.refreshes.follow(model);
        }
        let model = model.as_deref();
        let shared = Shared::new(&self.cache, model, &mut self.counters, &mut self.refreshes, &self.frames);
        let lane = Lane::new(queue);
        let version = lane.block_on(async |slot| shared.lookup(&slot, key, start, value).await)??;
        let newer = *shared.newer_generation.borrow();
        self.renew_model(queue, newer)?;
        Ok((version != 0).then_some(version))
    }
}

impl<'a> Shared<'a> {
    fn new(
        cache: &'a XCache,
        model: Option<&'a CachedModel>,
        counters: &'a mut Counters,
        refreshes: &'a mut Refreshes,
        frames: &'a Kept<Frames>,
    ) -> Self {
        Self {
            cache,
            model,
            counters: RefCell::new(counters),
            refreshes: RefCell::new(refreshes),
            frames,
            newer_generation: RefCell::new(0),
        }
    }

    /// The version of `key` (zero: absent), its value in `value`.
    async fn lookup<Q: QueuePair>(
        &self,
        slot: &LaneSlot<'_, '_, Q>,
        key: u64,
        start: Start,
        value: &mut [u8],
    ) -> Result<u64, XStoreError> {
        let route = self.model.and_then(|model| model.route(key));
        let Some(route) = route else {
            if let Some(model) = self.model {
                self.refreshes.borrow_mut().count_nowhere(model, key);
            }
            return self.fall_back(slot, key, value).await;
        };
        let mut candidate = route.last;
        let mut leaf = match start {
            Start::Again(leaf) | Start::Right(leaf) => leaf,
            Start::Left if candidate > route.first => {
                candidate -= 1;
                route.sub_model.leaf(candidate)
            }
            // Another session fetched the sub-model meanwhile, or the old one was wrong: begin anew.
            Start::Unrouted | Start::Left => route.leaf,
        };
        let mut walked = matches!(start, Start::Right(_));
        self.counters.borrow_mut().sibling_steps += u64::from(walked);
        let rounds = READS_MAX / 2;
        #[cfg(injected)]
        let rounds = if injected::UNBOUNDED_RETRY.is_injected() { usize::MAX } else { rounds };
        for _ in 0..rounds {
            if !self.cache.is_leaf(leaf) {
                break;
            }
            match self.search(slot, leaf, key).await? {
                Search::Hit(hit) => {
                    if let Some(version) = self.read_value(slot, leaf, hit, value).await? {
                        self.note_walk(walked, key);
                        return Ok(version);
                    }
                    self.counters.borrow_mut().retries += 1;
                }
                Search::Absent => {
                    self.note_walk(walked, key);
                    return Ok(0);
                }
                Search::Right(next) => {
                    self.counters.borrow_mut().sibling_steps += 1;
                    walked = true;
                    leaf = next;
                }
                Search::Left if candidate > route.first => {
                    candidate -= 1;
                    leaf = route.sub_model.leaf(candidate);
                }
                Search::Changing => self.counters.borrow_mut().retries += 1,
                Search::Left | Search::Foreign => break,
            }
        }
        self.fall_back(slot, key, value).await
    }

    async fn search<Q: QueuePair>(
        &self,
        slot: &LaneSlot<'_, '_, Q>,
        leaf: LeafNumber,
        key: u64,
    ) -> Result<Search, XStoreError> {
        let from = self.cache.reader().address(self.cache.region(), leaf);
        let mut lines = [Line::ZERO; KEY_LINES];
        slot.read(from, &mut lines, ReadMode::Stamped).await?;
        Ok(leaf::search(&lines, key))
    }

    /// The version of the value of a hit, or `None` if its lines are not what the key's line promised.
    async fn read_value<Q: QueuePair>(
        &self,
        slot: &LaneSlot<'_, '_, Q>,
        leaf: LeafNumber,
        hit: Hit,
        value: &mut [u8],
    ) -> Result<Option<u64>, XStoreError> {
        let reader = self.cache.reader();
        let mut lines = [Line::ZERO; VALUE_LINES_MAX];
        let lines = &mut lines[..reader.lines_per_value()];
        let from = reader.value_address(self.cache.region(), leaf, hit);
        slot.read(from, lines, ReadMode::Stamped).await?;
        Ok(reader.accept(lines, hit, value).ok())
    }

    /// After a walk: the key's sub-model is older than a split.
    fn note_walk(&self, walked: bool, key: u64) {
        if let Some(model) = self.model.filter(|_| walked) {
            self.refreshes.borrow_mut().count_walk(model, key);
        }
    }

    /// The server looks `key` up and sends the sub-model that finds it next time.
    async fn fall_back<Q: QueuePair>(
        &self,
        slot: &LaneSlot<'_, '_, Q>,
        key: u64,
        value: &mut [u8],
    ) -> Result<u64, XStoreError> {
        self.counters.borrow_mut().fallbacks += 1;
        let generation = self.model.map_or(0, CachedModel::generation);
        let known = self.model.map_or(u32::MAX, |model| model.locate(key).known());
        let mut frames = self.frames.lend();
        let (request, reply) = &mut *frames;
        Request::lookup(request, self.cache.table().id, key, generation, known);
        slot.call(request, reply).await?;
        let reply = Reply::decode(reply)??;
        let mut values = PairsReader::new(reply.words()?, value.len());
        let (version, found) = values.value()?;
        value.copy_from_slice(found);
        self.install(reply.argument, ModelReader::new(values.rest()))?;
        Ok(version)
    }

    /// Installs sub-models sent for `generation`, or remembers that there is a newer one.
    fn install(&self, generation: u64, mut sent: ModelReader<'_>) -> Result<(), XStoreError> {
        let is_of = |model: &&CachedModel| are_of_one_generation(generation, model.generation());
        let Some(model) = self.model.filter(is_of) else {
            *self.newer_generation.borrow_mut() = generation;
            return Ok(());
        };
        while let Some(part) = sent.read()? {
            self.cache.install_part(model, &part)?;
            self.counters.borrow_mut().sub_models_fetched += 1;
        }
        Ok(())
    }
}

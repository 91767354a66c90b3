//! The slow path of a GET, in the lane: it walks to the leaf that owns the key, repeats READs of changing
//! lines, and at last calls the server.
//!
//! Steps, from where the batch left off:
//! 1. READ a key part. If its lines are changing, READ again.
//! 2. On a hit READ its value, and accept.
//! 3. On `Right` follow the sibling: the leaf was split since its sub-model was trained. Of a leaf that was
//!    merged follow the one that it names. Where earlier walks ended is known ([`Trail`]), and saves steps.
//! 4. On `Left` go to the position before, for hints may tie, and leaves merge to the left.
//! 5. After so many READs ([`rounds_max`]), or without a route, *fall back*: the server looks the key up and
//!    sends its sub-model along.

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
use super::published::Published;
use super::refresh::Refreshes;
use super::route::Route;
use super::trail::Trail;
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
    /// A leaf that the one predicted named.
    Named {
        /// The right sibling, or the leaf with which that one was merged.
        leaf: LeafNumber,
        /// The least key that may be there, of a sibling; otherwise the greatest.
        above: u64,
    },
    /// The key lies left of the leaf predicted.
    Left,
}

impl Start {
    /// Where to go on after `leaf` said `found`, which is neither a hit nor a proved miss.
    pub(super) fn after(leaf: LeafNumber, found: Search) -> Self {
        match found {
            Search::Right { next, high } => Self::Named { leaf: next, above: high },
            Search::Left => Self::Left,
            Search::Foreign(heir) if heir != LeafNumber::NONE => Self::Named { leaf: heir, above: u64::MAX },
            Search::Foreign(_) => Self::Unrouted,
            Search::Changing | Search::Hit(_) | Search::Absent => Self::Again(leaf),
        }
    }
}

/// Leaves that a lookup looks at, each by a READ of its key part and perhaps one of a value.
const ROUNDS_MAX: usize = READS_MAX / 2;
/// The same where leaves lie in the process's own memory: a look costs less than a hundredth of a call.
const ROUNDS_IN_PLACE_MAX: usize = 256;
/// Steps of a long walk between two leaves that it notes.
const STEPS_PER_NOTE: u32 = 8;
/// Positions before the candidates that a lookup tries: leaves merge to the left.
const MERGED_POSITIONS: u32 = 2;

/// Leaves that lookups through `queue` look at.
fn rounds_max<Q: QueuePair>(queue: &mut Q) -> usize {
    if queue.mapped().is_some() { ROUNDS_IN_PLACE_MAX } else { ROUNDS_MAX }
}

/// Where a lookup is.
struct Walk<'a> {
    route: Option<Route<'a>>,
    leaf: LeafNumber,
    /// The position of the last candidate that was tried.
    candidate: u32,
    /// The leaf was named by another one, not by the model.
    has_walked: bool,
    steps_right: u32,
}

impl<'a> Walk<'a> {
    fn new(
        shared: &Shared<'_>,
        route: Option<Route<'a>>,
        before: Option<LeafNumber>,
        start: Start,
        key: u64,
    ) -> Self {
        let leaf = route.map_or(before.unwrap_or(LeafNumber::NONE), |route| route.leaf);
        let candidate = route.map_or(0, |route| route.last);
        let mut walk = Self { route, leaf, candidate, has_walked: route.is_none(), steps_right: 0 };
        match start {
            Start::Again(leaf) => walk.leaf = leaf,
            Start::Named { leaf, above } => walk.go_right(shared, leaf, above, key),
            // Another session fetched the sub-model meanwhile, or the old one was wrong: begin anew.
            Start::Left | Start::Unrouted => {
                let _ = start == Start::Left && walk.go_left();
            }
        }
        walk
    }

    /// To a right sibling, or farther to where an earlier walk ended. The key is not below `above`.
    fn go_right(&mut self, shared: &Shared<'_>, next: LeafNumber, above: u64, key: u64) {
        let known = if self.steps_right == 0 { shared.trail.borrow().find(key, above) } else { None };
        self.steps_right += 1;
        self.go_to(shared, known.unwrap_or(next));
    }

    fn go_to(&mut self, shared: &Shared<'_>, named: LeafNumber) {
        shared.counters.borrow_mut().sibling_steps += 1;
        self.has_walked = true;
        self.leaf = named;
    }

    /// To the position before, if the key may be there.
    fn go_left(&mut self) -> bool {
        let Some(route) = self.route else { return false };
        if self.candidate <= route.first.saturating_sub(MERGED_POSITIONS) {
            return false;
        }
        self.candidate -= 1;
        self.has_walked |= self.candidate < route.first;
        self.leaf = route.sub_model.leaf(self.candidate);
        true
    }
}

/// What the lookups of one batch share.
struct Shared<'a> {
    cache: &'a XCache,
    model: Option<&'a CachedModel>,
    published: &'a Published,
    counters: RefCell<&'a mut Counters>,
    refreshes: RefCell<&'a mut Refreshes>,
    frames: &'a Kept<Frames>,
    trail: RefCell<&'a mut Trail>,
    rounds_max: usize,
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
        let shared = Shared::new(
            (&self.cache, model.as_deref(), &self.published),
            (&mut self.counters, &mut self.refreshes, &mut self.trail),
            &self.frames,
            rounds_max(queue),
        );
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
        self.end_published(queue)?;
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
        let shared = Shared::new(
            (&self.cache, model.as_deref(), &self.published),
            (&mut self.counters, &mut self.refreshes, &mut self.trail),
            &self.frames,
            rounds_max(queue),
        );
        let lane = Lane::new(queue);
        let version = lane.block_on(async |slot| shared.lookup(&slot, key, start, value).await)??;
        let newer = *shared.newer_generation.borrow();
        self.end_published(queue)?;
        self.renew_model(queue, newer)?;
        Ok((version != 0).then_some(version))
    }
}

impl<'a> Shared<'a> {
    fn new(
        (cache, model, published): (&'a XCache, Option<&'a CachedModel>, &'a Published),
        (counters, refreshes, trail): (&'a mut Counters, &'a mut Refreshes, &'a mut Trail),
        frames: &'a Kept<Frames>,
        rounds_max: usize,
    ) -> Self {
        Self {
            cache,
            model,
            published,
            counters: RefCell::new(counters),
            refreshes: RefCell::new(refreshes),
            frames,
            trail: RefCell::new(trail),
            rounds_max,
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
        let route_of = |model: &'a CachedModel| model.route(key).or_else(|| self.published.route(model, key));
        let route = self.model.and_then(route_of);
        let before = if route.is_none() { self.leaf_before(key) } else { None };
        if route.is_none() && before.is_none() {
            return self.fall_back(slot, key, value).await;
        }
        let mut walk = Walk::new(self, route, before, start, key);
        let rounds = self.rounds_max;
        #[cfg(injected)]
        let rounds = if injected::UNBOUNDED_RETRY.is_injected() { usize::MAX } else { rounds };
        for _ in 0..rounds {
            let leaf = walk.leaf;
            if !self.cache.is_leaf(leaf) {
                break;
            }
            let (found, low) = self.search(slot, leaf, key).await?;
            match found {
                Search::Hit(hit) => {
                    if let Some(version) = self.read_value(slot, leaf, hit, value).await? {
                        self.note_walk(&walk, low, key);
                        return Ok(version);
                    }
                    self.counters.borrow_mut().retries += 1;
                }
                Search::Absent => {
                    self.note_walk(&walk, low, key);
                    return Ok(0);
                }
                Search::Right { next, high } => {
                    walk.go_right(self, next, high, key);
                    if walk.steps_right.is_multiple_of(STEPS_PER_NOTE) && walk.leaf == next {
                        // The next walk begins here, also if this one does not come to its end.
                        self.trail.borrow_mut().note(high, next);
                    }
                }
                Search::Foreign(heir) => walk.go_to(self, heir),
                Search::Left if walk.go_left() => {}
                Search::Changing => self.counters.borrow_mut().retries += 1,
                Search::Left => break,
            }
        }
        self.fall_back(slot, key, value).await
    }

    /// Where to look for `key`, whose sub-model was not fetched: from the leaf on in which the one before
    /// ends, if a walk from there costs less than a call.
    fn leaf_before(&self, key: u64) -> Option<LeafNumber> {
        let model = self.model?;
        self.refreshes.borrow_mut().count_nowhere(model, key);
        if self.rounds_max > ROUNDS_MAX { model.leaf_left_of(key) } else { None }
    }

    /// What a leaf says of `key`, and its low fence, if it is one.
    async fn search<Q: QueuePair>(
        &self,
        slot: &LaneSlot<'_, '_, Q>,
        leaf: LeafNumber,
        key: u64,
    ) -> Result<(Search, u64), XStoreError> {
        let from = self.cache.reader().address(self.cache.region(), leaf);
        let mut lines = [Line::ZERO; KEY_LINES];
        slot.read(from, &mut lines, ReadMode::Stamped).await?;
        Ok((leaf::search(&lines, key), leaf::low_fence(&lines)))
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

    /// After a walk: the key's sub-model is older than a split or a merge.
    fn note_walk(&self, walk: &Walk<'_>, low: u64, key: u64) {
        let Some(model) = self.model.filter(|_| walk.has_walked) else { return };
        self.refreshes.borrow_mut().count_walk(model, key);
        if walk.steps_right > 0 {
            self.trail.borrow_mut().note(low, walk.leaf);
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

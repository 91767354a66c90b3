//! Parts of the model that are missing or out of date, which sessions request without waiting for them.
//!
//! Invariant: no operation waits for a part of the model, but for the top model itself. The reply to a
//! request is taken whenever a later operation finds it there. One request of a session is under way at a
//! time, in a slot of its own.
//!
//! A reply brings a page of sub-models; each operation that comes by installs some of them, so that no batch
//! of GETs waits for all.
//!
//! Protocol, that of renting until the rent paid is the price. An operation whose prediction was out of date
//! costs something: a GET another READ, a write a descent by the server. The session counts such *misses* for
//! each *page* of neighbouring sub-models. When a page's misses have cost what fetching it costs, the session
//! requests it, though not more often than its retraining can have changed it. A key whose sub-model is
//! nowhere costs a call by itself: its page is due at once. Of keys that a GET had to walk for, the session
//! requests one sub-model now and then: the more it is used the sooner it is its turn. The top model is
//! fetched, and waited for, after a number of writes without one; GETs without a model bring it along.
//!
//! A key names what is requested, never a number. A sub-model that has outgrown its bound is a branch by now,
//! and the reply brings the way down.

use std::collections::HashMap;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_fabric::{QueuePair, Slot};
use farsight_protocol::{ModelReader, Reply, Request, SubModelsWanted};

use super::cache::{CachedModel, PageNumber};
use super::fill::are_of_one_generation;
use super::{Access, BATCH, XClient, XStoreError};

/// Misses that a page may cost before it is fetched: the server sends a page in about the time of so many
/// descents.
const PAGE_MISSES: u16 = 25;
/// Least time between two requests for a page.
const PAGE_INTERVAL: Duration = Duration::from_millis(100);
/// The same where a sub-model of the page is nowhere, so that each of its keys costs a walk or a call.
const UNFETCHED_INTERVAL: Duration = Duration::from_millis(5);
/// Least time between two requests for a single sub-model.
const SINGLE_INTERVAL: Duration = Duration::from_millis(1);
/// Sub-models installed by one operation, each in half a microsecond or more. A page is through after a few
/// batches of GETs; with fewer at once a reader beside a fast writer falls behind.
const INSTALLED_TOGETHER: u32 = 8;
/// Writes without a model before it is fetched: a session that writes little never needs it.
const MODEL_MISSES: u32 = 1024;
/// The slot of the request: the last, which no batch of GETs and no group of scans uses.
pub(super) const fn request_slot<Q: QueuePair>() -> Slot {
    assert!(Q::SLOTS > BATCH, "a slot behind those of batches");
    Q::SLOTS - 1
}

/// Misses of a page since it was requested, and when that was.
#[derive(Clone, Copy, Default)]
struct Page {
    misses: u16,
    asked_at: Option<MonotonicNs>,
}

/// A request under way, or its reply.
#[derive(Clone, Copy)]
struct Refresh {
    generation: u64,
    /// The reply is there, and so much of it has been installed; `None`: it is awaited.
    installed: Option<Installed>,
}

/// What was installed of a reply.
#[derive(Clone, Copy, Default)]
struct Installed {
    words: usize,
}

/// What a session knows of its model's age.
#[derive(Default)]
pub(super) struct Refreshes {
    /// The pages of this generation that had misses.
    generation: u64,
    pages: HashMap<PageNumber, Page>,
    /// A key of a page whose misses have reached the price, and the least time since the last request.
    due: Option<(PageNumber, u64, Duration)>,
    /// A key that a GET walked for.
    walked: Option<u64>,
    single_at: Option<MonotonicNs>,
    asked: Option<Refresh>,
    reply: Vec<u8>,
    /// Writes without a model.
    unrouted: u32,
    /// The newest generation that the server has named.
    newest: u64,
}

impl Refreshes {
    /// Makes the counts those of `model`.
    #[inline]
    pub(super) fn follow(&mut self, model: &CachedModel) {
        if self.generation == model.generation() {
            return;
        }
        // The rest of a reply goes with the generation that it is of. The map's room stays.
        let asked = self.asked.take().filter(|asked| asked.installed.is_none());
        let mut pages = std::mem::take(&mut self.pages);
        pages.clear();
        *self = Self { generation: model.generation(), pages, asked, ..Self::default() };
    }

    /// Counts an operation on `key` that was sent wrong by a sub-model of this page, or for want of it.
    #[inline]
    pub(super) fn count_miss(&mut self, page: PageNumber, key: u64) {
        self.count_misses(page, key, 1);
    }

    fn count_misses(&mut self, number: PageNumber, key: u64, misses: u16) {
        let page = self.pages.entry(number).or_default();
        page.misses += misses;
        if page.misses >= PAGE_MISSES {
            page.misses = 0;
            self.due = Some((number, key, PAGE_INTERVAL));
        }
    }

    /// Counts an operation for which the sub-model of `key` was not there.
    #[cold]
    pub(super) fn count_unfetched(&mut self, model: &CachedModel, page: PageNumber, key: u64) {
        self.follow(model);
        self.count_miss(page, key);
    }

    /// Counts a GET for which no generation had a sub-model.
    #[cold]
    pub(super) fn count_nowhere(&mut self, model: &CachedModel, key: u64) {
        self.follow(model);
        // The server's answer brings the sub-model. Its neighbours are worth their room if that costs no
        // other.
        let misses = if model.is_full() { 1 } else { PAGE_MISSES };
        let page = model.locate(key).page;
        self.count_misses(page, key, misses);
        if let Some((_, _, interval)) = self.due.as_mut().filter(|(due, ..)| *due == page) {
            *interval = UNFETCHED_INTERVAL;
        }
    }

    /// Counts a GET that had to walk from the leaf predicted.
    pub(super) fn count_walk(&mut self, model: &CachedModel, key: u64) {
        self.walked = Some(key);
        self.count_miss(model.locate(key).page, key);
    }

    /// True if there is nothing to take, to install or to ask for.
    #[inline(always)]
    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_none() && self.due.is_none() && self.walked.is_none()
    }

    /// Counts writes without a model.
    pub(super) fn count_unrouted(&mut self, writes: usize) {
        self.unrouted = self.unrouted.saturating_add(writes as u32);
    }

    /// What to ask for now, if anything.
    fn choose(&mut self, now: MonotonicNs) -> Option<(u64, SubModelsWanted)> {
        let is_past =
            |asked_at: Option<MonotonicNs>, interval| asked_at.is_none_or(|at| now.since(at) >= interval);
        if let Some((number, key, interval)) = self.due.take()
            && let Some(page) = self.pages.get_mut(&number)
            && is_past(page.asked_at, interval)
        {
            page.asked_at = Some(now);
            return Some((key, SubModelsWanted::Neighbours));
        }
        let key = self.walked.take().filter(|_| is_past(self.single_at, SINGLE_INTERVAL))?;
        self.single_at = Some(now);
        Some((key, SubModelsWanted::Path))
    }
}

impl XClient {
    /// Asks for what is due, behind whatever was posted so far.
    #[inline]
    pub(super) fn ask_for_refresh<Q: QueuePair>(&mut self, queue: &mut Q) -> Result<(), XStoreError> {
        let refreshes = &self.refreshes;
        let is_due = refreshes.due.is_some() || refreshes.walked.is_some();
        if is_due && refreshes.asked.is_none() { self.post_refresh(queue) } else { Ok(()) }
    }

    fn post_refresh<Q: QueuePair>(&mut self, queue: &mut Q) -> Result<(), XStoreError> {
        let Some(model) = self.model.as_ref().filter(|_| self.access == Access::OneSided) else {
            return Ok(());
        };
        let generation = model.generation();
        let Some((key, mut wanted)) = self.refreshes.choose(queue.now()) else { return Ok(()) };
        if model.is_full() {
            // Neighbours would drive out what is used.
            wanted = SubModelsWanted::Path;
        }
        Request::sub_models(&mut self.request, self.cache.table().id, key, wanted, generation);
        self.refreshes.asked = Some(Refresh { generation, installed: None });
        queue.post_call(const { request_slot::<Q>() }, &self.request)?;
        Ok(queue.doorbell()?)
    }

    /// Takes what was requested, if it is there, and installs some of it.
    #[inline]
    pub(super) fn take_refresh<Q: QueuePair>(&mut self, queue: &mut Q) -> Result<(), XStoreError> {
        let Some(asked) = self.refreshes.asked else { return Ok(()) };
        if asked.installed.is_some() {
            self.go_on_installing(asked);
            return Ok(());
        }
        queue.poll()?;
        if !queue.is_complete(const { request_slot::<Q>() }) {
            return Ok(());
        }
        self.refreshes.asked = None;
        queue.take_reply(const { request_slot::<Q>() }, &mut self.refreshes.reply)?;
        self.go_on_installing(Refresh { installed: Some(Installed::default()), ..asked });
        Ok(())
    }

    fn go_on_installing(&mut self, asked: Refresh) {
        self.refreshes.asked = None;
        let frame = std::mem::take(&mut self.refreshes.reply);
        let installed = Reply::decode(&frame)
            .map_err(XStoreError::from)
            .and_then(|reply| self.install_some(asked, &reply?));
        self.refreshes.reply = frame;
        // Of a refusal, or a reply that is none, the operation at hand must not know: it may be a write that
        // has been executed. An operation that needs what was requested requests it again, or falls back.
        drop(installed);
    }

    /// Installs the next few sub-models of the reply to `asked`, and notes what is left of it.
    fn install_some(&mut self, asked: Refresh, reply: &Reply<'_>) -> Result<(), XStoreError> {
        let Refresh { generation, installed } = asked;
        if !are_of_one_generation(reply.argument, generation) {
            self.refreshes.newest = reply.argument;
            return Ok(());
        }
        let Some(model) = self.model.as_ref().filter(|model| model.generation() == generation) else {
            return Ok(());
        };
        let mut rest = reply.words()?;
        rest.take_last("the key behind sub-models")?;
        let all = rest.len();
        rest.take("what was installed of a reply", installed.unwrap_or_default().words)?;
        let mut sent = ModelReader::new(rest);
        for _ in 0..INSTALLED_TOGETHER {
            let Some(part) = sent.read()? else { return Ok(()) };
            self.cache.install_part(model, &part)?;
            self.counters.sub_models_fetched += 1;
        }
        let installed = Some(Installed { words: all - sent.rest().len() });
        self.refreshes.asked = Some(Refresh { installed, ..asked });
        Ok(())
    }

    /// True if writes have missed a model, or the newest, for long enough that they should wait for it.
    #[inline]
    pub(super) fn wants_model(&self) -> bool {
        let Refreshes { newest, unrouted, .. } = self.refreshes;
        let generation = self.model.as_ref().map_or(0, |model| model.generation());
        self.access == Access::OneSided && (newest > generation || unrouted >= MODEL_MISSES)
    }

    /// Fetches the newest top model. Nothing else may be in flight.
    pub(super) fn fetch_model<Q: QueuePair>(&mut self, queue: &mut Q) -> Result<(), XStoreError> {
        let newest = self.refreshes.newest.max(1);
        // Whatever comes of it: it is requested again only when another reply names a newer one, or after as
        // many writes without.
        (self.refreshes.newest, self.refreshes.unrouted) = (0, 0);
        self.fetch_generation(queue, newest)
    }
}

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
//! requests it, though not more often than its retraining can have changed it. Of sub-models that a GET had
//! to walk from, it requests one now and then by itself: the more it is used the sooner it is its turn. The
//! top model is fetched, and waited for, after a number of writes without one; GETs without a model bring it
//! along.

use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_fabric::{QueuePair, Slot};
use farsight_protocol::{Reply, Request, SubModelsReader};

use super::cache::CachedModel;
use super::scan::SCAN_SLOTS;
use super::{Access, BATCH, XClient, XStoreError};

/// Sub-models of a page: some 7 kB, which a session copies out of the ring in a fraction of a batch's time.
const PAGE_SUB_MODELS: u32 = 32;
/// Misses that a page may cost before it is fetched: the server sends a page in about the time of so many
/// descents.
const PAGE_MISSES: u16 = 25;
/// Least time between two requests for a page.
const PAGE_INTERVAL: Duration = Duration::from_millis(100);
/// Least time between two requests for a single sub-model.
const SINGLE_INTERVAL: Duration = Duration::from_millis(1);
/// Sub-models installed by one operation: about a microsecond's work. A page is through after four batches of
/// GETs.
const INSTALLED_TOGETHER: u32 = 8;
/// Writes without a model before it is fetched: a session that writes little never needs it.
const MODEL_MISSES: u32 = 1024;
/// The slot of the request: the last, which no batch of GETs and no group of scans uses.
pub(super) const fn request_slot<Q: QueuePair>() -> Slot {
    assert!(SCAN_SLOTS > BATCH && Q::SLOTS > SCAN_SLOTS, "a slot behind those of batches and scans");
    Q::SLOTS - 1
}

/// Misses of a page since it was requested, and when that was.
#[derive(Clone, Copy, Default)]
struct Page {
    misses: u16,
    asked_at: Option<MonotonicNs>,
}

/// A run of neighbouring sub-models.
#[derive(Clone, Copy)]
struct Wanted {
    first: u32,
    count: u32,
}

/// A request under way, or its reply.
#[derive(Clone, Copy)]
struct Asked {
    wanted: Wanted,
    generation: u64,
    /// The reply is there, and so much of it has been installed; `None`: it is awaited.
    installed: Option<Installed>,
}

/// What was installed of a reply.
#[derive(Clone, Copy, Default)]
struct Installed {
    sub_models: u32,
    words: usize,
}

/// What a session knows of its model's age.
#[derive(Default)]
pub(super) struct Refreshes {
    /// The pages of this generation.
    generation: u64,
    pages: Vec<Page>,
    /// A page whose misses have reached the price.
    due: Option<u32>,
    /// The rest of a page that did not fit into one reply.
    rest: Option<Wanted>,
    /// A sub-model that a GET walked from.
    walked: Option<u32>,
    single_at: Option<MonotonicNs>,
    asked: Option<Asked>,
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
        let pages = model.top().sub_model_count().div_ceil(PAGE_SUB_MODELS) as usize;
        // The rest of a reply goes with the generation that it is of.
        let asked = self.asked.take().filter(|asked| asked.installed.is_none());
        *self = Self {
            generation: model.generation(),
            pages: vec![Page::default(); pages],
            asked,
            ..Self::default()
        };
    }

    /// Counts an operation that was sent wrong by `sub_model`, or for want of it.
    #[inline]
    pub(super) fn count_miss(&mut self, sub_model: u32) {
        let index = sub_model / PAGE_SUB_MODELS;
        if let Some(page) = self.pages.get_mut(index as usize) {
            page.misses += 1;
            if page.misses >= PAGE_MISSES {
                page.misses = 0;
                self.due = Some(index);
            }
        }
    }

    /// Counts an operation for which `sub_model` was not there.
    #[cold]
    pub(super) fn count_unfetched(&mut self, model: &CachedModel, sub_model: u32) {
        self.follow(model);
        self.count_miss(sub_model);
    }

    /// Counts a GET that had to walk from a leaf that `sub_model` named.
    pub(super) fn count_walk(&mut self, sub_model: u32) {
        self.walked = Some(sub_model);
        self.count_miss(sub_model);
    }

    /// True if there is nothing to take, to install or to ask for.
    #[inline(always)]
    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_none() && self.due.is_none() && self.rest.is_none() && self.walked.is_none()
    }

    /// Counts writes without a model.
    pub(super) fn count_unrouted(&mut self, writes: usize) {
        self.unrouted = self.unrouted.saturating_add(writes as u32);
    }

    /// What to ask for now, if anything.
    fn choose(&mut self, now: MonotonicNs) -> Option<Wanted> {
        let is_past =
            |asked_at: Option<MonotonicNs>, interval| asked_at.is_none_or(|at| now.since(at) >= interval);
        if let Some(rest) = self.rest.take() {
            return Some(rest);
        }
        if let Some(index) = self.due.take()
            && let Some(page) = self.pages.get_mut(index as usize)
            && is_past(page.asked_at, PAGE_INTERVAL)
        {
            page.asked_at = Some(now);
            return Some(Wanted { first: index * PAGE_SUB_MODELS, count: PAGE_SUB_MODELS });
        }
        let first = self.walked.take().filter(|_| is_past(self.single_at, SINGLE_INTERVAL))?;
        self.single_at = Some(now);
        Some(Wanted { first, count: 1 })
    }
}

impl XClient {
    /// Asks for what is due, behind whatever was posted so far.
    #[inline]
    pub(super) fn ask_for_refresh<Q: QueuePair>(&mut self, queue: &mut Q) -> Result<(), XStoreError> {
        let refreshes = &self.refreshes;
        let is_due = refreshes.due.is_some() || refreshes.rest.is_some() || refreshes.walked.is_some();
        if is_due && refreshes.asked.is_none() { self.post_refresh(queue) } else { Ok(()) }
    }

    fn post_refresh<Q: QueuePair>(&mut self, queue: &mut Q) -> Result<(), XStoreError> {
        let Some(model) = self.model.as_ref().filter(|_| self.access == Access::OneSided) else {
            return Ok(());
        };
        let generation = model.generation();
        let Some(wanted) = self.refreshes.choose(queue.now()) else { return Ok(()) };
        let table = self.cache.table().id;
        Request::sub_models(&mut self.request, table, wanted.first, wanted.count as u8, generation);
        self.refreshes.asked = Some(Asked { wanted, generation, installed: None });
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
        self.go_on_installing(Asked { installed: Some(Installed::default()), ..asked });
        Ok(())
    }

    fn go_on_installing(&mut self, asked: Asked) {
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

    /// Installs the next few sub-models of the reply to `asked`, and notes what is left of it or of the page.
    fn install_some(&mut self, asked: Asked, reply: &Reply<'_>) -> Result<(), XStoreError> {
        let Asked { wanted: Wanted { first, count }, generation, installed } = asked;
        if reply.argument != generation {
            self.refreshes.newest = reply.argument;
            return Ok(());
        }
        let Some(model) = self.model.as_ref().filter(|model| model.generation() == generation) else {
            return Ok(());
        };
        let Installed { sub_models: before, words } = installed.unwrap_or_default();
        let mut rest = reply.words()?;
        rest.take("what was installed of a reply", words)?;
        let mut sent = SubModelsReader::new(rest);
        let mut installed = before;
        while installed < before + INSTALLED_TOGETHER
            && let Some(sub_model) = sent.sub_model()?
        {
            self.cache.install_sub_model(model, &sub_model)?;
            installed += 1;
        }
        self.counters.sub_models_fetched += u64::from(installed - before);
        let words = words + rest.len() - sent.rest().len();
        if !sent.rest().is_empty() {
            let installed = Some(Installed { sub_models: installed, words });
            self.refreshes.asked = Some(Asked { installed, ..asked });
            return Ok(());
        }
        let end = (first + count).min(model.top().sub_model_count());
        let next = first.saturating_add(installed);
        self.refreshes.rest =
            (installed > 0 && next < end).then(|| Wanted { first: next, count: end - next });
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

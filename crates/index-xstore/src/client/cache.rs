//! XCache: a process's copy of a table's model and translation table, shared by its sessions and filled on
//! demand.
//!
//! Invariant: nothing in the cache is a proof. A sub-model that is stale, half of another or plainly wrong
//! costs a READ or a call, for the leaf's own fences decide. What is installed is checked once: leaf numbers
//! lie below the region's capacity. What is read is kept inside the region and the arena once more, because a
//! block may be others' by then.
//!
//! Protocol: a *generation* is one top model with room for its sub-models. One that fits a line is in its
//! *own*, written anew where it stands ([`OwnLines`]). Any other is in a block of the [`Arena`] that its
//! *place* names. Another block is filled, then its place is stored anew and the own line left, then the old
//! block is given back, for whatever comes next. Sessions take nothing and wait for nobody. A new generation
//! replaces the whole; a session notices by comparing one number a batch. The generation *before* stays, and
//! routes the keys whose sub-models were not fetched anew yet, until all are. With a budget it stays only if
//! it leaves half of that to the newest, which drives out what is idle ([`Generation`]).

use std::sync::{Arc, PoisonError, Weak};

use farsight_base::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering};
use farsight_base::words::Widest;
use farsight_base::{LINE_BYTES, LeafNumber, RegionId};
use farsight_index::CacheStats;
use farsight_layout::TableEntry;
use farsight_model::TopModel;
use farsight_protocol::{DecodeError, SentBranch, SentModel, SentSubModel, TableInfo};

use super::arena::BlockKind;
use super::block::{RECORD_WORDS, hinted_leaf_in_line};
use super::leaf::LeafReader;
use super::refresh::Refreshes;
use super::{BATCH, XStoreError};
#[cfg(injected)]
use crate::injected;

mod generation;
#[cfg(all(test, any(loom, shuttle)))]
mod models;
mod place;
mod predictor;

/// Keys of a batch, a bit each.
pub(super) type BatchKeys = u64;

const _: () = assert!(BATCH == BatchKeys::BITS as usize, "a bit for each key");

pub(super) use generation::Generation;
pub(super) use place::Place;
pub use predictor::{Asked, Predictor};

use generation::Filled;

/// Lines prefetched of any block of more than one, and of a *long* one.
const ASKED_LINES: usize = 3;
const LONG_ASKED_LINES: usize = 7;
/// Sub-models and branches for each leaf of the region at most. Training makes about one for every two dozen.
const SUB_MODELS_PER_LEAF_MAX: u64 = 2;
/// How many times the sub-models of the generation before there may be for that to be of use.
const GROWTH_MAX: u32 = 4;
/// Parts of the newest generation that are installed while no key needs the one before, until that is let go.
/// Nobody may want some numbers again: those of keys that are gone.
const UNUSED_MAX: u32 = 256;
/// Lines for each leaf of the region at most, with all that lies unused between blocks. Training makes about
/// an eighth of one.
const LINES_PER_LEAF_MAX: u64 = 4;

/// What routes keys: a generation, and the one before for the keys of sub-models not fetched yet.
pub(super) struct CachedModel {
    newest: Arc<Generation>,
    before: Option<Arc<Generation>>,
    /// Parts that were installed since a key had to be routed by the generation before.
    installed_unused: AtomicU32,
}

/// Where a key's sub-model is in a generation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Located {
    /// Its number.
    pub(super) number: u32,
    /// Its place; nowhere if it was not fetched.
    pub(super) place: Place,
    /// Its page.
    pub(super) page: PageNumber,
}

impl Located {
    /// The number of the innermost that was fetched on the way to the key; all ones if nothing was.
    pub(super) fn known(&self) -> u32 {
        if self.place.is_nowhere() { self.page.branch().unwrap_or(u32::MAX) } else { self.number }
    }
}

/// Which page a sub-model is of: of neighbouring numbers of the top model, or of one branch's children.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct PageNumber(u64);

impl PageNumber {
    const BRANCH: u64 = 1 << 32;
    /// Neighbouring numbers of the top model that are sent together.
    const TOP_NUMBERS: u32 = 32;

    #[inline(always)]
    pub(super) fn of_top(number: u32) -> Self {
        Self(u64::from(number / Self::TOP_NUMBERS))
    }

    fn of_branch(number: u32) -> Self {
        Self(Self::BRANCH | u64::from(number))
    }

    /// The branch whose children they are, if they are.
    fn branch(self) -> Option<u32> {
        (self.0 & Self::BRANCH != 0).then_some(self.0 as u32)
    }
}

/// A process's cache for one table.
pub struct XCache {
    table: TableInfo,
    /// The region of the leaves. The table names several, and each GET wants this one.
    region: RegionId,
    reader: LeafReader,
    region_leaves: u32,
    edition: AtomicU64,
    /// Bytes of memory that the cache may take.
    budget_bytes: AtomicU64,
    installed: Mutex<InstalledModels>,
    /// Numbers that the server was told to keep values under.
    numbers_given: AtomicU64,
}

/// The models that were installed.
#[derive(Default)]
struct InstalledModels {
    current: Option<Arc<CachedModel>>,
    /// Generations that were let go, as long as a session has them.
    left: Vec<Weak<Generation>>,
}

impl InstalledModels {
    /// Makes `model` the current one.
    fn replace(&mut self, model: CachedModel) {
        let model = Arc::new(model);
        if let Some(replaced) = self.current.replace(Arc::clone(&model)) {
            let is_kept = |left: &&Arc<Generation>| model.shared().any(|kept| Arc::ptr_eq(kept, left));
            self.left.extend(replaced.shared().filter(|left| !is_kept(left)).map(Arc::downgrade));
        }
        self.left.retain(|left| left.strong_count() > 0);
    }

    /// Bytes of memory that those generations take that are no longer current.
    fn left_bytes(&self) -> u64 {
        self.left.iter().filter_map(Weak::upgrade).map(|left| left.memory_bytes()).sum()
    }
}

/// Bits of an edition below its generation: each change of what routes keys is another one. A session that
/// sleeps through exactly all of them goes on with what it has.
const CHANGE_BITS: u32 = 16;

/// The last generation that has editions.
const GENERATION_MAX: u64 = u64::MAX >> CHANGE_BITS;

/// The edition behind `edition`, of this generation.
const fn next_edition(edition: u64, generation: u64) -> u64 {
    let is_same = edition >> CHANGE_BITS == generation;
    let change = if is_same { edition + 1 } else { 0 };
    generation << CHANGE_BITS | change & ((1 << CHANGE_BITS) - 1)
}

impl XCache {
    /// An empty cache for `table`, whose region has `region_bytes`.
    ///
    /// # Errors
    /// [`XStoreError::Table`] if the value size is outside the format.
    pub fn new(table: &TableInfo, region_bytes: u64) -> Result<Arc<Self>, XStoreError> {
        let reader = LeafReader::new(table.definition.values.leaf_bytes())?;
        let fitting = region_bytes / reader.leaf_bytes() as u64;
        let region_leaves = u64::from(table.capacity_leaves()).min(fitting) as u32;
        Ok(Arc::new(Self {
            table: table.clone(),
            region: table.region(),
            reader,
            region_leaves,
            edition: AtomicU64::new(0),
            budget_bytes: AtomicU64::new(u64::MAX),
            installed: Mutex::default(),
            numbers_given: AtomicU64::new(0),
        }))
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> &TableInfo {
        &self.table
    }

    /// A number under which the server keeps a value for a session. It never recurs, for the process has one
    /// cache for a table, and the server looks at client and table.
    pub(super) fn next_number(&self) -> u64 {
        // Relaxed: nothing but the number is shared.
        self.numbers_given.fetch_add(1, Ordering::Relaxed)
    }

    /// How the table's leaves are read.
    #[inline]
    pub(super) fn reader(&self) -> &LeafReader {
        &self.reader
    }

    /// What the cache holds now.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        let installed = self.lock();
        let Some(current) = &installed.current else { return CacheStats::default() };
        let mut stats = current.stats();
        stats.memory_bytes += installed.left_bytes();
        stats
    }

    /// The region of the table's leaves.
    #[inline(always)]
    pub(super) fn region(&self) -> RegionId {
        self.region
    }

    /// The newest generation installed; zero: none.
    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.edition() >> CHANGE_BITS
    }

    /// The newest generation's edition; zero: none.
    #[inline]
    pub(super) fn edition(&self) -> u64 {
        // Relaxed: only a hint to look; `current` synchronizes by its mutex.
        self.edition.load(Ordering::Relaxed)
    }

    pub(super) fn current(&self) -> Option<Arc<CachedModel>> {
        self.lock().current.clone()
    }

    fn lock(&self) -> MutexGuard<'_, InstalledModels> {
        self.installed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes `top` the newest generation, unless that or a newer one is there already. A few words can ask
    /// for any number of sub-models: more than a region of this size can need are refused.
    pub(super) fn install(&self, generation: u64, top: TopModel) -> Result<(), XStoreError> {
        let leaves = u64::from(self.region_leaves);
        let most = (SUB_MODELS_PER_LEAF_MAX * leaves).min(u64::from(Place::NUMBERS_MAX));
        let count = u64::from(top.sub_model_count());
        if count > most {
            let expected = format!("up to {most} sub-models in a region of {leaves} leaves");
            return Err(DecodeError::new("a top model", 8, expected, count.to_string()).into());
        }
        if generation > GENERATION_MAX {
            let expected = format!("up to {GENERATION_MAX}");
            return Err(DecodeError::new("a generation", 0, expected, generation.to_string()).into());
        }
        let mut installed = self.lock();
        let current = &installed.current;
        #[cfg(injected)]
        if injected::STALE_MODEL_KEPT.is_injected() && current.is_some() {
            return Ok(());
        }
        if current.as_ref().is_none_or(|model| model.generation() < generation) {
            let budget_bytes = self.budget_bytes();
            // After a bulk load the one before knows next to nothing: its keys would walk long chains.
            let knows_most = |before: &&Arc<CachedModel>| {
                u64::from(before.top().sub_model_count()) * u64::from(GROWTH_MAX) >= count
            };
            let before = current.as_ref().filter(knows_most).map(|model| Arc::clone(&model.newest));
            let before = before.filter(|before| before.memory_bytes() <= budget_bytes / 2);
            let left_bytes = budget_bytes - before.as_ref().map_or(0, |before| before.memory_bytes());
            let newest = Generation::new(generation, top, leaves, most, left_bytes).map(Arc::new);
            let newest = newest.ok_or(XStoreError::NoMemory { sub_models: count })?;
            self.replace(&mut installed, CachedModel::new(newest, before));
        }
        Ok(())
    }

    /// Lets the generation before that of `model` go, which keys hardly need any more.
    fn forget_before(&self, model: &CachedModel) {
        let mut installed = self.lock();
        let is_current = |current: &&Arc<CachedModel>| Arc::ptr_eq(&current.newest, &model.newest);
        if installed.current.as_ref().filter(is_current).is_some_and(|model| model.before.is_some()) {
            self.replace(&mut installed, CachedModel::new(Arc::clone(&model.newest), None));
            // What the generation before had is the newest one's. It may have no use for it, in own lines.
            let _ = model.newest.set_budget(self.budget_bytes());
        }
    }

    /// Makes `model` the current one, in another edition.
    fn replace(&self, installed: &mut InstalledModels, model: CachedModel) {
        let edition = next_edition(self.edition(), model.generation());
        installed.replace(model);
        // Relaxed: as in `edition`. Under the lock nobody else stores it.
        self.edition.store(edition, Ordering::Relaxed);
    }

    /// Bytes of memory that the cache may take; the greatest number: as many as it needs.
    #[must_use]
    pub fn budget_bytes(&self) -> u64 {
        // Relaxed: a number of its own, which is stored under the lock of what it is for.
        self.budget_bytes.load(Ordering::Relaxed)
    }

    /// Makes `bytes` what the cache may take, from now on. A generation that takes more, or would be laid out
    /// otherwise, begins anew: its sub-models are fetched again as they are used. The top model alone is
    /// kept whatever it takes.
    ///
    /// # Errors
    /// [`XStoreError::NoMemory`]; then everything stays as it was.
    pub fn set_budget_bytes(&self, bytes: u64) -> Result<(), XStoreError> {
        let mut installed = self.lock();
        if bytes == self.budget_bytes() {
            return Ok(());
        }
        if let Some(current) = installed.current.clone() {
            let before = current.before.clone().filter(|before| before.memory_bytes() <= bytes / 2);
            let left_bytes = bytes - before.as_ref().map_or(0, |before| before.memory_bytes());
            let kept = &current.newest;
            if kept.is_laid_out_for(left_bytes) && kept.set_budget(left_bytes) {
                self.replace(&mut installed, CachedModel::new(Arc::clone(kept), before));
            } else {
                let sub_models = u64::from(current.top().sub_model_count());
                let anew = kept.begun_anew(bytes).map(Arc::new);
                let anew = anew.ok_or(XStoreError::NoMemory { sub_models })?;
                self.replace(&mut installed, CachedModel::new(anew, None));
            }
        }
        self.budget_bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// True if a READ of this leaf stays inside the region.
    #[inline(always)]
    pub(super) fn is_leaf(&self, leaf: LeafNumber) -> bool {
        #[cfg(injected)]
        if injected::BOUNDS_NOT_CHECKED.is_injected() {
            return true;
        }
        leaf.0 < self.region_leaves
    }

    /// Leaves that the region holds, in use or not.
    pub(super) fn region_leaves(&self) -> u32 {
        self.region_leaves
    }

    /// Installs what the server sent of a model, after checking every number in it.
    pub(super) fn install_part(&self, model: &CachedModel, sent: &SentModel<'_>) -> Result<(), XStoreError> {
        let is_complete = match sent {
            SentModel::SubModel(sent) => self.install_sub_model(&model.newest, sent)?,
            SentModel::Branch(sent) => install_branch(&model.newest, sent)?,
        };
        if model.before.is_some() && (is_complete || model.count_installed() >= UNUSED_MAX) {
            self.forget_before(model);
        }
        Ok(())
    }

    fn install_sub_model(&self, model: &Generation, sent: &SentSubModel<'_>) -> Result<bool, XStoreError> {
        check_number(model, "a sub-model's number", sent.number)?;
        let entries: Vec<u64> = sent.entries.iter().collect();
        let foreign = entries.iter().map(|word| TableEntry(*word)).find(|entry| !self.is_leaf(entry.leaf()));
        if let Some(entry) = foreign {
            let expected = format!("a leaf below {}", self.region_leaves);
            return Err(DecodeError::new("a table entry", 0, expected, entry.leaf().to_string()).into());
        }
        #[cfg(injected)]
        if injected::STALE_MODEL_KEPT.is_injected() && model.has(sent.number) {
            return Ok(false);
        }
        Ok(sent.record.leaf_count > 0 && model.put(sent.number, &sent.record, &entries))
    }
}

/// Installs a branch: its children are numbers of this model, its boundaries ascend.
fn install_branch(model: &Generation, sent: &SentBranch<'_>) -> Result<bool, XStoreError> {
    check_number(model, "a branch's number", sent.number)?;
    for child in sent.children() {
        check_number(model, "a branch's child", child)?;
    }
    let mut before = None;
    for boundary in sent.boundaries.iter() {
        if before.is_some_and(|before| boundary <= before) {
            let (expected, got) = (format!("more than {before:?}"), boundary.to_string());
            return Err(DecodeError::new("a branch's boundary", 0, expected, got).into());
        }
        before = Some(boundary);
    }
    Ok(model.put_branch(sent))
}

fn check_number(model: &Generation, what: &'static str, number: u32) -> Result<(), XStoreError> {
    let most = model.numbers_max();
    if u64::from(number) < most {
        return Ok(());
    }
    Err(DecodeError::new(what, 0, format!("below {most}"), number.to_string()).into())
}

impl CachedModel {
    fn new(newest: Arc<Generation>, before: Option<Arc<Generation>>) -> Self {
        Self { newest, before, installed_unused: AtomicU32::new(0) }
    }

    /// Counts a part that was installed. Returns how many were since the generation before was used.
    fn count_installed(&self) -> u32 {
        // Relaxed, as below: the count says when memory may go, and nothing else.
        self.installed_unused.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes that a key of this page has to be routed by the generation before. Not of pages below branches:
    /// where the newest has cut, leaves are others, and the generation before knows little.
    fn note_before_used(&self, page: PageNumber) {
        if page.branch().is_none() && self.before.is_some() {
            self.installed_unused.store(0, Ordering::Relaxed);
        }
    }

    /// What it holds.
    fn stats(&self) -> CacheStats {
        let Filled { of_top, sub_models, .. } = self.newest.filled();
        let missing = self.newest.numbers_with_keys.saturating_sub(of_top);
        let mut stats = CacheStats {
            generation: self.generation(),
            sub_models: sub_models + missing,
            sub_models_filled: sub_models,
            ..CacheStats::default()
        };
        for generation in self.generations() {
            let index_bytes = size_of_val(&*generation.places) + generation.own_lines.index_bytes();
            let top_bytes = generation.top.heap_bytes() + index_bytes;
            let Filled { sub_models, in_lines, in_own_lines, branches, .. } = generation.filled();
            let [record_words, long_record_words] = RECORD_WORDS;
            let record_bytes = 8 * (in_lines * record_words + (sub_models - in_lines) * long_record_words);
            let branch_bytes = branches * (BlockKind::Branch.lines() * LINE_BYTES) as u64;
            stats.model_bytes += top_bytes as u64 + record_bytes + branch_bytes;
            let lines = in_own_lines + generation.arena.live_lines() as u64;
            stats.table_bytes += (lines * LINE_BYTES as u64).saturating_sub(record_bytes + branch_bytes);
            stats.memory_bytes += generation.memory_bytes();
        }
        stats
    }

    pub(super) fn generation(&self) -> u64 {
        self.newest.number
    }

    #[inline(always)]
    pub(super) fn top(&self) -> &TopModel {
        &self.newest.top
    }

    /// The place of one of the top model's numbers; by default nowhere, if it was not fetched.
    #[inline(always)]
    pub(super) fn place(&self, number: u32) -> Place {
        self.newest.place(number)
    }

    /// Where the sub-model of `key` is, below the top model too; nowhere if it was not fetched.
    pub(super) fn locate(&self, key: u64) -> Located {
        self.newest.locate(key)
    }

    /// Where the generation before has the sub-model of `key`; by default nowhere.
    #[cold]
    pub(super) fn place_before(&self, key: u64) -> Place {
        self.before.as_ref().map_or(Place::default(), |before| before.locate(key).place.before())
    }

    /// [`CachedModel::locate`] and its page. If it was not fetched, that is counted, and the place is that of
    /// the generation before.
    pub(super) fn locate_or_before(&self, key: u64, refreshes: &mut Refreshes) -> (Place, PageNumber) {
        let (place, page, is_fetched) = self.locate_in_either(key);
        if !is_fetched {
            refreshes.count_unfetched(self, page, key);
        }
        (place, page)
    }

    /// [`CachedModel::locate_or_before`] for a GET: what a full cache lacks is READ at once, and its
    /// neighbours would drive others out.
    pub(super) fn locate_for_get(&self, key: u64, refreshes: &mut Refreshes) -> Place {
        let (place, page, is_fetched) = self.locate_in_either(key);
        let is_read = place.is_nowhere() && self.is_full();
        if !(is_fetched || is_read) {
            refreshes.count_unfetched(self, page, key);
        }
        place
    }

    /// The place of the sub-model of `key`, or that of the generation before; its page; and if the newest has
    /// it.
    fn locate_in_either(&self, key: u64) -> (Place, PageNumber, bool) {
        let Located { place, page, .. } = self.locate(key);
        if !place.is_nowhere() {
            return (place, page, true);
        }
        self.note_before_used(page);
        (self.place_before(key), page, false)
    }

    /// [`CachedModel::locate_for_get`] of some keys of a batch whose `places` so far are the top model's,
    /// and of what is there a prefetch. Returns those that have no sub-model.
    #[inline(never)]
    pub(super) fn locate_all(
        &self,
        keys: &[u64],
        places: &mut [Place; BATCH],
        below: BatchKeys,
        refreshes: &mut Refreshes,
    ) -> BatchKeys {
        let mut lacking = 0;
        self.newest.descend_all(keys, places, below);
        for (index, place) in places.iter_mut().enumerate() {
            if below >> index & 1 == 1 && !place.is_sub_model() {
                *place = self.locate_for_get(keys[index], refreshes);
                self.prefetch(*place);
                lacking |= BatchKeys::from(place.is_nowhere()) << index;
            }
        }
        lacking
    }

    /// The leaf from which on to look for `key`, whose sub-model was not fetched.
    pub(super) fn leaf_left_of(&self, key: u64) -> Option<LeafNumber> {
        self.newest.leaf_left_of(key)
    }

    /// Asks for a sub-model's block.
    #[inline(always)]
    pub(super) fn prefetch(&self, place: Place) {
        if place.is_newest() {
            self.newest.prefetch(place);
        } else {
            self.prefetch_before(place);
        }
    }

    #[cold]
    fn prefetch_before(&self, place: Place) {
        if let Some(before) = self.before.as_ref().filter(|_| !place.is_nowhere()) {
            before.prefetch(place);
        }
    }

    /// The likeliest leaf of `key`, whose sub-model is not prefetched yet; [`LeafNumber::NONE`] if it was not
    /// fetched of the newest generation.
    #[inline(always)]
    pub(super) fn predict(&self, key: u64) -> LeafNumber {
        let mut place = self.place(self.top().dispatch(key));
        if !place.is_sub_model() {
            place = self.locate(key).place;
        }
        if place.is_nowhere() {
            return LeafNumber::NONE;
        }
        self.newest.prefetch(place);
        self.newest.likeliest(place, key)
    }

    /// [`CachedModel::predict`], or [`LeafNumber::NONE`] if that takes more than a glance at the top
    /// model and at a sub-model of few leaves. Calls nothing: what a caller has in registers stays there.
    #[inline(always)]
    pub(super) fn predict_at_once(&self, key: u64, widest: Widest) -> LeafNumber {
        let Some(sub_model) = self.top().dispatch_at_once(key) else { return LeafNumber::NONE };
        let own_lines = &self.newest.own_lines;
        if own_lines.is_taken(sub_model) {
            return hinted_leaf_in_line(own_lines.line(sub_model), key, widest);
        }
        let place = self.newest.place_in_lines(sub_model);
        if !place.is_sub_model() || !place.is_of_few_lines() {
            return LeafNumber::NONE;
        }
        self.newest.hinted_leaf_of_short(place, key, widest)
    }

    /// The likeliest leaf of `key`, by the sub-model in a place, which is its own; [`LeafNumber::NONE`] if
    /// that is nowhere.
    #[inline(always)]
    pub(super) fn likeliest(&self, place: Place, key: u64) -> LeafNumber {
        if place.is_newest() { self.newest.likeliest(place, key) } else { self.former_likeliest(place, key) }
    }

    #[cold]
    fn former_likeliest(&self, place: Place, key: u64) -> LeafNumber {
        let before = self.before.as_ref().filter(|_| !place.is_nowhere());
        before.map_or(LeafNumber::NONE, |before| before.likeliest(place, key))
    }

    /// True if the newest generation drives something out for whatever comes in.
    pub(super) fn is_full(&self) -> bool {
        self.newest.is_full()
    }

    /// The newest generation.
    pub(super) fn newest(&self) -> &Generation {
        &self.newest
    }

    /// True if `generation`, one of this model's, is the newest.
    pub(super) fn is_newest(&self, generation: &Generation) -> bool {
        generation.number == self.newest.number
    }

    /// The generations that route keys, the newest first.
    pub(super) fn generations(&self) -> impl Iterator<Item = &Generation> {
        self.shared().map(|generation| &**generation)
    }

    fn shared(&self) -> impl Iterator<Item = &Arc<Generation>> {
        std::iter::once(&self.newest).chain(&self.before)
    }
}

//! XCache: a process's copy of a table's model and translation table, shared by its sessions and filled on
//! demand.
//!
//! Invariant: nothing in the cache is a proof. A sub-model that is stale, half of another or plainly wrong
//! costs a READ or a call, for the leaf's own fences decide. What is installed is checked once, so that no
//! later use can lead out of the region or of the arena. Leaf numbers lie below the region's capacity.
//!
//! Protocol: a *generation* is one top model with room for its sub-models. One that fits a line is in its
//! *own*, written anew where it stands ([`OwnLines`]). Any other is in a block of the [`Arena`] that its
//! *place* names. Another block is filled, then its place is stored anew and the own line left, then the old
//! block is given back, for sub-models of as many leaves. Sessions take nothing and wait for nobody. A new
//! generation replaces the whole; a session notices by comparing one number a batch. The generation *before*
//! stays, and routes the keys whose sub-models were not fetched anew yet, until all are.

use std::sync::{Arc, PoisonError};

use farsight_base::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use farsight_base::words::{Widest, prefetch_lines};
use farsight_base::{LINE_BYTES, LeafNumber, RegionId, WORDS_PER_LINE};
use farsight_index::CacheStats;
use farsight_layout::{SubModelRecord, TableEntry};
use farsight_model::TopModel;
use farsight_protocol::{DecodeError, SentSubModel, TableInfo};

use super::XStoreError;
use super::arena::{Arena, LINES_MAX, VIEW_WORDS};
use super::block::{
    Block, CachedSubModel, RECORD_WORDS, block_lines, block_of, likeliest_at_once, likeliest_in_line,
    likeliest_of_few,
};
use super::leaf::LeafReader;
use super::own_lines::OwnLines;
#[cfg(injected)]
use crate::injected;

#[cfg(all(test, any(loom, shuttle)))]
mod models;
mod predictor;

pub use predictor::{Asked, Predictor};

/// Lines prefetched of any block of more than one, and of a *long* one.
const ASKED_LINES: usize = 3;
const LONG_ASKED_LINES: usize = 7;
/// Sub-models for each leaf of the region at most. Training makes about one for every two dozen.
const SUB_MODELS_PER_LEAF_MAX: u64 = 2;
/// How many times the sub-models of the generation before there may be for that to be of use.
const GROWTH_MAX: u32 = 4;
/// Lines for each leaf of the region at most, with all that blocks for other numbers of leaves leave unused.
/// Training makes about an eighth of one.
const LINES_PER_LEAF_MAX: u64 = 4;

/// One generation of a table's model, as far as it was fetched.
pub(super) struct Generation {
    number: u64,
    pub(super) top: TopModel,
    own_lines: OwnLines,
    /// The place of each sub-model that is not in its own line.
    places: Box<[AtomicU32]>,
    arena: Arena,
    /// Serializes installers; readers never take it.
    filled: Mutex<Filled>,
}

/// How far a generation was fetched.
#[derive(Clone, Copy, Default)]
struct Filled {
    sub_models: u64,
    /// How many of them are in their own lines.
    in_own_lines: u64,
}

/// What routes keys: a generation, and the one before for the keys of sub-models not fetched yet.
pub(super) struct CachedModel {
    newest: Arc<Generation>,
    before: Option<Arc<Generation>>,
}

/// Where a sub-model is, and in which generation; by default nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Place(u32);

/// A process's cache for one table.
pub struct XCache {
    table: TableInfo,
    reader: LeafReader,
    region_leaves: u32,
    edition: AtomicU64,
    current: Mutex<Option<Arc<CachedModel>>>,
}

/// A generation's edition: the second is the one that no longer needs the generation before.
const fn edition(generation: u64, is_second: bool) -> u64 {
    generation << 1 | is_second as u64
}

/// The last generation that has editions.
const GENERATION_MAX: u64 = u64::MAX >> 1;

impl XCache {
    /// An empty cache for `table`, whose region has `region_bytes`.
    ///
    /// # Errors
    /// [`XStoreError::Table`] if the value size is outside the format.
    pub fn new(table: &TableInfo, region_bytes: u64) -> Result<Arc<Self>, XStoreError> {
        let reader = LeafReader::new(usize::from(table.definition.value_bytes))?;
        let fitting = region_bytes / reader.leaf_bytes() as u64;
        let region_leaves = u64::from(table.capacity_leaves()).min(fitting) as u32;
        Ok(Arc::new(Self {
            table: table.clone(),
            reader,
            region_leaves,
            edition: AtomicU64::new(0),
            current: Mutex::new(None),
        }))
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> &TableInfo {
        &self.table
    }

    /// How the table's leaves are read.
    #[inline]
    pub(super) fn reader(&self) -> &LeafReader {
        &self.reader
    }

    /// What the cache holds now.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.current().map_or_else(CacheStats::default, |model| model.stats())
    }

    #[inline]
    pub(super) fn region(&self) -> RegionId {
        self.table.region()
    }

    /// The newest generation installed; zero: none.
    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.edition() >> 1
    }

    /// The newest generation's edition; zero: none.
    #[inline]
    pub(super) fn edition(&self) -> u64 {
        // Relaxed: only a hint to look; `current` synchronizes by its mutex.
        self.edition.load(Ordering::Relaxed)
    }

    pub(super) fn current(&self) -> Option<Arc<CachedModel>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes `top` the newest generation, unless that or a newer one is there already. A few words can ask
    /// for any number of sub-models: more than a region of this size can need are refused.
    pub(super) fn install(&self, generation: u64, top: TopModel) -> Result<(), XStoreError> {
        let leaves = u64::from(self.region_leaves);
        let most = (SUB_MODELS_PER_LEAF_MAX * leaves).min(u64::from(Place::SUB_MODELS_MAX));
        let count = u64::from(top.sub_model_count());
        if count > most {
            let expected = format!("up to {most} sub-models in a region of {leaves} leaves");
            return Err(DecodeError::new("a top model", 8, expected, count.to_string()).into());
        }
        if generation > GENERATION_MAX {
            let expected = format!("up to {GENERATION_MAX}");
            return Err(DecodeError::new("a generation", 0, expected, generation.to_string()).into());
        }
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        #[cfg(injected)]
        if injected::STALE_MODEL_KEPT.is_injected() && current.is_some() {
            return Ok(());
        }
        if current.as_ref().is_none_or(|model| model.generation() < generation) {
            let newest = Generation::new(generation, top, leaves).map(Arc::new);
            let newest = newest.ok_or(XStoreError::NoMemory { sub_models: count })?;
            // After a bulk load the one before knows next to nothing: its keys would walk long chains.
            let knows_most = |before: &&Arc<CachedModel>| {
                u64::from(before.top().sub_model_count()) * u64::from(GROWTH_MAX) >= count
            };
            let before = current.as_ref().filter(knows_most).map(|model| Arc::clone(&model.newest));
            *current = Some(Arc::new(CachedModel { newest, before }));
            self.edition.store(edition(generation, false), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Lets the generation before `complete` go, which no key needs any more.
    fn forget_before(&self, complete: &CachedModel) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let is_current = |model: &&Arc<CachedModel>| Arc::ptr_eq(&model.newest, &complete.newest);
        if current.as_ref().filter(is_current).is_some_and(|model| model.before.is_some()) {
            *current = Some(Arc::new(CachedModel { newest: Arc::clone(&complete.newest), before: None }));
            self.edition.store(edition(complete.generation(), true), Ordering::Relaxed);
        }
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

    /// Installs a sub-model that the server sent, after checking every entry.
    pub(super) fn install_sub_model(
        &self,
        model: &CachedModel,
        sent: &SentSubModel<'_>,
    ) -> Result<(), XStoreError> {
        let count = model.top().sub_model_count();
        let Some(index) = u32::try_from(sent.index).ok().filter(|index| *index < count) else {
            let expected = format!("below {count}");
            return Err(DecodeError::new("a sub-model's number", 0, expected, sent.index.to_string()).into());
        };
        let entries: Vec<u64> = sent.entries.iter().collect();
        let foreign = entries.iter().map(|word| TableEntry(*word)).find(|entry| !self.is_leaf(entry.leaf()));
        if let Some(entry) = foreign {
            let expected = format!("a leaf below {}", self.region_leaves);
            return Err(DecodeError::new("a table entry", 0, expected, entry.leaf().to_string()).into());
        }
        #[cfg(injected)]
        if injected::STALE_MODEL_KEPT.is_injected() && !model.place(index).is_nowhere() {
            return Ok(());
        }
        if sent.record.leaf_count > 0
            && model.newest.put(index, &sent.record, &entries) == Some(u64::from(count))
            && model.before.is_some()
        {
            self.forget_before(model);
        }
        Ok(())
    }
}

impl Generation {
    /// A generation of a region with so many `leaves`; `None` if there is no memory for its sub-models.
    fn new(number: u64, top: TopModel, leaves: u64) -> Option<Self> {
        Some(Self {
            number,
            own_lines: OwnLines::new(top.sub_model_count())?,
            places: (0..top.sub_model_count()).map(|_| AtomicU32::new(0)).collect(),
            top,
            arena: Arena::new((LINES_PER_LEAF_MAX * leaves) as usize),
            filled: Mutex::default(),
        })
    }

    /// The place of sub-model `index`; by default nowhere, if it was not fetched.
    #[inline(always)]
    fn place(&self, index: u32) -> Place {
        if self.own_lines.is_taken(index) { Place::own_line_of(index) } else { self.place_in_lines(index) }
    }

    /// [`Generation::place`] of a sub-model that is not in its own line.
    #[inline(always)]
    fn place_in_lines(&self, index: u32) -> Place {
        // Acquire: a block is read after it was written. Partner: the Release store in `put`.
        Place(self.places[index as usize].load(Ordering::Acquire))
    }

    /// The sub-model in a place of this generation, or another one that was put there since; `None` if that
    /// is nowhere.
    #[inline(always)]
    fn at(&self, place: Place) -> Option<CachedSubModel<'_>> {
        if place.is_nowhere() {
            None
        } else if place.is_own_line() {
            Some(CachedSubModel::in_line(self.own_lines.line(place.number())))
        } else {
            CachedSubModel::in_lines(self.arena.words_from(place.number()))
        }
    }

    /// Sub-model `index`, if it was fetched.
    #[inline(always)]
    pub(super) fn sub_model(&self, index: u32) -> Option<CachedSubModel<'_>> {
        self.at(self.place(index))
    }

    /// Asks for the block in a place of this generation, which is somewhere.
    #[inline(always)]
    fn prefetch(&self, place: Place) {
        if place.is_own_line() {
            return prefetch_lines::<1>(&self.own_lines.line(place.number())[0]);
        }
        let view: &[AtomicU64; VIEW_WORDS] = self.arena.view(place.number());
        prefetch_lines::<ASKED_LINES>(&view[0]);
        if place.is_long() {
            prefetch_lines::<{ LONG_ASKED_LINES - ASKED_LINES }>(&view[ASKED_LINES * WORDS_PER_LINE]);
        }
    }

    /// The likeliest leaf of `key`, by the sub-model in a place of this generation, which is its own.
    #[inline(always)]
    fn likeliest(&self, place: Place, key: u64) -> LeafNumber {
        let Some(widest) = Widest::if_known() else { return self.likeliest_of_many(place, key) };
        if place.is_own_line() {
            return likeliest_in_line(self.own_lines.line(place.number()), key, widest);
        }
        let at_once = likeliest_at_once(self.arena.view(place.number()), key, widest);
        if let Some(leaf) = at_once { leaf } else { self.likeliest_of_many(place, key) }
    }

    #[inline(never)]
    fn likeliest_of_many(&self, place: Place, key: u64) -> LeafNumber {
        self.at(place).map_or(LeafNumber::NONE, |sub_model| sub_model.likeliest(key))
    }

    /// What was fetched.
    fn filled(&self) -> Filled {
        *self.filled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a sub-model into its place. Returns how many have been fetched if this one had not.
    fn put(&self, index: u32, record: &SubModelRecord, entries: &[u64]) -> Option<u64> {
        let mut filled = self.filled.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.place(index);
        let old_leaves = self.at(old).map(|sub_model| sub_model.leaf_count());
        let was_own_line = old.is_own_line();
        let block = block_of(record, entries);
        match &block {
            Block::Line(words) => self.own_lines.put(index, words),
            Block::Lines(words) => {
                // Too large for the arena: the sub-model stays as it was; unfetched, its keys are the
                // server's to look up.
                let line = self.arena.put(record.leaf_count, words)?;
                let place = Place::of_block(line, record.leaf_count);
                // Release: the block was written before it is named. Partner: the Acquire load in
                // `place_in_lines`.
                self.places[index as usize].store(place.0, Ordering::Release);
                self.own_lines.leave(index);
            }
        }
        filled.in_own_lines += u64::from(matches!(block, Block::Line(_)));
        filled.in_own_lines -= u64::from(was_own_line);
        let Some(old_leaves) = old_leaves else {
            filled.sub_models += 1;
            return Some(filled.sub_models);
        };
        if !was_own_line {
            self.arena.free(old.number(), old_leaves);
        }
        None
    }
}

impl CachedModel {
    /// What it holds.
    fn stats(&self) -> CacheStats {
        let mut stats = CacheStats {
            generation: self.generation(),
            sub_models: u64::from(self.top().sub_model_count()),
            sub_models_filled: self.newest.filled().sub_models,
            ..CacheStats::default()
        };
        for generation in std::iter::once(&self.newest).chain(&self.before) {
            let index_bytes = size_of_val(&*generation.places) + generation.own_lines.index_bytes();
            let top_bytes = 8 * generation.top.to_words().len() + index_bytes;
            let Filled { sub_models, in_own_lines } = generation.filled();
            let [record_words, long_record_words] = RECORD_WORDS;
            let record_bytes =
                8 * (in_own_lines * record_words + (sub_models - in_own_lines) * long_record_words);
            stats.model_bytes += top_bytes as u64 + record_bytes;
            let lines = in_own_lines + generation.arena.live_lines() as u64;
            stats.table_bytes += (lines * LINE_BYTES as u64).saturating_sub(record_bytes);
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

    /// The place of sub-model `index`; by default nowhere, if it was not fetched.
    #[inline(always)]
    pub(super) fn place(&self, index: u32) -> Place {
        self.newest.place(index)
    }

    /// Where the generation before has the sub-model of `key`; by default nowhere.
    #[cold]
    pub(super) fn place_before(&self, key: u64) -> Place {
        self.before
            .as_ref()
            .map_or(Place::default(), |before| before.place(before.top.dispatch(key)).before())
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
    pub(super) fn likeliest_now(&self, key: u64) -> LeafNumber {
        let place = self.place(self.top().dispatch(key));
        if place.is_nowhere() {
            return LeafNumber::NONE;
        }
        self.newest.prefetch(place);
        self.newest.likeliest(place, key)
    }

    /// [`CachedModel::likeliest_now`], or [`LeafNumber::NONE`] if that takes more than a glance at the top
    /// model and at a sub-model of few leaves. Calls nothing: what a caller has in registers stays there.
    #[inline(always)]
    pub(super) fn likeliest_at_a_glance(&self, key: u64, widest: Widest) -> LeafNumber {
        let Some(sub_model) = self.top().dispatch_at_once(key) else { return LeafNumber::NONE };
        let own_lines = &self.newest.own_lines;
        if own_lines.is_taken(sub_model) {
            return likeliest_in_line(own_lines.line(sub_model), key, widest);
        }
        let place = self.newest.place_in_lines(sub_model);
        if place.is_nowhere() || place.is_long() {
            return LeafNumber::NONE;
        }
        self.newest.prefetch(place);
        likeliest_of_few(self.newest.arena.view(place.number()), key, widest).unwrap_or(LeafNumber::NONE)
    }

    /// The likeliest leaf of `key`, by the sub-model in a place, which is its own; [`LeafNumber::NONE`] if
    /// that is nowhere.
    #[inline(always)]
    pub(super) fn likeliest(&self, place: Place, key: u64) -> LeafNumber {
        if place.is_newest() { self.newest.likeliest(place, key) } else { self.likeliest_before(place, key) }
    }

    #[cold]
    fn likeliest_before(&self, place: Place, key: u64) -> LeafNumber {
        let before = self.before.as_ref().filter(|_| !place.is_nowhere());
        before.map_or(LeafNumber::NONE, |before| before.likeliest(place, key))
    }

    /// True if `generation`, one of this model's, is the newest.
    pub(super) fn is_newest(&self, generation: &Generation) -> bool {
        generation.number == self.newest.number
    }

    /// The generations that route keys, the newest first.
    pub(super) fn generations(&self) -> impl Iterator<Item = &Generation> {
        std::iter::once(&self.newest).chain(&self.before).map(|generation| &**generation)
    }
}

impl Place {
    /// A place in the generation before.
    const BEFORE: u32 = 1 << 31;
    /// A block of more lines than [`ASKED_LINES`].
    const LONG: u32 = 1 << 30;
    /// A sub-model's own line.
    const OWN_LINE: u32 = 1 << 29;
    /// Sub-models that places can name.
    const SUB_MODELS_MAX: u32 = Self::OWN_LINE;

    fn of_block(line: u32, leaves: u32) -> Self {
        const { assert!(LINES_MAX <= Self::OWN_LINE as usize, "a place names any line") };
        Self(if block_lines(leaves) > ASKED_LINES { line | Self::LONG } else { line })
    }

    #[inline(always)]
    fn own_line_of(sub_model: u32) -> Self {
        Self(sub_model | Self::OWN_LINE)
    }

    /// The same place, of the generation before; by default nowhere.
    fn before(self) -> Self {
        if self == Self::default() { self } else { Self(self.0 | Self::BEFORE) }
    }

    /// The block's first line, or the number of the sub-model whose own line it is.
    #[inline(always)]
    fn number(self) -> u32 {
        self.0 & (Self::OWN_LINE - 1)
    }

    #[inline(always)]
    fn is_own_line(self) -> bool {
        self.0 & Self::OWN_LINE != 0
    }

    #[inline(always)]
    fn is_long(self) -> bool {
        self.0 & Self::LONG != 0
    }

    /// True if it is somewhere, and in the newest generation.
    #[inline(always)]
    fn is_newest(self) -> bool {
        self.0.wrapping_sub(1) < Self::BEFORE - 1
    }

    /// True if nothing was fetched there.
    #[inline(always)]
    pub(super) fn is_nowhere(self) -> bool {
        self == Self::default()
    }
}

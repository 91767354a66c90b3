//! XCache: a process's copy of a table's model and translation table, shared by its sessions and filled on
//! demand.
//!
//! Invariant: nothing in the cache is a proof. A sub-model that is stale, half of another or plainly wrong
//! costs a READ or a call, for the leaf's own fences decide. What is installed is checked once, so that no
//! later use can lead out of the region or of the arena: leaf numbers lie below the region's capacity.
//!
//! Protocol: a *generation* is one top model with room for its sub-models, each in a block of the [`Arena`]
//! that its *place* names. A refreshed sub-model is put in another block, then its place is stored anew, then
//! the old block is given back, for sub-models of as many leaves. Sessions take nothing and wait for nobody.
//! A new generation replaces the whole; a session notices by comparing one number a batch.

use std::sync::{Arc, PoisonError};

#[cfg(planted)]
use farsight_base::sync::planted::{Bug, is_planted};
use farsight_base::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use farsight_base::words::prefetch_lines;
use farsight_base::{LINE_BYTES, LeafNumber, RegionId, WORDS_PER_LINE};
use farsight_layout::{Geometry, SUB_MODEL_WORDS, SubModelRecord, TableEntry};
use farsight_model::TopModel;
use farsight_protocol::{DecodeError, SentSubModel, TableInfo};

use super::XStoreError;
use super::arena::Arena;
use super::block::{CachedSubModel, block_length, block_words, likeliest_at_once};

#[cfg(all(test, any(loom, shuttle)))]
mod models;

/// Lines asked for of a block, which are all that most have.
const ASKED_LINES: usize = 3;
/// Sub-models for each leaf of the region at most. Training makes about one for every two dozen.
const SUB_MODELS_PER_LEAF_MAX: u64 = 2;
/// Lines for each leaf of the region at most, with all that blocks for other numbers of leaves leave unused.
/// Training makes about an eighth of one.
const LINES_PER_LEAF_MAX: u64 = 4;

/// One generation of a table's model, as far as it was fetched.
pub(super) struct CachedModel {
    generation: u64,
    top: TopModel,
    /// Each sub-model's place.
    places: Box<[AtomicU32]>,
    arena: Arena,
    /// Serializes installers; readers never take it.
    filled: Mutex<u64>,
}

/// Where a sub-model's block begins; by default nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Place(u32);

/// A process's cache for one table.
pub struct XCache {
    table: TableInfo,
    geometry: Geometry,
    region_leaves: u32,
    generation: AtomicU64,
    current: Mutex<Option<Arc<CachedModel>>>,
}

/// What a cache holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStats {
    /// The generation of the model; zero: none yet.
    pub generation: u64,
    /// Sub-models of that generation.
    pub sub_models: u64,
    /// Sub-models fetched so far.
    pub sub_models_filled: u64,
    /// Bytes of the top model and the sub-models' records.
    pub model_bytes: u64,
    /// Bytes of the translation table, and of what blocks leave unused.
    pub table_bytes: u64,
}

impl XCache {
    /// An empty cache for `table`, whose region has `region_bytes`.
    ///
    /// # Errors
    /// [`XStoreError::Table`] if the value size is outside the format.
    pub fn new(table: &TableInfo, region_bytes: u64) -> Result<Arc<Self>, XStoreError> {
        let geometry = Geometry::new(usize::from(table.definition.value_bytes))?;
        let fitting = region_bytes / geometry.leaf_bytes() as u64;
        let region_leaves = u64::from(table.capacity_leaves).min(fitting) as u32;
        Ok(Arc::new(Self {
            table: table.clone(),
            geometry,
            region_leaves,
            generation: AtomicU64::new(0),
            current: Mutex::new(None),
        }))
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> &TableInfo {
        &self.table
    }

    /// Where things stand in the table's leaves.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// What the cache holds now.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        let Some(model) = self.current() else { return CacheStats::default() };
        let filled = *model.filled.lock().unwrap_or_else(PoisonError::into_inner);
        let top_bytes = 8 * model.top.to_words().len() + size_of_val(&*model.places);
        let record_bytes = filled as usize * 8 * SUB_MODEL_WORDS;
        CacheStats {
            generation: model.generation,
            sub_models: u64::from(model.top.sub_model_count()),
            sub_models_filled: filled,
            model_bytes: (top_bytes + record_bytes) as u64,
            table_bytes: (model.arena.live_lines() * LINE_BYTES - record_bytes) as u64,
        }
    }

    pub(super) fn region(&self) -> RegionId {
        self.table.region()
    }

    /// The newest generation installed; zero: none.
    #[inline]
    pub(super) fn generation(&self) -> u64 {
        // Relaxed: only a hint to look; `current` synchronizes by its mutex.
        self.generation.load(Ordering::Relaxed)
    }

    pub(super) fn current(&self) -> Option<Arc<CachedModel>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes `top` the newest generation, unless that or a newer one is there already. A few words can ask
    /// for any number of sub-models: more than a region of this size can need are refused.
    pub(super) fn install(&self, generation: u64, top: TopModel) -> Result<(), XStoreError> {
        let leaves = u64::from(self.region_leaves);
        let (count, most) = (u64::from(top.sub_model_count()), SUB_MODELS_PER_LEAF_MAX * leaves);
        if count > most {
            let expected = format!("up to {most} sub-models in a region of {leaves} leaves");
            return Err(DecodeError::new("a top model", 8, expected, count.to_string()).into());
        }
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        #[cfg(planted)]
        if is_planted(Bug::StaleModelKept) && current.is_some() {
            return Ok(());
        }
        if current.as_ref().is_none_or(|model| model.generation < generation) {
            *current = Some(Arc::new(CachedModel::new(generation, top, leaves)));
            self.generation.store(generation, Ordering::Relaxed);
        }
        Ok(())
    }

    /// True if a READ of this leaf stays inside the region.
    #[inline(always)]
    pub(super) fn is_leaf(&self, leaf: LeafNumber) -> bool {
        #[cfg(planted)]
        if is_planted(Bug::BoundsNotChecked) {
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
        let count = model.top.sub_model_count();
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
        #[cfg(planted)]
        if is_planted(Bug::StaleModelKept) && model.place(index).is_some() {
            return Ok(());
        }
        if sent.record.leaf_count > 0 {
            model.put(index, &sent.record, &entries);
        }
        Ok(())
    }
}

impl CachedModel {
    /// A model of a region with so many `leaves`.
    fn new(generation: u64, top: TopModel, leaves: u64) -> Self {
        Self {
            generation,
            places: (0..top.sub_model_count()).map(|_| AtomicU32::new(0)).collect(),
            top,
            arena: Arena::new((LINES_PER_LEAF_MAX * leaves) as usize),
            filled: Mutex::new(0),
        }
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    #[inline(always)]
    pub(super) fn top(&self) -> &TopModel {
        &self.top
    }

    /// The place of sub-model `index`; by default nowhere, if it was not fetched.
    #[inline(always)]
    pub(super) fn place(&self, index: u32) -> Place {
        // Acquire: a block is read after it was written. Partner: the Release store in `put`.
        Place(self.places[index as usize].load(Ordering::Acquire))
    }

    /// Asks for a sub-model's block.
    #[inline(always)]
    pub(super) fn prefetch(&self, place: Place) {
        if place != Place::default() {
            prefetch_lines::<ASKED_LINES>(&self.arena.view(place.0)[0]);
        }
    }

    /// The sub-model in a place, or another one that was put there since; `None` if that is nowhere.
    #[inline(always)]
    pub(super) fn at(&self, place: Place) -> Option<CachedSubModel<'_>> {
        if place == Place::default() { None } else { CachedSubModel::at(self.arena.words_from(place.0)) }
    }

    /// The likeliest leaf of `key`, whose sub-model is not asked for yet; [`LeafNumber::NONE`] if it was not
    /// fetched.
    #[inline(always)]
    pub(super) fn likeliest_now(&self, key: u64) -> LeafNumber {
        let place = self.place(self.top.dispatch(key));
        if place == Place::default() {
            return LeafNumber::NONE;
        }
        let view = self.arena.view(place.0);
        prefetch_lines::<ASKED_LINES>(&view[0]);
        let at_once = likeliest_at_once(view, key);
        if let Some(leaf) = at_once { leaf } else { self.likeliest_of_many(place, key) }
    }

    /// The likeliest leaf of `key`, by the sub-model in a place, which is its own; [`LeafNumber::NONE`] if
    /// that is nowhere.
    #[inline(always)]
    pub(super) fn likeliest(&self, place: Place, key: u64) -> LeafNumber {
        if place == Place::default() {
            return LeafNumber::NONE;
        }
        let at_once = likeliest_at_once(self.arena.view(place.0), key);
        if let Some(leaf) = at_once { leaf } else { self.likeliest_of_many(place, key) }
    }

    #[inline(never)]
    fn likeliest_of_many(&self, place: Place, key: u64) -> LeafNumber {
        self.at(place).map_or(LeafNumber::NONE, |sub_model| sub_model.likeliest(key))
    }

    /// Sub-model `index`, if it was fetched.
    #[inline(always)]
    pub(super) fn sub_model(&self, index: u32) -> Option<CachedSubModel<'_>> {
        self.at(self.place(index))
    }

    fn put(&self, index: u32, record: &SubModelRecord, entries: &[u64]) {
        let mut filled = self.filled.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.place(index);
        // Too large for the arena: the sub-model stays unfetched, its keys are the server's to look up.
        let Some(line) = self.arena.put(record.leaf_count, block_words(record, entries)) else { return };
        // Release: the block was written before it is named. Partner: the Acquire load in `place`.
        self.places[index as usize].store(line, Ordering::Release);
        match self.at(old) {
            Some(sub_model) => {
                let leaves = sub_model.leaf_count();
                self.arena.free(old.0, leaves, block_length(leaves).div_ceil(WORDS_PER_LINE));
            }
            None => *filled += 1,
        }
    }
}

impl Place {
    /// True if something was fetched there.
    #[cfg(planted)]
    fn is_some(self) -> bool {
        self != Self::default()
    }
}

//! XCache: a process's copy of a table's model and translation table, shared by its sessions and filled on
//! demand.
//!
//! Invariant: nothing in the cache is a proof. A record or entry that is stale, half of another generation or
//! plainly wrong costs a READ or a call, for the leaf's own fences decide. What is installed is checked once,
//! so that no later use can lead out of the region or of the arena: leaf numbers lie below the region's
//! capacity.
//!
//! Protocol: a *generation* is one top model with room for its sub-models. Records stand two to a stamped
//! line (seqlocked: [`farsight_base::words`]) with the offsets of their blocks in the [`Arena`]; a refreshed
//! sub-model is put in a new block, then its record is swapped under its line's stamp, then the old block is
//! given back. A new generation replaces the whole; a session notices by comparing one number a batch.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use farsight_base::search::{BOUNDED_WORDS_MAX, first_above};
#[cfg(planted)]
use farsight_base::sync::planted::{Bug, is_planted};
use farsight_base::sync::{AtomicU64, Mutex, Ordering};
use farsight_base::words::{begin_write, end_write, prefetch, prefetch_next_line, read_stamped_words};
use farsight_base::{LeafNumber, RegionId, WORDS_PER_LINE};
use farsight_index::model_of;
use farsight_layout::{Geometry, SUB_MODEL_WORDS, SubModelRecord, TableEntry};
use farsight_model::{KeyHint, SubModel, TopModel};
use farsight_protocol::{DecodeError, SentSubModel, TableInfo};

use super::XStoreError;
use super::arena::Arena;

#[cfg(all(test, any(loom, shuttle)))]
mod models;

const RECORDS_PER_LINE: usize = 2;
const OFFSETS_WORD: usize = 7;
/// Sub-models for each leaf of the region at most. Training makes about one for every two dozen.
const SUB_MODELS_PER_LEAF_MAX: u64 = 2;

/// Table entries for each leaf of the region at most, with all that blocks of other sizes leave unused.
/// Training makes little more than one.
const ENTRIES_PER_LEAF_MAX: u64 = 16;

/// A stamped line of two records in the client's own memory.
#[repr(C, align(64))]
struct RecordLine([AtomicU64; WORDS_PER_LINE]);

/// One generation of a table's model, as far as it was fetched.
pub(super) struct CachedModel {
    generation: u64,
    top: TopModel,
    lines: Box<[RecordLine]>,
    arena: Arena,
    /// Serializes installers; readers never take it.
    filled: Mutex<u64>,
}

/// A record with the place of its part of the translation table.
#[derive(Clone, Copy, Debug)]
pub(super) struct CachedSubModel {
    pub(super) model: SubModel,
    pub(super) offset: u32,
}

/// Some neighbouring entries of one sub-model's table; by default none.
#[derive(Clone, Copy, Default)]
pub(super) struct Window<'a> {
    entries: &'a [AtomicU64],
}

impl Window<'_> {
    /// True of the window of a sub-model that was not fetched.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Asks for the lines that [`Window::choose`] touches: a vector load of eight entries waits for both of
    /// its lines, though the window may end in the first.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        prefetch(&self.entries[0]);
        prefetch_next_line(&self.entries[0]);
    }

    /// Entry `index` of the window.
    #[inline(always)]
    pub(super) fn entry(&self, index: u32) -> TableEntry {
        // Relaxed: any entry ever stored here is usable; the leaf's fences decide.
        TableEntry(self.entries[index as usize].load(Ordering::Relaxed))
    }

    /// The entries that may own the key, as indices; the last is the likeliest.
    #[inline(always)]
    pub(super) fn choose(&self, key: KeyHint) -> Range<u32> {
        let [surely, perhaps] = key.greatest_below().map(TableEntry::greatest_word);
        let first = self.last_at_most(surely);
        // Looked at twice: entries that were replaced in between may disagree.
        first..self.last_at_most(perhaps).max(first) + 1
    }

    /// The leaf of the likeliest entry: the last that is at most `bound`.
    #[inline(always)]
    pub(super) fn leaf(&self, bound: u64) -> LeafNumber {
        self.entry(self.last_at_most(bound)).leaf()
    }

    /// The index of the last entry that is at most `bound`, or the first one's.
    #[inline(always)]
    pub(super) fn last_at_most(&self, bound: u64) -> u32 {
        let rest = &self.entries[1..];
        if rest.len() <= BOUNDED_WORDS_MAX { first_above(rest, bound) } else { halved(rest, bound) }
    }
}

/// [`first_above`] of many entries, by halving.
#[inline(never)]
fn halved(entries: &[AtomicU64], bound: u64) -> u32 {
    // Relaxed: as in `Window::entry`.
    entries.partition_point(|entry| entry.load(Ordering::Relaxed) <= bound) as u32
}

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
    /// Bytes of the translation table's entries.
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
        let top_bytes = 8 * model.top.to_words().len();
        CacheStats {
            generation: model.generation,
            sub_models: u64::from(model.top.sub_model_count()),
            sub_models_filled: filled,
            model_bytes: (top_bytes + size_of_val(&*model.lines)) as u64,
            table_bytes: model.arena.live_bytes() as u64,
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
        if is_planted(Bug::StaleModelKept) && model.sub_model(index).is_some() {
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
        let lines = (top.sub_model_count() as usize).div_ceil(RECORDS_PER_LINE);
        let empty_line = || RecordLine(std::array::from_fn(|_| AtomicU64::new(0)));
        Self {
            generation,
            top,
            lines: (0..lines).map(|_| empty_line()).collect(),
            arena: Arena::new((ENTRIES_PER_LEAF_MAX * leaves) as usize),
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

    /// Asks for the line that holds sub-model `index`.
    #[inline(always)]
    pub(super) fn prefetch_sub_model(&self, index: u32) {
        prefetch(&self.lines[index as usize / RECORDS_PER_LINE].0[0]);
    }

    /// Sub-model `index`, if it was fetched and is not being replaced at this moment.
    #[inline(always)]
    pub(super) fn sub_model(&self, index: u32) -> Option<CachedSubModel> {
        let line = &self.lines[index as usize / RECORDS_PER_LINE].0;
        let place = index as usize % RECORDS_PER_LINE;
        let first = 1 + place * SUB_MODEL_WORDS;
        let words = [first, first + 1, first + 2, OFFSETS_WORD];
        let read = read_stamped_words(line, words)?;
        let record = SubModelRecord::from_words([read[0], read[1], read[2]]);
        let offset = (read[3] >> (32 * place)) as u32;
        (record.leaf_count > 0).then(|| CachedSubModel { model: model_of(&record), offset })
    }

    /// The table entries at `window` of `sub_model`; of another sub-model if that was refreshed meanwhile.
    #[inline(always)]
    pub(super) fn window(&self, sub_model: &CachedSubModel, window: &Range<u32>) -> Window<'_> {
        self.entries(sub_model.offset + window.start, window.end - window.start)
    }

    /// The table entries that may own `key`, whose sub-model is number `index`, and the greatest entry that
    /// may; `None` if the sub-model was not fetched.
    #[inline(always)]
    pub(super) fn predict(&self, index: u32, key: u64) -> Option<(Window<'_>, u64)> {
        let sub_model = self.sub_model(index)?;
        let window = self.window(&sub_model, &sub_model.model.predict(key));
        let [_, perhaps] = sub_model.model.key_hint(key).greatest_below();
        Some((window, TableEntry::greatest_word(perhaps)))
    }

    /// `count` table entries from place `first` of the arena on.
    #[inline(always)]
    pub(super) fn entries(&self, first: u32, count: u32) -> Window<'_> {
        Window { entries: self.arena.entries(first as usize, count as usize) }
    }

    fn put(&self, index: u32, record: &SubModelRecord, entries: &[u64]) {
        let mut filled = self.filled.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.sub_model(index);
        // Too large for the arena: the sub-model stays unfetched, its keys are the server's to look up.
        let Some(offset) = self.arena.put(entries) else { return };
        let line = &self.lines[index as usize / RECORDS_PER_LINE].0;
        let place = index as usize % RECORDS_PER_LINE;
        let shift = 32 * place;
        let stamp = begin_write(line);
        for (word, content) in record.to_words().into_iter().enumerate() {
            line[1 + place * SUB_MODEL_WORDS + word].store(content, Ordering::Relaxed);
        }
        let offsets = line[OFFSETS_WORD].load(Ordering::Relaxed) & !(0xffff_ffff << shift);
        line[OFFSETS_WORD].store(offsets | u64::from(offset) << shift, Ordering::Relaxed);
        end_write(line, stamp);
        match old {
            Some(old) => self.arena.free(old.offset, old.model.leaf_count as usize),
            None => *filled += 1,
        }
    }
}

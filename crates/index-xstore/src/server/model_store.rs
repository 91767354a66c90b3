//! The models as clients fetch them, and which of them are out of date.
//!
//! Invariants:
//! - a generation's top model never changes; its sub-models are replaced one by one, whole;
//! - a sub-model that names a leaf whose incarnation changed after that leaf was collected is *pending*,
//!   until it is trained again.
//!
//! The second holds because both sides go in opposite order. The tree changes the leaf, then marks the
//! sub-models whose dispatch intervals meet its fences. The trainer takes a mark away, then collects the
//! leaves. A mark that is set twice before it is taken counts once: pending work merges.
//!
//! A whole training replaces the marks, too. Those that were set while it ran are carried over by key range.
//! A mark is set under the read lock of the current model, the swap happens under its write lock, so no mark
//! is lost between the two.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use farsight_base::clock::MonotonicNs;
use farsight_base::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, RwLock};
use farsight_base::words::prefetch;
use farsight_index::LeafListener;
use farsight_layout::{Fences, SUB_MODEL_WORDS, SubModelRecord};
use farsight_model::TopModel;
use farsight_protocol::ModelStats;

use super::tree::ALL_KEYS;
#[cfg(injected)]
use crate::injected;

/// The keys dispatched to a sub-model, both ends included; `None` if there are none.
pub(super) type Interval = Option<(u64, u64)>;

/// One sub-model and its part of the translation table, ready to be sent.
#[derive(Clone, PartialEq, Debug)]
pub struct SubModelImage {
    /// The sub-model.
    pub record: SubModelRecord,
    /// Its table: the words of one `farsight_layout::TableEntry` a leaf.
    pub entries: Box<[u64]>,
}

/// One whole training's model.
pub struct PublishedModel {
    generation: u64,
    top: TopModel,
    top_words: Vec<u64>,
    intervals: Vec<Interval>,
    sub_models: Vec<RwLock<Arc<SubModelImage>>>,
    windows: Windows,
    pending: Pending,
}

/// What statistics say of all sub-models, kept as they are replaced: a walk over them would hold up the
/// worker that answers.
#[derive(Default)]
struct Windows {
    leaves: AtomicU64,
    leaves_max: AtomicU64,
    table_entries: AtomicU64,
}

impl Windows {
    // Relaxed throughout: statistics, written by the one trainer.
    fn add(&self, record: &SubModelRecord) {
        let window = window_leaves(record);
        self.leaves.fetch_add(window, Ordering::Relaxed);
        self.leaves_max.fetch_max(window, Ordering::Relaxed);
        self.table_entries.fetch_add(record.leaf_count.into(), Ordering::Relaxed);
    }

    fn subtract(&self, record: &SubModelRecord) {
        self.leaves.fetch_sub(window_leaves(record), Ordering::Relaxed);
        self.table_entries.fetch_sub(record.leaf_count.into(), Ordering::Relaxed);
    }
}

/// Leaves in a sub-model's predictions.
fn window_leaves(record: &SubModelRecord) -> u64 {
    (1 + u64::from(record.error_low) + u64::from(record.error_high)).min(record.leaf_count.into())
}

impl PublishedModel {
    pub(super) fn new(
        generation: u64,
        top: TopModel,
        intervals: Vec<Interval>,
        images: Vec<SubModelImage>,
    ) -> Self {
        assert_eq!(images.len(), top.sub_model_count() as usize, "one image a sub-model");
        assert_eq!(images.len(), intervals.len(), "one interval a sub-model");
        let windows = Windows::default();
        for image in &images {
            windows.add(&image.record);
        }
        Self {
            windows,
            generation,
            intervals,
            top_words: top.to_words(),
            pending: Pending::new(images.len()),
            sub_models: images.into_iter().map(|image| RwLock::new(Arc::new(image))).collect(),
            top,
        }
    }

    /// Which whole training this is, from 1.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The top model.
    #[must_use]
    pub fn top(&self) -> &TopModel {
        &self.top
    }

    /// The top model as words.
    #[must_use]
    pub fn top_words(&self) -> &[u64] {
        &self.top_words
    }

    /// The sub-model of `key`.
    #[must_use]
    pub fn dispatch(&self, key: u64) -> u32 {
        self.top.dispatch(key)
    }

    /// Sub-models.
    #[must_use]
    pub fn sub_model_count(&self) -> u32 {
        self.top.sub_model_count()
    }

    /// Sub-model `index` as it is now.
    ///
    /// # Panics
    /// If there is no such sub-model.
    #[must_use]
    pub fn sub_model(&self, index: u32) -> Arc<SubModelImage> {
        let image = self.sub_models[index as usize].read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&image)
    }

    /// The keys of sub-model `index`.
    pub(super) fn interval(&self, index: u32) -> Interval {
        self.intervals[index as usize]
    }

    /// Asks for what [`PublishedModel::sub_model`] of `index` leads to.
    pub fn prefetch_sub_model(&self, index: u32) {
        let Some(image) = self.sub_models.get(index as usize) else { return };
        prefetch(&**image.read().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn replace(&self, index: u32, image: SubModelImage) {
        self.windows.add(&image.record);
        let mut place = self.sub_models[index as usize].write().unwrap_or_else(PoisonError::into_inner);
        self.windows.subtract(&place.record);
        *place = Arc::new(image);
    }

    fn mark(&self, fences: Fences, since: MonotonicNs) {
        // An infinite high fence includes the greatest key; a finite one is above the low one.
        let last_key = fences.high.map_or(u64::MAX, |high| high - 1);
        for index in self.top.dispatch(fences.low)..=self.top.dispatch(last_key) {
            self.pending.mark(index, since);
        }
    }
}

/// Sub-models that wait to be trained again: a mark each, and the order in which they were first marked.
struct Pending {
    marks: Vec<AtomicU64>,
    queue: Mutex<VecDeque<(u32, MonotonicNs)>>,
}

impl Pending {
    fn new(sub_models: usize) -> Self {
        let marks = (0..sub_models.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { marks, queue: Mutex::new(VecDeque::new()) }
    }

    fn mark(&self, index: u32, since: MonotonicNs) {
        #[cfg(injected)]
        if injected::DROPPED_RETRAIN.is_injected() {
            return;
        }
        let bit = 1 << (index % 64);
        // AcqRel: the trainer that takes the mark sees the change that it stands for. Partner: the same in
        // `take`.
        let before = self.marks[index as usize / 64].fetch_or(bit, Ordering::AcqRel);
        if before & bit == 0 {
            self.lock_queue().push_back((index, since));
        }
    }

    /// Takes the mark that was set first.
    fn take(&self) -> Option<u32> {
        let (index, _) = self.lock_queue().pop_front()?;
        // AcqRel: the leaves are collected after this, and a mark that comes later is set anew. Partner:
        // `mark`.
        self.marks[index as usize / 64].fetch_and(!(1 << (index % 64)), Ordering::AcqRel);
        Some(index)
    }

    fn lock_queue(&self) -> MutexGuard<'_, VecDeque<(u32, MonotonicNs)>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a table's models are published.
#[derive(Default)]
pub struct ModelStore {
    current: RwLock<Option<Arc<PublishedModel>>>,
    /// Set by changes while there is no model to mark.
    changed_without_model: AtomicBool,
    /// The time of the trainer's last step: marks set since then count from it, so a lag is never
    /// understated.
    last_step_ns: AtomicU64,
    retrained: AtomicU64,
}

impl LeafListener for ModelStore {
    fn leaves_changed(&self, fences: &[Fences]) {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            Some(model) => fences.iter().for_each(|fences| model.mark(*fences, self.last_step())),
            // Relaxed: under the read lock, which orders it before the publication that looks at it.
            None => self.changed_without_model.store(true, Ordering::Relaxed),
        }
    }
}

impl ModelStore {
    /// A store without a model.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The newest generation; `None` before the first training.
    #[must_use]
    pub fn current(&self) -> Option<Arc<PublishedModel>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sub-models that wait to be trained again.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.current().map_or(0, |model| model.pending.lock_queue().len())
    }

    /// The model's statistics at `now`. The processor time that training has used is known to who runs it,
    /// and left zero.
    #[must_use]
    pub fn stats(&self, now: MonotonicNs) -> ModelStats {
        let Some(model) = self.current() else { return ModelStats::default() };
        let sub_models = u64::from(model.sub_model_count());
        let record_bytes = SUB_MODEL_WORDS as u64 * 8;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let queue = model.pending.lock_queue();
        ModelStats {
            generation: model.generation,
            sub_models,
            top_bytes: model.top_words.len() as u64 * 8,
            cache_bytes: sub_models * record_bytes + count(&model.windows.table_entries) * 8,
            window_leaves_mean: count(&model.windows.leaves) as f64 / sub_models as f64,
            window_leaves_max: count(&model.windows.leaves_max),
            retrained: count(&self.retrained),
            pending: queue.len() as u64,
            lag_ns: queue.front().map_or(0, |(_, since)| now.since(*since).as_nanos() as u64),
            training_s: 0.0,
        }
    }

    pub(super) fn begin_step(&self, now: MonotonicNs) {
        self.last_step_ns.store(now.0, Ordering::Relaxed);
    }

    /// Forgets what is pending: a whole training that begins now covers it.
    pub(super) fn begin_whole_training(&self) {
        // Acquire: the changes that the flag stands for. Partner: the read lock's release by who set it.
        self.changed_without_model.swap(false, Ordering::Acquire);
        if let Some(model) = self.current() {
            while model.pending.take().is_some() {}
        }
    }

    /// Makes all sub-models pending.
    pub(super) fn mark_all(&self) {
        self.leaves_changed(&[ALL_KEYS]);
    }

    /// Publishes a new generation, with what became pending while it was trained.
    pub(super) fn publish(&self, model: PublishedModel) {
        let model = Arc::new(model);
        let last_step = self.last_step();
        let replaced = {
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            current.replace(Arc::clone(&model))
        };
        self.retrained.store(0, Ordering::Relaxed);
        match replaced {
            Some(replaced) => {
                while let Some(index) = replaced.pending.take() {
                    if let Some((low, high)) = replaced.interval(index) {
                        let fences = Fences { low, high: high.checked_add(1) };
                        model.mark(fences, last_step);
                    }
                }
            }
            None if self.changed_without_model.load(Ordering::Relaxed) => {
                model.mark(ALL_KEYS, last_step);
            }
            None => {}
        }
    }

    /// Takes sub-models into `indices` until it is full, those that have been pending longest first. Returns
    /// their model and how many there are.
    pub(super) fn take_pending(&self, indices: &mut [u32]) -> Option<(Arc<PublishedModel>, usize)> {
        let model = self.current()?;
        let mut count = 0;
        for place in indices {
            let Some(index) = model.pending.take() else { break };
            *place = index;
            count += 1;
        }
        Some((model, count))
    }

    /// Puts a sub-model back whose training failed.
    pub(super) fn put_back(&self, model: &PublishedModel, index: u32) {
        model.pending.mark(index, self.last_step());
    }

    pub(super) fn count_retrained(&self, count: usize) {
        self.retrained.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn last_step(&self) -> MonotonicNs {
        MonotonicNs(self.last_step_ns.load(Ordering::Relaxed))
    }
}

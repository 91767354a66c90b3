//! The models as clients fetch them, and which of them are out of date.
//!
//! Invariants:
//! - a generation's top model never changes; below it sub-models are replaced, whole, one by one or by
//!   several ([`ModelTree`]);
//! - a sub-model some of whose keys went to another leaf after its leaves were collected is *pending*, until
//!   it is trained again.
//!
//! The second holds because both sides go in opposite order. The tree changes the leaves, then marks the
//! sub-models whose dispatch intervals meet the keys that went to another one. The trainer takes a mark
//! away, then collects the leaves. A mark that is set twice before it is taken counts once: pending work
//! merges.
//!
//! A whole training replaces the marks, too. Those that were set while it ran are carried over by key range.
//! A mark is set under the read lock of the current model, the swap happens under its write lock, so no mark
//! is lost between the two. So it is, within a model, with its tree's lock when sub-models are replaced.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use farsight_base::clock::MonotonicNs;
use farsight_base::sync::{
    AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use farsight_base::words::prefetch;
use farsight_fabric::Region;
use farsight_index::LeafListener;
use farsight_layout::{Fences, SUB_MODEL_WORDS, SubModelRecord};
use farsight_model::TopModel;
use farsight_protocol::ModelStats;

use super::model_tree::{Interval, ModelPath, ModelSlot, ModelTree, SubModelImage};
use super::published::ModelRegion;
use super::tree::ALL_KEYS;
#[cfg(injected)]
use crate::injected;

/// Sub-models below branches at least for which a top model is trained anew.
const BELOW_BRANCHES_MIN: u32 = 64;

/// One whole training's model.
pub struct PublishedModel {
    generation: u64,
    top: TopModel,
    top_words: Vec<u64>,
    /// Marks are set under its read lock, sub-models are replaced under its write lock.
    tree: RwLock<ModelTree>,
    windows: Windows,
    /// The sub-models that wait to be trained again, in the order in which they were marked, and since when.
    pending: Mutex<VecDeque<(u32, MonotonicNs)>>,
    /// Where all of it stands for clients to READ.
    region: Option<Arc<ModelRegion>>,
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
    /// The model of a whole training: `pieces` are those of each of the top model's numbers, which tile its
    /// keys.
    pub(super) fn new(
        generation: u64,
        top: TopModel,
        pieces: Vec<Vec<SubModelImage>>,
        region: Option<Arc<ModelRegion>>,
    ) -> Self {
        assert_eq!(pieces.len(), top.sub_model_count() as usize, "sub-models for each number");
        let windows = Windows::default();
        pieces.iter().flatten().for_each(|image| windows.add(&image.record));
        let tree = ModelTree::new(pieces);
        let (top_words, tree) = (top.to_words(), RwLock::new(tree));
        if let Some(region) = &region {
            region.begin(generation, top.sub_model_count());
        }
        Self { generation, top, top_words, tree, windows, pending: Mutex::default(), region }
    }

    /// Writes the records of up to `count` numbers from `first` on into the region. Returns the number from
    /// which on to go on, if any is left.
    pub(super) fn write_records(&self, first: u32, count: usize) -> Option<u32> {
        let region = self.region.as_ref()?;
        let numbers = self.read_tree().numbers();
        let end = (first as usize).saturating_add(count).min(numbers as usize) as u32;
        for number in first..end {
            if let Some(slot) = self.slot(number) {
                region.write(self.generation, number, &slot);
            }
        }
        (end < numbers).then_some(end)
    }

    /// Writes the records of what stands for something else by now.
    fn write_changed(&self, changed: &[(u32, ModelSlot)]) {
        if let Some(region) = &self.region {
            for (number, slot) in changed {
                region.write(self.generation, *number, slot);
            }
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

    /// The top model's numbers.
    #[must_use]
    pub fn top_count(&self) -> u32 {
        self.top.sub_model_count()
    }

    /// What `number` stands for now; `None` if it was never given out.
    #[must_use]
    pub fn slot(&self, number: u32) -> Option<ModelSlot> {
        self.read_tree().slot(number).cloned()
    }

    /// The way to the sub-model of `key`, as it is now.
    #[must_use]
    pub fn path(&self, key: u64) -> ModelPath {
        self.read_tree().path(self.top.dispatch(key), key)
    }

    /// Asks for what the slot of `number` leads to.
    pub fn prefetch_sub_model(&self, number: u32) {
        if let Some(image) = self.read_tree().sub_model(number) {
            prefetch(&**image);
        }
    }

    /// The keys of sub-model `number`; `None` if it has none, or is a branch by now.
    pub(super) fn interval(&self, number: u32) -> Interval {
        self.read_tree().sub_model(number).and_then(|image| image.interval)
    }

    /// The sub-model behind that of `path` in the same branch.
    pub(super) fn next_in_branch(&self, path: &ModelPath) -> Option<Arc<SubModelImage>> {
        self.read_tree().next_in_branch(path).map(|(_, image)| Arc::clone(image))
    }

    /// Puts `images`, which tile the keys of sub-model `number`, in its place; marks that it had go to all of
    /// them. The last is marked if it `is_unfinished`.
    pub(super) fn replace(
        &self,
        number: u32,
        images: Vec<SubModelImage>,
        is_unfinished: bool,
        since: MonotonicNs,
    ) {
        for image in &images {
            self.windows.add(&image.record);
        }
        let mut tree = self.write_tree();
        let old = tree.sub_model(number).expect("the trainer alone replaces sub-models");
        self.windows.subtract(&old.record);
        let top_number = self.top.dispatch(old.interval.map_or(0, |(low, _)| low));
        let is_one = images.len() == 1;
        let is_marked = !is_one && tree.take_mark(number);
        let numbers = tree.replace(top_number, number, images);
        let unfinished = numbers.last().filter(|_| is_unfinished);
        for number in numbers.iter().filter(|_| is_marked).chain(unfinished) {
            tree.mark(*number..=*number, (0, u64::MAX), &mut |number| self.wait(number, since));
        }
        let changed = tree.take_changed();
        drop(tree);
        self.write_changed(&changed);
    }

    /// Puts `image` in the place of the sub-model of `path` and of the next one in its branch.
    pub(super) fn merge(&self, path: &ModelPath, image: SubModelImage, since: MonotonicNs) {
        self.windows.add(&image.record);
        let mut tree = self.write_tree();
        let (next, gone) = tree.next_in_branch(path).expect("the trainer alone changes branches");
        self.windows.subtract(&gone.record);
        let kept = tree.sub_model(path.sub_model).expect("the trainer alone replaces sub-models");
        self.windows.subtract(&kept.record);
        let is_marked = tree.take_mark(next);
        tree.merge(path, image);
        if is_marked {
            let number = path.sub_model;
            tree.mark(number..=number, (0, u64::MAX), &mut |number| self.wait(number, since));
        }
        let changed = tree.take_changed();
        drop(tree);
        self.write_changed(&changed);
    }

    fn mark(&self, fences: Fences, since: MonotonicNs) {
        #[cfg(injected)]
        if injected::DROPPED_RETRAIN.is_injected() {
            return;
        }
        // An infinite high fence includes the greatest key; a finite one is above the low one.
        let last_key = fences.high.map_or(u64::MAX, |high| high - 1);
        let top_numbers = self.top.dispatch(fences.low)..=self.top.dispatch(last_key);
        self.read_tree().mark(top_numbers, (fences.low, last_key), &mut |number| self.wait(number, since));
    }

    /// Takes the sub-model that was marked first.
    fn take(&self) -> Option<u32> {
        let (number, _) = self.lock_pending().pop_front()?;
        self.read_tree().take_mark(number);
        Some(number)
    }

    fn wait(&self, number: u32, since: MonotonicNs) {
        self.lock_pending().push_back((number, since));
    }

    fn lock_pending(&self) -> MutexGuard<'_, VecDeque<(u32, MonotonicNs)>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_tree(&self) -> RwLockReadGuard<'_, ModelTree> {
        self.tree.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_tree(&self) -> RwLockWriteGuard<'_, ModelTree> {
        self.tree.write().unwrap_or_else(PoisonError::into_inner)
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
    region: Option<Arc<ModelRegion>>,
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

    /// The same that `publishes` all it is given in an unused `region`, where clients READ it. Or it does
    /// not; then the region stays empty.
    #[must_use]
    pub fn beside(region: Arc<dyn Region>, publishes: bool) -> Self {
        let lines_max = if publishes { u32::MAX } else { 0 };
        Self { region: Some(Arc::new(ModelRegion::new(region, lines_max))), ..Self::default() }
    }

    /// The region where clients READ sub-models, and of how many lines it is.
    #[must_use]
    pub fn region(&self) -> Option<(&Arc<dyn Region>, u32)> {
        self.region.as_ref().map(|region| (region.region(), region.capacity_lines()))
    }

    /// Lines of that region in use.
    #[must_use]
    pub fn used_lines(&self) -> u64 {
        self.region.as_ref().map_or(0, |region| region.used_lines())
    }

    pub(super) fn model_region(&self) -> Option<Arc<ModelRegion>> {
        self.region.clone()
    }

    /// The newest generation; `None` before the first training.
    #[must_use]
    pub fn current(&self) -> Option<Arc<PublishedModel>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sub-models that wait to be trained again.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.current().map_or(0, |model| model.lock_pending().len())
    }

    /// The model's statistics at `now`. The processor time that training has used is known to who runs it,
    /// and left zero.
    #[must_use]
    pub fn stats(&self, now: MonotonicNs) -> ModelStats {
        let Some(model) = self.current() else { return ModelStats::default() };
        let (sub_models, below) = model.read_tree().counts();
        let sub_models = u64::from(sub_models);
        let record_bytes = SUB_MODEL_WORDS as u64 * 8;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let queue = model.lock_pending();
        ModelStats {
            generation: model.generation,
            sub_models,
            sub_models_below: below.into(),
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
            while model.take().is_some() {}
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
        if let Some(region) = &self.region {
            region.publish();
        }
        let replaced = {
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            current.replace(Arc::clone(&model))
        };
        self.retrained.store(0, Ordering::Relaxed);
        match replaced {
            Some(replaced) => {
                while let Some(number) = replaced.take() {
                    if let Some((low, high)) = replaced.interval(number) {
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

    /// Takes sub-models into `numbers` until it is full, those that have been pending longest first. Returns
    /// their model and how many there are.
    pub(super) fn take_pending(&self, numbers: &mut [u32]) -> Option<(Arc<PublishedModel>, usize)> {
        let model = self.current()?;
        let mut count = 0;
        for place in numbers {
            let Some(number) = model.take() else { break };
            *place = number;
            count += 1;
        }
        Some((model, count))
    }

    /// Puts a sub-model back whose training failed.
    pub(super) fn put_back(&self, model: &PublishedModel, number: u32) {
        let since = self.last_step();
        model.read_tree().mark(number..=number, (0, u64::MAX), &mut |number| model.wait(number, since));
    }

    /// True if as many sub-models are below branches as the top model has numbers.
    pub(super) fn has_outgrown_top(&self) -> bool {
        self.current().is_some_and(|model| {
            let (_, below) = model.read_tree().counts();
            below >= model.top_count().max(BELOW_BRANCHES_MIN)
        })
    }

    pub(super) fn count_retrained(&self, count: usize) {
        self.retrained.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(super) fn last_step(&self) -> MonotonicNs {
        MonotonicNs(self.last_step_ns.load(Ordering::Relaxed))
    }
}

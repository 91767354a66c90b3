//! Training in steps: the whole model when the tree has outgrown it, single sub-models after splits.
//!
//! Protocol: who runs the trainer calls [`Trainer::step`] whenever there is time, with a bound on the work. A
//! whole training goes through four phases, each over several steps if need be: collect the leaves, train,
//! make the images, write them into the region that clients READ. Then it is published at once. While a whole
//! training is under way nothing is retrained; what becomes pending meanwhile is carried over by the store.

use std::sync::Arc;

use farsight_base::LeafNumber;
use farsight_base::clock::MonotonicNs;
use farsight_index::{Contended, LeafFormat};
use farsight_model::{TrainError, TrainOptions, TrainedModel, TrainedSubModel, Training};

use super::collect::CollectedLeaves;
use super::descend::BATCH_MAX;
use super::model_store::{ModelStore, PublishedModel};
use super::model_tree::SubModelImage;
use super::pieces::{collected_leaves_max, few_leaves, image_of, pieces_of, target_of};
use super::tree::XTree;

/// Growth of the leaves since the last whole training that calls for another (expansion, section 5.3 of the
/// paper): sub-models have twice their size then.
const EXPANSION_FACTOR: u64 = 2;
/// Shrinkage that does: sub-models have a quarter of their size.
const SHRINK_FACTOR: u64 = 4;

/// Sub-models whose lines are prefetched together when they are trained again: some two thousand lines, which
/// the second cache holds.
const RETRAINED_TOGETHER: usize = BATCH_MAX / 2;

/// Why a step did not succeed. The models published before stay; the next step tries again.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TrainingError {
    /// The tree did not stand still long enough.
    #[error("collecting leaves: {0}")]
    Collect(#[from] Contended),
    /// The leaves cannot be trained on with these options.
    #[error(transparent)]
    Train(#[from] TrainError),
}

/// What a step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrainingStep {
    /// Nothing was to be done.
    Idle,
    /// Sub-models were trained again: so many.
    Retrained(usize),
    /// A whole training went on.
    InTraining,
    /// A whole training was published.
    Published {
        /// Its generation.
        generation: u64,
    },
}

/// A whole training, by phase.
enum Whole {
    Collecting { from: u64, collected: CollectedLeaves },
    Training { training: Training<Vec<u64>>, numbers: Vec<LeafNumber> },
    Imaging { model: TrainedModel, leaves: TrainedLeaves, pieces: Vec<Vec<SubModelImage>> },
    Writing { model: PublishedModel, from: u32 },
}

/// Where a whole training stands after a piece of work.
enum Advanced {
    Unfinished(Whole),
    Finished(PublishedModel),
}

/// The leaves of a whole training.
struct TrainedLeaves {
    low_fences: Vec<u64>,
    numbers: Vec<LeafNumber>,
}

/// The trainer of one table.
pub struct Trainer<F: LeafFormat> {
    tree: Arc<XTree<F>>,
    store: Arc<ModelStore>,
    options: TrainOptions,
    whole: Option<Whole>,
    /// Leaves at the last whole training; zero before the first.
    leaves_trained: u64,
    /// The leaves of the sub-model that is being retrained.
    collected: CollectedLeaves,
}

impl<F: LeafFormat> Trainer<F> {
    /// A trainer of `tree`, which reports its changes to `store`.
    #[must_use]
    pub fn new(tree: Arc<XTree<F>>, store: Arc<ModelStore>, options: TrainOptions) -> Self {
        let collected = CollectedLeaves::default();
        Self { tree, store, options, whole: None, leaves_trained: 0, collected }
    }

    /// True if [`Trainer::step`] would do something.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.whole.is_some() || self.is_outgrown() || self.store.pending() > 0
    }

    /// Does a bounded piece of what is to be done: about as much as training `budget` sub-models (each a
    /// microsecond or two, memory permitting).
    ///
    /// # Errors
    /// [`TrainingError`]; nothing published is lost, and a later step begins again.
    pub fn step(&mut self, now: MonotonicNs, budget: usize) -> Result<TrainingStep, TrainingError> {
        self.store.begin_step(now);
        let budget = budget.max(1);
        if let Some(whole) = self.whole.take() {
            return self.go_on(whole, budget);
        }
        if self.is_outgrown() {
            self.store.begin_whole_training();
            self.leaves_trained = self.tree.leaf_count();
            return self.go_on(Whole::Collecting { from: 0, collected: CollectedLeaves::default() }, budget);
        }
        self.retrain(budget)
    }

    /// Trains until nothing is pending.
    ///
    /// # Errors
    /// As [`Trainer::step`].
    pub fn run_to_idle(&mut self, now: MonotonicNs) -> Result<(), TrainingError> {
        while self.step(now, usize::MAX)? != TrainingStep::Idle {}
        Ok(())
    }

    fn is_outgrown(&self) -> bool {
        let leaves = self.tree.leaf_count();
        leaves >= EXPANSION_FACTOR * self.leaves_trained
            || leaves <= self.leaves_trained / SHRINK_FACTOR
            || self.store.has_outgrown_top()
    }

    fn go_on(&mut self, whole: Whole, budget: usize) -> Result<TrainingStep, TrainingError> {
        match self.advance(whole, budget) {
            Ok(Advanced::Unfinished(whole)) => {
                self.whole = Some(whole);
                Ok(TrainingStep::InTraining)
            }
            Ok(Advanced::Finished(model)) => {
                let generation = model.generation();
                self.store.publish(model);
                Ok(TrainingStep::Published { generation })
            }
            Err(error) => {
                // The marks that this training took away are due again.
                self.store.mark_all();
                if matches!(error, TrainingError::Collect(_)) {
                    self.leaves_trained = 0;
                }
                Err(error)
            }
        }
    }

    /// Does one piece of a whole training.
    fn advance(&self, whole: Whole, budget: usize) -> Result<Advanced, TrainingError> {
        let next = match whole {
            Whole::Collecting { from, mut collected } => {
                let enough = budget.saturating_mul(self.options.target_leaves_per_sub_model as usize);
                if let Some(from) = self.tree.collect_leaves(from, u64::MAX, enough, &mut collected)? {
                    Whole::Collecting { from, collected }
                } else {
                    let training = Training::new(collected.low_fences, self.options)?;
                    Whole::Training { training, numbers: collected.leaves }
                }
            }
            Whole::Training { mut training, numbers } => {
                training.step(budget)?;
                if training.is_complete() {
                    let (model, low_fences) = training.finish()?;
                    let pieces = Vec::with_capacity(model.sub_models.len());
                    Whole::Imaging { model, leaves: TrainedLeaves { low_fences, numbers }, pieces }
                } else {
                    Whole::Training { training, numbers }
                }
            }
            Whole::Imaging { model, leaves, mut pieces } => {
                for trained in model.sub_models[pieces.len()..].iter().take(budget) {
                    pieces.push(self.pieces_of_trained(trained, &leaves)?);
                }
                if pieces.len() == model.sub_models.len() {
                    let generation = self.store.current().map_or(0, |model| model.generation()) + 1;
                    let region = self.store.model_region();
                    let model = PublishedModel::new(generation, model.top, pieces, region);
                    Whole::Writing { model, from: 0 }
                } else {
                    Whole::Imaging { model, leaves, pieces }
                }
            }
            Whole::Writing { model, from } => match model.write_records(from, budget) {
                Some(from) => Whole::Writing { model, from },
                None => return Ok(Advanced::Finished(model)),
            },
        };
        Ok(Advanced::Unfinished(next))
    }

    /// Trains up to `budget` pending sub-models again, a group at a time: what one of them will read is
    /// prefetched while others are trained.
    fn retrain(&mut self, budget: usize) -> Result<TrainingStep, TrainingError> {
        let mut retrained = 0;
        let mut group = [0; RETRAINED_TOGETHER];
        let budget = self.store.pending().min(budget);
        while retrained < budget {
            let wanted = RETRAINED_TOGETHER.min(budget - retrained);
            let Some((model, count)) = self.store.take_pending(&mut group[..wanted]) else { break };
            if count == 0 {
                break;
            }
            let group = &group[..count];
            self.prefetch_group(&model, group);
            for (place, number) in group.iter().enumerate() {
                if let Err(error) = self.retrain_one(&model, *number) {
                    group[place..].iter().for_each(|number| self.store.put_back(&model, *number));
                    return Err(error);
                }
            }
            self.store.count_retrained(count);
            retrained += count;
        }
        Ok(if retrained == 0 { TrainingStep::Idle } else { TrainingStep::Retrained(retrained) })
    }

    /// Asks for the inner nodes and images of these sub-models.
    fn prefetch_group(&self, model: &PublishedModel, group: &[u32]) {
        let mut ends = [0; 2 * RETRAINED_TOGETHER];
        let mut count = 0;
        for number in group {
            model.prefetch_sub_model(*number);
            if let Some((low, high)) = model.interval(*number) {
                ends[count..count + 2].copy_from_slice(&[low, high]);
                count += 2;
            }
        }
        self.tree.prefetch_ranges(&ends[..count]);
    }

    /// Trains a sub-model again, as several if it has too many leaves for one, or as one with the next if
    /// both together have few. Of leaves beyond a bound only the first are looked at; the rest is pending at
    /// once.
    fn retrain_one(&mut self, model: &PublishedModel, number: u32) -> Result<(), TrainingError> {
        let Some((low, high)) = model.interval(number) else { return Ok(()) };
        let target = target_of(self.options);
        let rest = self.collect((low, high), collected_leaves_max(target))?;
        let has_few = self.collected.leaves.len() <= few_leaves(target);
        if rest.is_none() && has_few && self.merge_with_next(model, low)? {
            return Ok(());
        }
        let CollectedLeaves { low_fences, leaves } = &self.collected;
        let images = pieces_of((low, high), low_fences, leaves, rest.is_some(), target)?;
        model.replace(number, images, rest.is_some(), self.store.last_step());
        Ok(())
    }

    /// Trains the sub-model of `low` and the one behind it as one, if both together have few leaves and are
    /// below one branch. False, with the first one's leaves collected, if not.
    fn merge_with_next(&mut self, model: &PublishedModel, low: u64) -> Result<bool, TrainingError> {
        let path = model.path(low);
        let Some(next) = model.next_in_branch(&path) else { return Ok(false) };
        let (Some((own_low, own_high)), Some((_, high))) = (model.interval(path.sub_model), next.interval)
        else {
            return Ok(false);
        };
        let target = target_of(self.options);
        if next.entries.len() > few_leaves(target) {
            return Ok(false);
        }
        let rest = self.collect((own_low, high), 2 * target)?;
        let CollectedLeaves { low_fences, leaves } = &self.collected;
        if rest.is_none() && leaves.len() <= target {
            let mut images = pieces_of((own_low, high), low_fences, leaves, false, target)?;
            if let (Some(image), true) = (images.pop(), images.is_empty()) {
                model.merge(&path, image, self.store.last_step());
                return Ok(true);
            }
        }
        self.collect((own_low, own_high), collected_leaves_max(target))?;
        Ok(false)
    }

    /// Collects the leaves of these keys, or about `enough` of them; then returns the key that comes next.
    fn collect(&mut self, (low, high): (u64, u64), enough: usize) -> Result<Option<u64>, Contended> {
        self.collected.low_fences.clear();
        self.collected.leaves.clear();
        self.tree.collect_leaves(low, high, enough, &mut self.collected)
    }

    /// The sub-models in the place of one that was trained with all others.
    fn pieces_of_trained(
        &self,
        trained: &TrainedSubModel,
        leaves: &TrainedLeaves,
    ) -> Result<Vec<SubModelImage>, TrainError> {
        let at = trained.first_leaf..trained.first_leaf + trained.model.leaf_count as usize;
        let (low_fences, numbers) = (&leaves.low_fences[at.clone()], &leaves.numbers[at]);
        match trained.interval {
            Some(interval) => pieces_of(interval, low_fences, numbers, false, target_of(self.options)),
            None => Ok(vec![image_of(None, &trained.model, low_fences, numbers)]),
        }
    }
}

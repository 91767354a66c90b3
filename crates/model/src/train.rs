//! Training: from the leaves' low fences to both levels, in steps that a server can interleave with its work.
//!
//! The top model is built first, bucket by bucket. A line, the paper's top model, is fitted in one go: that
//! reads the fences once. Then the sub-models are built one by one, in key order, each from its dispatch
//! interval and the fences that meet it. A leaf that straddles a boundary belongs to both sides.

use crate::fit::train_sub_model;
use crate::linear::LinearTop;
use crate::radix_build::RadixBuild;
use crate::sub_model::{LEAVES_PER_SUB_MODEL_MAX, SubModel};
use crate::top::TopModel;

/// Which top model to train.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopKind {
    /// A radix tree with linear buckets: survives skew.
    Radix,
    /// One line: the paper's.
    Linear,
}

/// What to train.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrainOptions {
    /// The top model.
    pub top: TopKind,
    /// Leaves that a sub-model should have on average; at least 1.
    pub target_leaves_per_sub_model: u32,
}

impl Default for TrainOptions {
    fn default() -> Self {
        Self { top: TopKind::Radix, target_leaves_per_sub_model: 18 }
    }
}

/// Why fences cannot be trained on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrainError {
    /// There is no leaf.
    #[error("training: expected at least one leaf, got none")]
    NoLeaves,
    /// The first leaf does not begin at minus infinity.
    #[error("training: fence of leaf 0: expected 0, got {got}")]
    FirstFence {
        /// Its fence.
        got: u64,
    },
    /// A fence is not above the one before.
    #[error("training: fence of leaf {leaf}: expected more than {previous}, got {got}")]
    FencesNotIncreasing {
        /// The leaf.
        leaf: usize,
        /// The fence before.
        previous: u64,
        /// Its fence.
        got: u64,
    },
    /// More leaves meet one dispatch interval than a sub-model can tell apart. The linear top on skewed keys
    /// does this; the radix top does not.
    #[error(
        "training: sub-model of keys {boundary_low} to {boundary_high}: expected at most {} leaves, got {leaf_count}",
        LEAVES_PER_SUB_MODEL_MAX
    )]
    SubModelTooLarge {
        /// The interval's least key.
        boundary_low: u64,
        /// Its greatest key.
        boundary_high: u64,
        /// Leaves that meet it.
        leaf_count: usize,
    },
}

/// Both levels, trained.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainedModel {
    /// Keys to sub-models.
    pub top: TopModel,
    /// The sub-models, in key order; `top.sub_model_count()` of them.
    pub sub_models: Vec<TrainedSubModel>,
}

/// A sub-model, and which leaves its positions are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrainedSubModel {
    /// Keys to positions.
    pub model: SubModel,
    /// The leaf at position 0, as an index of the fences; position `i` is leaf `first_leaf + i`. The last
    /// leaf of a sub-model may be the first of the next.
    pub first_leaf: usize,
    /// The least and the greatest key that the top model dispatches to it; `None`: there are none.
    pub interval: Option<(u64, u64)>,
}

/// A training under way over fences that do not change meanwhile: a snapshot, owned or borrowed.
#[derive(Debug)]
pub struct Training<F> {
    fences: F,
    phase: Phase,
}

/// How far a training is.
#[derive(Debug)]
enum Phase {
    Top(RadixBuild),
    SubModels(SubModels),
}

/// The sub-models of a top model, as far as they are trained.
#[derive(Debug)]
struct SubModels {
    top: TopModel,
    trained: Vec<TrainedSubModel>,
    /// The next sub-model's low boundary; `None` past the last key.
    boundary_low: Option<u64>,
    /// Keys of the last interval: where the search for the next boundary begins.
    interval_keys: u64,
    /// The leaf that owns the low boundary.
    leaf: usize,
}

impl<F: AsRef<[u64]>> Training<F> {
    /// Checks the fences.
    ///
    /// # Errors
    /// [`TrainError`] if the fences do not begin with 0 and increase.
    ///
    /// # Panics
    /// If the target is no leaf a sub-model.
    pub fn new(fences: F, options: TrainOptions) -> Result<Self, TrainError> {
        let target = options.target_leaves_per_sub_model;
        assert!(target > 0, "a sub-model has at least one leaf");
        check_fences(fences.as_ref())?;
        let phase = match options.top {
            TopKind::Radix => Phase::Top(RadixBuild::new(fences.as_ref(), target as usize)),
            TopKind::Linear => {
                let sub_model_count = fences.as_ref().len().div_ceil(target as usize);
                let top = TopModel::Linear(LinearTop::fit(fences.as_ref(), sub_model_count as u32));
                Phase::SubModels(SubModels::new(top))
            }
        };
        Ok(Self { fences, phase })
    }

    /// Whether nothing is left to train.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        matches!(&self.phase, Phase::SubModels(sub_models) if sub_models.are_complete())
    }

    /// Builds at most `budget` more buckets of the top model, or trains so many sub-models (about half a
    /// microsecond each).
    ///
    /// # Errors
    /// [`TrainError::SubModelTooLarge`]; the training is of no use after it.
    pub fn step(&mut self, budget: usize) -> Result<(), TrainError> {
        let fences = self.fences.as_ref();
        for _ in 0..budget {
            match &mut self.phase {
                Phase::Top(build) => {
                    build.step(fences);
                    if build.is_complete() {
                        let top = TopModel::Radix(build.finish());
                        self.phase = Phase::SubModels(SubModels::new(top));
                    }
                }
                Phase::SubModels(sub_models) if sub_models.are_complete() => break,
                Phase::SubModels(sub_models) => sub_models.train_next(fences)?,
            }
        }
        Ok(())
    }

    /// Trains what is left, and gives the model and the fences.
    ///
    /// # Errors
    /// As [`Training::step`].
    pub fn finish(mut self) -> Result<(TrainedModel, F), TrainError> {
        self.step(usize::MAX)?;
        let Phase::SubModels(SubModels { top, trained, .. }) = self.phase else {
            unreachable!("without a bound a step goes on to the end")
        };
        Ok((TrainedModel { top, sub_models: trained }, self.fences))
    }
}

impl SubModels {
    fn new(top: TopModel) -> Self {
        let trained = Vec::with_capacity(top.sub_model_count() as usize);
        Self { top, trained, boundary_low: Some(0), interval_keys: 1 << 32, leaf: 0 }
    }

    fn are_complete(&self) -> bool {
        self.trained.len() == self.top.sub_model_count() as usize
    }

    fn train_next(&mut self, fences: &[u64]) -> Result<(), TrainError> {
        let next = self.next(fences)?;
        self.trained.push(next);
        Ok(())
    }

    fn next(&mut self, fences: &[u64]) -> Result<TrainedSubModel, TrainError> {
        // A sub-model without keys is never asked: any leaf will do.
        let without_keys = |first_leaf| TrainedSubModel {
            model: SubModel { leaf_count: 1, ..SubModel::default() },
            first_leaf,
            interval: None,
        };
        let Some(low) = self.boundary_low else { return Ok(without_keys(self.leaf)) };
        let next_low = self.top.boundary_from(self.trained.len() as u32 + 1, low, self.interval_keys);
        if next_low == Some(low) {
            return Ok(without_keys(self.leaf));
        }
        let high = next_low.map_or(u64::MAX, |next| next - 1);
        let first_leaf = self.leaf;
        let mut end = first_leaf + 1;
        while fences.get(end).is_some_and(|fence| *fence <= high) {
            end += 1;
        }
        let model = train_sub_model(low, high, &fences[first_leaf..end])?;
        self.boundary_low = next_low;
        self.interval_keys = high - low;
        // The leaf that ends the interval goes on into the next one, unless a fence stands at the boundary.
        self.leaf = if next_low.is_some() && fences.get(end).copied() == next_low { end } else { end - 1 };
        Ok(TrainedSubModel { model, first_leaf, interval: Some((low, high)) })
    }
}

/// Trains both levels on the leaves' low fences, in one go.
///
/// # Errors
/// [`TrainError`] if the fences do not begin with 0 and increase, or a sub-model has too many leaves.
///
/// # Panics
/// If the target is no leaf a sub-model.
pub fn train(fences: &[u64], options: TrainOptions) -> Result<TrainedModel, TrainError> {
    Ok(Training::new(fences, options)?.finish()?.0)
}

fn check_fences(fences: &[u64]) -> Result<(), TrainError> {
    let first = *fences.first().ok_or(TrainError::NoLeaves)?;
    if first != 0 {
        return Err(TrainError::FirstFence { got: first });
    }
    match fences.windows(2).position(|pair| pair[0] >= pair[1]) {
        None => Ok(()),
        Some(index) => Err(TrainError::FencesNotIncreasing {
            leaf: index + 1,
            previous: fences[index],
            got: fences[index + 1],
        }),
    }
}

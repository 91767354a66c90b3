//! What the background does for an XStore table: it trains the model, and puts the leaves on huge pages.
//!
//! Invariant: retraining takes at most a tenth of a core. Training that fails is tried again later and later.

use std::sync::Arc;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::report::report;
use farsight_index::LeafFormat;
use farsight_index_xstore::server::{Trainer, TrainingStep};

use super::Part;
use crate::BackgroundState;
use crate::engine::BackgroundWork;
use crate::prefault::{self, HUGE_PAGE_BYTES};

/// Bytes collapsed in one step: a few milliseconds.
const COLLAPSE_STEP_BYTES: u64 = 8 * HUGE_PAGE_BYTES;
/// Of a region that is filled so far, this part more is prepared for what comes next, and at most so much.
/// That is a tenth of a second of inserts at full speed.
const AHEAD_PART: u64 = 16;
const AHEAD_BYTES_MAX: u64 = 16 << 20;
/// The least pause after sub-models were trained again: what splits meanwhile is merged.
const MERGE_PAUSE: Duration = Duration::from_millis(1);
/// The pause by the processor time of the training before it: retraining takes at most a tenth of a core,
/// however fast leaves split. What it cannot follow merges, and shows as lag.
const PAUSE_BY_TRAINING: u32 = 9;
/// The pause after a failed training; it doubles with each failure in a row.
const RETRY_PAUSE: Duration = Duration::from_millis(10);
/// Doublings of that pause at most: ten minutes and a half.
const RETRY_DOUBLINGS_MAX: u32 = 16;

/// What is done for one table.
pub(super) struct Work<F: LeafFormat> {
    part: Arc<Part<F>>,
    trainer: Trainer<F>,
    failures: u32,
    /// Training rests until then.
    again_at: Option<MonotonicNs>,
    collapsed_bytes: u64,
}

/// What there is to train after a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// Nothing now.
    Nothing,
    /// More sub-models.
    SubModels,
    /// The rest of a whole training, for which clients wait.
    WholeTraining,
}

impl<F: LeafFormat> BackgroundWork for Work<F> {
    fn step(&mut self, now: MonotonicNs, budget: usize, processor_time: fn() -> Duration) -> BackgroundState {
        let left = self.train(now, budget, processor_time);
        // A new model is worth more than huge pages, and takes less time.
        let collapses_more = left != Left::WholeTraining && self.collapse();
        if left != Left::Nothing || collapses_more {
            BackgroundState::Working
        } else {
            BackgroundState::Idle { again_at: self.again_at }
        }
    }
}

impl<F: LeafFormat> Work<F> {
    pub(super) fn new(part: Arc<Part<F>>) -> Self {
        Self { trainer: part.trainer(), part, failures: 0, again_at: None, collapsed_bytes: 0 }
    }

    /// Trains a little.
    fn train(&mut self, now: MonotonicNs, budget: usize, processor_time: fn() -> Duration) -> Left {
        if self.again_at.is_some_and(|at| now < at) {
            return Left::Nothing;
        }
        self.again_at = None;
        let wanted = self.part.training_wanted();
        if !self.trainer.has_work() {
            self.part.set_training_done(wanted);
            return Left::Nothing;
        }
        let start = processor_time();
        let step = self.trainer.step(now, budget);
        let used = processor_time().saturating_sub(start);
        self.part.add_training_time(used);
        match step {
            Ok(step) => {
                self.failures = 0;
                match step {
                    TrainingStep::InTraining => Left::WholeTraining,
                    TrainingStep::Published { .. } => Left::SubModels,
                    TrainingStep::Retrained(_) | TrainingStep::Idle => {
                        // The step took at least its processor time.
                        self.again_at = Some(now.plus(used + MERGE_PAUSE.max(used * PAUSE_BY_TRAINING)));
                        Left::Nothing
                    }
                }
            }
            Err(error) => {
                if self.failures == 0 {
                    let name = &self.part.name;
                    report(format_args!("table {name:?}: {error}. Clients use the last model; trying again"));
                }
                let pause = RETRY_PAUSE * (1 << self.failures.min(RETRY_DOUBLINGS_MAX));
                self.again_at = Some(now.plus(pause));
                self.failures += 1;
                Left::Nothing
            }
        }
    }

    /// Puts a little of the region on huge pages, what the leaves fill and some of what they will fill next;
    /// true if there is more. Ahead of the leaves it costs a fresh page, behind them a copy of five hundred
    /// small ones besides the faults that those took while writers waited.
    fn collapse(&mut self) -> bool {
        let region_bytes = self.part.region().words().len() as u64 * 8;
        let pieces = |bytes: u64| bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        let filled_bytes = pieces(self.part.touched_bytes());
        let ahead_bytes = pieces((filled_bytes / AHEAD_PART).min(AHEAD_BYTES_MAX));
        let wanted_bytes = (filled_bytes + ahead_bytes).min(pieces(region_bytes));
        if wanted_bytes <= self.collapsed_bytes {
            return false;
        }
        let until_bytes = wanted_bytes.min(self.collapsed_bytes + COLLAPSE_STEP_BYTES);
        prefault::on_huge_pages(&**self.part.region(), self.collapsed_bytes..until_bytes);
        self.collapsed_bytes = until_bytes;
        until_bytes < wanted_bytes
    }
}

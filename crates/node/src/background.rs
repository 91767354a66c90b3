//! Background work: training models, collapsing regions to huge pages and giving back what ended clients had
//! begun, in steps.
//!
//! Invariant: a step is bounded, whatever the tables hold (but for the training of one top model and the end
//! of one load, each of which is one piece), and a step that reports [`BackgroundState::Idle`] left nothing
//! undone that it could have done.
//!
//! Protocol: whoever makes work says so to the table ([`crate::x_store::Part::want_training`]) and raises the
//! signal on which the runner sleeps between steps. Training that fails is tried again later and later.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::report::report;
use farsight_index_xstore::server::{Trainer, TrainingStep, XStoreLeaf};
use farsight_protocol::TableId;

use crate::NodeState;
use crate::prefault::{self, HUGE_PAGE_BYTES};
use crate::process;
use crate::tables::View;
use crate::x_store::Part;

/// Bytes collapsed in one step: a few milliseconds.
const COLLAPSE_STEP_BYTES: u64 = 8 * HUGE_PAGE_BYTES;
/// Of a region that is filled so far, this part more is prepared for what comes next, and at most so much: a
/// tenth of a second of inserts at full speed.
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

/// What is left after a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackgroundState {
    /// There is more to do: call again.
    Working,
    /// Nothing to do before the signal, or before this time if there is one.
    Idle {
        /// When to look again without a signal.
        again_at: Option<MonotonicNs>,
    },
}

/// The background of one node.
pub struct Background {
    state: Arc<NodeState>,
    /// Processor time that this thread has used.
    processor_time: fn() -> Duration,
    view: View,
    works: BTreeMap<TableId, TableWork>,
}

struct TableWork {
    trainer: Trainer<XStoreLeaf>,
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

impl Background {
    /// The background of the node of `state`. A node has one.
    #[must_use]
    pub fn new(state: Arc<NodeState>) -> Self {
        Self::by_processor_time(state, process::thread_cpu)
    }

    /// [`Background::new`] whose pauses are measured by `processor_time`: what the calling thread has used so
    /// far. A simulator, whose time is not the machine's, has a clock of its own.
    #[must_use]
    pub fn by_processor_time(state: Arc<NodeState>, processor_time: fn() -> Duration) -> Self {
        Self { state, processor_time, view: View::default(), works: BTreeMap::new() }
    }

    /// Does a bounded piece of what there is to do: for each table about as much as training `budget`
    /// sub-models (a microsecond or two each), and a few huge pages.
    pub fn step(&mut self, now: MonotonicNs, budget: usize) -> BackgroundState {
        self.state.forget_departed();
        let mut is_working = false;
        let mut again_at: Option<MonotonicNs> = None;
        self.view.refresh(&self.state.tables);
        self.works.retain(|id, _| self.view.has(*id));
        for (table, part) in self.view.parts() {
            let work = self.works.entry(table.id()).or_insert_with(|| TableWork::new(part));
            let left = work.train(part, now, budget, self.processor_time);
            // A new model is worth more than huge pages, and takes less time.
            let collapses_more = left != Left::WholeTraining && work.collapse(part);
            is_working |= left != Left::Nothing || collapses_more;
            again_at = again_at.into_iter().chain(work.again_at).min();
        }
        if is_working { BackgroundState::Working } else { BackgroundState::Idle { again_at } }
    }
}

impl TableWork {
    fn new(table: &Part) -> Self {
        Self { trainer: table.trainer(), failures: 0, again_at: None, collapsed_bytes: 0 }
    }

    /// Trains a little.
    fn train(
        &mut self,
        table: &Part,
        now: MonotonicNs,
        budget: usize,
        processor_time: fn() -> Duration,
    ) -> Left {
        if self.again_at.is_some_and(|at| now < at) {
            return Left::Nothing;
        }
        self.again_at = None;
        let wanted = table.training_wanted();
        if !self.trainer.has_work() {
            table.set_training_done(wanted);
            return Left::Nothing;
        }
        let start = processor_time();
        let step = self.trainer.step(now, budget);
        let used = processor_time().saturating_sub(start);
        table.add_training_time(used);
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
                    let name = table.name();
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
    fn collapse(&mut self, table: &Part) -> bool {
        let region_bytes = table.region().words().len() as u64 * 8;
        let pieces = |bytes: u64| bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        let filled_bytes = pieces(table.touched_bytes());
        let ahead_bytes = pieces((filled_bytes / AHEAD_PART).min(AHEAD_BYTES_MAX));
        let wanted_bytes = (filled_bytes + ahead_bytes).min(pieces(region_bytes));
        if wanted_bytes <= self.collapsed_bytes {
            return false;
        }
        let until_bytes = wanted_bytes.min(self.collapsed_bytes + COLLAPSE_STEP_BYTES);
        prefault::on_huge_pages(&**table.region(), self.collapsed_bytes..until_bytes);
        self.collapsed_bytes = until_bytes;
        until_bytes < wanted_bytes
    }
}

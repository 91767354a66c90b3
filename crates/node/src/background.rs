//! Background work, in steps: what engines do for their tables ([`BackgroundWork`]), giving back what ended
//! clients had begun, and scrubbing.
//!
//! Invariant: a step is bounded, whatever the tables hold. (The end of one load, and the publication of one
//! whole model, are one piece each.) A step that reports [`BackgroundState::Idle`] left nothing undone that
//! it could have done.
//!
//! Protocol: a call that makes work says so to its table, and then raises the signal on which the runner
//! sleeps between steps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_protocol::TableId;

use crate::engine::{BackgroundWork, HostedTable};
use crate::scrub::Scrub;
use crate::tables::View;
use crate::{NodeState, process};

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

/// What is done for one table, which may give way to another one of its number.
struct TableWork {
    hosted: Arc<dyn HostedTable>,
    work: Option<Box<dyn BackgroundWork>>,
}

/// The background of one node.
pub struct Background {
    state: Arc<NodeState>,
    /// Processor time that this thread has used.
    processor_time: fn() -> Duration,
    view: View,
    works: BTreeMap<TableId, TableWork>,
    scrub: Scrub,
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
        Self { state, processor_time, view: View::default(), works: BTreeMap::new(), scrub: Scrub::default() }
    }

    /// Does a bounded piece of what there is to do: for each table about as much as training `budget`
    /// sub-models (a microsecond or two each), and a few huge pages.
    pub fn step(&mut self, now: MonotonicNs, budget: usize) -> BackgroundState {
        self.state.forget_departed();
        let mut is_working = false;
        let mut again_at: Option<MonotonicNs> = None;
        self.view.refresh(&self.state.tables);
        let view = &self.view;
        self.works
            .retain(|id, work| view.get(*id).is_ok_and(|table| Arc::ptr_eq(table.hosted(), &work.hosted)));
        for table in self.view.all() {
            let begin = || {
                let hosted = Arc::clone(table.hosted());
                TableWork { work: Arc::clone(&hosted).background(), hosted }
            };
            let Some(work) = &mut self.works.entry(table.id()).or_insert_with(begin).work else { continue };
            match work.step(now, budget, self.processor_time) {
                BackgroundState::Working => is_working = true,
                BackgroundState::Idle { again_at: at } => again_at = again_at.into_iter().chain(at).min(),
            }
        }
        let found_before = self.scrub.found();
        again_at = again_at.into_iter().chain(self.scrub.step(now, &self.view, self.processor_time)).min();
        if self.scrub.found() > found_before {
            self.state.note_damage(self.scrub.found());
        }
        if is_working { BackgroundState::Working } else { BackgroundState::Idle { again_at } }
    }
}

//! Sweeping: pairs whose deadlines have passed give their memory back, although nobody writes them any more.
//!
//! Invariant: a piece is bounded, and [`DeadlinePass`] says when it is due.
//!
//! A piece looks at a few pairs, and removes those that have ended ([`BlockTree::sweep`]). No log is told:
//! what a recovery finds again has its deadline, and ends again.
//!
//! [`BlockTree::sweep`]: farsight_index_xstore::server::BlockTree::sweep

use std::sync::Arc;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::report::report;

use super::block_part::BlockPart;
use crate::BackgroundState;
use crate::deadline_pass::{DeadlinePass, SeenPiece};
use crate::engine::BackgroundWork;

/// Pairs of a piece.
const PIECE_PAIRS: usize = 128;
/// What the background does for a table whose pairs have deadlines.
pub(super) struct DeadlineSweep {
    part: Arc<BlockPart>,
    training: Box<dyn BackgroundWork>,
    /// Where the pass goes on.
    from: u64,
    pass: DeadlinePass,
}

impl DeadlineSweep {
    /// Besides the `training` of the same table.
    pub(super) fn new(part: Arc<BlockPart>, training: Box<dyn BackgroundWork>) -> Self {
        Self { part, training, from: 0, pass: DeadlinePass::default() }
    }

    /// Looks at the next piece.
    fn sweep(part: &BlockPart, from: &mut u64) -> SeenPiece {
        let (next, ended) = match part.tree.sweep(*from, PIECE_PAIRS) {
            Ok(swept) => (swept.next, swept.ended),
            Err(error) => {
                // The next pass meets the same leaf again.
                report(format_args!(
                    "table {:?}: pairs that have ended stay for now: {error}",
                    part.part.name
                ));
                (None, 0)
            }
        };
        *from = next.unwrap_or(0);
        SeenPiece { pairs: PIECE_PAIRS, ended: ended as usize, is_last: next.is_none() }
    }
}

impl BackgroundWork for DeadlineSweep {
    fn step(&mut self, now: MonotonicNs, budget: usize, processor_time: fn() -> Duration) -> BackgroundState {
        let state = self.training.step(now, budget, processor_time);
        let Self { part, from, pass, .. } = self;
        let sweeps_at = pass.step(now, processor_time, || Self::sweep(part, from));
        match state {
            BackgroundState::Working => BackgroundState::Working,
            BackgroundState::Idle { again_at } => {
                BackgroundState::Idle { again_at: again_at.into_iter().chain([sweeps_at]).min() }
            }
        }
    }
}

//! Sweeping: pairs whose deadlines have passed give their memory back, although nobody writes them any more.
//!
//! Invariant: a piece is bounded. Pieces take a fiftieth of a core together, and up to half of one while many
//! of the pairs that they see have ended.
//!
//! Protocol:
//! 1. A pass begins [`PASS_PAUSE`] after the one before has ended. It goes through the table piece by piece.
//! 2. A piece looks at a few pairs, and removes those that have ended ([`BlockTree::sweep`]). No log is told:
//!    what a recovery finds again has its deadline, and ends again.
//!
//! [`BlockTree::sweep`]: farsight_index_xstore::server::BlockTree::sweep

use std::sync::Arc;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::report::report;

use super::block_part::BlockPart;
use crate::BackgroundState;
use crate::engine::BackgroundWork;

/// The pause between two passes.
const PASS_PAUSE: Duration = Duration::from_secs(1);
/// Pairs of a piece.
const PIECE_PAIRS: usize = 128;
/// The pause by the processor time of the piece before it.
const PAUSE_BY_PIECE: u32 = 49;
/// The same behind a piece of which so many pairs had ended.
const MANY_ENDED: u64 = PIECE_PAIRS as u64 / 8;
const PAUSE_BY_FULL_PIECE: u32 = 1;

/// What the background does for a table whose pairs have deadlines.
pub(super) struct DeadlineSweep {
    part: Arc<BlockPart>,
    training: Box<dyn BackgroundWork>,
    /// Where the pass goes on.
    from: u64,
    due: Option<MonotonicNs>,
}

impl DeadlineSweep {
    /// Besides the `training` of the same table.
    pub(super) fn new(part: Arc<BlockPart>, training: Box<dyn BackgroundWork>) -> Self {
        Self { part, training, from: 0, due: None }
    }

    /// Does the piece that is due, if one is. Returns when the next one is.
    fn sweep(&mut self, now: MonotonicNs, processor_time: fn() -> Duration) -> MonotonicNs {
        let due = *self.due.get_or_insert(now.plus(PASS_PAUSE));
        if now < due {
            return due;
        }
        let start = processor_time();
        let swept = self.part.tree.sweep(self.from, PIECE_PAIRS);
        let used = processor_time().saturating_sub(start);
        let (next, ended) = match swept {
            Ok(swept) => (swept.next, swept.ended),
            Err(error) => {
                // The next pass meets the same leaf again.
                report(format_args!(
                    "table {:?}: pairs that have ended stay for now: {error}",
                    self.part.part.name
                ));
                (None, 0)
            }
        };
        let pause = used * if ended < MANY_ENDED { PAUSE_BY_PIECE } else { PAUSE_BY_FULL_PIECE };
        self.from = next.unwrap_or(0);
        // The piece took at least its processor time.
        let again_at = now.plus(used + if next.is_some() { pause } else { pause.max(PASS_PAUSE) });
        self.due = Some(again_at);
        again_at
    }
}

impl BackgroundWork for DeadlineSweep {
    fn step(&mut self, now: MonotonicNs, budget: usize, processor_time: fn() -> Duration) -> BackgroundState {
        let state = self.training.step(now, budget, processor_time);
        let sweeps_at = self.sweep(now, processor_time);
        match state {
            BackgroundState::Working => BackgroundState::Working,
            BackgroundState::Idle { again_at } => {
                BackgroundState::Idle { again_at: again_at.into_iter().chain([sweeps_at]).min() }
            }
        }
    }
}

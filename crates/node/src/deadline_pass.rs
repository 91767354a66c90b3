//! When the background looks at the next piece of a table for pairs whose deadlines have passed.
//!
//! Invariant: pieces take a fiftieth of a core together, and up to half of one while many of the pairs that
//! they see have ended.
//!
//! Protocol: a pass begins [`PASS_PAUSE`] after the one before has ended. It goes through the table piece by
//! piece, and rests behind each by what that took.

use std::time::Duration;

use farsight_base::clock::MonotonicNs;

/// The pause between two passes.
const PASS_PAUSE: Duration = Duration::from_secs(1);
/// The pause by the processor time of the piece before it.
const PAUSE_BY_PIECE: u32 = 49;
/// The same behind a piece of which an eighth of the pairs had ended.
const PAUSE_BY_FULL_PIECE: u32 = 1;
const FULL_BY_ENDED: usize = 8;

/// When the next piece is due.
#[derive(Default)]
pub(crate) struct DeadlinePass {
    due: Option<MonotonicNs>,
}

/// What a look at a piece came to.
pub(crate) struct SeenPiece {
    /// Pairs that it has, or may have.
    pub(crate) pairs: usize,
    /// Those of them that had ended.
    pub(crate) ended: usize,
    /// No piece is behind it.
    pub(crate) is_last: bool,
}

impl DeadlinePass {
    /// Looks at a piece, if one is due. Returns when the next one is.
    pub(crate) fn step(
        &mut self,
        now: MonotonicNs,
        processor_time: fn() -> Duration,
        look: impl FnOnce() -> SeenPiece,
    ) -> MonotonicNs {
        let due = *self.due.get_or_insert(now.plus(PASS_PAUSE));
        if now < due {
            return due;
        }
        let start = processor_time();
        let seen = look();
        let used = processor_time().saturating_sub(start);
        let is_full = seen.ended > 0 && seen.ended * FULL_BY_ENDED >= seen.pairs;
        let pause = used * if is_full { PAUSE_BY_FULL_PIECE } else { PAUSE_BY_PIECE };
        // The piece took at least its processor time.
        let again_at = now.plus(used + if seen.is_last { pause.max(PASS_PAUSE) } else { pause });
        self.due = Some(again_at);
        again_at
    }
}

//! Scrubbing: a slow pass over all tables, so that what memory has lost is met although nobody calls for it.
//!
//! Invariant: a piece is bounded, and pieces take about a hundredth of a core together. Between passes
//! nothing wakes a node that has nothing to do.
//!
//! Protocol:
//! 1. A pass begins [`PASS_PAUSE`] after the one before has ended, or after the start.
//! 2. A piece looks at a few pairs of one table as a call does that scans. So it waits in vain for a leaf
//!    whose stamps are damaged, and repairs them. The next piece goes on behind.
//! 3. It compares blocks with their checksums. A damaged one is reported by its key. Clients are refused it
//!    until a write of the key replaces it, or a log has what it was.
//!
//! Keys and values that leaves hold have no checksum: a bit of those shows nowhere.

use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::report::report;
use farsight_protocol::{ServerError, TableId};

use crate::tables::View;

/// The pause between two passes.
pub const PASS_PAUSE: Duration = Duration::from_secs(3600);
/// Pairs of a piece.
const PIECE_PAIRS: usize = 128;
/// The least pause between two pieces.
const PIECE_PAUSE: Duration = Duration::from_millis(1);
/// The pause by the processor time of the piece before it: a hundredth of a core, however long values are.
const PAUSE_BY_PIECE: u32 = 99;

/// What a piece found.
pub struct Checked {
    /// The key from which to go on, or `None` at the table's end.
    pub next: Option<u64>,
    /// What nobody can repair here.
    pub damage: Option<ServerError>,
}

/// The passes of one node.
#[derive(Default)]
pub(crate) struct Scrub {
    /// When the next pass begins, once that is known.
    begins_at: Option<MonotonicNs>,
    /// Where the pass under way goes on, and when.
    place: Option<(TableId, u64, MonotonicNs)>,
    /// Pieces of all passes that met what nobody can repair.
    found: u64,
}

impl Scrub {
    /// How often a pass has met what nobody can repair: the same again with each pass, while it is there.
    pub(crate) fn found(&self) -> u64 {
        self.found
    }

    /// Does the piece that is due, if one is. Returns when the next piece of this pass is.
    /// `processor_time` is what the thread has used so far.
    pub(crate) fn step(
        &mut self,
        now: MonotonicNs,
        view: &View,
        processor_time: fn() -> Duration,
    ) -> Option<MonotonicNs> {
        let begins_at = *self.begins_at.get_or_insert(now.plus(PASS_PAUSE));
        let (table, from, due) = match self.place {
            Some(place) => place,
            None if now < begins_at => return None,
            None => (TableId(0), 0, now),
        };
        if now < due {
            return Some(due);
        }
        let Some(found) = view.all().find(|found| found.id() >= table) else {
            (self.place, self.begins_at) = (None, Some(now.plus(PASS_PAUSE)));
            return None;
        };
        let from = if found.id() == table { from } else { 0 };
        let start = processor_time();
        let checked = found.hosted().check(from, PIECE_PAIRS);
        let used = processor_time().saturating_sub(start);
        if let Some(damage) = checked.as_ref().and_then(|checked| checked.damage.as_ref()) {
            report(damage);
            self.found += 1;
        }
        // The piece took at least its processor time.
        let again_at = now.plus(used + PIECE_PAUSE.max(used * PAUSE_BY_PIECE));
        let behind = || (TableId(found.id().0 + 1), 0, again_at);
        let next = checked.and_then(|checked| checked.next);
        self.place = Some(next.map_or_else(behind, |key| (found.id(), key, again_at)));
        Some(again_at)
    }
}

//! Rounds of snapshots: one of each table, because the log is long or because somebody wants them.
//!
//! Invariant: a round that somebody wants begins after that. So it has all that was written before.

use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct Counts {
    /// The last round that somebody wants.
    wanted: u64,
    begun: u64,
    ended: u64,
    /// The last round that failed, and why.
    failed: Option<(u64, String)>,
}

/// The rounds of a node.
#[derive(Default)]
pub(super) struct Rounds(Mutex<Counts>);

impl Rounds {
    /// Wants a round that begins from now on; returns its number.
    pub(super) fn want(&self) -> u64 {
        let mut counts = self.lock();
        counts.wanted = counts.begun + 1;
        counts.wanted
    }

    pub(super) fn is_one_wanted(&self) -> bool {
        let counts = self.lock();
        counts.wanted > counts.begun
    }

    pub(super) fn begin(&self) {
        self.lock().begun += 1;
    }

    /// The round under way has ended, perhaps for this reason.
    pub(super) fn end(&self, failure: Option<String>) {
        let mut counts = self.lock();
        counts.ended = counts.begun;
        counts.failed = failure.map(|why| (counts.ended, why));
    }

    /// Rounds that have ended.
    pub(super) fn ended(&self) -> u64 {
        self.lock().ended
    }

    /// Whether a round, or a later one, has ended well; or why it has not.
    pub(super) fn has_ended(&self, round: u64) -> Result<bool, String> {
        let counts = self.lock();
        match &counts.failed {
            Some((failed, why)) if *failed >= round => Err(why.clone()),
            _ => Ok(counts.ended >= round),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        // A panic leaves counts that are whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_that_is_wanted_is_one_that_begins_later() {
        let rounds = Rounds::default();
        rounds.begin();
        let first = rounds.want();
        assert_eq!(rounds.want(), first, "both begin later");
        rounds.end(None);
        assert_eq!((rounds.has_ended(first), rounds.is_one_wanted()), (Ok(false), true));
        rounds.begin();
        assert!(!rounds.is_one_wanted());
        let second = rounds.want();
        rounds.end(Some("full".to_owned()));
        assert_eq!(rounds.has_ended(first), Err("full".to_owned()));
        assert_eq!(rounds.has_ended(second), Ok(false));
        rounds.begin();
        rounds.end(None);
        assert_eq!([first, second].map(|round| rounds.has_ended(round)), [Ok(true), Ok(true)]);
        assert_eq!(rounds.ended(), 3);
    }
}

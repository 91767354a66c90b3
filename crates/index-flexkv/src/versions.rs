//! Versions of pairs.
//!
//! Invariant: a pair's version is greater than that of each pair that its key had before. A writer knows
//! those: of a present key the pair's, of an absent one what the overflows say was removed
//! ([`farsight_layout::hash_index`]).
//!
//! A writer writes an object before it has read what stands there, to save a round trip. So it guesses a
//! version by its clock. A guess that turns out too low costs another WRITE. Clocks of different machines
//! differ; a session that was behind once adds the difference from then on.

use std::cell::Cell;

use farsight_base::clock::MonotonicNs;
use farsight_index::PairVersion;

use crate::FlexError;

/// Nanoseconds from one version to the next of a clock.
const STEP_NS: u64 = 1_000;

/// What a session guesses by.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    /// Versions by which the session's clock is behind another one.
    behind: Cell<u64>,
    /// The last one that it gave.
    last: Cell<u64>,
}

impl Versions {
    /// The version of a write that looks at the value before, or does not: above `known`, and above all that
    /// this session gave; most likely above all that others did.
    pub(crate) fn above(&self, known: u64, now: MonotonicNs, has_looked: bool) -> Result<u64, FlexError> {
        let guess = (now.0 / STEP_NS).saturating_add(self.behind.get());
        let newest = guess.saturating_sub(1).max(known).max(self.last.get());
        let version = PairVersion::next(newest, has_looked);
        let version = version.ok_or_else(|| FlexError::NoVersions { version: newest.saturating_add(1) })?;
        let missed = known.saturating_add(1).saturating_sub(guess);
        self.behind.set(self.behind.get() + missed);
        self.last.set(version);
        Ok(version)
    }
}

#[cfg(test)]
mod tests {
    use farsight_layout::PAIR_VERSION_BITS;

    use super::*;

    #[test]
    fn versions_ascend_whatever_the_clock_does() {
        let versions = Versions::default();
        let above = |known, now_us: u64, has_looked| {
            versions.above(known, MonotonicNs(now_us * 1_000), has_looked).expect("a version")
        };
        assert_eq!([above(0, 50, false), above(0, 50, true), above(0, 70, false)], [52, 57, 72]);
        assert_eq!(above(1_000, 80, false), 1_004, "another clock is ahead");
        assert_eq!(above(0, 90, false), 1_012, "the difference is added");
        assert_eq!(above(0, 10, false), 1_016, "the clock went back");
        let last = (1 << PAIR_VERSION_BITS) - 1;
        assert!(versions.above(last, MonotonicNs(0), false).is_err());
        assert_eq!(versions.above(last - 4, MonotonicNs(0), false).ok(), Some(last - 3));
    }
}

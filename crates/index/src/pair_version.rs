//! Versions of pairs that say whether their writes looked at the value before.
//!
//! Invariant: a key's versions grow. Below each version of a write that did not look there is one that nobody
//! ever reads. It is that of all updates which took effect right before that write, and left nothing behind.

use farsight_layout::PAIR_VERSION_BITS;

/// The version of a pair, by its remainder:
///
/// | by 4 | of |
/// |---|---|
/// | 0 | a write that did not look at the value before |
/// | 1 | a write that did |
/// | 3 | all writes that the one with the next version overtook: nobody ever reads it |
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PairVersion(pub u64);

impl PairVersion {
    const STEP: u64 = 4;

    /// The version of a write above this one, which looked at the value before, or did not; `None` if there
    /// are no more.
    #[must_use]
    pub fn next(newest: u64, has_looked: bool) -> Option<u64> {
        let next = (newest | (Self::STEP - 1)).checked_add(1 + u64::from(has_looked))?;
        (next >> PAIR_VERSION_BITS == 0).then_some(next)
    }

    /// True if its write did not look at the value before.
    #[must_use]
    pub fn is_blind(self) -> bool {
        self.0.is_multiple_of(Self::STEP)
    }

    /// The version of those that this one's write overtook, if it may have.
    #[must_use]
    pub fn overtaken(self) -> Option<u64> {
        self.0.checked_sub(1).filter(|_| self.is_blind())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_grow_and_end() {
        let mut newest = 0;
        for is_conditional in [false, true, true, false, false, true] {
            let next = PairVersion::next(newest, is_conditional).expect("one of many");
            let overtaken = PairVersion(next).overtaken();
            assert_eq!(overtaken.is_none(), is_conditional);
            assert!(newest < overtaken.unwrap_or(next) && next - newest <= 2 * PairVersion::STEP);
            newest = next;
        }
        let last = (1 << PAIR_VERSION_BITS) - PairVersion::STEP;
        assert_eq!(PairVersion::next(last - 1, false), Some(last));
        assert_eq!(PairVersion::next(last, false), None);
        assert_eq!(PairVersion::next(u64::MAX, true), None);
    }
}

//! When a pair ends, in tables whose pairs do.
//!
//! Invariant: what such a table stores of a value begins with its deadline. So logs, snapshots and blocks
//! have it where they have the value, and its checksum covers it.

/// Bytes of a deadline before a value.
pub const DEADLINE_BYTES: usize = 8;

/// Milliseconds since 1970 by the server's clock; zero is never.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadline(pub u64);

impl Deadline {
    /// No deadline.
    pub const NEVER: Self = Self(0);

    /// True once the time has come.
    #[inline]
    #[must_use]
    pub fn is_past(self, now_ms: u64) -> bool {
        self != Self::NEVER && self.0 <= now_ms
    }

    /// What is stored of a value, in its parts; `None` if it is too short for a deadline.
    #[inline]
    #[must_use]
    pub fn split(stored: &[u8]) -> Option<(Self, &[u8])> {
        let (deadline, value) = stored.split_first_chunk::<DEADLINE_BYTES>()?;
        Some((Self(u64::from_le_bytes(*deadline)), value))
    }

    /// Its bytes, as they stand before the value.
    #[must_use]
    pub fn to_bytes(self) -> [u8; DEADLINE_BYTES] {
        self.0.to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_stands_before_its_value() {
        let stored = [&Deadline(7).to_bytes()[..], b"value"].concat();
        assert_eq!(Deadline::split(&stored), Some((Deadline(7), &b"value"[..])));
        assert_eq!(Deadline::split(&stored[..8]), Some((Deadline(7), &[][..])));
        assert_eq!(Deadline::split(&stored[..7]), None);
        let past = |deadline| [0, 6, 7, u64::MAX].map(|now_ms| Deadline(deadline).is_past(now_ms));
        assert_eq!([past(7), past(0)], [[false, false, true, true], [false; 4]]);
    }
}

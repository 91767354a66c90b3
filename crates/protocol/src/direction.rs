//! Which way a scan goes through the keys.

use crate::DecodeError;

/// Which way a scan goes through the keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direction {
    /// From the least key wanted upwards.
    #[default]
    Ascending = 0,
    /// From the greatest key wanted downwards.
    Descending = 1,
}

impl Direction {
    /// Both, by number.
    pub const ALL: [Self; 2] = [Self::Ascending, Self::Descending];

    pub(crate) fn from_number(number: u8) -> Result<Self, DecodeError> {
        let known = Self::ALL.get(usize::from(number)).copied();
        known.ok_or_else(|| DecodeError::new("a scan's direction", 1, "0 or 1".into(), number.to_string()))
    }

    /// The key at which a scan of everything begins.
    #[must_use]
    pub const fn first_key(self) -> u64 {
        match self {
            Self::Ascending => 0,
            Self::Descending => u64::MAX,
        }
    }

    /// The key behind `key` on this way; `None` behind the last one.
    #[inline]
    #[must_use]
    pub const fn next_key(self, key: u64) -> Option<u64> {
        match self {
            Self::Ascending => key.checked_add(1),
            Self::Descending => key.checked_sub(1),
        }
    }

    /// True if `key` comes behind `before` on this way.
    #[inline]
    #[must_use]
    pub const fn is_behind(self, key: u64, before: u64) -> bool {
        match self {
            Self::Ascending => key > before,
            Self::Descending => key < before,
        }
    }

    /// What a reply's argument says of where a scan goes on: zero at the end.
    ///
    /// A scan goes on at a key behind its first one. So that is never zero upwards, where the argument is the
    /// key, and never the greatest key downwards, where it is one more.
    #[must_use]
    pub const fn argument(self, next: Option<u64>) -> u64 {
        match (self, next) {
            (_, None) => 0,
            (Self::Ascending, Some(key)) => key,
            (Self::Descending, Some(key)) => key.saturating_add(1),
        }
    }

    /// Where a scan goes on by a reply's argument; `None` at the end.
    #[must_use]
    pub const fn goes_on_at(self, argument: u64) -> Option<u64> {
        match (self, argument) {
            (_, 0) => None,
            (Self::Ascending, key) => Some(key),
            (Self::Descending, above) => Some(above - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_scan_goes_on_survives_its_way_through_a_reply() {
        let upwards = [None, Some(1), Some(7), Some(u64::MAX)];
        assert_eq!(
            upwards.map(|next| Direction::Ascending.goes_on_at(Direction::Ascending.argument(next))),
            upwards
        );
        let downwards = [None, Some(0), Some(7), Some(u64::MAX - 1)];
        let way = Direction::Descending;
        assert_eq!(downwards.map(|next| way.goes_on_at(way.argument(next))), downwards);
    }

    #[test]
    fn each_way_has_its_ends() {
        assert_eq!(Direction::Ascending.next_key(u64::MAX), None);
        assert_eq!(Direction::Descending.next_key(0), None);
        for way in Direction::ALL {
            let first = way.first_key();
            assert!(way.next_key(first).is_some_and(|next| way.is_behind(next, first)));
        }
    }
}

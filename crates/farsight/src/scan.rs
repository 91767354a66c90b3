//! A scan as an iterator.

use std::ops::{Bound, RangeBounds};

use farsight_client::{Direction, ReadError, ScanCursor};

use crate::{Entry, Key, Session};

/// The pairs of a range, in key order, fetched page by page. Made by [`Session::scan`] and
/// [`Session::scan_descending`].
#[must_use = "a scan reads nothing until it is iterated"]
pub struct Scan<'s, K> {
    session: &'s mut Session<K>,
    /// `None` when the scan is over: at its end, after an error, or for a range that holds no key.
    cursor: Option<ScanCursor>,
}

impl<'s, K: Key> Scan<'s, K> {
    pub(crate) fn new(session: &'s mut Session<K>, direction: Direction, range: impl RangeBounds<K>) -> Self {
        Self { session, cursor: cursor(ScanCursor::new, direction, range) }
    }
}

/// A cursor that `new` makes for a range; `None` if that holds no key.
fn cursor<K: Key>(
    new: fn(Direction, u64, u64) -> ScanCursor,
    direction: Direction,
    range: impl RangeBounds<K>,
) -> Option<ScanCursor> {
    encoded_range(range).map(|(least, greatest)| match direction {
        Direction::Ascending => new(direction, least, greatest),
        Direction::Descending => new(direction, greatest, least),
    })
}

impl<K: Key> Iterator for Scan<'_, K> {
    type Item = Result<(K, Entry), ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let cursor = self.cursor.as_mut()?;
        let next = cursor.next(&mut self.session.inner);
        let next = match next {
            Ok(pair) => pair.map(|pair| {
                let entry = Entry { value: pair.value.into(), version: pair.version };
                Ok((K::decode(pair.key), entry))
            }),
            Err(error) => Some(Err(error)),
        };
        if !matches!(next, Some(Ok(_))) {
            self.cursor = None;
        }
        next
    }
}

impl<K: Key> std::iter::FusedIterator for Scan<'_, K> {}

/// The keys of a range, in their order, fetched page by page. Made by [`Session::keys`] and
/// [`Session::keys_descending`].
#[must_use = "a scan reads nothing until it is iterated"]
pub struct Keys<'s, K> {
    session: &'s mut Session<K>,
    /// As in [`Scan`].
    cursor: Option<ScanCursor>,
}

impl<'s, K: Key> Keys<'s, K> {
    pub(crate) fn new(session: &'s mut Session<K>, direction: Direction, range: impl RangeBounds<K>) -> Self {
        Self { session, cursor: cursor(ScanCursor::of_keys, direction, range) }
    }
}

impl<K: Key> Iterator for Keys<'_, K> {
    type Item = Result<K, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.cursor.as_mut()?.next(&mut self.session.inner);
        let next = next.map(|pair| pair.map(|pair| K::decode(pair.key))).transpose();
        if !matches!(next, Some(Ok(_))) {
            self.cursor = None;
        }
        next
    }
}

impl<K: Key> std::iter::FusedIterator for Keys<'_, K> {}

/// The first and last integer of a range of keys; `None` if it holds none.
pub(crate) fn encoded_range<K: Key>(range: impl RangeBounds<K>) -> Option<(u64, u64)> {
    let first = match range.start_bound() {
        Bound::Included(key) => key.encode(),
        Bound::Excluded(key) => key.encode().checked_add(1)?,
        Bound::Unbounded => 0,
    };
    let last = match range.end_bound() {
        Bound::Included(key) => key.encode(),
        Bound::Excluded(key) => key.encode().checked_sub(1)?,
        Bound::Unbounded => u64::MAX,
    };
    (first <= last).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_what_rust_says_they_hold() {
        assert_eq!(encoded_range::<u64>(..), Some((0, u64::MAX)));
        assert_eq!(encoded_range(3..7u64), Some((3, 6)));
        assert_eq!(encoded_range(3..=u64::MAX), Some((3, u64::MAX)));
        assert_eq!(encoded_range(-1..1i64), Some(((-1i64).encode(), 0i64.encode())));
    }

    #[test]
    fn ranges_without_keys_are_empty() {
        assert_eq!(encoded_range(..0u64), None);
        assert_eq!(encoded_range(7..7u64), None);
        assert_eq!(encoded_range((Bound::Excluded(u64::MAX), Bound::Unbounded)), None);
        assert_eq!(encoded_range((Bound::Included(8u64), Bound::Included(7))), None);
    }
}

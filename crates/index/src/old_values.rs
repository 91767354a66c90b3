//! The values before writes, one a write, one behind the other in one allocation.

use std::cell::Cell;

use crate::clear_kept;

/// Values before writes, in the order of the writes. Where a write found no pair, or did nothing, its value
/// means nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OldValues {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl OldValues {
    /// Values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True without values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Value `index`; `None` if there are fewer.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        Some(&self.bytes[self.begin(index)..end])
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Appends a value.
    pub fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len());
    }

    /// Appends `count` values of `value_bytes` each, all zeros, and returns their bytes, to be written.
    pub fn extend_zeroed(&mut self, count: usize, value_bytes: usize) -> &[Cell<u8>] {
        let first = self.bytes.len();
        self.ends.extend((1..=count).map(|number| first + number * value_bytes));
        self.bytes.resize(first + count * value_bytes, 0);
        Cell::from_mut(&mut self.bytes[first..]).as_slice_of_cells()
    }

    /// Keeps the first `count` alone.
    pub fn truncate(&mut self, count: usize) {
        if count < self.len() {
            self.bytes.truncate(self.begin(count));
            self.ends.truncate(count);
        }
    }

    /// Removes all of them.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Removes all of them, and keeps memory for the next ones within a bound.
    pub fn clear_kept(&mut self) {
        clear_kept(&mut self.bytes);
        clear_kept(&mut self.ends);
    }

    fn begin(&self, index: usize) -> usize {
        if index == 0 { 0 } else { self.ends[index - 1] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back() {
        let mut values = OldValues::default();
        for value in [&b"one"[..], b"", b"longer"] {
            values.push(value);
        }
        let bytes = values.extend_zeroed(2, 3);
        bytes[5].set(b'x');
        let all: Vec<_> = (0..6).map(|index| values.get(index)).collect();
        assert_eq!(
            all,
            [Some(&b"one"[..]), Some(b""), Some(b"longer"), Some(&[0; 3]), Some(&[0, 0, b'x']), None]
        );
        values.truncate(9);
        values.truncate(2);
        assert_eq!((values.len(), values.get(1), values.get(2)), (2, Some(&b""[..]), None));
        values.push(b"new");
        assert_eq!(values.get(2), Some(&b"new"[..]));
        values.clear();
        assert!(values.is_empty());
        values.push(b"again");
        assert_eq!(values.get(0), Some(&b"again"[..]));
    }
}

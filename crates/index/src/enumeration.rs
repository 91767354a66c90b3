//! All pairs of a table whose keys have no order, page by page.
//!
//! Invariant: a pair whose key is in the table from begin to end comes exactly once, with a value that it had
//! meanwhile. No key comes twice. A pair that comes was in the table at some moment of the enumeration. A key
//! that is removed and inserted again meanwhile comes once or not at all.
//!
//! Who enumerates keeps nothing in the engine: a page says where the next one begins, in words that mean
//! something to the engine alone. So a page that was lost with its connection is READ again.

use std::collections::HashSet;
use std::ops::Range;

/// Pairs with keys of any length, one behind the other.
#[derive(Clone, Debug, Default)]
pub struct FoundPairs {
    bytes: Vec<u8>,
    found: Vec<Found>,
}

#[derive(Clone, Debug)]
struct Found {
    key: Range<usize>,
    version: u64,
    value: Range<usize>,
}

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundPair<'a> {
    /// The key's bytes.
    pub key: &'a [u8],
    /// The version, which grows with each write of the key.
    pub version: u64,
    /// The value.
    pub value: &'a [u8],
}

/// What an engine found on its way through a table.
#[derive(Clone, Debug, Default)]
pub struct EnumeratedPage {
    /// The pairs. A key may come that came before, unless it begins [anew](EnumeratedPage::is_apart).
    pub pairs: FoundPairs,
    /// Where the next page begins; `None`: there is none.
    pub next: Option<Vec<u64>>,
    /// No key of a page before can come again, in this one or later.
    pub is_apart: bool,
}

/// How far an enumeration has come.
#[derive(Clone, Debug)]
pub struct Enumeration {
    next: Option<Vec<u64>>,
    /// Keys that have come and may come again.
    seen: HashSet<Box<[u8]>>,
}

impl FoundPairs {
    /// Empties it.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.found.clear();
    }

    /// Appends a pair.
    pub fn push(&mut self, pair: FoundPair<'_>) {
        let key = self.append(pair.key);
        let value = self.append(pair.value);
        self.found.push(Found { key, version: pair.version, value });
    }

    fn append(&mut self, bytes: &[u8]) -> Range<usize> {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        begin..self.bytes.len()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// True without any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// A pair, by its number.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn pair(&self, index: usize) -> FoundPair<'_> {
        let Found { key, version, value } = &self.found[index];
        FoundPair { key: &self.bytes[key.clone()], version: *version, value: &self.bytes[value.clone()] }
    }

    /// All of them.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = FoundPair<'_>> {
        (0..self.len()).map(|index| self.pair(index))
    }

    /// Drops each pair whose key is in `seen`, and adds the other ones' keys there.
    fn drop_doubles(&mut self, seen: &mut HashSet<Box<[u8]>>) {
        let bytes = &self.bytes;
        self.found.retain(|found| seen.insert(bytes[found.key.clone()].into()));
    }
}

impl EnumeratedPage {
    /// Empties it.
    pub fn clear(&mut self) {
        self.pairs.clear();
        (self.next, self.is_apart) = (None, false);
    }
}

impl Default for Enumeration {
    fn default() -> Self {
        Self { next: Some(Vec::new()), seen: HashSet::new() }
    }
}

impl Enumeration {
    /// Where the next page begins, of which the engine is told; `None` at the end. It begins with no words.
    #[must_use]
    pub fn next(&self) -> Option<&[u64]> {
        self.next.as_deref()
    }

    /// Takes the page that begins there: what is left in it comes for the first time.
    pub fn take(&mut self, page: &mut EnumeratedPage) {
        if page.is_apart {
            self.seen.clear();
        }
        page.pairs.drop_doubles(&mut self.seen);
        self.next = page.next.take();
        if self.next.is_none() {
            self.seen.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(keys: &[&[u8]], next: Option<&[u64]>, is_apart: bool) -> EnumeratedPage {
        let mut page = EnumeratedPage { next: next.map(<[u64]>::to_vec), is_apart, ..Default::default() };
        for key in keys {
            page.pairs.push(FoundPair { key, version: 7, value: b"value" });
        }
        page
    }

    #[test]
    fn a_key_comes_once_unless_it_cannot_come_again() {
        let mut enumeration = Enumeration::default();
        assert_eq!(enumeration.next(), Some(&[][..]));
        let mut took = |keys: &[&[u8]], next, is_apart| {
            let mut page = page(keys, next, is_apart);
            enumeration.take(&mut page);
            assert_eq!(enumeration.next(), next);
            page.pairs.iter().map(|pair| pair.key.to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(took(&[b"a", b"", b"a"], Some(&[1]), false), [b"a".to_vec(), Vec::new()]);
        assert_eq!(took(&[b"b", b"a"], Some(&[2, 3]), false), [b"b".to_vec()]);
        assert_eq!(took(&[b"b"], Some(&[4]), true), [b"b".to_vec()], "the engine vouches for it");
        assert_eq!(took(&[b"b"], None, false), [[]; 0]);
    }
}

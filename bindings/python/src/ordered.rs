//! What an order of keys is needed for: scans, neighbours, bulk loads.
//!
//! Invariant: keys have eight bytes here. Those of any length have no order.

use farsight::{Neighbour, Pairs};
use pyo3::{PyErr, Python};

use crate::error;
use crate::keys::NumpyKey;
use crate::typed_table::{Operations, TypedTable};

/// Pairs of one page of a scan.
const PAGE_PAIRS: usize = 4096;
/// Pairs between two looks at what Python was signalled, as by Ctrl-C.
pub(crate) const SIGNALS_PAIRS: usize = 16 * PAGE_PAIRS;

/// The bits of keys, and as many values one behind the other.
#[derive(Default)]
pub(crate) struct Columns {
    pub(crate) keys: Vec<u64>,
    pub(crate) values: Vec<u8>,
    /// Where each value ends, if they have any length.
    pub(crate) ends: Vec<usize>,
}

impl Columns {
    /// The values of a table in which they have any length.
    pub(crate) fn any_length(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let begin = |index: usize| if index == 0 { 0 } else { self.ends[index - 1] };
        (0..self.ends.len()).map(move |index| &self.values[begin(index)..self.ends[index]])
    }

    fn push(&mut self, key: u64, value: &[u8]) {
        self.keys.push(key);
        self.values.extend_from_slice(value);
        self.ends.push(self.values.len());
    }
}

/// What neighbours keys have: as many pairs as keys, with version zero and zeros where there is none.
#[derive(Default)]
pub(crate) struct Neighbours {
    pub(crate) columns: Columns,
    pub(crate) versions: Vec<u64>,
}

/// The bits of the first key of a range, and of the one behind the last; the table's ends where there is
/// none.
pub(crate) type Range = (Option<u64>, Option<u64>);

/// What an order of keys is needed for, on keys' bits.
pub(crate) trait Ordered: Sync {
    /// The first pairs, at most `limit`, from the key `first` on, and below `end`.
    fn scan(&self, range: Range, limit: usize, is_reverse: bool) -> Result<Columns, PyErr>;
    /// The bits of the first keys, at most `limit`, of the same range.
    fn scan_keys(&self, range: Range, limit: usize, is_reverse: bool) -> Result<Vec<u64>, PyErr>;
    /// How many pairs the range has.
    fn count(&self, range: Range) -> Result<usize, PyErr>;
    /// The neighbours of keys; version zero where there is none.
    fn neighbours(&self, which: Neighbour, keys: &[u64]) -> Result<Neighbours, PyErr>;
    /// Stores ascending pairs in the empty table.
    fn load(&self, keys: &[u64], values: &[&[u8]]) -> Result<u64, PyErr>;
}

/// The first and the last key of a range, encoded; `None` if it holds none.
fn encoded<K: NumpyKey>((first, end): Range) -> Option<(u64, u64)> {
    let first = first.map_or(0, |bits| K::from_bits(bits).encode());
    let end = end.map(|bits| K::from_bits(bits).encode());
    let last = end.map_or(Some(u64::MAX), |end| end.checked_sub(1))?;
    (first <= last).then_some((first, last))
}

/// Lets Python handle its signals, once in so many pairs. No lock is held: a handler may use the table.
pub(crate) fn hear_signals(pairs: usize) -> Result<(), PyErr> {
    if pairs.is_multiple_of(SIGNALS_PAIRS) { Python::attach(|python| python.check_signals()) } else { Ok(()) }
}

fn typed<K: NumpyKey>(keys: &[u64]) -> Vec<K> {
    keys.iter().map(|bits| K::from_bits(*bits)).collect()
}

impl<K: NumpyKey> Ordered for TypedTable<K> {
    fn neighbours(&self, which: Neighbour, keys: &[u64]) -> Result<Neighbours, PyErr> {
        let keys = typed::<K>(keys);
        let mut pairs = Pairs::<K>::default();
        self.with_session(|session| {
            session.neighbours(which, &keys, &mut pairs).map_err(|error| error::reading(&error))
        })?;
        let absent = vec![0; if self.has_blocks() { 0 } else { self.value_bytes() }];
        let mut found = Neighbours::default();
        for index in 0..keys.len() {
            let pair = pairs.scan(index).next();
            found.versions.push(pair.map_or(0, |pair| pair.version));
            let (key, value) = pair.map_or((0, &absent[..]), |pair| (pair.key.to_bits(), pair.value));
            found.columns.push(key, value);
        }
        Ok(found)
    }

    fn scan_keys(&self, range: Range, limit: usize, is_reverse: bool) -> Result<Vec<u64>, PyErr> {
        let Some((first, last)) = encoded::<K>(range) else { return Ok(Vec::new()) };
        let range = K::decode(first)..=K::decode(last);
        self.with_session(|session| {
            let keys = if is_reverse { session.keys_descending(range) } else { session.keys(range) };
            let bits = keys.take(limit).enumerate().map(|(index, key)| {
                hear_signals(index)?;
                key.map(K::to_bits).map_err(|error| error::reading(&error))
            });
            bits.collect()
        })
    }

    fn count(&self, range: Range) -> Result<usize, PyErr> {
        let Some((first, last)) = encoded::<K>(range) else { return Ok(0) };
        let range = K::decode(first)..=K::decode(last);
        self.with_session(|session| {
            session.keys(range).try_fold(0, |count, key| {
                hear_signals(count)?;
                key.map(|_| count + 1).map_err(|error| error::reading(&error))
            })
        })
    }

    fn scan(&self, range: Range, limit: usize, is_reverse: bool) -> Result<Columns, PyErr> {
        let Some((first, last)) = encoded::<K>(range) else { return Ok(Columns::default()) };
        self.with_session(|session| {
            let mut columns = Columns::default();
            let mut page = Pairs::<K>::default();
            let mut from = Some(if is_reverse { last } else { first });
            let mut origin = None;
            while let Some(place) = from.filter(|place| (first..=last).contains(place)) {
                hear_signals(columns.keys.len())?;
                let wanted = (limit - columns.keys.len()).min(PAGE_PAIRS);
                let scans = [(K::decode(place), wanted)];
                let scanned = if is_reverse {
                    session.scan_batch_descending(&scans, &mut page)
                } else {
                    session.scan_batch(&scans, &mut page)
                };
                scanned.map_err(|error| error::reading(&error))?;
                let is = session.origin();
                let was = origin.get_or_insert(is);
                was.check_same(is, self.name()).map_err(|error| error::reading(&error))?;
                let inside = page.iter().take_while(|pair| (first..=last).contains(&pair.key.encode()));
                let before = columns.keys.len();
                if self.has_blocks() {
                    inside.for_each(|pair| columns.push(pair.key.to_bits(), pair.value));
                } else {
                    columns.keys.extend(inside.map(|pair| pair.key.to_bits()));
                    let added = columns.keys.len() - before;
                    columns.values.extend_from_slice(&page.values()[..added * self.value_bytes()]);
                }
                let added = columns.keys.len() - before;
                if added < wanted || columns.keys.len() == limit {
                    break;
                }
                from = columns.keys.last().and_then(|bits| {
                    let last = K::from_bits(*bits).encode();
                    if is_reverse { last.checked_sub(1) } else { last.checked_add(1) }
                });
            }
            Ok(columns)
        })
    }

    fn load(&self, keys: &[u64], values: &[&[u8]]) -> Result<u64, PyErr> {
        let mut load = self.table.bulk_load().map_err(|error| error::opening(&error))?;
        for (index, (bits, value)) in keys.iter().zip(values).enumerate() {
            hear_signals(index)?;
            load.push(K::from_bits(*bits), value).map_err(|error| error::loading(&error))?;
        }
        load.finish().map_err(|error| error::loading(&error))
    }
}

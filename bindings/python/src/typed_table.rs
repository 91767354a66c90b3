//! One table whose keys' type is known at run time only.
//!
//! Invariant: a session is used by one thread at a time. Sessions that no thread uses wait in a stack; there
//! are as many as there ever were threads at once.

use std::sync::{Mutex, PoisonError};

use farsight::{
    Answers, CacheStats, Client, EngineKind, Exchanges, Key, Neighbour, Options, Pairs, Session, Table,
    TableError, TableOptions, WriteOperation, WriteOutcome,
};
use pyo3::PyErr;

use crate::error;

/// Keys as numpy keeps them.
pub(crate) trait NumpyKey: Key {
    fn from_bits(bits: u64) -> Self;
    fn to_bits(self) -> u64;
}

impl NumpyKey for u64 {
    fn from_bits(bits: u64) -> Self {
        bits
    }

    fn to_bits(self) -> u64 {
        self
    }
}

impl NumpyKey for i64 {
    fn from_bits(bits: u64) -> Self {
        bits.cast_signed()
    }

    fn to_bits(self) -> u64 {
        self.cast_unsigned()
    }
}

impl NumpyKey for f64 {
    fn from_bits(bits: u64) -> Self {
        Self::from_bits(bits)
    }

    fn to_bits(self) -> u64 {
        self.to_bits()
    }
}

impl NumpyKey for [u8; 8] {
    fn from_bits(bits: u64) -> Self {
        bits.to_ne_bytes()
    }

    fn to_bits(self) -> u64 {
        u64::from_ne_bytes(self)
    }
}

/// Pairs of one page of a scan.
const PAGE_PAIRS: usize = 4096;

/// The bits of keys, and as many values one behind the other.
#[derive(Default)]
pub(crate) struct Columns {
    pub(crate) keys: Vec<u64>,
    pub(crate) values: Vec<u8>,
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

/// What conditional writes came to.
pub(crate) struct Exchanged {
    pub(crate) outcomes: Vec<WriteOutcome>,
    /// The values before, if the operation returns those.
    pub(crate) exchanges: Exchanges,
}

/// A table's operations on keys' bits. None needs the interpreter.
pub(crate) trait Operations: Send + Sync {
    fn name(&self) -> &str;
    fn kind(&self) -> String;
    fn value_bytes(&self) -> usize;
    /// The name of the type of its values.
    fn value_type(&self) -> &str;
    fn multi_get(&self, keys: &[u64]) -> Result<Answers, PyErr>;
    /// The first pairs, at most `limit`, from the key `first` on, and below `end`.
    fn scan(&self, range: Range, limit: usize, is_reverse: bool) -> Result<Columns, PyErr>;
    /// The neighbours of keys; version zero where there is none.
    fn neighbours(&self, which: Neighbour, keys: &[u64]) -> Result<Neighbours, PyErr>;
    /// An insert, update, put or removal.
    fn write_one(&self, operation: WriteOperation, key: u64, value: &[u8]) -> Result<WriteOutcome, PyErr>;
    /// Such writes of one kind; for a removal `values` is not looked at.
    fn write_many(
        &self,
        operation: WriteOperation,
        keys: &[u64],
        values: &[u8],
    ) -> Result<Vec<WriteOutcome>, PyErr>;
    /// Conditional writes of one kind. For each key its operand stands in `operands`.
    fn exchange(&self, operation: WriteOperation, keys: &[u64], operands: &[u8]) -> Result<Exchanged, PyErr>;
    /// Stores ascending pairs in the empty table.
    fn load(&self, keys: &[u64], values: &[u8]) -> Result<u64, PyErr>;
    /// What this process's cache of the table holds.
    fn cache_stats(&self) -> CacheStats;
    /// Makes `bytes` what that cache may take. False if the engine's cache has no budget.
    fn set_cache_bytes(&self, bytes: u64) -> Result<bool, PyErr>;
}

/// Opens a table with keys of type `K`.
pub(crate) fn open<K: NumpyKey>(client: &Client, name: &str) -> Result<Box<dyn Operations>, TableError> {
    Ok(Box::new(TypedTable { table: client.table::<K>(name)?, idle: Mutex::default() }))
}

/// Makes a table with keys of type `K`, or opens the one that is defined so.
pub(crate) fn create<K: NumpyKey>(
    client: &Client,
    name: &str,
    value_bytes: usize,
    engine: Option<&'static EngineKind>,
    sample: &[u64],
    value_type: &str,
) -> Result<Box<dyn Operations>, TableError> {
    let options = TableOptions { engine, sample: typed::<K>(sample), value_type: value_type.to_owned() };
    let table = client.create_table_with::<K>(name, value_bytes, &options)?;
    Ok(Box::new(TypedTable { table, idle: Mutex::default() }))
}

struct TypedTable<K> {
    table: Table<K>,
    idle: Mutex<Vec<Session<K>>>,
}

impl<K: NumpyKey> TypedTable<K> {
    /// Calls `work` with a session of its own.
    fn with_session<T>(&self, work: impl FnOnce(&mut Session<K>) -> Result<T, PyErr>) -> Result<T, PyErr> {
        let idle = self.idle().pop();
        let mut session = match idle {
            Some(session) => session,
            None => self.table.session(Options::default()).map_err(|error| error::opening(&error))?,
        };
        let done = work(&mut session);
        self.idle().push(session);
        done
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Session<K>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn typed<K: NumpyKey>(keys: &[u64]) -> Vec<K> {
    keys.iter().map(|bits| K::from_bits(*bits)).collect()
}

impl<K: NumpyKey> Operations for TypedTable<K> {
    fn name(&self) -> &str {
        self.table.name()
    }

    fn kind(&self) -> String {
        K::KIND.to_string()
    }

    fn value_bytes(&self) -> usize {
        self.table.value_bytes()
    }

    fn value_type(&self) -> &str {
        &self.table.info().definition.value_type
    }

    fn multi_get(&self, keys: &[u64]) -> Result<Answers, PyErr> {
        let keys = typed::<K>(keys);
        let mut answers = Answers::default();
        self.with_session(|session| {
            session.multi_get(&keys, &mut answers).map_err(|error| error::reading(&error))
        })?;
        Ok(answers)
    }

    fn neighbours(&self, which: Neighbour, keys: &[u64]) -> Result<Neighbours, PyErr> {
        let keys = typed::<K>(keys);
        let mut pairs = Pairs::<K>::default();
        self.with_session(|session| {
            session.neighbours(which, &keys, &mut pairs).map_err(|error| error::reading(&error))
        })?;
        let (absent, mut found) = (vec![0; self.value_bytes()], Neighbours::default());
        for index in 0..keys.len() {
            let pair = pairs.scan(index).next();
            found.versions.push(pair.map_or(0, |pair| pair.version));
            found.columns.keys.push(pair.map_or(0, |pair| pair.key.to_bits()));
            found.columns.values.extend_from_slice(pair.map_or(&absent, |pair| pair.value));
        }
        Ok(found)
    }

    fn scan(&self, range: Range, limit: usize, is_reverse: bool) -> Result<Columns, PyErr> {
        let (first, end) = (range.0.map_or(0, |bits| K::from_bits(bits).encode()), range.1);
        let end = end.map(|bits| K::from_bits(bits).encode());
        let last = end.map_or(Some(u64::MAX), |end| end.checked_sub(1)).filter(|last| first <= *last);
        let Some(last) = last else { return Ok(Columns::default()) };
        self.with_session(|session| {
            let mut columns = Columns::default();
            let mut page = Pairs::<K>::default();
            let mut from = Some(if is_reverse { last } else { first });
            let mut origin = None;
            while let Some(place) = from.filter(|place| (first..=last).contains(place)) {
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
                columns.keys.extend(inside.map(|pair| pair.key.to_bits()));
                let added = columns.keys.len() - before;
                columns.values.extend_from_slice(&page.values()[..added * self.value_bytes()]);
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

    fn write_one(&self, operation: WriteOperation, key: u64, value: &[u8]) -> Result<WriteOutcome, PyErr> {
        let key = K::from_bits(key);
        self.with_session(|session| {
            let outcome = match operation {
                WriteOperation::Insert => session.insert(key, value),
                WriteOperation::Update => session.update(key, value),
                WriteOperation::Put => session.put(key, value),
                _ => session.remove(key),
            };
            outcome.map_err(|error| error::writing(&error))
        })
    }

    fn write_many(
        &self,
        operation: WriteOperation,
        keys: &[u64],
        values: &[u8],
    ) -> Result<Vec<WriteOutcome>, PyErr> {
        let keys = typed::<K>(keys);
        let mut outcomes = Vec::new();
        self.with_session(|session| {
            if operation == WriteOperation::Remove {
                let done = session.remove_many(&keys, &mut outcomes);
                return done.map_err(|error| error::writing(&error));
            }
            let values = values.chunks_exact(self.value_bytes());
            let pairs: Vec<(K, &[u8])> = keys.into_iter().zip(values).collect();
            let done = match operation {
                WriteOperation::Insert => session.insert_many(&pairs, &mut outcomes),
                WriteOperation::Update => session.update_many(&pairs, &mut outcomes),
                _ => session.put_many(&pairs, &mut outcomes),
            };
            done.map_err(|error| error::writing(&error))
        })?;
        Ok(outcomes)
    }

    fn exchange(&self, operation: WriteOperation, keys: &[u64], operands: &[u8]) -> Result<Exchanged, PyErr> {
        let operand_bytes = operation.operand_bytes(self.value_bytes());
        let entries = typed::<K>(keys).into_iter().zip(operands.chunks_exact(operand_bytes));
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let (mut outcomes, mut exchanges) = (Vec::new(), Exchanges::default());
        self.with_session(|session| {
            let done = match operation {
                WriteOperation::CompareAndSet => {
                    let writes: Vec<_> =
                        entries.map(|(key, bytes)| (key, word(&bytes[..8]), &bytes[8..])).collect();
                    session.compare_and_set_many(&writes, &mut outcomes)
                }
                WriteOperation::CompareAndSetValue => {
                    let halves = |(key, bytes): (K, &'_ [u8])| {
                        let (expected, value) = bytes.split_at(bytes.len() / 2);
                        (key, expected.to_vec(), value.to_vec())
                    };
                    let writes: Vec<_> = entries.map(halves).collect();
                    session.compare_and_set_value_many(&writes, &mut outcomes)
                }
                WriteOperation::RemoveIf => {
                    let writes: Vec<_> = entries.map(|(key, bytes)| (key, word(bytes))).collect();
                    session.remove_if_many(&writes, &mut outcomes)
                }
                WriteOperation::FetchAdd => {
                    let addend = |(key, bytes): (K, &[u8])| (key, word(bytes).cast_signed());
                    let writes: Vec<_> = entries.map(addend).collect();
                    session.fetch_add_many(&writes, &mut exchanges)
                }
                _ => session.swap_many(&entries.collect::<Vec<_>>(), &mut exchanges),
            };
            done.map_err(|error| error::writing(&error))
        })?;
        if operation.returns_value() {
            outcomes.extend_from_slice(exchanges.outcomes());
        }
        Ok(Exchanged { outcomes, exchanges })
    }

    fn cache_stats(&self) -> CacheStats {
        self.table.cache_stats()
    }

    fn set_cache_bytes(&self, bytes: u64) -> Result<bool, PyErr> {
        self.table.set_cache_bytes(bytes).map_err(|error| error::opening(&error))
    }

    fn load(&self, keys: &[u64], values: &[u8]) -> Result<u64, PyErr> {
        let mut load = self.table.bulk_load().map_err(|error| error::opening(&error))?;
        for (bits, value) in keys.iter().zip(values.chunks_exact(self.value_bytes())) {
            load.push(K::from_bits(*bits), value).map_err(|error| error::loading(&error))?;
        }
        load.finish().map_err(|error| error::loading(&error))
    }
}

//! One table whose keys' type is known at run time only.
//!
//! Invariant: a session is used by one thread at a time. Sessions that no thread uses wait in a stack; there
//! are as many as there ever were threads at once.

use std::sync::{Mutex, PoisonError};

use farsight::{
    Ack, Answers, CacheStats, Client, EngineKind, Exchanges, Key, Lifetime, Neighbour, Operand, Options,
    Pairs, Session, Table, TableError, TableOptions, ValueKind, WriteOperation, WriteOutcome,
};
use pyo3::PyErr;

use crate::error;

/// Keys as numpy keeps them.
pub(crate) trait NumpyKey: Key {
    fn from_bits(bits: u64) -> Self;
    fn to_bits(self) -> u64;

    /// Many keys; in `room` unless their bits are what they are.
    fn of_bits<'a>(bits: &'a [u64], room: &'a mut Vec<Self>) -> &'a [Self] {
        room.extend(bits.iter().map(|bits| Self::from_bits(*bits)));
        room
    }
}

impl NumpyKey for u64 {
    fn from_bits(bits: u64) -> Self {
        bits
    }

    fn to_bits(self) -> u64 {
        self
    }

    fn of_bits<'a>(bits: &'a [u64], _room: &'a mut Vec<u64>) -> &'a [u64] {
        bits
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

/// How long the values of a new table are.
#[derive(Clone, Copy)]
pub(crate) enum Sizes {
    /// So many bytes each.
    Each(usize),
    /// Any number up to so many; zero: as many as any fabric carries. Pairs have deadlines if there is a
    /// number of milliseconds after which they end; zero: they stay unless their writer says otherwise.
    UpTo(usize, Option<u64>),
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
    /// True if values have any length.
    fn has_blocks(&self) -> bool;
    /// The name of the type of its values.
    fn value_type(&self) -> &str;
    fn multi_get(&self, keys: &[u64], answers: &mut Answers) -> Result<(), PyErr>;
    /// The first pairs, at most `limit`, from the key `first` on, and below `end`.
    fn scan(&self, range: Range, limit: usize, is_reverse: bool) -> Result<Columns, PyErr>;
    /// The bits of the first keys, at most `limit`, of the same range.
    fn scan_keys(&self, range: Range, limit: usize, is_reverse: bool) -> Result<Vec<u64>, PyErr>;
    /// How many pairs the range has.
    fn count(&self, range: Range) -> Result<u64, PyErr>;
    /// The neighbours of keys; version zero where there is none.
    fn neighbours(&self, which: Neighbour, keys: &[u64]) -> Result<Neighbours, PyErr>;
    /// An insert, update, put or removal, of a pair that stays so long.
    fn write_one(
        &self,
        operation: WriteOperation,
        key: u64,
        value: &[u8],
        lifetime: Lifetime,
    ) -> Result<WriteOutcome, PyErr>;
    /// Such writes of one kind; for a removal `values` is not looked at.
    fn write_many(
        &self,
        operation: WriteOperation,
        keys: &[u64],
        values: &[&[u8]],
        lifetime: Lifetime,
    ) -> Result<Vec<WriteOutcome>, PyErr>;
    /// How long the pair of a key stays; `None` if the key is absent.
    fn time_to_live(&self, key: u64) -> Result<Option<Lifetime>, PyErr>;
    /// Lets the pair of a key stay so long. False if the key is absent.
    fn set_time_to_live(&self, key: u64, lifetime: Lifetime) -> Result<bool, PyErr>;
    /// Conditional writes of one kind: for each key what it expects or adds, and the value that it brings.
    fn exchange(
        &self,
        operation: WriteOperation,
        keys: &[u64],
        operands: &[Operand<'_>],
    ) -> Result<Exchanged, PyErr>;
    /// Stores ascending pairs in the empty table.
    fn load(&self, keys: &[u64], values: &[&[u8]]) -> Result<u64, PyErr>;
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
    sizes: Sizes,
    engine: Option<&'static EngineKind>,
    sample: &[u64],
    value_type: &str,
    (memory_bytes, ack, replicas): (Option<u64>, Option<Ack>, Option<u8>),
) -> Result<Box<dyn Operations>, TableError> {
    let (sample, value_type) = (typed::<K>(sample), value_type.to_owned());
    let options = TableOptions { engine, sample, value_type, memory_bytes, ack, replicas };
    let table = match sizes {
        Sizes::Each(bytes) => client.create_table_with::<K>(name, bytes, &options)?,
        Sizes::UpTo(bytes, ttl_ms) => {
            // More than 4 GiB is too much in any case, and refused as such.
            let values = match bytes {
                0 => engine.map_or(ValueKind::BLOCKS, EngineKind::longest_values),
                bytes => ValueKind::blocks(u32::try_from(bytes).unwrap_or(u32::MAX)),
            };
            let values = ttl_ms.map_or(values, |ttl_ms| values.expiring(ttl_ms));
            client.create_table_of::<K>(name, values, &options)?
        }
    };
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

    /// The same, with a session whose writes have this lifetime.
    fn with_lifetime<T>(
        &self,
        lifetime: Lifetime,
        work: impl FnOnce(&mut Session<K>) -> Result<T, PyErr>,
    ) -> Result<T, PyErr> {
        self.with_session(|session| {
            session.set_lifetime(lifetime).map_err(|error| error::writing(&error))?;
            let done = work(session);
            session.set_lifetime(Lifetime::OfTable).map_err(|error| error::writing(&error))?;
            done
        })
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Session<K>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first and the last key of a range, encoded; `None` if it holds none.
fn encoded<K: NumpyKey>((first, end): Range) -> Option<(u64, u64)> {
    let first = first.map_or(0, |bits| K::from_bits(bits).encode());
    let end = end.map(|bits| K::from_bits(bits).encode());
    let last = end.map_or(Some(u64::MAX), |end| end.checked_sub(1))?;
    (first <= last).then_some((first, last))
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

    fn has_blocks(&self) -> bool {
        self.table.values().are_blocks()
    }

    fn value_type(&self) -> &str {
        &self.table.info().definition.value_type
    }

    fn multi_get(&self, keys: &[u64], answers: &mut Answers) -> Result<(), PyErr> {
        let mut typed = Vec::new();
        let keys = K::of_bits(keys, &mut typed);
        self.with_session(|session| session.multi_get(keys, answers).map_err(|error| error::reading(&error)))
    }

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
            let bits = keys.take(limit).map(|key| key.map(K::to_bits));
            bits.collect::<Result<_, _>>().map_err(|error| error::reading(&error))
        })
    }

    fn count(&self, range: Range) -> Result<u64, PyErr> {
        let Some((first, last)) = encoded::<K>(range) else { return Ok(0) };
        let range = K::decode(first)..=K::decode(last);
        self.with_session(|session| session.count(range).map_err(|error| error::reading(&error)))
    }

    fn scan(&self, range: Range, limit: usize, is_reverse: bool) -> Result<Columns, PyErr> {
        let Some((first, last)) = encoded::<K>(range) else { return Ok(Columns::default()) };
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

    fn write_one(
        &self,
        operation: WriteOperation,
        key: u64,
        value: &[u8],
        lifetime: Lifetime,
    ) -> Result<WriteOutcome, PyErr> {
        let key = K::from_bits(key);
        self.with_lifetime(lifetime, |session| {
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
        values: &[&[u8]],
        lifetime: Lifetime,
    ) -> Result<Vec<WriteOutcome>, PyErr> {
        let keys = typed::<K>(keys);
        let mut outcomes = Vec::new();
        self.with_lifetime(lifetime, |session| {
            if operation == WriteOperation::Remove {
                let done = session.remove_many(&keys, &mut outcomes);
                return done.map_err(|error| error::writing(&error));
            }
            let pairs: Vec<(K, &[u8])> = keys.into_iter().zip(values.iter().copied()).collect();
            let done = match operation {
                WriteOperation::Insert => session.insert_many(&pairs, &mut outcomes),
                WriteOperation::Update => session.update_many(&pairs, &mut outcomes),
                _ => session.put_many(&pairs, &mut outcomes),
            };
            done.map_err(|error| error::writing(&error))
        })?;
        Ok(outcomes)
    }

    fn time_to_live(&self, key: u64) -> Result<Option<Lifetime>, PyErr> {
        let key = K::from_bits(key);
        self.with_session(|session| session.time_to_live(key).map_err(|error| error::reading(&error)))
    }

    fn set_time_to_live(&self, key: u64, lifetime: Lifetime) -> Result<bool, PyErr> {
        let key = K::from_bits(key);
        self.with_session(|session| {
            session.set_time_to_live(key, lifetime).map_err(|error| error::writing(&error))
        })
    }

    fn exchange(
        &self,
        operation: WriteOperation,
        keys: &[u64],
        operands: &[Operand<'_>],
    ) -> Result<Exchanged, PyErr> {
        let entries = typed::<K>(keys).into_iter().zip(operands);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let (mut outcomes, mut exchanges) = (Vec::new(), Exchanges::default());
        self.with_session(|session| {
            let done = match operation {
                WriteOperation::CompareAndSet => {
                    let writes: Vec<_> =
                        entries.map(|(key, operand)| (key, word(operand.argument), operand.value)).collect();
                    session.compare_and_set_many(&writes, &mut outcomes)
                }
                WriteOperation::CompareAndSetValue => {
                    let writes: Vec<_> =
                        entries.map(|(key, operand)| (key, operand.argument, operand.value)).collect();
                    session.compare_and_set_value_many(&writes, &mut outcomes)
                }
                WriteOperation::RemoveIf => {
                    let writes = entries.map(|(key, operand)| (key, word(operand.argument)));
                    let writes: Vec<_> = writes.collect();
                    session.remove_if_many(&writes, &mut outcomes)
                }
                WriteOperation::FetchAdd => {
                    let addend =
                        |(key, operand): (K, &Operand<'_>)| (key, word(operand.argument).cast_signed());
                    let writes: Vec<_> = entries.map(addend).collect();
                    session.fetch_add_many(&writes, &mut exchanges)
                }
                _ => {
                    let pairs: Vec<_> = entries.map(|(key, operand)| (key, operand.value)).collect();
                    session.swap_many(&pairs, &mut exchanges)
                }
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

    fn load(&self, keys: &[u64], values: &[&[u8]]) -> Result<u64, PyErr> {
        let mut load = self.table.bulk_load().map_err(|error| error::opening(&error))?;
        for (bits, value) in keys.iter().zip(values) {
            load.push(K::from_bits(*bits), value).map_err(|error| error::loading(&error))?;
        }
        load.finish().map_err(|error| error::loading(&error))
    }
}

//! One table whose keys' type is known at run time only.
//!
//! Invariant: a session is used by one thread at a time. Sessions that no thread uses wait in a stack; there
//! are as many as there ever were threads at once.

use std::sync::{Mutex, PoisonError};

use farsight::{
    Ack, Answers, CacheStats, Client, EngineKind, Exchanges, Lifetime, Operand, Options, ReadsByOthers,
    Session, Table, TableError, TableOptions, ValueCache, ValueKind, WriteOperation, WriteOutcome,
};
use pyo3::PyErr;

use crate::error;
use crate::keys::{Keys, TableKey};
use crate::ordered::{Ordered, SIGNALS_PAIRS, hear_signals};
use crate::pairs::Walk;

/// How long the values of a new table are.
#[derive(Clone, Copy)]
pub(crate) enum Sizes {
    /// So many bytes each.
    Each(usize),
    /// Any number up to so many; zero: as many as any fabric carries. Pairs have deadlines if there is a
    /// number of milliseconds after which they end; zero: they stay unless their writer says otherwise.
    UpTo(usize, Option<u64>),
}

/// What conditional writes came to.
pub(crate) struct Exchanged {
    pub(crate) outcomes: Vec<WriteOutcome>,
    /// The values before, if the operation returns those.
    pub(crate) exchanges: Exchanges,
}

/// A table's operations on keys as it has them: on the first of them, where an operation has one key. None
/// needs the interpreter.
pub(crate) trait Operations: Send + Sync {
    fn name(&self) -> &str;
    fn kind(&self) -> String;
    fn value_bytes(&self) -> usize;
    /// True if values have any length.
    fn has_blocks(&self) -> bool;
    /// The name of the type of its values.
    fn value_type(&self) -> &str;
    /// What an order of its keys is needed for, if they have one.
    fn ordered(&self) -> Option<&dyn Ordered>;
    fn multi_get(&self, keys: Keys<'_>, answers: &mut Answers) -> Result<(), PyErr>;
    /// An insert, update, put or removal, of a pair that stays so long.
    fn write_one(
        &self,
        operation: WriteOperation,
        key: Keys<'_>,
        value: &[u8],
        lifetime: Lifetime,
    ) -> Result<WriteOutcome, PyErr>;
    /// Such writes of one kind; for a removal `values` is not looked at.
    fn write_many(
        &self,
        operation: WriteOperation,
        keys: Keys<'_>,
        values: &[&[u8]],
        lifetime: Lifetime,
    ) -> Result<Vec<WriteOutcome>, PyErr>;
    /// How long the pair of a key stays; `None` if the key is absent.
    fn time_to_live(&self, key: Keys<'_>) -> Result<Option<Lifetime>, PyErr>;
    /// Lets the pair of a key stay so long. False if the key is absent.
    fn set_time_to_live(&self, key: Keys<'_>, lifetime: Lifetime) -> Result<bool, PyErr>;
    /// Conditional writes of one kind: for each key what it expects or adds, and the value that it brings.
    fn exchange(
        &self,
        operation: WriteOperation,
        keys: Keys<'_>,
        operands: &[Operand<'_>],
    ) -> Result<Exchanged, PyErr>;
    /// A walk over all pairs, in whatever order the engine has them.
    fn pairs(&self) -> Result<Box<dyn Walk>, PyErr>;
    /// What this process's cache of the table holds.
    fn cache_stats(&self) -> CacheStats;
    /// Makes `bytes` what that cache may take. False if the engine's cache has no budget.
    fn set_cache_bytes(&self, bytes: u64) -> Result<bool, PyErr>;
    /// Makes `cache` what this process may keep of the values. False if the engine keeps none.
    fn set_value_cache(&self, cache: ValueCache) -> Result<bool, PyErr>;
    /// What compute nodes that serve do for this process's GETs from now on.
    fn set_reads_by_others(&self, reads: ReadsByOthers) -> Result<(), PyErr>;
}

/// Opens a table with keys of type `K`.
pub(crate) fn open<K: TableKey + ?Sized>(
    client: &Client,
    name: &str,
) -> Result<Box<dyn Operations>, TableError> {
    Ok(Box::new(TypedTable { table: client.table::<K>(name)?, idle: Mutex::default() }))
}

/// Makes a table with keys of type `K`, or opens the one that is defined so.
pub(crate) fn create<K: TableKey + ?Sized>(
    client: &Client,
    name: &str,
    sizes: Sizes,
    engine: Option<&'static EngineKind>,
    sample: &[u64],
    value_type: &str,
    (memory_bytes, ack, replicas): (Option<u64>, Option<Ack>, Option<u8>),
) -> Result<Box<dyn Operations>, TableError> {
    let (sample, value_type) = (<K as TableKey>::sample(sample), value_type.to_owned());
    let options = TableOptions { engine, sample, value_type, memory_bytes, ack, replicas };
    let table = match sizes {
        Sizes::Each(bytes) => client.create_table_with::<K>(name, bytes, &options)?,
        Sizes::UpTo(bytes, ttl_ms) => {
            // More than 4 GiB is too much in any case, and refused as such.
            let values = match bytes {
                0 => engine.map_or_else(K::longest_values, EngineKind::longest_values),
                bytes => ValueKind::blocks(u32::try_from(bytes).unwrap_or(u32::MAX)),
            };
            let values = ttl_ms.map_or(values, |ttl_ms| values.expiring(ttl_ms));
            client.create_table_of::<K>(name, values, &options)?
        }
    };
    Ok(Box::new(TypedTable { table, idle: Mutex::default() }))
}

/// A table with keys of type `K`.
pub(crate) struct TypedTable<K: ?Sized> {
    pub(crate) table: Table<K>,
    idle: Mutex<Vec<Session<K>>>,
}

impl<K: TableKey + ?Sized> TypedTable<K> {
    /// Calls `work` with a session of its own.
    pub(crate) fn with_session<T>(
        &self,
        work: impl FnOnce(&mut Session<K>) -> Result<T, PyErr>,
    ) -> Result<T, PyErr> {
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

/// The key of an operation on a single one.
fn only<K: TableKey + ?Sized>(key: Keys<'_>) -> K::Ref<'_> {
    K::keys(key, &mut Vec::new())[0]
}

impl<K: TableKey + ?Sized> Operations for TypedTable<K> {
    fn name(&self) -> &str {
        self.table.name()
    }

    fn kind(&self) -> String {
        K::KEY_KIND.to_string()
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

    fn ordered(&self) -> Option<&dyn Ordered> {
        K::ordered(self)
    }

    fn multi_get(&self, keys: Keys<'_>, answers: &mut Answers) -> Result<(), PyErr> {
        let mut room = Vec::new();
        let keys = K::keys(keys, &mut room);
        self.with_session(|session| session.multi_get(keys, answers).map_err(|error| error::reading(&error)))
    }

    fn write_one(
        &self,
        operation: WriteOperation,
        key: Keys<'_>,
        value: &[u8],
        lifetime: Lifetime,
    ) -> Result<WriteOutcome, PyErr> {
        let key = only::<K>(key);
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
        keys: Keys<'_>,
        values: &[&[u8]],
        lifetime: Lifetime,
    ) -> Result<Vec<WriteOutcome>, PyErr> {
        let mut room = Vec::new();
        let keys = K::keys(keys, &mut room);
        let (mut outcomes, mut part) = (Vec::with_capacity(keys.len()), Vec::new());
        self.with_lifetime(lifetime, |session| {
            for (number, keys) in keys.chunks(SIGNALS_PAIRS).enumerate() {
                let first = number * SIGNALS_PAIRS;
                hear_signals(first)?;
                let pairs =
                    || -> Vec<_> { keys.iter().copied().zip(values[first..].iter().copied()).collect() };
                let done = match operation {
                    WriteOperation::Remove => session.remove_many(keys, &mut part),
                    WriteOperation::Insert => session.insert_many(&pairs(), &mut part),
                    WriteOperation::Update => session.update_many(&pairs(), &mut part),
                    _ => session.put_many(&pairs(), &mut part),
                };
                done.map_err(|error| error::writing(&error))?;
                outcomes.append(&mut part);
            }
            Ok(())
        })?;
        Ok(outcomes)
    }

    fn time_to_live(&self, key: Keys<'_>) -> Result<Option<Lifetime>, PyErr> {
        let key = only::<K>(key);
        self.with_session(|session| session.time_to_live(key).map_err(|error| error::reading(&error)))
    }

    fn set_time_to_live(&self, key: Keys<'_>, lifetime: Lifetime) -> Result<bool, PyErr> {
        let key = only::<K>(key);
        self.with_session(|session| {
            session.set_time_to_live(key, lifetime).map_err(|error| error::writing(&error))
        })
    }

    fn exchange(
        &self,
        operation: WriteOperation,
        keys: Keys<'_>,
        operands: &[Operand<'_>],
    ) -> Result<Exchanged, PyErr> {
        let mut room = Vec::new();
        let entries = K::keys(keys, &mut room).iter().copied().zip(operands);
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
                    let writes = entries.map(|(key, operand)| (key, word(operand.argument).cast_signed()));
                    let writes: Vec<_> = writes.collect();
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

    fn pairs(&self) -> Result<Box<dyn Walk>, PyErr> {
        let session = self.table.session(Options::default()).map_err(|error| error::opening(&error))?;
        Ok(Box::new(session.into_pairs()))
    }

    fn cache_stats(&self) -> CacheStats {
        self.table.cache_stats()
    }

    fn set_cache_bytes(&self, bytes: u64) -> Result<bool, PyErr> {
        self.table.set_cache_bytes(bytes).map_err(|error| error::opening(&error))
    }

    fn set_value_cache(&self, cache: ValueCache) -> Result<bool, PyErr> {
        self.table.set_value_cache(cache).map_err(|error| error::opening(&error))
    }

    fn set_reads_by_others(&self, reads: ReadsByOthers) -> Result<(), PyErr> {
        self.table.set_reads_by_others(reads).map_err(|error| error::opening(&error))
    }
}

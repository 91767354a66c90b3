//! A table: bytes of keys and values in, bytes out.

use std::time::Duration;

use farsight::{
    Lifetime, Neighbour, Operand, ReadsByOthers, ValueCache, WriteError, WriteOperation, WriteOutcome,
};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyBytes};

use crate::error;
use crate::keys::{ByteKeys, Keys};
use crate::ordered::Ordered;
use crate::pairs::Pairs;
use crate::reading::{Found, Room, Rooms};
use crate::typed_table::Operations;

/// The milliseconds of a pair that stays until it is removed.
const ENDLESS_MS: u64 = u64::MAX;

/// How long a pair stays, by milliseconds; as long as the table says without any.
fn lifetime_of(ttl_ms: Option<u64>) -> Lifetime {
    match ttl_ms {
        None => Lifetime::OfTable,
        Some(ENDLESS_MS) => Lifetime::Endless,
        Some(ttl_ms) => Lifetime::For(Duration::from_millis(ttl_ms)),
    }
}

/// An open table. Threads may share it.
#[pyclass(frozen)]
pub(crate) struct Table {
    operations: Box<dyn Operations>,
    /// What it takes for keys, if those are bytes of any length.
    byte_keys: Option<ByteKeys>,
    rooms: Rooms,
}

impl Table {
    /// `byte_keys` belongs to keys of bytes of any length, and to no others.
    pub(crate) fn new(operations: Box<dyn Operations>, byte_keys: Option<ByteKeys>) -> Self {
        Self { operations, byte_keys, rooms: Rooms::default() }
    }
}

#[pymethods]
impl Table {
    #[getter]
    fn name(&self) -> &str {
        self.operations.name()
    }

    #[getter]
    fn kind(&self) -> String {
        self.operations.kind()
    }

    #[getter]
    fn value_bytes(&self) -> usize {
        self.operations.value_bytes()
    }

    #[getter]
    fn has_blocks(&self) -> bool {
        self.operations.has_blocks()
    }

    #[getter]
    fn value_type(&self) -> &str {
        self.operations.value_type()
    }

    /// Fails if keys have no order, and there is no `what` for want of one.
    fn check_order(&self, what: &str) -> PyResult<()> {
        self.ordered(what).map(drop)
    }

    /// The value of a key and its version.
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'_, PyAny>,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, u64)>> {
        let mut room = self.rooms.take();
        self.with_key(key, |key| py.detach(|| room.found.read(&*self.operations, key)))?;
        let found = room.found.answers.get(0).map(|(value, version)| (PyBytes::new(py, value), version));
        self.rooms.put_back(room);
        Ok(found)
    }

    /// Which keys were found, a byte each. If they are wanted, versions, which are zero for absent keys.
    /// Values, zeros for absent keys, unless they went to the buffer `out`.
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        wants_versions: bool,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<GotBatch<'py>> {
        let mut room = self.rooms.take();
        self.read(keys, &mut room)?;
        let Found { answers, mask } = &room.found;
        let values = answers.values();
        let values = match out {
            None => Some(PyByteArray::new(py, values)),
            Some(out) => {
                PyBuffer::<u8>::get(out)?.copy_from_slice(py, values)?;
                None
            }
        };
        let versions = wants_versions.then(|| words(py, answers.versions().iter().copied()));
        let found = PyByteArray::new(py, mask);
        let versions = versions.transpose()?;
        self.rooms.put_back(room);
        Ok((found, versions, values))
    }

    /// Keys and values.
    fn scan<'py>(
        &self,
        py: Python<'py>,
        first: Option<u64>,
        end: Option<u64>,
        limit: usize,
        is_reverse: bool,
    ) -> PyResult<(Bound<'py, PyByteArray>, Bound<'py, PyByteArray>)> {
        let ordered = self.ordered("scan")?;
        let columns = py.detach(|| ordered.scan((first, end), limit, is_reverse))?;
        Ok((words(py, columns.keys.iter().copied())?, PyByteArray::new(py, &columns.values)))
    }

    /// Keys alone.
    fn scan_keys<'py>(
        &self,
        py: Python<'py>,
        first: Option<u64>,
        end: Option<u64>,
        limit: usize,
        is_reverse: bool,
    ) -> PyResult<Bound<'py, PyByteArray>> {
        let ordered = self.ordered("scan")?;
        let keys = py.detach(|| ordered.scan_keys((first, end), limit, is_reverse))?;
        words(py, keys.into_iter())
    }

    /// How many pairs there are.
    fn count(&self, py: Python<'_>, first: Option<u64>, end: Option<u64>) -> PyResult<usize> {
        let ordered = self.ordered("count")?;
        py.detach(|| ordered.count((first, end)))
    }

    /// Keys, values, and versions, which are zero for keys without such a neighbour.
    fn neighbours<'py>(
        &self,
        py: Python<'py>,
        which: &str,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<[Bound<'py, PyByteArray>; 3]> {
        let ordered = self.ordered(which)?;
        let which = parse_neighbour(which)?;
        let keys = copied::<u64>(py, keys)?;
        let found = py.detach(|| ordered.neighbours(which, &keys))?;
        let keys = words(py, found.columns.keys.iter().copied())?;
        let versions = words(py, found.versions.iter().copied())?;
        Ok([keys, PyByteArray::new(py, &found.columns.values), versions])
    }

    /// The version of the key now, or `None` if the write changed nothing.
    fn write(
        &self,
        py: Python<'_>,
        operation: &str,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl_ms: Option<u64>,
    ) -> PyResult<Option<u64>> {
        let operation = parse(operation)?;
        let value = copied::<u8>(py, value)?;
        let lifetime = lifetime_of(ttl_ms);
        let write = |key: Keys<'_>| py.detach(|| self.operations.write_one(operation, key, &value, lifetime));
        Ok(version(self.with_key(key, write)?))
    }

    /// The versions of the keys now; zero where a write changed nothing.
    fn write_many<'py>(
        &self,
        py: Python<'py>,
        operation: &str,
        keys: &Bound<'py, PyAny>,
        values: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyByteArray>> {
        let operation = parse(operation)?;
        let bytes = copied::<u8>(py, values)?;
        let values: Vec<&[u8]> = bytes.chunks_exact(self.value_bytes()).collect();
        let outcomes = self.with_keys(keys, &mut Vec::new(), |keys| {
            if operation.has_value() {
                self.check_sizes(keys.len(), &bytes)?;
            }
            py.detach(|| self.operations.write_many(operation, keys, &values, Lifetime::OfTable))
        })?;
        self.check_refusals(operation, &outcomes)?;
        words(py, outcomes.into_iter().map(|outcome| version(outcome).unwrap_or(0)))
    }

    /// Conditional writes: the versions of the keys now, zero where a write changed nothing. Of operations
    /// that return the values before, those, and a byte a key that says whether there was one.
    fn exchange<'py>(
        &self,
        py: Python<'py>,
        operation: &str,
        keys: &Bound<'py, PyAny>,
        operands: &Bound<'py, PyAny>,
    ) -> PyResult<[Bound<'py, PyByteArray>; 3]> {
        let operation = parse_conditional(operation)?;
        let bytes = copied::<u8>(py, operands)?;
        let value_bytes = self.value_bytes();
        let operand_bytes = operation.operand_bytes(value_bytes);
        let operands = bytes.chunks_exact(operand_bytes);
        let operands: Vec<_> = operands.map(|operand| Operand::of_one_size(operation, operand)).collect();
        let done = self.with_keys(keys, &mut Vec::new(), |keys| {
            let (expected, got) = (keys.len() * operand_bytes, bytes.len());
            if expected != got {
                let text = format!("{} writes {operation:?} need {expected} B, got {got} B", keys.len());
                return Err(PyValueError::new_err(text));
            }
            py.detach(|| self.operations.exchange(operation, keys, &operands))
        })?;
        self.check_refusals(operation, &done.outcomes)?;
        let versions = words(py, done.outcomes.iter().map(|outcome| version(*outcome).unwrap_or(0)))?;
        let returned = if operation.returns_value() { done.outcomes.len() } else { 0 };
        let (mut values, mut found) = (vec![0; returned * value_bytes], vec![0; returned]);
        let places = values.chunks_exact_mut(value_bytes).zip(&mut found).enumerate();
        for (index, (place, found)) in places {
            if let Some(old) = done.exchanges.old(index) {
                place.copy_from_slice(old);
                *found = 1;
            }
        }
        Ok([versions, PyByteArray::new(py, &values), PyByteArray::new(py, &found)])
    }

    /// The names of what statistics of the cache say, and what they say.
    fn cache_stats(&self, py: Python<'_>) -> Vec<(&'static str, u64)> {
        let stats = py.detach(|| self.operations.cache_stats());
        vec![
            ("generation", stats.generation),
            ("sub_models", stats.sub_models),
            ("sub_models_filled", stats.sub_models_filled),
            ("model_bytes", stats.model_bytes),
            ("table_bytes", stats.table_bytes),
            ("memory_bytes", stats.memory_bytes),
        ]
    }
    /// True if the engine's cache has a budget.
    fn set_cache_bytes(&self, py: Python<'_>, bytes: u64) -> PyResult<bool> {
        py.detach(|| self.operations.set_cache_bytes(bytes))
    }

    /// True if the engine keeps values.
    fn set_value_cache(&self, py: Python<'_>, bytes: u64, reads_a_write: u32) -> PyResult<bool> {
        py.detach(|| self.operations.set_value_cache(ValueCache { bytes, reads_a_write }))
    }

    /// What compute nodes that serve do for this process's GETs, by its name.
    fn set_reads_by_others(&self, py: Python<'_>, reads: &str) -> PyResult<()> {
        let reads = match reads {
            "none" => ReadsByOthers::None,
            "addresses" => ReadsByOthers::Addresses,
            "values" => ReadsByOthers::Values,
            other => {
                let text = format!("others' reads are 'none', 'addresses' or 'values', not {other:?}");
                return Err(PyValueError::new_err(text));
            }
        };
        py.detach(|| self.operations.set_reads_by_others(reads))
    }

    /// A walk over all pairs.
    fn pairs(&self, py: Python<'_>) -> PyResult<Pairs> {
        Ok(Pairs::new(py.detach(|| self.operations.pairs())?))
    }

    /// Stores ascending pairs in the empty table, and returns their number.
    fn load(&self, py: Python<'_>, keys: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<u64> {
        let (keys, values) = (copied::<u64>(py, keys)?, copied::<u8>(py, values)?);
        self.check_sizes(keys.len(), &values)?;
        let values: Vec<&[u8]> = values.chunks_exact(self.value_bytes()).collect();
        let ordered = self.ordered("load")?;
        py.detach(|| ordered.load(&keys, &values))
    }

    // Of tables whose values have any length. Values are bytes objects in lists; the caller has counted them.

    /// Versions, which are zero for absent keys, and values.
    fn multi_get_values<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<WithValues<'py>> {
        let mut room = self.rooms.take();
        self.read(keys, &mut room)?;
        let answers = &room.found.answers;
        let values = answers.iter().map(|answer| answer.map(|(value, _)| PyBytes::new(py, value)));
        let values = values.collect();
        let versions = words(py, answers.versions().iter().copied())?;
        self.rooms.put_back(room);
        Ok((versions, values))
    }

    /// Keys and values.
    fn scan_values<'py>(
        &self,
        py: Python<'py>,
        first: Option<u64>,
        end: Option<u64>,
        limit: usize,
        is_reverse: bool,
    ) -> PyResult<(Bound<'py, PyByteArray>, Vec<Bound<'py, PyBytes>>)> {
        let ordered = self.ordered("scan")?;
        let columns = py.detach(|| ordered.scan((first, end), limit, is_reverse))?;
        let values = columns.any_length().map(|value| PyBytes::new(py, value));
        Ok((words(py, columns.keys.iter().copied())?, values.collect()))
    }

    /// Keys and values of neighbours; no value for keys without such a neighbour.
    fn neighbours_values<'py>(
        &self,
        py: Python<'py>,
        which: &str,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<WithValues<'py>> {
        let ordered = self.ordered(which)?;
        let which = parse_neighbour(which)?;
        let keys = copied::<u64>(py, keys)?;
        let found = py.detach(|| ordered.neighbours(which, &keys))?;
        let values = found.columns.any_length().zip(&found.versions);
        let values = values.map(|(value, version)| (*version != 0).then(|| PyBytes::new(py, value)));
        Ok((words(py, found.columns.keys.iter().copied())?, values.collect()))
    }

    /// The versions of the keys now; zero where a write changed nothing.
    fn write_values<'py>(
        &self,
        py: Python<'py>,
        operation: &str,
        keys: &Bound<'py, PyAny>,
        values: Vec<PyBackedBytes>,
        ttl_ms: Option<u64>,
    ) -> PyResult<Bound<'py, PyByteArray>> {
        let operation = parse(operation)?;
        let values: Vec<&[u8]> = values.iter().map(|value| &value[..]).collect();
        let lifetime = lifetime_of(ttl_ms);
        let outcomes = self.with_keys(keys, &mut Vec::new(), |keys| {
            py.detach(|| self.operations.write_many(operation, keys, &values, lifetime))
        })?;
        self.check_refusals(operation, &outcomes)?;
        words(py, outcomes.into_iter().map(|outcome| version(outcome).unwrap_or(0)))
    }

    /// Milliseconds for which the pair of a key stays, all ones: until it is removed. `None` if the key is
    /// absent.
    fn ttl(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        let lifetime = self.with_key(key, |key| py.detach(|| self.operations.time_to_live(key)))?;
        Ok(lifetime.map(|lifetime| match lifetime {
            Lifetime::For(left) => u64::try_from(left.as_millis()).unwrap_or(ENDLESS_MS),
            _ => ENDLESS_MS,
        }))
    }

    /// Lets the pair of a key stay so long. False if the key is absent.
    fn set_ttl(&self, py: Python<'_>, key: &Bound<'_, PyAny>, ttl_ms: u64) -> PyResult<bool> {
        let lifetime = lifetime_of(Some(ttl_ms));
        self.with_key(key, |key| py.detach(|| self.operations.set_time_to_live(key, lifetime)))
    }

    /// Conditional writes of what each key expects or adds, and the value that it brings. The versions of the
    /// keys now, zero where a write changed nothing, and the values before, if the operation returns those.
    fn exchange_values<'py>(
        &self,
        py: Python<'py>,
        operation: &str,
        keys: &Bound<'py, PyAny>,
        arguments: Vec<PyBackedBytes>,
        values: Vec<PyBackedBytes>,
    ) -> PyResult<WithValues<'py>> {
        let operation = parse_conditional(operation)?;
        let operands = arguments.iter().zip(&values);
        let operands: Vec<_> = operands.map(|(argument, value)| Operand { argument, value }).collect();
        let done = self.with_keys(keys, &mut Vec::new(), |keys| {
            py.detach(|| self.operations.exchange(operation, keys, &operands))
        })?;
        self.check_refusals(operation, &done.outcomes)?;
        let versions = words(py, done.outcomes.iter().map(|outcome| version(*outcome).unwrap_or(0)))?;
        let returned = if operation.returns_value() { done.outcomes.len() } else { 0 };
        let old = |index| done.exchanges.old(index).map(|old| PyBytes::new(py, old));
        Ok((versions, (0..returned).map(old).collect()))
    }

    /// Stores ascending pairs in the empty table, and returns their number.
    fn load_values(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        values: Vec<PyBackedBytes>,
    ) -> PyResult<u64> {
        let keys = copied::<u64>(py, keys)?;
        let values: Vec<&[u8]> = values.iter().map(|value| &value[..]).collect();
        let ordered = self.ordered("load")?;
        py.detach(|| ordered.load(&keys, &values))
    }
}

/// Which keys were found, their versions if they are wanted, and their values if those stand nowhere else.
type GotBatch<'py> =
    (Bound<'py, PyByteArray>, Option<Bound<'py, PyByteArray>>, Option<Bound<'py, PyByteArray>>);

/// Words of keys, and a value each that has one.
type WithValues<'py> = (Bound<'py, PyByteArray>, Vec<Option<Bound<'py, PyBytes>>>);

impl Table {
    /// Calls `work` with a key as the table has it.
    fn with_key<T>(&self, key: &Bound<'_, PyAny>, work: impl FnOnce(Keys<'_>) -> PyResult<T>) -> PyResult<T> {
        match self.byte_keys {
            None => work(Keys::Bits(&[key.extract()?])),
            Some(byte_keys) => byte_keys.with_one(self.name(), key, work),
        }
    }

    /// Calls `work` with many keys: words in a buffer, which are copied to `bits`, or a tuple.
    fn with_keys<T>(
        &self,
        keys: &Bound<'_, PyAny>,
        bits: &mut Vec<u64>,
        work: impl FnOnce(Keys<'_>) -> PyResult<T>,
    ) -> PyResult<T> {
        if let Some(byte_keys) = self.byte_keys {
            return byte_keys.with_many(self.name(), keys.cast()?, work);
        }
        let buffer = PyBuffer::<u64>::get(keys)?;
        bits.resize(buffer.item_count(), 0);
        buffer.copy_to_slice(keys.py(), bits)?;
        work(Keys::Bits(bits))
    }

    /// Gets keys, without the interpreter's lock.
    fn read(&self, keys: &Bound<'_, PyAny>, room: &mut Room) -> PyResult<()> {
        let Room { bits, found } = room;
        self.with_keys(keys, bits, |wanted| keys.py().detach(|| found.read(&*self.operations, wanted)))
    }

    /// What an order of keys is needed for, as `what` is.
    fn ordered(&self, what: &str) -> PyResult<&dyn Ordered> {
        self.operations.ordered().ok_or_else(|| error::no_order(self.name(), what))
    }

    /// Fails as the first of the writes that the server did not take.
    fn check_refusals(&self, operation: WriteOperation, outcomes: &[WriteOutcome]) -> PyResult<()> {
        let mut failed = outcomes.iter().enumerate().filter_map(|(index, outcome)| match outcome {
            WriteOutcome::Failed(code) => Some((index, *code)),
            _ => None,
        });
        let Some((first, code)) = failed.next() else { return Ok(()) };
        let (count, all) = (1 + failed.count(), outcomes.len());
        let refused = WriteError::Refused { table: self.name().to_owned(), operation, code };
        let text = format!("{count} of {all} writes were not done, first number {first}: {refused}");
        Err(error::RefusedError::new_err(text))
    }

    fn check_sizes(&self, keys: usize, values: &[u8]) -> PyResult<()> {
        let (expected, got) = (keys * self.value_bytes(), values.len());
        if expected == got {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "{keys} keys of table {:?} need {expected} B of values, got {got} B",
            self.name()
        )))
    }
}

/// What a buffer holds, copied, so that nobody can change it while the interpreter's lock is released.
pub(crate) fn copied<T: pyo3::buffer::Element>(
    py: Python<'_>,
    object: &Bound<'_, PyAny>,
) -> PyResult<Vec<T>> {
    PyBuffer::<T>::get(object)?.to_vec(py)
}

/// Words as numpy reads them.
fn words(py: Python<'_>, words: impl ExactSizeIterator<Item = u64>) -> PyResult<Bound<'_, PyByteArray>> {
    PyByteArray::new_with(py, 8 * words.len(), |bytes| {
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        Ok(())
    })
}

fn parse(operation: &str) -> PyResult<WriteOperation> {
    match operation {
        "insert" => Ok(WriteOperation::Insert),
        "update" => Ok(WriteOperation::Update),
        "put" => Ok(WriteOperation::Put),
        "remove" => Ok(WriteOperation::Remove),
        _ => Err(PyValueError::new_err(format!("no such write: {operation:?}"))),
    }
}

fn parse_neighbour(which: &str) -> PyResult<Neighbour> {
    let named = |known: &Neighbour| format!("{known:?}").eq_ignore_ascii_case(which);
    let unknown = || PyValueError::new_err(format!("no neighbour is called {which:?}"));
    Neighbour::ALL.into_iter().find(named).ok_or_else(unknown)
}

fn parse_conditional(operation: &str) -> PyResult<WriteOperation> {
    match operation {
        "compare_and_set" => Ok(WriteOperation::CompareAndSet),
        "compare_and_set_value" => Ok(WriteOperation::CompareAndSetValue),
        "remove_if" => Ok(WriteOperation::RemoveIf),
        "fetch_add" => Ok(WriteOperation::FetchAdd),
        "swap" => Ok(WriteOperation::Swap),
        _ => Err(PyValueError::new_err(format!("no such conditional write: {operation:?}"))),
    }
}

/// The version that a write gave or took; `None` if it changed nothing.
fn version(outcome: WriteOutcome) -> Option<u64> {
    match outcome {
        WriteOutcome::Inserted(version)
        | WriteOutcome::Replaced(version)
        | WriteOutcome::Removed(version) => Some(version),
        WriteOutcome::Exists(_)
        | WriteOutcome::Absent
        | WriteOutcome::Differs(_)
        | WriteOutcome::Failed(_) => None,
    }
}

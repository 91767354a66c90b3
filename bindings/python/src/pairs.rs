//! All pairs of a table, page by page.
//!
//! Invariant: a walk has a session of its own, so it disturbs no other call. A page ends once its values have
//! [`PAGE_BYTES`], so no page takes much more than that and one value.

use std::sync::{Mutex, PoisonError};

use farsight::IntoPairs;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error;
use crate::keys::{FoundKey, TableKey};

/// Pairs of a page.
const PAGE_PAIRS: usize = 4096;
/// Bytes of a page's values with which it ends.
const PAGE_BYTES: usize = 1 << 20;

/// A key and its value.
pub(crate) type Pair = (FoundKey, Vec<u8>);

/// A walk over all pairs of a table. None needs the interpreter.
pub(crate) trait Walk: Send {
    /// The next pairs; none at the end.
    fn next_page(&mut self) -> PyResult<Vec<Pair>>;
}

impl<K: TableKey + ?Sized> Walk for IntoPairs<K> {
    fn next_page(&mut self) -> PyResult<Vec<Pair>> {
        let (mut page, mut bytes) = (Vec::new(), 0);
        while page.len() < PAGE_PAIRS && bytes < PAGE_BYTES {
            let Some(pair) = self.next() else { break };
            let (key, entry) = pair.map_err(|error| error::reading(&error))?;
            bytes += entry.value.len();
            page.push((K::found(key), entry.value.to_vec()));
        }
        Ok(page)
    }
}

/// The same for Python.
#[pyclass(frozen)]
pub(crate) struct Pairs {
    walk: Mutex<Box<dyn Walk>>,
}

impl Pairs {
    pub(crate) fn new(walk: Box<dyn Walk>) -> Self {
        Self { walk: Mutex::new(walk) }
    }
}

#[pymethods]
impl Pairs {
    /// Keys and values of the next pairs; none at the end.
    fn next_page<'py>(&self, py: Python<'py>) -> PyResult<Vec<(FoundKey, Bound<'py, PyBytes>)>> {
        let page = py.detach(|| self.walk.lock().unwrap_or_else(PoisonError::into_inner).next_page())?;
        Ok(page.into_iter().map(|(key, value)| (key, PyBytes::new(py, &value))).collect())
    }
}

//! The native module of the Python package `farsight`.
//!
//! Invariant: every call that may wait runs without the interpreter's lock. Other Python threads run
//! meanwhile. What they may change was copied before. Nobody can change `bytes` and `str`: those are lent.
//!
//! Keys cross as the 64 bits that hold them (an integer, a float's bits, eight bytes), or as `bytes` and
//! `str` of any length; values as bytes. What they mean to numpy is the package's business.

#![forbid(unsafe_code)]

mod client;
mod error;
mod keys;
mod ordered;
mod pairs;
mod reading;
mod server;
mod table;
mod typed_table;

use pyo3::prelude::*;

/// The native module.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::client::{Client, connect};
    #[pymodule_export]
    use super::error::{
        ConnectError, Error, IndeterminateError, LoadError, ReadError, RefusedError, TableError, WriteError,
    };
    #[pymodule_export]
    use super::pairs::Pairs;
    #[pymodule_export]
    use super::server::Server;
    #[pymodule_export]
    use super::table::Table;
    use super::{Bound, PyModule, PyModuleMethods, PyResult};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

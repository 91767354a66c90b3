//! The exceptions, and which of them stands for which error.

use farsight::{
    CatalogueError, ClusterUrlError, ConnectError as Connecting, OpenError, StartError, UrlError,
    WriteError as Writing, with_causes,
};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::prelude::*;

create_exception!(farsight, Error, PyException, "What every exception of farsight is.");
create_exception!(farsight, ConnectError, Error, "The server cannot be reached, is gone, or cannot start.");
create_exception!(farsight, TableError, Error, "A table cannot be made, opened or described.");
create_exception!(farsight, ReadError, Error, "A read failed. It can be repeated.");
create_exception!(farsight, WriteError, Error, "A write failed. Nothing was changed by what did not return.");
create_exception!(
    farsight,
    IndeterminateError,
    WriteError,
    "The answer to a write was lost: it may have happened once, or not at all."
);
create_exception!(
    farsight,
    RefusedError,
    WriteError,
    "The server did not take a write, for want of room or time. It changed nothing; others of its batch did."
);
create_exception!(farsight, LoadError, Error, "A bulk load failed. The table is as empty as before.");

pub(crate) fn address(error: &UrlError) -> PyErr {
    PyValueError::new_err(with_causes(error))
}

pub(crate) fn cluster(error: &ClusterUrlError) -> PyErr {
    PyValueError::new_err(with_causes(error))
}

pub(crate) fn connecting(error: &Connecting) -> PyErr {
    ConnectError::new_err(with_causes(error))
}

pub(crate) fn starting(error: &StartError) -> PyErr {
    ConnectError::new_err(with_causes(error))
}

pub(crate) fn catalogue(error: &CatalogueError) -> PyErr {
    match error {
        CatalogueError::Fabric(_) => ConnectError::new_err(with_causes(error)),
        _ => TableError::new_err(with_causes(error)),
    }
}

pub(crate) fn table(error: &farsight::TableError) -> PyErr {
    match error {
        farsight::TableError::ValueSize { .. } => PyValueError::new_err(with_causes(error)),
        farsight::TableError::Catalogue(error) => catalogue(error),
        farsight::TableError::KeyKind { .. } => TableError::new_err(with_causes(error)),
    }
}

pub(crate) fn opening(error: &OpenError) -> PyErr {
    match error {
        OpenError::Catalogue(CatalogueError::Fabric(_)) => ConnectError::new_err(with_causes(error)),
        _ => TableError::new_err(with_causes(error)),
    }
}

pub(crate) fn reading(error: &farsight::ReadError) -> PyErr {
    ReadError::new_err(with_causes(error))
}

pub(crate) fn writing(error: &Writing) -> PyErr {
    match error {
        Writing::WrongValueSize { .. } | Writing::PairTooLong { .. } => {
            PyValueError::new_err(with_causes(error))
        }
        Writing::Refused { .. } => RefusedError::new_err(with_causes(error)),
        Writing::Indeterminate { .. } => IndeterminateError::new_err(with_causes(error)),
        _ => WriteError::new_err(with_causes(error)),
    }
}

pub(crate) fn loading(error: &farsight::LoadError) -> PyErr {
    LoadError::new_err(with_causes(error))
}

/// An operation that needs an order of keys, in a table whose keys have none.
pub(crate) fn no_order(table: &str, what: &str) -> PyErr {
    let advice = match what {
        "load" => "Use put_many",
        "iteration" => "pairs() yields all of them",
        _ => {
            "Get pairs by their keys, or use a table with keys of eight bytes (key=), of an engine with an order"
        }
    };
    PyTypeError::new_err(format!(
        "table {table:?} has no {what}: its keys are bytes, which have no order. {advice}"
    ))
}

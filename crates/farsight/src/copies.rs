//! Copies of tables: out of a server or a pool into files, and back into any other.
//!
//! Invariant: a copy is whole or none, and so is a table that is taken in. The copy's manifest is kept last.
//! A table is filled under another name, which it loses when all of its pairs are there.
//!
//! A copy is of no one instant: each of its pairs was there at some moment while its table was copied. Those
//! of keys that nobody writes meanwhile are all there.

mod export;
mod import;

use farsight_base::report::with_causes;
use farsight_client::{CatalogueError, LoadError, OpenError, ReadError, WriteError};
use farsight_durability::{CopyError, DurabilityError};
use farsight_index::OwnedKey;
use farsight_protocol::{ServerError, ValueKind, WriteOutcome};

pub use export::export_tables;
pub use import::{ImportOptions, import_tables};

/// A table that was copied, or taken in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableCopied {
    /// Its name; of one that was taken in, the new one.
    pub name: String,
    /// Pairs.
    pub pairs: u64,
    /// Bytes of its file.
    pub bytes: u64,
}

/// Why tables were not copied, or not taken in.
#[derive(Debug, thiserror::Error)]
pub enum CopiesError {
    /// The files.
    #[error(transparent)]
    Files(#[from] DurabilityError),
    /// A table cannot be made, found or named.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// A table cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Pairs cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Pairs cannot be put.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Pairs cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Some of several tables cannot be opened. Nothing was copied.
    #[error("{}. Nothing is copied; of the others a copy can be made: {}", reasons(refused), others.join(" "))]
    NotOpened {
        /// Why, of each that cannot.
        refused: Vec<CatalogueError>,
        /// The names of those that can.
        others: Vec<String>,
    },
    /// The copy has no such table.
    #[error("the copy at {place} has no table {table:?}; it has {}", names(has))]
    NoTable {
        /// Where the copy is.
        place: String,
        /// The table wanted.
        table: String,
        /// Those that it has.
        has: Vec<String>,
    },
    /// One name for several tables.
    #[error("{tables} tables cannot all be called {name:?}: name one table")]
    OneName {
        /// The name.
        name: String,
        /// How many there are.
        tables: usize,
    },
    /// There is a table of that name.
    #[error("table {table:?} is there already: {remedy}")]
    IsThere {
        /// Its name.
        table: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The copy says something of a table that means nothing here.
    #[error("what the copy says of table {table:?} is refused")]
    Definition {
        /// Its name.
        table: String,
        /// Why.
        source: ServerError,
    },
    /// A value of the copy is none of its table.
    #[error("the copy of table {table:?} has a value of {got_bytes} B, expected {expected}")]
    Value {
        /// The table.
        table: String,
        /// What its values are.
        expected: ValueKind,
        /// Bytes of the value.
        got_bytes: usize,
    },
    /// A pair was not inserted.
    #[error("key {key} of table {table:?}: expected that it is inserted, got {got:?}")]
    Put {
        /// The table.
        table: String,
        /// The bytes of the key.
        key: OwnedKey,
        /// What became of it.
        got: WriteOutcome,
    },
    /// What was begun could not be taken back.
    #[error(
        "table {table:?} has a part of the pairs: drop it. It could not be dropped ({why}) after this error"
    )]
    LeftBehind {
        /// The table.
        table: String,
        /// Why it was not dropped.
        why: String,
        /// Why it has a part.
        source: Box<CopiesError>,
    },
}

fn names(tables: &[String]) -> String {
    if tables.is_empty() { "none".to_owned() } else { tables.join(", ") }
}

fn reasons(errors: &[CatalogueError]) -> String {
    errors.iter().map(|error| with_causes(error)).collect::<Vec<_>>().join("; ")
}

impl From<CopyError<Self>> for CopiesError {
    fn from(error: CopyError<Self>) -> Self {
        match error {
            CopyError::Files(error) => Self::Files(error),
            CopyError::Table(error) => error,
        }
    }
}

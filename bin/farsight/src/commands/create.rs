//! `farsight create`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use farsight::{Client, KeyKind, TableError};

use crate::connection::Connection;

/// Make a table
///
/// A table of that name with the same definition is left as it is; with another it is an error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farsight create prices
  farsight create temperatures --keys f64 --value-size 32")]
pub(crate) struct Create {
    #[command(flatten)]
    connection: Connection,
    /// Its name: letters, digits, _ and -
    name: String,
    /// What its keys are
    #[arg(long, value_enum, default_value_t)]
    keys: Kind,
    /// Bytes of each value, 8 to 256
    #[arg(long, value_name = "BYTES", default_value_t = 8)]
    value_size: usize,
}

/// Kinds of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum Kind {
    /// Unsigned 64-bit integers
    #[default]
    U64,
    /// Signed 64-bit integers
    I64,
    /// 64-bit floating point numbers, in total order
    F64,
    /// Eight bytes, in lexicographic order
    Bytes8,
}

impl Create {
    pub(crate) fn run(self) -> Result<ExitCode> {
        make(&self.connection.open()?, &self.name, self.keys.into(), self.value_size)?;
        writeln!(
            std::io::stdout().lock(),
            "table {} of {} keys with {} B values",
            self.name,
            KeyKind::from(self.keys),
            self.value_size
        )?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Makes a table of a kind known at run time.
pub(crate) fn make(client: &Client, name: &str, kind: KeyKind, value_bytes: usize) -> Result<(), TableError> {
    match kind {
        KeyKind::U64 => client.create_table::<u64>(name, value_bytes).map(drop),
        KeyKind::I64 => client.create_table::<i64>(name, value_bytes).map(drop),
        KeyKind::F64 => client.create_table::<f64>(name, value_bytes).map(drop),
        KeyKind::Bytes8 => client.create_table::<[u8; 8]>(name, value_bytes).map(drop),
    }
}

impl From<Kind> for KeyKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::U64 => Self::U64,
            Kind::I64 => Self::I64,
            Kind::F64 => Self::F64,
            Kind::Bytes8 => Self::Bytes8,
        }
    }
}

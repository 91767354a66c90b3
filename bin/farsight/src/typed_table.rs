//! From a table's name to its type of key: the kind is known at run time only.

use anyhow::Result;
use farsight::{Client, KeyKind, Table};

use crate::key_text::TextKey;

/// What a command does with a table, whatever its kind of keys.
pub(crate) trait TableCommand {
    /// What it yields.
    type Output;

    fn run<K: TextKey>(self, table: Table<K>) -> Result<Self::Output>;
}

/// Opens the table `name` with its own kind of keys and runs `command` on it.
pub(crate) fn on_table<C: TableCommand>(client: &Client, name: &str, command: C) -> Result<C::Output> {
    match client.describe_table(name)?.definition.key_kind {
        KeyKind::U64 => command.run(client.table::<u64>(name)?),
        KeyKind::I64 => command.run(client.table::<i64>(name)?),
        KeyKind::F64 => command.run(client.table::<f64>(name)?),
        KeyKind::Bytes8 => command.run(client.table::<[u8; 8]>(name)?),
    }
}

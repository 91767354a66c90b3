//! From a table's name to its type of key: the kind is known at run time only.

use anyhow::Result;
use farsight::{Client, KeyKind, Table};

use crate::key_text::TextKey;

/// What a command does, whatever its kind of keys.
pub(crate) trait KindCommand {
    /// What it yields.
    type Output;

    fn run<K: TextKey>(self) -> Result<Self::Output>;
}

/// What a command does with a table, whatever its kind of keys.
pub(crate) trait TableCommand {
    /// What it yields.
    type Output;

    fn run<K: TextKey>(self, table: Table<K>) -> Result<Self::Output>;
}

/// Runs `command` with keys of this kind.
pub(crate) fn on_kind<C: KindCommand>(kind: KeyKind, command: C) -> Result<C::Output> {
    match kind {
        KeyKind::U64 => command.run::<u64>(),
        KeyKind::I64 => command.run::<i64>(),
        KeyKind::F64 => command.run::<f64>(),
        KeyKind::Bytes8 => command.run::<[u8; 8]>(),
    }
}

/// Opens the table `name` with its own kind of keys and runs `command` on it.
pub(crate) fn on_table<C: TableCommand>(client: &Client, name: &str, command: C) -> Result<C::Output> {
    on_kind(client.describe_table(name)?.definition.key_kind, Opened { client, name, command })
}

struct Opened<'a, C> {
    client: &'a Client,
    name: &'a str,
    command: C,
}

impl<C: TableCommand> KindCommand for Opened<'_, C> {
    type Output = C::Output;

    fn run<K: TextKey>(self) -> Result<C::Output> {
        self.command.run(self.client.table::<K>(self.name)?)
    }
}

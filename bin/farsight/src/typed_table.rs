//! From a table's name to its type of key: the kind is known at run time only.

use anyhow::{Result, bail};
use farsight::{Client, KeyKind, Table};

use crate::key_text::{KeyText, TextKey};

/// What a command does, whatever its kind of keys.
pub(crate) trait KindCommand {
    /// What it yields.
    type Output;

    fn run<K: KeyText + ?Sized>(self) -> Result<Self::Output>;
}

/// What a command does with a table, whatever its kind of keys.
pub(crate) trait TableCommand {
    /// What it yields.
    type Output;

    fn run<K: KeyText + ?Sized>(self, table: Table<K>) -> Result<Self::Output>;
}

/// What a command does with a table whose keys are of eight bytes, and so have an order.
pub(crate) trait OrderedCommand {
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
        KeyKind::Bytes => command.run::<[u8]>(),
    }
}

/// Opens the table `name` with its own kind of keys and runs `command` on it.
pub(crate) fn on_table<C: TableCommand>(client: &Client, name: &str, command: C) -> Result<C::Output> {
    on_kind(client.describe_table(name)?.definition.key_kind, Opened { client, name, command })
}

/// The same of a command that needs an order of keys.
pub(crate) fn on_ordered_table<C: OrderedCommand>(
    client: &Client,
    name: &str,
    command: C,
) -> Result<C::Output> {
    on_table(client, name, InOrder(command))
}

struct Opened<'a, C> {
    client: &'a Client,
    name: &'a str,
    command: C,
}

impl<C: TableCommand> KindCommand for Opened<'_, C> {
    type Output = C::Output;

    fn run<K: KeyText + ?Sized>(self) -> Result<C::Output> {
        self.command.run(self.client.table::<K>(self.name)?)
    }
}

struct InOrder<C>(C);

impl<C: OrderedCommand> TableCommand for InOrder<C> {
    type Output = C::Output;

    fn run<K: KeyText + ?Sized>(self, table: Table<K>) -> Result<C::Output> {
        let name = table.name().to_owned();
        match K::in_order(table, self.0)? {
            Some(output) => Ok(output),
            None => bail!(
                "table {name:?} has keys of kind {}, which have no order: `farsight export` \
                 copies all its pairs, and a program walks over them by `Session::pairs`",
                K::KEY_KIND
            ),
        }
    }
}

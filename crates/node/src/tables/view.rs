//! What a worker keeps of the catalogue, so that it takes no lock while that stands.

use std::sync::Arc;

use farsight_protocol::{ServerError, TableId};

use super::{Tables, unknown};
use crate::table::Table;

/// The tables at one version of the catalogue.
#[derive(Default)]
pub(crate) struct View {
    version: u64,
    /// In the order of their numbers.
    all: Vec<(TableId, Arc<Table>)>,
}

impl View {
    /// Takes over what has changed. A table that was dropped is let go.
    #[inline]
    pub(crate) fn refresh(&mut self, tables: &Tables) {
        let version = tables.version();
        if version != self.version {
            self.take(tables, version);
        }
    }

    /// True if nothing has changed since.
    pub(crate) fn is_current(&self, tables: &Tables) -> bool {
        tables.version() == self.version
    }

    #[cold]
    fn take(&mut self, tables: &Tables, version: u64) {
        self.all = tables.all().into_iter().map(|table| (table.id(), table)).collect();
        self.version = version;
    }

    /// All tables, in the order of their numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Table> {
        self.all.iter().map(|(_, table)| &**table)
    }

    /// The table with this number.
    #[inline]
    pub(crate) fn get(&self, id: TableId) -> Result<&Table, ServerError> {
        match self.all.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => Ok(&self.all[at].1),
            Err(_) => Err(unknown(id, self.all.len())),
        }
    }

    /// True if there is a table with this number.
    pub(crate) fn has(&self, id: TableId) -> bool {
        self.get(id).is_ok()
    }
}

//! Tables into a copy.

use farsight_client::{Access, CatalogueError, PairsCursor, Session, Table};
use farsight_durability::{
    Archive, CopiedPair, CopyManifest, PairSource, TableToCopy, begin_copy, finish_copy, write_table,
};

use super::{CopiesError, TableCopied};
use crate::Client;

/// Copies the tables of these names, or all if there are none, to `archive`, where nothing may be yet. Tells
/// `progress` the name of each table and how many of its pairs were copied so far. Programs may read and
/// write the tables meanwhile: each pair of the copy was there at some moment of the call.
///
/// # Errors
/// [`CopiesError`]; then the archive holds files that are no copy.
pub fn export_tables(
    client: &Client,
    archive: &dyn Archive,
    names: &[String],
    progress: &mut dyn FnMut(&str, u64),
) -> Result<Vec<TableCopied>, CopiesError> {
    begin_copy(archive)?;
    let client = client.inner();
    let mut names = if names.is_empty() {
        client.tables()?.into_iter().map(|table| table.definition.name).collect()
    } else {
        names.to_vec()
    };
    names.sort_unstable();
    names.dedup();
    let mut manifest = CopyManifest::default();
    // All of them, before any is copied.
    for table in open_all(client, &names)? {
        let session = table.session(Access::OneSided)?;
        let cursor = PairsCursor::new(&session);
        let definition = table.info().layout().to_bytes();
        let to_copy =
            TableToCopy { name: table.name(), definition: &definition, is_ascending: cursor.is_ordered() };
        let mut pairs = PairsOfTable { session, cursor };
        let progress = &mut |pairs| progress(table.name(), pairs);
        manifest.tables.push(write_table(archive, to_copy, &mut pairs, progress)?);
    }
    finish_copy(archive, &manifest)?;
    let copied = manifest.tables.into_iter();
    Ok(copied.map(|of| TableCopied { name: of.name, pairs: of.pairs, bytes: of.bytes }).collect())
}

/// Opens the tables of these names, or says of each that cannot be opened why.
fn open_all(client: &farsight_client::Client, names: &[String]) -> Result<Vec<Table>, CopiesError> {
    let (mut opened, mut refused) = (Vec::new(), Vec::new());
    for name in names {
        match client.open_table(name) {
            Ok(table) => opened.push(table),
            // The others would say the same.
            Err(error @ CatalogueError::Fabric(_)) => return Err(error.into()),
            Err(error) => refused.push(error),
        }
    }
    if opened.is_empty() || refused.is_empty() {
        return refused.into_iter().next().map_or(Ok(opened), |error| Err(error.into()));
    }
    let others = opened.iter().map(|table| table.name().to_owned()).collect();
    Err(CopiesError::NotOpened { refused, others })
}

/// The pairs of a table.
struct PairsOfTable {
    session: Session,
    cursor: PairsCursor,
}

impl PairSource for PairsOfTable {
    type Error = CopiesError;

    fn next(&mut self) -> Result<Option<CopiedPair<'_>>, CopiesError> {
        let pair = self.cursor.next(&mut self.session)?;
        Ok(pair.map(|pair| CopiedPair { key: pair.key, ends_at_ms: pair.deadline.0, value: pair.value }))
    }
}

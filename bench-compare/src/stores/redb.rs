//! redb: an ordered store in a file, in pure Rust.

use anyhow::Result;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

use super::Source;
use crate::store::Store;
use crate::tally::{Tally, value_of};

const TABLE: TableDefinition<'_, u64, u64> = TableDefinition::new("pairs");
/// Cache: as much a key, and this at least.
const CACHE_BYTES_PER_KEY: usize = 128;
const CACHE_BYTES_MIN: usize = 1 << 30;

struct InFile(Database);

pub(super) fn open(source: &Source<'_>) -> Result<Box<dyn Store>> {
    let cache_bytes = (source.keys.len() * CACHE_BYTES_PER_KEY).max(CACHE_BYTES_MIN);
    let database =
        Database::builder().set_cache_size(cache_bytes).create(source.directory.join("pairs.redb"))?;
    let write = database.begin_write()?;
    {
        let mut table = write.open_table(TABLE)?;
        for key in source.keys {
            table.insert(*key, value_of(*key, 0))?;
        }
    }
    write.commit()?;
    Ok(Box::new(InFile(database)))
}

impl Store for InFile {
    fn get_each(&mut self, keys: &[u64], tally: &mut Tally<'_>) -> Result<()> {
        let table = self.0.begin_read()?.open_table(TABLE)?;
        for key in keys {
            tally.read(*key, ReadableTable::get(&table, *key)?.map(|value| value.value()));
        }
        Ok(())
    }

    fn scan(&mut self, scans: &[(u64, usize)], tally: &mut Tally<'_>) -> Result<()> {
        let table = self.0.begin_read()?.open_table(TABLE)?;
        for (from, limit) in scans {
            tally.begin_scan(*from, *limit);
            for pair in ReadableTable::range(&table, *from..)?.take(*limit) {
                let (key, value) = pair?;
                tally.pair(key.value(), value.value());
            }
            tally.end_scan();
        }
        Ok(())
    }

    fn put(&mut self, pairs: &[(u64, u64)]) -> Result<()> {
        let mut write = self.0.begin_write()?;
        write.set_durability(Durability::None)?;
        {
            let mut table = write.open_table(TABLE)?;
            for (key, value) in pairs {
                table.insert(*key, *value)?;
            }
        }
        write.commit()?;
        Ok(())
    }
}

//! RocksDB: a log-structured store. Keys are big-endian, as its order is that of bytes.

use anyhow::{Context, Result};
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DB, DBCompressionType, Options, WriteBatch,
    WriteOptions,
};

use super::Source;
use crate::store::Store;
use crate::tally::{Tally, value_of};

/// The one column family: MultiGet asks for its name.
const FAMILY: &str = "default";
/// Block cache: as much a key, and this at least.
const CACHE_BYTES_PER_KEY: usize = 64;
const CACHE_BYTES_MIN: usize = 1 << 30;
/// Pairs of a batch while loading.
const LOAD_PAIRS: usize = 4096;
const BLOOM_BITS: f64 = 10.0;

struct LogStructured {
    database: DB,
    writes: WriteOptions,
}

pub(super) fn open(source: &Source<'_>) -> Result<Box<dyn Store>> {
    let mut blocks = BlockBasedOptions::default();
    let cache_bytes = (source.keys.len() * CACHE_BYTES_PER_KEY).max(CACHE_BYTES_MIN);
    blocks.set_block_cache(&Cache::new_lru_cache(cache_bytes)?);
    blocks.set_bloom_filter(BLOOM_BITS, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_compression_type(DBCompressionType::None);
    options.set_block_based_table_factory(&blocks);
    let family = ColumnFamilyDescriptor::new(FAMILY, options.clone());
    let database = DB::open_cf_descriptors(&options, source.directory.join("rocksdb"), [family])?;
    let mut writes = WriteOptions::default();
    writes.disable_wal(true);
    let mut store = LogStructured { database, writes };
    for keys in source.keys.chunks(LOAD_PAIRS) {
        let pairs: Vec<(u64, u64)> = keys.iter().map(|key| (*key, value_of(*key, 0))).collect();
        store.put(&pairs)?;
    }
    store.database.flush()?;
    store.database.compact_range(None::<&[u8]>, None::<&[u8]>);
    Ok(Box::new(store))
}

/// The number in the value's or, turned round, in the key's eight bytes.
fn number(bytes: &[u8]) -> Result<u64> {
    Ok(u64::from_le_bytes(bytes.try_into().context("a value of another size than eight bytes")?))
}

impl Store for LogStructured {
    fn get_each(&mut self, keys: &[u64], tally: &mut Tally<'_>) -> Result<()> {
        for key in keys {
            let value = self.database.get_pinned(key.to_be_bytes())?;
            tally.read(*key, value.map(|value| number(&value)).transpose()?);
        }
        Ok(())
    }

    fn get_batch(&mut self, keys: &[u64], tally: &mut Tally<'_>) -> Result<()> {
        let family = self.database.cf_handle(FAMILY).context("no column family")?;
        let asked = keys.iter().map(|key| key.to_be_bytes());
        let answers = self.database.batched_multi_get_cf(family, asked, false);
        for (key, answer) in keys.iter().zip(answers) {
            tally.read(*key, answer?.map(|value| number(&value)).transpose()?);
        }
        Ok(())
    }

    fn scan(&mut self, scans: &[(u64, usize)], tally: &mut Tally<'_>) -> Result<()> {
        let mut cursor = self.database.raw_iterator();
        for (from, limit) in scans {
            tally.begin_scan(*from, *limit);
            cursor.seek(from.to_be_bytes());
            for _ in 0..*limit {
                let Some((key, value)) = cursor.item() else { break };
                tally.pair(number(key)?.swap_bytes(), number(value)?);
                cursor.next();
            }
            cursor.status()?;
            tally.end_scan();
        }
        Ok(())
    }

    fn put(&mut self, pairs: &[(u64, u64)]) -> Result<()> {
        let mut batch = WriteBatch::default();
        for (key, value) in pairs {
            batch.put(key.to_be_bytes(), value.to_le_bytes());
        }
        self.database.write_opt(batch, &self.writes)?;
        Ok(())
    }
}

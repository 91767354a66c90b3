//! RocksDB in this process: a batch of writes syncs the log. Keys are big-endian, as its order is that of
//! bytes.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rocksdb::{DB, DBCompressionType, Options, WriteBatch, WriteOptions};

use super::{Pair, Peer, See};

/// An open database.
pub(crate) struct RocksdbPeer {
    /// `None` while it is closed.
    database: Option<DB>,
    directory: PathBuf,
    writes: WriteOptions,
}

fn open(directory: &Path) -> Result<DB> {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_compression_type(DBCompressionType::None);
    DB::open(&options, directory).with_context(|| format!("opening RocksDB in {}", directory.display()))
}

impl RocksdbPeer {
    /// Makes an empty database in `directory`.
    pub(crate) fn make(directory: &Path) -> Result<Self> {
        let mut writes = WriteOptions::default();
        writes.set_sync(true);
        Ok(Self { database: Some(open(directory)?), directory: directory.to_owned(), writes })
    }

    fn database(&self) -> Result<&DB> {
        self.database.as_ref().context("RocksDB is not open")
    }
}

impl Peer for RocksdbPeer {
    fn put(&mut self, pairs: &[Pair]) -> Result<()> {
        let mut batch = WriteBatch::default();
        for (key, value) in pairs {
            batch.put(key.to_be_bytes(), value);
        }
        self.database()?.write_opt(batch, &self.writes)?;
        Ok(())
    }

    fn get(&mut self, keys: &[u64], see: &mut See<'_>) -> Result<()> {
        let database = self.database()?;
        for (index, key) in keys.iter().enumerate() {
            let value = database.get_pinned(key.to_be_bytes())?;
            see(index, value.as_deref());
        }
        Ok(())
    }

    fn reopen(&mut self) -> Result<()> {
        self.database = None;
        self.database = Some(open(&self.directory)?);
        Ok(())
    }
}

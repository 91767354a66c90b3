//! LMDB in this process: a transaction is a batch, and syncs as LMDB does unless told otherwise.

use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use anyhow::{Context, Result};
use heed::byteorder::NativeEndian;
use heed::types::{Bytes, U64};
use heed::{CommitOrAbort, Database, Env, EnvOpenOptions, IntegerComparator, PutFlags};

use super::{Pair, Peer, See, first_pair};

type Pairs<'e> = Database<'e, U64<NativeEndian>, Bytes, IntegerComparator>;

/// Room for the file, which is address space and not memory: so many times the values, a key, and this.
const MAP_TIMES: usize = 6;
const MAP_BYTES_PER_KEY: usize = 256;
const MAP_BYTES_BASE: usize = 1 << 30;

/// An environment with its one database.
pub(crate) struct LmdbPeer {
    /// `None` while it is closed.
    opened: Option<OpenLmdb>,
    directory: PathBuf,
    map_bytes: usize,
}

/// An environment, and the handle of its database, which borrows it.
struct OpenLmdb {
    pairs: Pairs<'static>,
    environment: NonNull<Env>,
}

impl OpenLmdb {
    fn open(directory: &Path, map_bytes: usize) -> Result<Self> {
        let mut options = EnvOpenOptions::new();
        options.map_size(map_bytes);
        // SAFETY: the file lies in a directory that this program made for itself. Nobody but LMDB, with its
        // own locks, writes it while it is mapped. No transaction outlives a function of this module.
        let environment = unsafe { options.open(directory) };
        let environment = environment.with_context(|| format!("opening LMDB in {}", directory.display()))?;
        let at = NonNull::from(Box::leak(Box::new(environment)));
        // SAFETY: the box that was leaked holds an environment until `OpenLmdb` is dropped, and nobody has
        // a reference that may change it.
        let shared: &'static Env = unsafe { at.as_ref() };
        Ok(Self { pairs: database(shared)?, environment: at })
    }

    fn environment(&self) -> &Env {
        // SAFETY: the pointer is that of a leaked box, which is freed when `self` is dropped.
        unsafe { self.environment.as_ref() }
    }
}

impl Drop for OpenLmdb {
    fn drop(&mut self) {
        // SAFETY: the pointer is that of a leaked box, and this is the only place that takes the box back.
        // What borrows the environment is `pairs`, a number that nobody uses from here on.
        drop(unsafe { Box::from_raw(self.environment.as_ptr()) });
    }
}

/// The unnamed database: made by the first who asks.
fn database(environment: &Env) -> Result<Pairs<'_>> {
    let write = environment.write_txn()?;
    let made = environment.create_databases_and_commit(write, |options, write| {
        let options = options
            .database_options()
            .types::<U64<NativeEndian>, Bytes>()
            .key_comparator::<IntegerComparator>();
        options.create(write).map(CommitOrAbort::<_, ()>::Commit)
    })?;
    Ok(made.unwrap_commit())
}

impl LmdbPeer {
    /// Makes an environment in `directory` with `keys`, ascending, each with its first value.
    pub(crate) fn load(directory: &Path, keys: &[u64], value_bytes: usize) -> Result<Self> {
        let map_bytes = keys.len() * (MAP_TIMES * value_bytes + MAP_BYTES_PER_KEY) + MAP_BYTES_BASE;
        let map_bytes = map_bytes.next_multiple_of(1 << 20);
        let opened = OpenLmdb::open(directory, map_bytes)?;
        let mut write = opened.environment().write_txn()?;
        for key in keys {
            let (key, value) = first_pair(*key, value_bytes);
            opened.pairs.put_with_flags(&mut write, PutFlags::APPEND, &key, &value)?;
        }
        write.commit()?;
        Ok(Self { opened: Some(opened), directory: directory.to_owned(), map_bytes })
    }

    fn opened(&self) -> Result<&OpenLmdb> {
        self.opened.as_ref().context("LMDB is not open")
    }
}

impl Peer for LmdbPeer {
    fn put(&mut self, pairs: &[Pair]) -> Result<()> {
        let opened = self.opened()?;
        let mut write = opened.environment().write_txn()?;
        for (key, value) in pairs {
            opened.pairs.put(&mut write, key, value)?;
        }
        write.commit()?;
        Ok(())
    }

    fn get(&mut self, keys: &[u64], see: &mut See<'_>) -> Result<()> {
        let opened = self.opened()?;
        let read = opened.environment().read_txn()?;
        for (index, key) in keys.iter().enumerate() {
            see(index, opened.pairs.get(&read, key)?);
        }
        Ok(())
    }

    fn reopen(&mut self) -> Result<()> {
        self.opened = None;
        self.opened = Some(OpenLmdb::open(&self.directory, self.map_bytes)?);
        Ok(())
    }
}

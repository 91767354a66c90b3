//! LMDB with integer keys. Another process loads it; this one maps the same file and reads.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use heed::byteorder::NativeEndian;
use heed::types::U64;
use heed::{CommitOrAbort, Database, Env, EnvOpenOptions, IntegerComparator, PutFlags};

use super::Source;
use crate::children;
use crate::store::Store;
use crate::tally::{Tally, value_of};

type Number = U64<NativeEndian>;
type Pairs<'e> = Database<'e, Number, Number, IntegerComparator>;

/// Room for the file: as much a key, and this besides. It is address space, not memory.
const MAP_BYTES_PER_KEY: usize = 256;
const MAP_BYTES_BASE: usize = 1 << 30;

struct Mapped {
    environment: &'static Env,
    pairs: Pairs<'static>,
}

pub(super) fn open(source: &Source<'_>) -> Result<Box<dyn Store>> {
    let directory = source.directory.join("lmdb");
    std::fs::create_dir(&directory).with_context(|| format!("making {}", directory.display()))?;
    let keys = source.directory.join("keys");
    children::write_keys(&keys, source.keys)?;
    let program = std::env::current_exe().context("finding this program's own file")?;
    let mut loader = Command::new(program);
    loader.arg("load-lmdb").arg("--directory").arg(&directory).arg("--keys").arg(&keys);
    let status = loader.status().context("starting LMDB's loader")?;
    ensure!(status.success(), "LMDB's loader: {status}");
    std::fs::remove_file(&keys).with_context(|| format!("removing {}", keys.display()))?;
    // The handle of a database borrows its environment, and both go into one store: it lives as long as the
    // process, which opens one.
    let environment: &'static Env = Box::leak(Box::new(environment(&directory, source.keys.len())?));
    let pairs = database(environment)?;
    Ok(Box::new(Mapped { environment, pairs }))
}

/// Loads ascending `keys` into a new environment in `directory`.
pub(crate) fn load(directory: &Path, keys: &[u64]) -> Result<()> {
    let environment = environment(directory, keys.len())?;
    let pairs = database(&environment)?;
    let mut write = environment.write_txn()?;
    for key in keys {
        pairs.put_with_flags(&mut write, PutFlags::APPEND, key, &value_of(*key, 0))?;
    }
    write.commit()?;
    Ok(())
}

fn environment(directory: &Path, keys: usize) -> Result<Env> {
    let mut options = EnvOpenOptions::new();
    options.map_size((keys * MAP_BYTES_PER_KEY + MAP_BYTES_BASE).next_multiple_of(1 << 20));
    // SAFETY: the file lies in a directory that this program made for itself. Nobody but LMDB, with its own
    // locks, writes it while it is mapped. No transaction outlives a function of this module.
    unsafe { options.open(directory) }.with_context(|| format!("opening LMDB in {}", directory.display()))
}

/// The unnamed database: made by the first who asks.
fn database(environment: &Env) -> Result<Pairs<'_>> {
    let write = environment.write_txn()?;
    let made = environment.create_databases_and_commit(write, |options, write| {
        let options =
            options.database_options().types::<Number, Number>().key_comparator::<IntegerComparator>();
        options.create(write).map(CommitOrAbort::<_, ()>::Commit)
    })?;
    Ok(made.unwrap_commit())
}

impl Store for Mapped {
    fn get_each(&mut self, keys: &[u64], tally: &mut Tally<'_>) -> Result<()> {
        let read = self.environment.read_txn()?;
        for key in keys {
            tally.read(*key, self.pairs.get(&read, key)?);
        }
        Ok(())
    }

    fn scan(&mut self, scans: &[(u64, usize)], tally: &mut Tally<'_>) -> Result<()> {
        let read = self.environment.read_txn()?;
        for (from, limit) in scans {
            tally.begin_scan(*from, *limit);
            for pair in self.pairs.range(&read, &(*from..))?.take(*limit) {
                let (key, value) = pair?;
                tally.pair(key, value);
            }
            tally.end_scan();
        }
        Ok(())
    }

    fn put(&mut self, pairs: &[(u64, u64)]) -> Result<()> {
        let mut write = self.environment.write_txn()?;
        for (key, value) in pairs {
            self.pairs.put(&mut write, key, value)?;
        }
        write.commit()?;
        Ok(())
    }
}

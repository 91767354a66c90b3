//! The stores, by name, and how each is opened and loaded.

mod btree_map;
mod farsight;
mod hash_table;
mod lmdb;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod static_tree;
mod tree_index;

use std::path::Path;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use farsight_bench::driver::Load;
use farsight_bench::report::Work;

use crate::store::Store;

pub(crate) use lmdb::load as load_lmdb;

/// Name of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreName {
    Farsight,
    StaticTree,
    Lmdb,
    #[cfg(feature = "rocksdb")]
    Rocksdb,
    Redb,
    BtreeMap,
    TreeIndex,
    HashTable,
}

/// What the stores are loaded with and where.
pub(crate) struct Source<'a> {
    /// The keys to load, ascending.
    pub(crate) keys: &'a [u64],
    /// A directory for files.
    pub(crate) directory: &'a Path,
    /// Farsight's loaded table, which the static tree reads, too.
    pub(crate) farsight: &'a Load,
}

impl StoreName {
    /// All that are built in.
    pub(crate) fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// The name in tables.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Farsight => "Farsight",
            Self::StaticTree => "static tree",
            Self::Lmdb => "LMDB",
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => "RocksDB",
            Self::Redb => "redb",
            Self::BtreeMap => "BTreeMap",
            Self::TreeIndex => "scc TreeIndex",
            Self::HashTable => "hash table",
        }
    }

    /// What it is and how it is used.
    pub(crate) fn note(self) -> &'static str {
        match self {
            Self::Farsight => "server in another process; XStore's learned cache; batches by `multi_get`",
            Self::StaticTree => {
                "Farsight's leaves, READs and proofs, but for model and table a static 17-way search tree over \
                 all leaves, prefetched level by level, searched by AVX2"
            }
            Self::Lmdb => {
                "heed, integer keys, loaded by another process; a read transaction a batch, a write \
                 transaction a batch without its own fsync costs (tmpfs)"
            }
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => {
                "in process; MultiGet for batches; no compression, block cache above the data, Bloom filter of \
                 10 bits, compacted, no write-ahead log"
            }
            Self::Redb => "in process; cache above the data; a transaction a batch, not durable",
            Self::BtreeMap => "std, in process, one thread",
            Self::TreeIndex => "scc, in process: a concurrent ordered map with lock-free reads",
            Self::HashTable => "hashbrown, in process, one thread; unordered; batches hash first, then look",
        }
    }

    /// Whether GETs can be handed over together.
    pub(crate) fn is_batched(self) -> bool {
        match self {
            Self::Farsight | Self::StaticTree | Self::HashTable => true,
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => true,
            Self::Lmdb | Self::Redb | Self::BtreeMap | Self::TreeIndex => false,
        }
    }

    /// Whether it can do this work, or would only repeat another.
    pub(crate) fn does(self, work: Work) -> bool {
        match (self, work) {
            (Self::StaticTree, work) => is_get(work),
            (Self::HashTable, Work::Scan | Work::E) => false,
            _ => true,
        }
    }

    /// Opens and loads it.
    pub(crate) fn open(self, source: &Source<'_>) -> Result<Box<dyn Store>> {
        let opened: Result<Box<dyn Store>> = match self {
            Self::Farsight => farsight::open(source),
            Self::StaticTree => static_tree::open(source),
            Self::Lmdb => lmdb::open(source),
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => rocksdb::open(source),
            Self::Redb => redb::open(source),
            Self::BtreeMap => Ok(Box::new(btree_map::OrderedMap::new(source.keys))),
            Self::TreeIndex => tree_index::open(source),
            Self::HashTable => Ok(Box::new(hash_table::Hashed::new(source.keys))),
        };
        opened.with_context(|| format!("opening {}", self.title()))
    }
}

fn is_get(work: Work) -> bool {
    matches!(work, Work::GetUniform | Work::GetZipfian | Work::SingleUniform | Work::SingleZipfian)
}

//! Keys of named sets and SOSD files.

use std::path::PathBuf;

use farsight_bench::dataset::{Dataset, DatasetError, FileOptions, KeySet, default_cache_directory};

/// `keys` keys of `dataset`, or all that it has. Only sets that were fetched need a home directory.
pub(crate) fn generate(
    dataset: &Dataset,
    keys: Option<usize>,
    seed: u64,
    sort: bool,
) -> Result<KeySet, DatasetError> {
    let directory = if dataset.is_fetched() { default_cache_directory()? } else { PathBuf::new() };
    dataset.generate(keys, seed, &directory, FileOptions { sort })
}

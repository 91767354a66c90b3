//! Pairs into a table: in bulk, or by puts.

use anyhow::{Context, Result};
use farsight::{ErrorCode, LoadError, Options, Table, WriteOperation};
use indicatif::{ProgressBar, ProgressStyle};

use super::pairs::{LoadedValues, Pairs};
use crate::key_text::{KeyText, TextKey};
use crate::outcome;

/// Pairs of a batch of puts, and between two steps of the progress bar.
const BATCH_PAIRS: usize = 8192;

/// Loads an empty table; false if it once had pairs, and so takes puts alone. (Keys ascend here, so nothing
/// else is refused as a bad load, but what other clients do beside this one.)
pub(super) fn bulk<K: TextKey>(table: &Table<K>, keys: &[u64], values: &LoadedValues) -> Result<bool> {
    let bar = bar(keys.len());
    let mut load = table.bulk_load()?;
    let mut scratch = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        match load.push(K::decode(*key), values.value(index, &key.to_le_bytes(), &mut scratch)) {
            Err(LoadError::Used { .. }) if index <= 1 => return Ok(false),
            Err(error) if is_bad_load(&error) => return Ok(false),
            done => done?,
        }
        if index % BATCH_PAIRS == 0 {
            bar.set_position(index as u64);
        }
    }
    match load.finish() {
        Err(error) if is_bad_load(&error) => return Ok(false),
        done => done?,
    };
    bar.finish_and_clear();
    Ok(true)
}

fn is_bad_load(error: &LoadError) -> bool {
    matches!(error, LoadError::Refused { source, .. } if source.code == ErrorCode::BadLoad)
}

/// Puts pairs into a table that may have some.
pub(super) fn put<K: KeyText + ?Sized>(table: &Table<K>, pairs: &Pairs<K::Typed>) -> Result<()> {
    let bar = bar(pairs.keys.len());
    let mut session = table.session(Options::default())?;
    // With the model at hand each put carries a hint of its leaf, which spares the server the way down its
    // tree.
    session.prefill()?;
    let mut outcomes = Vec::new();
    let mut batch: Vec<(K::Ref<'_>, Vec<u8>)> = Vec::new();
    let mut scratch = Vec::new();
    for first in (0..pairs.keys.len()).step_by(BATCH_PAIRS) {
        let last = pairs.keys.len().min(first + BATCH_PAIRS);
        batch.clear();
        batch.extend((first..last).map(|index| {
            let key = &pairs.keys[index];
            (K::borrowed(key), pairs.values.value(index, &K::bytes(key), &mut scratch).to_vec())
        }));
        let here = || {
            let (first, all) = (first + 1, pairs.keys.len());
            format!(
                "pairs {first} to {last} of {all}, in key order: those before are loaded, of these perhaps some"
            )
        };
        session.put_many(&batch, &mut outcomes).with_context(here)?;
        outcome::check(table.name(), WriteOperation::Put, &outcomes).with_context(here)?;
        bar.set_position(last as u64);
    }
    bar.finish_and_clear();
    Ok(())
}

/// A progress bar on stderr; nothing where that is no terminal.
fn bar(pairs: usize) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{wide_bar} {human_pos} of {human_len} pairs, {per_sec}, {eta} left");
    ProgressBar::new(pairs as u64).with_style(style.expect("the template is well-formed"))
}

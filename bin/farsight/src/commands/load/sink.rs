//! Pairs into a table: in bulk, or by puts.

use std::iter::StepBy;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use farsight::{ErrorCode, LoadError, Options, Table, WriteOperation};
use indicatif::{ProgressBar, ProgressStyle};

use super::pairs::{LoadedValues, Pairs};
use crate::key_text::{KeyText, TextKey};
use crate::outcome;

/// Pairs of a batch of puts, and between two steps of the progress bar.
const BATCH_PAIRS: usize = 8192;
/// Sessions that put at once, at most.
const WRITERS_MAX: usize = 4;

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

/// The first pair of each batch that is still to be put.
type Firsts = Mutex<StepBy<Range<usize>>>;

/// Puts pairs into a table that may have some, by several sessions at once: the keys differ, so their order
/// does not matter.
pub(super) fn put<K: KeyText + ?Sized>(table: &Table<K>, pairs: &Pairs<K::Typed>) -> Result<()> {
    let (bar, all) = (bar(pairs.keys.len()), pairs.keys.len());
    let firsts = Mutex::new((0..all).step_by(BATCH_PAIRS));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let writers = cores.clamp(1, WRITERS_MAX).min(all.div_ceil(BATCH_PAIRS));
    let write = || {
        let written = put_batches(table, pairs, &firsts, &bar);
        if written.is_err() {
            // The others end what they have begun.
            *lock(&firsts) = (all..all).step_by(BATCH_PAIRS);
        }
        written
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..writers).map(|_| scope.spawn(write)).collect();
        let own = write();
        others.into_iter().map(|other| other.join().expect("it panics nowhere")).fold(own, Result::and)
    })?;
    bar.finish_and_clear();
    Ok(())
}

/// Puts batches, one after the other, until none is left.
fn put_batches<K: KeyText + ?Sized>(
    table: &Table<K>,
    pairs: &Pairs<K::Typed>,
    firsts: &Firsts,
    bar: &ProgressBar,
) -> Result<()> {
    let mut session = table.session(Options::default())?;
    // With the model at hand each put carries a hint of its leaf, which spares the server the way down its
    // tree.
    session.prefill()?;
    let (mut outcomes, mut batch, mut scratch) = (Vec::new(), Vec::new(), Vec::new());
    let next = || lock(firsts).next();
    while let Some(first) = next() {
        let last = pairs.keys.len().min(first + BATCH_PAIRS);
        batch.clear();
        batch.extend((first..last).map(|index| {
            let key = &pairs.keys[index];
            (K::borrowed(key), pairs.values.value(index, &K::bytes(key), &mut scratch).to_vec())
        }));
        let here = || {
            let (first, all) = (first + 1, pairs.keys.len());
            format!("pairs {first} to {last} of {all}, in key order: of all of them some may be loaded")
        };
        session.put_many(&batch, &mut outcomes).with_context(here)?;
        outcome::check(table.name(), WriteOperation::Put, &outcomes).with_context(here)?;
        bar.inc((last - first) as u64);
    }
    Ok(())
}

fn lock(firsts: &Firsts) -> MutexGuard<'_, StepBy<Range<usize>>> {
    // Each change is complete.
    firsts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A progress bar on stderr; nothing where that is no terminal.
fn bar(pairs: usize) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{wide_bar} {human_pos} of {human_len} pairs, {per_sec}, {eta} left");
    ProgressBar::new(pairs as u64).with_style(style.expect("the template is well-formed"))
}

//! How a table came to hold its keys.
//!
//! Invariant: tables of any age hold the same pairs, and nobody measures one before its model is trained.

use std::sync::Arc;

use farsight::{Options, Table};
use farsight_oracles::{Embedding as _, Identity};
use indicatif::{ProgressBar, ProgressStyle};

use super::checked_value::CheckedValue;
use super::executor::Executor;
use super::store::PLAIN;
use super::{Cancellation, DriverError, SEED, Values};
use crate::workload::{InsertSupply, KeySpace, Operation};

/// Pairs between two steps of the progress bar.
const BAR_STEP_PAIRS: usize = 8192;
/// Inserts that are handed over together.
const INSERT_BATCH: usize = 1024;

/// How a table came to hold its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// By one bulk load.
    Fresh,
    /// Half of them, anywhere, by a bulk load. Then the others by inserts, in random order.
    Aged,
}

impl Age {
    /// The name under which results show it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Aged => "aged",
        }
    }

    /// Fills `table`, which is empty, with `keys`, each with its first value.
    pub(super) fn fill(
        self,
        (table, values): (&Table<u64>, Values),
        options: Options,
        keys: &[Identity],
        cancellation: &Cancellation,
    ) -> Result<(), DriverError> {
        if self == Self::Fresh {
            return bulk_load(table, values, keys, cancellation);
        }
        let supply = InsertSupply { held_back: keys.len() / 2, gap_keys: 0 };
        let space = Arc::new(KeySpace::split(keys.to_vec(), supply, SEED)?);
        bulk_load(table, values, space.loaded(), cancellation)?;
        insert((table, values), options, &space, cancellation)
    }
}

fn bar(pairs: usize) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{wide_bar} {human_pos} of {human_len} pairs, {per_sec}, {eta} left");
    ProgressBar::new(pairs as u64).with_style(style.expect("a well-formed template"))
}

fn bulk_load(
    table: &Table<u64>,
    values: Values,
    keys: &[Identity],
    cancellation: &Cancellation,
) -> Result<(), DriverError> {
    let bar = bar(keys.len());
    let mut load = table.bulk_load()?;
    let mut value = CheckedValue::new(values);
    for (index, &key) in keys.iter().enumerate() {
        value.set(key, 0);
        load.push(PLAIN.key(key), value.as_ref())?;
        if index % BAR_STEP_PAIRS == 0 {
            cancellation.check()?;
            bar.set_position(index as u64);
        }
    }
    load.finish()?;
    bar.finish_and_clear();
    Ok(())
}

/// Inserts the keys that `space` has for that, in their order.
fn insert(
    (table, values): (&Table<u64>, Values),
    options: Options,
    space: &Arc<KeySpace>,
    cancellation: &Cancellation,
) -> Result<(), DriverError> {
    let bar = bar(space.inserts().len());
    let session = table.session(options)?;
    let mut executor = Executor::new(session, table.name(), values, Arc::clone(space));
    let mut batch = Vec::new();
    for keys in space.inserts().chunks(INSERT_BATCH) {
        cancellation.check()?;
        batch.clear();
        batch.extend(keys.iter().map(|key| Operation::Insert { key: *key }));
        executor.execute(&batch)?;
        bar.inc(keys.len() as u64);
    }
    bar.finish_and_clear();
    std::mem::take(executor.wrong_answers_mut()).into_result("load", space.inserts().len() as u64)
}

//! Repairs of damaged pairs, by what the directory of data has of them.
//!
//! Invariant: a value is stored for a pair of exactly the version that the value was logged under. So a
//! repair never brings back what was overwritten or removed, and never loses a write beside it.
//!
//! Protocol:
//! 1. Readers note keys and versions of blocks that do not agree with their checksums: calls, the pass that
//!    scrubs, and snapshots.
//! 2. All that was applied is made durable, hence readable. Snapshots and the log are read, in the thread
//!    that makes snapshots: so no file goes meanwhile. They hold each version that a pair has now.
//! 3. The sequencer, which alone writes, stores the value if the pair has its version still.
//! 4. What is not found stays refused, and is named. It is looked for again after [`BEYOND_PAUSE`].
//!
//! Reading takes a tenth of the thread's time at most, and [`TOGETHER_MAX`] pairs are looked for together.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use farsight_base::report::report;
use farsight_base::sync::Ordering;
use farsight_durability::{DurabilityError, RecoveredRecord, look_up};
use farsight_protocol::{ErrorCode, TableId};

use super::queue::{Due, Repair};
use super::recovery::key_of;
use super::{Durable, SETTLE_MAX};
use crate::NodeState;
use crate::logged::LoggedTable;

/// Pairs that are looked for together at most. Others are met again.
const TOGETHER_MAX: usize = 1024;
/// What was not found is not looked for again before this.
const BEYOND_PAUSE: Duration = Duration::from_secs(3600);
/// The pause after a look into the files, by how long it took.
const PAUSE_BY_LOOK: u32 = 9;

/// Versions of pairs by table and key.
type Versions = BTreeMap<(u32, u64), u64>;

/// The repairs of one node.
#[derive(Default)]
pub(super) struct Repairs {
    waiting: Versions,
    /// What the files did not have, since this time.
    beyond: Versions,
    beyond_since: Option<Instant>,
    /// The next look into the files comes no earlier.
    not_before: Option<Instant>,
}

impl Repairs {
    /// How long until the next look, if anything waits for one.
    pub(super) fn rest(&self) -> Option<Duration> {
        let rest =
            || self.not_before.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
        (!self.waiting.is_empty()).then(rest)
    }

    /// Repairs what readers have met, if it is time. Returns whether something was found.
    pub(super) fn step(&mut self, state: &NodeState, durable: &Durable) -> bool {
        self.collect(state);
        if self.rest() != Some(Duration::ZERO) {
            return false;
        }
        let begin = Instant::now();
        let mut wanted = std::mem::take(&mut self.waiting);
        let count = wanted.len();
        let outcome = repair(&mut wanted, durable);
        self.not_before = Some(Instant::now() + begin.elapsed() * PAUSE_BY_LOOK);
        if let Err(error) = &outcome {
            report(format_args!("looking for damaged pairs in the directory of data: {error}"));
        }
        for ((table, key), version) in &wanted {
            let name = state.tables.get(TableId(*table)).map(|table| table.name().get());
            let name = name.unwrap_or_else(|_| format!("number {table}"));
            report(format_args!(
                "table {name:?}, key {key}: the directory of data has no version {version} of it, so its block stays damaged: \
                 write the key again"
            ));
        }
        // Relaxed: statistics.
        durable.unrepaired.fetch_add(wanted.len() as u64, Ordering::Relaxed);
        let is_found = wanted.len() < count;
        self.beyond_since.get_or_insert(begin);
        self.beyond.append(&mut wanted);
        is_found
    }

    fn collect(&mut self, state: &NodeState) {
        if self.beyond_since.is_some_and(|since| since.elapsed() >= BEYOND_PAUSE) {
            (self.beyond, self.beyond_since) = (Versions::new(), None);
        }
        for table in state.tables.all() {
            let damaged = table.hosted().logged().map(LoggedTable::take_damaged);
            for (key, version) in damaged.into_iter().flatten() {
                let place = (table.id().0, key);
                if self.beyond.get(&place) != Some(&version) && self.waiting.len() < TOGETHER_MAX {
                    self.waiting.insert(place, version);
                }
            }
        }
    }
}

/// Repairs these pairs, and leaves those that it has not found.
fn repair(wanted: &mut Versions, durable: &Durable) -> Result<(), DurabilityError> {
    durable.settle()?;
    let (disk, catalogue) = {
        let store = durable.store();
        (Arc::clone(store.disk()), store.catalogue().clone())
    };
    let keys: BTreeSet<(u32, u64)> = wanted.keys().copied().collect();
    let mut stored = Ok(());
    look_up(&*disk, &catalogue, &keys, |record| {
        let place = (record.table, key_of(record.key));
        if let Some(value) = record.value
            && wanted.get(&place).is_some_and(|version| is_of(record, *version))
        {
            stored = store(durable, place, wanted[&place], value).map(|()| _ = wanted.remove(&place));
        }
        if wanted.is_empty() || stored.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    stored
}

/// True if a record has the value of this version.
fn is_of(record: RecoveredRecord<'_>, version: u64) -> bool {
    #[cfg(injected)]
    if crate::injected::REPAIRED_BY_ANY_VERSION.is_injected() {
        return true;
    }
    record.version == version
}

/// Has the sequencer store the value of a pair, if that has its version still.
fn store(
    durable: &Durable,
    (table, key): (u32, u64),
    version: u64,
    value: &[u8],
) -> Result<(), DurabilityError> {
    let (done, repaired) = sync_channel(1);
    let (table, value) = (TableId(table), value.to_vec());
    durable.queue.push(Due::Repair(Repair { table, key, version, value, done }));
    let late = || DurabilityError::Poisoned { why: format!("the log did not follow for {SETTLE_MAX:?}") };
    match durable.pace.answer(&repaired, SETTLE_MAX).ok_or_else(late)? {
        // Relaxed: statistics.
        Ok(is_repaired) => _ = durable.repaired.fetch_add(is_repaired.into(), Ordering::Relaxed),
        // A table that is gone needs no repair.
        Err(error) if error.code == ErrorCode::UnknownTable => {}
        Err(error) => {
            return Err(DurabilityError::Refused { table: format!("number {}", table.0), why: error.text });
        }
    }
    Ok(())
}

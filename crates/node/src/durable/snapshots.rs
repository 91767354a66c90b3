//! Snapshots of a node's tables, while clients write them.
//!
//! Protocol:
//! 1. The sequencer says where the log ends when all before is applied: the snapshots' position.
//! 2. For each table, its pairs are read leaf by leaf, as a scan does, and written to a file. Writes go on. A
//!    pair in the file may be newer than the position. So before the file counts, the sequencer says that the
//!    log is durable up to here.
//! 3. The file is complete and durable; then the catalogue names it, unless a bulk load of the table has
//!    ended since step 2 began. The one before is removed.
//! 4. Segments that no table needs any more are removed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight_base::report::report;
use farsight_durability::{DurabilityError, LogPosition};
use farsight_protocol::ServerError;

use super::Durable;
use super::repairs::Repairs;
use crate::table::Table;
use crate::{NodeState, Stop};

/// Pairs read at once.
const SCAN_PAIRS: usize = 4096;
/// The longest sleep with nothing to do.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// The pause after snapshots that failed, as on a full disk.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// What makes a node's snapshots.
pub struct Snapshots {
    state: Arc<NodeState>,
    durable: Arc<Durable>,
    repairs: Repairs,
    /// After snapshots that failed, the next ones come no earlier.
    retry_at: Option<Instant>,
}

impl Snapshots {
    pub(super) fn new(state: Arc<NodeState>, durable: Arc<Durable>) -> Self {
        Self { state, durable, repairs: Repairs::default(), retry_at: None }
    }

    /// Works until `stop`.
    pub(crate) fn run(&mut self, stop: &Stop) {
        while !stop.is_raised() {
            let retry = self.retry_at.map(|at| at.saturating_duration_since(Instant::now()));
            let rest = retry.into_iter().chain(self.repairs.rest()).min();
            // A node that refuses everything repairs nothing, either.
            let rest = rest.filter(|_| self.state.failure().is_none());
            self.durable.snapshot_signal.wait(rest.unwrap_or(SLEEP_MAX));
            if stop.is_raised() || self.state.failure().is_some() {
                continue;
            }
            if let Some(error) = self.step(&|| stop.is_raised()).err().filter(|_| !stop.is_raised()) {
                report(format_args!("no snapshot was made, and the log keeps all: {error}"));
            }
        }
    }

    /// Repairs what is damaged, and makes the snapshots that are due, until `is_over`. The sequencer takes
    /// its steps meanwhile, in another thread.
    ///
    /// # Errors
    /// [`DurabilityError`]: the snapshots are not made.
    pub fn step(&mut self, is_over: &dyn Fn() -> bool) -> Result<(), DurabilityError> {
        self.repairs.step(&self.state, &self.durable);
        if self.retry_at.is_some_and(|at| Instant::now() < at) {
            return Ok(());
        }
        self.retry_at = None;
        if !self.durable.are_snapshots_due() {
            return Ok(());
        }
        self.durable.rounds.begin();
        let taken = self.take(is_over);
        let failure = taken.as_ref().err().map(ToString::to_string);
        self.durable.rounds.end(failure.or_else(|| is_over().then(|| "the server ends".to_owned())));
        self.retry_at = taken.is_err().then(|| Instant::now() + RETRY_PAUSE);
        taken
    }

    /// Makes a snapshot of each table, and removes what nobody needs any more; what is complete when it is
    /// over stays.
    fn take(&mut self, is_over: &dyn Fn() -> bool) -> Result<(), DurabilityError> {
        let position = self.durable.settle()?;
        let appended_bytes = self.durable.appended_bytes();
        let mut live_bytes = 0;
        for table in self.state.tables.all() {
            live_bytes += self.take_table(&table, position, is_over)?;
            if is_over() {
                return Ok(());
            }
        }
        self.durable.store().remove_segments(position)?;
        self.durable.set_next_snapshots(appended_bytes, live_bytes);
        Ok(())
    }

    fn take_table(
        &mut self,
        table: &Table,
        position: LogPosition,
        is_over: &dyn Fn() -> bool,
    ) -> Result<u64, DurabilityError> {
        let Some(logged) = table.hosted().logged() else { return Ok(0) };
        let former = self.durable.store().snapshot_of(table.id().0);
        let mut writer = self.durable.begin_snapshot(table.id().0)?;
        let mut next = Some(0);
        let mut bytes = 0;
        while let Some(from) = next {
            if is_over() {
                return Ok(0);
            }
            let mut written = Ok(());
            let scanned = logged.scan(from, SCAN_PAIRS, &mut |key, version, value| {
                if written.is_ok() {
                    written = writer.push(version, &key.to_le_bytes(), value);
                    bytes += (size_of::<u64>() + value.len()) as u64;
                }
            });
            next = scanned.map_err(|error| refused(table, &error))?;
            written?;
        }
        let version_max = logged.version_max();
        self.durable.settle()?;
        let name = writer.finish(position, version_max)?;
        self.durable.store().name_snapshot(table.id().0, former, name)?;
        Ok(bytes)
    }
}

fn refused(table: &Table, error: &ServerError) -> DurabilityError {
    DurabilityError::Refused { table: table.name().get(), why: error.text.clone() }
}

//! Snapshots of a node's tables, while clients write them.
//!
//! A table's snapshot consists of pieces by ranges of keys. Invariant: a piece that the catalogue names has
//! all that the log says of its keys before the piece's position.
//!
//! Protocol of a round:
//! 1. The sequencer says where the log ends when all before is applied: the round's position.
//! 2. For each table, the marks of touched pieces are taken. Others stay as they are.
//! 3. The pairs of touched pieces are read leaf by leaf, as a scan does, and written to files: neighbours
//!    together, the oldest first. Writes go on. A pair in a file may be newer than the position. So before
//!    the files count, the sequencer says that the log is durable up to here.
//! 4. The files are complete and durable; then the catalogue names them, unless a bulk load of the table has
//!    ended since step 3 began. The ones before are removed.
//! 5. The catalogue gives pieces that nothing was written to the round's position.
//! 6. Segments that no piece needs any more are removed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight_base::report::report;
use farsight_durability::{DurabilityError, LogPosition, SnapshotPiece};
use farsight_protocol::ServerError;

use super::Durable;
use super::repairs::Repairs;
use crate::logged::LoggedTable;
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
        {
            let store = self.durable.store();
            self.durable.touched.retain(|table| store.catalogue().tables.contains_key(&table));
        }
        let (mut written_bytes, mut untouched) = (0, Vec::new());
        for table in self.state.tables.all() {
            written_bytes += self.take_table(&table, position, &mut untouched, is_over)?;
            if is_over() {
                return Ok(());
            }
        }
        let mut store = self.durable.store();
        store.advance_pieces(position, &untouched)?;
        store.remove_segments(position)?;
        drop(store);
        self.durable.set_next_snapshots(appended_bytes, written_bytes);
        Ok(())
    }

    /// Writes the pieces of a table that were touched, and notes the others. Returns bytes of their pairs.
    fn take_table(
        &self,
        table: &Table,
        position: LogPosition,
        untouched: &mut Vec<(u32, SnapshotPiece)>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<u64, DurabilityError> {
        let Some(logged) = table.hosted().logged() else { return Ok(0) };
        let id = table.id().0;
        let (pieces, are_touched) = {
            let store = self.durable.store();
            let pieces = store.pieces_of(id).to_vec();
            let are_touched = self.durable.touched.take(id, &pieces);
            (pieces, are_touched)
        };
        #[cfg(injected)]
        let are_touched = if crate::injected::TOUCHED_PIECE_KEPT.is_injected() {
            vec![false; are_touched.len()]
        } else {
            are_touched
        };
        let (runs, others) = runs(&pieces, &are_touched, self.durable.piece_bytes);
        untouched.extend(others.into_iter().map(|piece| (id, piece)));
        let mut bytes = 0;
        for (index, run) in runs.iter().enumerate() {
            let taken = self.take_run(table, logged, run, position, is_over);
            match taken {
                Ok(Some(run_bytes)) => bytes += run_bytes,
                taken => {
                    for Run { first, end, .. } in &runs[index..] {
                        self.durable.touched.mark_range(id, *first, *end);
                    }
                    return taken.map(|_| bytes);
                }
            }
        }
        Ok(bytes)
    }

    /// Writes the pieces of a range anew. `None` if it is over before that is done, or the table has others
    /// by now.
    fn take_run(
        &self,
        table: &Table,
        logged: &dyn LoggedTable,
        run: &Run,
        position: LogPosition,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<u64>, DurabilityError> {
        let durable = &*self.durable;
        let take_number = || durable.store().take_snapshot_number();
        let mut writer = durable.begin_snapshot(table.id().0, run.first, run.cut_bytes);
        let is_in = |key: u64| run.end.is_none_or(|end| key < end);
        let mut next = Some(run.first);
        while let Some(from) = next.filter(|key| is_in(*key)) {
            if is_over() {
                return Ok(None);
            }
            let mut written = Ok(());
            let scanned = logged.scan(from, SCAN_PAIRS, &mut |key, version, value| {
                if written.is_ok() && is_in(key) {
                    written = writer.push(take_number, version, key, value);
                }
            });
            next = scanned.map_err(|error| refused(table, &error))?;
            written?;
        }
        let version_max = logged.version_max();
        durable.settle()?;
        let pieces = writer.finish(take_number, position, version_max)?;
        let bytes = pieces.iter().map(|piece| piece.pair_bytes).sum();
        let are_named = durable.name_pieces(&mut durable.store(), table.id().0, &run.former, &pieces)?;
        Ok(are_named.then_some(bytes))
    }
}

/// Neighbours that are written anew together.
struct Run {
    first: u64,
    /// The first key behind it, if there is any.
    end: Option<u64>,
    /// Its pieces as they are.
    former: Vec<SnapshotPiece>,
    /// Bytes of a piece from now on.
    cut_bytes: u64,
}

/// What is to be written of these pieces, the oldest first, and what stays. A table without pieces is written
/// as a whole. A neighbour that is so small that both are half a piece is written along: pieces merge so.
fn runs(pieces: &[SnapshotPiece], are_touched: &[bool], piece_bytes: u64) -> (Vec<Run>, Vec<SnapshotPiece>) {
    if pieces.is_empty() {
        return (vec![Run { first: 0, end: None, former: Vec::new(), cut_bytes: piece_bytes }], Vec::new());
    }
    let mut are_written = are_touched.to_vec();
    for (index, pair) in pieces.windows(2).enumerate() {
        let are_small = pair[0].pair_bytes + pair[1].pair_bytes <= piece_bytes / 2;
        if are_small && (are_touched[index] || are_touched[index + 1]) {
            are_written[index..=index + 1].fill(true);
        }
    }
    let (mut runs, mut others) = (Vec::new(), Vec::new());
    let mut begin = 0;
    for run in are_written.chunk_by(|one, next| one == next) {
        let end = begin + run.len();
        let former = pieces[begin..end].to_vec();
        if run[0] {
            let bytes: u64 = former.iter().map(|piece| piece.pair_bytes).sum();
            runs.push(Run {
                first: former[0].first_key,
                end: pieces.get(end).map(|piece| piece.first_key),
                former,
                cut_bytes: cut_bytes(bytes, piece_bytes),
            });
        } else {
            others.extend(former);
        }
        begin = end;
    }
    runs.sort_by_key(|run| run.former.iter().map(|piece| piece.position).min());
    (runs, others)
}

/// Bytes of each piece of a range that had `bytes`, and may have an eighth more: even parts, so that none is
/// full at once.
fn cut_bytes(bytes: u64, piece_bytes: u64) -> u64 {
    let bytes = bytes.saturating_add(bytes / 8);
    (bytes / bytes.div_ceil(piece_bytes.max(1)).max(1) + 1).max(piece_bytes / 2).min(piece_bytes)
}

fn refused(table: &Table, error: &ServerError) -> DurabilityError {
    DurabilityError::Refused { table: table.name().get(), why: error.text.clone() }
}

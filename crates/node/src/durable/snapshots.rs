//! Snapshots of a node's tables, while clients write them.
//!
//! A table's snapshot consists of pieces by ranges of keys. Invariant: a piece that the catalogue names has
//! all that the log says of its keys before the piece's position.
//!
//! Protocol of a round:
//! 1. The sequencer says where the log ends when all before is applied: the round's position. It notes
//!    authors and their calls anew behind that, and syncs it.
//! 2. For each table, the marks of touched pieces are taken. Others stay as they are.
//! 3. The pairs of touched pieces are read leaf by leaf, as a scan does, and written to files: neighbours
//!    together, the oldest first. Writes go on. A pair in a file may be newer than the position. So before
//!    the files count, the sequencer says that the log is durable up to here.
//! 4. The files are complete and durable; then the catalogue names them, unless a bulk load of the table has
//!    ended since step 3 began. The ones before are removed.
//! 5. The catalogue gives pieces that nothing was written to the round's position.
//! 6. Segments that no piece needs any more are removed.
//!
//! A pair in step 3 may be damaged, with no copy in any file. Its piece alone is *left*: it keeps its file,
//! its mark and its position, hence its part of the log. The round goes on, and says so in the end.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::report::report;
use farsight_base::sync::Ordering;
use farsight_durability::{DurabilityError, LogPosition, SnapshotPiece};
use farsight_protocol::{ErrorCode, ServerError};

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
    retry_at: Option<MonotonicNs>,
    /// The pieces that the last round left, by table and first key. They were reported.
    left: BTreeSet<(u32, u64)>,
}

/// What a round has done so far.
#[derive(Default)]
struct Round {
    written_bytes: u64,
    /// Pieces to which nothing was written.
    untouched: Vec<(u32, SnapshotPiece)>,
    /// Pieces that are left, and why.
    left: Vec<((u32, u64), String)>,
}

/// Why a range was not written.
enum Unwritten {
    /// One of its pairs is damaged.
    Damaged(ServerError),
    /// The round fails.
    Failed(DurabilityError),
}

impl From<DurabilityError> for Unwritten {
    fn from(error: DurabilityError) -> Self {
        Self::Failed(error)
    }
}

impl Snapshots {
    pub(super) fn new(state: Arc<NodeState>, durable: Arc<Durable>) -> Self {
        Self { state, durable, repairs: Repairs::default(), retry_at: None, left: BTreeSet::new() }
    }

    /// Works until `stop`.
    pub(crate) fn run(&mut self, stop: &Stop) {
        while !stop.is_raised() {
            let retry = self.retry_at.map(|at| at.since(self.durable.pace.now()));
            let rest = retry.into_iter().chain(self.repairs.rest()).min();
            // A node that refuses everything repairs nothing, either.
            let rest = rest.filter(|_| self.state.failure().is_none());
            self.durable.snapshot_signal.wait(rest.unwrap_or(SLEEP_MAX));
            if stop.is_raised() || self.state.failure().is_some() {
                continue;
            }
            if let Some(error) = self.step(&|| stop.is_raised()).err().filter(|_| !stop.is_raised()) {
                report(not_made(&error.to_string()));
            }
        }
    }

    /// Repairs what is damaged, and makes the snapshots that are due, until `is_over`. The sequencer takes
    /// its steps meanwhile: in another thread, or whenever this one [waits](super::DataOptions::one_thread).
    ///
    /// # Errors
    /// [`DurabilityError`]: the snapshots are not made.
    pub fn step(&mut self, is_over: &dyn Fn() -> bool) -> Result<(), DurabilityError> {
        self.repairs.step(&self.state, &self.durable);
        if self.retry_at.is_some_and(|at| self.durable.pace.now() < at) {
            return Ok(());
        }
        self.retry_at = None;
        if !self.durable.are_snapshots_due() {
            return Ok(());
        }
        self.durable.rounds.begin();
        let taken = self.take(is_over);
        let failure = match &taken {
            Err(error) => Some(not_made(&error.to_string())),
            Ok(_) if is_over() => Some(not_made("the server ends")),
            Ok(left) => left.clone(),
        };
        self.durable.rounds.end(failure);
        self.retry_at = taken.is_err().then(|| self.durable.pace.now().plus(RETRY_PAUSE));
        taken.map(drop)
    }

    /// Makes a snapshot of each table, and removes what nobody needs any more; what is complete when it is
    /// over stays. Returns what it has left, and why.
    fn take(&mut self, is_over: &dyn Fn() -> bool) -> Result<Option<String>, DurabilityError> {
        let position = self.durable.begin_round()?;
        let appended_bytes = self.durable.appended_bytes();
        #[cfg(injected)]
        if farsight_durability::injected::SEGMENT_REMOVED_EARLY.is_injected() {
            self.durable.store().remove_segments(position)?;
        }
        {
            let store = self.durable.store();
            self.durable.touched.retain(|table| store.catalogue().tables.contains_key(&table));
        }
        let mut round = Round::default();
        for table in self.state.tables.all() {
            self.take_table(&table, position, &mut round, is_over)?;
            if is_over() {
                return Ok(None);
            }
        }
        let mut store = self.durable.store();
        store.advance_pieces(position, &round.untouched)?;
        store.remove_segments(position)?;
        drop(store);
        self.durable.set_next_snapshots(appended_bytes, round.written_bytes);
        Ok(self.end_round(&round))
    }

    /// Reports what a round has left and the one before has not. Returns all of it.
    fn end_round(&mut self, round: &Round) -> Option<String> {
        for (_, why) in round.left.iter().filter(|(piece, _)| !self.left.contains(piece)) {
            report(why);
        }
        self.left = round.left.iter().map(|(piece, _)| *piece).collect();
        // Relaxed: statistics.
        self.durable.pieces_left.store(round.left.len() as u64, Ordering::Relaxed);
        let reasons: Vec<&str> = round.left.iter().map(|(_, why)| &why[..]).collect();
        (!reasons.is_empty()).then(|| format!("all was written but: {}", reasons.join("; ")))
    }

    /// Writes the pieces of a table that were touched, and notes the others.
    fn take_table(
        &mut self,
        table: &Table,
        position: LogPosition,
        round: &mut Round,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), DurabilityError> {
        let Some(logged) = table.hosted().logged() else { return Ok(()) };
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
        round.untouched.extend(others.into_iter().map(|piece| (id, piece)));
        let mut runs = VecDeque::from(runs);
        while let Some(run) = runs.pop_front() {
            let unwritten = match self.take_run(table, logged, &run, position, is_over) {
                Ok(Some(bytes)) => {
                    round.written_bytes += bytes;
                    continue;
                }
                Ok(None) => None,
                Err(Unwritten::Failed(error)) => Some(error),
                // The files may have the pair. There is a pause between two looks, so this has an end.
                Err(Unwritten::Damaged(_)) if self.repairs.step(&self.state, &self.durable) => {
                    runs.push_front(run);
                    continue;
                }
                Err(Unwritten::Damaged(error)) => {
                    let singles = run.single_pieces(self.durable.piece_bytes);
                    if singles.is_empty() {
                        self.leave(table, &run, &error, round);
                    }
                    singles.into_iter().rev().for_each(|single| runs.push_front(single));
                    continue;
                }
            };
            for run in [run].iter().chain(&runs) {
                self.durable.touched.mark_range(id, run.first, run.end);
            }
            return unwritten.map_or(Ok(()), Err);
        }
        Ok(())
    }

    /// Leaves a piece as it is, of which a pair is damaged.
    fn leave(&self, table: &Table, run: &Run, error: &ServerError, round: &mut Round) {
        let id = table.id().0;
        #[cfg(injected)]
        if crate::injected::LEFT_PIECE_ADVANCED.is_injected() {
            round.untouched.extend(run.former.iter().map(|piece| (id, *piece)));
        }
        self.durable.touched.mark_range(id, run.first, run.end);
        let why = format!(
            "the piece of table {:?} with the keys {} to {} stays as it was, and the log is kept for it: {}",
            table.name().get(),
            run.first,
            run.last(),
            error.text
        );
        round.left.push(((id, run.first), why));
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
    ) -> Result<Option<u64>, Unwritten> {
        let durable = &*self.durable;
        let take_number = || durable.store().take_snapshot_number();
        let mut writer = durable.begin_snapshot(table.id().0, run.first, run.cut_bytes);
        let last = run.last();
        let mut next = Some(run.first);
        while let Some(from) = next {
            if is_over() {
                return Ok(None);
            }
            let mut written = Ok(());
            let scanned = logged.scan(from..=last, SCAN_PAIRS, &mut |key, version, value| {
                if written.is_ok() {
                    written = writer.push(take_number, version, key, value);
                }
            });
            next = scanned.map_err(|error| match error.code {
                ErrorCode::Damaged => Unwritten::Damaged(error),
                _ => Unwritten::Failed(refused(table, &error)),
            })?;
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

impl Run {
    /// These neighbours, of which the last one goes to `end`.
    fn of(former: &[SnapshotPiece], end: Option<u64>, piece_bytes: u64) -> Self {
        let bytes: u64 = former.iter().map(|piece| piece.pair_bytes).sum();
        let first = former.first().map_or(0, |piece| piece.first_key);
        Self { first, end, former: former.to_vec(), cut_bytes: cut_bytes(bytes, piece_bytes) }
    }

    /// The greatest key that belongs to it.
    fn last(&self) -> u64 {
        self.end.map_or(u64::MAX, |end| end.saturating_sub(1))
    }

    /// Each of its pieces as a range of its own; none if it is one piece already.
    fn single_pieces(&self, piece_bytes: u64) -> Vec<Self> {
        if self.former.len() < 2 {
            return Vec::new();
        }
        let ends = self.former.iter().skip(1).map(|piece| Some(piece.first_key)).chain([self.end]);
        let pieces = self.former.chunks(1).zip(ends);
        pieces.map(|(piece, end)| Self::of(piece, end, piece_bytes)).collect()
    }
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
        let former = &pieces[begin..end];
        if run[0] {
            let end_key = pieces.get(end).map(|piece| piece.first_key);
            runs.push(Run::of(former, end_key, piece_bytes));
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

/// What is said of a round that has failed.
fn not_made(why: &str) -> String {
    format!("no snapshot was made, and the log keeps all: {why}")
}

fn refused(table: &Table, error: &ServerError) -> DurabilityError {
    DurabilityError::Refused { table: table.name().get(), why: error.text.clone() }
}

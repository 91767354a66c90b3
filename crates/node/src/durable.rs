//! A node that keeps its tables on a disk: what its threads share for that.
//!
//! Invariant: what a client was told of a write, and what any client has read, is found after a restart. That
//! is so where writes are acknowledged when they are durable. docs/protocol/durability.md has the protocol.
//!
//! Threads: workers hand calls that write to the [`Sequencer`], which writes the tables. It has a thread of
//! its own, and workers take [some of its steps](help). A helper syncs the log meanwhile. [`Snapshots`] keep
//! the log short.

mod group;
mod help;
mod load;
mod log_helper;
mod membership;
mod pace;
mod queue;
mod recovery;
mod repairs;
mod rounds;
mod sequencer;
mod snapshots;
mod touched;

use std::fmt;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farsight_base::clock::Clock;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::{ClientId, Epoch};
use farsight_durability::disk::Disk;
use farsight_durability::{
    CatalogueTable, DurabilityError, LogOptions, LogPosition, PieceTimes, SnapshotPiece, SnapshotWriter,
    Store, log_bytes,
};
use farsight_protocol::{
    Ack, AuthorId, DataStats, ErrorCode, HEADER_BYTES, INTEGER_BYTES, PoolPlace, ReplyWriter, Request,
    ServerError, SnapshotStats, TableId, TableLayout, WriteOperation, padded,
};

use self::help::Help;
use self::pace::Pace;
use self::queue::{Due, Queue, WaitingCall};
use self::rounds::Rounds;
use self::touched::Touched;
use crate::engine::{Call, Executed};
use crate::signal::Signal;
use crate::{LateReply, StartError};
pub(crate) use help::Company;
pub use sequencer::Sequencer;
pub use snapshots::Snapshots;

/// The longest that a snapshot waits for the sequencer.
const SETTLE_MAX: Duration = Duration::from_secs(60);
/// Bytes of an outcome in an answer.
const OUTCOME_BYTES: usize = 8;
/// Words of the room that is kept for a refusal.
const REFUSAL_WORDS: usize = 64;

/// Where a node keeps its tables.
#[derive(Clone)]
pub struct DataOptions {
    /// The directory.
    pub disk: Arc<dyn Disk>,
    /// When writes are acknowledged.
    pub ack: Ack,
    /// How the log is written.
    pub log: LogOptions,
    /// Snapshots are made when the log has grown by so many bytes, and by more than the last ones had.
    pub snapshot_bytes: u64,
    /// Bytes of keys and values that a piece of a snapshot has, or one pair more. Snapshots write the pieces
    /// anew to which something was written.
    pub piece_bytes: u64,
    /// Where one thread takes all steps of the node in turns: the clock by which it waits. Default: threads,
    /// and the machine's.
    pub one_thread: Option<Arc<dyn Clock>>,
}

impl DataOptions {
    /// The directory of this disk; writes are acknowledged when they are durable.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self {
            disk,
            ack: Ack::default(),
            log: LogOptions::default(),
            snapshot_bytes: 256 << 20,
            piece_bytes: 64 << 20,
            one_thread: None,
        }
    }
}

impl fmt::Debug for DataOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataOptions")
            .field("disk", &self.disk.place(""))
            .field("ack", &self.ack)
            .finish_non_exhaustive()
    }
}

impl Applied {
    fn are_snapshots_due(&self) -> bool {
        self.appended_bytes > self.snapshots_at_bytes
    }
}

/// What the threads share.
pub(crate) struct Durable {
    ack: Ack,
    log: LogOptions,
    pace: Pace,
    snapshot_bytes: u64,
    piece_bytes: u64,
    /// Which pieces of snapshots are out of date. Locked inside of `store`.
    touched: Touched,
    store: Mutex<Store>,
    queue: Queue,
    help: Help,
    /// All before is applied, and durable where writes are acknowledged so.
    applied: Mutex<Applied>,
    /// Raised when snapshots may be due, or repairs.
    snapshot_signal: Signal,
    rounds: Rounds,
    pieces_written: AtomicU64,
    piece_bytes_written: AtomicU64,
    /// Pieces that the last round has left, for a pair in them is damaged.
    pieces_left: AtomicU64,
    repaired: AtomicU64,
    unrepaired: AtomicU64,
}

#[derive(Clone, Copy, Default)]
struct Applied {
    position: LogPosition,
    appended_bytes: u64,
    /// Snapshots are due when so much was appended.
    snapshots_at_bytes: u64,
}

impl Durable {
    /// Opens the directory, for this process alone, as a life of this epoch. So many bytes of requests wait
    /// for its log at most.
    pub(crate) fn open(
        options: &DataOptions,
        epoch: Epoch,
        waiting_bytes_max: u64,
    ) -> Result<Arc<Self>, StartError> {
        let store = Store::open(Arc::clone(&options.disk), epoch.0).map_err(StartError::Data)?;
        Ok(Arc::new(Self {
            ack: options.ack,
            log: options.log,
            pace: Pace::new(options.one_thread.as_ref()),
            snapshot_bytes: options.snapshot_bytes,
            piece_bytes: options.piece_bytes,
            touched: Touched::default(),
            store: Mutex::new(store),
            queue: Queue::new(waiting_bytes_max),
            help: Help::default(),
            applied: Mutex::new(Applied { snapshots_at_bytes: options.snapshot_bytes, ..Applied::default() }),
            snapshot_signal: Signal::default(),
            rounds: Rounds::default(),
            pieces_written: AtomicU64::new(0),
            piece_bytes_written: AtomicU64::new(0),
            pieces_left: AtomicU64::new(0),
            repaired: AtomicU64::new(0),
            unrepaired: AtomicU64::new(0),
        }))
    }

    /// When a file of the directory was changed last, in milliseconds since 1970: it was no earlier in the
    /// life before. Zero for a new directory.
    pub(crate) fn last_change_ms(&self) -> u64 {
        let disk = Arc::clone(self.store().disk());
        let names = disk.list().unwrap_or_default();
        // A file whose time cannot be read tells nothing.
        names.iter().filter_map(|name| disk.changed_ms(name).ok()?).max().unwrap_or(0)
    }

    /// Takes a call that writes, if it is one: it is answered later. `frame` are its bytes, `ack` is what its
    /// table says of acknowledgements.
    pub(crate) fn submit(
        &self,
        request: &Request<'_>,
        frame: &[u8],
        ack: Option<Ack>,
        call: &mut Call<'_, '_>,
    ) -> Option<Result<Executed, ServerError>> {
        // What is answered is not known yet; its room is.
        let (operations, answer_bytes) = match request {
            Request::Write { operation, entries, .. } => {
                let old_bytes = if operation.returns_value() { padded(entries.value_bytes()) } else { 0 };
                (entries.len(), entries.len() * (OUTCOME_BYTES + old_bytes))
            }
            Request::BulkLoad { entries, .. } => (entries.len(), OUTCOME_BYTES),
            Request::LoadValues { entries, .. } => (entries.len(), OUTCOME_BYTES),
            Request::LoadLong { part, .. } => (usize::from(part.is_last()), OUTCOME_BYTES),
            // Values before, as many as an answer carries.
            Request::WriteValues { operation: WriteOperation::Swap, entries, .. } => {
                (entries.len(), call.room_bytes())
            }
            Request::WriteStaged { write, .. } => {
                let returns_value = write.operation.returns_value();
                (1, if returns_value { call.room_bytes() } else { OUTCOME_BYTES })
            }
            Request::WriteValues { entries, .. } => {
                (entries.len(), entries.len() * ReplyWriter::exchanged_value_bytes(INTEGER_BYTES))
            }
            _ => return None,
        };
        if let Err(error) = self.queue.check_room(frame.len()) {
            return Some(Err(error));
        }
        let answer_words = (answer_bytes / 8).max(REFUSAL_WORDS);
        call.answer.push_words(std::iter::repeat_n(0, answer_words));
        let is_short = matches!(request, Request::Write { .. } | Request::WriteValues { .. });
        let (client, request) = (call.client, frame.to_vec());
        let waiting = WaitingCall { client, is_short, ack, request, reply: call.answer_later() };
        // The worker's step ends with `Durable::end_step`.
        self.queue.append(Due::Call(waiting));
        Some(Ok(Executed::operations(operations as u64)))
    }

    /// Has the log note an author, which is answered then.
    pub(crate) fn begin_author(&self, author: AuthorId, reply: LateReply) {
        // The worker's step ends with `Durable::end_step`.
        self.queue.append(Due::BeginAuthor(author, reply));
    }

    /// Begins a snapshot of each table, as soon as those under way are made; returns their round.
    pub(crate) fn begin_snapshots(&self) -> u64 {
        let round = self.rounds.want();
        self.snapshot_signal.raise();
        round
    }

    /// Whether the snapshots of a round are made; or why they are not.
    pub(crate) fn are_snapshots_made(&self, round: u64) -> Result<bool, ServerError> {
        self.rounds.has_ended(round).map_err(|why| ServerError::new(ErrorCode::OutOfResources, why))
    }

    /// Has damaged pairs repaired that readers have met.
    pub(crate) fn want_repairs(&self) {
        self.snapshot_signal.raise();
    }

    /// Its statistics.
    pub(crate) fn stats(&self) -> DataStats {
        let Applied { position, appended_bytes, .. } = *self.applied();
        let (disk, first_segment, pieces) = {
            let store = self.store();
            let catalogue = store.catalogue();
            (Arc::clone(store.disk()), catalogue.first_segment, catalogue.pieces().count() as u64)
        };
        // A segment is begun with its first frame.
        let end_segment = position.segment + u64::from(position.offset > 0);
        DataStats {
            acknowledges_durable: self.ack == Ack::Durable,
            log_bytes: appended_bytes,
            segments: end_segment.saturating_sub(first_segment),
            replay_bytes: log_bytes(&*disk, first_segment, position),
            waiting_bytes: self.queue.waiting_bytes() as u64,
            snapshot_rounds: self.rounds.ended(),
            pieces,
            // Relaxed: statistics.
            pieces_written: self.pieces_written.load(Ordering::Relaxed),
            piece_bytes_written: self.piece_bytes_written.load(Ordering::Relaxed),
            pieces_left: self.pieces_left.load(Ordering::Relaxed),
            repaired: self.repaired.load(Ordering::Relaxed),
            unrepaired: self.unrepaired.load(Ordering::Relaxed),
        }
    }

    /// What it says of the snapshot of a table; `None` without one.
    pub(crate) fn snapshot_stats(&self, table: TableId) -> Option<SnapshotStats> {
        let (disk, pieces) = {
            let store = self.store();
            (Arc::clone(store.disk()), store.pieces_of(table.0).to_vec())
        };
        let times = PieceTimes::of(&*disk, &pieces);
        let (oldest_ms, median_ms) = (times.map(|times| times.oldest_ms), times.map(|times| times.median_ms));
        (!pieces.is_empty()).then_some(SnapshotStats { pieces: pieces.len() as u64, oldest_ms, median_ms })
    }

    /// Ends what was begun for clients that have ended.
    pub(crate) fn forget(&self, client: ClientId) {
        self.queue.push(Due::Departed(client));
    }

    /// Wakes whatever sleeps.
    pub(crate) fn wake(&self) {
        self.queue.wake();
        self.snapshot_signal.raise();
    }

    /// Puts a table into the catalogue; the first one says for which pool all are.
    pub(crate) fn create_table(
        &self,
        id: TableId,
        layout: &TableLayout,
        place: &PoolPlace,
    ) -> Result<(), ServerError> {
        let table = CatalogueTable {
            name: layout.definition.name.clone(),
            definition: layout.to_bytes(),
            since: self.position(),
            pieces: Vec::new(),
        };
        let created = self.store().change(|catalogue| {
            catalogue.next_table = catalogue.next_table.max(id.0 + 1);
            catalogue.tables.insert(id.0, table);
            if catalogue.membership.nodes.is_empty() {
                catalogue.membership.nodes = membership::nodes_of(place);
                catalogue.membership.index = place.index.into();
            }
            catalogue.acknowledges_early |= layout.definition.ack == Some(Ack::Memory);
        });
        created.map_err(|error| refused(&error))
    }

    /// Gives tables other names in the catalogue, at one instant.
    pub(crate) fn rename_tables(&self, names: &[(TableId, &str)]) -> Result<(), ServerError> {
        let renamed = self.store().change(|catalogue| {
            for (id, name) in names {
                if let Some(table) = catalogue.tables.get_mut(&id.0) {
                    (*name).clone_into(&mut table.name);
                }
            }
        });
        renamed.map_err(|error| refused(&error))
    }

    /// The number of the next table.
    pub(crate) fn next_table(&self) -> u32 {
        self.store().catalogue().next_table
    }

    fn begin_snapshot(&self, table: u32, first_key: u64, piece_bytes: u64) -> SnapshotWriter {
        SnapshotWriter::begin(Arc::clone(self.store().disk()), table, first_key, piece_bytes)
    }

    /// Lets pieces take the place of others, as [`Store::name_pieces`] does. `store` is this one's.
    fn name_pieces(
        &self,
        store: &mut Store,
        table: u32,
        former: &[SnapshotPiece],
        pieces: &[SnapshotPiece],
    ) -> Result<bool, DurabilityError> {
        let are_named = store.name_pieces(table, former, pieces)?;
        if are_named {
            self.touched.set_pieces(table, store.pieces_of(table));
            let bytes = pieces.iter().map(|piece| piece.pair_bytes).sum();
            // Relaxed: statistics.
            self.pieces_written.fetch_add(pieces.len() as u64, Ordering::Relaxed);
            self.piece_bytes_written.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(are_named)
    }

    /// Waits until all that came before is applied and durable; returns where the log ends then.
    fn settle(&self) -> Result<LogPosition, DurabilityError> {
        self.settle_by(Due::Settle)
    }

    /// The same for a round of snapshots. What stands before that in the log may be removed then.
    fn begin_round(&self) -> Result<LogPosition, DurabilityError> {
        self.settle_by(Due::BeginRound)
    }

    fn settle_by(
        &self,
        due: impl FnOnce(SyncSender<LogPosition>) -> Due,
    ) -> Result<LogPosition, DurabilityError> {
        let (settled, position) = sync_channel(1);
        self.queue.push(due(settled));
        self.pace.answer(&position, SETTLE_MAX).ok_or_else(|| DurabilityError::Poisoned {
            why: format!("the log did not follow for {SETTLE_MAX:?}"),
        })
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        // A change of it is complete, or a failure that it remembers.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn position(&self) -> LogPosition {
        self.applied().position
    }

    fn appended_bytes(&self) -> u64 {
        self.applied().appended_bytes
    }

    fn are_snapshots_due(&self) -> bool {
        self.rounds.is_one_wanted() || self.applied().are_snapshots_due()
    }

    /// The next snapshots are due when the log has grown from `appended_bytes` by more than these had bytes.
    fn set_next_snapshots(&self, appended_bytes: u64, written_bytes: u64) {
        self.applied().snapshots_at_bytes = appended_bytes + written_bytes.max(self.snapshot_bytes);
    }

    fn set_position(&self, position: LogPosition, appended_bytes: u64) {
        let mut applied = self.applied();
        (applied.position, applied.appended_bytes) = (position, appended_bytes);
        let is_due = applied.are_snapshots_due();
        drop(applied);
        if is_due {
            self.snapshot_signal.raise();
        }
    }

    fn applied(&self) -> MutexGuard<'_, Applied> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The refusal of a table of an engine that has no log.
pub(crate) fn no_log(engine: &str) -> ServerError {
    let text = format!(
        "engine {engine:?} has no log: its clients write the memory of a node themselves, which ends with the node. \
         This node keeps its tables with --data: make the table with --engine xstore, or xstore-d for a pool, or start \
         its nodes without --data"
    );
    ServerError::new(ErrorCode::BadRequest, text)
}

fn refused(error: &DurabilityError) -> ServerError {
    ServerError::new(ErrorCode::OutOfResources, error.to_string())
}

const _: () = assert!(HEADER_BYTES + 8 * REFUSAL_WORDS >= 512);

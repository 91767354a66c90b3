//! Recovery: what a directory of data says of its tables.
//!
//! Protocol:
//! 1. For each table of the catalogue: the pairs of its snapshot's pieces, if it has one.
//! 2. The log, from the oldest segment that some piece needs: each record behind the position of its key's
//!    piece, in the order in which they were appended. Of two records of a key the one of the greater
//!    version counts, so pairs that the snapshot has already are no matter. Besides, all [notes](Note) of
//!    the frames, in their order: they say nothing of records.
//! 3. What does not count at the log's end is cut. A crash before that leaves the same to do.
//!
//! One thread walks along the files, and another takes in what was read, a few batches behind. Frames of
//! pieces are read by [more of them](crate::piece_readers), as many as the disk wants. The tables see the
//! same in the same order as they would from one. Where the disk wants a single reader, the thread that asks
//! does all of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use crate::batch::SortRoom;
use crate::disk::SECTOR_BYTES;
use crate::error::disk_error;
use crate::piece_readers::{FrameToCome, PieceReaders};
use crate::reader::{LogVisitor, read_log_into};
use crate::snapshot::{PieceChain, PieceFile};
use crate::{
    Catalogue, CatalogueTable, DurabilityError, LogEnd, LogPosition, NoteBatch, Record, RecordBatch,
    SnapshotPiece, Store,
};

/// Frames of pieces that were read and not taken in yet, at most.
const WAITING_MAX: usize = 8;
/// Batches of the log that were read and not taken in yet. They are large: one is taken in, one is filled.
const LOG_WAITING_MAX: usize = 0;

/// Bytes of notes that are told at once, or a little more.
const NOTES_BYTES: usize = 16 << 20;

/// What is told of the tables.
pub trait Recovering: Send {
    /// There is this table. What follows may name it, or another that was announced.
    ///
    /// # Errors
    /// Ends the recovery.
    fn table(&mut self, number: u32, table: &CatalogueTable) -> Result<(), DurabilityError>;

    /// Pairs of the snapshot of the table announced last, in the order of the keys.
    ///
    /// # Errors
    /// Ends the recovery.
    fn pairs(&mut self, batch: &RecordBatch) -> Result<(), DurabilityError>;

    /// All pairs of the snapshot of the table announced last were told.
    ///
    /// # Errors
    /// Ends the recovery.
    fn end_of_pairs(&mut self) -> Result<(), DurabilityError>;

    /// Records of the log, one at least: of each key the newest of those that were read together, in the
    /// order of tables and keys, removals first.
    ///
    /// # Errors
    /// Ends the recovery.
    fn records(&mut self, batch: &RecordBatch) -> Result<(), DurabilityError>;

    /// Notes of the log, in their order.
    fn notes(&mut self, batch: &NoteBatch);
}

/// What else was found.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Where the log ends.
    pub end: LogEnd,
    /// Records of the log that count.
    pub records: u64,
    /// The greatest version that each table may have given: no smaller one may be given again.
    pub version_max: BTreeMap<u32, u64>,
}

/// One thing that is told.
enum Told {
    Table(u32, CatalogueTable),
    Piece(Arc<PieceFile>),
    /// The next frame of the piece told last.
    Frame(FrameToCome),
    EndOfPiece,
    EndOfPairs,
    /// The log, whose batches of records are given back to be filled again.
    Log(Receiver<LogPart>, Sender<RecordBatch>),
}

/// Tells `into` all that the directory says: from a thread of its own, unless the disk wants one reader.
/// Batches of the log have up to `batch_bytes_max`, and two exist at once, besides half as much to sort them.
/// The larger they are, the fewer records are told, for of each key one of a batch counts.
///
/// # Errors
/// [`DurabilityError`]; what `into` refuses.
pub fn recover(
    store: &Store,
    batch_bytes_max: usize,
    into: &mut dyn Recovering,
) -> Result<Recovered, DurabilityError> {
    let in_turns = if store.disk().readers() < 2 { by_one_thread } else { by_threads };
    let (of_pairs, mut recovered) = in_turns(store, batch_bytes_max, into)?;
    for (table, version) in of_pairs {
        let known = recovered.version_max.entry(table).or_insert(0);
        *known = version.max(*known);
    }
    store.cut(&recovered.end)?;
    Ok(recovered)
}

/// What was found, and the greatest version of each table's pairs in its pieces.
type Found = (BTreeMap<u32, u64>, Recovered);

fn by_one_thread(
    store: &Store,
    batch_bytes_max: usize,
    into: &mut dyn Recovering,
) -> Result<Found, DurabilityError> {
    let taking = RefCell::new(Taking::new(into));
    let (taker, readers) = (Taker::Here(&taking), PieceReaders::none());
    let read = Reading { store, batch_bytes_max, taker, readers }.read()?;
    Ok((taking.into_inner().version_max, read))
}

fn by_threads(
    store: &Store,
    batch_bytes_max: usize,
    into: &mut dyn Recovering,
) -> Result<Found, DurabilityError> {
    let (sender, receiver) = sync_channel(WAITING_MAX);
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("recovery".into());
        let taking = Taking::new(into);
        let taking = thread.spawn_scoped(scope, move || taking.take_all(&receiver));
        let taking = taking.map_err(disk_error("starting a thread for", store.disk().place("")))?;
        let readers = PieceReaders::start(scope, &**store.disk());
        let taker = Taker::Thread(sender);
        let read = readers.and_then(|readers| Reading { store, batch_bytes_max, taker, readers }.read());
        let joined = taking.join().unwrap_or_else(|panic| resume_unwind(panic));
        joined.and_then(|of_pairs| Ok((of_pairs, read?)))
    })
}

/// Who takes in what was read.
enum Taker<'t, 'r> {
    /// Another thread.
    Thread(SyncSender<Told>),
    /// This one.
    Here(&'t RefCell<Taking<'r>>),
}

/// Who takes in the log.
enum LogTaker<'t, 'r> {
    Thread(SyncSender<LogPart>),
    Here(&'t RefCell<Taking<'r>>),
}

impl LogTaker<'_, '_> {
    /// Tells a part. Returns the batch of records that was taken in, if it was.
    fn tell(&self, part: LogPart) -> Result<Option<RecordBatch>, DurabilityError> {
        match self {
            Self::Thread(parts) => parts.send(part).map(|()| None).map_err(|_| nobody_takes()),
            Self::Here(taking) => taking.borrow_mut().part(part).map(Some),
        }
    }
}

/// What takes in what was read.
struct Taking<'r> {
    into: &'r mut dyn Recovering,
    table: u32,
    /// The piece told last, and how much of it was taken in.
    piece: Option<(Arc<PieceFile>, PieceChain)>,
    /// The greatest version of the pairs of each table.
    version_max: BTreeMap<u32, u64>,
    /// A bug is injected for the thread that recovers, which is not this one.
    #[cfg(injected)]
    takes_any_order: bool,
}

impl<'r> Taking<'r> {
    fn new(into: &'r mut dyn Recovering) -> Self {
        Self {
            into,
            table: 0,
            piece: None,
            version_max: BTreeMap::new(),
            #[cfg(injected)]
            takes_any_order: crate::injected::FRAMES_NOT_CHAINED.is_injected(),
        }
    }

    /// Takes in what is read, until the end or until something is refused. Returns the greatest version of
    /// the pairs of each table.
    fn take_all(mut self, told: &Receiver<Told>) -> Result<BTreeMap<u32, u64>, DurabilityError> {
        told.iter().try_for_each(|told| self.take_in(told))?;
        Ok(self.version_max)
    }

    fn take_in(&mut self, told: Told) -> Result<(), DurabilityError> {
        match told {
            Told::Table(number, table) => {
                self.table = number;
                self.into.table(number, &table)
            }
            Told::Piece(file) => {
                self.piece = Some((file, PieceChain::default()));
                Ok(())
            }
            Told::Frame(frame) => self.frame(&frame),
            Told::EndOfPiece => {
                let (file, chain) = self.piece.take().expect("a piece was told");
                file.check_end(&chain)
            }
            Told::EndOfPairs => self.into.end_of_pairs(),
            Told::Log(parts, taken) => parts.iter().try_for_each(|part| {
                // The reader may be at the end.
                _ = taken.send(self.part(part)?);
                Ok(())
            }),
        }
    }

    /// Takes in a part of the log, and gives back the batch of records.
    fn part(&mut self, part: LogPart) -> Result<RecordBatch, DurabilityError> {
        if !part.records.is_empty() {
            self.into.records(&part.records)?;
        }
        self.into.notes(&part.notes);
        Ok(part.records)
    }

    fn frame(&mut self, frame: &FrameToCome) -> Result<(), DurabilityError> {
        let (file, chain) = self.piece.as_mut().expect("a piece was told");
        let frame = frame.recv().expect("readers answer, or panic")?;
        let checked = file.check(&frame.head, chain);
        #[cfg(injected)]
        let checked = if self.takes_any_order { Ok(()) } else { checked };
        checked?;
        self.into.pairs(&frame.records?)?;
        chain.go_on(&frame.head);
        let known = self.version_max.entry(self.table).or_insert(0);
        *known = frame.version_max.max(*known);
        Ok(())
    }
}

/// A directory that is read.
struct Reading<'s, 't, 'r> {
    store: &'s Store,
    batch_bytes_max: usize,
    taker: Taker<'t, 'r>,
    readers: PieceReaders,
}

/// A part of the log.
struct LogPart {
    records: RecordBatch,
    notes: NoteBatch,
}

/// A log on its way to the tables.
struct LogTeller<'t, 'r> {
    parts: LogTaker<'t, 'r>,
    /// Those that another thread has taken in.
    taken: Option<Receiver<RecordBatch>>,
    /// What was read last, and not told.
    batch: RecordBatch,
    batch_bytes_max: usize,
    notes: NoteBatch,
    /// Room to sort a batch.
    sort_room: SortRoom,
    /// Room for segments, of batches that were taken in.
    rooms: Vec<Vec<u8>>,
}

/// What stands in a log, by what the catalogue says of it.
struct LogReading<'c, 't, 'r> {
    catalogue: &'c Catalogue,
    log: LogTeller<'t, 'r>,
    /// Records that count.
    records: u64,
    /// The greatest version of each table.
    version_max: BTreeMap<u32, u64>,
}

impl<'t, 'r> Reading<'_, 't, 'r> {
    fn read(self) -> Result<Recovered, DurabilityError> {
        let catalogue = self.store.catalogue();
        let mut version_max = BTreeMap::new();
        for (number, table) in &catalogue.tables {
            self.tell(Told::Table(*number, table.clone()))?;
            for piece in &table.pieces {
                self.read_piece(piece, *number)?;
            }
            if let Some(greatest) = table.pieces.iter().map(|piece| piece.version_max).max() {
                version_max.insert(*number, greatest);
            }
            self.tell(Told::EndOfPairs)?;
        }
        let mut reading = LogReading { catalogue, log: self.begin_log()?, records: 0, version_max };
        let end = read_log_into(&**self.store.disk(), catalogue.first_segment, &mut reading)?;
        catalogue.check_end(&**self.store.disk(), &end)?;
        let LogReading { mut log, records, version_max, .. } = reading;
        log.flush()?;
        Ok(Recovered { end, records, version_max })
    }

    /// Has the frames of a piece read. What its headers say is believed until the taker has checked it.
    fn read_piece(&self, piece: &SnapshotPiece, table: u32) -> Result<(), DurabilityError> {
        let file = Arc::new(PieceFile::open(&**self.store.disk(), piece, table)?);
        self.tell(Told::Piece(Arc::clone(&file)))?;
        let mut at = 0;
        for _ in 0..piece.frames {
            let frame_bytes = file.frame_bytes(at)?;
            self.tell(Told::Frame(self.readers.read(&file, at, frame_bytes)?))?;
            at += frame_bytes.next_multiple_of(SECTOR_BYTES as u64);
        }
        self.tell(Told::EndOfPiece)
    }

    fn begin_log(&self) -> Result<LogTeller<'t, 'r>, DurabilityError> {
        let (parts, taken) = match &self.taker {
            Taker::Here(taking) => (LogTaker::Here(taking), None),
            Taker::Thread(_) => {
                let (parts, told) = sync_channel(LOG_WAITING_MAX);
                let (give_back, taken) = channel();
                self.tell(Told::Log(told, give_back))?;
                (LogTaker::Thread(parts), Some(taken))
            }
        };
        let batch_bytes_max = self.batch_bytes_max;
        let (batch, notes) = (RecordBatch::default(), NoteBatch::default());
        let (sort_room, rooms) = (SortRoom::default(), Vec::new());
        Ok(LogTeller { parts, taken, batch, batch_bytes_max, notes, sort_room, rooms })
    }

    fn tell(&self, told: Told) -> Result<(), DurabilityError> {
        match &self.taker {
            Taker::Thread(sender) => sender.send(told).map_err(|_| nobody_takes()),
            Taker::Here(taking) => taking.borrow_mut().take_in(told),
        }
    }
}

impl LogVisitor for LogReading<'_, '_, '_> {
    fn room(&mut self) -> Vec<u8> {
        self.log.rooms.pop().unwrap_or_default()
    }

    #[inline]
    fn record(
        &mut self,
        position: LogPosition,
        bytes: &Arc<Vec<u8>>,
        record: Record<'_>,
    ) -> Result<(), DurabilityError> {
        let Some(table) = self.catalogue.tables.get(&record.table) else { return Ok(()) };
        if !table.needs(position, record.key) {
            return Ok(());
        }
        self.records += 1;
        #[cfg(injected)]
        if crate::injected::VERSION_REUSED.is_injected() {
            return self.log.push(bytes, record);
        }
        let greatest = self.version_max.entry(record.table).or_insert(0);
        *greatest = record.version.max(*greatest);
        self.log.push(bytes, record)
    }

    fn notes(&mut self, incarnation: u64, notes: &[u8]) {
        if incarnation >= self.catalogue.authors_since {
            self.log.notes.extend(notes);
        }
        if self.log.notes.bytes() >= NOTES_BYTES {
            // If nobody hears it, what follows is told nobody, either.
            _ = self.log.flush();
        }
    }
}

impl LogTeller<'_, '_> {
    #[inline]
    fn push(&mut self, bytes: &Arc<Vec<u8>>, record: Record<'_>) -> Result<(), DurabilityError> {
        if self.batch.is_full_for(bytes, self.batch_bytes_max) {
            self.flush()?;
        }
        self.batch.push(bytes, record);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DurabilityError> {
        if self.batch.is_empty() && self.notes.bytes() == 0 {
            return Ok(());
        }
        self.batch.keep_newest(&mut self.sort_room);
        let (records, notes) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.notes));
        let taken_here = self.parts.tell(LogPart { records, notes })?;
        let taken = taken_here.or_else(|| self.taken.as_ref()?.try_recv().ok());
        self.batch = taken.unwrap_or_default();
        self.batch.clear(|room| self.rooms.push(room));
        Ok(())
    }
}

/// Nobody hears this error: what ended the taking in is told in its place.
fn nobody_takes() -> DurabilityError {
    DurabilityError::Poisoned { why: "recovery has ended".into() }
}

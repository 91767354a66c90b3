//! A program over a directory of data, beside what a map knows of it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicUsize, Ordering};
use farsight_durability::disk::{Disk, SimulatedDisk};
use farsight_durability::{
    CatalogueTable, DurabilityError, FrameWriter, Log, LogOptions, LogPosition, Note, NoteBatch, NotedReply,
    RecordBatch, Recovered, RecoveredRecord, Recovering, SnapshotPiece, SnapshotWriter, Store, Who, recover,
};
use farsight_layout::value_block::RecordKind;

use super::BATCH_BYTES_MAX;

/// Short segments, so that a program has several.
const OPTIONS: LogOptions = LogOptions { segment_bytes: 4096 };
const STEPS: usize = 24;
const KEYS: u64 = 12;
/// Who writes all groups.
const AUTHOR: u64 = 77;

/// What a call is answered: words in a row, more or fewer.
fn reply_of(sequence: u64) -> Vec<u8> {
    (sequence..=sequence + sequence % 5).flat_map(u64::to_le_bytes).collect()
}

/// When a program calls a group acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Durability {
    /// Each is durable first.
    EachGroup,
    /// Those before a sync, which some steps are.
    SomeGroups,
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Done,
    Failed,
}

/// A program, by its seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    seed: u64,
    durability: Durability,
}

/// Pairs by key, with their versions.
type Pairs = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;

/// What the tables hold, which versions they gave, and how many groups were noted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tables {
    pairs: BTreeMap<u32, Pairs>,
    versions: BTreeMap<u32, u64>,
    noted: u64,
}

/// What a program did.
pub(crate) struct Run {
    pub(crate) outcome: Outcome,
    /// States of which recovery may find any: the last that was acknowledged, and those after it.
    possible: Vec<Tables>,
}

/// A seed that is fresh in each run, printed, and given back by `FARSIGHT_SEED`.
pub(crate) fn seed(what: &str) -> u64 {
    let given = std::env::var("FARSIGHT_SEED").ok().and_then(|text| text.parse().ok());
    let fresh = || std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos() as u64;
    let seed = given.unwrap_or_else(fresh);
    println!("{what}: FARSIGHT_SEED={seed}");
    seed
}

impl Program {
    pub(crate) fn new(seed: u64, durability: Durability) -> Self {
        Self { seed, durability }
    }

    /// Runs it on a disk, until something fails that is more than a full disk.
    pub(crate) fn run(&self, disk: &SimulatedDisk) -> Run {
        self.run_watched(&(Arc::new(disk.clone()) as Arc<dyn Disk>), &History::default())
    }

    /// [`Program::run`], whose states others look at meanwhile.
    pub(crate) fn run_watched(&self, disk: &Arc<dyn Disk>, history: &History) -> Run {
        let mut running = Running {
            random: SplitMix64::new(self.seed),
            durability: self.durability,
            tables: Tables::default(),
            possible: Vec::new(),
            history,
            next_table: 0,
            touched: BTreeMap::new(),
        };
        running.note(Tables::default());
        let outcome = match running.lives(disk) {
            Ok(()) => Outcome::Done,
            Err(_) => Outcome::Failed,
        };
        Run { outcome, possible: running.possible }
    }
}

/// The states of a program, in their order.
#[derive(Default)]
pub(crate) struct History {
    states: Mutex<Vec<Tables>>,
    /// Which of them was acknowledged last.
    acknowledged: Mutex<usize>,
}

impl History {
    /// Which state was acknowledged last.
    pub(crate) fn acknowledged(&self) -> usize {
        *self.acknowledged.lock().expect("no panic")
    }

    /// Recovers `disk`, which was restored, and compares. It knows no authors.
    ///
    /// # Panics
    /// If it finds anything else than one of the states from `first` on.
    pub(crate) fn check(&self, disk: &SimulatedDisk, first: usize, what: &str) {
        let found = recovered(disk, what).0;
        let states = self.states.lock().expect("no panic");
        let is_there = states[first..].iter().any(|state| state.pairs == found.pairs);
        assert!(is_there, "{what}: found {found:#?}, possible {:#?}", &states[first..]);
        assert_eq!(found.noted, 0, "{what}: notes of the life that was backed up");
    }
}

/// Recoveries so far.
static RECOVERIES: AtomicUsize = AtomicUsize::new(0);

/// Recovers `disk`: by one thread and by several in turns.
fn recovered(disk: &SimulatedDisk, what: &str) -> (Tables, Recovered) {
    // Relaxed: it counts.
    disk.set_readers(1 + RECOVERIES.fetch_add(1, Ordering::Relaxed) % 2);
    let store = Store::open(Arc::new(disk.clone()), 1).unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut found = Tables::default();
    let recovered =
        recover(&store, BATCH_BYTES_MAX, &mut found).unwrap_or_else(|error| panic!("{what}: {error}"));
    (found, recovered)
}

/// Starts on `disk`, which may fail.
pub(crate) fn try_to_start(disk: &SimulatedDisk) -> Result<Recovered, DurabilityError> {
    let store = Store::open(Arc::new(disk.clone()), 1)?;
    recover(&store, BATCH_BYTES_MAX, &mut Tables::default())
}

impl Run {
    /// Starts on `disk`, whose machine goes on, appends to the log, and lets the machine crash: what the
    /// start has found is there.
    ///
    /// # Panics
    /// If it finds anything else.
    pub(crate) fn check_start(&self, disk: &SimulatedDisk, seed: u64, what: &str) {
        let store = Store::open(Arc::new(disk.clone()), 1).unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut found = Tables::default();
        let end = recover(&store, BATCH_BYTES_MAX, &mut found)
            .unwrap_or_else(|error| panic!("{what}: {error}"))
            .end;
        let is_found = |state: &Tables| state.pairs == found.pairs && state.noted == found.noted;
        assert!(self.possible.iter().any(is_found), "{what}: found {found:#?}");
        let mut log = Log::new(Arc::clone(store.disk()), OPTIONS, store.catalogue().incarnation, &end);
        let mut frame = FrameWriter::default();
        let reply = reply_of(found.noted);
        let reply = NotedReply::of(&reply);
        frame.push_note(Note::Call { author: AUTHOR, sequence: found.noted, unanswered: 1, reply });
        log.append(&mut frame).and_then(|()| log.sync()).unwrap_or_else(|error| panic!("{what}: {error}"));
        let after = recovered(&disk.crash(seed), what).0;
        assert_eq!(after.pairs, found.pairs, "{what}: what a start has found is lost");
    }

    /// Recovers `disk`, and compares.
    ///
    /// # Panics
    /// If it finds anything else than what may be there.
    pub(crate) fn check(&self, disk: &SimulatedDisk, what: &str) {
        let (found, recovered) = recovered(disk, what);
        let is_found = |state: &&Tables| state.pairs == found.pairs && state.noted == found.noted;
        let state = self.possible.iter().find(is_found);
        let possible = &self.possible;
        let state = state.unwrap_or_else(|| panic!("{what}: found {found:#?}, possible {possible:#?}"));
        for (table, version) in &state.versions {
            let greatest = recovered.version_max.get(table).copied().unwrap_or(0);
            assert!(greatest >= *version, "{what}: table {table} gave {version}, recovery knows {greatest}");
        }
    }
}

struct Running<'h> {
    random: SplitMix64,
    durability: Durability,
    tables: Tables,
    possible: Vec<Tables>,
    history: &'h History,
    next_table: u32,
    /// Keys that were written since the pieces that they are in.
    touched: BTreeMap<u32, BTreeSet<u64>>,
}

impl Running<'_> {
    /// Two lives of a server, one after the other.
    fn lives(&mut self, disk: &Arc<dyn Disk>) -> Result<(), DurabilityError> {
        for _ in 0..2 {
            let mut store = Store::open(Arc::clone(disk), 1)?;
            let mut found = Tables::default();
            let Recovered { end, version_max, .. } = recover(&store, BATCH_BYTES_MAX, &mut found)?;
            let told = (&found.pairs, found.noted);
            let own = (&self.tables.pairs, self.tables.noted);
            assert_eq!(told, own, "a life that ended well has lost nothing");
            for (table, version) in version_max {
                let own = self.tables.versions.entry(table).or_insert(0);
                *own = (*own).max(version);
            }
            let mut log = Log::new(Arc::clone(store.disk()), OPTIONS, store.catalogue().incarnation, &end);
            for _ in 0..STEPS {
                match self.step(&mut store, &mut log) {
                    Err(DurabilityError::Full { .. }) | Ok(()) => {}
                    Err(error) => return Err(error),
                }
            }
            log.sync()?;
            self.acknowledge();
        }
        Ok(())
    }

    fn step(&mut self, store: &mut Store, log: &mut Log) -> Result<(), DurabilityError> {
        if self.random.below(4) == 0 {
            // One that cannot be made is no matter.
            log.spares().help(Duration::ZERO, || false);
        }
        match self.random.below(10) {
            0 => self.create(store, log),
            1 if self.random.below(3) == 0 => self.drop_table(store),
            2 => self.snapshots(store, log),
            _ => self.group(log),
        }
    }

    fn create(&mut self, store: &mut Store, log: &Log) -> Result<(), DurabilityError> {
        let number = self.next_table;
        self.next_table += 1;
        let table = CatalogueTable {
            name: format!("table-{number}"),
            definition: number.to_le_bytes().to_vec(),
            since: log.position(),
            pieces: Vec::new(),
        };
        let after = |tables: &mut Tables| _ = tables.pairs.insert(number, Pairs::new());
        self.catalogue_change(after, || {
            store.change(|catalogue| {
                catalogue.next_table = number + 1;
                catalogue.tables.insert(number, table);
            })
        })
    }

    fn drop_table(&mut self, store: &mut Store) -> Result<(), DurabilityError> {
        let Some(number) = self.some_table() else { return Ok(()) };
        let after = |tables: &mut Tables| {
            tables.pairs.remove(&number);
            tables.versions.remove(&number);
        };
        self.catalogue_change(after, || store.drop_tables(&[number], |_| ()))
    }

    /// A change of the catalogue is durable when it returns, whatever is of the groups before it.
    fn catalogue_change(
        &mut self,
        after: impl Fn(&mut Tables),
        change: impl FnOnce() -> Result<(), DurabilityError>,
    ) -> Result<(), DurabilityError> {
        let former = self.possible.clone();
        let changed = former.iter().cloned().map(|mut tables| {
            after(&mut tables);
            tables
        });
        let changed: Vec<Tables> = changed.collect();
        changed.iter().cloned().for_each(|state| self.note(state));
        match change() {
            Ok(()) => self.possible = changed,
            Err(error) => {
                if matches!(error, DurabilityError::Full { .. }) {
                    self.possible = former;
                }
                return Err(error);
            }
        }
        after(&mut self.tables);
        Ok(())
    }

    fn group(&mut self, log: &mut Log) -> Result<(), DurabilityError> {
        let mut frame = FrameWriter::default();
        let mut after = self.tables.clone();
        for _ in 0..=self.random.below(6) {
            let Some(table) = self.some_table() else { return Ok(()) };
            let (version, kind, key, value) = self.write(&mut after, table);
            frame.push(table, kind, version, &key, &value).expect("short");
        }
        after.noted += 1;
        let (sequence, reply) = (after.noted, reply_of(after.noted));
        let reply = NotedReply::of(&reply);
        frame.push_note(Note::Call { author: AUTHOR, sequence, unanswered: 1, reply });
        let durability = self.durability;
        self.note(after.clone());
        let appended = log.append(&mut frame);
        if let Err(DurabilityError::Full { .. }) = appended {
            self.possible.pop();
        }
        appended?;
        if durability == Durability::EachGroup || self.random.below(4) == 0 {
            log.sync()?;
            self.tables = after;
            self.acknowledge();
        } else {
            self.tables = after;
            if self.random.below(3) == 0 {
                // Others are appended before it ends.
                log.begin_sync(Who::Busy)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, after: &mut Tables, table: u32) -> (u64, RecordKind, Vec<u8>, Vec<u8>) {
        let version = after.versions.entry(table).or_insert(0);
        *version += 1;
        let version = *version;
        let key = self.random.below(KEYS);
        // Also by a group that fails: no more is written than must be.
        self.touched.entry(table).or_default().insert(key);
        let key = key.to_le_bytes().to_vec();
        let pairs = after.pairs.get_mut(&table).expect("a table of this state");
        if self.random.below(3) == 0 {
            pairs.remove(&key);
            return (version, RecordKind::Removal, key, Vec::new());
        }
        let value = vec![version as u8; self.random.below(90) as usize];
        pairs.insert(key.clone(), (version, value.clone()));
        (version, RecordKind::Pair, key, value)
    }

    /// A round of snapshots, with groups in between, and the removal of what they cover. Pieces of which no
    /// key was written stay, and so do some others, at their positions.
    fn snapshots(&mut self, store: &mut Store, log: &mut Log) -> Result<(), DurabilityError> {
        let position = log.position();
        self.note_anew(log)?;
        let mut untouched = Vec::new();
        for number in self.tables.pairs.keys().copied().collect::<Vec<_>>() {
            let pieces = store.pieces_of(number).to_vec();
            if pieces.is_empty() {
                self.touched.insert(number, BTreeSet::new());
                self.piece(store, log, (number, position), &[], 0..u64::MAX)?;
                continue;
            }
            for (index, piece) in pieces.iter().enumerate() {
                let end = pieces.get(index + 1).map_or(u64::MAX, |next| next.first_key);
                let range = piece.first_key..end;
                let touched = self.touched.entry(number).or_default();
                if touched.range(range.clone()).next().is_none() {
                    untouched.push((number, *piece));
                } else if self.random.below(4) > 0 {
                    let touched = self.touched.entry(number).or_default();
                    let before: BTreeSet<u64> = touched.range(range.clone()).copied().collect();
                    touched.retain(|key| !before.contains(key));
                    let written = self.piece(store, log, (number, position), &[*piece], range);
                    if written.is_err() {
                        self.touched.entry(number).or_default().extend(before);
                    }
                    written?;
                }
            }
        }
        // Groups have come between: what is untouched since the round began is so up to its position.
        store.advance_pieces(position, &untouched)?;
        store.remove_segments(position)?;
        Ok(())
    }

    /// Notes all again, so that segments may be removed that have the notes of groups.
    fn note_anew(&mut self, log: &mut Log) -> Result<(), DurabilityError> {
        let (sequence, reply) = (self.tables.noted, reply_of(self.tables.noted));
        let mut frame = FrameWriter::default();
        frame.push_note(Note::AllForgotten);
        frame.push_note(Note::Author { author: AUTHOR, first_unanswered: sequence });
        let reply = NotedReply::of(&reply);
        frame.push_note(Note::Call { author: AUTHOR, sequence, unanswered: 1, reply });
        log.append(&mut frame)?;
        log.sync()?;
        self.acknowledge();
        Ok(())
    }

    /// Writes the pieces of a range of keys anew.
    fn piece(
        &mut self,
        store: &mut Store,
        log: &mut Log,
        (number, position): (u32, LogPosition),
        former: &[SnapshotPiece],
        range: Range<u64>,
    ) -> Result<(), DurabilityError> {
        let disk = Arc::clone(store.disk());
        let piece_bytes = 150 + self.random.below(300);
        let mut writer = SnapshotWriter::begin(disk, number, range.start, piece_bytes);
        for key in (0..KEYS).filter(|key| range.contains(key)) {
            let pairs = self.tables.pairs.get(&number);
            if let Some((version, value)) = pairs.and_then(|pairs| pairs.get(&key.to_le_bytes()[..])) {
                writer.push(|| store.take_snapshot_number(), *version, key, value)?;
            }
            if self.random.below(8) == 0 {
                self.group(log)?;
            }
        }
        // Pairs that were written between may be in the files: they must be durable first.
        log.sync()?;
        self.acknowledge();
        let version_max = self.tables.versions.get(&number).copied().unwrap_or(0);
        let pieces = writer.finish(|| store.take_snapshot_number(), position, version_max)?;
        assert!(store.name_pieces(number, former, &pieces)?, "nobody else changes them");
        Ok(())
    }

    /// From now on recovery may find this state.
    fn note(&mut self, state: Tables) {
        self.history.states.lock().expect("no panic").push(state.clone());
        self.possible.push(state);
    }

    fn acknowledge(&mut self) {
        self.possible = vec![self.tables.clone()];
        *self.history.acknowledged.lock().expect("no panic") =
            self.history.states.lock().expect("no panic").len() - 1;
    }

    fn some_table(&mut self) -> Option<u32> {
        let tables: Vec<u32> = self.tables.pairs.keys().copied().collect();
        let at = self.random.below(tables.len().max(1) as u64);
        tables.get(at as usize).copied()
    }
}

impl Recovering for Tables {
    fn table(&mut self, number: u32, table: &CatalogueTable) -> Result<(), DurabilityError> {
        assert_eq!(table.definition, number.to_le_bytes());
        assert!(table.since <= table.needs_log_from() || table.since == LogPosition::default());
        self.pairs.insert(number, Pairs::new());
        Ok(())
    }

    fn pairs(&mut self, batch: &RecordBatch) -> Result<(), DurabilityError> {
        self.records(batch)
    }

    fn end_of_pairs(&mut self) -> Result<(), DurabilityError> {
        Ok(())
    }

    fn records(&mut self, batch: &RecordBatch) -> Result<(), DurabilityError> {
        for RecoveredRecord { table, version, key, value } in batch.iter() {
            let pairs = self.pairs.get_mut(&table).expect("announced");
            if pairs.get(key).is_some_and(|(newest, _)| *newest >= version) {
                continue;
            }
            match value {
                None => _ = pairs.remove(key),
                Some(value) => _ = pairs.insert(key.to_vec(), (version, value.to_vec())),
            }
        }
        Ok(())
    }

    fn notes(&mut self, batch: &NoteBatch) {
        for note in batch.iter() {
            match note {
                Note::AllForgotten => self.noted = 0,
                Note::Author { author, .. } => assert_eq!(author, AUTHOR),
                Note::Call { author, sequence, reply, .. } => {
                    assert_eq!((author, reply.to_vec()), (AUTHOR, reply_of(sequence)));
                    self.noted = sequence;
                }
            }
        }
    }
}

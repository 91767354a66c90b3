//! Pieces of one table whose positions differ.

use std::collections::BTreeMap;
use std::sync::Arc;

use farsight_durability::disk::{Disk, SimulatedDisk};
use farsight_durability::{
    CatalogueTable, DurabilityError, FrameWriter, Log, LogOptions, LogPosition, NoteBatch, RecordBatch,
    Recovering, SnapshotPiece, SnapshotWriter, Store, recover,
};
use farsight_layout::value_block::RecordKind;

use super::BATCH_BYTES_MAX;

const TABLE: u32 = 0;
const KEYS: u64 = 12;
/// Short segments, and pieces of a few pairs.
const OPTIONS: LogOptions = LogOptions { segment_bytes: 4096 };
const PIECE_BYTES: u64 = 60;

/// The newest version of each key.
#[derive(Default)]
struct Newest(BTreeMap<Vec<u8>, u64>);

impl Recovering for Newest {
    fn table(&mut self, _: u32, _: &CatalogueTable) -> Result<(), DurabilityError> {
        Ok(())
    }

    fn pairs(&mut self, batch: &RecordBatch) -> Result<(), DurabilityError> {
        self.records(batch)
    }

    fn end_of_pairs(&mut self) -> Result<(), DurabilityError> {
        Ok(())
    }

    fn records(&mut self, batch: &RecordBatch) -> Result<(), DurabilityError> {
        for record in batch.iter() {
            let newest = self.0.entry(record.key.to_vec()).or_default();
            *newest = record.version.max(*newest);
        }
        Ok(())
    }

    fn notes(&mut self, batch: &NoteBatch) {
        assert_eq!(batch.iter().next(), None, "there are none");
    }
}

/// A table in a directory of data, and the version that its next write gets.
struct Directory {
    store: Store,
    log: Log,
    version: u64,
}

impl Directory {
    fn new(disk: Arc<dyn Disk>) -> Self {
        let mut store = Store::open(disk, 1).expect("a directory");
        let end = recover(&store, BATCH_BYTES_MAX, &mut Newest::default()).expect("an empty one").end;
        let log = Log::new(Arc::clone(store.disk()), OPTIONS, store.catalogue().incarnation, &end);
        let (name, definition, pieces) = ("t".to_owned(), Vec::new(), Vec::new());
        let table = CatalogueTable { name, definition, since: log.position(), pieces };
        let created = store.change(|catalogue| _ = catalogue.tables.insert(TABLE, table));
        created.expect("a table");
        Self { store, log, version: 0 }
    }

    /// Writes a key, and returns its version.
    fn write(&mut self, key: u64) -> u64 {
        self.version += 1;
        let mut frame = FrameWriter::default();
        let pushed = frame.push(TABLE, RecordKind::Pair, self.version, &key.to_le_bytes(), &[1; 8]);
        pushed.expect("a short pair");
        self.log.append(&mut frame).and_then(|()| self.log.sync()).expect("it is durable");
        self.version
    }

    /// Writes pieces anew, with all keys from `first` on.
    fn write_pieces(&mut self, first: u64, former: &[SnapshotPiece]) {
        let mut writer = SnapshotWriter::begin(Arc::clone(self.store.disk()), TABLE, first, PIECE_BYTES);
        for key in first..KEYS {
            let take_number = || self.store.take_snapshot_number();
            writer.push(take_number, self.version, key, &[1; 8]).expect("a pair");
        }
        let take_number = || self.store.take_snapshot_number();
        let pieces = writer.finish(take_number, self.log.position(), self.version).expect("pieces");
        assert!(self.store.name_pieces(TABLE, former, &pieces).expect("a catalogue"));
    }
}

/// A piece that was not written anew needs the log from its own position on, wherever others are.
fn write_one_piece_of_several() {
    let disk = SimulatedDisk::default();
    let mut directory = Directory::new(Arc::new(disk.clone()));
    (0..KEYS).for_each(|key| _ = directory.write(key));
    directory.write_pieces(0, &[]);
    let pieces = directory.store.pieces_of(TABLE).to_vec();
    let last = *pieces.last().expect("pieces");
    assert!(pieces.len() > 1 && last.first_key > 0, "{pieces:?}");

    let written = directory.write(0);
    let begin = directory.log.position().segment;
    while directory.log.position().segment < begin + 3 {
        directory.write(KEYS - 1);
    }
    directory.write_pieces(last.first_key, &[last]);
    directory.store.remove_segments(directory.log.position()).expect("a catalogue");

    let mut newest = Newest::default();
    let store = Store::open(Arc::new(disk.crash(1)), 1).expect("a directory");
    recover(&store, BATCH_BYTES_MAX, &mut newest).expect("all that is needed");
    assert_eq!(newest.0[&0_u64.to_le_bytes()[..]], written, "what the older piece lacks is in the log");
    let LogPosition { segment, .. } = directory.log.position();
    assert!(store.catalogue().first_segment < segment, "it was kept");
}

#[test]
fn a_piece_that_is_older_keeps_its_part_of_the_log() {
    write_one_piece_of_several();
}

#[cfg(injected)]
#[test]
fn an_old_piece_that_is_forgotten() {
    use farsight_base::injection::assert_found;
    assert_found(&farsight_durability::injected::OLD_PIECE_FORGOTTEN, write_one_piece_of_several);
}

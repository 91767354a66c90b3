//! Pieces that several threads read: the same pairs in the same order, and the same errors, as from one.

use std::sync::Arc;

use farsight_base::prng::SplitMix64;
use farsight_durability::disk::{Disk, SimulatedDisk};
use farsight_durability::{
    CatalogueTable, DurabilityError, LogPosition, NoteBatch, RecordBatch, Recovering, SnapshotWriter, Store,
    recover,
};

use super::BATCH_BYTES_MAX;

const TABLES: u32 = 2;
const KEYS: u64 = 120;
/// A frame has 32 pairs and 256 KiB, a piece two frames and a half.
const VALUE_BYTES: usize = 8 << 10;
const PIECE_BYTES: u64 = 80 * VALUE_BYTES as u64;
/// Files that are damaged, one at a time.
const DAMAGES: u64 = 24;

/// All pairs, in the order in which they were told: table, key, version, and a byte of the value.
#[derive(Default)]
struct Told {
    table: u32,
    pairs: Vec<(u32, u64, u64, u8)>,
}

impl Recovering for Told {
    fn table(&mut self, number: u32, _: &CatalogueTable) -> Result<(), DurabilityError> {
        self.table = number;
        Ok(())
    }

    fn pairs(&mut self, batch: &RecordBatch) -> Result<(), DurabilityError> {
        self.pairs.extend(batch.iter().map(|record| {
            let key = u64::from_le_bytes(record.key.try_into().expect("eight bytes"));
            (self.table, key, record.version, record.value.expect("a pair")[0])
        }));
        Ok(())
    }

    fn end_of_pairs(&mut self) -> Result<(), DurabilityError> {
        Ok(())
    }

    fn records(&mut self, _: &RecordBatch) -> Result<(), DurabilityError> {
        unreachable!("the log is empty")
    }

    fn notes(&mut self, batch: &NoteBatch) {
        assert_eq!(batch.iter().next(), None, "the log is empty");
    }
}

/// A directory of tables that have snapshots of several pieces.
fn directory() -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    let mut store = Store::open(Arc::new(disk.clone()), 1).expect("a directory");
    for number in 0..TABLES {
        let (name, since) = (number.to_string(), LogPosition::default());
        let table = CatalogueTable { name, definition: Vec::new(), since, pieces: Vec::new() };
        store.change(|catalogue| _ = catalogue.tables.insert(number, table)).expect("a table");
        let mut writer = SnapshotWriter::begin(Arc::new(disk.clone()), number, 0, PIECE_BYTES);
        for key in 0..KEYS {
            let take_number = || store.take_snapshot_number();
            writer.push(take_number, key + 1, key, &[key as u8; VALUE_BYTES]).expect("a pair");
        }
        let pieces = writer.finish(|| store.take_snapshot_number(), since, KEYS).expect("pieces");
        assert!(store.name_pieces(number, &[], &pieces).expect("a catalogue"));
    }
    disk
}

/// What a recovery by so many readers tells; or its error.
fn told(disk: &SimulatedDisk, readers: usize) -> Result<Vec<(u32, u64, u64, u8)>, String> {
    disk.set_readers(readers);
    let store = Store::open(Arc::new(disk.clone()), 1).map_err(|error| error.to_string())?;
    let mut told = Told::default();
    let recovered = recover(&store, BATCH_BYTES_MAX, &mut told).map_err(|error| error.to_string())?;
    assert!(recovered.version_max.values().all(|version| *version == KEYS));
    Ok(told.pairs)
}

/// Damages a file of a snapshot, as a seed has it.
fn damage(disk: &SimulatedDisk, random: &mut SplitMix64) {
    let names = disk.list().expect("names");
    let files: Vec<String> = names.into_iter().filter(|name| name.starts_with("snapshot-")).collect();
    let name = &files[random.below(files.len() as u64) as usize];
    let file = disk.open(name).expect("a file");
    let length_bytes = file.length_bytes().expect("a length");
    match random.below(4) {
        0 => file.truncate(random.below(length_bytes)).expect("it is shorter"),
        1 => disk.remove(name).expect("it is gone"),
        // Mostly of what a header says.
        2 => disk.flip(name, random.below(40 * 8) as usize),
        _ => disk.flip(name, random.below(length_bytes * 8) as usize),
    }
}

/// Exchanges the first two frames of the first file. They have the same length.
fn swap_frames(disk: &SimulatedDisk) {
    let file = disk.open("snapshot-0000000000000000").expect("a file");
    let mut length = [0; 4];
    file.read_at(4, &mut length).expect("a header");
    let frame_bytes = u64::from(u32::from_le_bytes(length));
    let places = [0, frame_bytes.next_multiple_of(512)];
    let frames = places.map(|at| {
        let mut frame = vec![0; frame_bytes as usize];
        file.read_at(at, &mut frame).expect("a frame");
        frame
    });
    places
        .iter()
        .zip(frames.iter().rev())
        .for_each(|(at, frame)| file.write_at(*at, frame).expect("written"));
}

pub(crate) fn tell_the_same() {
    let mut random = SplitMix64::fresh();
    let disk = directory();
    let whole = told(&disk, 1).expect("it is whole");
    let pairs = (0..TABLES).flat_map(|table| (0..KEYS).map(move |key| (table, key, key + 1, key as u8)));
    assert!(whole.iter().copied().eq(pairs));
    assert!(told(&disk, 4).expect("it is whole") == whole);
    for _ in 0..DAMAGES {
        let damaged = disk.crash(1);
        damage(&damaged, &mut random);
        assert!(told(&damaged, 4) == told(&damaged, 1), "{:?}", told(&damaged, 4).err());
    }
    swap_frames(&disk);
    let [one, several] = [1, 4].map(|readers| told(&disk, readers).expect_err("frames are exchanged"));
    assert_eq!(one, several);
    assert!(
        one.contains("at byte 0, in records of table 0: number of the frame: expected 1, got 2"),
        "{one}"
    );
}

#[test]
fn several_readers_tell_what_one_does() {
    tell_the_same();
}

//! A directory of a former format: what it holds is found, and goes on in the format of today.

use std::sync::Arc;

use farsight_durability::disk::{Disk, SimulatedDisk};
use farsight_durability::{
    CatalogueTable, DATA_FORMAT_VERSION, DurabilityError, FrameWriter, Log, LogEnd, LogOptions, LogPosition,
    OLDEST_DATA_FORMAT_VERSION, SEGMENT_HEADER_BYTES, Store, read_log,
};
use farsight_layout::value_block::{RecordKind, push_record};

const TABLE: u32 = 3;
const SEGMENT: &str = "log-0000000000000001";
/// Where a catalogue has a word since [`AUTHORS_SINCE`].
const AUTHORS_SINCE_AT: usize = 56;
const AUTHORS_SINCE: u32 = 4;
/// Where the first frame of a segment begins.
const FRAME_AT: usize = 512;

/// Bytes whose version is another, and whose checksum fits. It covers what stands from `begin` on.
fn as_of(version: u32, mut bytes: Vec<u8>, begin: usize, end: usize) -> Vec<u8> {
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes[12..16].fill(0);
    let checksum = crc32c::crc32c(&bytes[begin..end]);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn rewrite(disk: &SimulatedDisk, name: &str, change: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    let file = disk.open(name).expect("there");
    let mut bytes = vec![0; file.length_bytes().expect("known") as usize];
    file.read_at(0, &mut bytes).expect("readable");
    let changed = disk.create(name, 0).expect("room");
    changed.write_at(0, &change(bytes)).expect("room");
    changed.sync().expect("synced");
}

/// The log's first frame in former formats: a pair and a removal, each in a block of its own.
fn former_frame() -> Vec<u8> {
    let words = [0, 1, 0, 1, 2 << 32];
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    for (kind, version, value) in [(RecordKind::Pair, 1, &b"a value"[..]), (RecordKind::Removal, 2, b"")] {
        let mut record = Vec::new();
        push_record(&mut record, kind, version, TABLE as u16, &7_u64.to_le_bytes(), value).expect("short");
        let header = u64::from(TABLE) | (record.len() as u64) << 32;
        bytes.extend_from_slice(&header.to_le_bytes());
        bytes.extend_from_slice(&record);
    }
    let length = bytes.len() as u32;
    bytes[4..8].copy_from_slice(&length.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// A table with two records, in files of this version.
fn directory(version: u32) -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    let mut store = Store::open(Arc::new(disk.clone()), 9).expect("a directory");
    let (name, definition, pieces) = ("t".to_owned(), vec![1, 2, 3], Vec::new());
    let table = CatalogueTable { name, definition, since: LogPosition::default(), pieces };
    store.change(|catalogue| _ = catalogue.tables.insert(TABLE, table)).expect("a table");
    let mut log = Log::new(Arc::new(disk.clone()), LogOptions::default(), 1, &LogEnd::default());
    let mut frame = FrameWriter::default();
    frame.push(TABLE, RecordKind::Pair, 1, &7_u64.to_le_bytes(), b"a value").expect("short");
    frame.push(TABLE, RecordKind::Removal, 2, &7_u64.to_le_bytes(), b"").expect("short");
    log.append(&mut frame).expect("room");
    log.sync().expect("synced");
    rewrite(&disk, "catalogue", |mut bytes| {
        if version < AUTHORS_SINCE {
            bytes.drain(AUTHORS_SINCE_AT..AUTHORS_SINCE_AT + 8);
        }
        let end = bytes.len();
        as_of(version, bytes, 16, end)
    });
    rewrite(&disk, SEGMENT, |mut bytes| {
        bytes[FRAME_AT..].fill(0);
        let frame = former_frame();
        bytes[FRAME_AT..FRAME_AT + frame.len()].copy_from_slice(&frame);
        as_of(version, bytes, 0, SEGMENT_HEADER_BYTES)
    });
    disk
}

#[test]
fn what_former_formats_hold_is_found() {
    (OLDEST_DATA_FORMAT_VERSION..DATA_FORMAT_VERSION).for_each(is_found);
}

fn is_found(version: u32) {
    let disk = directory(version);
    let before = Store::read(&disk).expect("a catalogue").expect("there");
    let mut store = Store::open(Arc::new(disk.clone()), 10).expect("a directory");
    assert_eq!((before.incarnation, before.authors_since, before.tables.len()), (1, 0, 1));
    let catalogue = store.catalogue();
    assert_eq!((catalogue.incarnation, &catalogue.tables), (2, &before.tables));
    let mut versions = Vec::new();
    let end = read_log(&disk, 1, |_, record| {
        versions.push((record.table, record.version, record.is_pair()));
        Ok(())
    });
    let end = end.expect("a log");
    assert_eq!(versions, [(TABLE, 1, true), (TABLE, 2, false)]);

    // It goes on in today's, behind what there is.
    store.cut(&end).expect("cut");
    let mut log = Log::new(Arc::new(disk.clone()), LogOptions::default(), 2, &end);
    let mut frame = FrameWriter::default();
    frame.push(TABLE, RecordKind::Pair, 3, &7_u64.to_le_bytes(), b"another").expect("short");
    log.append(&mut frame).expect("room");
    log.sync().expect("synced");
    store.change(|_| ()).expect("written");
    let mut records = 0;
    read_log(&disk, 1, |_, _| {
        records += 1;
        Ok(())
    })
    .expect("both formats");
    assert_eq!(records, 3);
    assert_eq!(Store::read(&disk).expect("a catalogue").as_ref(), Some(store.catalogue()));
}

#[test]
fn formats_that_are_neither_are_refused_by_number() {
    for version in [OLDEST_DATA_FORMAT_VERSION - 1, DATA_FORMAT_VERSION + 1] {
        let disk = directory(version);
        let catalogue = Store::read(&disk).expect_err("another format");
        let log = read_log(&disk, 1, |_, _| Ok(())).expect_err("another format");
        for error in [catalogue, log] {
            let DurabilityError::OtherFormat { got, .. } = &error else { panic!("{error}") };
            assert_eq!(*got, version);
            assert!(error.to_string().contains("reads 3 to 5"), "{error}");
        }
    }
}

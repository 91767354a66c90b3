//! Damage to what is durable: it is named and refused. The last frame alone cannot be told from a torn one.

use std::sync::Arc;

use farsight_durability::disk::{Disk, RealDisk, SimulatedDisk};
use farsight_durability::{
    DurabilityError, FrameFault, FrameWriter, Log, LogEnd, LogOptions, Store, read_log,
};
use farsight_layout::value_block::RecordKind;

const FRAMES: u64 = 12;
const OPTIONS: LogOptions = LogOptions { segment_bytes: 3072 };
/// Bits between two that are flipped.
const STRIDE: usize = 37;

/// A file of zeros behind the last segment, which a crash has left that came as the next one was made.
const BEING_MADE: &str = "log-0000000000000004";

/// A log of three segments, of which each frame was durable before the next was written.
fn log() -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    let mut log = Log::new(Arc::new(disk.clone()), OPTIONS, 3, &LogEnd::default());
    for number in 0..FRAMES {
        append(&mut log, number);
        log.sync().expect("synced");
    }
    disk
}

fn append(log: &mut Log, number: u64) {
    let mut frame = FrameWriter::default();
    frame.push(7, RecordKind::Pair, number + 1, &number.to_le_bytes(), b"a value").expect("short");
    log.append(&mut frame).expect("room");
}

/// The versions that recovery finds.
fn versions(disk: &SimulatedDisk) -> Result<Vec<u64>, DurabilityError> {
    let mut versions = Vec::new();
    read_log(disk, 1, |_, record| {
        versions.push(record.version);
        Ok(())
    })?;
    Ok(versions)
}

/// A segment's file is longer than any that a log makes: it is refused, and not read.
#[test]
fn a_segment_that_no_log_makes_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = std::fs::File::create(directory.path().join("log-0000000000000001")).expect("a file");
    // It takes no room on the disk.
    file.set_len(1 << 32).expect("its length");
    let disk = RealDisk::open_directory(directory.path()).expect("a disk");
    match read_log(&disk, 1, |_, _| Ok(())) {
        Err(DurabilityError::Damaged { offset: 0, fault: FrameFault::Field { got, .. }, .. }) => {
            assert_eq!(got, 1 << 32);
        }
        other => panic!("{other:?}"),
    }
}

/// Flips many bits of a log, one at a time.
///
/// # Panics
/// If recovery passes over the damage.
fn any_bit_of(log: impl Fn() -> SimulatedDisk) {
    let all: Vec<u64> = (1..=FRAMES).collect();
    let sound = log();
    assert_eq!(versions(&sound).expect("sound"), all);
    let mut names = sound.list().expect("names");
    names.retain(|name| name != BEING_MADE);
    assert_eq!(names.len(), 3);
    for (index, name) in names.iter().enumerate() {
        let bits = 8 * sound.open(name).expect("there").length_bytes().expect("known") as usize;
        for bit in (0..bits).step_by(STRIDE) {
            let disk = log();
            disk.flip(name, bit);
            match versions(&disk) {
                // Nothing stands there, or nothing tells the last frame from a torn one.
                Ok(found) if found == all => {}
                Ok(found) => {
                    assert!(index == 2 && found == all[..all.len() - 1], "{name}, bit {bit}: {found:?}");
                }
                Err(DurabilityError::Damaged { file, offset, table, .. }) => {
                    assert!(file.ends_with(name.as_str()), "{name}, bit {bit}: {file}");
                    assert!(offset as usize <= bit / 8, "{name}, bit {bit}: byte {offset}");
                    assert!(offset == 0 || table.is_some(), "{name}, bit {bit}: of no table");
                }
                Err(DurabilityError::OtherFormat { got, .. }) => assert!(got != 1 && bit / 8 < 12),
                Err(error) => panic!("{name}, bit {bit}: {error}"),
            }
        }
    }
}

/// The same of a log, and of one whose next segment was being made.
///
/// # Panics
/// As there.
pub(crate) fn any_bit() {
    any_bit_of(log);
    any_bit_of(|| {
        let disk = log();
        disk.create(BEING_MADE, 3072).expect("room");
        disk
    });
}

#[test]
fn any_bit_that_flips_is_named() {
    any_bit();
}

/// The last frame is torn, and has a value that looks like frames which say that it was durable.
#[test]
fn a_value_of_frames_does_not_make_a_torn_tail_damage() {
    let claims = [(u64::MAX, u64::MAX), (u64::MAX, 3), (3, u64::MAX), (3, 3), (2, 1), (10_000, 9_999)];
    for (number, durable_number) in claims {
        let disk = SimulatedDisk::default();
        let mut log = Log::new(Arc::new(disk.clone()), LogOptions::default(), 1, &LogEnd::default());
        (0..2).for_each(|number| append(&mut log, number));
        log.sync().expect("synced");
        let begin = log.position().offset;
        let mut claim = FrameWriter::default();
        let claim = claim.seal(number, durable_number, 1, 0).0;
        // One of them begins at a sector.
        let value: Vec<u8> = claim.iter().copied().cycle().take(claim.len() * 200).collect();
        let mut frame = FrameWriter::default();
        frame.push(7, RecordKind::Pair, 3, &3_u64.to_le_bytes(), &value).expect("short");
        log.append(&mut frame).expect("room");
        let file = disk.open("log-0000000000000001").expect("there");
        file.write_at(begin, &[0; 512]).expect("no fault");
        assert_eq!(versions(&disk).expect("a torn tail"), [1, 2], "{number} behind {durable_number}");
    }
}

/// A process is killed when the next segment's file is there, and frames of the one before are not synced. A
/// start makes them durable all the same: clients see them from then on.
#[test]
fn frames_before_a_segment_that_was_being_made_are_durable_behind_a_start() {
    let seed = crate::crash_model::seed("frames_before_a_segment_that_was_being_made");
    let disk = SimulatedDisk::default();
    drop(Store::open(Arc::new(disk.clone()), 1).expect("an empty directory"));
    let mut log = Log::new(Arc::new(disk.clone()), OPTIONS, 1, &LogEnd::default());
    (0..3).for_each(|number| append(&mut log, number));
    drop(log);
    disk.create("log-0000000000000002", 3072).expect("room");
    let store = Store::open(Arc::new(disk.clone()), 2).expect("the next life");
    let end = read_log(&disk, 1, |_, _| Ok(())).expect("a sound log");
    store.cut(&end).expect("no fault");
    assert_eq!((end.segment, end.number), (1, 3));
    let mut log = Log::new(Arc::new(disk.clone()), OPTIONS, 2, &end);
    append(&mut log, 3);
    log.sync().expect("synced");
    for crash in 0..20 {
        assert_eq!(versions(&disk.crash(seed ^ crash)).expect("a sound log"), [1, 2, 3, 4]);
    }
}

#[test]
fn a_segment_that_is_missing_is_named() {
    for number in 1..=2 {
        let disk = log();
        let name = format!("log-{number:016x}");
        disk.remove(&name).expect("there");
        let error = versions(&disk).expect_err("missing");
        assert!(matches!(&error, DurabilityError::Missing { file, .. } if file.ends_with(&name)), "{error}");
    }
}

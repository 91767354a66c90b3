//! Damage to what is durable: it is named and refused. The last frame alone cannot be told from a torn one.

use std::sync::Arc;

use farsight_durability::disk::{Disk, RealDisk, SimulatedDisk};
use farsight_durability::{DurabilityError, FrameFault, FrameWriter, Log, LogEnd, LogOptions, read_log};
use farsight_layout::value_block::RecordKind;

const FRAMES: u64 = 12;
const OPTIONS: LogOptions = LogOptions { segment_bytes: 3072 };
/// Bits between two that are flipped.
const STRIDE: usize = 37;

/// A log of three segments, of which each frame was durable before the next was written.
fn log() -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    let mut log = Log::new(Arc::new(disk.clone()), OPTIONS, 3, &LogEnd::default());
    for number in 0..FRAMES {
        let mut frame = FrameWriter::default();
        frame.push(7, RecordKind::Pair, number + 1, &number.to_le_bytes(), b"a value").expect("short");
        log.append(&mut frame).expect("room");
        log.sync().expect("synced");
    }
    disk
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

/// Flips many bits, one at a time.
///
/// # Panics
/// If recovery passes over the damage.
pub(crate) fn any_bit() {
    let all: Vec<u64> = (1..=FRAMES).collect();
    let sound = log();
    assert_eq!(versions(&sound).expect("sound"), all);
    let names = sound.list().expect("names");
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

#[test]
fn any_bit_that_flips_is_named() {
    any_bit();
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

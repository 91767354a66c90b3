//! The log: bytes that stand in a segment, and written frames on their way.

use std::sync::Arc;

use farsight_durability::disk::{Disk, SimulatedDisk};
use farsight_durability::{
    Frame, FrameWriter, Log, LogEnd, LogOptions, Note, NotedReply, Record, SegmentHeader, read_log,
};
use farsight_layout::value_block::RecordKind;

use super::source::Source;

/// The file of a log's first segment.
const SEGMENT: &str = "log-0000000000000001";
const OPTIONS: LogOptions = LogOptions { segment_bytes: 1 << 14 };

/// Bytes that are a frame are those that its records and notes are written as. Whatever stands in a segment,
/// recovery ends, and what it finds was written: all of it, or all before the last frame if that is damaged.
pub(super) fn run(data: &[u8]) {
    any_frame(data);
    drop(read(&with_segment(data), |_| ()));
    let header = SegmentHeader { number: 1, incarnation: 1, last_number: 0, last_checksum: 0 };
    drop(read(&with_segment(&[&header.to_bytes(), data].concat()), |_| ()));
    written(&mut Source::new(data));
}

fn any_frame(data: &[u8]) {
    let Ok(frame) = Frame::parse(data) else { return };
    let mut again = FrameWriter::default();
    let visited = frame.visit(|record| {
        let Record { table, kind, version, key, value } = record;
        if version == 0 {
            return Err(());
        }
        let pushed = again.push(table, kind, version, key, value);
        pushed.map(drop).map_err(|_| ())
    });
    let Ok(mut notes) = visited else { return };
    while let Ok((note, behind)) = Note::parse(notes) {
        again.push_note(note);
        notes = behind;
    }
    if !notes.is_empty() {
        return;
    }
    let (bytes, checksum) =
        again.seal(frame.number, frame.durable_number, frame.incarnation, frame.previous_checksum);
    let again = Frame::parse(bytes).expect("a frame that was sealed");
    assert_eq!((again.checksum, again.records()), (checksum, frame.records()));
}

fn written(source: &mut Source<'_>) {
    let disk = SimulatedDisk::default();
    let mut log = Log::new(Arc::new(disk.clone()), OPTIONS, 1, &LogEnd::default());
    let mut expected = Vec::new();
    let mut ends = Vec::new();
    for _ in 0..=source.below(4) {
        let mut frame = FrameWriter::default();
        for _ in 0..=source.below(3) {
            let (table, length, pairs) = (source.half(), source.below(40), 1 + source.below(3) as u64);
            let first = (source.word() >> 16).clamp(1, (1 << 48) - pairs);
            for version in first..first + pairs {
                let key = source.word().to_le_bytes();
                frame.push(table, RecordKind::Pair, version, &key, &source.value(length)).expect("short");
                expected.push(version);
            }
        }
        for _ in 0..source.below(3) {
            let (author, sequence, reply) = (source.word(), source.word(), source.below(40));
            let mut reply = source.value(reply);
            let first = u64::from(source.half());
            let in_row = first..first + source.below(4) as u64;
            reply.extend(in_row.flat_map(u64::to_le_bytes));
            let reply = NotedReply::of(&reply);
            frame.push_note(Note::Call { author, sequence, unanswered: 1, reply });
        }
        log.append(&mut frame).expect("a disk without faults");
        log.sync().expect("a disk without faults");
        ends.push((log.position().offset as usize, expected.len()));
    }
    let mut found = Vec::new();
    read(&disk, |version| found.push(version)).expect("nothing is damaged");
    assert_eq!(found, expected);
    let bit = source.below(ends.last().map_or(1, |(end, _)| 8 * end));
    disk.flip(SEGMENT, bit);
    found.clear();
    if read(&disk, |version| found.push(version)).is_ok() {
        let before_last = ends.iter().nth_back(1).map_or(0, |(_, records)| *records);
        let is_last = bit / 8 >= ends.iter().nth_back(1).map_or(0, |(end, _)| *end);
        assert!(found == expected || is_last && found == expected[..before_last], "bit {bit} is passed over");
    }
}

fn with_segment(bytes: &[u8]) -> SimulatedDisk {
    let disk = SimulatedDisk::default();
    let file = disk.create(SEGMENT, 0).expect("a disk without faults");
    file.write_at(0, bytes).expect("a disk without faults");
    disk
}

fn read(
    disk: &SimulatedDisk,
    mut visit: impl FnMut(u64),
) -> Result<LogEnd, farsight_durability::DurabilityError> {
    read_log(disk, 1, |_, record| {
        visit(record.version);
        Ok(())
    })
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut frame = FrameWriter::default();
    frame.push(1, RecordKind::Pair, 9, &7_u64.to_le_bytes(), b"a value").expect("short");
    frame.push(1, RecordKind::Pair, 10, &6_u64.to_le_bytes(), b"another").expect("short");
    frame.push(1, RecordKind::Pair, 12, b"a key", b"a value").expect("short");
    frame.push(2, RecordKind::Removal, 13, &8_u64.to_le_bytes(), b"").expect("short");
    frame.push_note(Note::AllForgotten);
    frame.push_note(Note::Author { author: 5, first_unanswered: 3 });
    frame.push_note(Note::Call { author: 5, sequence: 3, unanswered: 1, reply: NotedReply::of(b"a reply") });
    let in_row: Vec<u8> = [0, 9, 10, 11].into_iter().flat_map(u64::to_le_bytes).collect();
    frame.push_note(Note::Call { author: 5, sequence: 4, unanswered: 2, reply: NotedReply::of(&in_row) });
    let header = SegmentHeader { number: 1, incarnation: 1, last_number: 0, last_checksum: 0 };
    let sealed = frame.seal(1, 0, 1, 0).0.to_vec();
    vec![
        [&header.to_bytes()[..], &sealed].concat(),
        sealed,
        (0..120).map(|byte: u8| byte.wrapping_mul(37)).collect(),
    ]
}

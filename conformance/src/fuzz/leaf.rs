//! A leaf's lines from anyone, read by the views of `layout` and by a twin written from docs/format.md.

use farsight_base::{LeafNumber, Line, WORDS_PER_LINE};
use farsight_layout::{Geometry, KEY_LINES, KeyLines, KeySearch, LEAF_SLOTS, LeafSlot, ValueFault};

use super::source::Source;

/// Value sizes of each shape: four, two and one to a line, several lines, the longest.
pub(super) const VALUE_SIZES: [usize; 8] = [8, 9, 16, 24, 56, 100, 217, 256];

/// Words of the key part that hold keys, by slot.
const KEY_WORDS: [usize; LEAF_SLOTS] = [5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20, 21, 22];

/// What the input asks to be repaired, so that not every leaf is torn to pieces.
const EVEN: u8 = 1;
const ONE_INCARNATION: u8 = 2;
const SMALL_KEYS: u8 = 4;
const EQUAL_VERSIONS: u8 = 8;
const NO_HIGH_FENCE: u8 = 16;

pub(super) fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let geometry = Geometry::new(VALUE_SIZES[source.below(8)]).expect("a size of the format");
    let repairs = source.byte();
    let asked = [source.key(), source.key()];
    let mut lines = lines(source.rest(), geometry.leaf_lines());
    make_plausible(&mut lines, repairs);
    let key_lines: &[Line; KEY_LINES] = lines.first_chunk().expect("a leaf has a key part");
    check_sorted(key_lines);
    let stored = KEY_WORDS.map(|word| key_lines[word / WORDS_PER_LINE].0[word % WORDS_PER_LINE]);
    for key in stored.into_iter().chain(asked) {
        let found = KeyLines(key_lines).search(key);
        assert_eq!(found, search(key_lines, key), "key {key} in {key_lines:x?}");
        if let KeySearch::Hit { slot, incarnation } = found {
            check_value(&geometry, &lines, slot, incarnation);
        }
    }
    for slot in LeafSlot::all() {
        check_value(&geometry, &lines, slot, lines[0].stamp().incarnation());
    }
}

/// The lines that a region of these bytes, repeated as often as it takes, holds.
pub(super) fn lines(bytes: &[u8], count: usize) -> Vec<Line> {
    let mut words = bytes.chunks(8).cycle().map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    (0..count).map(|_| Line(std::array::from_fn(|_| words.next().unwrap_or(0)))).collect()
}

fn make_plausible(lines: &mut [Line], repairs: u8) {
    let first = lines[0].0[0];
    for line in lines.iter_mut() {
        let stamp = &mut line.0[0];
        if repairs & ONE_INCARNATION != 0 {
            *stamp = *stamp & !(0xff_ffff << 32) | first & 0xff_ffff << 32;
        }
        if repairs & EQUAL_VERSIONS != 0 {
            *stamp = *stamp & !0xffff_ffff | first & 0xffff_ffff;
        }
        if repairs & EVEN != 0 {
            *stamp &= !1;
        }
    }
    if repairs & SMALL_KEYS != 0 {
        for word in [2, 3].into_iter().chain(KEY_WORDS) {
            lines[word / WORDS_PER_LINE].0[word % WORDS_PER_LINE] &= 31;
        }
    }
    if repairs & NO_HIGH_FENCE != 0 {
        lines[0].0[1] |= 1 << 32;
    }
}

/// What the format says of `key` in these lines.
pub(super) fn search(lines: &[Line; KEY_LINES], key: u64) -> KeySearch {
    let stamps = lines.map(|line| line.0[0]);
    for (number, word) in KEY_WORDS.into_iter().enumerate() {
        let stamp = stamps[word / 8];
        let occupied = stamp >> 56 >> (word % 8) & 1 == 1;
        if occupied && lines[word / 8].0[word % 8] == key {
            let slot = LeafSlot::new(number).expect("sixteen slots");
            let incarnation = (stamp >> 32) as u32 & 0xff_ffff;
            return if stamp & 1 == 1 { KeySearch::Changing } else { KeySearch::Hit { slot, incarnation } };
        }
    }
    let incarnations = stamps.map(|stamp| stamp >> 32 & 0xff_ffff);
    if stamps.iter().any(|stamp| stamp & 1 == 1) || incarnations != [incarnations[0]; 3] {
        return KeySearch::Changing;
    }
    let [_, next, low, high, ..] = lines[0].0;
    let infinite = next >> 32 & 1 == 1;
    match () {
        () if !infinite && high <= low => KeySearch::Foreign,
        () if key < low => KeySearch::Left,
        () if infinite || key < high => KeySearch::Absent,
        () => KeySearch::Right(LeafNumber(next as u32)),
    }
}

/// What the format says of the value in `slot`; `None` if it is none of `incarnation`.
pub(super) fn value(
    geometry: &Geometry,
    lines: &[Line],
    slot: usize,
    incarnation: u32,
) -> Option<(u64, Vec<u8>)> {
    let value_bytes = geometry.value_bytes();
    let (per_line, lines_each) = match value_bytes.div_ceil(8) {
        1 => (4, 1),
        2 => (2, 1),
        words => (1, (words + 1).div_ceil(7)),
    };
    let first = KEY_LINES + slot / per_line * lines_each;
    let lines = &lines[first..first + lines_each];
    let version_of = |line: &Line| line.0[0] & 0xffff_ffff;
    let is_whole = lines.iter().all(|line| {
        let stamp = line.0[0];
        stamp & 1 == 0
            && (stamp >> 32) as u32 & 0xff_ffff == incarnation
            && version_of(line) == version_of(&lines[0])
    });
    let index = slot % per_line;
    let (version, words) = if per_line == 4 {
        let words = lines[0].0;
        let low = words[5 + index / 2] >> (index % 2 * 32) & 0xffff_ffff;
        (low | (words[7] >> (index * 16) & 0xffff) << 32, vec![words[1 + index]])
    } else {
        let bodies: Vec<u64> = lines.iter().flat_map(|line| line.0[1..].to_vec()).collect();
        let words = &bodies[index * (1 + value_bytes.div_ceil(8))..];
        (words[0], words[1..].to_vec())
    };
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.truncate(value_bytes);
    (is_whole && version != 0).then_some((version, bytes))
}

fn check_value(geometry: &Geometry, lines: &[Line], slot: LeafSlot, incarnation: u32) {
    let place = geometry.value_place(slot);
    let mut bytes = vec![0; geometry.value_bytes()];
    let value_lines = &lines[place.line..place.line + geometry.lines_per_value()];
    let read = geometry.read_value(value_lines, place, incarnation, &mut bytes);
    let expected = value(geometry, lines, slot.number(), incarnation);
    match read {
        Ok(version) => assert_eq!(expected, Some((version, bytes)), "{slot:?} of {value_lines:x?}"),
        Err(ValueFault::Changing | ValueFault::OtherIncarnation | ValueFault::NotWritten) => {
            assert_eq!(expected, None, "{slot:?} of {value_lines:x?}");
        }
    }
}

fn check_sorted(key_lines: &[Line; KEY_LINES]) {
    let view = KeyLines(key_lines);
    let mut sorted = [(0, LeafSlot::FIRST); LEAF_SLOTS];
    let count = view.sorted(&mut sorted);
    let mut expected: Vec<u64> = LeafSlot::all().filter_map(|slot| view.key(slot)).collect();
    expected.sort_unstable();
    expected.dedup();
    assert!(sorted[..count].iter().map(|(key, _)| *key).eq(expected), "{sorted:?}");
    assert!(sorted[..count].iter().all(|(key, slot)| view.key(*slot) == Some(*key)), "{sorted:?}");
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let leaf = |shape: u8| {
        let words = (0..KEY_LINES * 8).map(|word: usize| match word {
            0 | 8 | 16 => 0xff00_0007_0000_0000 | u64::from(shape) << 1,
            1 => 1 << 32 | 5,
            2 => 0,
            3 => 40,
            4 => 0xfedc_ba98_7654_3210,
            _ => word as u64,
        });
        let header = [shape % 8, shape * 5, 5, 30];
        header.into_iter().chain(words.flat_map(u64::to_le_bytes)).collect()
    };
    (0..16).map(leaf).collect()
}

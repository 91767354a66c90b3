//! A block of a memory pool from anyone: what a reader makes of it, a repairer, and a writer.

use std::cell::Cell;

use farsight_base::{LeafNumber, Line};
use farsight_index_rolex::{Planned, Write, plan};
use farsight_layout::pool::{
    BlockGeometry, BlockSearch, Journal, LockWord, LockedLeaf, Writes, search_block,
};
use farsight_layout::{INFINITE_FLAG_BIT, KEY_LINES, NEXT_WORD, OWNER_WORD};
use farsight_protocol::{INTEGER_BYTES, WriteOperation, WriteOutcome};

use super::leaf::{VALUE_SIZES, lines};
use super::source::Source;

/// What the input asks to be repaired.
const EVEN: u8 = 1;
const ONE_INCARNATION: u8 = 2;
const NO_HIGH_FENCE: u8 = 4;
const CHECKED_JOURNAL: u8 = 8;

pub(super) fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let geometry = BlockGeometry::new(VALUE_SIZES[source.below(8)]).expect("a size of the format");
    let repairs = source.byte();
    let operation = WriteOperation::ALL[usize::from(source.byte()) % WriteOperation::ALL.len()];
    let key = source.key();
    let mut block = lines(source.rest(), geometry.lines());
    make_plausible(&geometry, &mut block, repairs);
    read(&geometry, &block, key);
    let mut written = block.clone();
    if LockedLeaf::new(&geometry, LeafNumber(3), &mut written).is_consistent() {
        write(&geometry, written, operation, key);
    }
    repair(&geometry, block);
}

fn make_plausible(geometry: &BlockGeometry, block: &mut [Line], repairs: u8) {
    let first = block[0].0[0];
    for line in &mut block[..geometry.leaf().leaf_lines()] {
        let stamp = &mut line.0[0];
        if repairs & ONE_INCARNATION != 0 {
            *stamp = *stamp & !(0xff_ffff << 32) | first & 0xff_ffff << 32;
        }
        if repairs & EVEN != 0 {
            *stamp &= !1;
        }
    }
    if repairs & NO_HIGH_FENCE != 0 {
        block[0].0[NEXT_WORD] |= 1 << INFINITE_FLAG_BIT;
    }
    if repairs & CHECKED_JOURNAL != 0 {
        // The journal that these words are but for their check, if they are one.
        let control: Vec<u64> =
            block[geometry.leaf().leaf_lines()..].iter().flat_map(|line| line.0).collect();
        if let Some(journal) = Journal::decode_unchecked(geometry.leaf(), &control) {
            let words = journal.encode();
            let first = geometry.first_control_word() + farsight_layout::pool::CHECK_WORD;
            for (word, content) in (first..).zip(words) {
                block[word / 8].0[word % 8] = content;
            }
        }
    }
}

/// A reader's answer is one that the fences allow.
fn read(geometry: &BlockGeometry, block: &[Line], key: u64) {
    let leaf = &block[..geometry.leaf().leaf_lines()];
    let mut value = vec![0; geometry.leaf().value_bytes()];
    let found = search_block(geometry, leaf, key, &mut value);
    let is_closed = block[OWNER_WORD / 8].0[OWNER_WORD % 8] == LockWord::CLOSED.0;
    assert!(!is_closed || found == BlockSearch::Closed, "a closed leaf is {found:?}");
    if let BlockSearch::Hit(version) = found {
        let stands = leaf[..KEY_LINES].iter().any(|line| line.0[1..].contains(&key));
        assert!(version != 0 && stands, "a hit on {key} in {leaf:x?}");
    }
}

/// A write turns a consistent leaf into consistent leaves, and says what it finds there then.
fn write(geometry: &BlockGeometry, mut block: Vec<Line>, operation: WriteOperation, key: u64) {
    let value_bytes = geometry.leaf().value_bytes();
    let operand = vec![0x5a; operation.operand_bytes(value_bytes)];
    if operation == WriteOperation::FetchAdd && value_bytes != INTEGER_BYTES {
        return;
    }
    let mut old = vec![0; if operation.returns_value() { value_bytes } else { 0 }];
    let old = Cell::from_mut(&mut old[..]).as_slice_of_cells();
    let write = Write { operation, key, value: &operand, old };
    let mut room = vec![Line::ZERO; geometry.lines()];
    let mut right = LockedLeaf::new(geometry, LeafNumber(4), &mut room);
    let mut leaf = LockedLeaf::new(geometry, LeafNumber(3), &mut block);
    let mut writes = Writes::default();
    let Planned::Done(outcome) = plan(&mut leaf, Some(&mut right), &write, &mut writes) else { return };
    assert!(leaf.is_consistent() && !writes.is_empty(), "{outcome:?} left {leaf:?}");
    if let WriteOutcome::Inserted(version) | WriteOutcome::Replaced(version) = outcome {
        let mut found = vec![0; value_bytes];
        let leaf_lines = geometry.leaf().leaf_lines();
        let [left, right] =
            [&block, &room].map(|lines| search_block(geometry, &lines[..leaf_lines], key, &mut found));
        assert!([left, right].contains(&BlockSearch::Hit(version)), "{outcome:?}, then {left:?}, {right:?}");
    }
}

/// A repairer leaves no line odd, and lines of several pieces with one version.
fn repair(geometry: &BlockGeometry, mut block: Vec<Line>) {
    let mut writes = Writes::default();
    let mut leaf = LockedLeaf::new(geometry, LeafNumber(3), &mut block);
    let _ = leaf.neighbour();
    leaf.repair(&mut writes);
    for (_, word, words) in writes.iter() {
        assert!(word + words.len() <= geometry.lines() * 8, "a WRITE outside the block");
    }
    let odd = block[..geometry.leaf().leaf_lines()].iter().filter(|line| line.stamp().is_changing()).count();
    assert_eq!(odd, 0, "odd lines after a repair");
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let block = |shape: u8| {
        let geometry = BlockGeometry::new(VALUE_SIZES[usize::from(shape % 8)]).expect("a size");
        let words = geometry.first_leaf();
        let occupied = words.into_iter().enumerate().map(|(word, content)| match word {
            0 | 8 | 16 if shape >= 8 => content | 0xff << 56,
            5..=22 if shape >= 8 && word % 8 != 0 => word as u64,
            24.. if shape >= 8 && content == 0 => word as u64,
            _ => content,
        });
        let header = [shape % 8, shape % 16, shape % 4, 7];
        header.into_iter().chain(occupied.flat_map(u64::to_le_bytes)).collect()
    };
    (0..32).map(block).collect()
}

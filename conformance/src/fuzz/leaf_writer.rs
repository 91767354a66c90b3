//! A leaf under any sequence of writes says after each what a `BTreeMap` says.

use std::collections::BTreeMap;

use farsight_base::sync::AtomicU64;
use farsight_base::words::{CopyMode, copy_lines};
use farsight_base::{LeafNumber, Line};
use farsight_layout::{
    Fences, Geometry, KEY_LINES, KeyLines, KeySearch, LEAF_SLOTS, LeafImage, LeafSlot, LeafWriter,
};

use super::leaf::VALUE_SIZES;
use super::source::Source;

/// Writes of one run.
const STEPS_MAX: usize = 60;

struct LeafTwin {
    geometry: Geometry,
    words: Vec<AtomicU64>,
    incarnation: u32,
    next: LeafNumber,
    fences: Fences,
    pairs: BTreeMap<u64, (u64, Vec<u8>)>,
    spent: usize,
    version: u64,
}

pub(super) fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let geometry = Geometry::new(VALUE_SIZES[source.below(8)]).expect("a size of the format");
    let words = (0..geometry.leaf_words()).map(|_| AtomicU64::new(0)).collect();
    let fences = Fences { low: u64::from(source.byte() % 8), high: None };
    let (incarnation, next) = (source.half() & 0xff_ffff, LeafNumber(source.half()));
    let pairs = BTreeMap::new();
    let mut twin = LeafTwin { geometry, words, incarnation, next, fences, pairs, spent: 0, version: 1 };
    twin.rewrite(&mut source);
    for _ in 0..STEPS_MAX {
        if source.is_empty() {
            return;
        }
        twin.step(&mut source);
        twin.check();
    }
}

impl LeafTwin {
    fn step(&mut self, source: &mut Source<'_>) {
        let kind = source.below(8);
        let key = source.key();
        if kind == 0 {
            return self.rewrite(source);
        }
        if !self.fences.contain(key) {
            return;
        }
        self.version += (1 + u64::from(source.byte())) << (source.byte() % 24);
        self.version &= (1 << 47) - 1;
        self.version = self.version.max(1);
        let value = source.value(self.geometry.value_bytes());
        let mut writer = LeafWriter::latch(&self.words, &self.geometry, 1).expect("nobody else latches");
        let lines = writer.key_lines();
        assert_eq!(writer.spent(), self.spent);
        match KeyLines(&lines).search(key) {
            KeySearch::Hit { slot, .. } if kind < 5 => {
                writer.update(slot, self.version, &value);
                assert!(self.pairs.insert(key, (self.version, value)).is_some(), "{key} was absent");
            }
            KeySearch::Hit { slot, .. } => {
                writer.remove(slot);
                assert!(self.pairs.remove(&key).is_some(), "{key} was absent");
            }
            KeySearch::Absent => {
                let slot = writer.insert(key, self.version, &value);
                assert_eq!(slot.is_some(), self.spent < LEAF_SLOTS, "{} slots are spent", self.spent);
                if slot.is_some() {
                    self.spent += 1;
                    assert!(self.pairs.insert(key, (self.version, value)).is_none(), "{key} was there");
                }
            }
            other => panic!("key {key} under {:?}: {other:?}", self.fences),
        }
    }

    /// Puts the pairs, or the lower part of them, into a new incarnation with other fences.
    fn rewrite(&mut self, source: &mut Source<'_>) {
        self.incarnation = (self.incarnation + 1) & 0xff_ffff;
        self.next = LeafNumber(source.half());
        if source.below(4) == 0 {
            let high = self.fences.low + 1 + source.below(64) as u64;
            self.fences.high = Some(self.fences.high.map_or(high, |old| old.min(high)));
        }
        self.pairs.retain(|key, _| self.fences.contain(*key));
        let mut image = LeafImage::new(&self.geometry, self.incarnation, self.next, self.fences);
        for (key, (version, value)) in &self.pairs {
            image.push(*key, *version, value);
        }
        let mut writer = LeafWriter::latch(&self.words, &self.geometry, 1).expect("nobody else latches");
        writer.rewrite(&image);
        self.spent = self.pairs.len();
    }

    fn check(&self) {
        let mut lines = vec![Line::ZERO; self.geometry.leaf_lines()];
        copy_lines(&self.words, &mut lines, CopyMode::Stamped);
        let key_lines: &[Line; KEY_LINES] = lines.first_chunk().expect("a leaf has a key part");
        let view = KeyLines(key_lines);
        assert_eq!(view.incarnation(), Some(self.incarnation));
        assert_eq!((view.fences(), view.next()), (Some(self.fences), self.next));
        let mut sorted = [(0, LeafSlot::FIRST); LEAF_SLOTS];
        let count = view.sorted(&mut sorted);
        assert!(sorted[..count].iter().map(|(key, _)| key).eq(self.pairs.keys()), "{sorted:?}");
        let mut value = vec![0; self.geometry.value_bytes()];
        for key in (0..70).chain(self.pairs.keys().copied()).chain([u64::MAX]) {
            let found = view.search(key);
            let expected = match self.pairs.get(&key) {
                Some((version, bytes)) => {
                    let KeySearch::Hit { slot, incarnation } = found else { panic!("{key}: {found:?}") };
                    let place = self.geometry.value_place(slot);
                    let value_lines = &lines[place.line..place.line + self.geometry.lines_per_value()];
                    let read = self.geometry.read_value(value_lines, place, incarnation, &mut value);
                    assert_eq!((read, &value), (Ok(*version), bytes), "the value of {key}");
                    continue;
                }
                None if key < self.fences.low => KeySearch::Left,
                None if self.fences.contain(key) => KeySearch::Absent,
                None => KeySearch::Right(self.next),
            };
            assert_eq!(found, expected, "key {key} under {:?}", self.fences);
        }
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let seed = |shape: u8| {
        let steps = (0..50_u8).flat_map(|step| [1 + step % 7, step.wrapping_mul(shape) % 40, 1, shape, step]);
        [shape, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 1].into_iter().chain(steps).collect()
    };
    (0..8).map(seed).collect()
}

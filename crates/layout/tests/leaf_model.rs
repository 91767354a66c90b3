//! A leaf against a `BTreeMap`: every operation of the writer, every answer of the views, every value size.

use std::collections::BTreeMap;

use farsight_base::prng::SplitMix64;
use farsight_base::sync::AtomicU64;
use farsight_base::words::{copy_stamped, next_incarnation};
use farsight_base::{LeafNumber, Line, WORDS_PER_LINE};
use farsight_layout::{
    Fences, Geometry, KEY_LINES, KeyLines, KeySearch, LEAF_SLOTS, LeafImage, LeafSlot, LeafWriter,
};

const FENCES: Fences = Fences { low: 100, high: Some(200) };

struct Leaf {
    words: Vec<AtomicU64>,
    geometry: Geometry,
    incarnation: u32,
}

impl Leaf {
    fn new(value_bytes: usize) -> Self {
        let geometry = Geometry::new(value_bytes).unwrap();
        let words = (0..geometry.leaf_words()).map(|_| AtomicU64::new(0)).collect();
        let leaf = Self { words, geometry, incarnation: 5 };
        let image = LeafImage::new(&geometry, 5, LeafNumber(9), FENCES);
        leaf.writer().rewrite(&image);
        leaf
    }

    fn writer(&self) -> LeafWriter<'_> {
        LeafWriter::latch(&self.words, &self.geometry, 1).unwrap()
    }

    fn key_lines(&self) -> [Line; KEY_LINES] {
        let mut lines = [Line::ZERO; KEY_LINES];
        copy_stamped(&self.words[..KEY_LINES * WORDS_PER_LINE], &mut lines);
        lines
    }

    fn value(&self, slot: LeafSlot, incarnation: u32) -> (u64, Vec<u8>) {
        let place = self.geometry.value_place(slot);
        let mut lines = vec![Line::ZERO; self.geometry.lines_per_value()];
        let first = place.line * WORDS_PER_LINE;
        copy_stamped(&self.words[first..first + lines.len() * WORDS_PER_LINE], &mut lines);
        let mut value = vec![0; self.geometry.value_bytes()];
        let version = self.geometry.read_value(&lines, place, incarnation, &mut value).unwrap();
        (version, value)
    }

    fn compact(&mut self, model: &BTreeMap<u64, (u64, Vec<u8>)>) {
        self.incarnation = next_incarnation(self.incarnation);
        let mut image = LeafImage::new(&self.geometry, self.incarnation, LeafNumber(9), FENCES);
        for (key, (version, value)) in model {
            image.push(*key, *version, value);
        }
        self.writer().rewrite(&image);
    }
}

fn value_of(key: u64, version: u64, value_bytes: usize) -> Vec<u8> {
    let mut random = SplitMix64::new(key ^ version << 32);
    (0..value_bytes).map(|_| random.next_u64() as u8).collect()
}

fn check_against(leaf: &Leaf, model: &BTreeMap<u64, (u64, Vec<u8>)>) {
    let lines = leaf.key_lines();
    let view = KeyLines(&lines);
    for key in FENCES.low..200 {
        match (view.search(key), model.get(&key)) {
            (KeySearch::Hit { slot, incarnation }, Some(expected)) => {
                assert_eq!(&leaf.value(slot, incarnation), expected, "key {key}");
            }
            (KeySearch::Absent, None) => {}
            (found, expected) => panic!("key {key}: {found:?}, expected {expected:?}"),
        }
    }
    let mut sorted = [(0, LeafSlot::new(0).unwrap()); LEAF_SLOTS];
    let count = view.sorted(&mut sorted);
    assert!(sorted[..count].iter().map(|pair| pair.0).eq(model.keys().copied()));
}

#[test]
fn random_operations_agree_with_a_map() {
    for value_bytes in [8, 9, 16, 17, 24, 40, 48, 56, 57, 100, 255, 256] {
        let mut leaf = Leaf::new(value_bytes);
        let mut model = BTreeMap::new();
        let mut random = SplitMix64::new(value_bytes as u64);
        for version in 1..2_000_u64 {
            let version = version | version << 36;
            let key = FENCES.low + random.below(24);
            let lines = leaf.key_lines();
            let value = value_of(key, version, value_bytes);
            match (KeyLines(&lines).search(key), random.below(3)) {
                (KeySearch::Hit { slot, .. }, 0) => {
                    leaf.writer().remove(slot);
                    model.remove(&key);
                }
                (KeySearch::Hit { slot, .. }, _) => {
                    leaf.writer().update(slot, version, &value);
                    model.insert(key, (version, value));
                }
                (KeySearch::Absent, _) if model.len() < LEAF_SLOTS => {
                    let inserted = leaf.writer().insert(key, version, &value);
                    if inserted.is_none() {
                        leaf.compact(&model);
                        leaf.writer().insert(key, version, &value).expect("compaction makes room");
                    }
                    model.insert(key, (version, value));
                }
                (KeySearch::Absent, _) => {}
                (other, _) => panic!("{other:?}"),
            }
            check_against(&leaf, &model);
        }
    }
}

#[test]
fn keys_outside_the_fences_name_the_direction() {
    let leaf = Leaf::new(8);
    let lines = leaf.key_lines();
    assert_eq!(KeyLines(&lines).search(99), KeySearch::Left);
    assert_eq!(KeyLines(&lines).search(200), KeySearch::Right(LeafNumber(9)));
}

#[test]
fn the_greatest_key_is_ordinary_under_an_infinite_fence() {
    let leaf = Leaf::new(8);
    let fences = Fences { low: u64::MAX, high: None };
    let mut image = LeafImage::new(&leaf.geometry, 6, LeafNumber::NONE, fences);
    assert_eq!(image.len(), 0);
    image.push(u64::MAX, 1, &[7; 8]);
    leaf.writer().rewrite(&image);
    let lines = leaf.key_lines();
    assert!(matches!(KeyLines(&lines).search(u64::MAX), KeySearch::Hit { .. }));
    assert_eq!(KeyLines(&lines).search(u64::MAX - 1), KeySearch::Left);
}

#[test]
fn a_value_read_after_its_slots_reuse_is_refused() {
    let mut leaf = Leaf::new(8);
    let slot = leaf.writer().insert(150, 1, &[1; 8]).unwrap();
    let old = leaf.incarnation;
    leaf.compact(&BTreeMap::from([(151, (2, vec![2; 8]))]));
    let place = leaf.geometry.value_place(slot);
    let mut lines = [Line::ZERO];
    copy_stamped(&leaf.words[place.line * WORDS_PER_LINE..][..WORDS_PER_LINE], &mut lines);
    let read = leaf.geometry.read_value(&lines, place, old, &mut [0; 8]);
    assert_eq!(read, Err(farsight_layout::ValueFault::OtherIncarnation));
}

#[test]
fn an_unwritten_slot_is_refused() {
    let leaf = Leaf::new(8);
    let place = leaf.geometry.value_place(LeafSlot::new(4).unwrap());
    let mut lines = [Line::ZERO];
    copy_stamped(&leaf.words[place.line * WORDS_PER_LINE..][..WORDS_PER_LINE], &mut lines);
    let read = leaf.geometry.read_value(&lines, place, leaf.incarnation, &mut [0; 8]);
    assert_eq!(read, Err(farsight_layout::ValueFault::NotWritten));
}

#[test]
fn a_held_latch_refuses_the_second() {
    let leaf = Leaf::new(8);
    let held = leaf.writer();
    assert!(LeafWriter::latch(&leaf.words, &leaf.geometry, 3).is_err());
    drop(held);
    assert!(LeafWriter::latch(&leaf.words, &leaf.geometry, 1).is_ok());
}

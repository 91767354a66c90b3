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
                let writer = leaf.writer();
                assert_eq!(writer.version(slot), expected.0, "key {key}");
                assert!(
                    LeafSlot::all().all(|other| writer.is_at(key, other) == (other == slot)),
                    "key {key}"
                );
            }
            (KeySearch::Absent, None) => {
                assert!(LeafSlot::all().all(|slot| !leaf.writer().is_at(key, slot)), "key {key}");
            }
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

#[test]
fn a_split_leaves_every_pair_on_its_side_and_room_on_both() {
    for value_bytes in [8, 9, 16, 24, 48, 56, 100, 256] {
        let mut random = SplitMix64::new(value_bytes as u64);
        for kept in 1..LEAF_SLOTS - 2 {
            let (left, right) = (Leaf::new(value_bytes), Leaf::new(value_bytes));
            let mut model = BTreeMap::new();
            let mut version = 1 << 40;
            while model.len() < LEAF_SLOTS {
                let key = FENCES.low + random.below(100);
                let value = value_of(key, version, value_bytes);
                if model.insert(key, (version, value.clone())).is_none() {
                    left.writer().insert(key, version, &value).expect("a free slot");
                }
                version += 1;
            }
            // Updates of the model alone came too late for the leaf: bring it up to date, then remove two.
            for (key, (version, value)) in &model {
                let KeySearch::Hit { slot, .. } = KeyLines(&left.key_lines()).search(*key) else {
                    panic!("key {key} was inserted")
                };
                left.writer().update(slot, *version, value);
            }
            for _ in 0..2 {
                let key = *model.keys().nth(random.below(model.len() as u64) as usize).expect("a pair");
                model.remove(&key);
                let KeySearch::Hit { slot, .. } = KeyLines(&left.key_lines()).search(key) else {
                    panic!("key {key} was inserted")
                };
                left.writer().remove(slot);
            }
            split_and_check(left, right, model, kept);
        }
    }
}

fn split_and_check(mut left: Leaf, mut right: Leaf, mut model: BTreeMap<u64, (u64, Vec<u8>)>, kept: usize) {
    let separator = *model.keys().nth(kept).expect("a pair to move");
    let (mut left_writer, mut right_writer) = (left.writer(), right.writer());
    let (sorted, count) = left_writer.sorted();
    assert!(sorted[..count].iter().map(|pair| pair.key).eq(model.keys().copied()));
    for pair in &sorted[..count] {
        assert_eq!(pair.version, model[&pair.key].0, "{pair:?}");
    }
    let (stay, go) = sorted[..count].split_at(kept);
    right_writer.receive(&left_writer, go, separator);
    left_writer.keep(stay, separator, LeafNumber(4));
    drop((left_writer, right_writer));
    left.incarnation = next_incarnation(left.incarnation);
    right.incarnation = next_incarnation(right.incarnation);
    assert_eq!(KeyLines(&left.key_lines()).search(separator), KeySearch::Right(LeafNumber(4)));
    assert_eq!(KeyLines(&right.key_lines()).search(separator - 1), KeySearch::Left);
    assert_eq!(KeyLines(&right.key_lines()).next(), LeafNumber(9), "right goes on where left went");
    let moved = model.split_off(&separator);
    for (leaf, mut model) in [(left, model), (right, moved)] {
        check_pairs(&leaf, &model);
        // Every slot that is free can be used, and none of the pairs suffers.
        let span = KeyLines(&leaf.key_lines()).fences().expect("a leaf");
        let free = (span.low..span.high.expect("finite")).filter(|key| !model.contains_key(key));
        let free: Vec<u64> = free.take(LEAF_SLOTS - model.len()).collect();
        for key in free {
            let value = value_of(key, 7, leaf.geometry.value_bytes());
            leaf.writer().insert(key, 7, &value).expect("a free slot");
            model.insert(key, (7, value));
            check_pairs(&leaf, &model);
        }
    }
}

fn check_pairs(leaf: &Leaf, model: &BTreeMap<u64, (u64, Vec<u8>)>) {
    let lines = leaf.key_lines();
    let view = KeyLines(&lines);
    for (key, expected) in model {
        let KeySearch::Hit { slot, incarnation } = view.search(*key) else { panic!("key {key} is gone") };
        assert_eq!(incarnation, leaf.incarnation);
        assert_eq!(&leaf.value(slot, incarnation), expected, "key {key}");
    }
    let mut sorted = [(0, LeafSlot::new(0).unwrap()); LEAF_SLOTS];
    let count = view.sorted(&mut sorted);
    assert!(sorted[..count].iter().map(|pair| pair.0).eq(model.keys().copied()));
    // The permutation lists the pairs in key order, before all free slots.
    let permutation = lines[0].0[farsight_layout::PERMUTATION_WORD];
    for (position, (_, slot)) in sorted[..count].iter().enumerate() {
        assert_eq!((permutation >> (4 * position) & 15) as usize, slot.number(), "position {position}");
    }
}

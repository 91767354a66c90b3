//! The index of a hash table: places of keys, words of slots, buckets from anyone.

use std::collections::BTreeSet;

use farsight_base::Line;
use farsight_layout::hash_index::{
    BUCKET_SLOTS, BucketCount, BucketCountError, BucketFault, BucketHeader, COMBINED_BUCKETS, CombinedBucket,
    HASH_PARTITION_BITS, HASH_PARTITIONS, HASH_PLACES, HASH_SPLIT_BITS, HashSlot, IndexShape, KeyHash,
    ObjectPlace, ObjectRef, SlotPlace, SlotState,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn count(buckets: u32) -> BucketCount {
    BucketCount::new(buckets).expect("a number of buckets")
}

fn hash(number: u64) -> KeyHash {
    KeyHash::of(&number.to_le_bytes())
}

fn object(key: &[u8], offset_lines: u32) -> ObjectRef {
    ObjectRef::new(key, ObjectPlace { offset_lines, lines: 3, generation: 5 })
}

fn empty(hash: KeyHash, depth: u32) -> [Line; COMBINED_BUCKETS] {
    let mut line = Line::ZERO;
    line.0[0] = BucketHeader::new(hash, depth).word();
    [line, Line::ZERO]
}

#[test]
fn the_hash_is_the_documented_one() {
    let got = [&b""[..], b"a", b"farsight", b"farsight index"].map(|key| KeyHash::of(key).0);
    // Computed by another program, from docs/format.md.
    let expected =
        [0xf05a_a32e_e758_1899, 0x2215_e487_388a_9c60, 0x2937_230b_d069_f32a, 0x8723_d6f1_28d1_404e];
    assert_eq!(got, expected, "{got:#018x?}");
}

/// A chi-square test of each choice: 99.99 % of even ones pass.
#[test]
fn keys_are_spread_evenly() {
    const KEYS: u64 = 1 << 17;
    let buckets = count(2 * 128);
    let mut counts = [vec![0_u32; HASH_PARTITIONS], vec![0; 384], vec![0; 384], vec![0; 256]];
    for key in 0..KEYS {
        let hash = hash(key);
        counts[0][hash.partition()] += 1;
        let [first, second] = hash.places(buckets).first_lines;
        counts[1][first as usize] += 1;
        counts[2][second as usize] += 1;
        counts[3][usize::from(KeyHash::fingerprint(&key.to_le_bytes()))] += 1;
    }
    for (choice, counts) in counts.iter().enumerate() {
        // Of a group's three lines none begins with the second bucket's neighbour.
        let used: Vec<f64> =
            counts.iter().filter(|count| **count > 0).map(|count| f64::from(*count)).collect();
        let expected = KEYS as f64 / used.len() as f64;
        let chi = used.iter().map(|count| (count - expected).powi(2) / expected).sum::<f64>();
        let degrees = used.len() as f64 - 1.0;
        assert!(used.len() >= 256, "choice {choice} uses {} of its values", used.len());
        assert!(chi < degrees + 4.0 * (2.0 * degrees).sqrt(), "choice {choice}: {chi} of {degrees}");
    }
}

/// Keys of one partition and one first bucket have all fingerprints and all second buckets.
#[test]
fn choices_say_nothing_about_each_other() {
    let buckets = count(16);
    let (mut fingerprints, mut seconds) = (BTreeSet::new(), BTreeSet::new());
    for key in 0..1 << 22_u64 {
        let hash = hash(key);
        let [first, second] = hash.places(buckets).first_lines;
        if hash.partition() == 5 && first == 0 {
            fingerprints.insert(KeyHash::fingerprint(&key.to_le_bytes()));
            seconds.insert(second);
        }
    }
    assert!(fingerprints.len() > 150, "{} fingerprints of some 256 keys", fingerprints.len());
    assert_eq!(seconds.len(), 15, "all but the first");
}

#[test]
fn numbers_of_buckets_are_even_and_bounded() {
    for got in [0, 1, 3, BucketCount::MAX + 2, u32::MAX] {
        assert_eq!(BucketCount::new(got), Err(BucketCountError { got }));
    }
    assert_eq!([2, 4, BucketCount::MAX].map(|buckets| count(buckets).lines()), [3, 6, 1_572_864]);
}

proptest! {
    #[test]
    fn places_are_two_combined_buckets_of_the_subtable(
        key in vec(any::<u8>(), 0..40),
        half in 1_u32..1 << 19,
    ) {
        let buckets = count(2 * half);
        let places = KeyHash::of(&key).places(buckets);
        prop_assert_ne!(places.first_lines[0], places.first_lines[1]);
        for first in places.first_lines {
            prop_assert!(first % 3 < 2 && first + 1 < buckets.lines(), "line {} of {:?}", first, buckets);
            prop_assert!(places.contain(first) && places.contain(first + 1));
        }
    }

    #[test]
    fn a_prefix_begins_with_the_partition(key in vec(any::<u8>(), 0..20), split in 0..=HASH_SPLIT_BITS) {
        let hash = KeyHash::of(&key);
        prop_assert_eq!((hash.prefix(HASH_PARTITION_BITS + split) >> split) as usize, hash.partition());
    }

    #[test]
    fn any_word_is_one_state(word: u64) {
        match HashSlot(word).state() {
            SlotState::Unused => prop_assert_eq!(word, 0),
            SlotState::Reserved(object) => prop_assert_eq!(HashSlot::reserved(object), HashSlot(word)),
            SlotState::Live(object) => prop_assert_eq!(HashSlot::live(object), HashSlot(word)),
            SlotState::Corrupt => prop_assert_ne!(word, 0),
        }
    }

    #[test]
    fn any_header_is_refused_or_comes_back(word: u64) {
        if let Some(header) = BucketHeader::parse(word) {
            prop_assert_eq!(header.word(), word);
        }
    }

    #[test]
    fn whatever_stands_there_is_seen_in_its_place(
        words in vec(any::<u64>(), 2 * BUCKET_SLOTS),
        key: u64,
        group in 0_u32..300,
        is_odd: bool,
    ) {
        let key = key.to_le_bytes();
        let hash = KeyHash::of(&key);
        let (mut lines, first_line) = (empty(hash, 12), 3 * group + u32::from(is_odd));
        if is_odd {
            lines.reverse();
        }
        for (index, word) in words.iter().enumerate() {
            lines[index / BUCKET_SLOTS].0[1 + index % BUCKET_SLOTS] = *word;
        }
        let own = HashSlot::live(object(&key, 77));
        lines[1].0[3] = own.0;
        let view = CombinedBucket::parse(&lines, first_line, hash).expect("a bucket of this key");
        let place = |index: usize| SlotPlace {
            line: first_line + (index / BUCKET_SLOTS) as u32,
            slot: (index % BUCKET_SLOTS) as u8,
        };
        let slots: Vec<_> = view.slots().collect();
        prop_assert_eq!(slots.len() * 2, HASH_PLACES);
        prop_assert!(slots.is_sorted_by_key(|(place, _)| *place));
        for (index, (at, slot)) in slots.iter().enumerate() {
            let expected = if index == BUCKET_SLOTS + 2 { own.0 } else { words[index] };
            prop_assert_eq!((*at, slot.0), (place(index), expected));
        }
        let fingerprint = KeyHash::fingerprint(&key);
        let found: Vec<_> = view.candidates(fingerprint).map(|candidate| candidate.place).collect();
        prop_assert!(found.contains(&place(BUCKET_SLOTS + 2)));
        for (at, slot) in slots {
            let is_one = matches!(slot.state(), SlotState::Live(object) if object.fingerprint == fingerprint);
            prop_assert_eq!(found.contains(&at), is_one);
        }
    }

    #[test]
    fn a_bucket_of_other_keys_is_refused(key: u64, other: u64, depth in 10_u32..=16, is_odd: bool) {
        let (own, other) = (hash(key), hash(other));
        prop_assume!(own.prefix(depth) != other.prefix(depth));
        let mut lines = empty(other, depth);
        if is_odd {
            lines.reverse();
        }
        let (expected, got) = (own.prefix(depth), other.prefix(depth));
        let fault = CombinedBucket::parse(&lines, is_odd.into(), own).err();
        prop_assert_eq!(fault, Some(BucketFault::OtherPrefix { depth, expected, got }));
        let main = usize::from(is_odd);
        lines[main].0[0] |= 1 << 40;
        let got = lines[main].0[0];
        let fault = CombinedBucket::parse(&lines, is_odd.into(), own).err();
        prop_assert_eq!(fault, Some(BucketFault::Header { got }));
    }

    #[test]
    fn the_overflow_says_what_was_removed(key: u64, version in 0_u64..1 << 48, is_odd: bool) {
        let mut lines = empty(hash(key), 10);
        lines[1].0[0] = version;
        if is_odd {
            lines.reverse();
        }
        let view = CombinedBucket::parse(&lines, 9 + u32::from(is_odd), hash(key)).expect("a bucket");
        prop_assert_eq!((view.removed_version(), view.overflow_line()), (version, 10));
        let contains = |line| view.contains(SlotPlace { line, slot: 0 });
        prop_assert_eq!([10, 12].map(contains), [true, false]);
        lines[usize::from(!is_odd)].0[0] = 1 << 48;
        let fault = CombinedBucket::parse(&lines, 9 + u32::from(is_odd), hash(key)).err();
        prop_assert_eq!(fault, Some(BucketFault::Version { got: 1 << 48 }));
    }
}

#[test]
fn the_first_free_slot_is_the_lowest() {
    let hash = hash(1);
    let mut lines = empty(hash, 10);
    for word in &mut lines[0].0[1..] {
        *word = HashSlot::live(object(b"x", 5)).0;
    }
    lines[1].0[1] = HashSlot::reserved(object(b"y", 9)).0;
    let view =
        |lines: &[Line; COMBINED_BUCKETS]| CombinedBucket::parse(lines, 9, hash).expect("a bucket").free();
    assert_eq!(view(&lines), Some(SlotPlace { line: 10, slot: 1 }));
    let bucket = CombinedBucket::parse(&lines, 9, hash).expect("a bucket");
    assert_eq!((bucket.used(), bucket.reserved(KeyHash::fingerprint(b"y")).count()), (8, 1));
    lines[1].0[2..].fill(HashSlot::live(object(b"z", 7)).0);
    assert_eq!(view(&lines), None);
}

#[test]
fn buckets_of_zeros_are_anyones() {
    let lines = [Line::ZERO; COMBINED_BUCKETS];
    for key in 0..100 {
        let view = CombinedBucket::parse(&lines, 0, hash(key)).expect("a bucket that was never written");
        assert_eq!(view.free(), Some(SlotPlace { line: 0, slot: 0 }));
    }
}

#[test]
fn places_come_back_from_slots() {
    let place = ObjectPlace { offset_lines: u32::MAX, lines: 254, generation: (1 << 14) - 1 };
    let object = ObjectRef::new(b"key", place);
    assert_eq!(HashSlot::live(object).state(), SlotState::Live(object));
    assert_eq!(HashSlot::reserved(object).state(), SlotState::Reserved(object));
    for other in [(0, 1), (255, 1), (1, 0), (1, 1 << 14)] {
        assert!(!ObjectPlace { offset_lines: 0, lines: other.0, generation: other.1 }.is_sound());
    }
    assert_eq!(HashSlot(HashSlot::live(object).0 | 1 << 62).state(), SlotState::Corrupt);
    assert_eq!(HashSlot(1 << 63).state(), SlotState::Corrupt, "an object without lines");
}

#[test]
fn every_subtable_is_on_one_node_and_overlaps_no_other() {
    for (nodes, lines) in [(1, 3_072), (3, 342 * 3), (16, 10_000)] {
        let shape = IndexShape::new(nodes, lines).expect("room");
        let mut firsts = vec![BTreeSet::new(); nodes];
        for partition in 0..HASH_PARTITIONS as u64 {
            let place = shape.subtable(KeyHash(partition << 54 | partition));
            assert_eq!(place.first_line % 3, 0, "a group begins there");
            assert!(place.first_line + u64::from(shape.buckets().lines()) <= lines);
            assert!(firsts[place.node].insert(place.first_line));
        }
        for firsts in firsts {
            let firsts: Vec<u64> = firsts.into_iter().collect();
            assert!(firsts.windows(2).all(|two| two[1] - two[0] == u64::from(shape.buckets().lines())));
        }
        let error =
            IndexShape::new(nodes, HASH_PARTITIONS.div_ceil(nodes) as u64 * 3 - 1).expect_err("a line less");
        assert_eq!(error.needed_lines, error.got_lines + 1);
    }
}

//! The index of a hash table: places of keys, words of slots, buckets from anyone.

use std::collections::BTreeSet;

use farsight_base::Line;
use farsight_layout::hash_index::{
    BUCKET_SLOTS, BucketCount, BucketCountError, BucketFault, BucketHeader, CLOSINGS, CLOSINGS_LINES,
    COMBINED_BUCKETS, CombinedBucket, DIRECTORY_LINES, DIRECTORY_WORDS, HASH_PARTITION_BITS, HASH_PARTITIONS,
    HASH_PLACES, HASH_SPLIT_BITS, Halves, HashSlot, IndexShape, KeyHash, ObjectPlace, ObjectRef, Sharing,
    SlotPlace, SlotState,
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
            SlotState::Unused => prop_assert_eq!(HashSlot(word).emptied(), HashSlot(word)),
            SlotState::Reserved(object) => prop_assert_eq!(HashSlot::reserved(object), HashSlot(word)),
            SlotState::Live(object) => {
                prop_assert_eq!(HashSlot::live_in(object, HashSlot(word).sharing()), HashSlot(word));
                prop_assert!(HashSlot(word).is_alike(HashSlot::live(object)));
            }
            SlotState::Sealed(Some(object)) => {
                let was_shared = HashSlot(word).was_shared();
                let sharing = if was_shared { Sharing::Shared } else { Sharing::Unshared };
                prop_assert_eq!(HashSlot::live_in(object, sharing).sealed(), HashSlot(word));
            }
            SlotState::Sealed(None) => prop_assert_eq!(HashSlot::default().sealed(), HashSlot(word)),
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
            let is_one = matches!(slot.state(), SlotState::Live(object) | SlotState::Sealed(Some(object))
                if object.fingerprint == fingerprint);
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
    assert_eq!(view(&lines), Some((SlotPlace { line: 10, slot: 1 }, HashSlot::default())));
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
        assert_eq!(view.free(), Some((SlotPlace { line: 0, slot: 0 }, HashSlot::default())));
    }
}

#[test]
fn places_come_back_from_slots() {
    let place = ObjectPlace { offset_lines: u32::MAX, lines: 254, generation: (1 << 13) - 1 };
    let object = ObjectRef::new(b"key", place);
    assert_eq!(HashSlot::live(object).state(), SlotState::Live(object));
    assert_eq!(HashSlot::reserved(object).state(), SlotState::Reserved(object));
    for other in [(0, 1), (255, 1), (1, 0), (1, 1 << 13)] {
        assert!(!ObjectPlace { offset_lines: 0, lines: other.0, generation: other.1 }.is_sound());
    }
    assert_eq!(HashSlot::live(object).sealed().state(), SlotState::Sealed(Some(object)));
    assert_eq!(HashSlot::live(object).sealed().sealed(), HashSlot::live(object).sealed());
    for dropped in [HashSlot::reserved(object), HashSlot::default(), HashSlot::default().sealed()] {
        assert_eq!(dropped.sealed().state(), SlotState::Sealed(None));
    }
    assert_eq!(HashSlot(1 << 63).state(), SlotState::Corrupt, "an object without lines");
}

/// The words of a pair's slot until it is another's: each is another word, and is live, sealed or empty.
#[test]
fn a_shared_slot_is_live_until_it_is_closed_and_swapped() {
    let object = object(b"key", 9);
    let of = |sharing| HashSlot::live_in(object, sharing);
    let words = [Sharing::Unshared, Sharing::Shared, Sharing::Closing].map(of);
    assert_eq!(words[0], HashSlot::live(object));
    assert_eq!(words.map(HashSlot::sharing), [Sharing::Unshared, Sharing::Shared, Sharing::Closing]);
    assert_eq!(BTreeSet::from(words.map(|word| word.0)).len(), 3);
    for word in words {
        assert_eq!((word.state(), word.emptied()), (SlotState::Live(object), words[0].emptied()));
        assert_eq!(word.sealed().state(), SlotState::Sealed(Some(object)));
        assert_eq!((word.sealed().was_shared(), word.was_shared()), (word != words[0], false));
        assert_eq!(word.sealed().sharing(), Sharing::Unshared, "nobody closes what is sealed");
        assert!(word.is_alike(words[1]) && !word.is_alike(word.sealed()) && !word.is_alike(word.emptied()));
    }
    assert_eq!(words[0].emptied().state(), SlotState::Unused);
    let other = HashSlot::live_in(self::object(b"key", 10), Sharing::Shared);
    assert!(!words[1].is_alike(other) && HashSlot::default().is_alike(HashSlot::default()));
    assert_eq!(HashSlot(words[0].emptied().0 | 1 << 61).state(), SlotState::Corrupt);
}

#[test]
fn every_unit_is_within_its_region_and_overlaps_no_other() {
    for (nodes, lines) in [(1, 11_276), (3, 342 * 11 + 9), (3, 1 << 24), (16, 10_000), (1, u64::MAX)] {
        let shape = IndexShape::new(nodes, lines).expect("room");
        let unit_lines = shape.buckets().lines();
        assert_eq!(shape.unit_line(0) % 3, 0, "a group begins there");
        assert_eq!(shape.unit_line(1) - shape.unit_line(0), unit_lines);
        let end = u64::from(shape.unit_line(shape.units() - 1)) + u64::from(unit_lines);
        assert!(end <= lines.min(u32::MAX.into()) && shape.units() >= shape.partitions());
        let closings = shape.closings_line() as usize;
        assert!(closings + CLOSINGS_LINES <= shape.unit_line(0) as usize);
        let mut taken = vec![BTreeSet::new(); nodes];
        for partition in 0..HASH_PARTITIONS {
            let hash = KeyHash((partition as u64) << 54);
            let (root, directory) = (shape.root(partition), shape.directory_line(partition));
            assert!(directory as usize + DIRECTORY_LINES <= closings);
            assert!(shape.closings_counter(partition) < CLOSINGS);
            assert!(taken[shape.node_of(hash)].insert((directory, root.unit())));
        }
    }
    for nodes in [1, 3, 16] {
        let error = IndexShape::new(nodes, 0).expect_err("no room");
        IndexShape::new(nodes, error.needed_lines).expect("a subtable for each partition");
        let error = IndexShape::new(nodes, error.needed_lines - 1).expect_err("a line less");
        assert_eq!(error.needed_lines, error.got_lines + 1);
    }
}

/// A key's way through a directory: to the deepest subtable that is there, at the place that it always has.
#[test]
fn a_directory_leads_to_the_deepest_subtable_of_a_key() {
    let shape = IndexShape::new(2, 1 << 20).expect("room");
    for number in 0..1_000_u64 {
        let (hash, mut words) = (hash(number), [0; DIRECTORY_WORDS]);
        let mut unit = 1_000 + number as u32;
        let root = shape.root(hash.partition());
        assert_eq!((root.depth(), root.number()), (HASH_PARTITION_BITS, 1));
        let mut at = root;
        while let Some(index) = at.directory_word() {
            let halves = Halves([unit, unit + 1]);
            words[index] = halves.word();
            let next = shape.subtable(hash, |index| words[index]);
            assert_eq!(next, at.half(hash.half(at.depth()), halves));
            assert_eq!(next.depth(), at.depth() + 1);
            let way = 1 << (next.depth() - HASH_PARTITION_BITS);
            assert_eq!(next.number(), way | hash.prefix(next.depth()) & (way - 1));
            let places = [at, next]
                .map(|of| shape.first_lines(hash, of).map(|line| line - shape.unit_line(of.unit())));
            assert_eq!(places[0], places[1], "a slot stays in its place");
            for (old, new) in shape.first_lines(hash, root).into_iter().zip(shape.first_lines(hash, next)) {
                assert_eq!([shape.line_in(next, old), shape.line_in(next, new)], [new; 2]);
            }
            (at, unit) = (next, unit + 2);
        }
        assert_eq!(at.depth(), HASH_PARTITION_BITS + HASH_SPLIT_BITS);
    }
}

proptest! {
    #[test]
    fn any_word_of_a_directory_is_refused_or_comes_back(word: u64, units: u32, low: u32, high: u32) {
        for word in [word, Halves([low % (units | 1), high % (units | 1)]).word()] {
            if let Some(halves) = Halves::parse(word, units) {
                prop_assert_eq!(halves.word(), word);
                prop_assert!(halves.0.iter().all(|unit| *unit < units) && halves.0[0] != halves.0[1]);
            }
        }
    }
}

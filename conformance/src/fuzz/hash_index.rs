//! The index of a hash table: lines from anyone.

use farsight_base::{Line, WORDS_PER_LINE};
use farsight_layout::hash_index::{
    BucketCount, BucketHeader, COMBINED_BUCKETS, CombinedBucket, HASH_PARTITION_BITS, HASH_SPLIT_BITS,
    HashSlot, KeyHash, SlotState,
};

const KEY: &[u8] = b"key";
const WORD_BYTES: usize = 8;
const LINES_BYTES: usize = COMBINED_BUCKETS * WORDS_PER_LINE * WORD_BYTES;

/// Two lines, and then a key. Whatever they are, each slot is seen once, in its place.
pub(super) fn run(data: &[u8]) {
    let (lines, key) = data.split_at(data.len().min(LINES_BYTES));
    let mut words = lines.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
    let lines = [(); COMBINED_BUCKETS].map(|()| Line([(); 8].map(|()| words.next().unwrap_or(0))));
    for hash in [KeyHash::of(key), KeyHash::of(KEY), KeyHash(u64::from(lines[0].0[0] as u32) << 54)] {
        look(&lines, hash);
    }
    let buckets = BucketCount::new((key.len() as u32 + 1) * 2).expect("an even number");
    let [first, second] = KeyHash::of(key).places(buckets).first_lines;
    assert!(first != second && first.max(second) + 1 < buckets.lines());
}

fn look(lines: &[Line; COMBINED_BUCKETS], hash: KeyHash) {
    let Ok(bucket) = CombinedBucket::parse(lines, 0, hash) else { return };
    for (line, header) in lines.iter().map(|line| line.0[0]).enumerate() {
        let of_depth = |depth| BucketHeader::new(hash, depth).word() == header;
        let depths = HASH_PARTITION_BITS..=HASH_PARTITION_BITS + HASH_SPLIT_BITS;
        assert!(depths.into_iter().any(of_depth), "line {line} is believed: {header:#x}");
    }
    for (place, slot) in bucket.slots() {
        assert_eq!(slot.0, lines[place.line as usize].0[1 + usize::from(place.slot)]);
        let again = match slot.state() {
            SlotState::Unused => HashSlot::default(),
            SlotState::Removed { at_ms } => HashSlot::removed(at_ms).expect("a time of a slot"),
            SlotState::Live(reference) => HashSlot::live(reference),
            SlotState::Corrupt => slot,
        };
        assert_eq!(again, slot);
    }
    let free = bucket.free(u64::MAX, 0);
    assert!(free.is_none_or(|(_, slot)| !matches!(slot.state(), SlotState::Live(_) | SlotState::Corrupt)));
    for fingerprint in 0..=u8::MAX {
        assert!(bucket.candidates(fingerprint).all(|found| found.reference.fingerprint() == fingerprint));
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let bucket = |key: &[u8], depth, slots: [u64; 3]| {
        let mut line = [0_u64; WORDS_PER_LINE];
        line[0] = BucketHeader::new(KeyHash::of(key), depth).word();
        line[1..4].copy_from_slice(&slots);
        line.map(u64::to_le_bytes).concat()
    };
    let removed = HashSlot::removed(77).expect("a time").0;
    let slots = [1 << 63 | u64::from(KeyHash::fingerprint(KEY)), removed, 1];
    let pair = |depth| [bucket(KEY, depth, slots), bucket(KEY, depth, [0; 3]), KEY.to_vec()].concat();
    vec![pair(HASH_PARTITION_BITS), pair(HASH_PARTITION_BITS + HASH_SPLIT_BITS), vec![0xff; LINES_BYTES]]
}

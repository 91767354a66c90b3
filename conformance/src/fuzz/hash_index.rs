//! The index of a hash table: lines from anyone.

use farsight_base::{Line, WORDS_PER_LINE};
use farsight_layout::PAIR_VERSION_BITS;
use farsight_layout::hash_index::{
    BucketCount, BucketHeader, COMBINED_BUCKETS, CombinedBucket, HASH_PARTITION_BITS, HASH_SPLIT_BITS,
    HashSlot, KeyHash, ObjectPlace, ObjectRef, Sharing, SlotState,
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
    let header = lines[0].0[0];
    let of_depth = |depth| header == 0 || BucketHeader::new(hash, depth).word() == header;
    let depths = HASH_PARTITION_BITS..=HASH_PARTITION_BITS + HASH_SPLIT_BITS;
    assert!(depths.into_iter().any(of_depth), "a header is believed: {header:#x}");
    assert_eq!((bucket.removed_version(), lines[1].0[0] >> PAIR_VERSION_BITS), (lines[1].0[0], 0));
    for (place, slot) in bucket.slots() {
        assert_eq!(slot.0, lines[place.line as usize].0[1 + usize::from(place.slot)]);
        let again = match slot.state() {
            SlotState::Unused => slot.emptied(),
            SlotState::Reserved(object) => HashSlot::reserved(object),
            SlotState::Live(object) => HashSlot::live_in(object, slot.sharing()),
            SlotState::Sealed(Some(object)) => HashSlot::live_in(object, sealed_in(slot)).sealed(),
            SlotState::Sealed(None) => HashSlot::default().sealed(),
            SlotState::Corrupt => slot,
        };
        assert_eq!(again, slot);
    }
    let used = bucket.used();
    assert_eq!(bucket.free().is_none(), used == bucket.slots().count());
    for fingerprint in 0..=u8::MAX {
        let both = bucket.candidates(fingerprint).chain(bucket.reserved(fingerprint));
        assert!(both.map(|found| found.object.fingerprint).all(|found| found == fingerprint));
    }
}

/// How the value of a sealed slot was shared, as far as the slot tells.
fn sealed_in(slot: HashSlot) -> Sharing {
    if slot.was_shared() { Sharing::Shared } else { Sharing::Unshared }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let bucket = |header: u64, slots: [u64; 3]| {
        let mut line = [0_u64; WORDS_PER_LINE];
        line[0] = header;
        line[1..4].copy_from_slice(&slots);
        line.map(u64::to_le_bytes).concat()
    };
    let object = ObjectRef::new(KEY, ObjectPlace { offset_lines: 77, lines: 3, generation: 5 });
    let slots = [HashSlot::live_in(object, Sharing::Shared).0, HashSlot::reserved(object).0, 1];
    let pair = |depth| {
        let header = BucketHeader::new(KeyHash::of(KEY), depth).word();
        [bucket(header, slots), bucket(77, [0; 3]), KEY.to_vec()].concat()
    };
    vec![pair(HASH_PARTITION_BITS), pair(HASH_PARTITION_BITS + HASH_SPLIT_BITS), vec![0xff; LINES_BYTES]]
}

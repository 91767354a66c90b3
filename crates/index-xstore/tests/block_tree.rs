//! Trees of values of any length: against a `BTreeMap`, beside concurrent writers, and with damaged memory.

mod common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;

use common::{HeapRegion, Writing};
use farsight_base::prng::{SplitMix64, mix};
use farsight_base::sync::{AtomicUsize, Ordering};
use farsight_base::{LINE_BYTES, LeafNumber};
use farsight_blocks::{BlockSpace, BlockWriter};
use farsight_fabric::Region;
use farsight_index::Direction;
use farsight_index_xstore::server::{
    BlockReadError, BlockRoom, BlockTree, BlockWriteError, Exchanged, ModelStore, VersionedWrite, XStoreLeaf,
};
use farsight_layout::value_block::{BLOCK_VALUE_BYTES_MAX, block_bytes, block_lines};
use farsight_protocol::{Operand, WriteEntry, WriteOperation, WriteOutcome};

type Model = BTreeMap<u64, (u64, Vec<u8>)>;

struct Fixture {
    tree: BlockTree,
    blocks: Arc<HeapRegion>,
}

/// What became of a conditional write, and the value before.
type AnsweredExchange = (Result<WriteOutcome, String>, Option<Vec<u8>>);

impl Fixture {
    fn new(leaves: usize, block_bytes: usize) -> Self {
        let leaf_words = XStoreLeaf::new(8).unwrap().geometry().leaf_words();
        let region = Arc::new(HeapRegion::new(leaves * leaf_words));
        let blocks = Arc::new(HeapRegion::new(block_bytes / 8));
        let space = BlockSpace::new(Arc::clone(&blocks) as Arc<dyn Region>, 2, u64::MAX);
        let tree =
            BlockTree::new(region, Arc::new(space), 0x1_0007, None, Arc::new(ModelStore::new())).unwrap();
        Self { tree, blocks }
    }

    fn writer(&self) -> BlockWriter {
        BlockWriter::new(Arc::clone(self.tree.space()))
    }

    fn write(
        &self,
        writer: &mut BlockWriter,
        operation: WriteOperation,
        entries: &[(u64, Vec<u8>)],
    ) -> Vec<Result<WriteOutcome, BlockWriteError>> {
        let entries =
            entries.iter().map(|(key, value)| WriteEntry { key: *key, hint: LeafNumber::NONE, value });
        let mut outcomes = Vec::new();
        self.tree.write_many(writer, operation, entries, |outcome, _| outcomes.push(outcome));
        outcomes
    }

    /// Conditional writes, with room for values before of so many bytes in all.
    fn exchange(
        &self,
        writer: &mut BlockWriter,
        operation: WriteOperation,
        entries: &[(u64, Vec<u8>)],
        room_bytes: usize,
    ) -> Vec<AnsweredExchange> {
        let entries =
            entries.iter().map(|(key, value)| WriteEntry { key: *key, hint: LeafNumber::NONE, value });
        let (mut done, mut left) = (Vec::new(), room_bytes);
        let count = self.tree.exchange_many(writer, operation, entries, room_bytes, |exchanged| {
            let Exchanged { outcome, is_hint_wrong, old } = exchanged;
            assert!(!is_hint_wrong, "there was no hint");
            left -= old.map_or(0, <[u8]>::len);
            done.push((outcome.map_err(|error| error.to_string()), old.map(<[u8]>::to_vec)));
            left
        });
        assert_eq!(count, done.len());
        done
    }

    fn put(&self, writer: &mut BlockWriter, key: u64, value: Vec<u8>) -> WriteOutcome {
        self.write(writer, WriteOperation::Put, &[(key, value)]).remove(0).expect("a put")
    }

    fn get(&self, room: &mut BlockRoom, key: u64) -> Option<(u64, Vec<u8>)> {
        self.tree.get(key, room).expect("an answer").map(|(value, version)| (version, value.to_vec()))
    }

    fn scan(&self, direction: Direction, from: u64, limit: usize) -> Vec<(u64, (u64, Vec<u8>))> {
        let (mut room, mut pairs, mut cursor) = (BlockRoom::default(), Vec::new(), Some(from));
        while let Some(from) = cursor.filter(|_| pairs.len() < limit) {
            let left = limit - pairs.len();
            let mut handed = 0;
            let found = |key, version, value: &[u8]| {
                // Every now and then the reader has room for no more.
                if handed == 7 {
                    return ControlFlow::Break(());
                }
                handed += 1;
                pairs.push((key, (version, value.to_vec())));
                ControlFlow::Continue(())
            };
            cursor = self.tree.scan(direction, from, left, &mut room, found).expect("a scan");
        }
        pairs
    }

    fn check(&self, model: &Model, pool: &[u64], random: &mut SplitMix64) {
        let mut room = BlockRoom::default();
        for key in pool {
            assert_eq!(self.get(&mut room, *key), model.get(key).cloned(), "key {key}");
        }
        let from = pool[random.below(pool.len() as u64) as usize];
        let owned = |(key, pair): (&u64, &(u64, Vec<u8>))| (*key, pair.clone());
        let expected: Vec<_> = model.range(from..).take(50).map(owned).collect();
        assert_eq!(self.scan(Direction::Ascending, from, 50), expected);
        let expected: Vec<_> = model.range(..=from).rev().map(owned).collect();
        assert_eq!(self.scan(Direction::Descending, from, usize::MAX), expected);
        let stats = self.tree.space().stats();
        let lines: usize = model.values().map(|(_, value)| block_lines(8, value.len())).sum();
        assert_eq!(stats.live_bytes, (lines * LINE_BYTES) as u64, "{stats:?}");
        let sum = stats.live_bytes + stats.free_bytes + stats.quarantined_bytes + stats.lost_bytes;
        assert_eq!(sum, stats.used_bytes, "{stats:?}");
    }
}

/// A value of any length, mostly short, now and then empty or long.
fn any_value(random: &mut SplitMix64) -> Vec<u8> {
    let length = match random.below(100) {
        0..10 => 0,
        10..80 => random.below(200),
        80..98 => random.below(4_000),
        _ => random.below(40_000),
    };
    let first = random.next_u64();
    (0..length).map(|index| mix(first + index / 8).to_le_bytes()[index as usize % 8]).collect()
}

/// What the model says to a write, and the model after it.
fn apply(model: &mut Model, operation: WriteOperation, pair: (u64, Vec<u8>), outcome: WriteOutcome) {
    let (key, value) = pair;
    let present = model.get(&key).map(|(version, _)| *version);
    match (operation, present, outcome) {
        (WriteOperation::Insert | WriteOperation::Put, None, WriteOutcome::Inserted(version))
        | (WriteOperation::Update | WriteOperation::Put, Some(_), WriteOutcome::Replaced(version)) => {
            assert!(present.is_none_or(|before| before < version));
            model.insert(key, (version, value));
        }
        (WriteOperation::Insert, Some(version), WriteOutcome::Exists(found)) => assert_eq!(found, version),
        (WriteOperation::Remove, Some(version), WriteOutcome::Removed(found)) => {
            assert_eq!(found, version);
            model.remove(&key);
        }
        (WriteOperation::Update | WriteOperation::Remove, None, WriteOutcome::Absent) => {}
        other => panic!("key {key}: {other:?}"),
    }
}

#[test]
fn random_writes_agree_with_a_map() {
    let mut random = SplitMix64::fresh();
    let pools: [Vec<u64>; 3] =
        [(0..30).collect(), (u64::MAX - 400..=u64::MAX).collect(), (0..1_500).map(mix).collect()];
    for pool in pools {
        let fixture = Fixture::new(1_000, 64 << 20);
        let (mut writer, mut model) = (fixture.writer(), Model::new());
        for removes_percent in [10, 45, 95, 10, 100] {
            for _ in 0..pool.len() / 8 {
                let operation = match random.below(100) {
                    below if below < removes_percent => WriteOperation::Remove,
                    other => [WriteOperation::Insert, WriteOperation::Update, WriteOperation::Put]
                        [other as usize % 3],
                };
                let pairs: Vec<_> = (0..=random.below(100))
                    .map(|_| {
                        let key = pool[random.below(pool.len() as u64) as usize];
                        let is_removed = operation == WriteOperation::Remove;
                        (key, if is_removed { Vec::new() } else { any_value(&mut random) })
                    })
                    .collect();
                let outcomes = fixture.write(&mut writer, operation, &pairs);
                assert_eq!(outcomes.len(), pairs.len());
                for (pair, outcome) in pairs.into_iter().zip(outcomes) {
                    apply(&mut model, operation, pair, outcome.expect("a write"));
                }
            }
            fixture.check(&model, &pool, &mut random);
        }
    }
}

/// A value that says whose it is, in each word: its key and a number.
fn value_of(key: u64, number: u64, length_words: u64) -> Vec<u8> {
    (0..length_words).flat_map(|word| mix(key ^ mix(number) ^ word).to_le_bytes()).collect()
}

/// The value of a key with this number, from which all of it follows: short or not.
fn numbered(key: u64, number: u64) -> Vec<u8> {
    [number.to_le_bytes().to_vec(), value_of(key, number, mix(number) % 2 * 30)].concat()
}

/// The number of a value, which must be whole and `key`'s.
fn number_of(key: u64, value: &[u8]) -> u64 {
    let number = u64::from_le_bytes(value[..8].try_into().expect("a number"));
    assert_eq!(value, numbered(key, number), "key {key}: a torn or foreign value");
    number
}

const KEYS: u64 = 20;
const WRITERS: u64 = 2;
/// Of each writer.
const WRITES: u64 = 30_000;

/// Puts and removes every second key, so that numbers of a key grow. Returns the number by the version.
///
/// A put may be refused: when one size class has no block for a moment, the other may take its slab.
fn write_on(fixture: &Fixture, mut random: SplitMix64, thread: u64) -> BTreeMap<u64, u64> {
    let (mut writer, mut written, mut refused) = (fixture.writer(), BTreeMap::new(), 0);
    for number in 0..WRITES {
        let key = random.below(KEYS / WRITERS) * WRITERS + thread;
        if random.below(10) == 0 {
            let removed = fixture.write(&mut writer, WriteOperation::Remove, &[(key, vec![])]);
            assert!(removed[0].is_ok());
            continue;
        }
        match fixture.write(&mut writer, WriteOperation::Put, &[(key, numbered(key, number))]).remove(0) {
            Ok(WriteOutcome::Inserted(version) | WriteOutcome::Replaced(version)) => {
                written.insert(version, number);
            }
            Err(BlockWriteError::NoRoom { .. }) => refused += 1,
            other => panic!("key {key}: {other:?}"),
        }
    }
    assert!(refused <= WRITES / 100, "{refused} of {WRITES} writes were refused");
    written
}

/// Reads until nobody writes. Returns the number that came with each version.
fn read_on(fixture: &Fixture, mut random: SplitMix64, writing: &AtomicUsize) -> BTreeMap<u64, u64> {
    let (mut room, mut read) = (BlockRoom::default(), BTreeMap::new());
    let mut latest = vec![0; KEYS as usize];
    while writing.load(Ordering::Acquire) > 0 {
        let key = random.below(KEYS);
        if let Some((version, value)) = fixture.get(&mut room, key) {
            let before = std::mem::replace(&mut latest[key as usize], version);
            assert!(before <= version, "key {key}: version {before}, then {version}");
            read.insert(version, number_of(key, &value));
        }
        if random.below(20) == 0 {
            for (key, (version, value)) in fixture.scan(Direction::Ascending, key, 10) {
                read.insert(version, number_of(key, &value));
            }
        }
    }
    read
}

/// Few keys, and hardly more memory than two slabs: places are used anew all the time, while readers copy
/// them.
#[test]
fn readers_see_what_was_written_with_the_version_that_it_got() {
    let mut random = SplitMix64::fresh();
    let fixture = Fixture::new(100, 19 * 8192);
    let writing = AtomicUsize::new(WRITERS as usize);
    let (written, read) = thread::scope(|scope| {
        let (fixture, writing) = (&fixture, &writing);
        let mut seed = || SplitMix64::new(random.next_u64());
        let writers = [0, 1].map(|thread| {
            let random = seed();
            scope.spawn(move || {
                let _writing = Writing(writing);
                write_on(fixture, random, thread)
            })
        });
        let readers = [0, 1].map(|_| {
            let random = seed();
            scope.spawn(move || read_on(fixture, random, writing))
        });
        let written = writers.map(|writer| writer.join().expect("a writer"));
        (written, readers.map(|reader| reader.join().expect("a reader")))
    });
    let number_of = |version| written.iter().find_map(|written| written.get(version));
    for (version, number) in read.iter().flatten() {
        assert_eq!(number_of(version), Some(number), "version {version}");
    }
}

#[test]
fn a_damaged_block_is_never_returned_and_a_write_replaces_it() {
    let mut random = SplitMix64::fresh();
    for value_bytes in [0, 1, 100, 30_000] {
        let fixture = Fixture::new(10, 1 << 20);
        let (mut writer, mut room) = (fixture.writer(), BlockRoom::default());
        fixture.put(&mut writer, 5, vec![9; value_bytes]);
        let at = fixture.blocks.words().iter().position(|word| word.load(Ordering::Relaxed) != 0).unwrap();
        for _ in 0..200 {
            let bit = random.below(block_bytes(8, value_bytes) as u64 * 8);
            // Bits of the state belong to no reader.
            if (56..64).contains(&bit) {
                continue;
            }
            let word = &fixture.blocks.words()[at + bit as usize / 64];
            word.fetch_xor(1 << (bit % 64), Ordering::Relaxed);
            let error = fixture.tree.get(5, &mut room).map(drop).expect_err("a damaged block");
            // Room for any value: a length that a flip made longer than the room is refused for that.
            let entry = [(5, vec![1])];
            let (swapped, old) =
                fixture.exchange(&mut writer, WriteOperation::Swap, &entry, 1 << 30).remove(0);
            assert_eq!((swapped, old), (Err("key 5: the value is damaged".to_owned()), None), "bit {bit}");
            assert!(matches!(error, BlockReadError::Damaged { key: 5, .. }), "bit {bit}: {error}");
            word.fetch_xor(1 << (bit % 64), Ordering::Relaxed);
        }
        // Whatever its header says now, its memory does no harm to others.
        for (turn, word) in [1, 2, 0].into_iter().enumerate() {
            fixture.blocks.words()[at + word].fetch_xor(1 << 9, Ordering::Relaxed);
            fixture.put(&mut writer, 5, vec![turn as u8; value_bytes]);
            fixture.put(&mut writer, 6, vec![7; value_bytes]);
            let value = |room: &mut BlockRoom, key| fixture.get(room, key).map(|(_, value)| value);
            assert_eq!(value(&mut room, 5), Some(vec![turn as u8; value_bytes]));
            assert_eq!(value(&mut room, 6), Some(vec![7; value_bytes]));
        }
    }
}

#[test]
fn what_is_too_long_or_has_no_room_is_refused_by_name_alone() {
    let fixture = Fixture::new(10, 4 << 20);
    let mut writer = fixture.writer();
    let pairs =
        [(1, vec![1; 8]), (2, vec![2; BLOCK_VALUE_BYTES_MAX + 1]), (3, vec![3; 6 << 20]), (4, vec![4; 8])];
    let outcomes = fixture.write(&mut writer, WriteOperation::Put, &pairs);
    let texts = outcomes.iter().map(|outcome| outcome.as_ref().err().map(ToString::to_string));
    let texts: Vec<String> = texts.map(Option::unwrap_or_default).collect();
    let too_long = "key 2: a value of 16777225 B is longer than a block holds: at most 16777224 B";
    assert_eq!((&texts[0], &texts[1], &texts[3]), (&String::new(), &too_long.to_owned(), &String::new()));
    assert!(texts[2].starts_with("key 3: region 7 has no room for a block of 6299648 B: of 4194304 B"));
    let mut room = BlockRoom::default();
    let found: Vec<_> = (1..=4).map(|key| fixture.get(&mut room, key).is_some()).collect();
    assert_eq!(found, [true, false, false, true]);
}

fn compare_value(expected: &[u8], value: &[u8]) -> Vec<u8> {
    let mut operand = Vec::new();
    Operand::push_compare_value(&mut operand, expected, value);
    operand
}

#[test]
fn conditional_writes_look_at_the_block() {
    let fixture = Fixture::new(10, 4 << 20);
    let (mut writer, mut room) = (fixture.writer(), BlockRoom::default());
    let WriteOutcome::Inserted(first) = fixture.put(&mut writer, 5, b"before".to_vec()) else { panic!() };
    let live = fixture.tree.space().stats().live_bytes;
    let mut exchange = |operation, key, operand: Vec<u8>| {
        fixture.exchange(&mut writer, operation, &[(key, operand)], usize::MAX).remove(0)
    };
    let versioned = |version: u64, value: &[u8]| [&version.to_le_bytes()[..], value].concat();
    // What does not fit leaves all as it is, and its draft's memory is free again.
    let differs = (Ok(WriteOutcome::Differs(first)), None);
    assert_eq!(exchange(WriteOperation::CompareAndSet, 5, versioned(first + 1, b"no")), differs);
    for other in [&b""[..], b"befor", b"beforf", b"before "] {
        assert_eq!(exchange(WriteOperation::CompareAndSetValue, 5, compare_value(other, b"no")), differs);
    }
    let absent = (Ok(WriteOutcome::Absent), None);
    assert_eq!(exchange(WriteOperation::CompareAndSetValue, 6, compare_value(b"", b"no")), absent);
    assert_eq!(exchange(WriteOperation::CompareAndSet, 6, versioned(first, b"no")), absent);
    let (refused, old) = exchange(WriteOperation::FetchAdd, 5, 3_u64.to_le_bytes().to_vec());
    let text = "key 5: fetch-and-add wants integers of 8 B, the value has 6 B";
    assert_eq!((refused, old), (Err(text.to_owned()), None));
    assert_eq!(fixture.get(&mut room, 5), Some((first, b"before".to_vec())));
    assert_eq!(fixture.tree.space().stats().live_bytes, live);
    // What fits.
    let long = vec![7; 30_000];
    let (set, _) = exchange(WriteOperation::CompareAndSetValue, 5, compare_value(b"before", &long));
    let Ok(WriteOutcome::Replaced(second)) = set else { panic!("{set:?}") };
    let (set, _) = exchange(WriteOperation::CompareAndSet, 5, versioned(second, b""));
    let Ok(WriteOutcome::Replaced(third)) = set else { panic!("{set:?}") };
    let (swapped, old) = exchange(WriteOperation::Swap, 5, long.clone());
    assert!(matches!(swapped, Ok(WriteOutcome::Replaced(version)) if version > third));
    assert_eq!(old, Some(Vec::new()));
    assert_eq!(exchange(WriteOperation::Swap, 5, 9_u64.to_le_bytes().to_vec()).1, Some(long));
    for (before, addend) in [(9_u64, u64::MAX), (8, 5), (13, 0)] {
        let (_, old) = exchange(WriteOperation::FetchAdd, 5, addend.to_le_bytes().to_vec());
        assert_eq!(old, Some(before.to_le_bytes().to_vec()));
    }
    assert!(matches!(exchange(WriteOperation::Swap, 7, Vec::new()), (Ok(WriteOutcome::Inserted(_)), None)));
    let (added, old) = exchange(WriteOperation::FetchAdd, 8, 2_u64.to_le_bytes().to_vec());
    assert!(matches!((added, old), (Ok(WriteOutcome::Inserted(_)), None)));
    let value = |room: &mut BlockRoom, key| fixture.get(room, key).map(|(_, value)| value);
    assert_eq!(value(&mut room, 5), Some(13_u64.to_le_bytes().to_vec()));
    assert_eq!(value(&mut room, 8), Some(2_u64.to_le_bytes().to_vec()));
}

#[test]
fn swaps_end_before_the_one_whose_value_has_no_room() {
    let fixture = Fixture::new(10, 4 << 20);
    let (mut writer, mut room) = (fixture.writer(), BlockRoom::default());
    for (key, length) in [(1, 100), (2, 0), (3, 50), (4, 0)] {
        fixture.put(&mut writer, key, vec![key as u8; length]);
    }
    let swaps: Vec<_> = [1, 2, 9, 3, 4].map(|key| (key, vec![0; 3])).into();
    for (room_bytes, expected) in [(150, 5), (149, 3), (99, 0)] {
        let done = fixture.exchange(&mut writer, WriteOperation::Swap, &swaps, room_bytes);
        assert_eq!(done.len(), expected.min(5), "{room_bytes} B");
        for ((key, new), (outcome, old)) in swaps.iter().zip(&done) {
            assert_eq!(fixture.get(&mut room, *key).map(|(_, value)| value).as_ref(), Some(new));
            assert_eq!(old.is_some(), matches!(outcome, Ok(WriteOutcome::Replaced(_))));
        }
        // As before, for the next turn.
        for (key, length) in [(1, 100), (2, 0), (3, 50), (4, 0)] {
            fixture.put(&mut writer, key, vec![key as u8; length]);
        }
    }
}

/// Counters to which threads add, with a look at a block each, end at their sums.
#[test]
fn concurrent_additions_are_each_done_once() {
    const ADDITIONS: u64 = 20_000;
    let fixture = Fixture::new(10, 1 << 20);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let (mut writer, mut latest) = (fixture.writer(), 0);
                let one = 1_u64.to_le_bytes().to_vec();
                for _ in 0..ADDITIONS {
                    let done =
                        fixture.exchange(&mut writer, WriteOperation::FetchAdd, &[(1, one.clone())], 8);
                    let (outcome, old) = &done[0];
                    assert!(outcome.is_ok(), "{outcome:?}");
                    let old = old.as_ref().map_or(0, |old| u64::from_le_bytes(old[..].try_into().unwrap()));
                    assert!(old >= latest, "{old} after {latest}");
                    latest = old + 1;
                }
            });
        }
    });
    let found = fixture.get(&mut BlockRoom::default(), 1).map(|(_, value)| value);
    assert_eq!(found, Some((2 * ADDITIONS).to_le_bytes().to_vec()));
}

/// A value as long as any, in one piece.
#[test]
fn the_longest_value_comes_back() {
    let fixture = Fixture::new(10, 40 << 20);
    let (mut writer, mut room) = (fixture.writer(), BlockRoom::default());
    let value = value_of(7, 1, BLOCK_VALUE_BYTES_MAX as u64 / 8);
    fixture.put(&mut writer, 7, value.clone());
    fixture.put(&mut writer, 7, value.clone());
    assert_eq!(fixture.get(&mut room, 7).map(|(_, value)| value), Some(value));
}

/// Blocks of leaves that were filled, and of those that were being gathered.
#[test]
fn a_load_that_ends_early_leaves_neither_leaf_nor_block() {
    let mut rng = SplitMix64::fresh();
    for pairs in [0, 1, 12, 13, 200 + rng.below(200)] {
        let fixture = Fixture::new(100, 1 << 20);
        let mut writer = fixture.writer();
        let mut load = fixture.tree.tree().begin_bulk_load().expect("an empty tree");
        for key in 0..pairs {
            let value = vec![key as u8; rng.below(600) as usize];
            let reference = BlockTree::stage(&mut writer, key, &value).expect("a block");
            load.push(key, &reference).expect("a pair");
        }
        assert_eq!(fixture.tree.space().stats().live_bytes > 0, pairs > 0);
        drop(load);
        assert_eq!(fixture.tree.space().stats().live_bytes, 0, "{pairs} pairs");
        assert_eq!(fixture.tree.tree().slab().used_leaves(), 1, "{pairs} pairs");
    }
}

/// Writes of a log as a recovery applies them: over the block before where that has the same size. Blocks
/// that lie in the wrong place, or in two, show as a wrong value, or as memory that is live and nobody names.
#[test]
fn blocks_are_written_over_by_newer_ones_of_their_size_alone() {
    let mut rng = SplitMix64::fresh();
    let fixture = Fixture::new(256, 8 << 20);
    let (mut writer, mut model, mut over) = (fixture.writer(), Model::new(), 0);
    for step in 1_000..21_000 {
        // Not always in their order.
        let (key, version) = (rng.below(300), step - rng.below(1_000));
        let bytes = [100, 120, 600][rng.below(3) as usize] + rng.below(4) as usize;
        let value = vec![version as u8; bytes];
        let before = model.get(&key);
        let is_newer = before.is_none_or(|(before, _)| *before < version);
        let slot = (rng.below(2) == 0).then(|| rng.below(20) as usize);
        let write = |value| VersionedWrite { key, version, value, hint: LeafNumber::NONE, slot };
        if rng.below(20) == 0 {
            fixture.tree.apply(&mut writer, write(None)).expect("a removal");
            if is_newer {
                model.remove(&key);
            }
            continue;
        }
        let lines = |value: &[u8]| block_lines(8, value.len());
        let has_place = before.is_some_and(|(_, before)| is_newer && lines(before) == lines(&value));
        let live_bytes = fixture.tree.space().stats().live_bytes;
        let is_over = fixture.tree.write_over(write(Some(&value))).expect("a write");
        assert_eq!(is_over, has_place, "key {key}, version {version}");
        if is_over {
            over += 1;
            assert_eq!(fixture.tree.space().stats().live_bytes, live_bytes, "memory of key {key}");
        } else {
            let staged = BlockTree::stage(&mut writer, key, &value).expect("a block");
            fixture.tree.apply(&mut writer, write(Some(&staged))).expect("a write");
        }
        if is_newer {
            model.insert(key, (version, value));
        }
    }
    assert!(over > 1_000, "{over} written over");
    let pool: Vec<u64> = (0..300).collect();
    fixture.check(&model, &pool, &mut rng);
}

/// The checkers checked. `RUSTFLAGS="--cfg injected" cargo test`.
#[cfg(injected)]
mod injected {
    use farsight_base::injection::assert_found;

    use super::*;

    #[test]
    fn blocks_of_a_load_that_outlive_it_are_found() {
        assert_found(
            &farsight_index_xstore::injected::LOADED_BLOCKS_KEPT,
            a_load_that_ends_early_leaves_neither_leaf_nor_block,
        );
    }

    #[test]
    fn a_block_that_is_written_over_and_given_back_is_found() {
        assert_found(
            &farsight_index_xstore::injected::OWN_BLOCK_RETIRED,
            blocks_are_written_over_by_newer_ones_of_their_size_alone,
        );
    }
}

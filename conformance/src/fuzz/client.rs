//! A client whose server answers anything, over a region of anything: its cache takes no harm, every
//! operation ends, and what it answers without a call stands in some leaf.

use farsight_base::{LeafNumber, Line};
use farsight_index::{Access, Answers, Direction, EngineKind, OldValues, Pairs, ScanRequest, record_of};
use farsight_index_xstore::client::{XCache, XClient};
use farsight_layout::{FORMAT_VERSION, Geometry, KEY_LINES, KeySearch, SubModelRecord, TableEntry};
use farsight_model::{TopKind, TrainOptions, train};
use farsight_protocol::{
    KeyKind, PoolPlace, RegionInfo, ReplyWriter, Space, TableDefinition, TableId, TableInfo, WriteOperation,
    WriteOutcome,
};

use super::garbage_queue::{GarbageQueue, META};
use super::leaf::{VALUE_SIZES, lines, search, value};
use super::published;
use super::source::Source;

const LEAVES_MAX: usize = 12;
/// Keys that belong to one leaf.
const LEAF_KEYS: u64 = 16;
const INCARNATION: u32 = 7;
/// Operations of one run.
const STEPS_MAX: usize = 12;

pub(super) fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let value_bytes = VALUE_SIZES[source.below(8)];
    let leaves = 1 + source.below(LEAVES_MAX);
    let geometry = Geometry::new(value_bytes).expect("a size of the format");
    let region = region(&mut source, &geometry, leaves);
    let access = if source.below(8) == 0 { Access::Rpc } else { Access::OneSided };
    let meta = published::region(&mut Source::new(&data[data.len() / 3..]), leaves);
    let mut client = client(&geometry, leaves, access, meta.len() as u32);
    let mut queue = GarbageQueue::new(region);
    if let Some(bytes) = published::budget_bytes(&meta) {
        client.cache().set_budget_bytes(bytes).expect("memory");
    }
    queue.meta = meta;
    let is_filled = source.below(4) != 0;
    // A client whose server searches has no model.
    if is_filled && access == Access::OneSided && client.cache().budget_bytes() == u64::MAX {
        prefill(&mut client, &mut queue, leaves);
    }
    for _ in 0..STEPS_MAX {
        if source.is_empty() {
            return;
        }
        for _ in 0..source.below(5) {
            let reply = reply(&mut source, leaves, value_bytes);
            queue.replies.push_back(reply);
        }
        step(&mut source, &mut client, &mut queue, &geometry);
        queue.meters = farsight_fabric::Meters::default();
        queue.replies.clear();
    }
}

/// A client of a table of so many leaves that knows nothing yet, beside a region of models of so many lines,
/// if any.
pub(super) fn client(geometry: &Geometry, leaves: usize, access: Access, meta_lines: u32) -> XClient {
    let leaves_region = RegionInfo { space: Space::Leaves, id: 1, capacity: u32::MAX };
    let meta_region = RegionInfo { space: Space::Meta, id: META.0, capacity: meta_lines };
    let has_meta = meta_lines > 0;
    let table = TableInfo {
        id: TableId(0),
        definition: TableDefinition::new("t", KeyKind::U64, geometry.value_bytes() as u16),
        engine: EngineKind::XSTORE.table(&[], 1),
        block_lines: geometry.leaf_lines() as u16,
        format_version: FORMAT_VERSION,
        place: PoolPlace { epochs: vec![1], index: 0 },
        regions: std::iter::once(leaves_region).chain(has_meta.then_some(meta_region)).collect(),
    };
    let cache = XCache::new(&table, (leaves * geometry.leaf_bytes()) as u64).expect("a size of the format");
    XClient::new(cache, access)
}

fn step(source: &mut Source<'_>, client: &mut XClient, queue: &mut GarbageQueue, geometry: &Geometry) {
    match source.below(4) {
        0 => {
            let scans: Vec<ScanRequest> = (0..=source.below(9))
                .map(|_| ScanRequest { from: source.key(), limit: source.below(40) })
                .collect();
            let mut pairs = Pairs::default();
            let direction = Direction::ALL[source.below(2)];
            if client.scan_batch(queue, direction, &scans, &mut pairs).is_ok() {
                check_scans(direction, &scans, &pairs);
            }
        }
        1 => {
            let operation = WriteOperation::ALL[source.below(WriteOperation::ALL.len())];
            let (value_bytes, count) = (geometry.value_bytes(), source.below(8));
            let operand_bytes = operation.operand_bytes(value_bytes);
            let entries: Vec<(u64, Vec<u8>)> =
                (0..count).map(|_| (source.key(), source.value(operand_bytes))).collect();
            let borrowed = entries.iter().map(|(key, operand)| (*key, operand.as_slice()));
            let (mut outcomes, mut old_values) = (Vec::<WriteOutcome>::new(), OldValues::default());
            if client.write(queue, operation, borrowed, &mut outcomes, &mut old_values).is_ok() {
                assert_eq!(outcomes.len(), entries.len());
            }
            let returned = if operation.returns_value() { outcomes.len() } else { 0 };
            assert_eq!(old_values.len(), returned, "values before");
            let mut lengths = (0..returned).map(|index| old_values.get(index).map(<[u8]>::len));
            assert!(lengths.all(|length| length == Some(value_bytes)), "values before");
        }
        // Whatever the server sends: an error, or more or less of a model.
        2 => drop(client.prefill(queue)),
        _ => {
            let keys: Vec<u64> = (0..=source.below(70)).map(|_| source.key()).collect();
            let mut answers = Answers::default();
            if client.multi_get(queue, &keys, &mut answers).is_ok() {
                assert_eq!(answers.len(), keys.len());
                if queue.meters.calls == 0 {
                    check_answers(&keys, &answers, geometry, &queue.lines);
                }
            }
        }
    }
}

/// Each scan has at most its limit of pairs, none from before where it began, and in order. (A leaf of
/// garbage may have equal keys.)
fn check_scans(direction: Direction, scans: &[ScanRequest], pairs: &Pairs) {
    assert_eq!(pairs.scans(), scans.len());
    for (index, scan) in scans.iter().enumerate() {
        let keys: Vec<u64> = pairs.scan(index).map(|pair| pair.key).collect();
        assert!(keys.len() <= scan.limit, "{scan:?}: {keys:?}");
        let is_early = |key: &u64| direction.is_behind(scan.from, *key);
        let is_in_order = keys.is_sorted_by(|one, other| !direction.is_behind(*one, *other));
        assert!(!keys.iter().any(is_early) && is_in_order, "{direction:?}, {scan:?}: {keys:?}");
    }
}

/// Some leaf of the region says what each answer says.
fn check_answers(keys: &[u64], answers: &Answers, geometry: &Geometry, region: &[Line]) {
    for (key, answer) in keys.iter().zip(answers.iter()) {
        let says = |leaf: &[Line]| {
            let key_lines = leaf.first_chunk::<KEY_LINES>().expect("a leaf has a key part");
            match (search(key_lines, *key), answer) {
                (KeySearch::Absent, None) => true,
                (KeySearch::Hit { slot, incarnation }, Some((bytes, version))) => {
                    value(geometry, leaf, slot.number(), incarnation) == Some((version, bytes.to_vec()))
                }
                _ => false,
            }
        };
        assert!(region.chunks(geometry.leaf_lines()).any(says), "key {key}: no leaf says {answer:?}");
    }
}

/// Leaves of any bytes, most of them repaired into a chain of leaves of [`LEAF_KEYS`] keys, a few of those
/// with a word wrong.
fn region(source: &mut Source<'_>, geometry: &Geometry, leaves: usize) -> Vec<Line> {
    let mut region = Vec::new();
    for leaf in 0..leaves as u64 {
        let shape = source.byte();
        let bytes = source.take(40);
        let mut lines = lines(bytes, geometry.leaf_lines());
        let low = leaf * LEAF_KEYS;
        if shape & 7 != 0 {
            for (index, line) in lines.iter_mut().enumerate() {
                let occupancy = if index < KEY_LINES { 0xaa } else { 0 };
                line.0[0] = occupancy << 56 | u64::from(INCARNATION) << 32 | 4;
                if index < KEY_LINES {
                    line.0[1..].iter_mut().for_each(|word| *word = low + *word % LEAF_KEYS);
                }
            }
            let is_last = leaf + 1 == leaves as u64;
            let header = [(leaf + 1) | u64::from(is_last) << 32, low, low + LEAF_KEYS];
            lines[0].0[1..4].copy_from_slice(&header);
        }
        if shape & 0x70 == 0 {
            let word = source.below(geometry.leaf_words());
            lines[word / 8].0[word % 8] = source.key() | u64::from(source.byte()) << 32;
        }
        region.extend(lines);
    }
    region
}

/// Has the client fetch the model of an undamaged region.
pub(super) fn prefill(client: &mut XClient, queue: &mut GarbageQueue, leaves: usize) {
    let fences: Vec<u64> = (0..leaves as u64).map(|leaf| leaf * LEAF_KEYS).collect();
    let options = TrainOptions { top: TopKind::Radix, target_leaves_per_sub_model: 3 };
    let trained = train(&fences, options).expect("ascending fences");
    let mut frame = Vec::new();
    let mut writer = ReplyWriter::new(&mut frame);
    let words = trained.top.to_words();
    writer.set(words.len() as u32, 1);
    writer.push_words(words);
    queue.replies.push_back(frame.clone());
    let mut writer = ReplyWriter::new(&mut frame);
    writer.set(trained.sub_models.len() as u32, 1);
    for (index, sub_model) in trained.sub_models.iter().enumerate() {
        let leaves = sub_model.first_leaf..sub_model.first_leaf + sub_model.model.leaf_count as usize;
        let entry = |leaf: usize| {
            let hint = sub_model.model.leaf_hint(fences[leaf]);
            TableEntry::new(LeafNumber(leaf as u32), hint).0
        };
        let entries: Vec<u64> = leaves.map(entry).collect();
        writer.push_sub_model(index as u32, &record_of(&sub_model.model), &entries);
    }
    writer.push_words([0]);
    queue.replies.push_back(frame);
    client.prefill(queue).expect("a good model is taken");
    assert_eq!(client.cache().stats().sub_models_filled, trained.sub_models.len() as u64);
}

/// A reply that fits the next call well, a little, or not at all.
fn reply(source: &mut Source<'_>, leaves: usize, value_bytes: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    let kind = source.below(5);
    let generation = u64::from(source.byte() % 3);
    let mut writer = ReplyWriter::new(&mut frame);
    match kind {
        0 => {
            let length_bytes = source.below(64);
            return source.take(length_bytes).to_vec();
        }
        1 => {
            let strides = [1, 7, 1 << 40];
            let fences: Vec<u64> =
                (0..=source.below(40) as u64).map(|leaf| leaf * strides[source.below(3)]).collect();
            let options = TrainOptions { top: TopKind::Radix, target_leaves_per_sub_model: 3 };
            let mut words = train(&fences, options).map_or(Vec::new(), |model| model.top.to_words());
            if source.below(4) == 0 && !words.is_empty() {
                let at = source.below(words.len());
                words[at] ^= source.word();
            }
            let first = source.below(2) * source.below(words.len() + 1);
            writer.set(words.len() as u32, generation);
            writer.push_words(words[first..].iter().copied());
        }
        2 => {
            writer.set(1, generation);
            push_sub_models(source, &mut writer, leaves);
            writer.push_words([source.key()]);
        }
        3 => {
            writer.set(1, generation);
            let value = source.value(value_bytes);
            writer.push_value(u64::from(source.byte()), &value);
            push_sub_models(source, &mut writer, leaves);
        }
        _ => {
            let count = source.below(20);
            writer.set(count as u32, u64::from(source.byte() % 2));
            for _ in 0..count {
                let (key, value) = (source.key(), source.value(value_bytes));
                writer.push_pair(key, u64::from(source.byte()), &value);
            }
        }
    }
    frame
}

/// Sub-models and branches, whose numbers may be the top model's, those of others, or too great.
fn push_sub_models(source: &mut Source<'_>, writer: &mut ReplyWriter<'_>, leaves: usize) {
    for _ in 0..source.below(4) {
        let index = source.below(12) as u32;
        if source.below(3) == 0 {
            let children: Vec<u32> = (0..=source.below(3)).map(|_| source.below(12) as u32).collect();
            let boundaries: Vec<u64> = (1..children.len()).map(|_| source.key()).collect();
            writer.push_branch(index, &boundaries, &children);
            continue;
        }
        let words = [source.key(), source.word(), source.word() & !(0xff_fff0 << 32)];
        let record = SubModelRecord::from_words(words);
        let entries: Vec<u64> = (0..record.leaf_count)
            .map(|_| {
                let beyond = usize::from(source.byte() == 0xff);
                let leaf = source.below(leaves + beyond);
                TableEntry::new(LeafNumber(leaf as u32), source.half() as u16).0
            })
            .collect();
        writer.push_sub_model(index, &record, &entries);
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let seed = |shape: u8| {
        let steps = (0..700_u16).map(move |byte| (byte.wrapping_mul(u16::from(shape) * 2 + 1) >> 1) as u8);
        [shape, shape * 3].into_iter().chain(steps).collect()
    };
    // Whole leaves, a good model, then GETs of a few keys.
    let gets = |shape: u8| {
        let leaf = (0..41_u8).map(move |byte| if byte == 0 { 0x11 } else { byte.wrapping_mul(29 + shape) });
        let keys = (0..9_u8).map(move |key| key.wrapping_mul(7 + shape));
        let step = [0, 3, 8].into_iter().chain(keys);
        let steps = std::iter::repeat_n(step, 6).flatten();
        [shape, 3]
            .into_iter()
            .chain(std::iter::repeat_n(leaf, 4).flatten())
            .chain([1, 1])
            .chain(steps)
            .collect()
    };
    // A linear top model of 2^32 - 1 sub-models: five words that ask for 128 GiB.
    let mut huge = Vec::new();
    let mut writer = ReplyWriter::new(&mut huge);
    writer.set(5, 1);
    writer.push_words([1, u64::from(u32::MAX), 0, 0, 0]);
    let length_bytes = huge.len() as u8;
    let one_leaf = [0, 0, 0].into_iter().chain([0; 40]).chain([0; 3]);
    let greedy = one_leaf.chain([1, 4, 1, 0, 0, length_bytes]).chain(huge).chain([2]).collect();
    (0..16).map(seed).chain((0..8).map(gets)).chain([greedy]).collect()
}

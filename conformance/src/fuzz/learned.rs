//! A pool's learned index: group images and directories from anyone, and trained ones on their way.

use farsight_base::{LeafNumber, WORDS_PER_LINE};
use farsight_layout::learned::{
    DIRECTORY_SLOT_WORDS, Directory, DirectoryShape, DirectorySlot, GroupEntry, GroupImage, GroupPointer,
    GroupTime, SEGMENT_WORDS,
};
use farsight_model::{ErrorBound, Segment, fit_segments, segment_of};

use super::source::Source;

const BOUND: ErrorBound = ErrorBound { records: 8, slots: 16 };

/// Words that decode are those that the decoded encodes to; and whatever leaves a group has, its image comes
/// back from its words and keeps the model's promise.
pub(super) fn run(data: &[u8]) {
    let words: Vec<u64> = data.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    if let Ok(image) = GroupImage::from_words(&words) {
        assert_eq!(image.to_words(), words);
    }
    directory(&words);
    for words in words.as_chunks::<SEGMENT_WORDS>().0 {
        if let Some(segment) = Segment::from_words(*words) {
            assert_eq!(segment.to_words(), *words);
        }
    }
    trained(&mut Source::new(data));
}

/// The words of a directory: its head, and its slots right behind.
fn directory(words: &[u64]) {
    let Ok(shape) = DirectoryShape::of_header(words) else { return };
    let Some((head, slots)) = words.split_at_checked(shape.head_lines() * WORDS_PER_LINE) else { return };
    if let Ok(directory) = Directory::from_words(head, slots) {
        assert_eq!((directory.shape(), &*directory.head_words()), (shape, head));
        // Behind the last slot the line may hold anything.
        let used = shape.groups() * DIRECTORY_SLOT_WORDS;
        assert_eq!(directory.slot_words()[..used], slots[..used]);
    }
}

fn trained(source: &mut Source<'_>) {
    let time = GroupTime { generation: source.half(), splits: source.half() };
    let mut fences = vec![source.key()];
    while !source.is_empty() && fences.len() < 200 {
        fences.push(fences[fences.len() - 1].saturating_add(source.key() >> source.below(64)));
    }
    fences.dedup();
    let segments = fit_segments(&fences, BOUND);
    let count = fences.len() as u32;
    let entry = |(position, fence): (usize, &u64)| {
        let hint = segment_of(&segments, count, *fence, |segment| *segment).0.leaf_hint(*fence);
        GroupEntry::new(LeafNumber(position as u32), hint)
    };
    let entries = fences.iter().enumerate().map(entry).collect();
    let image = GroupImage { time, segments: segments.iter().map(Segment::to_words).collect(), entries };
    let image = GroupImage::from_words(&image.to_words()).expect("an encoded image decodes");
    assert_eq!(image.time, time);
    let decoded: Option<Vec<Segment>> = image.segments.into_iter().map(Segment::from_words).collect();
    let segments = decoded.expect("trained segments decode");
    for key in fences.iter().flat_map(|fence| [*fence, fence.saturating_add(1), fence.saturating_sub(1)]) {
        let key = key.max(fences[0]);
        let owner = fences.partition_point(|fence| *fence <= key) as u32 - 1;
        let (segment, end) = segment_of(&segments, count, key, |segment| *segment);
        let hint_at = |position: u32| image.entries[position as usize].hint();
        let chosen = segment.choose(key, segment.predict(key, end, BOUND).window, hint_at);
        assert!(chosen.contains(&owner), "key {key}: leaf {owner} is not in {chosen:?}");
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let bytes = |words: Vec<u64>| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let fences: Vec<u64> = (0..60).map(|leaf: u64| leaf * leaf * 1_000_003).collect();
    let segments: Vec<_> = fit_segments(&fences, BOUND).iter().map(Segment::to_words).collect();
    let time = GroupTime { generation: 3, splits: 4 };
    let entries = (0..60).map(|leaf| GroupEntry::new(LeafNumber(leaf), leaf * 9)).collect();
    let slots = vec![DirectorySlot { pointer: GroupPointer::new(8, 3, 1), splits: 5 }; 3];
    let directory = Directory { number: 2, capacity: 16, boundaries: vec![0, 77, 1 << 60], slots };
    vec![
        bytes(GroupImage { time, segments: segments.clone(), entries }.to_words()),
        bytes([directory.head_words(), directory.slot_words()].concat()),
        bytes(segments.into_iter().flatten().collect()),
        (0..200).map(|byte: u8| byte.wrapping_mul(37)).collect(),
    ]
}

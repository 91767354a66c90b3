//! Directories and group images: what is written comes back, and nothing else is believed.

use farsight_base::LeafNumber;
use farsight_base::prng::SplitMix64;
use farsight_layout::learned::{
    DIRECTORY_GROUPS_MAX, Directory, DirectoryShape, DirectorySlot, GroupEntry, GroupImage, GroupPointer,
    GroupTime, RootWord,
};

fn image(random: &mut SplitMix64) -> GroupImage {
    let leaves = 1 + random.below(40) as usize;
    let segments = 1 + random.below(leaves as u64) as usize;
    let mut half = || random.next_u64() as u32;
    let time = GroupTime { generation: half(), splits: half() };
    let entries = (0..leaves).map(|_| GroupEntry::new(LeafNumber(half()), half())).collect();
    let segments = (0..segments).map(|_| [0; 3].map(|_: u64| random.next_u64())).collect();
    GroupImage { time, segments, entries }
}

fn directory(random: &mut SplitMix64) -> Directory {
    let groups = 1 + random.below(20) as usize;
    let boundaries = (0..groups as u64).map(|group| group << 40).collect();
    let mut slot = || DirectorySlot { pointer: GroupPointer(random.next_u64()), splits: random.next_u64() };
    let slots = (0..groups).map(|_| slot()).collect();
    let capacity = DirectoryShape::new(groups, 1 << random.below(7)).capacity();
    Directory { number: 7, capacity, boundaries, slots }
}

#[test]
fn what_is_written_comes_back_and_one_bit_more_or_less_does_not() {
    let mut random = SplitMix64::new(5);
    for _ in 0..200 {
        let image = image(&mut random);
        let mut words = image.to_words();
        assert!(words.len().is_multiple_of(8));
        assert_eq!(GroupImage::from_words(&words).as_ref(), Ok(&image));
        for _ in 0..60 {
            let bit = random.below(words.len() as u64 * 64) as usize;
            words[bit / 64] ^= 1 << (bit % 64);
            assert!(GroupImage::from_words(&words).is_err(), "bit {bit} is believed");
            words[bit / 64] ^= 1 << (bit % 64);
        }
        let end = random.below(words.len() as u64) as usize;
        assert!(GroupImage::from_words(&words[..end]).is_err(), "{end} words are believed");
        words.extend([0; 8]);
        assert!(GroupImage::from_words(&words).is_err(), "a line more is believed");
    }
}

#[test]
fn directories_come_back_and_their_boundaries_are_checked() {
    let mut random = SplitMix64::new(6);
    for _ in 0..200 {
        let directory = directory(&mut random);
        let (mut head, mut slots) = (directory.head_words(), directory.slot_words());
        let shape = directory.shape();
        assert_eq!(DirectoryShape::of_header(&head[..8]), Ok(shape));
        assert_eq!((shape.head_lines() * 8, shape.slot_lines() * 8), (head.len(), slots.len()));
        assert!(shape.head_lines() * 8 <= shape.slot_word(0) && shape.capacity() == directory.capacity);
        assert_eq!(shape.slot_word(shape.capacity() as usize), shape.run_lines() * 8);
        assert_eq!(Directory::from_words(&head, &slots).as_ref(), Ok(&directory));
        for (group, slot) in directory.slots.iter().enumerate() {
            let at = shape.slot_word(group) - shape.slot_word(0);
            assert_eq!(slots[at..at + 2], [slot.pointer.0, slot.splits]);
        }
        let bit = random.below((8 + shape.groups() as u64) * 64) as usize;
        head[bit / 64] ^= 1 << (bit % 64);
        assert!(Directory::from_words(&head, &slots).is_err(), "bit {bit} is believed");
        head[bit / 64] ^= 1 << (bit % 64);
        slots.extend([0; 8]);
        assert!(Directory::from_words(&head, &slots).is_err(), "a line more is believed");
    }
    let of = |boundaries: Vec<u64>| {
        let slots = vec![DirectorySlot::default(); boundaries.len()];
        let directory = Directory { number: 1, capacity: 8, boundaries, slots };
        Directory::from_words(&directory.head_words(), &directory.slot_words())
    };
    let error = of(vec![0, 9, 9]).expect_err("boundaries must increase");
    assert_eq!(error.to_string(), "directory: boundary: expected 0x9, got 0x9");
    assert!(of(vec![1]).is_err());
    let error = |header: &[u64]| DirectoryShape::of_header(header).expect_err("no directory").what;
    assert_eq!((error(&[0; 7]), error(&[0; 8])), ("words of the header", "magic"));
}

/// The slots of every directory in a run of one capacity are the same words.
#[test]
fn capacities_are_powers_of_two_and_never_shrink() {
    for (groups, least, capacity) in
        [(1, 0, 8), (8, 8, 8), (9, 8, 16), (3, 64, 64), (65, 64, 128), (DIRECTORY_GROUPS_MAX, 8, 1 << 24)]
    {
        let shape = DirectoryShape::new(groups, least);
        assert_eq!((shape.groups(), shape.capacity()), (groups, capacity));
        assert_eq!(shape.slot_word(1), DirectoryShape::new(1, capacity).slot_word(1));
    }
    for (groups, capacity) in [(9, 8), (1, 4), (1, 12), (1, 1 << 25)] {
        let slots = vec![DirectorySlot::default(); groups];
        let boundaries = (0..groups as u64).collect();
        let header = Directory { number: 1, capacity: 16, boundaries, slots }.head_words();
        let header = [header[0], 1 | capacity << 32, 0, 0, 0, 0, 0, 0];
        let error = DirectoryShape::of_header(&header).expect_err("a wrong capacity");
        assert_eq!((error.what, error.got), ("capacity", capacity));
    }
}

#[test]
fn pointers_and_roots_come_back() {
    let pointer = GroupPointer::new(u32::MAX, 4095, 0x0abc_def1);
    assert_eq!((pointer.line(), pointer.lines()), (u32::MAX, 4095));
    assert!(pointer.names(0x0abc_def1) && pointer.names(0x4_def1) && !pointer.names(0x0abc_def2));
    assert!(!pointer.is_frozen() && pointer.frozen().is_frozen() && pointer.frozen().thawed() == pointer);
    assert!(pointer.frozen().names(0x0abc_def1) && pointer.frozen().lines() == 4095);
    let root = RootWord::new(0, 3);
    assert_eq!((root.line(), root.number()), (Some(0), 3));
    assert_eq!(RootWord::default().line(), None);
}

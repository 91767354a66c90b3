//! Directories and group images: what is written comes back, and nothing else is believed.

use farsight_base::LeafNumber;
use farsight_base::prng::SplitMix64;
use farsight_layout::learned::{
    Directory, DirectorySlot, GroupEntry, GroupImage, GroupPointer, GroupTime, RootWord,
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
    Directory { number: 7, boundaries, slots }
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
        let mut words = directory.to_words();
        assert_eq!(Directory::lines(&words[..8]), Ok(words.len() / 8));
        assert_eq!(Directory::from_words(&words).as_ref(), Ok(&directory));
        let groups = directory.boundaries.len();
        for (group, slot) in directory.slots.iter().enumerate() {
            let at = Directory::slot_word(groups, group);
            assert_eq!(words[at..at + 2], [slot.pointer.0, slot.splits]);
        }
        let bit = random.below((8 + groups as u64) * 64) as usize;
        words[bit / 64] ^= 1 << (bit % 64);
        assert!(Directory::from_words(&words).is_err(), "bit {bit} is believed");
    }
    let swapped =
        Directory { boundaries: vec![0, 9, 9], slots: vec![DirectorySlot::default(); 3], number: 1 };
    let error = Directory::from_words(&swapped.to_words()).expect_err("boundaries must increase");
    assert_eq!(error.to_string(), "directory: boundary: expected 0x9, got 0x9");
    let late = Directory { boundaries: vec![1], slots: vec![DirectorySlot::default()], number: 1 };
    assert!(Directory::from_words(&late.to_words()).is_err());
    assert_eq!(Directory::lines(&[0; 7]).expect_err("too short").what, "words of the header");
    assert_eq!(Directory::lines(&[0; 8]).expect_err("zeros").what, "magic");
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

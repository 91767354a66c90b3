//! A space against a model: no two blocks overlap, bytes add up, and what is given back is used anew.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::{LINE_BYTES, RegionId};
use farsight_blocks::{BlockSpace, BlockStats, BlockWriter};
use farsight_fabric::{FabricError, Region};
use farsight_layout::value_block::{BlockPlace, BlockRef};
use proptest::collection::vec;
use proptest::prelude::*;

/// Words, of which so many bytes can be written at first and at most.
struct Memory {
    words: Vec<AtomicU64>,
    writable_bytes: AtomicU64,
    most_bytes: u64,
}

impl Memory {
    fn new(bytes: u64, most_bytes: u64) -> Arc<Self> {
        let words = (0..bytes / 8).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { words, writable_bytes: AtomicU64::new(0), most_bytes })
    }
}

impl Region for Memory {
    fn id(&self) -> RegionId {
        RegionId(4)
    }
    fn words(&self) -> &[AtomicU64] {
        &self.words
    }
    fn grow_to(&self, used_bytes: u64) -> Result<(), FabricError> {
        if used_bytes > self.most_bytes {
            return Err(FabricError::Forked);
        }
        self.writable_bytes.fetch_max(used_bytes, Ordering::Relaxed);
        Ok(())
    }
    fn huge_page_bytes(&self) -> u64 {
        0
    }
    fn collapse_to_huge_pages(&self, _used_bytes: u64) -> u64 {
        0
    }
}

const SPACE: u8 = 5;

fn space(bytes: u64) -> (Arc<Memory>, Arc<BlockSpace>) {
    let region = Memory::new(bytes, u64::MAX);
    let space = BlockSpace::new(Arc::clone(&region) as Arc<dyn Region>, SPACE, u64::MAX);
    (region, Arc::new(space))
}

/// A writer's blocks by their first lines, each with a number of its own in every word.
struct Owner {
    writer: BlockWriter,
    blocks: BTreeMap<u64, (BlockPlace, u64)>,
    next: u64,
}

impl Owner {
    fn new(space: &Arc<BlockSpace>, first: u64) -> Self {
        Self { writer: BlockWriter::new(Arc::clone(space)), blocks: BTreeMap::new(), next: first }
    }

    fn space(&self) -> &Arc<BlockSpace> {
        self.writer.space()
    }

    /// Takes a block and marks it. Returns its place; `None` if there is no room.
    fn allocate(&mut self, lines: u32) -> Option<BlockPlace> {
        let place = self.writer.allocate(lines).ok()?;
        assert_eq!((place.lines, place.space), (lines, SPACE));
        for word in self.space().words(place).expect("words of the region") {
            word.store(self.next, Ordering::Relaxed);
        }
        assert!(self.blocks.insert(place.offset_lines, (place, self.next)).is_none());
        self.next += 1;
        Some(place)
    }

    /// Forgets a block, whose words are as they were marked.
    fn take(&mut self, index: usize) -> Option<BlockPlace> {
        let key = *self.blocks.keys().nth(index % self.blocks.len().max(1))?;
        let (place, mark) = self.blocks.remove(&key)?;
        let words = self.space().words(place).expect("words of the region");
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == mark), "{place:?} was overwritten");
        Some(place)
    }

    fn live_lines(&self) -> u64 {
        self.blocks.values().map(|(place, _)| u64::from(place.lines)).sum()
    }
}

fn check_sums(stats: BlockStats) {
    let BlockStats { live_bytes, free_bytes, quarantined_bytes, lost_bytes, used_bytes, limit_bytes } = stats;
    assert_eq!(live_bytes + free_bytes + quarantined_bytes + lost_bytes, used_bytes, "{stats:?}");
    assert!(used_bytes <= limit_bytes, "{stats:?}");
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(u32),
    Retire(usize),
    GiveBack(usize),
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (1..40_u32).prop_map(Step::Allocate),
        2 => (1..1_100_u32).prop_map(Step::Allocate),
        1 => (1_000..9_000_u32).prop_map(Step::Allocate),
        4 => any::<usize>().prop_map(Step::Retire),
        1 => any::<usize>().prop_map(Step::GiveBack),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn blocks_do_not_overlap_and_bytes_add_up(steps in vec((0..2_usize, steps()), 1..300)) {
        let (region, space) = space(8 << 20);
        let mut owners = [Owner::new(&space, 0), Owner::new(&space, 1 << 32)];
        let mut last_retired: Option<BlockPlace> = None;
        for (owner, step) in steps {
            match step {
                Step::Allocate(lines) => {
                    let is_roomy = space.stats().used_bytes < 4 << 20;
                    let place = owners[owner].allocate(lines);
                    prop_assert!(place.is_some() || !is_roomy);
                    if let (Some(place), Some(last), true) = (place, last_retired, is_roomy) {
                        let ends = |place: BlockPlace| place.offset_lines + u64::from(place.lines);
                        let is_apart = ends(place) <= last.offset_lines || ends(last) <= place.offset_lines;
                        prop_assert!(is_apart, "{:?} was just retired, {:?}", last, place);
                    }
                }
                Step::Retire(index) => {
                    if let Some(place) = owners[owner].take(index) {
                        space.retire(place);
                        last_retired = Some(place);
                    }
                }
                Step::GiveBack(index) => {
                    if let Some(place) = owners[owner].take(index) {
                        owners[owner].writer.give_back(place);
                    }
                }
            }
            let stats = space.stats();
            check_sums(stats);
            let live: u64 = owners.iter().map(Owner::live_lines).sum();
            prop_assert_eq!(stats.live_bytes, live * LINE_BYTES as u64);
            prop_assert!(stats.used_bytes <= region.writable_bytes.load(Ordering::Relaxed));
        }
        for mut owner in owners {
            while let Some(place) = owner.take(0) {
                space.retire(place);
            }
        }
        // Slabs have become pages again, and all pages are one run.
        let limit_bytes = space.stats().limit_bytes;
        let mut all = Owner::new(&space, 7);
        prop_assert!(all.allocate((limit_bytes / LINE_BYTES as u64) as u32).is_some());
        let stats = space.stats();
        check_sums(stats);
        prop_assert_eq!((stats.live_bytes, stats.used_bytes), (limit_bytes, limit_bytes));
    }
}

#[test]
fn places_come_from_quarantine_in_the_order_in_which_they_went_in() {
    let (_, space) = space(8 << 20);
    let mut owner = Owner::new(&space, 0);
    let mut waiting = VecDeque::new();
    let mut last = 0;
    for _ in 0..40_000 {
        let place = owner.allocate(3).expect("room");
        assert!(!waiting.contains(&place.offset_lines), "a block of the quarantine");
        owner.take(0);
        space.retire(place);
        waiting.push_back(place.offset_lines);
        // What the quarantine holds: 4,096 lines at most, and one less place than that.
        let held = space.stats().quarantined_bytes as usize / (3 * LINE_BYTES);
        assert!(held >= waiting.len().min(1_360), "{held} places wait");
        while waiting.len() > held {
            waiting.pop_front();
        }
        last = last.max(place.offset_lines);
    }
    assert!(last < 3 * 4096, "{last}: places are used anew");
    check_sums(space.stats());
}

#[test]
fn a_full_space_names_limit_and_block_and_quarantine_is_no_reason_to_refuse() {
    let (_, space) = space(1 << 20);
    let mut owner = Owner::new(&space, 0);
    while owner.allocate(1024).is_some() {}
    let error = owner.writer.allocate(1025).expect_err("a full space").to_string();
    assert_eq!(
        error,
        "region 4 has no room for a block of 73728 B: of 1048576 B 1048576 are used, 1048576 by blocks"
    );
    let place = owner.take(3).expect("a block");
    space.retire(place);
    assert!(space.stats().quarantined_bytes > 0);
    assert_eq!(owner.allocate(1000), Some(BlockPlace { lines: 1000, ..place }));
    check_sums(space.stats());
}

#[test]
fn memory_that_the_system_does_not_give_is_a_refusal_by_name() {
    let region = Memory::new(1 << 20, 300_000);
    let space = Arc::new(BlockSpace::new(Arc::clone(&region) as Arc<dyn Region>, SPACE, 1 << 20));
    let mut owner = Owner::new(&space, 0);
    while owner.allocate(128).is_some() {}
    assert!(owner.blocks.len() >= 24, "{} blocks", owner.blocks.len());
    let error = owner.writer.allocate(128).expect_err("no memory").to_string();
    assert!(error.contains("it cannot grow: "), "{error}");
    check_sums(space.stats());
}

#[test]
fn references_lead_to_places_of_short_and_long_blocks() {
    let (_, space) = space(8 << 20);
    let mut writer = BlockWriter::new(Arc::clone(&space));
    for value_bytes in [0, 100, 16_000, 16_300, 100_000] {
        let lines = farsight_layout::value_block::block_lines(8, value_bytes) as u32;
        let place = writer.allocate(lines).expect("room");
        let reference = BlockRef::new(&[7; 8], place);
        assert_eq!(reference.lines().is_some(), lines < 255);
        assert_eq!(space.place(reference), Some(place));
        space.retire(place);
        assert_eq!(space.place(reference).is_some(), lines < 255, "a long block that is gone");
    }
}

/// A table's blocks of mixed lengths, each replaced ten times on average.
#[test]
fn churn_takes_a_quarter_more_memory_at_most() {
    const BLOCKS: u64 = 60_000;
    let (_, space) = space(64 << 20);
    let mut random = SplitMix64::new(3);
    let mut writer = BlockWriter::new(Arc::clone(&space));
    let mut allocate = |random: &mut SplitMix64| writer.allocate(2 + random.below(6) as u32).expect("room");
    let mut blocks: Vec<_> = (0..BLOCKS).map(|_| allocate(&mut random)).collect();
    let fresh = space.stats().used_bytes;
    for _ in 0..10 * BLOCKS {
        let place = allocate(&mut random);
        let old = std::mem::replace(&mut blocks[random.below(BLOCKS) as usize], place);
        space.retire(old);
    }
    let stats = space.stats();
    check_sums(stats);
    println!("fresh: {fresh} B, churned: {stats:?}");
    assert!(stats.used_bytes * 4 <= fresh * 5, "fresh: {fresh} B, churned: {stats:?}");
}

/// Threads allocate, mark, verify and retire side by side.
#[test]
fn threads_never_share_a_block() {
    let (_, space) = space(32 << 20);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let space = &space;
            scope.spawn(move || {
                let mut random = SplitMix64::new(thread);
                let mut owner = Owner::new(space, thread << 40);
                for _ in 0..20_000 {
                    let most = 1 << random.below(9);
                    let lines = 1 + random.below(most) as u32;
                    owner.allocate(lines).expect("room");
                    if owner.blocks.len() > 50 {
                        let place = owner.take(random.below(50) as usize).expect("a block");
                        space.retire(place);
                    }
                }
                while let Some(place) = owner.take(0) {
                    space.retire(place);
                }
            });
        }
    });
    let stats = space.stats();
    check_sums(stats);
    assert_eq!(stats.live_bytes, 0);
}

/// Threads share one slab, of which they need less than half at once: nobody is refused while another empties
/// the quarantine.
#[test]
fn a_space_with_free_places_refuses_nobody() {
    let (_, space) = space(10 * 8192);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let mut writer = BlockWriter::new(Arc::clone(&space));
            scope.spawn(move || {
                for _ in 0..50_000 {
                    let place = writer.allocate(5).expect("room");
                    writer.space().retire(place);
                }
            });
        }
    });
    check_sums(space.stats());
}

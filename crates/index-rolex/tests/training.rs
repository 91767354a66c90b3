//! Training over a pool: what trainers publish leads every key to its leaf, however they race, and readers
//! that hold anything older are led there too.

mod common;

use std::cell::Cell;
use std::sync::Arc;

use common::{Pool, Queue, owner};
use farsight_base::pinned::PinnedMemory;
use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_fabric::QueuePair as _;
use farsight_fabric::lane::PoolLane;
use farsight_index_rolex::{CacheSession, FoundLeaf, GroupSizes, LeafPlace, RolexCache, Trained, Trainer};
use farsight_layout::learned::{DIRECTORY_HEADER_WORDS, DirectoryShape, GroupPointer, ROOT_WORD, RootWord};

/// Steps of training, until there is nothing left to do.
fn train(pool: &Pool, trainer: &mut Trainer, queues: &mut [Queue]) -> Trained {
    let mut sum = Trained::default();
    for _ in 0..1_000 {
        let step = step(pool, trainer, queues, 16);
        sum.groups += step.groups;
        sum.leaves += step.leaves;
        sum.directories += step.directories;
        if step.is_all() {
            return sum;
        }
    }
    panic!("training does not end: {sum:?}");
}

fn step(pool: &Pool, trainer: &mut Trainer, queues: &mut [Queue], budget: usize) -> Trained {
    let lines = pool.lines();
    let outcome = PoolLane::new(queues).block_on(async |slot| trainer.step(&slot, &lines, budget).await);
    outcome.expect("the fabric works").expect("training works")
}

/// Splits the leaf that owns `key` about there (at a key of few bits, as splits choose them), and counts the
/// split.
fn split(pool: &Pool, session: &CacheSession, queues: &mut [Queue], key: u64) {
    let low_bits = key.checked_ilog2().unwrap_or_default().saturating_sub(20);
    let key = key >> low_bits << low_bits;
    let chain = pool.chain();
    let left = owner(&chain, key);
    if chain.iter().any(|(low, _)| *low == key) {
        return;
    }
    pool.split(left, key);
    let counted = PoolLane::new(queues).block_on(async |slot| session.count_split(&slot, key).await);
    counted.expect("the fabric works").expect("the split is counted");
}

fn session(pool: &Pool) -> CacheSession {
    CacheSession::new(RolexCache::new(pool.table.clone(), pool.meta))
}

/// Checks that `session` names each leaf for its keys at once; gives the average number of candidates.
fn check_exact(pool: &Pool, session: &CacheSession, queues: &mut [Queue]) -> f64 {
    let chain = pool.chain();
    let (mut named, mut keys) = (0, 0);
    for (index, (low, place)) in chain.iter().enumerate() {
        let high = chain.get(index + 1).map_or(u64::MAX, |next| next.0 - 1);
        for key in [*low, low / 2 + high / 2 + (low & high & 1), high] {
            let found = PoolLane::new(queues).block_on(async |slot| session.candidates(&slot, key).await);
            let found = found.expect("the fabric works").expect("the index is sound");
            assert!(found.leaves().contains(place), "key {key} of {place}: {:?}", found.leaves());
            // The greatest key of a leaf always shares a quantum with the fence behind it.
            named += if key == high { 0 } else { found.leaves().len() };
            keys += usize::from(key != high);
        }
    }
    named as f64 / keys as f64
}

#[test]
fn a_table_grows_from_one_leaf_through_directories() {
    let pool = Pool::new(3, 20_000, 60_000);
    let mut queues = pool.queues();
    let mut trainer = pool.trainer();
    let writer = session(&pool);
    assert_eq!(train(&pool, &mut trainer, &mut queues), Trained::default(), "there is nothing to train");
    check_exact(&pool, &session(&pool), &mut queues);
    let mut random = SplitMix64::new(1);
    let mut directories = 0;
    for round in 0..30 {
        for _ in 0..160 {
            // Half of all splits in one place.
            let key = random.next_u64() >> if random.below(2) == 0 { 24 } else { 0 };
            split(&pool, &writer, &mut queues, key);
        }
        directories += train(&pool, &mut trainer, &mut queues).directories;
        let named = check_exact(&pool, &session(&pool), &mut queues);
        assert!(named <= 1.01, "round {round}: {named} candidates a key");
    }
    assert!(directories >= 3, "{directories} directories");
}

#[test]
fn a_reader_with_an_old_cache_is_led_left_of_its_key_or_right() {
    let pool = Pool::new(2, 4_000, 20_000);
    let mut queues = pool.queues();
    let mut trainer = pool.trainer();
    let (writer, old) = (session(&pool), session(&pool));
    let mut random = SplitMix64::new(2);
    for _ in 0..300 {
        split(&pool, &writer, &mut queues, random.next_u64());
    }
    train(&pool, &mut trainer, &mut queues);
    check_exact(&pool, &old, &mut queues);
    for _ in 0..300 {
        split(&pool, &writer, &mut queues, random.next_u64());
    }
    train(&pool, &mut trainer, &mut queues);
    let chain = pool.chain();
    let position = |place: LeafPlace| chain.iter().position(|leaf| leaf.1 == place).expect("in the chain");
    for index in 0..5_000 {
        let key = random.next_u64();
        let (home, found) = (owner(&chain, key), old.predict(key).expect("was fetched"));
        let first = old.leaf_left_of(key, u32::MAX).expect("was fetched");
        assert!(position(first) <= position(home), "the group's first leaf is right of {key}");
        assert!(position(found.leaves()[0]) <= position(home), "the way to {key} leads left");
        // What a walk finds is known to all sessions of the process.
        if index % 7 == 0 && found.leaves()[found.likeliest()] != home {
            let low = chain[position(home)].0;
            let _ = old.note_found(found.group, [FoundLeaf { steps: 1, low, place: home }].into_iter());
            let another = CacheSession::new(Arc::clone(old.cache()));
            let found = another.predict(key).expect("was fetched");
            assert_eq!(found.leaves()[found.likeliest()], home, "the synonym of {key} is forgotten");
        }
    }
    PoolLane::new(&mut queues)
        .block_on(async |slot| {
            for (low, _) in &chain {
                old.refresh(&slot, *low).await.expect("a fresh image");
            }
        })
        .expect("the fabric works");
    assert!(check_exact(&pool, &old, &mut queues) <= 1.01);
}

#[test]
fn several_trainers_lose_nothing() {
    let pool = Pool::new(2, 20_000, 400_000);
    let mut queues: Vec<Vec<Queue>> = (0..3).map(|_| pool.queues()).collect();
    let mut trainers: Vec<Trainer> = (0..3).map(|_| pool.trainer()).collect();
    let writer = session(&pool);
    let mut random = SplitMix64::new(3);
    let mut lost = 0;
    for _ in 0..40 {
        for _ in 0..60 {
            split(&pool, &writer, &mut queues[0], random.next_u64() >> random.below(3));
        }
        // Step by step, interleaved at every verb: each trainer in a lane of its own would not race.
        lost += race(&pool, &mut trainers, &mut queues[0], &mut random);
    }
    assert!(lost > 0, "no trainer ever lost a race");
    train(&pool, &mut trainers[0], &mut queues[1]);
    assert!(check_exact(&pool, &session(&pool), &mut queues[2]) <= 1.01);
}

/// One step of every trainer side by side in one lane; gives how many images were lost.
fn race(pool: &Pool, trainers: &mut [Trainer], queues: &mut [Queue], random: &mut SplitMix64) -> usize {
    let lines = pool.lines();
    let lost = Cell::new(0);
    let budgets: Vec<usize> = trainers.iter().map(|_| 1 + random.below(8) as usize).collect();
    PoolLane::new(queues)
        .run(
            &mut PinnedMemory::default(),
            trainers.len(),
            trainers.iter_mut().zip(budgets),
            |slot, (trainer, budget)| {
                let (lost, lines) = (&lost, &lines);
                async move {
                    let done = trainer.step(&slot, lines, budget).await.expect("training works");
                    lost.set(lost.get() + done.lost);
                }
            },
        )
        .expect("the fabric works");
    lost.get()
}

#[test]
fn frozen_slots_of_a_trainer_that_died_are_taken_over() {
    let pool = Pool::new(1, 4_000, 40_000);
    let mut queues = pool.queues();
    let mut trainer = pool.trainer();
    let writer = session(&pool);
    let mut random = SplitMix64::new(4);
    for _ in 0..400 {
        split(&pool, &writer, &mut queues, random.next_u64());
    }
    train(&pool, &mut trainer, &mut queues);
    freeze_all(&pool);
    for _ in 0..50 {
        split(&pool, &writer, &mut queues, random.next_u64());
    }
    // Readers go on meanwhile.
    PoolLane::new(&mut queues)
        .block_on(async |slot| session(&pool).candidates(&slot, 7).await)
        .expect("the fabric works")
        .expect("frozen slots are read as others are");
    let done = train(&pool, &mut trainer, &mut queues);
    assert_eq!(done.directories, 1, "{done:?}");
    assert!(check_exact(&pool, &session(&pool), &mut queues) <= 1.01);
}

/// Groups of this test's tables.
const SMALL: GroupSizes = GroupSizes { leaves: 16, saved_min: 8 };
/// The longest run of lines that is left: longer than an image of such groups, shorter than a directory.
const SHORT_LINES: u32 = 24;

/// A table of more groups than a directory of short runs names.
fn many_groups(pool: &Pool, queues: &mut [Queue], random: &mut SplitMix64) -> CacheSession {
    let writer = session(pool);
    for _ in 0..1_500 {
        split(pool, &writer, queues, random.next_u64());
    }
    train(pool, &mut pool.trainer_of(SMALL), queues);
    writer
}

/// A group that has grown needs a directory, for which there are no lines. It waits, and says so; all others
/// are trained, and no slot is frozen. With lines it is cut.
#[test]
fn a_group_without_lines_for_its_directory_holds_nobody_up() {
    let pool = Pool::new(1, 6_000, 40_000);
    let (mut queues, mut random) = (pool.queues(), SplitMix64::new(8));
    let writer = many_groups(&pool, &mut queues, &mut random);
    // A hundred leaves in one place grow one group, or two; others split here and there.
    (0..400).for_each(|_| split(&pool, &writer, &mut queues, random.next_u64() >> 8));
    (0..40).for_each(|_| split(&pool, &writer, &mut queues, random.next_u64()));
    pool.lines().leave(Some(SHORT_LINES));
    let mut trainer = pool.trainer_of(SMALL);
    let mut sum = Trained::default();
    for _ in 0..20 {
        sum = Trained { full: 0, ..sum } + step(&pool, &mut trainer, &mut queues, 1_000);
    }
    assert!((1..=2).contains(&sum.full), "groups that wait at the end: {sum:?}");
    assert!(sum.groups > 10 && sum.directories == 0, "{sum:?}");
    // Nothing else is left to do, step after step.
    let idle = step(&pool, &mut trainer, &mut queues, 1_000);
    assert_eq!(idle, Trained { full: sum.full, ..Trained::default() });
    assert!(!idle.is_all());
    let is_frozen = |pointer: &AtomicU64| GroupPointer(pointer.load(Ordering::Relaxed)).is_frozen();
    assert_eq!(pointers(&pool).into_iter().filter(|pointer| is_frozen(pointer)).count(), 0, "slots");
    pool.lines().leave(None);
    assert!(train(&pool, &mut trainer, &mut queues).directories > 0);
    assert!(check_exact(&pool, &session(&pool), &mut queues) <= 1.01);
}

/// A table's first directory without lines: each try gives back what it took.
#[test]
fn a_first_directory_without_lines_takes_no_more_with_each_step() {
    let pool = Pool::new(1, 4_000, 2_000);
    let (mut queues, mut random) = (pool.queues(), SplitMix64::new(9));
    let writer = session(&pool);
    (0..700).for_each(|_| split(&pool, &writer, &mut queues, random.next_u64()));
    pool.lines().leave(Some(SHORT_LINES / 2));
    let mut trainer = pool.trainer_of(SMALL);
    for _ in 0..100 {
        let done = step(&pool, &mut trainer, &mut queues, 16);
        assert_eq!(done, Trained { full: 1, ..Trained::default() });
    }
    pool.lines().leave(None);
    assert!(train(&pool, &mut trainer, &mut queues).directories > 0);
    assert!(check_exact(&pool, &session(&pool), &mut queues) <= 1.01);
}

#[cfg(injected)]
#[test]
fn trainers_that_do_not_bear_a_lack_of_lines_are_found() {
    use farsight_base::injection::assert_found;
    use farsight_index_rolex::injected::{FULL_ENDS_STEP, UNUSED_IMAGES_KEPT};
    assert_found(&FULL_ENDS_STEP, a_group_without_lines_for_its_directory_holds_nobody_up);
    assert_found(&UNUSED_IMAGES_KEPT, a_first_directory_without_lines_takes_no_more_with_each_step);
}

/// A block was merged away, and a session died while it made a leaf of it again. The image still names it:
/// closed, and odd for ever.
#[test]
fn a_closed_block_that_a_dead_writer_left_odd_holds_no_trainer_up() {
    let pool = Pool::new(1, 4_000, 20_000);
    let mut queues = pool.queues();
    let (mut trainer, writer) = (pool.trainer(), session(&pool));
    for key in [1 << 40, 2 << 40, 3 << 40, 4 << 40] {
        split(&pool, &writer, &mut queues, key);
    }
    train(&pool, &mut trainer, &mut queues);
    let [(low, left), (_, gone), (high, right), ..] = pool.chain()[1..] else { panic!("a chain of five") };
    pool.write_leaf(left, low, Some(high), Some(right));
    pool.begin_leaf(gone);
    split(&pool, &writer, &mut queues, 5 << 40);
    let done = train(&pool, &mut trainer, &mut queues);
    assert_eq!((done.groups, done.leaves), (1, 5), "{done:?}");
    assert!(pool.chain().iter().all(|(_, place)| *place != gone));
    check_exact(&pool, &session(&pool), &mut queues);
}

/// Sets the frozen bit in every slot of the directory that the root names.
fn freeze_all(pool: &Pool) {
    use farsight_base::sync::Ordering::Relaxed;
    use farsight_layout::learned::POINTER_FROZEN_BIT;
    for pointer in pointers(pool) {
        // Relaxed: nobody else is at work.
        pointer.fetch_or(1 << POINTER_FROZEN_BIT, Relaxed);
    }
}

/// The words of the newest directory's slots that name the groups' images.
fn pointers(pool: &Pool) -> Vec<&AtomicU64> {
    let words = pool.meta_words();
    // Relaxed: nobody else is at work.
    let line = RootWord(words[ROOT_WORD].load(Ordering::Relaxed)).line().expect("a directory") as usize;
    let header: Vec<u64> =
        words[line * 8..][..DIRECTORY_HEADER_WORDS].iter().map(|word| word.load(Ordering::Relaxed)).collect();
    let shape = DirectoryShape::of_header(&header).expect("a directory's header");
    (0..shape.groups()).map(|group| &words[line * 8 + shape.slot_word(group)]).collect()
}

/// As an exchange leaves it that was on its way while directories took each other's place in the same run.
#[test]
fn a_slot_that_names_no_image_of_its_group_is_mended() {
    let pool = Pool::new(2, 4_000, 40_000);
    let mut queues = pool.queues();
    let mut trainer = pool.trainer_of(GroupSizes { leaves: 16, saved_min: 8 });
    let writer = session(&pool);
    let mut random = SplitMix64::new(6);
    for _ in 0..400 {
        split(&pool, &writer, &mut queues, random.next_u64());
    }
    train(&pool, &mut trainer, &mut queues);
    let slots = pointers(&pool);
    assert!(slots.len() > 12, "{} groups", slots.len());
    // Relaxed: nobody else is at work.
    let named: Vec<u64> = slots.iter().map(|pointer| pointer.load(Ordering::Relaxed)).collect();
    // The first two, of which one's leaves are found from the other's; one between; the last.
    for (group, wrong) in [(0, named[5]), (1, u64::MAX >> 1), (6, named[5]), (named.len() - 1, 0)] {
        slots[group].store(wrong, Ordering::Relaxed);
    }
    let asked = PoolLane::new(&mut queues)
        .block_on(async |slot| session(&pool).candidates(&slot, u64::MAX).await)
        .expect("the fabric works");
    assert!(asked.is_err(), "an image of another group is believed");
    let done = train(&pool, &mut trainer, &mut queues);
    assert_eq!((done.groups, done.directories), (8, 0), "each, and once more with its counter: {done:?}");
    let named_one = check_exact(&pool, &session(&pool), &mut queues);
    assert!(named_one <= 1.01, "{named_one} candidates a key");
}

#[test]
fn training_costs_few_round_trips_and_the_tables_few_bytes() {
    let pool = Pool::new(2, 10_000, 40_000);
    let mut queues = pool.queues();
    let mut trainer = pool.trainer();
    let writer = session(&pool);
    let mut random = SplitMix64::new(5);
    for _ in 0..3_000 {
        split(&pool, &writer, &mut queues, random.next_u64());
    }
    train(&pool, &mut trainer, &mut queues);
    // One group whose leaves have split since.
    split(&pool, &writer, &mut queues, random.next_u64());
    let before: u64 = queues.iter().map(|queue| queue.meters().doorbells).sum();
    let done = train(&pool, &mut trainer, &mut queues);
    assert_eq!(done.groups, 1);
    let rung = queues.iter().map(|queue| queue.meters().doorbells).sum::<u64>() - before;
    println!("{} leaves trained anew in {rung} doorbells", done.leaves);
    assert!(rung <= 40, "{rung} doorbells");
    let reader = session(&pool);
    check_exact(&pool, &reader, &mut queues);
    let bytes = reader.cache().bytes();
    let of_leaves = (bytes.learned - 24 * bytes.segments) as f64 / bytes.leaves as f64;
    println!("{of_leaves:.2} B a leaf and 24 B for each of {} segments, {bytes:?}", bytes.segments);
    assert!(bytes.leaves >= 3_000 && of_leaves <= 8.5, "{of_leaves} B a leaf");
}

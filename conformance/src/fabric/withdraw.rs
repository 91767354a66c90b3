//! Regions that a server withdraws, regions that a client detaches, and numbers that all clients are told.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight_base::sync::{AtomicBool, AtomicU64, Ordering};
use farsight_base::words::{SharedLine, Widest};
use farsight_base::{Line, RegionId, RemoteAddress};
use farsight_fabric::chained::{Chains, read_chained};
use farsight_fabric::mapped::{lines_in_place, read_alone, read_part};
use farsight_fabric::{Connection, FabricError, Host, QueuePair, ReadMode, Region, RegionRights};

use super::FabricUnderTest;
use super::harness::{Ask, Bench, NOTICE, PATIENCE, QueueOf, at, call, read, request, ring_and_wait};

/// What a client takes at most to learn of a withdrawal or a number.
const PROMISED: Duration = Duration::from_secs(1);
/// Lines of the READs here.
const LINES: usize = 3;

/// Makes every word of a region its number.
fn fill(region: &Arc<dyn Region>) {
    for word in region.words() {
        word.store(value_of(region.id()), Ordering::Relaxed);
    }
}

/// An even word, so that no line looks as if it were being written.
fn value_of(region: RegionId) -> u64 {
    u64::from(region.0) << 8
}

/// A new region of its own value.
fn another_region<F: FabricUnderTest>(bench: &Bench<F>, rights: RegionRights) -> Arc<dyn Region> {
    let region = bench.server.host().create_region(1 << 16, rights).expect("a region");
    fill(&region);
    region
}

/// READs in every way there is, the choice being `way`; what is read is `region`'s or an error.
fn read_in_a_way<Q: QueuePair>(queue: &mut Q, region: RegionId, way: usize) -> Result<(), FabricError> {
    let mut lines = [Line::ZERO; LINES];
    let from = at(region, 0);
    match way % 4 {
        0 => read(queue, from, ReadMode::Stamped, &mut lines)?,
        1 => read_alone(queue, from, &mut lines, ReadMode::Plain)?,
        2 => {
            let choose = |lines: &[Line; 1]| Some((1, lines[0]));
            let seen =
                read_part::<LINES, 1, 2, _, _>(queue, region, 0, choose, |first, rest: &[Line; 2]| {
                    [first, rest[0], rest[1]]
                })?;
            lines = seen.expect("a part was chosen");
        }
        _ => {
            let mut twice = Twice([Line::ZERO; LINES]);
            read_chained(queue, region, 1, &mut twice)?;
            lines = twice.0;
        }
    }
    let is_own = lines.iter().all(|line| line.0 == [value_of(region); 8]);
    assert!(is_own, "way {way} of reading {region} shows bytes of another: {lines:?}");
    Ok(())
}

/// A chain of two READs of the same lines.
struct Twice([Line; LINES]);

impl Chains<LINES, LINES> for Twice {
    fn first(&mut self, _index: usize) -> Option<u64> {
        Some(0)
    }

    fn second(&mut self, _index: usize, _lines: &[Line; LINES]) -> Option<u64> {
        Some(0)
    }

    fn end(&mut self, _index: usize, lines: &[Line; LINES]) {
        self.0 = *lines;
    }

    fn second_in_place(&mut self, _index: usize, _lines: &[SharedLine; LINES], _: Widest) -> Option<u64> {
        None
    }
}

fn is_withdrawn(error: &FabricError, expected: RegionId) -> bool {
    matches!(error, FabricError::RegionWithdrawn { region, .. } if *region == expected)
}

#[track_caller]
fn assert_withdrawn<T: std::fmt::Debug>(outcome: Result<T, FabricError>, region: RegionId) {
    let error = outcome.expect_err("the region is withdrawn");
    assert!(is_withdrawn(&error, region), "{error}");
}

#[track_caller]
fn assert_unknown<T: std::fmt::Debug>(outcome: Result<T, FabricError>, expected: RegionId) {
    let error = outcome.expect_err("nobody knows the region");
    assert!(matches!(&error, FabricError::UnknownRegion { region, .. } if *region == expected), "{error}");
}

/// READs until the withdrawal shows: before that, the region's own bytes.
fn read_until_withdrawn<Q: QueuePair>(queue: &mut Q, region: RegionId) {
    let started = Instant::now();
    for way in 0.. {
        if let Err(error) = read_in_a_way(queue, region, way) {
            assert!(is_withdrawn(&error, region), "{error}");
            return;
        }
        assert!(started.elapsed() < NOTICE, "{region} is READ long after its withdrawal");
        std::thread::yield_now();
    }
}

/// A batch that begins a second after the withdrawal fails where it names the region, in every way. So does
/// an atomic behind a WRITE that does. The rest of the batch, and the queue pair, go on.
pub fn verbs_of_a_withdrawn_region_say_so<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadWrite);
    fill(&bench.region);
    let gone = another_region(&bench, RegionRights::ReadWrite);
    bench.queue.attach(gone.id()).expect("it is there");
    (0..4).for_each(|way| read_in_a_way(&mut bench.queue, gone.id(), way).expect("it is there"));
    bench.server.host().withdraw_region(gone.id()).expect("it was there");
    std::thread::sleep(PROMISED);
    let there = bench.region.id();
    bench.queue.post_read(0, at(gone.id(), 0), 1, ReadMode::Plain);
    bench.queue.post_read(1, at(there, 0), 1, ReadMode::Plain);
    bench.queue.post_write(2, at(gone.id(), 64), &[1; 9]);
    bench.queue.post_compare_swap(3, at(gone.id(), 0), 0, 1);
    bench.queue.post_write(4, at(there, 64), &[6]);
    bench.queue.post_fetch_add(5, at(gone.id(), 0), 1);
    bench.queue.post_fetch_add(6, at(there, 64), 2);
    ring_and_wait(&mut bench.queue, &[0, 1, 2, 3, 4, 5, 6]);
    assert_withdrawn(bench.queue.take_read(0, &mut [Line::ZERO]), gone.id());
    bench.queue.take_read(1, &mut [Line::ZERO]).expect("the other region is there");
    for slot in [2, 3, 5] {
        assert_withdrawn(bench.queue.take_word(slot), gone.id());
    }
    bench.queue.take_word(4).expect("the other region is there");
    assert_eq!(bench.queue.take_word(6).expect("the other region is there"), 6);
    assert_publishes_nothing_unwritten(&mut bench.queue, gone.id(), there);
    assert_eq!(bench.region.words()[8].load(Ordering::Acquire), 8, "6 and 2");
    assert!(gone.words().iter().all(|word| word.load(Ordering::Acquire) == value_of(gone.id())));
    for way in 0..4 {
        assert_withdrawn(read_in_a_way(&mut bench.queue, gone.id(), way), gone.id());
    }
    let mapped = bench.queue.mapped();
    let place = mapped.and_then(|mapped| lines_in_place::<LINES>(mapped, gone.id(), 0));
    assert!(place.is_none(), "there is no such place any more");
    assert_eq!(call(&mut bench.queue, 0, &request(Ask::Echo, &[1])), request(Ask::Echo, &[1]));
    read(&mut bench.queue, at(there, 0), ReadMode::Plain, &mut [Line::ZERO]).expect("a READ");
}

/// An atomic on the region `there` fails as the WRITE before it on a `gone` one.
fn assert_publishes_nothing_unwritten<Q: QueuePair>(queue: &mut Q, gone: RegionId, there: RegionId) {
    queue.post_write(0, at(gone, 64), &[1]);
    queue.post_fetch_add(1, at(there, 64), 4);
    ring_and_wait(queue, &[0, 1]);
    assert_withdrawn(queue.take_word(0), gone);
    assert_withdrawn(queue.take_word(1), there);
}

/// A queue pair that had READs rung before, and took them late, gets the region's bytes or the error.
pub fn what_was_posted_before_comes_or_fails_by_name<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    let gone = another_region(&bench, RegionRights::ReadOnly);
    bench.queue.attach(gone.id()).expect("it is there");
    for slot in 0..8 {
        bench.queue.post_read(slot, at(gone.id(), 0), LINES, ReadMode::Stamped);
    }
    bench.queue.doorbell().expect("the doorbell rings");
    bench.server.host().withdraw_region(gone.id()).expect("it was there");
    std::thread::sleep(PROMISED / 2);
    // Posted, not rung, while the news may come.
    bench.queue.post_read(8, at(gone.id(), 0), LINES, ReadMode::Stamped);
    std::thread::sleep(PROMISED);
    ring_and_wait(&mut bench.queue, &[0, 1, 2, 3, 4, 5, 6, 7, 8]);
    for slot in 0..9 {
        let mut lines = [Line::ZERO; LINES];
        match bench.queue.take_read(slot, &mut lines) {
            Ok(()) => assert!(lines.iter().all(|line| line.0 == [value_of(gone.id()); 8]), "{lines:?}"),
            Err(error) => assert!(is_withdrawn(&error, gone.id()), "{error}"),
        }
    }
}

/// From the withdrawal on nobody attaches the region, and no region has its number again.
pub fn nobody_attaches_what_is_withdrawn<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    let host = bench.server.host();
    let mut numbers = vec![bench.region.id()];
    for _ in 0..5 {
        let gone = another_region(&bench, RegionRights::ReadOnly);
        assert!(numbers.iter().all(|number| *number < gone.id()), "{:?} after {numbers:?}", gone.id());
        numbers.push(gone.id());
        host.withdraw_region(gone.id()).expect("it was there");
        assert_unknown(bench.queue.attach(gone.id()), gone.id());
        assert_unknown(host.withdraw_region(gone.id()), gone.id());
    }
    let never = RegionId(numbers.iter().map(|number| number.0).max().unwrap_or(0) + 100);
    assert_unknown(host.withdraw_region(never), never);
    let known = at(bench.region.id(), 0);
    read(&mut bench.queue, known, ReadMode::Plain, &mut [Line::ZERO]).expect("the others are there");
    let late = subject.connect(super::harness::FORMAT).expect("a connection");
    let mut queue = late.open_queue().expect("a queue");
    numbers[1..].iter().for_each(|number| assert_unknown(queue.attach(*number), *number));
}

/// A detached region is not there for that queue pair alone, until it attaches it again.
pub fn detached_regions_are_unknown<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadWrite);
    fill(&bench.region);
    let region = bench.region.id();
    let mut another = bench.another_queue();
    bench.queue.detach(RegionId(region.0 + 50));
    for _ in 0..3 {
        bench.queue.detach(region);
        bench.queue.detach(region);
        assert_unknown(read_in_a_way(&mut bench.queue, region, 0), region);
        bench.queue.post_fetch_add(0, at(region, 0), 1);
        ring_and_wait(&mut bench.queue, &[0]);
        assert_unknown(bench.queue.take_word(0), region);
        read_in_a_way(&mut another, region, 1).expect("the other queue pair has it");
        bench.queue.attach(region).expect("it is there");
        (0..4).for_each(|way| read_in_a_way(&mut bench.queue, region, way).expect("it is there"));
    }
    another.detach(region);
    bench.queue.detach(region);
    let length_bytes = bench.queue.attach(region).expect("it is there after the last has gone, too");
    assert_eq!(length_bytes, bench.region.words().len() as u64 * 8);
    read_in_a_way(&mut bench.queue, region, 0).expect("a READ");
    bench.server.host().withdraw_region(region).expect("it was there");
    read_until_withdrawn(&mut bench.queue, region);
    bench.queue.detach(region);
    assert_unknown(read_in_a_way(&mut bench.queue, region, 0), region);
    assert_unknown(bench.queue.attach(region), region);
}

/// What a detached region's READs come to that were posted before.
pub fn detaching_forgets_what_was_posted<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    let region = bench.region.id();
    bench.queue.post_read(0, at(region, 0), 1, ReadMode::Plain);
    ring_and_wait(&mut bench.queue, &[0]);
    bench.queue.detach(region);
    match bench.queue.take_read(0, &mut [Line::ZERO]) {
        // A provider that has the lines may give them.
        Ok(()) => {}
        Err(error) => assert!(matches!(error, FabricError::UnknownRegion { .. }), "{error}"),
    }
    bench.queue.attach(region).expect("it is there");
    bench.queue.post_read(0, at(region, 0), 1, ReadMode::Plain);
    bench.queue.detach(region);
    ring_and_wait(&mut bench.queue, &[0]);
    let outcome = bench.queue.take_read(0, &mut [Line::ZERO]);
    assert!(outcome.is_ok() || matches!(outcome, Err(FabricError::UnknownRegion { .. })), "{outcome:?}");
    assert_eq!(call(&mut bench.queue, 0, b"the queue goes on"), b"the queue goes on");
}

/// READs of several queue pairs, beside regions that are withdrawn and others that take their place. Each is
/// its region's bytes or the error, and behind an error come errors alone.
pub fn withdrawals_race_reads<F: FabricUnderTest>(subject: &F) {
    let bench = Bench::new(subject, RegionRights::ReadOnly);
    let current = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let reads = [AtomicU64::new(0), AtomicU64::new(0)];
    let has_idle = |reads: &[AtomicU64]| reads.iter().any(|reads| reads.load(Ordering::Relaxed) == 0);
    let read_on = |mut queue: QueueOf<F>, reader: usize| {
        while !is_over.load(Ordering::Acquire) {
            let region = RegionId(current.load(Ordering::Acquire) as u32);
            if region.0 == 0 || queue.attach(region).is_err() {
                std::thread::yield_now();
                continue;
            }
            let started = Instant::now();
            let mut is_gone = false;
            for way in reader.. {
                let newer = RegionId(current.load(Ordering::Acquire) as u32);
                match read_in_a_way(&mut queue, region, way) {
                    Ok(()) => assert!(!is_gone, "{region} is back"),
                    Err(error) => {
                        assert!(is_withdrawn(&error, region), "{error}");
                        if std::mem::replace(&mut is_gone, true) {
                            break;
                        }
                    }
                }
                reads[reader].fetch_add(1, Ordering::Relaxed);
                if newer == region && is_over.load(Ordering::Acquire) {
                    break;
                }
                assert!(started.elapsed() < PATIENCE, "{region} is READ for ever");
            }
            queue.detach(region);
        }
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..reads.len())
            .map(|reader| {
                let queue = bench.another_queue();
                scope.spawn(move || read_on(queue, reader))
            })
            .collect();
        for rounds_left in (0..subject.rounds(30)).rev() {
            let region = another_region(&bench, RegionRights::ReadOnly);
            current.store(region.id().0.into(), Ordering::Release);
            std::thread::sleep(Duration::from_millis(3));
            // On a busy machine a reader may come too late for each. The last one stands until all have READ.
            let started = Instant::now();
            while rounds_left == 0 && has_idle(&reads) && started.elapsed() < PATIENCE {
                std::thread::yield_now();
            }
            bench.server.host().withdraw_region(region.id()).expect("it was there");
        }
        is_over.store(true, Ordering::Release);
        for reader in readers {
            reader.join().expect("a reader");
        }
        assert!(!has_idle(&reads), "nobody READ: {reads:?}");
    });
}

/// Rings and polls: what a batch does, and more a queue pair need not do to hear a number.
fn ring<Q: QueuePair>(queue: &mut Q, from: RemoteAddress) -> u64 {
    read(queue, from, ReadMode::Plain, &mut [Line::ZERO]).expect("a READ");
    queue.notice()
}

/// All clients hear a number, those to come as well; it only grows.
pub fn numbers_are_heard_by_all<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    let (host, from) = (bench.server.host(), bench.word(0));
    let mut another = bench.another_queue();
    assert_eq!([ring(&mut bench.queue, from), ring(&mut another, from)], [0, 0]);
    for (told, expected) in [(5, 5), (3, 5), (5, 5), (1 << 40, 1 << 40), (u64::MAX, u64::MAX), (0, u64::MAX)]
    {
        host.notify(told);
        std::thread::sleep(PROMISED);
        assert_eq!([ring(&mut bench.queue, from), ring(&mut another, from)], [expected; 2], "after {told}");
    }
    let late = subject.connect(super::harness::FORMAT).expect("a connection");
    let mut queue = late.open_queue().expect("a queue");
    queue.attach(bench.region.id()).expect("it is there");
    assert_eq!(ring(&mut queue, from), u64::MAX);
    let mut called = late.open_queue().expect("a queue");
    assert_eq!(call(&mut called, 0, b"a call hears it, too"), b"a call hears it, too");
    assert_eq!(called.notice(), u64::MAX);
}

/// What a client sees of a number never falls, while it grows.
pub fn numbers_only_grow<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    let from = bench.word(0);
    let last = subject.rounds(2_000) as u64;
    let host = bench.server.host();
    std::thread::scope(|scope| {
        scope.spawn(|| (1..=last).for_each(|number| host.notify(number)));
        let (started, mut heard) = (Instant::now(), 0);
        while heard < last {
            let newer = ring(&mut bench.queue, from);
            assert!((heard..=last).contains(&newer), "{newer} after {heard}");
            heard = newer;
            assert!(started.elapsed() < PATIENCE, "{last} was told, and {heard} is heard");
        }
    });
}

/// A region is created, attached, READ, withdrawn, found withdrawn and detached, `rounds` times; `check` is
/// called now and then, with the number of rounds done.
pub fn come_and_go<F: FabricUnderTest>(subject: &F, rounds: usize, mut check: impl FnMut(usize)) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    let mut another = bench.another_queue();
    for round in 0..rounds {
        let region = bench.server.host().create_region(1 << 12, RegionRights::ReadOnly).expect("a region");
        fill_first(&region);
        bench.queue.attach(region.id()).expect("it is there");
        read_in_a_way(&mut bench.queue, region.id(), round).expect("it is there");
        // Every fourth region is one that another queue pair never lets go of by itself.
        if round.is_multiple_of(4) {
            another.attach(region.id()).expect("it is there");
        }
        bench.server.host().withdraw_region(region.id()).expect("it was there");
        if round.is_multiple_of(2) {
            read_until_withdrawn(&mut bench.queue, region.id());
        }
        bench.queue.detach(region.id());
        if round.is_multiple_of(256) {
            // It hears of what was withdrawn by the way, and keeps nothing but its number.
            std::thread::sleep(Duration::from_millis(20));
            another.doorbell().expect("the doorbell rings");
            check(round);
        }
    }
}

/// Makes the first lines of a region its number.
fn fill_first(region: &Arc<dyn Region>) {
    for word in &region.words()[..LINES * 8] {
        word.store(value_of(region.id()), Ordering::Relaxed);
    }
}

//! READs and WRITEs against a racing writer.
//!
//! Each test counts the changes that it saw: one that saw none proved nothing, and fails.

use std::time::{Duration, Instant};

use farsight_base::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use farsight_base::words::{begin_write, end_write};
use farsight_base::{Line, RemoteAddress, WORDS_PER_LINE};
use farsight_fabric::{QueuePair, ReadMode, Region, RegionRights};

use super::FabricUnderTest;
use super::harness::{Bench, QueueOf, ring_and_wait};

/// Changed snapshots that a reader must have seen before it is believed.
const CHANGES_SEEN: usize = 2_000;
/// Changes that the watcher of WRITEs must have seen.
const WRITES_SEEN: usize = 200;
const TIME_MIN: Duration = Duration::from_millis(300);
/// What no passing test comes near, even where a spinning writer and other programs leave a client and its
/// server a round trip in a hundredth of a second.
const PATIENCE: Duration = Duration::from_secs(120);
/// READs of one batch: where each round trip wakes a server, and a writer keeps a core for itself, there are
/// few of them a second.
const READS: usize = 32;

/// READs the lines at `from` so many times in one batch.
fn read_many<Q: QueuePair, const LINES: usize>(
    queue: &mut Q,
    from: RemoteAddress,
    mode: ReadMode,
) -> [[Line; LINES]; READS] {
    let slots: [usize; READS] = std::array::from_fn(|slot| slot);
    for slot in slots {
        queue.post_read(slot, from, LINES, mode);
    }
    ring_and_wait(queue, &slots);
    slots.map(|slot| {
        let mut copy = [Line::ZERO; LINES];
        queue.take_read(slot, &mut copy).expect("a READ");
        copy
    })
}

/// Runs `write(round)` on a thread, again and again, until `watch` returns.
fn beside_a_writer(write: impl Fn(u64) + Sync, watch: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 1;
            // Relaxed: the flag carries nothing with it.
            while !stop.load(Ordering::Relaxed) {
                write(round);
                round += 1;
            }
        });
        // The writer must end even if the watcher panics.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(watch));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}

fn write_stamped(line: &[AtomicU64], round: u64) {
    let stamp = begin_write(line);
    for word in &line[1..] {
        word.store(round, Ordering::Relaxed);
    }
    end_write(line, stamp);
}

/// A line with an even stamp is a snapshot: all of its words are of one write.
pub fn stamped_lines_do_not_tear<F: FabricUnderTest>(subject: &F) {
    let Bench { mut queue, region, server: _server, connection: _connection } =
        Bench::new(subject, RegionRights::ReadOnly);
    let lines = region.words()[..4 * WORDS_PER_LINE].chunks(WORDS_PER_LINE);
    let from = super::harness::at(region.id(), 0);
    let write = |round: u64| lines.clone().for_each(|line| write_stamped(line, round));
    beside_a_writer(write, || {
        let (mut changes, enough) = (0, subject.rounds(CHANGES_SEEN));
        let mut last = [0; 4];
        let started = Instant::now();
        while changes < enough || started.elapsed() < TIME_MIN {
            assert!(started.elapsed() < PATIENCE, "only {changes} changes were seen");
            // READs of one batch may be taken in any order.
            let before = last;
            for copy in read_many::<_, 4>(&mut queue, from, ReadMode::Stamped) {
                for ((line, before), last) in copy.iter().zip(&before).zip(&mut last) {
                    if line.stamp().is_changing() {
                        continue;
                    }
                    let round = line.0[1];
                    assert!(line.0[1..].iter().all(|word| *word == round), "a torn line: {line:?}");
                    assert_eq!(
                        u64::from(line.stamp().version()),
                        2 * round,
                        "body and stamp are of one write"
                    );
                    assert!(round >= *before, "write {round} was seen after write {before}");
                    changes += usize::from(round > *last);
                    *last = round.max(*last);
                }
            }
        }
    });
}

/// Words arrive whole whatever is written to them. A line that arrives whole may still be half written: the
/// server's processor stores word by word.
pub fn plain_words_do_not_tear<F: FabricUnderTest>(subject: &F) {
    let Bench { mut queue, region, server: _server, connection: _connection } =
        Bench::new(subject, RegionRights::ReadOnly);
    let line = &region.words()[..WORDS_PER_LINE];
    let from = super::harness::at(region.id(), 0);
    let write = |round: u64| {
        for word in line {
            word.store(round << 32 | round, Ordering::Relaxed);
        }
    };
    beside_a_writer(write, || {
        let (mut changes, enough) = (0, subject.rounds(CHANGES_SEEN));
        let mut last = 0;
        let started = Instant::now();
        while changes < enough || started.elapsed() < TIME_MIN {
            assert!(started.elapsed() < PATIENCE, "only {changes} changes were seen");
            for [Line(words)] in read_many(&mut queue, from, ReadMode::Plain) {
                assert!(words.iter().all(|word| word >> 32 == word & 0xffff_ffff), "a torn word: {words:x?}");
                changes += usize::from(words[0] != last);
                last = words[0];
            }
        }
    });
}

/// Two WRITEs of one queue become visible in posting order, to the server's processor.
pub fn writes_stay_in_order<F: FabricUnderTest>(subject: &F) {
    if !QueueOf::<F>::GUARANTEES.writes_in_order {
        return;
    }
    let enough = subject.rounds(WRITES_SEEN);
    let mut bench = Bench::new(subject, RegionRights::ReadWrite);
    let (first, second) = (bench.word(0), bench.word(640));
    let words = bench.region.words();
    let (seen_first, seen_second) = (&words[0], &words[640]);
    let stop = AtomicBool::new(false);
    let changes = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut last = 0;
            // Relaxed: flag and count carry nothing with them.
            while !stop.load(Ordering::Relaxed) {
                // Acquire: the first is looked at after the second. Partner: the order of the WRITEs.
                let later = seen_second.load(Ordering::Acquire);
                let earlier = seen_first.load(Ordering::Acquire);
                assert!(earlier >= later, "the second WRITE {later} was seen before the first ({earlier})");
                changes.fetch_add(usize::from(later != last), Ordering::Relaxed);
                last = later;
            }
        });
        let started = Instant::now();
        let mut round = 0;
        while !watcher.is_finished()
            && started.elapsed() < PATIENCE
            && (changes.load(Ordering::Relaxed) < enough || started.elapsed() < TIME_MIN)
        {
            round += 1;
            bench.queue.post_write(0, first, &[round]);
            bench.queue.post_write(1, second, &[round]);
            ring_and_wait(&mut bench.queue, &[0, 1]);
        }
        stop.store(true, Ordering::Relaxed);
        watcher.join().expect("no WRITE overtook another");
        let changes = changes.load(Ordering::Relaxed);
        assert!(changes >= enough, "only {changes} of {round} changes were seen");
    });
}

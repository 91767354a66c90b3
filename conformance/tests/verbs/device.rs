//! What the device at hand does, by name, and what a card does where Soft-RoCE departs from one. A device
//! must do what it says of itself; what it does not promise is told, not demanded.

use std::net::{IpAddr, Ipv6Addr};

use farsight_base::sync::{AtomicBool, Ordering};
use farsight_base::{LINE_BYTES, Line, WORDS_PER_LINE};
use farsight_conformance::fabric::FabricUnderTest;
use farsight_conformance::fabric::harness::{Bench, at, read, ring_and_wait};
use farsight_conformance::fabric::verbs::{Verbs, is_asked_for};
use farsight_fabric::{Meters, QueuePair as _, ReadMode, Region as _, RegionRights};
use farsight_fabric_verbs::{DeviceReport, devices};

/// Atomics by the card beside as many by the processor, and READs beside writes.
const ROUNDS: usize = 16_000;

/// The port that the tests use.
fn device(subject: &Verbs) -> DeviceReport {
    let address = match subject.host().parse().expect("an IP address") {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let found = devices().expect("RDMA");
    let own =
        |report: &&DeviceReport| report.address.is_some_and(|(found, _): (Ipv6Addr, u32)| found == address);
    let any = found.iter().find(|report| report.is_active);
    found.iter().find(own).or(any).expect("a device").clone()
}

fn tell(name: &str, device: &str, card: &str) {
    println!("DEVICE {name}: {device}; a card: {card}");
}

#[test]
fn attributes_are_asked_for() {
    if !is_asked_for() {
        return;
    }
    let subject = Verbs::new();
    let report = device(&subject);
    println!("{report:?}");
    assert!(report.is_active && report.address.is_some() && !report.name.is_empty());
    assert!(report.reads_max.0 > 0 && report.reads_max.1 > 0, "no READs");
    assert!(report.queue_work_max >= 256, "a batch does not fit");
    assert!(report.inline_bytes_max.is_some(), "a queue pair could not be made");
    assert!([256, 512, 1024, 2048, 4096].contains(&report.path_unit_bytes));
}

/// A stamped READ on a device without whole lines takes two READs more, of its stamps before and after. Each
/// is in a round of its own. Meters count what is posted, and what of it only checks.
#[test]
fn what_a_stamped_read_costs() {
    if !is_asked_for() {
        return;
    }
    let subject = Verbs::new();
    let is_whole = device(&subject).reads_lines_whole;
    let mut bench = Bench::new(&subject, RegionRights::ReadOnly);
    let region = bench.region.id();
    let line_bytes = LINE_BYTES as u64;
    // Of one line the stamp alone is read again, of more the whole.
    for (line_count, stamp_bytes) in [(1, 8), (3, 3 * line_bytes)] {
        for (mode, checks) in [(ReadMode::Plain, 0), (ReadMode::Stamped, 2 * u64::from(!is_whole))] {
            let before = bench.queue.meters();
            for slot in 0..5 {
                bench.queue.post_read(slot, at(region, slot as u64 * 256), line_count, mode);
            }
            ring_and_wait(&mut bench.queue, &[0, 1, 2, 3, 4]);
            let expected = Meters {
                reads: 5 * (1 + checks),
                read_bytes: 5 * (line_count as u64 * line_bytes + checks * stamp_bytes),
                doorbells: 1 + checks,
                check_reads: 5 * checks,
                check_read_bytes: 5 * checks * stamp_bytes,
                check_doorbells: checks,
                ..Meters::default()
            };
            assert_eq!(bench.queue.meters() - before, expected, "{line_count} lines, {mode:?}");
        }
    }
    tell("READs of a stamped READ", if is_whole { "1" } else { "3" }, "1 where lines come whole");
}

/// A counter that card and processor add to at the same time: nothing is lost if the device says that its
/// atomics and the processor's exclude each other.
#[test]
fn scope_of_atomics() {
    if !is_asked_for() {
        return;
    }
    let subject = Verbs::new();
    let report = device(&subject);
    let rounds = subject.rounds(ROUNDS) as u64;
    let mut bench = Bench::new(&subject, RegionRights::ReadWrite);
    let (word, region) = (bench.word(0), std::sync::Arc::clone(&bench.region));
    let is_over = AtomicBool::new(false);
    let by_processor = std::thread::scope(|scope| {
        let processor = scope.spawn(|| {
            let mut added = 0_u64;
            // Relaxed, both: the flag and the counter carry nothing with them.
            while !is_over.load(Ordering::Relaxed) {
                region.words()[0].fetch_add(1, Ordering::Relaxed);
                added += 1;
            }
            added
        });
        for _ in 0..rounds {
            bench.queue.post_fetch_add(0, word, 1);
            ring_and_wait(&mut bench.queue, &[0]);
        }
        is_over.store(true, Ordering::Relaxed);
        processor.join().expect("it adds")
    });
    // Acquire: the card's last addition was complete before; partner: its completion.
    let lost = by_processor + rounds - region.words()[0].load(Ordering::Acquire);
    let device =
        format!("says {:?}, lost {lost} of {by_processor} additions beside {rounds}", report.atomics);
    tell("atomics beside the processor's", &device, "says \"among its own\" or \"with the processor's\"");
    if report.atomics == "with the processor's" {
        assert_eq!(lost, 0, "{device}");
    }
}

/// A line that the processor rewrites is READ whole by a device that is trusted to; others are told of.
#[test]
fn lines_of_a_plain_read() {
    if !is_asked_for() {
        return;
    }
    let subject = Verbs::new();
    let report = device(&subject);
    let mut bench = Bench::new(&subject, RegionRights::ReadOnly);
    let region = std::sync::Arc::clone(&bench.region);
    let is_over = AtomicBool::new(false);
    let torn = std::thread::scope(|scope| {
        scope.spawn(|| {
            for value in 0_u64.. {
                // From the last word to the first, as no copy goes.
                for word in region.words()[..WORDS_PER_LINE].iter().rev() {
                    // Relaxed: the order that is seen is the result.
                    word.store(value, Ordering::Relaxed);
                }
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let mut torn = 0;
        for _ in 0..subject.rounds(ROUNDS) {
            let mut line = [Line::ZERO];
            read(&mut bench.queue, at(region.id(), 0), ReadMode::Plain, &mut line).expect("a READ");
            // Written from behind: in a snapshot the later words are the newer ones.
            torn += usize::from(!line[0].0.is_sorted());
        }
        is_over.store(true, Ordering::Relaxed);
        torn
    });
    let rounds = subject.rounds(ROUNDS);
    let device = format!("{torn} of {rounds} READs of {LINE_BYTES} B torn");
    tell("lines", &device, "none, where it is trusted to read lines whole; else stamps are checked");
    if report.reads_lines_whole {
        assert_eq!(torn, 0, "{device}");
    }
}

/// What this fabric does without because not every device has it.
#[test]
fn what_is_not_relied_on() {
    if !is_asked_for() {
        return;
    }
    let report = device(&Verbs::new());
    tell(
        "memory windows",
        &format!(
            "says {}; Soft-RoCE checks the bounds of registrations, not those of windows",
            report.memory_windows
        ),
        "checks the bounds of both. None is used here",
    );
    tell("seven retries without an answer", "Soft-RoCE goes on for ever", "gives up. Six are requested here");
    tell("a fence between works", "Soft-RoCE may forget to go on", "goes on. None is used here");
    let absent = if report.registers_absent_memory { "registers" } else { "refuses" };
    tell(
        "memory that is not there",
        &format!("{absent} it (on-demand paging)"),
        "registers it, where its driver can. Regions are registered with all their pages",
    );
}

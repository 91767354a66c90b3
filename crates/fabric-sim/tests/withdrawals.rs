//! Regions that come and go under READs, in virtual time. Each READ brings its region's bytes or the error,
//! under every seed. One that begins a second after the withdrawal brings the error.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::prng::SplitMix64;
use farsight_base::sync::Ordering;
use farsight_base::{Line, RegionId, RemoteAddress};
use farsight_fabric::mapped::read_alone;
use farsight_fabric::{Connection as _, FabricError, Host as _, QueuePair, ReadMode, Region, RegionRights};
use farsight_fabric_sim::{Fault, Kind, Ordered, ReliableConnection, Rule, Simulation, Timing, Weakest};

const ADDRESS: &str = "sim://server";
const FORMAT: u32 = 3;
const REGION_BYTES: u64 = 4096;
const LINES: usize = 3;
/// Within this time a client has heard.
const PROMISED_NS: u64 = 1_000_000_000;
const READERS: usize = 3;
/// Regions of one run, one behind the other.
const REGIONS: u64 = 6;
/// Virtual time of a run: more than any takes.
const RUN_NS: u64 = 120 * PROMISED_NS;

/// The region that is to be READ, and what its words are; when each was withdrawn.
#[derive(Default)]
struct Stage {
    current: Option<(RegionId, u64)>,
    withdrawn: Vec<(u64, MonotonicNs)>,
    is_over: bool,
}

/// A server's step: a new region in place of the last one, again and again.
struct Exchange<K: Kind> {
    host: Arc<farsight_fabric_sim::SimHost<K>>,
    stage: Arc<Mutex<Stage>>,
    random: SplitMix64,
    value: u64,
}

impl<K: Kind> Exchange<K> {
    fn step(&mut self, now: MonotonicNs) -> Option<MonotonicNs> {
        let mut stage = self.stage.lock().expect("nobody panicked");
        if let Some((region, value)) = stage.current.take() {
            self.host.withdraw_region(region).expect("it was there");
            stage.withdrawn.push((value, now));
        }
        self.value += 1;
        if self.value > REGIONS {
            stage.is_over = true;
            return None;
        }
        let region = self.host.create_region(REGION_BYTES, RegionRights::ReadOnly).expect("a region");
        let value = self.value << 8;
        region.words().iter().for_each(|word| word.store(value, Ordering::Relaxed));
        stage.current = Some((region.id(), value));
        Some(now.plus(Duration::from_nanos(1 << (10 + self.random.below(20)))))
    }
}

/// READs what is current until it is withdrawn; what was wrong.
fn read_on(
    simulation: &Simulation,
    mut queue: impl QueuePair,
    stage: &Mutex<Stage>,
    mut random: SplitMix64,
) -> Result<u64, String> {
    let mut reads = 0;
    loop {
        simulation.sleep(Duration::from_nanos(1 << (5 + random.below(20))));
        let current = {
            let stage = stage.lock().expect("nobody panicked");
            if stage.is_over {
                return Ok(reads);
            }
            stage.current
        };
        let Some((region, value)) = current else { continue };
        if queue.attach(region).is_err() {
            continue;
        }
        loop {
            let begins = simulation.now();
            let mode = if random.below(2) == 0 { ReadMode::Plain } else { ReadMode::Stamped };
            let mut lines = [Line::ZERO; LINES];
            let from = RemoteAddress { region, offset_bytes: 64 * random.below(8) };
            match read_alone(&mut queue, from, &mut lines, mode) {
                Ok(()) if lines.iter().any(|line| line.0 != [value; 8]) => {
                    return Err(format!("{region}, which is {value:#x}, brings {lines:x?}"));
                }
                Ok(()) => reads += 1,
                Err(FabricError::RegionWithdrawn { region: named, .. }) if named == region => break,
                Err(error) => return Err(error.to_string()),
            }
            let withdrawn = stage.lock().expect("nobody panicked").withdrawn.clone();
            let ended = withdrawn.iter().find(|(ended, _)| *ended == value);
            if ended.is_some_and(|(_, at)| begins.0 >= at.0 + PROMISED_NS) {
                return Err(format!("{region} is READ a second after its withdrawal"));
            }
            simulation.sleep(Duration::from_nanos(1 << random.below(27)));
        }
        queue.detach(region);
    }
}

fn run<K: Kind>(seed: u64) -> Result<u64, String> {
    let late = |fault| Rule::always(fault, 3, 100_000_000);
    let rules = [Fault::SlowVerb, Fault::SpreadRead, Fault::LateCompletion].map(late);
    let rules = if seed.is_multiple_of(3) { Vec::new() } else { rules.to_vec() };
    let simulation = Simulation::new(seed, Timing::default(), rules);
    let host = Arc::new(simulation.listen::<K>(ADDRESS, FORMAT));
    let stage = Arc::new(Mutex::new(Stage::default()));
    let outcome = Arc::new(Mutex::new(Ok(0)));
    for reader in 0..READERS {
        let connection = simulation.connect::<K>(ADDRESS, FORMAT).expect("a connection");
        let queue = connection.open_queue().expect("a queue");
        let (own, stage, outcome) = (simulation.clone(), Arc::clone(&stage), Arc::clone(&outcome));
        simulation.process(&format!("reader {reader}"), reader, move || {
            let random = SplitMix64::new(seed ^ (reader as u64 + 1) << 32);
            let found = read_on(&own, queue, &stage, random);
            let mut outcome = outcome.lock().expect("nobody panicked");
            *outcome = match (std::mem::replace(&mut *outcome, Ok(0)), found) {
                (Ok(before), Ok(reads)) => Ok(before + reads),
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
            drop(connection);
        });
    }
    let random = SplitMix64::new(seed);
    let mut exchange = Exchange { host: Arc::clone(&host), stage, random, value: 0 };
    host.run(move |now| exchange.step(now));
    assert!(simulation.run_processes(MonotonicNs(RUN_NS)), "seed {seed}: it ends");
    host.kill();
    let outcome = outcome.lock().expect("nobody panicked");
    outcome.clone()
}

fn check<K: Kind>(seeds: u64) {
    let mut reads = 0;
    for seed in 0..seeds {
        reads += run::<K>(seed).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
    assert!(reads > seeds, "{reads} READs under {seeds} seeds");
}

#[test]
fn reads_bring_the_regions_own_bytes_or_the_error() {
    check::<Weakest>(300);
    check::<Ordered>(300);
    check::<ReliableConnection>(300);
}

/// A server with a bug gives the number to the next region.
#[cfg(injected)]
#[test]
fn a_number_that_is_given_again_is_found() {
    use farsight_base::injection::inject;
    use farsight_fabric_sim::injected;

    let found = (0..300).find_map(|seed| inject(&injected::NUMBER_REUSED, || run::<Weakest>(seed)).err());
    let said = found.expect("no seed of 300 finds it");
    assert!(said.contains("brings"), "{said}");
}

#[test]
fn ten_thousand_regions_leave_nothing() {
    let simulation = Simulation::new(7, Timing::default(), Vec::new());
    let host = Arc::new(simulation.listen::<Weakest>(ADDRESS, FORMAT));
    let connection = simulation.connect::<Weakest>(ADDRESS, FORMAT).expect("a connection");
    let mut queue = connection.open_queue().expect("a queue");
    let mut memories = Vec::new();
    for round in 0..10_000_u64 {
        let region = host.create_region(REGION_BYTES, RegionRights::ReadOnly).expect("a region");
        queue.attach(region.id()).expect("it is there");
        let from = RemoteAddress { region: region.id(), offset_bytes: 0 };
        read_alone(&mut queue, from, &mut [Line::ZERO], ReadMode::Plain).expect("it is there");
        host.withdraw_region(region.id()).expect("it was there");
        memories.push(Arc::downgrade(&region));
        drop(region);
        simulation.sleep(Duration::from_millis(100 * (round % 8)));
        let outcome = read_alone(&mut queue, from, &mut [Line::ZERO], ReadMode::Plain);
        let is_named = matches!(outcome, Ok(()) | Err(FabricError::RegionWithdrawn { .. }));
        assert!(is_named, "{outcome:?}");
        queue.detach(from.region);
    }
    let living = memories.iter().filter(|memory| memory.strong_count() > 0).count();
    assert!(living < 10, "the memory of {living} regions is kept longer than a second");
    simulation.sleep(Duration::from_secs(2));
    assert!(host.regions().is_empty() && memories.iter().all(|memory| memory.strong_count() == 0));
}

#[test]
fn numbers_are_heard_within_a_second_and_only_grow() {
    for seed in 0..50 {
        let simulation = Simulation::new(seed, Timing::default(), Vec::new());
        let host = simulation.listen::<Weakest>(ADDRESS, FORMAT);
        let open = || {
            let connection = simulation.connect::<Weakest>(ADDRESS, FORMAT).expect("a connection");
            let queue = connection.open_queue().expect("a queue");
            (connection, queue)
        };
        let (_first, queue) = open();
        let (mut random, mut heard, mut told) = (SplitMix64::new(seed), 0, Vec::new());
        for _ in 0..100 {
            let number = random.below(1_000);
            host.notify(number);
            told.push((simulation.now(), number));
            simulation.sleep(Duration::from_nanos(1 << random.below(30)));
            let notice = queue.notice();
            let due = told.iter().filter(|(at, _)| simulation.now().0 >= at.0 + PROMISED_NS);
            let due = due.map(|(_, number)| *number).max().unwrap_or(0);
            assert!(notice >= heard.max(due), "seed {seed}: {notice} after {heard}, and {due} is due");
            heard = notice;
        }
        simulation.sleep(Duration::from_secs(1));
        let (_late, late) = open();
        let newest = told.iter().map(|(_, number)| *number).max();
        assert_eq!([Some(queue.notice()), Some(late.notice())], [newest; 2], "seed {seed}");
    }
}

//! Verbs with prices against closed forms. A lonely verb takes the sum of its parts. What many take is
//! decided by the part that has most to do.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::{ClientId, LINE_BYTES, Line, RemoteAddress};
use farsight_fabric::{
    Answer, CallHandler, Connection as _, Host as _, QueuePair, ReadMode, RegionRights, ServerPort as _,
    Ticket,
};
use farsight_fabric_sim::{
    LinkPrices, NicPrices, Prices, ReliableConnection, SimHost, SimQueue, Simulation, ThreadPrices,
};

const REGION_LINES: usize = 1 << 11;
const CALL_PS: u64 = 400_000;
const MESSAGE_BYTES: usize = 100;

/// Every part costs something, and none costs the same as another.
const PRICES: Prices = Prices {
    nics: 1,
    server_cores: 4,
    nic: NicPrices {
        read_issued_ps: 11_000,
        read_served_ps: 13_000,
        write_issued_ps: 17_000,
        write_served_ps: 19_000,
        atomic_served_ps: 46_000,
        atomic_held_ps: 230_000,
        atomic_locks: 512,
        message_ps: 29_000,
    },
    link: LinkPrices { byte_ps: 80, packet_overhead_bytes: 30, payload_bytes_max: 4_096, way_ps: 1_000_000 },
    thread: ThreadPrices { post_ps: 31_000, doorbell_ps: 97_000, completion_ps: 37_000 },
    reads_in_flight_max: 16,
};

struct Echo;

impl CallHandler for Echo {
    fn handle(&mut self, _: ClientId, _: Ticket, request: &[u8], reply: &mut Vec<u8>) -> Answer {
        reply.extend_from_slice(request);
        Answer::Now
    }
}

#[derive(Clone, Copy, Debug)]
enum Work {
    Read {
        lines: usize,
    },
    Write {
        words: usize,
    },
    /// A batch's additions are to words so far from each other.
    FetchAdd {
        apart_words: usize,
    },
    /// An addition, then READs of a line.
    FetchAddThenReads,
    Call,
}

fn words_behind(at: RemoteAddress, words: usize) -> RemoteAddress {
    RemoteAddress { offset_bytes: at.offset_bytes + words as u64 * 8, ..at }
}

/// A batch of `count` verbs of a kind, and its end awaited.
fn batch(queue: &mut SimQueue<ReliableConnection>, at: RemoteAddress, work: Work, count: usize) {
    for slot in 0..count {
        match work {
            Work::Read { lines } => queue.post_read(slot, at, lines, ReadMode::Plain),
            Work::Write { words } => queue.post_write(slot, at, &vec![7; words]),
            Work::FetchAdd { apart_words } => {
                queue.post_fetch_add(slot, words_behind(at, slot * apart_words), 1);
            }
            Work::FetchAddThenReads if slot == 0 => queue.post_fetch_add(slot, at, 1),
            Work::FetchAddThenReads => queue.post_read(slot, at, 1, ReadMode::Plain),
            Work::Call => queue.post_call(slot, &[5; MESSAGE_BYTES]).expect("a short message"),
        }
    }
    queue.doorbell().expect("a living connection");
    queue.drain().expect("an end");
    for slot in 0..count {
        while !queue.is_complete(slot) {
            queue.wait(Duration::from_secs(1)).expect("an end");
            queue.poll().expect("a living connection");
        }
        match work {
            Work::Read { lines } => queue.take_read(slot, &mut vec![Line::ZERO; lines]).expect("lines"),
            Work::Call => {
                let mut reply = Vec::new();
                queue.take_reply(slot, &mut reply).expect("a reply");
                assert_eq!(reply, [5; MESSAGE_BYTES]);
            }
            Work::FetchAddThenReads if slot > 0 => {
                let mut line = [Line::ZERO];
                queue.take_read(slot, &mut line).expect("a line");
                assert!(line[0].0[0] > 0, "a READ shows the addition before it");
            }
            Work::Write { .. } | Work::FetchAdd { .. } | Work::FetchAddThenReads => {
                queue.take_word(slot).expect("an end");
            }
        }
    }
}

struct Bed {
    simulation: Simulation,
    host: Arc<SimHost<ReliableConnection>>,
    at: RemoteAddress,
}

impl Bed {
    fn new(prices: Prices) -> Self {
        let simulation = Simulation::priced(prices, |_, _| CALL_PS);
        let host = Arc::new(simulation.listen::<ReliableConnection>("sim://server", 1));
        let bytes = (REGION_LINES * LINE_BYTES) as u64;
        let region = host.create_region(bytes, RegionRights::ReadWrite).expect("a region").id();
        let mut port = host.open_port().expect("a port");
        host.run_port(0, move |now| (port.serve(8, &mut Echo) == 8).then_some(now));
        Self { simulation, host, at: RemoteAddress { region, offset_bytes: 0 } }
    }

    /// Runs `threads` threads on each of `machines` machines, each with batches of `count` verbs, until
    /// `until_ns`. Returns the virtual times at which batches ended.
    fn run(&self, (machines, threads): (usize, usize), work: Work, count: usize, until_ns: u64) -> Vec<u64> {
        let ends = Arc::new(Mutex::new(Vec::new()));
        for machine in 0..machines {
            let connection =
                self.simulation.connect::<ReliableConnection>("sim://server", 1).expect("a client");
            let connection = Arc::new(connection);
            for thread in 0..threads {
                let mut queue = connection.open_queue().expect("a queue pair");
                queue.attach(self.at.region).expect("a region");
                let (simulation, ends, mut at) = (self.simulation.clone(), Arc::clone(&ends), self.at);
                if let Work::FetchAdd { apart_words } = work {
                    at = words_behind(at, (machine * threads + thread) * count * apart_words);
                }
                let connection = Arc::clone(&connection);
                self.simulation.process("thread", machine, move || {
                    while simulation.now() < MonotonicNs(until_ns) {
                        batch(&mut queue, at, work, count);
                        simulation.catch_up();
                        ends.lock().expect("one thread").push(simulation.now().0);
                    }
                    drop(connection);
                });
            }
        }
        assert!(self.simulation.run_processes(MonotonicNs(10 * until_ns + 1_000_000_000)), "all ended");
        assert!(self.host.client_count() == 0, "every connection was dropped");
        Arc::into_inner(ends).expect("all ended").into_inner().expect("one thread")
    }

    /// Verbs a nanosecond in the second half of the run.
    fn rate(&self, clients: (usize, usize), work: Work, count: usize) -> f64 {
        const UNTIL_NS: u64 = 400_000;
        let ends = self.run(clients, work, count, UNTIL_NS);
        let counted = ends.iter().filter(|end| (UNTIL_NS / 2..UNTIL_NS).contains(*end)).count();
        (counted * count) as f64 / (UNTIL_NS / 2) as f64
    }
}

#[test]
fn a_lonely_verb_takes_the_sum_of_its_parts() {
    let Prices { nic, link, thread, .. } = PRICES;
    let lonely_add = Work::FetchAdd { apart_words: 0 };
    // Work, issuing and serving engine, bytes there and back (with the address that a request carries), core.
    let rows = [
        (Work::Read { lines: 1 }, nic.read_issued_ps, nic.read_served_ps, 16, 64, 0),
        (Work::Read { lines: 64 }, nic.read_issued_ps, nic.read_served_ps, 16, 4_096, 0),
        (Work::Read { lines: 65 }, nic.read_issued_ps, nic.read_served_ps, 16, 4_160, 0),
        (Work::Write { words: 5 }, nic.write_issued_ps, nic.write_served_ps, 16 + 40, 0, 0),
        (lonely_add, nic.read_issued_ps, nic.atomic_served_ps + nic.atomic_held_ps, 28, 8, 0),
        (Work::Call, nic.message_ps, 2 * nic.message_ps, 100, 100, CALL_PS),
    ];
    for (work, issued_ps, served_ps, there_bytes, back_bytes, core_ps) in rows {
        let ends = Bed::new(PRICES).run((1, 1), work, 1, 1);
        let fabric_ps = 2 * link.way_ps + link.message_ps(there_bytes) + link.message_ps(back_bytes);
        let thread_ps = thread.post_ps + thread.doorbell_ps + thread.completion_ps;
        let expected_ns = (thread_ps + issued_ps + served_ps + fabric_ps + core_ps) as f64 / 1e3;
        // Each part that is an event of its own rounds up to a nanosecond.
        let late_ns = ends[0] as f64 - expected_ns;
        assert!((0.0..=6.0).contains(&late_ns), "{work:?}: {} ns, expected {expected_ns}", ends[0]);
    }
}

#[test]
fn saturated_the_rate_is_that_of_the_bottleneck() {
    let Prices { nic, link, thread, .. } = PRICES;
    // A thread builds its whole batch before anything leaves; then the card sends 16 READs at a time.
    let built_ps = thread.post_ps as f64 + thread.doorbell_ps as f64 / 256.0;
    let messages_ps = link.message_ps(16) + link.message_ps(64);
    let flight_ps = (2 * link.way_ps + nic.read_issued_ps + nic.read_served_ps + messages_ps) as f64;
    let many = (12, 6);
    let adds = |apart_words| Work::FetchAdd { apart_words };
    let slow_issue = Prices { nic: NicPrices { read_issued_ps: 60_000, ..nic }, ..PRICES };
    let rows = [
        ("the server's card", PRICES, many, Work::Read { lines: 1 }, 16, nic.read_served_ps as f64),
        ("the server's link", PRICES, many, Work::Read { lines: 8 }, 16, link.message_ps(512) as f64),
        ("WRITEs, the server's card", PRICES, many, Work::Write { words: 1 }, 16, nic.write_served_ps as f64),
        ("atomics, the server's card", PRICES, many, adds(1), 2, nic.atomic_served_ps as f64),
        ("atomics on one word", PRICES, many, adds(0), 2, nic.atomic_held_ps as f64),
        (
            "atomics on words of one lock",
            PRICES,
            (12, 1),
            adds(nic.atomic_locks),
            2,
            nic.atomic_held_ps as f64,
        ),
        (
            "on words of two locks",
            PRICES,
            (12, 2),
            adds(nic.atomic_locks / 2),
            2,
            nic.atomic_held_ps as f64 / 2.0,
        ),
        ("the server's cores", PRICES, many, Work::Call, 2, CALL_PS as f64 / 4.0),
        ("the client's card", slow_issue, (1, 12), Work::Read { lines: 1 }, 16, 60_000.0),
        ("READs in flight", PRICES, (1, 1), Work::Read { lines: 1 }, 256, built_ps + flight_ps / 16.0),
    ];
    for (bottleneck, prices, clients, work, count, each_ps) in rows {
        let rate = Bed::new(prices).rate(clients, work, count);
        let expected = 1e3 / each_ps;
        assert!((rate / expected - 1.0).abs() < 0.02, "{bottleneck}: {rate} a ns, expected {expected}");
    }
}

#[test]
fn a_queue_pair_sends_so_many_reads_and_the_rest_behind_them() {
    let time_of = |count: usize| Bed::new(PRICES).run((1, 1), Work::Read { lines: 1 }, count, 1)[0];
    let (one, all, two_rounds, three_rounds) = (time_of(1), time_of(16), time_of(17), time_of(33));
    let way_ns = 2 * PRICES.link.way_ps / 1_000;
    assert!(all < one + way_ns, "16 READs overlap: {all} after {one}");
    assert!(
        (all + way_ns / 2..all + 2 * way_ns).contains(&two_rounds),
        "the 17th waits: {two_rounds}, {all}"
    );
    assert!((two_rounds + way_ns / 2..).contains(&three_rounds), "the 33rd waits twice: {three_rounds}");
}

#[test]
fn reads_behind_an_atomic_wait_for_it() {
    let time_of = |work, count| Bed::new(PRICES).run((1, 1), work, count, 1)[0];
    let alone_ns = time_of(Work::FetchAdd { apart_words: 0 }, 1);
    let with_reads_ns = time_of(Work::FetchAddThenReads, 3);
    let reads_ns = 2 * (PRICES.nic.read_served_ps / 1_000);
    assert!(with_reads_ns >= alone_ns + reads_ns, "{with_reads_ns} ns with two READs, {alone_ns} alone");
}

#[test]
fn usage_is_work_by_time() {
    let bed = Bed::new(PRICES);
    let before = bed.simulation.usage().expect("prices");
    let ends = bed.run((1, 1), Work::Read { lines: 8 }, 4, 200_000);
    let usage = bed.simulation.usage().expect("prices").since(&before);
    let lasted_ps = bed.simulation.now().0 as f64 * 1e3;
    let of = |name: &str| usage.iter().find(|part| part.name == name).expect("a part").mean;
    let verbs = (ends.len() * 4) as f64;
    for (name, work_ps) in [
        ("server: card", verbs * PRICES.nic.read_served_ps as f64),
        ("server: link out", verbs * PRICES.link.message_ps(512) as f64),
        ("server: link in", verbs * PRICES.link.message_ps(16) as f64),
        ("server: atomics' locks", 0.0),
        ("server: cores", 0.0),
        ("clients: card", verbs * PRICES.nic.read_issued_ps as f64),
        ("clients: threads", verbs * (31_000.0 + 37_000.0) + ends.len() as f64 * 97_000.0),
    ] {
        let expected = work_ps / lasted_ps;
        assert!((of(name) - expected).abs() <= 1e-6, "{name}: {}, expected {expected}", of(name));
    }
}

#[test]
fn two_runs_are_one() {
    let hash = || {
        let bed = Bed::new(PRICES);
        let ends = bed.run((3, 4), Work::Call, 3, 50_000);
        (bed.simulation.trace_hash(), bed.simulation.events(), ends)
    };
    let first = hash();
    assert!(first.1 > 100, "something happened");
    assert_eq!(first, hash());
}

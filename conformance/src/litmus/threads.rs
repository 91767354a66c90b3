//! Programs over a real fabric: a thread and a connection for each client.
//!
//! Each run has lines of its own, so nothing has to be put back between two. Clients meet before each run,
//! and then wait a random moment. So their steps overlap in every way that the machine knows.

use std::time::{Duration, Instant};

use farsight_base::RegionId;
use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_fabric::{Connection, Host, Region, RegionRights};

use super::client::{Rewriter, WORD, perform, queue_count};
use super::{LINES, Program, Seen, WORDS};
use crate::fabric::FabricUnderTest;
use crate::fabric::harness::{FORMAT, PATIENCE, QueueOf, Running, at};
use farsight_base::{LINE_BYTES, WORDS_PER_LINE};

/// Runs of a program at most.
const RUNS_MAX: u64 = 20_000;
/// No run begins later, but for the first few: on a busy machine connecting alone may take longer.
const TIME_MAX: Duration = Duration::from_millis(300);
const RUNS_MIN: u64 = 16;
/// Looks at the others' progress before the thread gives its core away.
const SPINS: usize = 300;
/// The longest wait of a client behind the others, in turns of an empty loop: from less than a verb takes to
/// more than a call does.
const LAG_MAX_BITS: u64 = 13;
/// Calls of one turn of the server's worker.
const TURN_CALLS: usize = 256;
/// What a client has reached when it ends.
const END: u64 = u64::MAX;

/// Where every client is.
struct Meeting(Vec<AtomicU64>);

impl Meeting {
    /// Waits until all others have come to `run`; false if one of them has ended.
    fn meet(&self, own: usize, run: u64) -> bool {
        // Relaxed, here and below: the numbers carry nothing with them; runs share no line.
        self.0[own].store(run, Ordering::Relaxed);
        let mut others = self.0.iter().enumerate().filter(|(client, _)| *client != own);
        others.all(|(_, progress)| {
            let started = Instant::now();
            for spins in 0.. {
                match progress.load(Ordering::Relaxed) {
                    END => return false,
                    reached if reached >= run => break,
                    _ if spins < SPINS => std::hint::spin_loop(),
                    _ => std::thread::yield_now(),
                }
                assert!(spins % 1024 != 0 || started.elapsed() < PATIENCE, "client {own} waits in vain");
            }
            true
        })
    }
}

/// A client's end is told however it comes.
struct Leaves<'m>(&'m AtomicU64);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.store(END, Ordering::Relaxed);
    }
}

/// The outcomes of as many runs as fit into the time.
///
/// # Panics
/// If the fabric fails.
pub fn observe<F: FabricUnderTest>(program: &Program, subject: &F) -> Seen {
    let host = subject.listen(FORMAT);
    let length_bytes = RUNS_MAX * (LINES * LINE_BYTES) as u64;
    let region = host.create_region(length_bytes, RegionRights::ReadWrite).expect("a region");
    let server = Running::run(host, 1, || {
        let mut rewriter = Rewriter::new(&region);
        move |port: &mut <F::Host as Host>::Port| rewriter.turn(port, TURN_CALLS)
    });
    let meeting = Meeting(program.clients.iter().map(|_| AtomicU64::new(0)).collect());
    let begins = Instant::now();
    let registers: Vec<Vec<Vec<u64>>> = std::thread::scope(|scope| {
        let clients = (0..program.clients.len()).map(|client| {
            let connection = subject.connect(FORMAT).expect("a connection");
            let (meeting, region) = (&meeting, region.id());
            scope.spawn(move || run_client::<F>(program, client, &connection, region, meeting, begins))
        });
        let clients: Vec<_> = clients.collect();
        clients.into_iter().map(|client| client.join().expect("a client")).collect()
    });
    let runs = registers.iter().map(Vec::len).min().unwrap_or(0);
    let mut seen = Seen::new();
    for run in 0..runs {
        let finals = program.finals.iter().map(|line| {
            let word = run * WORDS + line * WORDS_PER_LINE + WORD;
            // Acquire: its last writer is a thread that was joined, or another that the fabric ordered.
            region.words()[word].load(Ordering::Acquire)
        });
        let outcome = registers.iter().flat_map(|client| client[run].iter().copied()).chain(finals);
        *seen.entry(outcome.collect()).or_default() += 1;
    }
    drop(server);
    seen
}

/// One client's runs: the registers of each.
fn run_client<F: FabricUnderTest>(
    program: &Program,
    client: usize,
    connection: &F::Connection,
    region: RegionId,
    meeting: &Meeting,
    begins: Instant,
) -> Vec<Vec<u64>> {
    let steps = program.clients[client];
    let mut queues: Vec<QueueOf<F>> =
        (0..queue_count(steps)).map(|_| connection.open_queue().expect("a queue")).collect();
    for queue in &mut queues {
        use farsight_fabric::QueuePair as _;
        queue.attach(region).expect("the region attaches");
    }
    let mut random = SplitMix64::new(client as u64);
    let mut registers = Vec::new();
    let _leaves = Leaves(&meeting.0[client]);
    for run in 0..RUNS_MAX {
        // The first client ends it for all: they meet it no more.
        let is_over = client == 0 && run >= RUNS_MIN && begins.elapsed() > TIME_MAX;
        if is_over || !meeting.meet(client, run + 1) {
            break;
        }
        (0..random.next_u64() >> (63 - random.below(LAG_MAX_BITS))).for_each(|_| std::hint::spin_loop());
        let base = at(region, run * (LINES * LINE_BYTES) as u64);
        registers.push(perform(steps, &mut queues, base, random.below(2) == 0));
    }
    registers
}

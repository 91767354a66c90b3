//! A running server and small steps that the tests share.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farsight_base::sync::{AtomicBool, AtomicU64, Ordering};
use farsight_base::{ClientId, Line, RegionId, RemoteAddress};
use farsight_fabric::{
    Answer, CallHandler, Connection, FabricError, Host, QueuePair, ReadMode, Region, RegionRights,
    ServerPort, Slot, Ticket,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::FabricUnderTest;

/// The format version of servers and clients that are to understand each other.
pub const FORMAT: u32 = 7;
/// What no wait of a passing test comes near.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Within this time a dead peer must be noticed, however busy the machine is; the test `notice` holds up the
/// second that is promised.
pub const NOTICE: Duration = Duration::from_secs(10);

/// True if this process may have so many descriptors.
#[must_use]
pub fn raise_descriptors(wanted: u64) -> bool {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return true;
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).is_ok()
}

/// The queue of a subject.
pub type QueueOf<F> = <<F as FabricUnderTest>::Connection as Connection>::Queue;

/// What a request asks of the test's handler; the rest of the request is its argument.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub enum Ask {
    /// Answer with the whole request.
    Echo = 1,
    /// Sleep so many milliseconds (u32), then answer with the whole request.
    Sleep = 2,
    /// Answer with so many bytes (u32) of [`pattern`], seeded with the next u32.
    Pattern = 3,
}

/// A request: what is asked, and numbers.
#[must_use]
pub fn request(ask: Ask, arguments: &[u32]) -> Vec<u8> {
    let numbers = arguments.iter().flat_map(|number| number.to_le_bytes());
    std::iter::once(ask as u8).chain(numbers).collect()
}

/// Bytes that differ by seed and place.
#[must_use]
pub fn pattern(length_bytes: usize, seed: u32) -> Vec<u8> {
    (0..length_bytes).map(|index| (index as u32).wrapping_mul(31).wrapping_add(seed) as u8).collect()
}

struct Handler {
    calls: Arc<AtomicU64>,
}

impl CallHandler for Handler {
    fn handle(&mut self, _: ClientId, _: Ticket, request: &[u8], reply: &mut Vec<u8>) -> Answer {
        // Relaxed: a counter that is compared after the threads are joined, or after a reply.
        self.calls.fetch_add(1, Ordering::Relaxed);
        let argument = |index: usize| {
            let bytes = request.get(1 + 4 * index..).and_then(|rest| rest.first_chunk());
            bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
        };
        match request.first() {
            Some(ask) if *ask == Ask::Sleep as u8 => {
                std::thread::sleep(Duration::from_millis(u64::from(argument(0))));
                reply.extend(request);
            }
            Some(ask) if *ask == Ask::Pattern as u8 => {
                reply.extend(pattern(argument(0) as usize, argument(1)));
            }
            _ => reply.extend(request),
        }
        Answer::Now
    }
}

/// A server with a control thread and workers, stopped when dropped.
pub struct Running<H: Host + 'static> {
    host: Option<Arc<H>>,
    stop: Arc<AtomicBool>,
    control: Option<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
    calls: Arc<AtomicU64>,
}

impl<H: Host + 'static> Running<H> {
    /// Runs `host` with so many workers.
    #[must_use]
    pub fn start(host: H, worker_count: usize) -> Self {
        let calls = Arc::new(AtomicU64::new(0));
        let mut running = Self::serve(host, worker_count, || Handler { calls: Arc::clone(&calls) });
        running.calls = calls;
        running
    }

    /// Runs `host` with so many workers, each with a handler that `make` makes. No calls are counted.
    #[must_use]
    pub fn serve<C: CallHandler + Send + 'static>(
        host: H,
        worker_count: usize,
        make: impl Fn() -> C,
    ) -> Self {
        Self::run(host, worker_count, || {
            let mut handler = make();
            move |port: &mut H::Port| port.serve(256, &mut handler)
        })
    }

    /// Runs `host` with so many workers, each with a turn that `make` makes: it returns 0 when its port may
    /// sleep. No calls are counted.
    #[must_use]
    pub fn run<S: FnMut(&mut H::Port) -> usize + Send + 'static>(
        host: H,
        worker_count: usize,
        make: impl Fn() -> S,
    ) -> Self {
        let host = Arc::new(host);
        let stop = Arc::new(AtomicBool::new(false));
        let calls = Arc::new(AtomicU64::new(0));
        let workers = (0..worker_count).map(|_| {
            let mut port = host.open_port().expect("a port");
            let stop = Arc::clone(&stop);
            let mut turn = make();
            std::thread::spawn(move || {
                // Relaxed: the flag carries nothing with it.
                while !stop.load(Ordering::Relaxed) {
                    if turn(&mut port) == 0 {
                        port.wait(PATIENCE);
                    }
                }
            })
        });
        let workers = workers.collect();
        let control = {
            let (host, stop) = (Arc::clone(&host), Arc::clone(&stop));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    host.step(PATIENCE).expect("the server listens");
                }
            })
        };
        Self { host: Some(host), stop, control: Some(control), workers, calls }
    }

    /// The server.
    #[must_use]
    pub fn host(&self) -> &H {
        self.host.as_ref().expect("it runs")
    }

    /// Calls executed so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Ends the server at once, while a worker may still be executing a call.
    pub fn die(&mut self) {
        let Some(host) = self.host.take() else { return };
        self.stop.store(true, Ordering::Relaxed);
        host.wake();
        if let Some(control) = self.control.take() {
            control.join().expect("the control thread");
        }
        drop(host);
    }
}

impl<H: Host + 'static> Drop for Running<H> {
    fn drop(&mut self) {
        self.die();
        for worker in self.workers.drain(..) {
            let outcome = worker.join();
            assert!(std::thread::panicking() || outcome.is_ok(), "a worker panicked");
        }
    }
}

/// A server with one worker and one region, and a client with the region attached.
pub struct Bench<F: FabricUnderTest> {
    /// The client's queue.
    pub queue: QueueOf<F>,
    /// The client.
    pub connection: F::Connection,
    /// The region as the server has it.
    pub region: Arc<dyn Region>,
    /// The server.
    pub server: Running<F::Host>,
}

impl<F: FabricUnderTest> Bench<F> {
    /// Sets it up; the region has 1 MiB or more.
    #[must_use]
    pub fn new(subject: &F, rights: RegionRights) -> Self {
        let server = Running::start(subject.listen(FORMAT), 1);
        let region = server.host().create_region(1 << 20, rights).expect("a region");
        let connection = subject.connect(FORMAT).expect("a connection");
        let mut queue = connection.open_queue().expect("a queue");
        let length_bytes = queue.attach(region.id()).expect("the region attaches");
        assert_eq!(length_bytes, region.words().len() as u64 * 8, "both sides know one size");
        Self { queue, connection, region, server }
    }

    /// The address of a word of the region.
    #[must_use]
    pub fn word(&self, index: usize) -> RemoteAddress {
        at(self.region.id(), index as u64 * 8)
    }

    /// Another queue with the region attached.
    #[must_use]
    pub fn another_queue(&self) -> QueueOf<F> {
        let mut queue = self.connection.open_queue().expect("a queue");
        queue.attach(self.region.id()).expect("the region attaches");
        queue
    }
}

/// An address.
#[must_use]
pub fn at(region: RegionId, offset_bytes: u64) -> RemoteAddress {
    RemoteAddress { region, offset_bytes }
}

/// Rings, and waits until every one of `slots` is complete.
pub fn ring_and_wait<Q: QueuePair>(queue: &mut Q, slots: &[Slot]) {
    queue.doorbell().expect("the doorbell rings");
    wait_for(queue, slots);
}

/// Waits until every one of `slots` is complete.
pub fn wait_for<Q: QueuePair>(queue: &mut Q, slots: &[Slot]) {
    let started = Instant::now();
    while !slots.iter().all(|slot| queue.is_complete(*slot)) {
        assert!(started.elapsed() < PATIENCE, "slots {slots:?} did not complete in time");
        if queue.poll().expect("polling") == 0 {
            queue.wait(Duration::from_millis(50)).expect("waiting");
        }
    }
}

/// One READ in slot 0.
///
/// # Errors
/// As the READ itself.
pub fn read<Q: QueuePair>(
    queue: &mut Q,
    from: RemoteAddress,
    mode: ReadMode,
    into: &mut [Line],
) -> Result<(), FabricError> {
    queue.post_read(0, from, into.len(), mode);
    ring_and_wait(queue, &[0]);
    queue.take_read(0, into)
}

/// One call in `slot`.
#[must_use]
pub fn call<Q: QueuePair>(queue: &mut Q, slot: Slot, request: &[u8]) -> Vec<u8> {
    queue.post_call(slot, request).expect("the request fits");
    ring_and_wait(queue, &[slot]);
    let mut reply = b"left over".to_vec();
    queue.take_reply(slot, &mut reply).expect("a reply");
    reply
}

/// Asserts that the queue is found dead within [`NOTICE`] by everything that it does, its peer being gone.
pub fn assert_dies<Q: QueuePair>(queue: &mut Q) {
    for error in death(queue) {
        assert_disconnected(&error);
    }
}

/// What everything that a dead queue does ends in, the first of which comes within [`NOTICE`].
pub fn death<Q: QueuePair>(queue: &mut Q) -> [FabricError; 3] {
    let started = Instant::now();
    let error = loop {
        if let Err(error) = queue.poll().and_then(|_| queue.wait(Duration::from_millis(20))) {
            break error;
        }
        assert!(started.elapsed() < NOTICE, "a dead peer was not noticed within {NOTICE:?}");
    };
    let doorbell = queue.doorbell().expect_err("a dead queue rings no doorbell");
    [error, doorbell, queue.poll().expect_err("a dead queue completes nothing")]
}

/// Asserts that it is [`FabricError::Disconnected`].
pub fn assert_disconnected(error: &FabricError) {
    assert!(matches!(error, FabricError::Disconnected { .. }), "{error}");
}

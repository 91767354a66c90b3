//! A queue pair whose owner dies, or stops for a while: after so many changes it sends nothing more, in the
//! middle of a batch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight_base::clock::MonotonicNs;
use farsight_base::sync::{AtomicBool, AtomicU64, Ordering};
use farsight_base::{Line, RegionId, RemoteAddress};
use farsight_fabric::{FabricError, Guarantees, Meters, QueuePair, ReadMode, Slot};

/// How long an owner waits at a stop, at most.
const STOP_MAX: Duration = Duration::from_secs(10);
/// Between two looks whether it is over.
const LOOK_AGAIN: Duration = Duration::from_micros(50);

/// Where an owner waits between two changes until somebody else lets it go on.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    is_reached: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
}

impl Stop {
    /// True once the owner waits there.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        // Relaxed, here and below: what the owner changed is in shared memory, which has orderings of its
        // own.
        self.is_reached.load(Ordering::Relaxed)
    }

    /// Lets the owner go on, also one that comes later.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn wait(&self) {
        self.is_reached.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        while !self.is_over.load(Ordering::Relaxed) {
            assert!(begun.elapsed() < STOP_MAX, "nobody ends a stop");
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

/// How many changes (WRITEs and atomics) the owner still makes, over all of its queues; then it dies, or
/// waits at a stop.
#[derive(Clone, Debug)]
pub struct Lifetime {
    left: Arc<AtomicU64>,
    stop: Option<Stop>,
}

impl Lifetime {
    /// Without end.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a life is no default")]
    pub fn new() -> Self {
        Self { left: Arc::new(AtomicU64::new(u64::MAX)), stop: None }
    }

    /// Without end, but for a stop behind so many changes.
    #[must_use]
    pub fn with_stop(stop: Stop, changes: u64) -> Self {
        Self { left: Arc::new(AtomicU64::new(changes + 1)), stop: Some(stop) }
    }

    /// So many changes from now on.
    pub fn renew(&self, changes: u64) {
        // Relaxed, here and below: one thread owns all of it. One more than there are; 0 when it is over.
        self.left.store(changes + 1, Ordering::Relaxed);
    }

    /// Takes one change; false if none is left.
    fn spend(&self) -> bool {
        let mut left = self.left.load(Ordering::Relaxed).saturating_sub(1);
        if left == 0
            && let Some(stop) = &self.stop
        {
            stop.wait();
            left = u64::MAX;
        }
        self.left.store(left, Ordering::Relaxed);
        left > 0
    }

    fn is_over(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }
}

/// The queue pair.
pub struct DyingQueue<Q> {
    queue: Q,
    life: Lifetime,
}

impl<Q: QueuePair> DyingQueue<Q> {
    /// `queue`, as long as `life` lasts.
    pub fn new(queue: Q, life: Lifetime) -> Self {
        Self { queue, life }
    }

    fn check(&self) -> Result<(), FabricError> {
        if !self.life.is_over() {
            return Ok(());
        }
        Err(FabricError::Disconnected { peer: self.queue.peer().to_owned(), reason: "died".to_owned() })
    }
}

impl<Q: QueuePair> QueuePair for DyingQueue<Q> {
    const SLOTS: usize = Q::SLOTS;
    const MESSAGE_BYTES_MAX: usize = Q::MESSAGE_BYTES_MAX;
    const GUARANTEES: Guarantees = Q::GUARANTEES;

    fn peer(&self) -> &str {
        self.queue.peer()
    }

    fn now(&self) -> MonotonicNs {
        self.queue.now()
    }

    fn attach(&mut self, region: RegionId) -> Result<u64, FabricError> {
        self.queue.attach(region)
    }

    fn detach(&mut self, region: RegionId) {
        self.queue.detach(region);
    }

    fn notice(&self) -> u64 {
        self.queue.notice()
    }

    fn post_read(&mut self, slot: Slot, from: RemoteAddress, line_count: usize, mode: ReadMode) {
        self.queue.post_read(slot, from, line_count, mode);
    }

    fn post_write(&mut self, slot: Slot, to: RemoteAddress, words: &[u64]) {
        if self.life.spend() {
            self.queue.post_write(slot, to, words);
        }
    }

    fn post_compare_swap(&mut self, slot: Slot, at: RemoteAddress, expected: u64, new: u64) {
        if self.life.spend() {
            self.queue.post_compare_swap(slot, at, expected, new);
        }
    }

    fn post_fetch_add(&mut self, slot: Slot, at: RemoteAddress, delta: u64) {
        if self.life.spend() {
            self.queue.post_fetch_add(slot, at, delta);
        }
    }

    fn post_call(&mut self, slot: Slot, request: &[u8]) -> Result<(), FabricError> {
        self.queue.post_call(slot, request)
    }

    fn doorbell(&mut self) -> Result<(), FabricError> {
        self.queue.doorbell()?;
        self.queue.drain()?;
        self.check()
    }

    fn poll(&mut self) -> Result<usize, FabricError> {
        self.check()?;
        self.queue.poll()
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), FabricError> {
        self.check()?;
        self.queue.wait(timeout)
    }

    fn drain(&mut self) -> Result<(), FabricError> {
        self.check()?;
        self.queue.drain()
    }

    fn is_complete(&self, slot: Slot) -> bool {
        self.queue.is_complete(slot)
    }

    fn take_read(&mut self, slot: Slot, into: &mut [Line]) -> Result<(), FabricError> {
        self.check()?;
        self.queue.take_read(slot, into)
    }

    fn take_word(&mut self, slot: Slot) -> Result<u64, FabricError> {
        self.check()?;
        self.queue.take_word(slot)
    }

    fn take_reply(&mut self, slot: Slot, into: &mut Vec<u8>) -> Result<(), FabricError> {
        self.check()?;
        self.queue.take_reply(slot, into)
    }

    fn meters(&self) -> Meters {
        self.queue.meters()
    }
}

//! A host's ports, and how queues come to them.
//!
//! Invariant: a queue is in exactly one place: with the host while there is no port, in one port's inbox, or
//! with that port.
//!
//! Protocol:
//! 1. The host puts a queue into the inbox of the port whose turn it is, then marks the port as changed, then
//!    wakes it.
//! 2. The port takes the mark away, then looks at its inbox and at which of its queues are closed.
//!
//! So what comes after the look is marked again.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use farsight_base::sync::{AtomicBool, Mutex as InboxMutex, MutexGuard, Ordering};

#[cfg(any(loom, shuttle))]
use crate::injected;
use crate::{lock, os};

/// What a host shares with a port.
#[derive(Debug)]
pub struct PortHandle<Q, D = ()> {
    /// What the host needs of the port's device.
    pub device: D,
    /// Readable when the port is woken.
    pub wake: OwnedFd,
    changed: AtomicBool,
    inbox: InboxMutex<Vec<Q>>,
}

impl<Q, D> PortHandle<Q, D> {
    /// Of a port that has no queues yet.
    ///
    /// # Errors
    /// If no descriptors are left.
    pub fn new(device: D) -> io::Result<Arc<Self>> {
        let (changed, inbox) = (AtomicBool::new(false), InboxMutex::new(Vec::new()));
        Ok(Arc::new(Self { device, wake: os::wake_descriptor()?, changed, inbox }))
    }

    /// Hands the port a queue.
    pub fn give(&self, queue: Q) {
        #[cfg(any(loom, shuttle))]
        if injected::MARKED_BEFORE_GIVEN.is_injected() {
            self.notice();
            return self.inbox().push(queue);
        }
        self.inbox().push(queue);
        self.notice();
    }

    fn inbox(&self) -> MutexGuard<'_, Vec<Q>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the port look at its inbox and its gates.
    pub fn notice(&self) {
        // Release: what there is to notice comes before. Partner: the Acquire swap in `take_changed`.
        self.changed.store(true, Ordering::Release);
        self.wake();
    }

    /// Ends the port's sleep.
    pub fn wake(&self) {
        os::signal(&self.wake);
    }

    /// True if there is something to notice.
    #[inline]
    pub fn has_changed(&self) -> bool {
        // Relaxed: only a hint to look properly; the thread that sets it wakes the port besides.
        self.changed.load(Ordering::Relaxed)
    }

    /// True, once, if there is something to notice.
    #[inline]
    pub fn take_changed(&self) -> bool {
        // A look first, so that an unchanged port pays no exclusive access. Acquire: the partner is the
        // Release store in `notice`.
        self.has_changed() && self.changed.swap(false, Ordering::Acquire)
    }

    /// The queues that have come since the last time.
    pub fn take_arrived(&self) -> Vec<Q> {
        std::mem::take(&mut self.inbox())
    }
}

/// The ports of a host.
#[derive(Debug)]
pub struct Ports<Q, D = ()>(Mutex<Inner<Q, D>>);

#[derive(Debug)]
struct Inner<Q, D> {
    open: Vec<Weak<PortHandle<Q, D>>>,
    next: usize,
    /// Queues opened before there was a port.
    waiting: Vec<Q>,
}

impl<Q, D> Default for Ports<Q, D> {
    fn default() -> Self {
        Self(Mutex::new(Inner { open: Vec::new(), next: 0, waiting: Vec::new() }))
    }
}

impl<Q, D> Inner<Q, D> {
    fn next(&mut self) -> Option<Arc<PortHandle<Q, D>>> {
        self.open.retain(|port| port.strong_count() > 0);
        self.next = self.next.wrapping_add(1);
        let turn = self.next.checked_rem(self.open.len());
        turn.and_then(|turn| self.open[turn].upgrade())
    }
}

impl<Q, D> Ports<Q, D> {
    /// Takes in a port, which gets the queues that waited for one.
    pub fn open(&self, port: &Arc<PortHandle<Q, D>>) {
        let mut ports = lock(&self.0);
        for queue in ports.waiting.drain(..) {
            port.give(queue);
        }
        ports.open.push(Arc::downgrade(port));
    }

    /// The port whose turn it is, if there is one.
    pub fn next(&self) -> Option<Arc<PortHandle<Q, D>>> {
        lock(&self.0).next()
    }

    /// Gives a queue to the port whose turn it is. Without a port it waits for one.
    pub fn assign(&self, queue: Q) {
        let mut ports = lock(&self.0);
        match ports.next() {
            Some(port) => port.give(queue),
            None => ports.waiting.push(queue),
        }
    }

    /// Lets go of waiting queues that are closed, and makes all ports look at theirs.
    pub fn notice(&self, is_closed: impl Fn(&Q) -> bool) {
        lock(&self.0).waiting.retain(|queue| !is_closed(queue));
        self.for_each(PortHandle::notice);
    }

    /// Ends the sleep of all ports.
    pub fn wake(&self) {
        self.for_each(PortHandle::wake);
    }

    fn for_each(&self, tell: impl Fn(&PortHandle<Q, D>)) {
        for port in lock(&self.0).open.iter().filter_map(Weak::upgrade) {
            tell(&port);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_wait_for_a_port_and_then_take_turns() {
        let ports = Ports::<u32>::default();
        for queue in [1, 2, 3] {
            ports.assign(queue);
        }
        ports.notice(|queue| *queue == 2);
        assert!(ports.next().is_none());
        let both = [(); 2].map(|()| PortHandle::new(()).expect("a descriptor"));
        ports.open(&both[0]);
        assert!(both[0].take_changed() && !both[0].take_changed());
        assert_eq!(both[0].take_arrived(), [1, 3]);
        ports.open(&both[1]);
        assert!(!both[1].has_changed(), "nothing waits any more");
        for queue in 4..8 {
            ports.assign(queue);
        }
        let mut arrived = both.each_ref().map(|port| port.take_arrived());
        arrived.sort();
        assert_eq!(arrived, [[4, 6], [5, 7]]);
        let [first, second] = both;
        drop(second);
        for queue in 8..10 {
            ports.assign(queue);
        }
        assert_eq!(first.take_arrived(), [8, 9], "a port that has ended gets none");
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod models {
    use farsight_base::injection::assert_found;
    use farsight_base::sync::model::{check, thread};

    use super::*;
    use crate::injected;

    /// A host that gives a queue to a port which looks at its inbox meanwhile: the queue is found, or the
    /// port is still marked.
    fn no_queue_is_forgotten() {
        let port = PortHandle::<u32>::new(()).expect("a descriptor");
        let giver = Arc::clone(&port);
        let host = thread::spawn(move || giver.give(7));
        let mut found = if port.take_changed() { port.take_arrived() } else { Vec::new() };
        host.join().unwrap();
        if port.has_changed() {
            found.extend(port.take_arrived());
        }
        assert_eq!(found, [7], "a queue lies in the inbox of a port that does not look");
    }

    #[test]
    fn a_queue_given_to_a_port_is_found() {
        check(3, no_queue_is_forgotten);
    }

    #[test]
    fn a_mark_before_the_queue_is_too_early() {
        assert_found(&injected::MARKED_BEFORE_GIVEN, || check(3, no_queue_is_forgotten));
    }
}

//! A worker's port: an epoll over its share of the queues, visited as frames arrive.
//!
//! Invariant: a queue is in exactly one place: with the host's inbox, or in a place of one port. Each visit
//! is bounded in bytes and in calls, so no client holds up the others longer than that.
//!
//! Protocol: queues come from the host through an inbox and leave when their gate closes, when the client
//! ends them, or on disorder, which the host is told. A queue whose client does not read waits for room to
//! write, and for nothing else. A queue that has its most calls parked waits for the worker to finish one, or
//! for its client to hang up. A finished call's reply goes out with the queue's next visit, together with
//! others.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight_fabric::{CallHandler, Parked, ServerPort, Ticket};
use farsight_fabric_host::{DisconnectQueue, DisconnectReason, PortHandle, os};
use farsight_fabric_net::Waiting;
use rustix::event::epoll;

use crate::alive::BRIEF;
use crate::server_queue::{Awaits, Buffers, ParkedCall, ServerQueue, Visit, Work};

/// Events taken at a time.
const EVENTS: usize = 64;
/// So many queues are looked at one by one, without asking epoll which of them has something.
const DIRECT_MAX: usize = 2;
/// The wake descriptor among epoll's tokens; queues count from one.
const WAKE_TOKEN: u64 = 0;

/// One worker's share of the connected clients.
pub struct TcpPort {
    shared: Arc<PortHandle<ServerQueue>>,
    epoll: OwnedFd,
    disconnects: Arc<DisconnectQueue>,
    waiting: Waiting,
    /// By token, less one.
    queues: Vec<Option<ServerQueue>>,
    vacant: Vec<usize>,
    parked: Parked<ParkedCall>,
    /// Queues with something to do, as far as is known.
    ready: VecDeque<usize>,
    /// Since when nothing was executed.
    idle_since: Option<Instant>,
    buffers: Buffers,
}

impl TcpPort {
    pub(crate) fn new(disconnects: Arc<DisconnectQueue>, waiting: Waiting) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let shared = PortHandle::new(())?;
        epoll::add(&epoll, &shared.wake, epoll::EventData::new_u64(WAKE_TOKEN), epoll::EventFlags::IN)?;
        Ok(Self {
            shared,
            epoll,
            disconnects,
            waiting,
            queues: Vec::new(),
            vacant: Vec::new(),
            parked: Parked::default(),
            ready: VecDeque::new(),
            idle_since: None,
            buffers: Buffers::new(),
        })
    }

    pub(crate) fn shared(&self) -> &Arc<PortHandle<ServerQueue>> {
        &self.shared
    }

    fn apply_changes(&mut self) {
        if !self.shared.take_changed() {
            return;
        }
        for queue in self.shared.take_arrived() {
            let place = self.vacant.pop().unwrap_or_else(|| {
                self.queues.push(None);
                self.queues.len() - 1
            });
            let data = epoll::EventData::new_u64(place as u64 + 1);
            match epoll::add(&self.epoll, queue.socket(), data, interest(Awaits::Input)) {
                Ok(()) => self.queues[place] = Some(queue),
                Err(error) => {
                    self.vacant.push(place);
                    let reason = format!("epoll took no more queues: {error}");
                    self.disconnects.push(queue.client, DisconnectReason::Broken(reason));
                }
            }
        }
        for place in 0..self.queues.len() {
            if self.queues[place].as_ref().is_some_and(ServerQueue::is_closed) {
                self.remove(place);
            }
        }
    }

    fn remove(&mut self, place: usize) {
        if let Some(queue) = self.queues[place].take() {
            // Behind a closed gate the host hangs up, once the client has been told why.
            if !queue.is_closed() {
                queue.handle.end();
            }
            // A forked child may hold the socket open; epoll must forget it all the same.
            let _ = epoll::delete(&self.epoll, queue.socket());
            self.parked.forget(|call| call.place == place);
            self.vacant.push(place);
        }
    }

    /// True if polling all queues costs no more than asking which of them to poll.
    fn is_direct(&self) -> bool {
        (1..=DIRECT_MAX).contains(&(self.queues.len() - self.vacant.len()))
    }

    /// Looks for events for up to `timeout`. True if there were any.
    fn poll(&mut self, timeout: Duration) -> bool {
        let mut room = [MaybeUninit::uninit(); EVENTS];
        // A signal ends the wait early, which a caller must expect anyway.
        let events = epoll::wait(&self.epoll, &mut room, Some(&os::timespec(timeout)));
        let Ok((events, _)) = events else { return false };
        for event in &*events {
            match event.data.u64() {
                WAKE_TOKEN => os::drain(&self.shared.wake),
                token => {
                    let place = token as usize - 1;
                    if let Some(queue) = &mut self.queues[place] {
                        // It is told of nothing else then.
                        queue.has_hung_up = queue.awaits == Awaits::Finish;
                    }
                    self.ready.push_back(place);
                }
            }
        }
        !events.is_empty()
    }

    /// Visits one queue. Returns the batches and calls executed.
    fn visit(&mut self, place: usize, budget_calls: usize, handler: &mut dyn CallHandler) -> usize {
        let Some(queue) = &mut self.queues[place] else { return 0 };
        let (parked, buffers) = (&mut self.parked, &mut self.buffers);
        let mut work = Work { place, handler, parked, buffers, budget: budget_calls, done: 0 };
        let visit = queue.visit(&mut work);
        let done = work.done;
        let awaits = match visit {
            Visit::Blocked => Awaits::Reader,
            Visit::Full => Awaits::Finish,
            _ => Awaits::Input,
        };
        if awaits != queue.awaits {
            queue.awaits = awaits;
            let data = epoll::EventData::new_u64(place as u64 + 1);
            // It fails only for a socket that is gone, of which the next visit learns.
            let _ = epoll::modify(&self.epoll, queue.socket(), data, interest(awaits));
        }
        match visit {
            Visit::Idle | Visit::Blocked | Visit::Full => {}
            Visit::More => self.ready.push_back(place),
            Visit::Ended | Visit::Denied => self.remove(place),
            Visit::Disorder(reason) => {
                let reason = format!("this client broke the protocol: {reason}");
                self.disconnects.push(queue.client, DisconnectReason::Dismissed(reason));
                // The host dismisses the client, which hears the reason before its queues end.
                queue.handle.gate.close();
                let _ = epoll::delete(&self.epoll, queue.socket());
            }
        }
        done
    }
}

fn interest(awaits: Awaits) -> epoll::EventFlags {
    match awaits {
        Awaits::Input => epoll::EventFlags::IN | epoll::EventFlags::RDHUP,
        Awaits::Reader => epoll::EventFlags::OUT,
        Awaits::Finish => epoll::EventFlags::RDHUP,
    }
}

impl ServerPort for TcpPort {
    fn serve(&mut self, budget_calls: usize, handler: &mut dyn CallHandler) -> usize {
        self.apply_changes();
        if self.ready.is_empty() {
            if self.is_direct() {
                let places = self.queues.iter().enumerate().filter(|(_, queue)| queue.is_some());
                self.ready.extend(places.map(|(place, _)| place));
            } else {
                self.poll(Duration::ZERO);
            }
        }
        let mut answered = 0;
        for _ in 0..self.ready.len() {
            if answered >= budget_calls {
                break;
            }
            let Some(place) = self.ready.pop_front() else { break };
            answered += self.visit(place, budget_calls - answered, handler);
        }
        if answered > 0 {
            self.idle_since = None;
        }
        answered
    }

    fn finish(&mut self, ticket: Ticket, reply: &[u8]) -> bool {
        let Some(call) = self.parked.take(ticket) else { return false };
        let queue = self.queues[call.place].as_mut().expect("a queue takes its parked calls with it");
        let is_answered = queue.finish(&call, reply);
        if is_answered && !self.ready.contains(&call.place) {
            self.ready.push_back(call.place);
        }
        is_answered
    }

    fn wait(&mut self, timeout: Duration) {
        self.apply_changes();
        let started = Instant::now();
        let awake = self.waiting.awake(timeout, BRIEF);
        if self.is_direct() && started.duration_since(*self.idle_since.get_or_insert(started)) < awake {
            // The next visits are the look.
            return;
        }
        while self.ready.is_empty() {
            if self.shared.has_changed() || self.poll(Duration::ZERO) {
                break;
            }
            if started.elapsed() >= awake {
                self.poll(timeout.saturating_sub(started.elapsed()));
                break;
            }
            std::hint::spin_loop();
        }
        self.apply_changes();
    }
}

impl Drop for TcpPort {
    fn drop(&mut self) {
        // The queues end with their worker; their clients see their sockets hang up.
        for place in 0..self.queues.len() {
            self.remove(place);
        }
    }
}

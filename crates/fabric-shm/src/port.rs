//! A worker's port: the rings of its clients, drained in turns, and sleep when all are empty.
//!
//! Invariant: a queue is served only under its gate, and never once the gate is closed. No request is taken
//! while its reply might not fit, so nothing is buffered for a client that does not read. A parked call keeps
//! room in the ring for its reply, so that a worker can always finish it.
//!
//! Protocol: a visit takes up to [`FRAMES_PER_VISIT`] requests from one ring, then publishes heads and
//! replies once (after a long request at once) and wakes the client if it sleeps. Queues come from the host
//! through an inbox. They leave when their gate closes, when the client's end of the wake socket hangs up, or
//! on a [`Disorder`], which the host is told. With a queue its parked calls leave. A queue that has its most
//! parked is not visited.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::ClientId;
use farsight_fabric::{Answer, CallHandler, Parked, Parking, Reserved, ServerPort, Ticket};
use farsight_fabric_host::{DisconnectQueue, DisconnectReason, Gate, Gated, PortHandle};
use rustix::event::epoll;

use crate::adaptive_spin::AdaptiveSpin;
use crate::mapping::SharedWords;
use crate::ring::{self, Consumer, Disorder, FrameHeader, Producer, Sleeper};
use crate::{os, socket};

/// Requests taken from one ring before the next has its turn.
const FRAMES_PER_VISIT: usize = 16;
/// A request from this length on takes so long that its reply does not wait for those of the same visit. A
/// client that keeps several in flight prepares the next meanwhile.
const LONG_REQUEST_BYTES: usize = 1024;
/// Long requests answered before a client that sleeps is woken, if more are waiting. To wake it takes the
/// server as long as ten writes, and a client that prepares one request at a time sleeps after each.
const SHOWN_PER_WAKE: u32 = 4;
/// Visits of all rings between two polls for clients that hung up, for a worker that never sleeps.
const SERVES_PER_LOOK: u32 = 1024;
/// The wake descriptor among epoll's tokens; queues count from one.
const WAKE_TOKEN: u64 = 0;

/// One queue from the server's side.
#[derive(Debug)]
pub(crate) struct ServerQueue {
    client: ClientId,
    gate: Arc<Gate>,
    requests: Consumer,
    replies: Producer,
    own_sleep: Sleeper,
    client_sleep: Sleeper,
    wakes: OwnedFd,
    /// That of the rings.
    _reserved: Option<Reserved>,
    token: u64,
    /// Times that replies were shown since the client was last looked after.
    unwoken: u32,
    parking: Parking,
}

/// A call that waits for its answer.
#[derive(Debug)]
struct ParkedCall {
    /// The token of its queue.
    queue: u64,
    header: FrameHeader,
    reply_bytes_max: usize,
}

/// What a visit came to.
enum Visit {
    Answered(usize),
    /// The gate is closed.
    Closed,
}

impl ServerQueue {
    /// A queue in `memory`, which was set aside if it is limited.
    pub(crate) fn new(
        client: ClientId,
        gate: Arc<Gate>,
        memory: &SharedWords,
        (wakes, reserved): (OwnedFd, Option<Reserved>),
    ) -> Self {
        Self {
            client,
            gate,
            requests: Consumer::new(memory.clone(), ring::REQUESTS),
            replies: Producer::new(memory.clone(), ring::REPLIES),
            own_sleep: Sleeper::server(memory.clone()),
            client_sleep: Sleeper::client(memory.clone()),
            wakes,
            _reserved: reserved,
            token: WAKE_TOKEN,
            unwoken: 0,
            parking: Parking::default(),
        }
    }

    fn is_closed(&self) -> bool {
        self.gate.is_closed()
    }

    /// True if a visit would come to anything: an answer, or a disconnect.
    fn has_work(&self) -> bool {
        !self.parking.is_full() && self.requests.is_ready() && self.replies.is_ready()
    }

    fn visit(&mut self, limit: usize, work: &mut Work<'_>) -> Result<Visit, Disorder> {
        let gate = Arc::clone(&self.gate);
        let Some(_serving) = gate.enter() else { return Ok(Visit::Closed) };
        let outcome = self.answer(limit, work);
        // What was answered before a disorder was answered.
        self.show();
        self.wake();
        outcome.map(Visit::Answered)
    }

    fn answer(&mut self, limit: usize, work: &mut Work<'_>) -> Result<usize, Disorder> {
        let mut answered = 0;
        while answered < limit && !self.parking.is_full() && self.replies.has_room_for_any()? {
            let Some(header) = self.requests.take(work.request)? else { break };
            work.reply.clear();
            let ticket = work.parked.give_ticket();
            match work.handler.handle(self.client, ticket, work.request, work.reply) {
                Answer::Now => self.push(header, work.reply)?,
                Answer::Later { reply_bytes_max } => {
                    check_length(reply_bytes_max)?;
                    self.parking.add(reply_bytes_max);
                    self.replies.reserve(reply_bytes_max);
                    let call = ParkedCall { queue: self.token, header, reply_bytes_max };
                    work.parked.park(ticket, call);
                }
            }
            answered += 1;
            if work.request.len() >= LONG_REQUEST_BYTES {
                self.show();
                if self.unwoken >= SHOWN_PER_WAKE {
                    self.wake();
                }
            }
        }
        Ok(answered)
    }

    /// Writes a reply for which there is room.
    fn push(&mut self, header: FrameHeader, reply: &[u8]) -> Result<(), Disorder> {
        check_length(reply.len())?;
        let pushed = self.replies.try_push(header, reply)?;
        debug_assert!(pushed, "room was there for any frame");
        Ok(())
    }

    /// Answers a call that was parked here. False if the gate is closed.
    fn finish(&mut self, call: &ParkedCall, reply: &[u8]) -> Result<bool, Disorder> {
        let (got, most) = (reply.len(), call.reply_bytes_max);
        assert!(got <= most, "a reply of {got} B to a call that was to get {most} B at most");
        self.parking.remove(most);
        self.replies.release(most);
        let gate = Arc::clone(&self.gate);
        let Some(_serving) = gate.enter() else { return Ok(false) };
        self.push(call.header, reply)?;
        self.show();
        self.wake();
        Ok(true)
    }

    /// Ends the queue of a client whose rings are in disorder.
    fn end(&self, disorder: &Disorder, disconnects: &DisconnectQueue) {
        self.gate.close();
        let reason = format!("this client's rings are broken: {disorder}");
        disconnects.push(self.client, DisconnectReason::Dismissed(reason));
    }

    /// Gives back the room of requests and shows replies.
    fn show(&mut self) {
        self.requests.publish();
        self.unwoken += u32::from(self.replies.publish());
    }

    /// Wakes the client if it sleeps and has replies to look at.
    fn wake(&mut self) {
        if std::mem::take(&mut self.unwoken) > 0 {
            ring::wake(&self.client_sleep, || socket::wake(&self.wakes));
        }
    }
}

impl Gated for ServerQueue {
    fn gate(&self) -> &Gate {
        &self.gate
    }
}

fn check_length(reply_bytes: usize) -> Result<(), Disorder> {
    let length_bytes = reply_bytes as u64;
    if reply_bytes > ring::PAYLOAD_BYTES_MAX { Err(Disorder::TooLong { length_bytes }) } else { Ok(()) }
}

/// What a visit needs besides its queue.
struct Work<'w> {
    handler: &'w mut dyn CallHandler,
    parked: &'w mut Parked<ParkedCall>,
    request: &'w mut Vec<u8>,
    reply: &'w mut Vec<u8>,
}

/// One worker's share of the connected clients.
#[derive(Debug)]
pub struct ShmPort {
    shared: Arc<PortHandle<ServerQueue>>,
    epoll: OwnedFd,
    disconnects: Arc<DisconnectQueue>,
    /// By token, ascending.
    queues: Vec<ServerQueue>,
    parked: Parked<ParkedCall>,
    /// The queue whose turn is first.
    turn: usize,
    last_token: u64,
    serves: u32,
    adaptive_spin: AdaptiveSpin,
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl ShmPort {
    pub(crate) fn new(disconnects: Arc<DisconnectQueue>) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let shared = PortHandle::new(())?;
        epoll::add(&epoll, &shared.wake, epoll::EventData::new_u64(WAKE_TOKEN), epoll::EventFlags::IN)?;
        Ok(Self {
            shared,
            epoll,
            disconnects,
            queues: Vec::new(),
            parked: Parked::default(),
            turn: 0,
            last_token: WAKE_TOKEN,
            serves: 0,
            adaptive_spin: AdaptiveSpin::default(),
            request: Vec::new(),
            reply: Vec::new(),
        })
    }

    pub(crate) fn shared(&self) -> &Arc<PortHandle<ServerQueue>> {
        &self.shared
    }

    fn apply_changes(&mut self) {
        if !self.shared.take_changed() {
            return;
        }
        for mut queue in self.shared.take_arrived() {
            self.last_token += 1;
            queue.token = self.last_token;
            let data = epoll::EventData::new_u64(queue.token);
            let events = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
            match epoll::add(&self.epoll, &queue.wakes, data, events) {
                Ok(()) => self.queues.push(queue),
                Err(error) => {
                    let reason = format!("epoll took no more queues: {error}");
                    self.disconnects.push(queue.client, DisconnectReason::Broken(reason));
                }
            }
        }
        self.remove_where(ServerQueue::is_closed);
    }

    fn remove_where(&mut self, mut dead: impl FnMut(&ServerQueue) -> bool) {
        let Self { epoll, queues, parked, .. } = self;
        queues.retain(|queue| {
            let keep = !dead(queue);
            if !keep {
                // A forked child may hold the socket open; epoll must forget it all the same.
                let _ = epoll::delete(&*epoll, &queue.wakes);
                parked.forget(|call| call.queue == queue.token);
            }
            keep
        });
    }

    /// Visits every queue once. Returns the calls answered.
    fn serve_round(&mut self, budget_calls: usize, handler: &mut dyn CallHandler) -> usize {
        let mut answered = 0;
        let count = self.queues.len();
        let mut closed = false;
        for step in 0..count {
            if answered >= budget_calls {
                break;
            }
            let index = (self.turn + step) % count;
            let queue = &mut self.queues[index];
            if !queue.has_work() {
                continue;
            }
            let limit = FRAMES_PER_VISIT.min(budget_calls - answered);
            let (parked, request, reply) = (&mut self.parked, &mut self.request, &mut self.reply);
            let mut work = Work { handler, parked, request, reply };
            match queue.visit(limit, &mut work) {
                Ok(Visit::Answered(calls)) => answered += calls,
                Ok(Visit::Closed) => closed = true,
                Err(disorder) => {
                    queue.end(&disorder, &self.disconnects);
                    closed = true;
                }
            }
        }
        self.turn = if count == 0 { 0 } else { (self.turn + 1) % count };
        if closed {
            self.remove_where(ServerQueue::is_closed);
        }
        answered
    }

    /// Waits for wake-ups and hang-ups.
    fn await_events(&self, timeout: Duration) -> Vec<epoll::Event> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(32);
        let timeout = os::timespec(timeout);
        // A signal ends the wait early, which a caller must expect anyway.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout));
        events
    }

    fn deal_with(&mut self, events: &[epoll::Event]) {
        for event in events {
            let token = event.data.u64();
            if token == WAKE_TOKEN {
                os::drain(&self.shared.wake);
            } else {
                self.remove_where(|queue| queue.token == token && !socket::take_wakes(&queue.wakes));
            }
        }
    }
}

impl ServerPort for ShmPort {
    fn serve(&mut self, budget_calls: usize, handler: &mut dyn CallHandler) -> usize {
        self.apply_changes();
        self.serves = self.serves.wrapping_add(1);
        if self.serves.is_multiple_of(SERVES_PER_LOOK) {
            let events = self.await_events(Duration::ZERO);
            self.deal_with(&events);
        }
        let mut answered = 0;
        while answered < budget_calls {
            let calls = self.serve_round(budget_calls - answered, handler);
            if calls == 0 {
                break;
            }
            answered += calls;
        }
        answered
    }

    fn finish(&mut self, ticket: Ticket, reply: &[u8]) -> bool {
        let Some(call) = self.parked.take(ticket) else { return false };
        let place = self.queues.binary_search_by_key(&call.queue, |queue| queue.token);
        let queue = &mut self.queues[place.expect("a queue takes its parked calls with it")];
        match queue.finish(&call, reply) {
            Ok(is_sent) => is_sent,
            Err(disorder) => {
                queue.end(&disorder, &self.disconnects);
                self.remove_where(ServerQueue::is_closed);
                false
            }
        }
    }

    fn wait(&mut self, timeout: Duration) {
        self.apply_changes();
        let (shared, queues) = (&self.shared, &self.queues);
        let has_work = || shared.has_changed() || queues.iter().any(ServerQueue::has_work);
        if self.adaptive_spin.spin(timeout, has_work) {
            return;
        }
        let sleepers = queues.iter().map(|queue| &queue.own_sleep);
        let slept = ring::sleep(sleepers, has_work, || self.await_events(timeout));
        self.deal_with(&slept.unwrap_or_default());
        self.apply_changes();
    }
}

impl Drop for ShmPort {
    fn drop(&mut self) {
        // The queues end with their worker; their clients see their sockets hang up.
        self.remove_where(|_| true);
    }
}

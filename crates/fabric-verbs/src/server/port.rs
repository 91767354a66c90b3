//! A worker's port: a completion queue that its clients' queue pairs share, and sleep while it is empty.
//!
//! Invariant: a queue is served only within its gate, and never once that is closed. No request is taken
//! while there is no place for its reply, so what is kept for a client that does not read is what its own
//! receives hold. A parked call keeps its place: a queue parks as many calls as it has places.
//!
//! Protocol: completions are sorted by queue; a queue with requests and room for replies stands in line; a
//! visit takes up to [`CALLS_PER_VISIT`] of its requests. Queues come from the host through an inbox, before
//! they are connected, and leave once they are closed, with their parked calls.

use std::collections::{HashMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight_fabric::{Answer, CallHandler, FabricError, PARKED_MAX, Parked, ServerPort, Ticket};
use farsight_fabric_host::{DisconnectQueue, DisconnectReason, PortHandle, os};
use farsight_fabric_net::Waiting;
use rustix::event::PollFlags;

use super::queue::{Completed, ServerQueue};
use crate::call_frame::{CallHeader, PAYLOAD_BYTES_MAX};
use crate::ibv::completion::CompletionQueue;
use crate::ibv::device::Device;
use crate::ibv::ffi::{self, WorkCompletion};
use crate::ibv::pair::RcPair;
use crate::{BRIEF, CALLS_MAX, COMPLETIONS_PER_POLL};

/// Requests taken from one queue before the next has its turn.
const CALLS_PER_VISIT: usize = 16;
/// Looks for completions between two at whatever else may wake a worker.
const LOOKS_PER_WAKE: usize = 16;

const _: () = assert!(CALLS_MAX <= PARKED_MAX, "as many calls are parked as there are places");

/// What the host shares with a port: its completion queue, and queues that are not connected yet.
pub(super) type PortShared = PortHandle<Arc<ServerQueue>, Arc<CompletionQueue>>;

/// A queue as its port keeps it.
#[derive(Debug)]
struct Served {
    queue: Arc<ServerQueue>,
    /// Requests that have arrived: places and bytes.
    requests: VecDeque<(usize, usize)>,
    /// Places for replies that are free.
    free_replies: Vec<usize>,
    is_in_line: bool,
}

/// A call that waits for its answer.
#[derive(Debug)]
struct ParkedCall {
    pair_number: u32,
    header: CallHeader,
    /// The place of its reply.
    place: usize,
    reply_bytes_max: usize,
}

/// One worker's share of the connected clients.
#[derive(Debug)]
pub struct VerbsPort {
    shared: Arc<PortShared>,
    disconnects: Arc<DisconnectQueue>,
    waiting: Waiting,
    /// By the queue pair's number.
    queues: HashMap<u32, Served>,
    parked: Parked<ParkedCall>,
    /// Queues with requests and room for replies.
    line: VecDeque<u32>,
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl VerbsPort {
    pub(super) fn new(
        device: &Arc<Device>,
        completions_max: u32,
        disconnects: Arc<DisconnectQueue>,
        waiting: Waiting,
    ) -> Result<Self, FabricError> {
        let completions = CompletionQueue::new(device, completions_max)?;
        let shared = PortHandle::new(completions).map_err(|error| {
            os::system_error("opening a port", &error, "Are descriptors left (ulimit -n)?")
        })?;
        Ok(Self {
            shared,
            disconnects,
            waiting,
            queues: HashMap::new(),
            parked: Parked::default(),
            line: VecDeque::new(),
            request: Vec::new(),
            reply: Vec::new(),
        })
    }

    pub(super) fn shared(&self) -> &Arc<PortShared> {
        &self.shared
    }

    fn apply_changes(&mut self) {
        if self.shared.take_changed() {
            self.remove_closed();
            self.adopt();
        }
    }

    /// Takes in the queues that the host has handed over.
    fn adopt(&mut self) {
        for queue in self.shared.take_arrived() {
            let served = Served {
                requests: VecDeque::new(),
                free_replies: (0..CALLS_MAX).collect(),
                is_in_line: false,
                queue,
            };
            // A card may give the number of a queue pair out again before its port has let go of that.
            if let Some(before) = self.queues.insert(served.queue.pair_number, served) {
                self.parked.forget(|call| call.header.queue == before.queue.number);
            }
        }
    }

    /// Lets go of closed queues. One that its client closed still has a queue pair: its requests are taken
    /// out of the completion queue first, so that their receives serve the client's other queues.
    fn remove_closed(&mut self) {
        let closed = |served: &Served| served.queue.gate.is_closed();
        if self.queues.values().any(closed) {
            for served in self.queues.values().filter(|served| closed(served)) {
                // One that cannot be broken off is destroyed below all the same.
                let _ = served.queue.with_pair(RcPair::break_off);
            }
            self.collect();
            let Self { queues, parked, .. } = self;
            queues.retain(|_, served| {
                let keep = !served.queue.gate.is_closed();
                if !keep {
                    served.queue.destroy();
                    parked.forget(|call| call.header.queue == served.queue.number);
                    for (place, _) in &served.requests {
                        // Refused if the receives are gone, and the client with them.
                        let _ = served.queue.receives.post(*place);
                    }
                }
                keep
            });
            self.line.retain(|number| self.queues.contains_key(number));
            // The host may let go of them, too.
            os::signal(&self.disconnects.wake);
        }
    }

    /// Takes all completions that are there.
    fn collect(&mut self) {
        let mut found = [WorkCompletion::default(); COMPLETIONS_PER_POLL];
        loop {
            // A completion queue that cannot be polled shows in that nothing is answered any more; nothing
            // here could repair it.
            let count = self.shared.device.poll(&mut found).unwrap_or(0);
            for completion in &found[..count] {
                self.sort(completion);
            }
            // Bounded: no more completions come than receives and replies are posted, and none is posted
            // here.
            if count < found.len() {
                return;
            }
        }
    }

    fn sort(&mut self, completion: &WorkCompletion) {
        // The host hands a queue over before it connects it, so its first request may be met here before it
        // is.
        if !self.queues.contains_key(&completion.queue_pair) {
            self.adopt();
        }
        // What is still not known was closed before.
        let Some(served) = self.queues.get_mut(&completion.queue_pair) else { return };
        if completion.status != ffi::STATUS_SUCCESS {
            if !served.queue.gate.is_closed() {
                served.queue.gate.close();
                // Mostly it is the network: what a reply met with until the card gave up. So the client may
                // come back, on another queue pair.
                let status = self.shared.device.device().library.0.status(completion.status);
                let reason = format!("the server's network card reports {status} for its queue pair");
                self.disconnects.push(served.queue.client, DisconnectReason::Broken(reason));
            }
            return;
        }
        match served.queue.completed(completion.id) {
            Completed::Request(place) => {
                served.requests.push_back((place, completion.length_bytes as usize));
            }
            Completed::Reply(place) => served.free_replies.push(place),
            Completed::Stale => return,
        }
        if !served.is_in_line && !served.requests.is_empty() && !served.free_replies.is_empty() {
            served.is_in_line = true;
            self.line.push_back(completion.queue_pair);
        }
    }

    /// Answers requests of the queue that is first in line.
    fn visit(&mut self, number: u32, limit: usize, handler: &mut dyn CallHandler) -> usize {
        let Some(served) = self.queues.get_mut(&number) else { return 0 };
        served.is_in_line = false;
        let queue = Arc::clone(&served.queue);
        let Some(_serving) = queue.gate.enter() else { return 0 };
        let disorder =
            |reason: String| DisconnectReason::Dismissed(format!("this client's calls are broken: {reason}"));
        let mut answered = 0;
        while answered < limit
            && !served.free_replies.is_empty()
            && let Some((place, message_bytes)) = served.requests.pop_front()
        {
            let header = queue.receives.load(place, message_bytes, &mut self.request);
            let posted = queue.receives.post(place);
            let outcome = match (header, posted) {
                (Ok(header), Ok(())) if header.queue == queue.number => {
                    self.reply.clear();
                    let ticket = self.parked.give_ticket();
                    let answer = handler.handle(queue.client, ticket, &self.request, &mut self.reply);
                    let place = served.free_replies.pop().expect("there is one");
                    match answer {
                        Answer::Now => reply(&queue, place, header, &self.reply),
                        Answer::Later { reply_bytes_max } => {
                            assert!(reply_bytes_max <= PAYLOAD_BYTES_MAX, "a reply of {reply_bytes_max} B");
                            let pair_number = number;
                            let call = ParkedCall { pair_number, header, place, reply_bytes_max };
                            self.parked.park(ticket, call);
                            Ok(())
                        }
                    }
                }
                (Ok(header), Ok(())) => Err(disorder(format!("one names queue {:#x}", header.queue))),
                (Err(broken), _) => Err(disorder(broken.to_string())),
                (_, Err(error)) => {
                    Err(DisconnectReason::Broken(format!("posting a receive failed: {error}")))
                }
            };
            if let Err(ending) = outcome {
                queue.gate.close();
                self.disconnects.push(queue.client, ending);
                return answered;
            }
            answered += 1;
        }
        if !served.requests.is_empty() && !served.free_replies.is_empty() {
            served.is_in_line = true;
            self.line.push_back(number);
        }
        answered
    }

    /// Looks for work for as long as this port stays awake. True if there is some, or it was woken.
    fn look(&mut self, timeout: Duration) -> bool {
        let (started, awake) = (Instant::now(), self.waiting.awake(timeout, BRIEF));
        loop {
            for _ in 0..LOOKS_PER_WAKE {
                if self.has_work() {
                    return true;
                }
                std::hint::spin_loop();
            }
            let elapsed = started.elapsed();
            if elapsed >= awake {
                return false;
            }
            // Only a worker that stays awake for long has to poll for what otherwise ends its sleep.
            if elapsed > BRIEF
                && let Ok([woken]) = os::poll([(self.shared.wake.as_fd(), PollFlags::IN)], Duration::ZERO)
                && !woken.is_empty()
            {
                os::drain(&self.shared.wake);
                return true;
            }
        }
    }

    fn has_work(&mut self) -> bool {
        self.collect();
        !self.line.is_empty() || self.shared.has_changed()
    }
}

/// Sends a reply from `place`, which is the caller's.
fn reply(
    queue: &ServerQueue,
    place: usize,
    header: CallHeader,
    reply: &[u8],
) -> Result<(), DisconnectReason> {
    assert!(reply.len() <= PAYLOAD_BYTES_MAX, "a reply of {} B", reply.len());
    let replied = queue.reply(place, header, reply);
    replied.map_err(|error| DisconnectReason::Broken(format!("posting a reply failed: {error}")))
}

impl ServerPort for VerbsPort {
    fn serve(&mut self, budget_calls: usize, handler: &mut dyn CallHandler) -> usize {
        self.apply_changes();
        self.collect();
        let mut answered = 0;
        while answered < budget_calls
            && let Some(number) = self.line.pop_front()
        {
            answered += self.visit(number, CALLS_PER_VISIT.min(budget_calls - answered), handler);
            if self.line.is_empty() {
                self.collect();
            }
        }
        answered
    }

    fn finish(&mut self, ticket: Ticket, bytes: &[u8]) -> bool {
        let Some(call) = self.parked.take(ticket) else { return false };
        let (got, most) = (bytes.len(), call.reply_bytes_max);
        assert!(got <= most, "a reply of {got} B to a call that was to get {most} B at most");
        let queue = &self.queues[&call.pair_number].queue;
        let Some(_serving) = queue.gate.enter() else { return false };
        match reply(queue, call.place, call.header, bytes) {
            Ok(()) => true,
            Err(ending) => {
                queue.gate.close();
                self.disconnects.push(queue.client, ending);
                false
            }
        }
    }

    fn wait(&mut self, timeout: Duration) {
        self.apply_changes();
        let started = Instant::now();
        if self.look(timeout) {
            return self.apply_changes();
        }
        // A port whose card sends no events still wakes now and then.
        let deaf = self.shared.device.request_event().is_err();
        if self.has_work() {
            return;
        }
        let left = timeout.saturating_sub(started.elapsed());
        let timeout = left.min(if deaf { Duration::from_millis(1) } else { os::SLEEP_MAX });
        let events = (self.shared.device.descriptor(), PollFlags::IN);
        let wake = (self.shared.wake.as_fd(), PollFlags::IN);
        if let Ok([has_events, woken]) = os::poll([events, wake], timeout) {
            if !has_events.is_empty() {
                self.shared.device.take_events();
            }
            if !woken.is_empty() {
                os::drain(&self.shared.wake);
            }
        }
        self.apply_changes();
    }
}

impl Drop for VerbsPort {
    fn drop(&mut self) {
        self.apply_changes();
        // Nobody serves them any more. Their clients see their verbs fail.
        for served in self.queues.values() {
            served.queue.destroy();
        }
    }
}

//! A verb's way through cards and links.
//!
//! Invariant: a card's engine serves the messages of its machine's clients, those of its proxy, and those
//! that others send to it, in one queue.

use farsight_fabric_sim::{ADDRESS_BYTES, ATOMIC_BYTES, WORD_BYTES};

use super::events::Event;
use super::{Flight, Job, Network, Queue};
use crate::verb_mixes::program::{Machine, Verb};

impl Verb {
    /// Whether a queue pair has only so many of these under way.
    fn is_limited(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Swap { .. })
    }

    fn request_bytes(&self) -> u64 {
        match self {
            Self::Read { .. } => ADDRESS_BYTES,
            Self::Write { bytes } => ADDRESS_BYTES + bytes,
            Self::Swap { .. } => ATOMIC_BYTES,
            Self::Call(call) => call.request_bytes,
        }
    }

    fn answer_bytes(&self) -> u64 {
        match self {
            Self::Read { bytes } => *bytes,
            Self::Write { .. } => 0,
            Self::Swap { .. } => WORD_BYTES,
            Self::Call(call) => call.reply_bytes,
        }
    }
}

impl Network {
    fn queue(&mut self, flight: usize) -> &mut Queue {
        let Flight { from, to, .. } = self.flights.get(flight);
        self.queues.entry((*from, *to)).or_default()
    }

    /// A verb leaves its thread for the card.
    pub(super) fn leave(&mut self, flight: usize) {
        let most = self.prices.reads_in_flight_max;
        let is_limited = self.flights.get(flight).verb.is_limited();
        let queue = self.queue(flight);
        if is_limited && (queue.limited >= most || !queue.waiting.is_empty()) {
            return queue.waiting.push_back(flight);
        }
        self.send(flight);
    }

    fn send(&mut self, flight: usize) {
        let nic = self.prices.nic;
        let Flight { from, verb, .. } = self.flights.get(flight);
        let work_ps = match verb {
            Verb::Read { .. } | Verb::Swap { .. } => nic.read_issued_ps,
            Verb::Write { .. } => nic.write_issued_ps,
            Verb::Call(_) => nic.message_ps,
        };
        let (machine, bytes, is_limited) = (from.machine, verb.request_bytes(), verb.is_limited());
        self.queue(flight).limited += usize::from(is_limited);
        let issued_ps = self.nodes[machine].engine.serve(self.now_ps, work_ps);
        self.cross(machine, issued_ps, bytes, Event::Arrive(flight));
    }

    /// A message of so many bytes leaves a machine's card at `ready_ps`; `event` happens when it arrives.
    fn cross(&mut self, machine: Machine, ready_ps: u64, bytes: u64, event: Event) {
        let link = self.prices.link;
        let sent_ps = self.nodes[machine].link_out.serve(ready_ps, link.message_ps(bytes));
        self.events.push(sent_ps + link.way_ps, event);
    }

    pub(super) fn arrive(&mut self, flight: usize) {
        let Flight { to, verb, .. } = self.flights.get(flight);
        let (to, bytes) = (*to, verb.request_bytes());
        let came_ps = self.nodes[to].link_in.pass(self.now_ps, self.prices.link.message_ps(bytes));
        let queue = self.queue(flight);
        if queue.is_behind_atomic {
            queue.behind_atomic.push_back(flight);
        } else {
            self.serve(flight, came_ps);
        }
    }

    /// The other machine's card takes a verb that came at `came_ps`.
    fn serve(&mut self, flight: usize, came_ps: u64) {
        let nic = self.prices.nic;
        let Flight { to, verb, .. } = self.flights.get(flight);
        let (to, bytes) = (*to, verb.answer_bytes());
        let node = &mut self.nodes[to];
        match verb {
            Verb::Swap { lock } => {
                let lock = *lock % nic.atomic_locks;
                let served_ps = node.engine.serve(came_ps, nic.atomic_served_ps / 2);
                let free_ps = node.atomic_locks.serve_by(lock, served_ps, nic.atomic_held_ps);
                self.events.push(free_ps, Event::Unlock(flight));
                self.queue(flight).is_behind_atomic = true;
            }
            Verb::Call(_) => {
                let taken_ps = node.engine.serve(came_ps, nic.message_ps);
                self.events.push(taken_ps, Event::Taken(flight));
            }
            Verb::Read { .. } => {
                let served_ps = node.engine.serve(came_ps, nic.read_served_ps);
                self.cross(to, served_ps, bytes, Event::Back(flight));
            }
            Verb::Write { .. } => {
                let served_ps = node.engine.serve(came_ps, nic.write_served_ps);
                self.cross(to, served_ps, bytes, Event::Back(flight));
            }
        }
    }

    /// An atomic is answered, and the verbs behind it on its queue pair are looked at.
    pub(super) fn unlock(&mut self, flight: usize) {
        let half_ps = self.prices.nic.atomic_served_ps.div_ceil(2);
        let to = self.flights.get(flight).to;
        let ready_ps = self.nodes[to].engine.serve(self.now_ps, half_ps);
        self.cross(to, ready_ps, WORD_BYTES, Event::Back(flight));
        self.queue(flight).is_behind_atomic = false;
        while !self.queue(flight).is_behind_atomic {
            let Some(next) = self.queue(flight).behind_atomic.pop_front() else { break };
            self.serve(next, self.now_ps);
        }
    }

    /// A call's answer leaves; one of the machine's own threads takes it at once.
    pub(super) fn answer(&mut self, flight: usize) {
        let message_ps = self.prices.nic.message_ps;
        let Flight { from, to, verb, .. } = self.flights.get(flight);
        let (from, to, bytes) = (*from, *to, verb.answer_bytes());
        if from.machine == to {
            return self.completed(flight);
        }
        let ready_ps = self.nodes[to].engine.serve(self.now_ps, message_ps);
        self.cross(to, ready_ps, bytes, Event::Back(flight));
    }

    /// An answer comes. The card takes that of a call, which needs a posted receive.
    pub(super) fn back(&mut self, flight: usize) {
        let message_ps = self.prices.nic.message_ps;
        let Flight { from, verb, .. } = self.flights.get(flight);
        let (machine, bytes, is_call) = (from.machine, verb.answer_bytes(), matches!(verb, Verb::Call(_)));
        let node = &mut self.nodes[machine];
        let came_ps = node.link_in.pass(self.now_ps, self.prices.link.message_ps(bytes));
        let taken_ps = if is_call { node.engine.serve(came_ps, message_ps) } else { came_ps };
        self.events.push(taken_ps, Event::Answered(flight));
    }

    pub(super) fn answered(&mut self, flight: usize) {
        if self.flights.get(flight).verb.is_limited() {
            let queue = self.queue(flight);
            queue.limited -= 1;
            if let Some(next) = queue.waiting.pop_front() {
                self.send(next);
            }
        }
        self.completed(flight);
    }

    fn completed(&mut self, flight: usize) {
        let Flight { from, task, .. } = self.flights.take(flight);
        self.give(from, Job::Completion(task));
    }
}

//! Calls: requests that travel to a port, replies that travel back.
//!
//! Invariant: requests of one queue pair arrive in the order of their sending, each once, or the connection
//! is lost. A reply is kept only if its slot still waits for it. Requests of a queue pair that has its most
//! calls parked stay in the inbox, in their order; those of others overtake them.

use farsight_fabric::Slot;

use crate::fault::Fault;
use crate::network::Way;
use crate::pair::{Content, Phase};
use crate::state::{Arrived, Event, State};
use crate::trace::{Who, Words, digest_bytes};

impl State {
    /// Sends a request.
    pub(crate) fn launch_call(&mut self, pair: usize, slot: Slot, serial: u64, mut bytes: Vec<u8>) {
        let client = self.pairs[pair].client;
        let leaves_ns = self.now_ns + self.delay_ns(Fault::SlowCall);
        let Some(at_ns) = self.crossing_ns(client, Way::ToServer, leaves_ns) else { return };
        let at_ns = at_ns.max(self.pairs[pair].request_until_ns);
        self.pairs[pair].request_until_ns = at_ns;
        if self.strike(Fault::LostCall).is_some() {
            self.schedule(at_ns, Event::Lose { client, why: "a request was lost" });
            return;
        }
        self.truncate(Fault::TruncatedRequest, &mut bytes);
        if self.strike(Fault::DoubledCall).is_some() {
            self.schedule(at_ns, Event::Request { pair, slot, serial, bytes: bytes.clone() });
        }
        self.schedule(at_ns, Event::Request { pair, slot, serial, bytes });
    }

    /// A rule may cut off the end of a frame.
    fn truncate(&mut self, fault: Fault, bytes: &mut Vec<u8>) {
        if self.strike(fault).is_some() {
            let left = self.random.below(bytes.len().max(1) as u64) as usize;
            bytes.truncate(left);
        }
    }

    /// A request arrives.
    pub(crate) fn request(&mut self, pair: usize, slot: Slot, serial: u64, bytes: Vec<u8>) {
        let client = &self.clients[self.pairs[pair].client];
        let (host, is_over) = (client.host, client.is_over);
        // Opened before there was a port: it gets one now.
        let port = self.pairs[pair].port.or_else(|| self.next_port(host));
        let Some(port) = port.filter(|_| !is_over && self.hosts[host].is_alive) else { return };
        self.pairs[pair].port = Some(port);
        self.trace.note(self.now_ns, [6, pair as u64, slot as u64, digest_bytes(&bytes)], || {
            Words::new(Who::Pair(pair), format!("is heard by worker {port}, {} B, slot {slot}", bytes.len()))
        });
        let arrived = Arrived { pair, slot, serial, bytes };
        self.hosts[host].ports[port].inbox.push_back(arrived);
        self.wake_port(host, port);
    }

    /// Wakes a port, for there is a request that it may take.
    pub(crate) fn wake_port(&mut self, host: usize, port: usize) {
        let own = &mut self.hosts[host].ports[port];
        own.wakes += 1;
        let (actor, is_awaited) = (own.actor, own.waiter.is_some());
        if actor.is_none() && !is_awaited {
            return;
        }
        let wake = if self.pricing.is_some() { 0..1 } else { self.timing.wake_ns.clone() };
        let at_ns = self.now_ns + self.draw(&wake);
        self.wake_waiter(host, port, at_ns);
        if let Some(actor) = actor {
            self.rouse(actor, at_ns);
        }
    }

    /// Lets the process go on at `at_ns` that waits for a port.
    pub(crate) fn wake_waiter(&mut self, host: usize, port: usize, at_ns: u64) {
        if let Some((process, turn)) = self.hosts[host].ports[port].waiter.take() {
            self.schedule(at_ns, Event::Resume { process, turn });
        }
    }

    /// The next request at a port that may be executed.
    pub(crate) fn take_request(&mut self, host: usize, port: usize) -> Option<Arrived> {
        let may_be_taken = |arrived: &Arrived| !self.pairs[arrived.pair].parking.is_full();
        while let Some(first) = self.hosts[host].ports[port].inbox.iter().position(may_be_taken) {
            let arrived = self.hosts[host].ports[port].inbox.remove(first)?;
            if !self.clients[self.pairs[arrived.pair].client].is_over && self.hosts[host].is_alive {
                return Some(arrived);
            }
        }
        None
    }

    /// True once nobody waits for replies to this queue pair.
    pub(crate) fn has_left(&self, pair: usize) -> bool {
        let own = &self.pairs[pair];
        let client = &self.clients[own.client];
        own.is_closed || client.is_over || client.lost.is_some() || !self.hosts[client.host].is_alive
    }

    /// Parks a call whose stores are all visible at `at_ns`: its processor does something else then.
    pub(crate) fn park(&mut self, host: usize, arrived: &Arrived, at_ns: u64, reply_bytes_max: usize) {
        let Arrived { pair, slot, .. } = *arrived;
        self.pairs[pair].parking.add(reply_bytes_max);
        if self.pricing.is_none() {
            self.hosts[host].busy_until_ns = at_ns;
        }
        self.trace.note(at_ns, [15, pair as u64, slot as u64, reply_bytes_max as u64], || {
            Words::new(Who::Pair(pair), format!("is parked, slot {slot}"))
        });
    }

    /// When the call that is executed now begins, on its server's processor.
    pub(crate) fn call_begins_ns(&mut self, host: usize) -> u64 {
        let call = self.timing.call_ns.clone();
        let takes_ns = self.draw(&call) * self.slowness(host);
        self.now_ns.max(self.hosts[host].busy_until_ns) + takes_ns
    }

    /// Sends a reply to a call whose stores are all visible at `at_ns`.
    pub(crate) fn reply(&mut self, host: usize, arrived: &Arrived, at_ns: u64, mut bytes: Vec<u8>) {
        if self.pricing.is_some() {
            return self.reply_priced(host, arrived, bytes);
        }
        self.hosts[host].busy_until_ns = at_ns;
        let Arrived { pair, slot, serial, .. } = *arrived;
        self.trace.note(at_ns, [7, pair as u64, slot as u64, digest_bytes(&bytes)], || {
            Words::new(Who::Pair(pair), format!("is answered, {} B, slot {slot}", bytes.len()))
        });
        let client = self.pairs[pair].client;
        let leaves_ns = at_ns + self.delay_ns(Fault::SlowReply);
        let Some(arrives_ns) = self.crossing_ns(client, Way::ToProgram, leaves_ns) else { return };
        self.truncate(Fault::TruncatedReply, &mut bytes);
        if self.strike(Fault::LostReply).is_some() {
            self.schedule(arrives_ns, Event::Lose { client, why: "a reply was lost" });
            return;
        }
        self.schedule(arrives_ns, Event::Reply { pair, slot, serial, bytes, left_ns: at_ns });
    }

    /// A reply arrives, if the processor that left it at `left_ns` lived then.
    pub(crate) fn replied(&mut self, pair: usize, slot: Slot, serial: u64, bytes: Vec<u8>, left_ns: u64) {
        let client = &self.clients[self.pairs[pair].client];
        let is_lost = client.lost.is_some();
        if left_ns > self.hosts[client.host].frozen_ns {
            return;
        }
        let own = &mut self.pairs[pair];
        let held = &mut own.slots[slot];
        if held.serial != serial && !is_lost && !own.is_closed {
            return self.note_strike(Fault::StaleReply);
        }
        if held.serial != serial || held.content != Content::Call || held.phase != Phase::UnderWay || is_lost
        {
            return;
        }
        held.reply = bytes;
        held.phase = Phase::Complete;
        own.completed += 1;
        self.take_completion(pair);
        self.wake_pair(pair);
    }

    /// The port of a queue pair that opens now.
    pub(crate) fn next_port(&mut self, host: usize) -> Option<usize> {
        let own = &mut self.hosts[host];
        if own.ports.is_empty() {
            return None;
        }
        own.next_port = (own.next_port + 1) % own.ports.len();
        Some(own.next_port)
    }
}

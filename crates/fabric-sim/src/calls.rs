//! Calls: requests that travel to a port, replies that travel back.
//!
//! Invariant: requests of one queue pair arrive in the order of their sending, each once, or the connection
//! is lost. A reply is kept only if its slot still waits for it.

use farsight_fabric::Slot;

use crate::fault::Fault;
use crate::pair::{Content, Phase};
use crate::state::{Arrived, Event, State};
use crate::trace::digest_bytes;

impl State {
    /// Sends a request.
    pub(crate) fn launch_call(&mut self, pair: usize, slot: Slot, serial: u64, bytes: Vec<u8>) {
        let at_ns = self.now_ns + self.way_ns() + self.delay_ns(Fault::SlowCall);
        let at_ns = at_ns.max(self.pairs[pair].request_until_ns);
        self.pairs[pair].request_until_ns = at_ns;
        if self.strike(Fault::LostCall).is_some() {
            let client = self.pairs[pair].client;
            self.schedule(at_ns, Event::Lose { client, why: "a request was lost" });
            return;
        }
        if self.strike(Fault::DoubledCall).is_some() {
            self.schedule(at_ns, Event::Request { pair, slot, serial, bytes: bytes.clone() });
        }
        self.schedule(at_ns, Event::Request { pair, slot, serial, bytes });
    }

    /// A request arrives.
    pub(crate) fn request(&mut self, pair: usize, slot: Slot, serial: u64, bytes: Vec<u8>) {
        let client = &self.clients[self.pairs[pair].client];
        let (host, is_fenced) = (client.host, client.is_fenced);
        // Opened before there was a port: it gets one now.
        let port = self.pairs[pair].port.or_else(|| self.next_port(host));
        let Some(port) = port.filter(|_| !is_fenced && self.hosts[host].is_alive) else { return };
        self.pairs[pair].port = Some(port);
        self.trace.note(self.now_ns, [6, pair as u64, slot as u64, digest_bytes(&bytes)], || {
            format!("request of {} B from slot {slot} of pair {pair} at port {port}", bytes.len())
        });
        let arrived = Arrived { pair, slot, serial, bytes };
        let own = &mut self.hosts[host].ports[port];
        own.inbox.push_back(arrived);
        own.wakes += 1;
        if let Some(actor) = own.actor {
            let wake = if self.pricing.is_some() { 0..1 } else { self.timing.wake_ns.clone() };
            let at_ns = self.now_ns + self.draw(&wake);
            self.rouse(actor, at_ns);
        }
    }

    /// The next request at a port that may be executed.
    pub(crate) fn take_request(&mut self, host: usize, port: usize) -> Option<Arrived> {
        while let Some(arrived) = self.hosts[host].ports[port].inbox.pop_front() {
            if !self.clients[self.pairs[arrived.pair].client].is_fenced && self.hosts[host].is_alive {
                return Some(arrived);
            }
        }
        None
    }

    /// When the call that is executed now begins, on its server's processor.
    pub(crate) fn call_begins_ns(&mut self, host: usize) -> u64 {
        let call = self.timing.call_ns.clone();
        self.now_ns.max(self.hosts[host].busy_until_ns) + self.draw(&call)
    }

    /// Sends a reply to a call whose stores are all visible at `at_ns`.
    pub(crate) fn reply(&mut self, host: usize, arrived: &Arrived, at_ns: u64, bytes: Vec<u8>) {
        if self.pricing.is_some() {
            return self.reply_priced(host, arrived, bytes);
        }
        self.hosts[host].busy_until_ns = at_ns;
        let Arrived { pair, slot, serial, .. } = *arrived;
        self.trace.note(at_ns, [7, pair as u64, slot as u64, digest_bytes(&bytes)], || {
            format!("reply of {} B to slot {slot} of pair {pair}", bytes.len())
        });
        let arrives_ns = at_ns + self.way_ns() + self.delay_ns(Fault::SlowReply);
        if self.strike(Fault::LostReply).is_some() {
            let client = self.pairs[pair].client;
            self.schedule(arrives_ns, Event::Lose { client, why: "a reply was lost" });
            return;
        }
        self.schedule(arrives_ns, Event::Reply { pair, slot, serial, bytes });
    }

    /// A reply arrives.
    pub(crate) fn replied(&mut self, pair: usize, slot: Slot, serial: u64, bytes: Vec<u8>) {
        let is_lost = self.clients[self.pairs[pair].client].lost.is_some();
        let own = &mut self.pairs[pair];
        let held = &mut own.slots[slot];
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

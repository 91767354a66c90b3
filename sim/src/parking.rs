//! A server that answers some calls later: its ports park them, and finish them after a random time.
//!
//! Invariant: a call has its effect when it is executed, parked or not. Only its reply is late, so every
//! judge of a server holds.
//!
//! Protocol:
//!
//! 1. The server's own handler answers a call. One reply in so many is kept, and the port parks its call.
//! 2. When its time has come, the worker's next step finishes the call with that reply. Clients may have left
//!    meanwhile, and others may have come.

use std::sync::Arc;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicUsize, Ordering};
use farsight_base::{ClientId, Epoch, RegionId};
use farsight_fabric::{Answer, CallHandler, FabricError, Host, Region, RegionRights, ServerPort, Ticket};
use farsight_fabric_sim::{Kind, SimHost, SimPort, Simulation};

/// Most calls are parked for less time than this: as long as a log takes.
const BRIEF_NS: u64 = 60_000;
/// The others for less than this.
const LONG_NS: u64 = 3_000_000;
/// Of the parked calls, one in so many is parked for long.
const LONG_ONE_IN: u64 = 6;

/// A host whose ports park one call in so many.
pub(crate) struct ParkingHost<K: Kind> {
    host: Arc<SimHost<K>>,
    simulation: Simulation,
    one_in: u64,
    seed: u64,
    ports: AtomicUsize,
}

impl<K: Kind> ParkingHost<K> {
    pub(crate) fn new(host: &Arc<SimHost<K>>, simulation: &Simulation, one_in: u64, seed: u64) -> Self {
        let (host, simulation) = (Arc::clone(host), simulation.clone());
        Self { host, simulation, one_in, seed, ports: AtomicUsize::new(0) }
    }
}

impl<K: Kind> Host for ParkingHost<K> {
    type Port = ParkingPort<K>;

    fn address(&self) -> String {
        Host::address(&*self.host)
    }

    fn epoch(&self) -> Epoch {
        Host::epoch(&*self.host)
    }

    fn message_bytes_max(&self) -> usize {
        Host::message_bytes_max(&*self.host)
    }

    fn create_region(&self, length_bytes: u64, rights: RegionRights) -> Result<Arc<dyn Region>, FabricError> {
        Host::create_region(&*self.host, length_bytes, rights)
    }

    fn withdraw_region(&self, region: RegionId) -> Result<(), FabricError> {
        Host::withdraw_region(&*self.host, region)
    }

    fn notify(&self, notice: u64) {
        Host::notify(&*self.host, notice);
    }

    fn open_port(&self) -> Result<ParkingPort<K>, FabricError> {
        // Relaxed: all of it happens on one thread.
        let number = self.ports.fetch_add(1, Ordering::Relaxed);
        Ok(ParkingPort {
            port: Host::open_port(&*self.host)?,
            number,
            host: Arc::clone(&self.host),
            simulation: self.simulation.clone(),
            one_in: self.one_in,
            random: SplitMix64::new(self.seed ^ (number as u64 + 1) << 24),
            late: Vec::new(),
        })
    }

    fn step(&self, timeout: Duration) -> Result<Vec<ClientId>, FabricError> {
        Host::step(&*self.host, timeout)
    }

    fn client_count(&self) -> usize {
        Host::client_count(&*self.host)
    }

    fn fence(&self, client: ClientId) -> Result<(), FabricError> {
        Host::fence(&*self.host, client)
    }

    fn wake(&self) {
        Host::wake(&*self.host);
    }
}

/// A reply whose call is parked.
struct Late {
    due: MonotonicNs,
    ticket: Ticket,
    reply: Vec<u8>,
}

/// One worker's port.
pub(crate) struct ParkingPort<K: Kind> {
    port: SimPort,
    number: usize,
    host: Arc<SimHost<K>>,
    simulation: Simulation,
    one_in: u64,
    random: SplitMix64,
    late: Vec<Late>,
}

impl<K: Kind> ServerPort for ParkingPort<K> {
    fn serve(&mut self, budget_calls: usize, handler: &mut dyn CallHandler) -> usize {
        let Self { port, one_in, random, late, .. } = self;
        let now = self.simulation.now();
        for Late { ticket, reply, .. } in late.extract_if(.., |late| late.due <= now) {
            // A client that has left needs no answer.
            port.finish(ticket, &reply);
        }
        let (one_in, reply_bytes_max) = (*one_in, Host::message_bytes_max(&*self.host));
        let mut parker = Parker { handler, now, one_in, reply_bytes_max, random, late };
        let served = port.serve(budget_calls, &mut parker);
        if let Some(due) = self.late.iter().map(|late| late.due).min() {
            self.host.rouse_port(self.number, due);
        }
        served
    }

    fn finish(&mut self, ticket: Ticket, reply: &[u8]) -> bool {
        self.port.finish(ticket, reply)
    }

    fn wait(&mut self, timeout: Duration) {
        self.port.wait(timeout);
    }
}

/// The handler between port and server.
struct Parker<'p> {
    handler: &'p mut dyn CallHandler,
    now: MonotonicNs,
    one_in: u64,
    /// As long as any: a reply that goes astray is found by what it says, not by its length.
    reply_bytes_max: usize,
    random: &'p mut SplitMix64,
    late: &'p mut Vec<Late>,
}

impl CallHandler for Parker<'_> {
    fn handle(&mut self, client: ClientId, ticket: Ticket, request: &[u8], reply: &mut Vec<u8>) -> Answer {
        let answer = self.handler.handle(client, ticket, request, reply);
        if answer != Answer::Now || self.random.below(self.one_in) != 0 {
            return answer;
        }
        let most_ns = if self.random.below(LONG_ONE_IN) == 0 { LONG_NS } else { BRIEF_NS };
        let due = self.now.plus(Duration::from_nanos(1 + self.random.below(most_ns)));
        self.late.push(Late { due, ticket, reply: reply.clone() });
        Answer::Later { reply_bytes_max: self.reply_bytes_max }
    }
}

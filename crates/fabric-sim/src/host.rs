//! A simulated server: its regions, its clients, its ports.
//!
//! Protocol of a call:
//! 1. The worker takes a request, and its handler executes it at once.
//! 2. From the moment at which the processor is free, the host makes what the handler stored visible bit by
//!    bit.
//! 3. The reply leaves behind the last store.
//!
//! A server has one processor, so that no call sees what another one has not stored yet.
//!
//! Protocol of a parked call: the host makes what it stored visible likewise, and then the processor is free.
//! To finish it is work of the processor like a call, behind which the reply leaves.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::{ClientId, Epoch, RegionId};
use farsight_fabric::{
    Answer, CallHandler, FabricError, Host, Parked, Region, RegionRights, ServerPort, Ticket,
};

#[cfg(injected)]
use crate::injected;
use crate::kind::Kind;
use crate::queue::MESSAGE_BYTES_MAX;
use crate::region::SimRegion;
use crate::state::{Arrived, PortState, State};
use crate::watch::{self, RegionPlace};
use crate::world::World;

/// A simulated server.
pub struct SimHost<K: Kind> {
    world: Arc<World>,
    host: usize,
    epoch: Epoch,
    kind: PhantomData<K>,
}

impl<K: Kind> SimHost<K> {
    pub(crate) fn listen(world: &Arc<World>, address: &str, format_version: u32) -> Self {
        let mut state = world.state();
        let host = state.listen(address, format_version, K::GUARANTEES);
        let epoch = state.hosts[host].epoch;
        Self { world: Arc::clone(world), host, epoch, kind: PhantomData }
    }

    /// Lets `step` be called whenever a call arrives at port `port` (counted in the order of opening), and
    /// when it says itself. A worker's step, without a thread.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn run_port(
        &self,
        port: usize,
        step: impl FnMut(MonotonicNs) -> Option<MonotonicNs> + Send + 'static,
    ) {
        let actor = self.world.add_actor(self.host, Box::new(step));
        self.world.state().hosts[self.host].ports[port].actor = Some(actor);
    }

    /// Lets the step of a port be called at `at`, or before.
    pub fn rouse_port(&self, port: usize, at: MonotonicNs) {
        let mut state = self.world.state();
        if let Some(actor) = state.hosts[self.host].ports[port].actor {
            state.rouse(actor, at.0);
        }
    }

    /// The server dies: with it go its memory, its steps and every connection.
    pub fn kill(&self) {
        self.world.state().kill_host(self.host);
        self.world.drop_steps(self.host);
        self.world.tell();
    }

    /// The server's processor dies; its card does so much later.
    pub fn freeze(&self, lasts: Duration) {
        self.world.state().freeze_host(self.host, lasts.as_nanos() as u64);
        self.world.tell();
    }

    /// Clients that have ended since it was asked last: none of their verbs executes any more. What a card
    /// does whose queue pairs are destroyed; [`Host::step`] names none, because requests of one that was cut
    /// off may still be on their way.
    #[must_use]
    pub fn take_departed(&self) -> Vec<ClientId> {
        self.world.state().take_departed(self.host)
    }

    /// The regions that it has, in the order of their creation.
    #[must_use]
    pub fn regions(&self) -> Vec<Arc<SimRegion>> {
        let state = self.world.state();
        let own = &state.hosts[self.host];
        let living = own.regions.iter().enumerate().filter(|(index, _)| !own.is_withdrawn(*index));
        living.map(|(_, (region, _))| Arc::clone(region)).collect()
    }

    /// Makes visible one by one what a step of [`SimHost::run`] has stored, once the processor is free. What
    /// calls have stored, their ports do.
    pub fn show_stores(&self) {
        let mut state = self.world.state();
        let mut steps = std::mem::take(&mut state.steps);
        watch::take(&mut steps);
        if !steps.is_empty() {
            let begins_ns = state.now_ns.max(state.hosts[self.host].busy_until_ns);
            let ends_ns = state.spread_stores(&steps, begins_ns);
            state.hosts[self.host].busy_until_ns = ends_ns;
        }
        steps.clear();
        state.steps = steps;
    }

    /// Lets all be visible that was stored so far, at once: what a server stores before its first client.
    pub fn take_stores_as_shown(&self) {
        watch::take(&mut Vec::new());
    }

    /// Lets `step` be called now, and then when it says itself. The background's step, without a thread.
    pub fn run(&self, step: impl FnMut(MonotonicNs) -> Option<MonotonicNs> + Send + 'static) {
        let actor = self.world.add_actor(self.host, Box::new(step));
        self.world.state().rouse(actor, 0);
    }
}

impl<K: Kind> Host for SimHost<K> {
    type Port = SimPort;

    fn address(&self) -> String {
        self.world.state().hosts[self.host].address.clone()
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn message_bytes_max(&self) -> usize {
        MESSAGE_BYTES_MAX
    }

    fn create_region(&self, length_bytes: u64, rights: RegionRights) -> Result<Arc<dyn Region>, FabricError> {
        let region = self.world.state().create_region(self.host, length_bytes, rights)?;
        if self.world.is_virtual() {
            watch::add(RegionPlace { host: self.host, region: region.id().0 as usize - 1 }, &region);
        }
        Ok(region)
    }

    /// Each client hears at a moment of its own, within the second; a second later the memory is gone.
    fn withdraw_region(&self, region: RegionId) -> Result<(), FabricError> {
        let is_withdrawn = self.world.state().withdraw_region(self.host, region);
        let unknown = || FabricError::UnknownRegion { peer: Host::address(self), region };
        is_withdrawn.then_some(()).ok_or_else(unknown)
    }

    fn notify(&self, notice: u64) {
        self.world.state().notify(self.host, notice);
    }

    fn open_port(&self) -> Result<SimPort, FabricError> {
        let mut state = self.world.state();
        let ports = &mut state.hosts[self.host].ports;
        ports.push(PortState::default());
        let port = ports.len() - 1;
        let (world, parked) = (Arc::clone(&self.world), Parked::default());
        Ok(SimPort { world, host: self.host, port, wakes_seen: 0, parked })
    }

    /// Names no clients: requests of one that was cut off may still be on their way.
    fn step(&self, timeout: Duration) -> Result<Vec<ClientId>, FabricError> {
        let host = self.host;
        let is_woken = |state: &State| state.hosts[host].wakes > 0;
        self.world.wait(timeout, is_woken, |_, _| panic!("a process is no server"));
        self.world.state().hosts[host].wakes = 0;
        Ok(Vec::new())
    }

    fn client_count(&self) -> usize {
        let state = self.world.state();
        state.clients.iter().filter(|client| client.host == self.host && client.lost.is_none()).count()
    }

    fn fence(&self, client: ClientId) -> Result<(), FabricError> {
        let mut state = self.world.state();
        let known = state.clients.iter().position(|other| other.host == self.host && other.id == client);
        if let Some(client) = known {
            state.clients[client].is_fenced = true;
            state.drain(client);
            state.lose(client, "the server fenced this client");
        }
        drop(state);
        self.world.tell();
        Ok(())
    }

    fn wake(&self) {
        let mut state = self.world.state();
        let own = &mut state.hosts[self.host];
        own.wakes += 1;
        own.ports.iter_mut().for_each(|port| port.wakes += 1);
        drop(state);
        self.world.tell();
    }
}

impl<K: Kind> Drop for SimHost<K> {
    fn drop(&mut self) {
        self.world.state().kill_host(self.host);
        self.world.tell();
    }
}

/// One worker's port.
pub struct SimPort {
    world: Arc<World>,
    host: usize,
    port: usize,
    wakes_seen: u64,
    parked: Parked<ParkedCall>,
}

/// A call that waits for its answer; of its request nothing is kept, but where that has a price.
struct ParkedCall {
    arrived: Arrived,
    reply_bytes_max: usize,
}

impl SimPort {
    /// Makes visible what was stored since the last call; returns when all of it is.
    fn show_stores(&self, state: &mut State) -> u64 {
        let mut begins_ns = state.now_ns;
        let mut steps = std::mem::take(&mut state.steps);
        if self.world.is_virtual() && state.pricing.is_none() {
            watch::take(&mut steps);
            begins_ns = state.call_begins_ns(self.host);
        }
        let ends_ns = state.spread_stores(&steps, begins_ns);
        steps.clear();
        state.steps = steps;
        #[cfg(injected)]
        let ends_ns = if injected::ANSWERED_BEFORE_VISIBLE.is_injected() { begins_ns } else { ends_ns };
        ends_ns
    }

    /// Drops the parked calls of clients that have left.
    fn forget_departed(&mut self) {
        if !self.parked.is_empty() {
            let mut state = self.world.state();
            self.parked.forget(|call| {
                let has_left = state.has_left(call.arrived.pair);
                if has_left {
                    state.pairs[call.arrived.pair].parking.remove(call.reply_bytes_max);
                }
                has_left
            });
        }
    }
}

impl ServerPort for SimPort {
    fn serve(&mut self, budget_calls: usize, handler: &mut dyn CallHandler) -> usize {
        if !self.world.is_virtual() {
            drop(self.world.run_due());
        }
        self.forget_departed();
        for served in 0..budget_calls {
            let mut state = self.world.state();
            let Some(mut arrived) = state.take_request(self.host, self.port) else { return served };
            let client = state.clients[state.pairs[arrived.pair].client].id;
            let mut reply = state.room_for_bytes();
            drop(state);
            let ticket = self.parked.give_ticket();
            let answer = handler.handle(client, ticket, &arrived.bytes, &mut reply);
            let mut state = self.world.state();
            let ends_ns = self.show_stores(&mut state);
            match answer {
                Answer::Now => {
                    state.reply(self.host, &arrived, ends_ns, reply);
                    state.keep_room(arrived.bytes);
                }
                Answer::Later { reply_bytes_max } => {
                    assert!(reply_bytes_max <= MESSAGE_BYTES_MAX, "a reply of {reply_bytes_max} B");
                    state.park(self.host, &arrived, ends_ns, reply_bytes_max);
                    state.keep_room(reply);
                    if state.pricing.is_none() {
                        state.keep_room(std::mem::take(&mut arrived.bytes));
                    }
                    self.parked.park(ticket, ParkedCall { arrived, reply_bytes_max });
                }
            }
            drop(state);
            self.world.tell();
        }
        budget_calls
    }

    fn finish(&mut self, ticket: Ticket, bytes: &[u8]) -> bool {
        let Some(ParkedCall { arrived, reply_bytes_max }) = self.parked.take(ticket) else { return false };
        let (got, most) = (bytes.len(), reply_bytes_max);
        assert!(got <= most, "a reply of {got} B to a call that was to get {most} B at most");
        let mut state = self.world.state();
        let parking = &mut state.pairs[arrived.pair].parking;
        let was_full = parking.is_full();
        parking.remove(reply_bytes_max);
        if was_full {
            // A request that had to stay in the inbox may be taken.
            state.wake_port(self.host, self.port);
        }
        if state.has_left(arrived.pair) {
            return false;
        }
        let ends_ns = self.show_stores(&mut state);
        let mut reply = state.room_for_bytes();
        reply.extend_from_slice(bytes);
        state.reply(self.host, &arrived, ends_ns, reply);
        state.keep_room(arrived.bytes);
        drop(state);
        self.world.tell();
        true
    }

    fn wait(&mut self, timeout: Duration) {
        let (host, port, seen) = (self.host, self.port, self.wakes_seen);
        let is_woken = |state: &State| state.hosts[host].ports[port].wakes != seen;
        self.world.wait(timeout, is_woken, |state, waiter| {
            state.hosts[host].ports[port].waiter = Some(waiter);
        });
        self.wakes_seen = self.world.state().hosts[host].ports[port].wakes;
    }
}

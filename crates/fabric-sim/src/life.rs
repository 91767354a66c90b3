//! Nodes that appear, break off and die.

use std::sync::Arc;

use farsight_base::prng::mix;
use farsight_base::{ClientId, Epoch, RegionId};
use farsight_fabric::{FabricError, Guarantees, RegionRights};

use crate::clock::NodeClock;
use crate::fault::Fault;
use crate::history::History;
#[cfg(injected)]
use crate::injected;
use crate::pair::Pair;
use crate::region::SimRegion;
use crate::state::{ClientState, Event, HostState, State};
use crate::trace::{Who, Words};
use crate::withdrawal::Announced;

/// Regions that one server may have at a time.
pub(crate) const REGIONS_MAX: usize = 8192;

impl HostState {
    /// From when on the memory of a region stands still: the stores of a processor that died were visible up
    /// to then. A region that clients write goes on as long as the card.
    pub(crate) fn still_from_ns(&self, region: usize) -> u64 {
        match self.regions[region].0.rights() {
            RegionRights::ReadWrite => u64::MAX,
            RegionRights::ReadOnly => self.frozen_ns,
        }
    }
}

impl State {
    pub(crate) fn listen(&mut self, address: &str, format_version: u32, guarantees: Guarantees) -> usize {
        let host = self.hosts.len();
        assert!(self.living(address).is_none(), "somebody listens at {address} already");
        let group = self.running.map(|process| self.processes[process].group);
        let epoch = Epoch(mix(self.random.next_u64() ^ host as u64));
        self.trace.note(self.now_ns, [8, host as u64, epoch.0], || {
            Words::new(Who::Host(host), format!("listens: {epoch}"))
        });
        self.hosts.push(HostState {
            address: address.to_owned(),
            group,
            guarantees,
            format_version,
            epoch,
            is_alive: true,
            frozen_ns: u64::MAX,
            died_ns: None,
            gray_until_ns: 0,
            clock: NodeClock::default(),
            regions: Vec::new(),
            announced: Announced::default(),
            ports: Vec::new(),
            next_port: 0,
            clients_ever: 0,
            wakes: 0,
            busy_until_ns: 0,
            atomic_until_ns: 0,
            lost: Vec::new(),
        });
        host
    }

    fn living(&self, address: &str) -> Option<usize> {
        self.hosts
            .iter()
            .position(|host| host.is_alive && host.frozen_ns == u64::MAX && host.address == address)
    }

    /// A new client of the server that listens at `address`.
    pub(crate) fn connect(&mut self, address: &str, format_version: u32) -> Result<usize, FabricError> {
        let process = self.running.map(|process| &self.processes[process]);
        let group = process.map(|process| process.group);
        if process.is_some_and(|process| process.is_killed) {
            return Err(FabricError::Disconnected { peer: address.to_owned(), reason: KILLED.to_owned() });
        }
        let Some(host) = self.living(address) else {
            let reason = "nobody listens there".to_owned();
            return Err(FabricError::Disconnected { peer: address.to_owned(), reason });
        };
        if self.is_cut(host, group) {
            let reason = "the network is cut".to_owned();
            return Err(FabricError::Disconnected { peer: address.to_owned(), reason });
        }
        let clock = process.map_or(0, |process| process.clock);
        let own = &mut self.hosts[host];
        if own.format_version != format_version {
            let reason = format!(
                "it speaks format {}, this client format {format_version}: use the same version on both sides",
                own.format_version
            );
            return Err(FabricError::Refused { peer: address.to_owned(), reason });
        }
        own.clients_ever += 1;
        let id = ClientId(own.clients_ever);
        let client = self.clients.len();
        self.trace.note(self.now_ns, [9, client as u64, host as u64], || {
            Words::new(Who::Running(self.running), format!("connects: connection {client}, {id}"))
        });
        self.clients.push(ClientState {
            host,
            id,
            lost: None,
            is_fenced: false,
            is_over: false,
            pairs: Vec::new(),
            group,
            clock,
        });
        Ok(client)
    }

    pub(crate) fn create_region(
        &mut self,
        host: usize,
        length_bytes: u64,
        rights: RegionRights,
    ) -> Result<Arc<SimRegion>, FabricError> {
        let own = &mut self.hosts[host];
        if own.living_regions() == REGIONS_MAX {
            return Err(FabricError::System {
                what: format!("creating a region of {length_bytes} B"),
                source_text: format!("this host has {REGIONS_MAX} regions"),
                remedy: "use fewer".to_owned(),
            });
        }
        let stamp = if rights == RegionRights::ReadOnly { self.first_stamp } else { 0 };
        #[cfg(injected)]
        if injected::NUMBER_REUSED.is_injected()
            && let Some(used) = own.take_used_number()
        {
            let id = RegionId(used as u32 + 1);
            let region = Arc::new(SimRegion::new(id, length_bytes, rights, stamp));
            own.regions[used] = (Arc::clone(&region), History::default());
            return Ok(region);
        }
        // Number zero is nobody's.
        let id = RegionId(own.regions.len() as u32 + 1);
        let region = Arc::new(SimRegion::new(id, length_bytes, rights, stamp));
        own.regions.push((Arc::clone(&region), History::default()));
        Ok(region)
    }

    /// The connection of `client` is no more.
    pub(crate) fn lose(&mut self, client: usize, why: &str) {
        if self.clients[client].lost.is_some() {
            return;
        }
        self.trace.note(self.now_ns, [10, client as u64], || {
            Words::new(Who::Client(client), format!("is cut off: {why}"))
        });
        let own = &mut self.clients[client];
        own.lost = Some(why.to_owned());
        let (host, pairs) = (own.host, std::mem::take(&mut own.pairs));
        self.hosts[host].lost.push(client);
        for pair in pairs {
            self.wake_pair(pair);
        }
    }

    /// The server dies: with it go its memory and every connection.
    pub(crate) fn kill_host(&mut self, host: usize) {
        if !self.hosts[host].is_alive {
            return;
        }
        let now_ns = self.now_ns;
        self.trace.note(now_ns, [12, host as u64], || Words::new(Who::Host(host), "is dead"));
        let own = &mut self.hosts[host];
        own.is_alive = false;
        own.died_ns.get_or_insert(now_ns);
        for port in &mut own.ports {
            port.inbox.clear();
            port.wakes += 1;
        }
        for port in 0..self.hosts[host].ports.len() {
            self.wake_waiter(host, port, now_ns);
        }
        for client in 0..self.clients.len() {
            if self.clients[client].host == host {
                self.lose(client, "the peer closed the connection or died");
            }
        }
    }

    /// The processor of a server dies; its card does `lasts_ns` later.
    pub(crate) fn freeze_host(&mut self, host: usize, lasts_ns: u64) {
        let now_ns = self.now_ns;
        self.trace.note(now_ns, [13, host as u64], || Words::new(Who::Host(host), "has a dead processor"));
        let own = &mut self.hosts[host];
        own.frozen_ns = now_ns;
        own.died_ns = Some(now_ns);
        self.schedule(now_ns + lasts_ns, Event::Die { host });
    }

    /// A server is about to take a step: the moment at which it may stop, or die. True if it is dead.
    pub(crate) fn tempt_host(&mut self, host: usize) -> bool {
        if self.hosts[host].frozen_ns != u64::MAX {
            return true;
        }
        if self.strike(Fault::CrashedServer).is_some() {
            self.kill_host(host);
            return true;
        }
        if let Some(lasts_ns) = self.strike(Fault::FrozenServer) {
            self.freeze_host(host, lasts_ns);
            return true;
        }
        if let Some(lasts_ns) = self.strike(Fault::PausedServer) {
            let own = &mut self.hosts[host];
            own.busy_until_ns = own.busy_until_ns.max(self.now_ns) + lasts_ns;
        }
        let now_ns = self.now_ns;
        if self.strike(Fault::DriftingClock).is_some() {
            let choice = self.random.next_u64();
            self.hosts[host].clock.drift(now_ns, choice);
        }
        if let Some(by_ns) = self.strike(Fault::LeapingClock) {
            self.hosts[host].clock.leap(by_ns);
        }
        false
    }

    /// The number of the clock of a program.
    pub(crate) fn clock_of(&mut self, group: usize) -> usize {
        let known = self.clocks.iter().position(|(other, _)| *other == group);
        known.unwrap_or_else(|| {
            self.clocks.push((group, NodeClock::default()));
            self.clocks.len() - 1
        })
    }

    /// Stops a group of processes.
    pub(crate) fn pause_group(&mut self, group: usize, until_ns: u64) {
        for process in self.processes.iter_mut().filter(|process| process.group == group) {
            process.paused_until_ns = process.paused_until_ns.max(until_ns);
        }
    }

    /// A group of processes dies: nothing that they do from now on has any effect.
    pub(crate) fn kill_group(&mut self, group: usize) {
        for process in self.processes.iter_mut().filter(|process| process.group == group) {
            process.is_killed = true;
            process.paused_until_ns = 0;
        }
        for host in 0..self.hosts.len() {
            if self.hosts[host].group == Some(group) {
                self.kill_host(host);
            }
        }
        for client in 0..self.clients.len() {
            if self.clients[client].group == Some(group) {
                self.lose(client, KILLED);
            }
        }
    }

    /// A process is about to ask something of the fabric: the moment at which it may stop or die.
    pub(crate) fn tempt_process(&mut self, pair: usize) {
        let Some(process) = self.running.filter(|process| !self.processes[*process].is_killed) else {
            return;
        };
        let group = self.processes[process].group;
        if self.spared == Some(group) {
            return self.tempt_network(self.pairs[pair].client);
        }
        if self.strike(Fault::KilledClient).is_some() {
            self.kill_group(group);
        } else if let Some(lasts_ns) = self.strike(Fault::PausedClient) {
            self.pause_group(group, self.now_ns + lasts_ns);
        }
        self.tempt_clock(process);
        self.tempt_network(self.pairs[pair].client);
    }

    /// The program that rings a doorbell now dies while its batch leaves: which, if a rule says so.
    pub(crate) fn dies_in_batch(&mut self) -> Option<usize> {
        let process = self.running.map(|process| &self.processes[process])?;
        let group = Some(process.group).filter(|group| !process.is_killed && self.spared != Some(*group))?;
        self.strike(Fault::KilledClient).map(|_| group)
    }

    /// Clients of `host` whose connections are lost and that it has not been told of: none of their verbs
    /// executes any more.
    pub(crate) fn take_departed(&mut self, host: usize) -> Vec<ClientId> {
        let departed = std::mem::take(&mut self.hosts[host].lost);
        departed
            .into_iter()
            .map(|client| {
                self.drain(client);
                self.clients[client].id
            })
            .collect()
    }

    /// Nothing that a client has sent executes from now on.
    pub(crate) fn drain(&mut self, client: usize) {
        #[cfg(injected)]
        if injected::FENCE_ANSWERED_EARLY.is_injected() {
            return;
        }
        self.clients[client].is_over = true;
    }

    /// The clock of the program whose queue pair this is.
    pub(crate) fn pair_clock(&self, pair: usize) -> &NodeClock {
        &self.clocks[self.clients[self.pairs[pair].client].clock].1
    }

    fn tempt_clock(&mut self, process: usize) {
        let (now_ns, clock) = (self.now_ns, self.processes[process].clock);
        if self.strike(Fault::DriftingClock).is_some() {
            let choice = self.random.next_u64();
            self.clocks[clock].1.drift(now_ns, choice);
        }
        if let Some(by_ns) = self.strike(Fault::LeapingClock) {
            self.clocks[clock].1.leap(by_ns);
        }
    }

    /// Fails if the connection is dead, or this queue pair is. A verb that broke it shows in its slot first:
    /// until then `batches` more may begin.
    #[inline]
    pub(crate) fn check_pair(&self, pair: usize, batches: u64) -> Result<(), FabricError> {
        let own = &self.pairs[pair];
        if !own.refusals.is_broken() && self.clients[own.client].lost.is_none() {
            return Ok(());
        }
        self.check_broken_pair(own, batches)
    }

    #[cold]
    fn check_broken_pair(&self, own: &Pair, batches: u64) -> Result<(), FabricError> {
        if let Some(lost) = self.lost(own.client) {
            return Err(lost);
        }
        own.refusals.check(own.batch, batches, &self.hosts[self.clients[own.client].host].address)
    }
}

const KILLED: &str = "this client was killed";

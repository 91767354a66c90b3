//! The way of a verb where verbs have prices.
//!
//! Invariant: each part takes its work in the order of time. So whatever reaches another part does so as an
//! event of its own, and nothing is reserved ahead of it.
//!
//! Protocol. *Ring*: the thread is busy for its verbs and its doorbell; then they leave. *Leave*: the
//! client's engine, the link, the way; a READ beyond those that may be under way waits for one of them.
//! *Arrive*: the server's link and engine; memory is read or written; the answer takes the server's link and
//! the way back. An atomic takes the engine twice and holds its word's lock between; the verbs behind it on
//! its queue pair are looked at when it has done. A call takes a core between its arrival and its answer, for
//! as long as the caller of [`crate::Simulation::priced`] says. *Return*: the thread takes the completion,
//! and if it waits, goes on once it has taken all that it waits for.
//!
//! A thread's own work is told by the thread ([`crate::Simulation::charge`]).

use std::collections::{HashMap, VecDeque};

use farsight_base::Line;
use farsight_base::words::CopyMode;
use farsight_fabric::Slot;

use crate::history::present_lines;
use crate::pair::{Content, Verb};
use crate::prices::{ADDRESS_BYTES, ATOMIC_BYTES, PartUsage, Prices, Usage, WORD_BYTES};
use crate::state::{Arrived, Event, State};
use crate::station::Station;
use crate::trace::{Who, Words, digest_lines};

/// The core's time of a call, from its request and its reply.
pub(crate) type CallPrice = Box<dyn Fn(&[u8], &[u8]) -> u64 + Send>;

const PS_PER_NS: u64 = 1_000;

/// A card and its link.
#[derive(Clone)]
struct Nic {
    engine: Station,
    link_out: Station,
    link_in: Station,
    /// What keeps atomics on one word from each other.
    atomic_locks: Station,
}

/// What verbs cost, and what is busy with them.
pub(crate) struct Pricing {
    prices: Prices,
    call_price: CallPrice,
    /// By host.
    servers: Vec<Server>,
    /// What one group of processes has connected, or listens with, belongs to one machine. Outside of
    /// processes each client and each host is a machine by itself.
    machines: Vec<Machine>,
    machine_of: HashMap<Whose, usize>,
    /// By queue pair.
    flights: Vec<Option<Flight>>,
    /// By process: until when its thread is busy, and for how long it was.
    threads: Vec<Thread>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Whose {
    Group(usize),
    Client(usize),
    Host(usize),
}

struct Server {
    machine: usize,
    /// A group's processes serve it, too.
    is_shared: bool,
    cores: Station,
}

struct Machine {
    nics: Vec<Nic>,
    /// It is a host's alone.
    is_server: bool,
    /// Queue pairs so far: they take turns in belonging to its cards.
    pairs: usize,
}

#[derive(Clone, Copy, Default)]
struct Thread {
    busy_until_ps: u64,
    work_ps: u64,
}

/// What a queue pair has under way.
#[derive(Default)]
struct Flight {
    machine: usize,
    nic: usize,
    /// Whose thread takes the completions.
    process: Option<usize>,
    reads: usize,
    waiting: VecDeque<(Slot, u64, Verb)>,
    /// At the server's card: an atomic is under way, and these are behind it.
    is_behind_atomic: bool,
    behind_atomic: VecDeque<(Slot, u64, Verb)>,
    /// Its thread waits for all verbs, not for the first.
    is_draining: bool,
}

impl Pricing {
    pub(crate) fn new(prices: Prices, call_price: CallPrice) -> Self {
        let (servers, machines, machine_of, flights, threads) = Default::default();
        Self { prices, call_price, servers, machines, machine_of, flights, threads }
    }

    fn nics(&self) -> Vec<Nic> {
        let atomic_locks = Station::new(self.prices.nic.atomic_locks);
        let one = Station::new(1);
        let nic = Nic { engine: one.clone(), link_out: one.clone(), link_in: one, atomic_locks };
        vec![nic; self.prices.nics]
    }

    /// Takes note of the hosts of these groups, with so many ports: those that are not known yet.
    fn note_hosts(&mut self, hosts: impl Iterator<Item = (Option<usize>, usize)>) {
        for (group, ports) in hosts.skip(self.servers.len()) {
            let whose = group.map_or(Whose::Host(self.servers.len()), Whose::Group);
            let machine = self.machine(whose);
            // A thread that serves for a group has a port, and is one of its machine's.
            let cores = if group.is_some() { ports.max(1) } else { self.prices.server_cores };
            let server = Server { machine, is_shared: group.is_some(), cores: Station::new(cores) };
            self.servers.push(server);
        }
    }

    fn machine(&mut self, whose: Whose) -> usize {
        let next = self.machines.len();
        let machine = *self.machine_of.entry(whose).or_insert(next);
        if machine == next {
            let is_server = matches!(whose, Whose::Host(_));
            self.machines.push(Machine { nics: self.nics(), is_server, pairs: 0 });
        }
        machine
    }

    /// The flight of `pair`, which is a queue pair of this group or client.
    fn flight(&mut self, pair: usize, whose: Whose) -> &mut Flight {
        if self.flights.len() <= pair {
            self.flights.resize_with(pair + 1, || None);
        }
        if self.flights[pair].is_none() {
            let machine = self.machine(whose);
            let nic = self.machines[machine].pairs % self.prices.nics;
            self.machines[machine].pairs += 1;
            self.flights[pair] = Some(Flight { machine, nic, ..Flight::default() });
        }
        self.flights[pair].as_mut().expect("just put there")
    }

    fn under_way(&mut self, pair: usize) -> &mut Flight {
        self.flights[pair].as_mut().expect("a verb under way has a flight")
    }

    /// The client's card of `pair`.
    fn own_card(&mut self, pair: usize) -> (&mut Nic, &Prices) {
        let &mut Flight { machine, nic, .. } = self.under_way(pair);
        (&mut self.machines[machine].nics[nic], &self.prices)
    }

    /// The server's card of `pair`.
    fn card(&mut self, pair: usize, host: usize) -> (&mut Nic, &Prices) {
        let &mut Flight { nic, .. } = self.under_way(pair);
        (&mut self.machines[self.servers[host].machine].nics[nic], &self.prices)
    }

    /// Work of a process's thread; returns until when it is busy then.
    fn charge(&mut self, process: usize, now_ps: u64, work_ps: u64) -> u64 {
        if self.threads.len() <= process {
            self.threads.resize(process + 1, Thread::default());
        }
        let own = &mut self.threads[process];
        own.busy_until_ps = own.busy_until_ps.max(now_ps) + work_ps;
        own.work_ps += work_ps;
        own.busy_until_ps
    }

    fn usage(&self, now_ps: u64) -> Usage {
        let work = |stations: &mut dyn Iterator<Item = &Station>| {
            stations.map(|station| (station.units(), station.done_ps(now_ps))).collect()
        };
        let nics = |is_server: bool| {
            let machines = self.machines.iter().filter(move |machine| machine.is_server == is_server);
            machines.flat_map(|machine| &machine.nics)
        };
        let server = |part: fn(&Nic) -> &Station| work(&mut nics(true).map(part));
        let client = |part: fn(&Nic) -> &Station| work(&mut nics(false).map(part));
        let cores = |is_shared: bool| {
            let servers = self.servers.iter().filter(move |server| server.is_shared == is_shared);
            work(&mut servers.map(|server| &server.cores))
        };
        let left = |thread: &Thread| thread.busy_until_ps.saturating_sub(now_ps).min(thread.work_ps);
        let threads = self.threads.iter().map(|thread| (1, thread.work_ps - left(thread))).collect();
        let locks = nics(true).map(|nic| &nic.atomic_locks);
        let atomic_locks = locks.map(|locks| (locks.used_units().max(1), locks.done_ps(now_ps))).collect();
        let parts = [
            ("server: card", server(|nic| &nic.engine)),
            ("server: link out", server(|nic| &nic.link_out)),
            ("server: link in", server(|nic| &nic.link_in)),
            ("server: atomics' locks", atomic_locks),
            ("server: cores", cores(false)),
            ("proxies: cores", cores(true)),
            ("clients: card", client(|nic| &nic.engine)),
            ("clients: link out", client(|nic| &nic.link_out)),
            ("clients: threads", threads),
        ];
        let parts = parts.into_iter().map(|(name, work)| PartUsage { name, work }).collect();
        Usage { at_ps: now_ps, parts }
    }
}

impl State {
    fn now_ps(&self) -> u64 {
        self.now_ns * PS_PER_NS
    }

    fn priced(&mut self) -> &mut Pricing {
        self.pricing.as_mut().expect("asked where verbs have prices")
    }

    fn host_of(&mut self, pair: usize) -> usize {
        let hosts = self.hosts.iter().map(|host| (host.group, host.ports.len()));
        self.pricing.as_mut().expect("asked where verbs have prices").note_hosts(hosts);
        self.clients[self.pairs[pair].client].host
    }

    /// Work of the thread that runs now; returns when it will have done it.
    pub(crate) fn charge_ns(&mut self, work_ps: u64) -> u64 {
        let now_ps = self.now_ps();
        match (self.running, &mut self.pricing) {
            (Some(process), Some(pricing)) => {
                pricing.charge(process, now_ps, work_ps).div_ceil(PS_PER_NS).max(self.now_ns)
            }
            _ => self.now_ns,
        }
    }

    /// Whose machine a queue pair belongs to.
    fn whose(&self, pair: usize) -> Whose {
        let client = self.pairs[pair].client;
        self.clients[client].group.map_or(Whose::Client(client), Whose::Group)
    }

    /// The verbs of a doorbell that is rung now leave once its thread has built them all.
    pub(crate) fn ring_priced(&mut self, pair: usize, verbs: Vec<(Slot, u64, Verb)>) {
        let whose = self.whose(pair);
        for (slot, serial, verb) in &verbs {
            self.set_under_way(pair, *slot, *serial, matches!(verb, Verb::Call(_)));
        }
        let process = self.running;
        self.priced().flight(pair, whose).process = process;
        let prices = self.priced().prices.thread;
        let at_ns = self.charge_ns(prices.doorbell_ps + prices.post_ps * verbs.len() as u64);
        self.schedule(at_ns, Event::Leave { pair, verbs });
    }

    pub(crate) fn leave(&mut self, pair: usize, verbs: Vec<(Slot, u64, Verb)>) {
        let most = self.priced().prices.reads_in_flight_max;
        for (slot, serial, verb) in verbs {
            let flight = self.priced().under_way(pair);
            if is_limited(&verb) && (flight.reads >= most || !flight.waiting.is_empty()) {
                flight.waiting.push_back((slot, serial, verb));
            } else {
                self.send(pair, slot, serial, verb);
            }
        }
    }

    fn send(&mut self, pair: usize, slot: Slot, serial: u64, verb: Verb) {
        let now_ps = self.now_ps();
        let pricing = self.priced();
        pricing.under_way(pair).reads += usize::from(is_limited(&verb));
        let (own, prices) = pricing.own_card(pair);
        let work_ps = match &verb {
            Verb::Read | Verb::Atomic(_) => prices.nic.read_issued_ps,
            Verb::Write { .. } => prices.nic.write_issued_ps,
            Verb::Call(_) => prices.nic.message_ps,
        };
        let issued_ps = own.engine.serve(now_ps, work_ps);
        let sent_ps = own.link_out.serve(issued_ps, prices.link.message_ps(request_bytes(&verb)));
        let at_ns = (sent_ps + prices.link.way_ps).div_ceil(PS_PER_NS);
        self.schedule(at_ns, Event::Arrive { pair, slot, serial, verb });
    }

    /// A verb reaches its server's card, and with that, memory.
    pub(crate) fn arrive(&mut self, pair: usize, slot: Slot, serial: u64, verb: Verb) {
        let (now_ps, host) = (self.now_ps(), self.host_of(pair));
        let (card, prices) = self.priced().card(pair, host);
        let came_ps = card.link_in.pass(now_ps, prices.link.message_ps(request_bytes(&verb)));
        let flight = self.priced().under_way(pair);
        if flight.is_behind_atomic {
            flight.behind_atomic.push_back((slot, serial, verb));
        } else {
            self.serve(pair, slot, serial, verb, came_ps);
        }
    }

    /// The server's card takes a verb that came at `came_ps`.
    fn serve(&mut self, pair: usize, slot: Slot, serial: u64, verb: Verb, came_ps: u64) {
        let host = self.host_of(pair);
        let (card, prices) = self.priced().card(pair, host);
        let work_ps = match &verb {
            Verb::Read => prices.nic.read_served_ps,
            Verb::Write { .. } => prices.nic.write_served_ps,
            Verb::Atomic(_) => prices.nic.atomic_served_ps / 2,
            Verb::Call(_) => prices.nic.message_ps,
        };
        let served_ps = card.engine.serve(came_ps, work_ps);
        let is_limited = is_limited(&verb);
        let answer_bytes = match verb {
            Verb::Read => self.take_lines(pair, slot, serial),
            Verb::Write { region, first, words } => {
                self.store(self.pairs[pair].client, region, first, &words);
                0
            }
            Verb::Atomic(atomic) => {
                let lock = atomic.word % prices.nic.atomic_locks;
                let free_ps = card.atomic_locks.serve_by(lock, served_ps, prices.nic.atomic_held_ps);
                self.execute_atomic(pair, slot, serial, atomic);
                self.priced().under_way(pair).is_behind_atomic = true;
                return self.schedule(free_ps.div_ceil(PS_PER_NS), Event::Unlock { pair, slot, serial });
            }
            Verb::Call(bytes) => {
                let at_ns = served_ps.div_ceil(PS_PER_NS);
                return self.schedule(at_ns, Event::Request { pair, slot, serial, bytes });
            }
        };
        let at_ns = self.answer_ns(pair, served_ps, answer_bytes);
        self.schedule(at_ns, Event::Return { pair, slot, serial, is_limited });
    }

    /// An atomic has done with its lock: it is answered, and those behind it are looked at.
    pub(crate) fn unlock(&mut self, pair: usize, slot: Slot, serial: u64) {
        let (now_ps, host) = (self.now_ps(), self.host_of(pair));
        let (card, prices) = self.priced().card(pair, host);
        let ready_ps = card.engine.serve(now_ps, prices.nic.atomic_served_ps.div_ceil(2));
        let at_ns = self.answer_ns(pair, ready_ps, WORD_BYTES);
        self.schedule(at_ns, Event::Return { pair, slot, serial, is_limited: true });
        self.priced().under_way(pair).is_behind_atomic = false;
        while !self.priced().under_way(pair).is_behind_atomic {
            let next = self.priced().under_way(pair).behind_atomic.pop_front();
            let Some((slot, serial, verb)) = next else { break };
            self.serve(pair, slot, serial, verb, now_ps);
        }
    }

    /// When an answer of so many bytes that is ready at `ready_ps` reaches its client.
    fn answer_ns(&mut self, pair: usize, ready_ps: u64, bytes: u64) -> u64 {
        let host = self.host_of(pair);
        let (card, prices) = self.priced().card(pair, host);
        let sent_ps = card.link_out.serve(ready_ps, prices.link.message_ps(bytes));
        (sent_ps + prices.link.way_ps).div_ceil(PS_PER_NS)
    }

    /// Fills a READ's slot with its lines as they are; returns their bytes.
    fn take_lines(&mut self, pair: usize, slot: Slot, serial: u64) -> u64 {
        let host = self.host_of(pair);
        let held = &mut self.pairs[pair].slots[slot];
        // A READ that its slot no longer holds fetches for nobody.
        let (Content::Read(read), true) = (held.content, held.serial == serial) else { return 0 };
        if self.hosts[host].is_gone(read.region) {
            self.lose_region(pair, slot, serial, read.region);
            return 0;
        }
        let held = &mut self.pairs[pair].slots[slot];
        let region = &self.hosts[host].regions[read.region].0;
        held.lines.resize(read.count, Line::ZERO);
        present_lines(region, read.first_line, &mut held.lines, CopyMode::Plain);
        let digest = digest_lines(&held.lines);
        self.trace.note(self.now_ns, [12, pair as u64, slot as u64, digest], || {
            Words::new(Who::Pair(pair), "READs".to_owned()).at(read.region, read.first_line, read.count)
        });
        read.count as u64 * farsight_base::LINE_BYTES as u64
    }

    /// A verb's answer is back.
    pub(crate) fn return_answer(&mut self, pair: usize, slot: Slot, serial: u64, is_limited: bool) {
        self.take_completion(pair);
        let flight = self.priced().under_way(pair);
        if is_limited {
            flight.reads -= 1;
            if let Some((slot, serial, verb)) = flight.waiting.pop_front() {
                self.send(pair, slot, serial, verb);
            }
        }
        self.complete(pair, slot, serial);
    }

    /// The thread of `pair` takes a completion.
    pub(crate) fn take_completion(&mut self, pair: usize) {
        let now_ps = self.now_ps();
        let Some(pricing) = &mut self.pricing else { return };
        if let Some(process) = pricing.under_way(pair).process {
            pricing.charge(process, now_ps, pricing.prices.thread.completion_ps);
        }
    }

    /// A call was executed: a core is busy with it from now on, then its answer leaves.
    pub(crate) fn reply_priced(&mut self, host: usize, arrived: &Arrived, bytes: Vec<u8>) {
        let now_ps = self.now_ps();
        let Arrived { pair, slot, serial, bytes: ref request } = *arrived;
        let pricing = self.priced();
        let work_ps = (pricing.call_price)(request, &bytes);
        let done_ps = pricing.servers[host].cores.serve(now_ps, work_ps);
        self.schedule(done_ps.div_ceil(PS_PER_NS), Event::Respond { pair, slot, serial, bytes });
    }

    /// A core has done with a call.
    pub(crate) fn respond(&mut self, pair: usize, slot: Slot, serial: u64, bytes: Vec<u8>) {
        let (now_ps, host) = (self.now_ps(), self.host_of(pair));
        let (card, prices) = self.priced().card(pair, host);
        let ready_ps = card.engine.serve(now_ps, prices.nic.message_ps);
        let at_ns = self.answer_ns(pair, ready_ps, bytes.len() as u64);
        let left_ns = self.now_ns;
        self.schedule(at_ns, Event::Reply { pair, slot, serial, bytes, left_ns });
    }

    /// Says whether the thread of `pair` is about to wait for all of its verbs.
    pub(crate) fn set_draining(&mut self, pair: usize, is_draining: bool) {
        let whose = self.whose(pair);
        if let Some(pricing) = &mut self.pricing {
            pricing.flight(pair, whose).is_draining = is_draining;
        }
    }

    /// When the process that waits for `pair` goes on, if it is to be woken now.
    pub(crate) fn wakes_at_ns(&self, pair: usize, process: usize) -> Option<u64> {
        let Some(pricing) = &self.pricing else { return Some(self.now_ns) };
        let is_draining = pricing
            .flights
            .get(pair)
            .is_some_and(|flight| flight.as_ref().is_some_and(|flight| flight.is_draining));
        let is_over = self.pairs[pair].verbs_under_way == 0 || self.pairs[pair].refusals.is_broken();
        let is_lost = self.clients[self.pairs[pair].client].lost.is_some();
        if is_draining && !is_over && !is_lost {
            return None;
        }
        let busy_ps = pricing.threads.get(process).map_or(0, |thread| thread.busy_until_ps);
        Some(busy_ps.div_ceil(PS_PER_NS).max(self.now_ns))
    }

    /// How much every part did so far; nothing where verbs have no prices.
    pub(crate) fn usage(&self) -> Option<Usage> {
        self.pricing.as_ref().map(|pricing| pricing.usage(self.now_ps()))
    }
}

/// Whether a queue pair has only so many of these under way.
fn is_limited(verb: &Verb) -> bool {
    matches!(verb, Verb::Read | Verb::Atomic(_))
}

fn request_bytes(verb: &Verb) -> u64 {
    match verb {
        Verb::Read => ADDRESS_BYTES,
        Verb::Write { words, .. } => ADDRESS_BYTES + words.len() as u64 * 8,
        Verb::Atomic(_) => ATOMIC_BYTES,
        Verb::Call(bytes) => bytes.len() as u64,
    }
}

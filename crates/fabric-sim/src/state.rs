//! Everything that a simulation holds, and what happens next.
//!
//! Invariant: time never goes back; events of one time happen in the order in which they were scheduled. All
//! randomness is drawn from one sequence, in the order of the events.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicBool, Ordering};
use farsight_base::{ClientId, Epoch, Line};
use farsight_fabric::{FabricError, Guarantees};

use crate::clock::NodeClock;
use crate::fault::{Fault, FlippedRead, Rule, Strikes};
use crate::history::History;
use crate::locks::LockWatch;
use crate::network::{Cut, GRAY_TIMES};
use crate::pair::{Atomic, Pair, Verb};
use crate::priced::Pricing;
use crate::region::SimRegion;
use crate::timing::Timing;
use crate::trace::{Trace, Who, Words};
use crate::watch::Step;
use crate::withdrawal::Announced;
use crate::world::{ActorStep, Body};

/// Something that will happen.
#[derive(Debug)]
pub(crate) enum Event {
    /// A verb's result reaches its queue pair.
    Complete { pair: usize, slot: usize, serial: u64 },
    /// A piece of a WRITE reaches memory.
    Store { client: usize, region: usize, first: usize, words: Vec<u64> },
    /// An atomic executes.
    Atomic { pair: usize, slot: usize, serial: u64, atomic: Atomic },
    /// A request reaches its port.
    Request { pair: usize, slot: usize, serial: u64, bytes: Vec<u8> },
    /// A reply reaches its queue pair.
    Reply { pair: usize, slot: usize, serial: u64, bytes: Vec<u8>, left_ns: u64 },
    /// A connection breaks.
    Lose { client: usize, why: &'static str },
    /// A server whose processor is dead is gone altogether.
    Die { host: usize },
    /// The memory of a withdrawn region goes.
    Forget { host: usize, region: usize },
    /// A process goes on, if it still waits for this.
    Resume { process: usize, turn: u64 },
    /// Time for a process to look whether it has waited long enough.
    Look { process: usize },
    /// A server's worker or background takes a step.
    Act { actor: usize },
    /// Where verbs have prices: those of a doorbell leave their thread.
    Leave { pair: usize, verbs: Vec<(usize, u64, Verb)> },
    /// One of them reaches the server's card.
    Arrive { pair: usize, slot: usize, serial: u64, verb: Verb },
    /// An atomic has done with its lock.
    Unlock { pair: usize, slot: usize, serial: u64 },
    /// A verb's answer is back.
    Return { pair: usize, slot: usize, serial: u64, is_limited: bool },
    /// A core has done with a call.
    Respond { pair: usize, slot: usize, serial: u64, bytes: Vec<u8> },
}

/// When an event happens, its number and where it is kept, in one number by whose order events happen: a heap
/// compares and moves what it holds many times.
type Scheduled = Reverse<u128>;

/// Bits of an event's place: as many may be awaited at once.
const PLACE_BITS: u32 = 24;
/// Bits of an event's number: as many may happen in one simulation.
const NUMBER_BITS: u32 = 64 - PLACE_BITS;

/// Requests and replies whose room is kept: more are hardly under way at once.
const SPARE_BYTES_MAX: usize = 256;

/// A request that waits at a port.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) pair: usize,
    pub(crate) slot: usize,
    pub(crate) serial: u64,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug, Default)]
pub(crate) struct PortState {
    pub(crate) inbox: VecDeque<Arrived>,
    /// Who is stepped when a request comes.
    pub(crate) actor: Option<usize>,
    /// The process that waits for one, by its turn.
    pub(crate) waiter: Option<(usize, u64)>,
    /// Grows with each wake.
    pub(crate) wakes: u64,
}

pub(crate) struct HostState {
    pub(crate) address: String,
    /// The group of processes that it dies with, if it is a process's.
    pub(crate) group: Option<usize>,
    pub(crate) guarantees: Guarantees,
    pub(crate) format_version: u32,
    pub(crate) epoch: Epoch,
    pub(crate) is_alive: bool,
    /// Since when its processor is dead.
    pub(crate) frozen_ns: u64,
    /// When it died, if it did.
    pub(crate) died_ns: Option<u64>,
    pub(crate) gray_until_ns: u64,
    pub(crate) clock: NodeClock,
    /// By index, which is the number less one; one that is gone keeps its place.
    pub(crate) regions: Vec<(Arc<SimRegion>, History)>,
    pub(crate) announced: Announced,
    pub(crate) ports: Vec<PortState>,
    pub(crate) next_port: usize,
    pub(crate) clients_ever: u64,
    pub(crate) wakes: u64,
    /// One processor: its next call or step begins then.
    pub(crate) busy_until_ns: u64,
    pub(crate) atomic_until_ns: u64,
    /// Clients whose connections are lost, of which it has not been told.
    pub(crate) lost: Vec<usize>,
}

pub(crate) struct ClientState {
    pub(crate) host: usize,
    pub(crate) id: ClientId,
    /// Why its connection is no more.
    pub(crate) lost: Option<String>,
    /// The server has ended it, and lets it in no more.
    pub(crate) is_fenced: bool,
    /// None of its verbs and requests executes any more.
    pub(crate) is_over: bool,
    /// Its queue pairs, until it is lost.
    pub(crate) pairs: Vec<usize>,
    /// The group of the process that connected.
    pub(crate) group: Option<usize>,
    /// The clock of its program, by number.
    pub(crate) clock: usize,
}

pub(crate) struct ProcessState {
    pub(crate) name: String,
    /// Its code, where it waits; `None` while it runs and once it has ended.
    pub(crate) body: Option<Body>,
    pub(crate) group: usize,
    pub(crate) clock: usize,
    /// Counts its waits: an event for an earlier one is stale.
    pub(crate) turn: u64,
    pub(crate) paused_until_ns: u64,
    /// Until when it waits at most; `u64::MAX` while it does not.
    pub(crate) deadline_ns: u64,
    /// When it looks at that: not later, mostly once for many waits. Most end long before.
    pub(crate) looks_ns: u64,
    pub(crate) is_killed: bool,
    pub(crate) is_done: bool,
    /// Of its queue pairs' READs, those that brought a flipped bit, until it asks.
    pub(crate) flipped: Vec<FlippedRead>,
}

pub(crate) struct ActorState {
    pub(crate) host: usize,
    /// What it does; `None` while it does it and once its server is dead.
    pub(crate) step: Option<ActorStep>,
    /// When its next step is due; `u64::MAX`: never.
    pub(crate) due_ns: u64,
}

/// The simulation.
pub(crate) struct State {
    pub(crate) now_ns: u64,
    pub(crate) random: SplitMix64,
    pub(crate) timing: Timing,
    rules: Vec<Rule>,
    /// A bit for each fault that some rule names.
    ruled: u64,
    pub(crate) strikes: Strikes,
    pub(crate) trace: Trace,
    agenda: BinaryHeap<Scheduled>,
    events: Vec<Option<Event>>,
    free_places: Vec<usize>,
    scheduled_ever: u64,
    pub(crate) hosts: Vec<HostState>,
    pub(crate) clients: Vec<ClientState>,
    pub(crate) pairs: Vec<Pair>,
    pub(crate) processes: Vec<ProcessState>,
    /// Of these, those that have not ended.
    pub(crate) processes_left: usize,
    pub(crate) actors: Vec<ActorState>,
    /// The clocks of programs, each with its group; the first is nobody's, and true.
    pub(crate) clocks: Vec<(usize, NodeClock)>,
    pub(crate) cuts: Vec<Cut>,
    /// Of a READ's lines, those bits that may flip: by the line's number, again and again.
    pub(crate) flips: Vec<Line>,
    /// The stamp of every line of a new region that clients may only READ.
    pub(crate) first_stamp: u64,
    /// Which words are locks, and who has them, if somebody wants to know.
    pub(crate) locks: Option<LockWatch>,
    /// Clients reach hosts by the addresses that others tell them.
    pub(crate) has_urls: bool,
    /// The group that is neither stopped nor killed by a rule.
    pub(crate) spared: Option<usize>,
    /// The process whose code runs now.
    pub(crate) running: Option<usize>,
    /// Kept, so that logs need no memory of their own.
    pub(crate) steps: Vec<Step>,
    /// Requests and replies that have been read, for the next ones.
    spare_bytes: Vec<Vec<u8>>,
    pub(crate) floor_age_ns: u64,
    /// What verbs cost, where they have prices: then no faults strike.
    pub(crate) pricing: Option<Pricing>,
    /// Set by another thread once nobody wants to know what comes of this.
    pub(crate) stop: Option<Arc<AtomicBool>>,
}

impl State {
    pub(crate) fn new(seed: u64, timing: Timing, rules: Vec<Rule>) -> Self {
        let mut state = Self {
            now_ns: 0,
            random: SplitMix64::new(seed),
            floor_age_ns: timing.flight_ns_max(),
            timing,
            rules: Vec::new(),
            ruled: 0,
            strikes: Strikes::default(),
            trace: Trace::default(),
            agenda: BinaryHeap::new(),
            events: Vec::new(),
            free_places: Vec::new(),
            scheduled_ever: 0,
            hosts: Vec::new(),
            clients: Vec::new(),
            pairs: Vec::new(),
            processes: Vec::new(),
            processes_left: 0,
            actors: Vec::new(),
            clocks: vec![(usize::MAX, NodeClock::default())],
            cuts: Vec::new(),
            flips: Vec::new(),
            first_stamp: 0,
            locks: None,
            has_urls: false,
            spared: None,
            running: None,
            steps: Vec::new(),
            spare_bytes: Vec::new(),
            pricing: None,
            stop: None,
        };
        state.set_rules(rules);
        state
    }

    /// True once somebody has stopped the simulation.
    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        // Relaxed: the flag carries nothing with it.
        self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    pub(crate) fn set_rules(&mut self, rules: Vec<Rule>) {
        // What is under way was sent under the rules before: their times still count.
        let lasting = rules.iter().filter(|rule| rule.fault.delays_verbs());
        self.floor_age_ns += lasting.map(|rule| rule.duration_ns_max).sum::<u64>();
        if rules.iter().any(|rule| rule.fault == Fault::GrayServer) {
            self.floor_age_ns += GRAY_TIMES * self.timing.flight_ns_max();
        }
        self.ruled = rules.iter().fold(0, |ruled, rule| ruled | rule.fault.bit());
        self.rules = rules;
    }

    /// Room for a request or a reply, empty.
    pub(crate) fn room_for_bytes(&mut self) -> Vec<u8> {
        self.spare_bytes.pop().unwrap_or_default()
    }

    /// Keeps the room of a request or a reply that has been read.
    pub(crate) fn keep_room(&mut self, mut bytes: Vec<u8>) {
        if bytes.capacity() > 0 && self.spare_bytes.len() < SPARE_BYTES_MAX {
            bytes.clear();
            self.spare_bytes.push(bytes);
        }
    }

    pub(crate) fn schedule(&mut self, at_ns: u64, event: Event) {
        self.scheduled_ever += 1;
        let place = self.free_places.pop().unwrap_or(self.events.len());
        if place == self.events.len() {
            self.events.push(Some(event));
        } else {
            self.events[place] = Some(event);
        }
        let number = self.scheduled_ever;
        assert!(place >> PLACE_BITS == 0 && number >> NUMBER_BITS == 0, "event {number} at place {place}");
        let behind_time = number << PLACE_BITS | place as u64;
        self.agenda.push(Reverse(u128::from(at_ns.max(self.now_ns)) << 64 | u128::from(behind_time)));
    }

    /// When the next event is due.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.agenda.peek().map(|next| (next.0 >> 64) as u64)
    }

    /// Takes the next event, if it is due by `until_ns`, and lets it be that time.
    pub(crate) fn take_event(&mut self, until_ns: u64) -> Option<Event> {
        let at_ns = self.next_ns().filter(|at_ns| *at_ns <= until_ns)?;
        let next = self.agenda.pop()?.0 as usize;
        let place = next & ((1 << PLACE_BITS) - 1);
        self.now_ns = self.now_ns.max(at_ns);
        self.free_places.push(place);
        self.events[place].take()
    }

    pub(crate) fn draw(&mut self, from: &Range<u64>) -> u64 {
        from.start + self.random.below((from.end - from.start).max(1))
    }

    pub(crate) fn way_ns(&mut self) -> u64 {
        let way = self.timing.way_ns.clone();
        self.draw(&way)
    }

    /// Nobody asks for what memory held before that time.
    pub(crate) fn floor_ns(&self) -> u64 {
        self.now_ns.saturating_sub(self.floor_age_ns)
    }

    /// True if a rule strikes now; how long the fault lasts.
    #[inline]
    pub(crate) fn strike(&mut self, fault: Fault) -> Option<u64> {
        if self.ruled & fault.bit() == 0 { None } else { self.draw_strike(fault) }
    }

    /// True if some rule names one of the faults with these bits.
    #[inline]
    pub(crate) fn may_strike(&self, faults: u64) -> bool {
        self.ruled & faults != 0
    }

    fn draw_strike(&mut self, fault: Fault) -> Option<u64> {
        let now_ns = self.now_ns;
        let struck = self.rules.iter().find_map(|rule| {
            let applies = rule.fault == fault && rule.during_ns.contains(&now_ns);
            (applies && self.random.below(rule.one_in) == 0).then_some(rule.duration_ns_max)
        })?;
        self.strikes.count(fault);
        let lasts_ns = self.random.below(struck.max(1));
        let running = self.running;
        self.trace.note(now_ns, [1, fault as u64, lasts_ns], || {
            Words::new(Who::Running(running), format!("FAULT {fault:?}, {lasts_ns} ns"))
        });
        Some(lasts_ns)
    }

    /// Counts a fault that followed by itself.
    pub(crate) fn note_strike(&mut self, fault: Fault) {
        self.strikes.count(fault);
    }

    /// How long a rule delays something; mostly not at all.
    pub(crate) fn delay_ns(&mut self, fault: Fault) -> u64 {
        self.strike(fault).unwrap_or(0)
    }

    /// Lets an actor step at `at_ns`, unless it will earlier.
    pub(crate) fn rouse(&mut self, actor: usize, at_ns: u64) {
        let at_ns = at_ns.max(self.now_ns);
        if at_ns < self.actors[actor].due_ns {
            self.actors[actor].due_ns = at_ns;
            self.schedule(at_ns, Event::Act { actor });
        }
    }

    /// A process waits until `deadline_ns` at most.
    pub(crate) fn set_deadline(&mut self, process: usize, deadline_ns: u64) {
        let own = &mut self.processes[process];
        own.deadline_ns = deadline_ns;
        if deadline_ns < own.looks_ns {
            own.looks_ns = deadline_ns;
            self.schedule(deadline_ns, Event::Look { process });
        }
    }

    /// A process looks at its deadline; returns the wait that is over.
    pub(crate) fn look(&mut self, process: usize) -> Option<u64> {
        let now_ns = self.now_ns;
        let own = &mut self.processes[process];
        if own.looks_ns != now_ns {
            return None;
        }
        own.looks_ns = u64::MAX;
        let (deadline_ns, turn) = (own.deadline_ns, own.turn);
        if deadline_ns <= now_ns {
            return Some(turn);
        }
        if deadline_ns != u64::MAX {
            self.set_deadline(process, deadline_ns);
        }
        None
    }

    /// Lets the process that waits for `pair` go on.
    pub(crate) fn wake_pair(&mut self, pair: usize) {
        let Some((process, turn)) = self.pairs[pair].waiter else { return };
        if let Some(at_ns) = self.wakes_at_ns(pair, process) {
            self.pairs[pair].waiter = None;
            self.schedule(at_ns, Event::Resume { process, turn });
        }
    }

    /// The error of a connection that is no more.
    pub(crate) fn lost(&self, client: usize) -> Option<FabricError> {
        let own = &self.clients[client];
        let reason = own.lost.clone()?;
        if own.is_fenced {
            return Some(FabricError::Dismissed { peer: self.hosts[own.host].address.clone(), reason });
        }
        Some(self.disconnected(client, reason))
    }

    pub(crate) fn disconnected(&self, client: usize, reason: String) -> FabricError {
        let peer = self.hosts[self.clients[client].host].address.clone();
        FabricError::Disconnected { peer, reason }
    }
}

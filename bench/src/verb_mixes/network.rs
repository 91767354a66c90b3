//! Machines with one card each, over which threads post [`super::program`]s.
//!
//! Invariant: a machine has one card, one link and one set of cores, whatever it does. So a compute node's
//! clients and its proxy wait for each other, at the card as for a core. Each part takes its work in the
//! order of time.
//!
//! Protocol. A thread has a queue of jobs, and does one of them at a time, once a core is free. A *stage*
//! job builds the verbs and rings once for each machine. A verb passes its card, its link and the way. Then
//! it passes the other link and card, and its answer comes back. A call is a job of the called thread. Its
//! answer leaves when the stages of the call have ended. A *completion* is a job again. A call of a thread
//! of the same machine passes no card.
//!
//! Parts and prices are those of the priced fabric ([`farsight_fabric_sim`]), where a machine is either a
//! client or a server.

mod cards;
mod events;
mod usage;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use farsight_fabric_sim::{Prices, Station, Utilization};

use super::program::{Call, Machine, Stage, ThreadPlace, Verb};
use crate::histogram::LatencyHistogram;
use events::{Event, Events};

/// Between the first operations of two coroutines, which would otherwise all ring at one moment.
const STAGGER_PS: u64 = 37_000;

/// What draws the next operation of a coroutine.
pub(super) trait Operations {
    fn next(&mut self, from: ThreadPlace) -> Vec<Stage>;
}

/// What a machine is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Compute,
    Memory,
    Metadata,
}

/// A machine's threads and cores. The threads of clients have the lower numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct MachineSize {
    pub(super) role: Role,
    pub(super) client_threads: usize,
    pub(super) called_threads: usize,
    pub(super) cores: usize,
}

/// Verbs that were posted.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Counts {
    pub(super) reads: u64,
    pub(super) read_bytes: u64,
    pub(super) writes: u64,
    pub(super) swaps: u64,
    pub(super) calls: u64,
}

/// What happened within the window.
pub(super) struct WindowOutcome {
    pub(super) latencies: LatencyHistogram,
    pub(super) counts: Counts,
    pub(super) usage: Vec<Utilization>,
}

struct Node {
    size: MachineSize,
    engine: Station,
    link_out: Station,
    link_in: Station,
    atomic_locks: Station,
    cores: Station,
    threads: Vec<ThreadState>,
}

struct ThreadState {
    jobs: VecDeque<Job>,
    /// The work of the job that it does, once it is busy with one.
    busy_with_ps: Option<u64>,
    /// The work of the jobs that it has done, without the waits for a core.
    done_ps: u64,
}

impl ThreadState {
    fn new() -> Self {
        Self { jobs: VecDeque::new(), busy_with_ps: None, done_ps: 0 }
    }
}

enum Job {
    /// The next stage of a task.
    Stage(usize),
    /// A verb of a task has been answered.
    Completion(usize),
    /// A call arrives.
    Incoming(usize),
}

/// A coroutine's operation, or a call that is served.
struct Task {
    thread: ThreadPlace,
    stages: VecDeque<Stage>,
    waits_for: usize,
    purpose: Purpose,
}

#[derive(Clone, Copy)]
enum Purpose {
    Operation { began_ps: u64 },
    Call { flight: usize },
}

/// A verb under way.
struct Flight {
    task: usize,
    from: ThreadPlace,
    to: Machine,
    verb: Verb,
}

/// A queue pair: one of a thread to a machine.
#[derive(Default)]
struct Queue {
    limited: usize,
    waiting: VecDeque<usize>,
    is_behind_atomic: bool,
    behind_atomic: VecDeque<usize>,
}

/// Things by number, whose numbers are used again.
struct Slab<T> {
    things: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    fn new() -> Self {
        Self { things: Vec::new(), free: Vec::new() }
    }

    fn insert(&mut self, thing: T) -> usize {
        let Some(number) = self.free.pop() else {
            self.things.push(Some(thing));
            return self.things.len() - 1;
        };
        self.things[number] = Some(thing);
        number
    }

    fn get(&mut self, number: usize) -> &mut T {
        self.things[number].as_mut().expect("under way")
    }

    fn take(&mut self, number: usize) -> T {
        self.free.push(number);
        self.things[number].take().expect("under way")
    }
}

pub(super) struct Network {
    prices: Prices,
    core_call_ps: u64,
    nodes: Vec<Node>,
    tasks: Slab<Task>,
    flights: Slab<Flight>,
    queues: BTreeMap<(ThreadPlace, Machine), Queue>,
    events: Events,
    now_ps: u64,
    counts: Counts,
    latencies: LatencyHistogram,
    window_begin_ps: u64,
}

impl Network {
    /// An idle testbed. `core_call_ps` is a called thread's work for a call in the fabric's library.
    pub(super) fn new(prices: Prices, core_call_ps: u64, sizes: &[MachineSize]) -> Self {
        let node = |size: &MachineSize| Node {
            size: *size,
            engine: Station::new(1),
            link_out: Station::new(1),
            link_in: Station::new(1),
            atomic_locks: Station::new(prices.nic.atomic_locks),
            cores: Station::new(size.cores),
            threads: (0..size.client_threads + size.called_threads).map(|_| ThreadState::new()).collect(),
        };
        Self {
            prices,
            core_call_ps,
            nodes: sizes.iter().map(node).collect(),
            tasks: Slab::new(),
            flights: Slab::new(),
            queues: BTreeMap::new(),
            events: Events::default(),
            now_ps: 0,
            counts: Counts::default(),
            latencies: LatencyHistogram::new(),
            window_begin_ps: 0,
        }
    }

    /// Lets a coroutine for each of `coroutines` run operations until `end_ps`; what ends from `warm_ps` on
    /// counts.
    pub(super) fn run(
        mut self,
        operations: &mut impl Operations,
        coroutines: &[ThreadPlace],
        [warm_ps, end_ps]: [u64; 2],
    ) -> WindowOutcome {
        self.window_begin_ps = warm_ps;
        for (number, thread) in coroutines.iter().enumerate() {
            self.events.push(number as u64 * STAGGER_PS, Event::Begin(*thread));
        }
        self.pass_until(operations, warm_ps);
        self.counts = Counts::default();
        let before = self.work();
        self.pass_until(operations, end_ps);
        let usage = usage::between(&before, &self.work(), end_ps - warm_ps);
        WindowOutcome { latencies: self.latencies, counts: self.counts, usage }
    }

    fn pass_until(&mut self, operations: &mut impl Operations, end_ps: u64) {
        while let Some((at_ps, event)) = self.events.pop_before(end_ps) {
            self.now_ps = at_ps;
            match event {
                Event::Begin(thread) => self.begin(operations, thread),
                Event::Worked { thread } => self.worked(operations, thread),
                Event::Arrive(flight) => self.arrive(flight),
                Event::Unlock(flight) => self.unlock(flight),
                Event::Taken(flight) => self.incoming(flight),
                Event::Back(flight) => self.back(flight),
                Event::Answered(flight) => self.answered(flight),
            }
        }
        self.now_ps = end_ps;
    }

    fn begin(&mut self, operations: &mut impl Operations, thread: ThreadPlace) {
        let purpose = Purpose::Operation { began_ps: self.now_ps };
        let stages = operations.next(thread).into();
        let task = self.tasks.insert(Task { thread, stages, waits_for: 0, purpose });
        self.give(thread, Job::Stage(task));
    }

    /// Gives a thread a job, which it does once it has done those before.
    fn give(&mut self, thread: ThreadPlace, job: Job) {
        self.nodes[thread.machine].threads[thread.number].jobs.push_back(job);
        self.start(thread);
    }

    /// Starts a thread's next job, if it is idle and there is one.
    fn start(&mut self, thread: ThreadPlace) {
        let worker = &self.nodes[thread.machine].threads[thread.number];
        let Some(job) = worker.jobs.front().filter(|_| worker.busy_with_ps.is_none()) else { return };
        let own = self.prices.thread;
        let work_ps = match *job {
            Job::Completion(_) => own.completion_ps,
            Job::Incoming(flight) => match &self.flights.get(flight).verb {
                Verb::Call(call) => self.core_call_ps + call.work_ps,
                _ => unreachable!("only calls come to a thread"),
            },
            Job::Stage(task) => self.tasks.get(task).stages.front().map_or(0, |stage| {
                stage.work_ps
                    + own.post_ps * stage.verbs.len() as u64
                    + own.doorbell_ps * stage.rings() as u64
            }),
        };
        let node = &mut self.nodes[thread.machine];
        node.threads[thread.number].busy_with_ps = Some(work_ps);
        let done_ps = node.cores.serve(self.now_ps, work_ps);
        self.events.push(done_ps, Event::Worked { thread });
    }

    /// A thread has done the first of its jobs.
    fn worked(&mut self, operations: &mut impl Operations, thread: ThreadPlace) {
        let worker = &mut self.nodes[thread.machine].threads[thread.number];
        worker.done_ps += worker.busy_with_ps.take().expect("it was busy");
        match worker.jobs.pop_front().expect("it was busy with one") {
            Job::Stage(task) => self.post_stage(operations, task),
            Job::Completion(task) => {
                let own = self.tasks.get(task);
                own.waits_for -= 1;
                if own.waits_for == 0 {
                    self.go_on(operations, task);
                }
            }
            Job::Incoming(flight) => {
                let Flight { to, verb: Verb::Call(call), .. } = self.flights.get(flight) else {
                    unreachable!("only calls come to a thread")
                };
                let thread = ThreadPlace { machine: *to, number: call.thread };
                let stages = std::mem::take(&mut call.stages).into();
                let purpose = Purpose::Call { flight };
                let task = self.tasks.insert(Task { thread, stages, waits_for: 0, purpose });
                self.go_on(operations, task);
            }
        }
        self.start(thread);
    }

    /// A task has its next stage to do, or has ended.
    fn go_on(&mut self, operations: &mut impl Operations, task: usize) {
        let own = self.tasks.get(task);
        let (thread, purpose) = (own.thread, own.purpose);
        if !own.stages.is_empty() {
            return self.give(thread, Job::Stage(task));
        }
        self.tasks.take(task);
        match purpose {
            Purpose::Call { flight } => self.answer(flight),
            Purpose::Operation { began_ps } => {
                if self.now_ps >= self.window_begin_ps {
                    let took = Duration::from_nanos((self.now_ps - began_ps) / 1_000);
                    self.latencies.record(took, 1);
                }
                self.begin(operations, thread);
            }
        }
    }

    /// The verbs of a task's next stage leave.
    fn post_stage(&mut self, operations: &mut impl Operations, task: usize) {
        let own = self.tasks.get(task);
        let (from, stage) = (own.thread, own.stages.pop_front().unwrap_or_default());
        own.waits_for = stage.verbs.len();
        if stage.verbs.is_empty() {
            return self.go_on(operations, task);
        }
        for posted in stage.verbs {
            self.count(&posted.verb);
            let flight = self.flights.insert(Flight { task, from, to: posted.to, verb: posted.verb });
            if posted.to == from.machine {
                self.incoming(flight);
            } else {
                self.leave(flight);
            }
        }
    }

    fn count(&mut self, verb: &Verb) {
        match verb {
            Verb::Read { bytes } => {
                self.counts.reads += 1;
                self.counts.read_bytes += bytes;
            }
            Verb::Write { .. } => self.counts.writes += 1,
            Verb::Swap { .. } => self.counts.swaps += 1,
            Verb::Call(_) => self.counts.calls += 1,
        }
    }

    /// A call is the called thread's next job.
    fn incoming(&mut self, flight: usize) {
        let Flight { to, verb: Verb::Call(Call { thread, .. }), .. } = self.flights.get(flight) else {
            panic!("a machine posts a one-sided verb to itself")
        };
        let thread = ThreadPlace { machine: *to, number: *thread };
        self.give(thread, Job::Incoming(flight));
    }
}

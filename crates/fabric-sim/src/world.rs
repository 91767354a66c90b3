//! The loop: one event after the other, and how code that waits is woken.
//!
//! Invariant: in virtual time exactly one piece of code runs at any moment, on the thread that made the
//! simulation. It is the loop itself, a process, a server's step, or the test that drives it all.
//!
//! Protocol of waiting. A *process* (a coroutine) that waits gives the thread back to the loop, which resumes
//! it at the event it waits for. Code that waits outside a process runs the loop itself until then. Beside
//! real threads there is no virtual time: the clock is the machine's. Every thread that waits runs what is
//! due and sleeps until the next event, and anything that changes wakes all of them.

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farsight_base::clock::{Clock, MonotonicNs, SystemClock};
use generator::{Generator, Gn};

use crate::state::{ActorState, Event, ProcessState, State};
use crate::trace::{Who, Words};

/// Words of a process's stack: 256 KiB, of which only what is touched becomes real.
const STACK_WORDS: usize = 32 << 10;
/// Stacks kept for later processes.
const SPARE_MAX: usize = 64;
/// Beside real threads: below this time an event is waited for awake.
const AWAKE: Duration = Duration::from_micros(60);
/// Beside real threads: no sleep is longer, in case a wake was missed.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// A server's step: takes the time and says when to step again without being roused.
pub(crate) type ActorStep = Box<dyn FnMut(MonotonicNs) -> Option<MonotonicNs> + Send>;
/// A process's code.
pub(crate) type Body = Generator<'static, (), ()>;

thread_local! {
    static MARK: u8 = const { 0 };
    /// Coroutines that have ended: a stack that is new to the machine costs more than a short process.
    static SPARE: RefCell<Vec<Body>> = const { RefCell::new(Vec::new()) };
}

/// A coroutine for `code`, on the stack of an earlier one if there is one.
fn body_of(code: impl FnOnce() + Send + 'static) -> Body {
    match SPARE.with_borrow_mut(Vec::pop) {
        Some(mut body) => {
            body.init_code(code);
            body
        }
        None => Gn::new_opt(STACK_WORDS, code),
    }
}

/// A thread, by where its own variables lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Here(usize);

impl Here {
    /// The thread that asks.
    pub(crate) fn now() -> Self {
        Self(MARK.with(|mark| std::ptr::from_ref(mark).addr()))
    }
}

/// By what time passes.
#[derive(Debug)]
pub(crate) enum Pace {
    /// By events; on one thread.
    Virtual(Here),
    /// By the machine's clock; on any.
    Real(SystemClock),
}

/// A simulation, shared by all that takes part in it.
pub(crate) struct World {
    pace: Pace,
    state: Mutex<State>,
    changed: Condvar,
}

impl World {
    pub(crate) fn new(pace: Pace, state: State) -> Arc<Self> {
        Arc::new(Self { pace, state: Mutex::new(state), changed: Condvar::new() })
    }

    pub(crate) fn is_virtual(&self) -> bool {
        matches!(self.pace, Pace::Virtual(_))
    }

    /// The state, at the time that it is now.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &self.pace {
            Pace::Virtual(owner) => {
                assert!(*owner == Here::now(), "virtual time passes on one thread");
            }
            Pace::Real(clock) => state.now_ns = clock.now().0.max(state.now_ns),
        }
        state
    }

    /// Tells everybody who waits that something has changed. Nothing to do in virtual time.
    pub(crate) fn tell(&self) {
        if !self.is_virtual() {
            self.changed.notify_all();
        }
    }

    /// Adds a server's step, roused by its port or by itself. Returns its number.
    pub(crate) fn add_actor(&self, host: usize, step: ActorStep) -> usize {
        let mut state = self.state();
        state.actors.push(ActorState { host, step: Some(step), due_ns: u64::MAX });
        state.actors.len() - 1
    }

    /// Drops the steps of a dead server, and all that they own.
    pub(crate) fn drop_steps(&self, host: usize) {
        let mut state = self.state();
        let dead = state.actors.iter_mut().filter(|actor| actor.host == host);
        let steps: Vec<Option<ActorStep>> = dead.map(|actor| actor.step.take()).collect();
        // Outside the lock: what a step owns may end by talking to the simulation.
        drop(state);
        drop(steps);
    }

    /// Adds a process, which begins when the loop comes to it.
    pub(crate) fn add_process(&self, name: &str, group: usize, body: impl FnOnce() + Send + 'static) {
        assert!(self.is_virtual(), "processes live in virtual time");
        let mut state = self.state();
        let process = state.processes.len();
        let clock = state.clock_of(group);
        state.processes.push(ProcessState {
            name: name.to_owned(),
            body: Some(body_of(body)),
            group,
            clock,
            turn: 0,
            paused_until_ns: 0,
            deadline_ns: u64::MAX,
            looks_ns: u64::MAX,
            is_killed: false,
            is_done: false,
            flipped: Vec::new(),
        });
        let now_ns = state.now_ns;
        state.processes_left += 1;
        state.schedule(now_ns, Event::Resume { process, turn: 0 });
    }

    /// Lets events happen, one after the other, until `is_over`; false if that does not come by `until_ns`,
    /// or the simulation is stopped before.
    pub(crate) fn run_until<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        until_ns: u64,
        is_over: impl Fn(&State) -> bool,
    ) -> (MutexGuard<'a, State>, bool) {
        while !is_over(&state) {
            let event = if state.is_stopped() { None } else { state.take_event(until_ns) };
            let Some(event) = event else { return (state, false) };
            state = self.happen(state, event);
            self.tell();
        }
        (state, true)
    }

    fn happen<'a>(&'a self, mut state: MutexGuard<'a, State>, event: Event) -> MutexGuard<'a, State> {
        match event {
            Event::Complete { pair, slot, serial } => state.complete(pair, slot, serial),
            Event::Store { client, region, first, words } => state.store(client, region, first, &words),
            Event::Atomic { pair, slot, serial, atomic } => {
                if state.execute_atomic(pair, slot, serial, atomic) {
                    let now_ns = state.now_ns;
                    state.schedule_completion(pair, slot, serial, now_ns);
                }
            }
            Event::Leave { pair, verbs } => state.leave(pair, verbs),
            Event::Arrive { pair, slot, serial, verb } => state.arrive(pair, slot, serial, verb),
            Event::Unlock { pair, slot, serial } => state.unlock(pair, slot, serial),
            Event::Return { pair, slot, serial, is_limited } => {
                state.return_answer(pair, slot, serial, is_limited);
            }
            Event::Respond { pair, slot, serial, bytes } => state.respond(pair, slot, serial, bytes),
            Event::Request { pair, slot, serial, bytes } => state.request(pair, slot, serial, bytes),
            Event::Reply { pair, slot, serial, bytes, left_ns } => {
                state.replied(pair, slot, serial, bytes, left_ns);
            }
            Event::Lose { client, why } => state.lose(client, why),
            Event::Die { host } => state.kill_host(host),
            Event::Forget { host, region } => state.forget_region(host, region),
            Event::Resume { process, turn } => return self.resume(state, process, turn),
            Event::Look { process } => {
                if let Some(turn) = state.look(process) {
                    return self.resume(state, process, turn);
                }
            }
            Event::Act { actor } => return self.act(state, actor),
        }
        state
    }

    fn resume<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        process: usize,
        turn: u64,
    ) -> MutexGuard<'a, State> {
        let now_ns = state.now_ns;
        let own = &mut state.processes[process];
        if own.turn != turn || own.is_done {
            return state;
        }
        if own.paused_until_ns > now_ns {
            let paused_until_ns = own.paused_until_ns;
            state.schedule(paused_until_ns, Event::Resume { process, turn });
            return state;
        }
        own.turn += 1;
        own.deadline_ns = u64::MAX;
        let mut body = own.body.take().expect("a process that is not done has a body");
        assert!(state.running.replace(process).is_none(), "one process runs at a time");
        drop(state);
        body.resume();
        let mut state = self.state();
        state.running = None;
        if body.is_done() {
            SPARE.with_borrow_mut(|spare| spare.extend((spare.len() < SPARE_MAX).then_some(body)));
            let now_ns = state.now_ns;
            state.processes[process].is_done = true;
            state.processes_left -= 1;
            state.trace.note(now_ns, [11, process as u64], || Words::new(Who::Process(process), "ends"));
        } else {
            state.processes[process].body = Some(body);
        }
        state
    }

    fn act<'a>(&'a self, mut state: MutexGuard<'a, State>, actor: usize) -> MutexGuard<'a, State> {
        let now_ns = state.now_ns;
        let ActorState { host, due_ns, .. } = state.actors[actor];
        if due_ns != now_ns || !state.hosts[host].is_alive {
            return state;
        }
        state.actors[actor].due_ns = u64::MAX;
        if state.tempt_host(host) {
            drop(state);
            self.drop_steps(host);
            return self.state();
        }
        let busy_until_ns = state.hosts[host].busy_until_ns;
        if busy_until_ns > now_ns {
            state.rouse(actor, busy_until_ns);
            return state;
        }
        let reads_ns = state.hosts[host].clock.reads_ns(now_ns);
        let Some(mut step) = state.actors[actor].step.take() else { return state };
        drop(state);
        let again_at = step(MonotonicNs(reads_ns));
        let mut state = self.state();
        state.actors[actor].step = Some(step);
        if let Some(again_at) = again_at {
            let again_ns = state.hosts[host].clock.when_ns(again_at.0);
            state.rouse(actor, again_ns);
        }
        state
    }

    /// Gives time away until `is_ready` or until `timeout` has passed. `announce` says whom to resume: it is
    /// asked by processes only.
    pub(crate) fn wait(
        &self,
        timeout: Duration,
        is_ready: impl Fn(&State) -> bool,
        announce: impl FnOnce(&mut State, (usize, u64)),
    ) {
        drop(self.wait_with(self.state(), timeout, is_ready, announce));
    }

    /// [`World::wait`] with the state in hand before and behind it.
    pub(crate) fn wait_with<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        timeout: Duration,
        is_ready: impl Fn(&State) -> bool,
        announce: impl FnOnce(&mut State, (usize, u64)),
    ) -> MutexGuard<'a, State> {
        let clock = state.running.map_or(0, |process| state.processes[process].clock);
        let timeout_ns =
            state.clocks[clock].1.lasts_ns(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        let deadline_ns = state.now_ns.saturating_add(timeout_ns);
        if let Some(process) = state.running {
            if is_ready(&state) {
                return state;
            }
            let turn = state.processes[process].turn;
            announce(&mut state, (process, turn));
            state.set_deadline(process, deadline_ns);
            drop(state);
            #[expect(deprecated, reason = "a queue pair deep in a call has no handle of its coroutine")]
            generator::yield_with(());
            return self.state();
        }
        match self.pace {
            Pace::Virtual(_) => {
                let (mut state, is_over) = self.run_until(state, deadline_ns, is_ready);
                if !is_over {
                    state.now_ns = deadline_ns;
                }
                state
            }
            Pace::Real(_) => {
                drop(state);
                self.wait_awake(deadline_ns, is_ready);
                self.state()
            }
        }
    }

    /// Waits on the machine's clock.
    fn wait_awake(&self, deadline_ns: u64, is_ready: impl Fn(&State) -> bool) {
        loop {
            let state = self.state();
            if is_ready(&state) || state.now_ns >= deadline_ns {
                return;
            }
            let now_ns = state.now_ns;
            let next_ns = state.next_ns().unwrap_or(u64::MAX).min(deadline_ns);
            let sleep = Duration::from_nanos(next_ns.saturating_sub(now_ns));
            if sleep > AWAKE {
                // A thread that changes something notifies behind the lock that is held here.
                let woken = self.changed.wait_timeout(state, sleep.min(SLEEP_MAX));
                drop(woken.unwrap_or_else(PoisonError::into_inner));
            } else {
                drop(state);
                std::thread::yield_now();
            }
            drop(self.run_due());
        }
    }

    /// Lets everything happen that is due, unless a process asks: the loop below it does that.
    pub(crate) fn run_due(&self) -> MutexGuard<'_, State> {
        let state = self.state();
        let now_ns = state.now_ns;
        if state.running.is_some() {
            return state;
        }
        self.run_until(state, now_ns, |_| false).0
    }
}

//! The simulation as its user holds it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::clock::{Clock, MonotonicNs, SystemClock};
use farsight_base::sync::AtomicBool;
use farsight_base::{Epoch, Line, Stamp};
use farsight_fabric::FabricError;

use crate::connection::{ProgramClock, SimConnection};
use crate::fault::{FlippedRead, Rule, Strikes};
use crate::host::SimHost;
use crate::kind::Kind;
use crate::leaks::Held;
use crate::locks::LockWatch;
use crate::priced::Pricing;
use crate::prices::{Prices, Usage};
use crate::region::SimRegion;
use crate::state::State;
use crate::timing::Timing;
use crate::trace::Told;
use crate::watch;
use crate::world::{Here, Pace, World};

/// A simulation. Clones are the same one.
#[derive(Clone)]
pub struct Simulation {
    world: Arc<World>,
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Simulation")
    }
}

impl Simulation {
    /// A simulation in virtual time, of this thread. The thread's earlier simulations must be over.
    #[must_use]
    pub fn new(seed: u64, timing: Timing, rules: Vec<Rule>) -> Self {
        watch::begin();
        let pace = Pace::Virtual(Here::now());
        Self { world: World::new(pace, State::new(seed, timing, rules)) }
    }

    /// A simulation in virtual time in which verbs have prices, and calls those that `call_price` says, in
    /// picoseconds of a core, from a request and its reply. Nothing goes wrong in it, and chance has no part.
    #[must_use]
    pub fn priced(prices: Prices, call_price: impl Fn(&[u8], &[u8]) -> u64 + Send + 'static) -> Self {
        watch::end();
        let mut state = State::new(0, Timing::default(), Vec::new());
        state.pricing = Some(Pricing::new(prices, Box::new(call_price)));
        Self { world: World::new(Pace::Virtual(Here::now()), state) }
    }

    /// A simulation whose time is the machine's, for code that brings its own threads.
    #[must_use]
    pub fn beside_threads(seed: u64, timing: Timing, rules: Vec<Rule>) -> Self {
        Self { world: World::new(Pace::Real(SystemClock::new()), State::new(seed, timing, rules)) }
    }

    /// A server at `address`, with bytes of this format version.
    ///
    /// # Panics
    /// If another server lives there.
    #[must_use]
    pub fn listen<K: Kind>(&self, address: &str, format_version: u32) -> SimHost<K> {
        SimHost::listen(&self.world, address, format_version)
    }

    /// A client of the server at `address`.
    ///
    /// # Errors
    /// [`FabricError::Disconnected`] if nobody listens there, [`FabricError::Refused`] for another format.
    pub fn connect<K: Kind>(
        &self,
        address: &str,
        format_version: u32,
    ) -> Result<SimConnection<K>, FabricError> {
        SimConnection::connect(&self.world, address, format_version)
    }

    /// Adds a process: code that is run whenever what it waits for has come. It begins when time passes.
    /// Processes of one `group` are threads of one program: they are stopped and killed together.
    ///
    /// # Panics
    /// If the simulation is not in virtual time.
    pub fn process(&self, name: &str, group: usize, body: impl FnOnce() + Send + 'static) {
        self.world.add_process(name, group, body);
    }

    /// Lets time pass until every process has ended; false if some still run at `until`, or when the
    /// simulation is stopped.
    #[must_use]
    pub fn run_processes(&self, until: MonotonicNs) -> bool {
        let all_ended = |state: &State| state.processes_left == 0;
        self.world.run_until(self.world.state(), until.0, all_ended).1
    }

    /// Lets `duration` pass: for the caller, and for everything else meanwhile.
    pub fn sleep(&self, duration: Duration) {
        self.world.wait(duration, |_| false, |_, _| ());
    }

    /// Lets time pass until no server is stopped any more. Stops of one server add up: each of its workers
    /// may meet one while it stands in another's.
    pub fn await_stopped_hosts(&self) {
        let state = self.world.state();
        let busy_until_ns =
            state.hosts.iter().filter(|host| host.is_alive).map(|host| host.busy_until_ns).max();
        let left_ns = busy_until_ns.unwrap_or(0).saturating_sub(state.now_ns);
        drop(state);
        self.sleep(Duration::from_nanos(left_ns));
    }

    /// Says that the thread of the process that asks has work to do for so long: what it sends from now on
    /// leaves behind that. Nothing where verbs have no prices, or outside of a process.
    pub fn charge(&self, work_ps: u64) {
        let _ = self.world.state().charge_ns(work_ps);
    }

    /// Lets the time pass that the thread of the process that asks needs for its work so far.
    pub fn catch_up(&self) {
        let mut state = self.world.state();
        let left_ns = state.charge_ns(0) - state.now_ns;
        drop(state);
        if left_ns > 0 {
            self.sleep(Duration::from_nanos(left_ns));
        }
    }

    /// How much each part of the machines has done; `None` where verbs have no prices.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.world.state().usage()
    }

    /// The process that asks was killed: its connections are gone, and it should end.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        let state = self.world.state();
        state.running.is_some_and(|process| state.processes[process].is_killed)
    }

    /// Kills a group of processes: nothing that they do from now on has any effect.
    pub fn kill(&self, group: usize) {
        self.world.state().kill_group(group);
    }

    /// Stops a group of processes for a while. What they sent goes on.
    pub fn pause(&self, group: usize, duration: Duration) {
        let mut state = self.world.state();
        let until_ns = MonotonicNs(state.now_ns).plus(duration).0;
        state.pause_group(group, until_ns);
    }

    /// Sets the rules from now on; without any, no fault strikes. The network is whole again.
    pub fn set_rules(&self, rules: Vec<Rule>) {
        let mut state = self.world.state();
        state.cuts.clear();
        state.set_rules(rules);
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> MonotonicNs {
        MonotonicNs(self.world.state().now_ns)
    }

    /// Sets which bits of a READ's lines [`crate::Fault::FlippedBit`] may flip, and
    /// [`crate::Fault::DecayedBit`] in memory: by the line's number in its region, again and again from the
    /// first.
    pub fn set_flips(&self, masks: Vec<Line>) {
        self.world.state().flips = masks;
    }

    /// The READs of the calling process that brought a flipped bit since its last call; none outside of one.
    #[must_use]
    pub fn take_flipped(&self) -> Vec<FlippedRead> {
        let mut state = self.world.state();
        let running = state.running;
        running.map(|process| std::mem::take(&mut state.processes[process].flipped)).unwrap_or_default()
    }

    /// Gives every line of the regions that are made from now on, and that clients may only READ, this stamp:
    /// memory that held something before, or counters near their end.
    pub fn set_first_stamp(&self, stamp: Stamp) {
        self.world.state().first_stamp = stamp.0;
    }

    /// Lets another thread end the simulation: once `stop` is true no event happens any more. What a program
    /// waits for does not come, however much time passes for it, and what it finds means nothing.
    pub fn stop_by(&self, stop: &Arc<AtomicBool>) {
        self.world.state().stop = Some(Arc::clone(stop));
    }

    /// Lets clients reach hosts by the addresses that others tell them.
    pub fn reach_by_address(&self) {
        self.world.state().has_urls = true;
    }

    /// The clock of a group of processes, by which it also waits.
    #[must_use]
    pub fn clock_of(&self, group: usize) -> Arc<dyn Clock> {
        Arc::new(ProgramClock::new(&self.world, Some(group)))
    }

    /// Spares a group of processes: no rule stops or kills it. The others hold.
    pub fn spare(&self, group: usize) {
        self.world.state().spared = Some(group);
    }

    /// Watches words that compare-and-swaps take as locks and WRITEs release: those for which `is_lock` says
    /// so, of a region and the number of its word.
    pub fn watch_locks(&self, is_lock: impl Fn(&SimRegion, usize) -> bool + Send + 'static) {
        self.world.state().locks = Some(LockWatch::new(Box::new(is_lock)));
    }

    /// The first call that a process sent while it held a [lock](Self::watch_locks), in words.
    #[must_use]
    pub fn called_under_lock(&self) -> Option<String> {
        self.world.state().called_under_lock()
    }

    /// When the server died in this epoch, or its processor did; `None` while it lives.
    #[must_use]
    pub fn died_at(&self, epoch: Epoch) -> Option<MonotonicNs> {
        let state = self.world.state();
        state.hosts.iter().find(|host| host.epoch == epoch)?.died_ns.map(MonotonicNs)
    }

    /// What is held now by programs that live: nothing, once all have gone.
    #[must_use]
    pub fn held(&self) -> Held {
        self.world.state().held()
    }

    /// How often each fault struck so far.
    #[must_use]
    pub fn strikes(&self) -> Strikes {
        self.world.state().strikes
    }

    /// A number for all that happened so far: equal for two runs of one seed.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.world.state().trace.hash()
    }

    /// Events so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.world.state().trace.events()
    }

    /// Keeps what happens from now on in words.
    pub fn keep_trace(&self) {
        self.world.state().trace.keep_words();
    }

    /// What was kept, by time.
    #[must_use]
    pub fn told(&self) -> Vec<Told> {
        self.world.state().told()
    }
}

#[cfg(test)]
mod tests {
    use farsight_base::sync::Ordering;

    use super::*;

    #[test]
    fn what_never_ends_is_stopped() {
        let simulation = Simulation::new(1, Timing::default(), Vec::new());
        let stop = Arc::new(AtomicBool::new(false));
        simulation.stop_by(&stop);
        let sleeper = simulation.clone();
        simulation.process("sleeper", 0, move || {
            for slept in 0_u64.. {
                // Relaxed: all of it happens on one thread.
                stop.store(slept == 1_000, Ordering::Relaxed);
                sleeper.sleep(Duration::from_micros(1));
            }
        });
        let hour = MonotonicNs(3_600_000_000_000);
        assert!(!simulation.run_processes(hour), "it has ended");
        assert!(simulation.now() < MonotonicNs(2_000_000), "it went on to {:?}", simulation.now());
        assert!(!simulation.run_processes(hour), "it has ended later");
    }
}

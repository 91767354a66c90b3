//! A server on the simulated fabric: workers and background without threads.

use std::sync::Arc;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::prng::SplitMix64;
use farsight_base::report::with_causes;
use farsight_base::sync::{AtomicUsize, Ordering};
use farsight_client::Client;
use farsight_fabric::{FabricError, Host as _};
use farsight_fabric_sim::{Kind, SimHost, SimRegion, Simulation};
use farsight_layout::FORMAT_VERSION;
use farsight_node::{Background, BackgroundState, NodeOptions, NodeState};
use farsight_node::{Sequencer, Service, Snapshots, Worker};
use farsight_protocol::NodeStats;

use crate::cluster::connect;
use crate::parking::ParkingHost;

/// Calls of one worker's step at most; drawn anew for each.
const STEP_CALLS_MAX: u64 = 8;
/// Sub-models of one step of the background.
const BACKGROUND_BUDGET: usize = 64;
/// The longest pause between two looks of an idle background while calls come in; it doubles while none do.
const BACKGROUND_PAUSE_NS: u64 = 400_000;
/// Doublings of that pause at most.
const BACKGROUND_DOUBLINGS_MAX: u32 = 7;

/// Lets workers of whatever is reached at `host` execute calls; how their steps are cut follows from `seed`.
/// Returns the calls so far, as they will be.
pub(crate) fn run_workers<K: Kind, S: Service>(
    host: &SimHost<K>,
    state: &Arc<S>,
    workers: usize,
    seed: u64,
) -> Arc<AtomicUsize> {
    // Relaxed, here and below: all of it happens on one thread.
    let calls = Arc::new(AtomicUsize::new(0));
    for index in 0..workers {
        let calls = Arc::clone(&calls);
        let mut worker = Worker::open(state, 0, &format!("worker {index}")).expect("a port");
        let mut random = SplitMix64::new(seed ^ index as u64);
        host.run_port(index, move |now| {
            let budget = 1 + random.below(STEP_CALLS_MAX) as usize;
            let done = worker.step(now, budget);
            calls.fetch_add(done, Ordering::Relaxed);
            (done == budget).then_some(now)
        });
    }
    calls
}

/// Lets a server's background train, more often while there are `calls`.
pub(crate) fn run_background<K: Kind>(
    host: &SimHost<K>,
    state: &Arc<NodeState>,
    calls: Arc<AtomicUsize>,
    seed: u64,
) {
    let mut background = Background::by_processor_time(Arc::clone(state), || Duration::ZERO);
    let mut random = SplitMix64::new(!seed);
    let (mut calls_before, mut doublings) = (0, 0);
    host.run(move |now| {
        let calls = calls.load(Ordering::Relaxed);
        doublings = if calls == calls_before { BACKGROUND_DOUBLINGS_MAX.min(doublings + 1) } else { 0 };
        calls_before = calls;
        let pause = Duration::from_nanos(1 + random.below(BACKGROUND_PAUSE_NS << doublings));
        match background.step(now, BACKGROUND_BUDGET) {
            BackgroundState::Working => Some(MonotonicNs(now.0 + 1)),
            // Roused by nobody, it looks often enough.
            BackgroundState::Idle { again_at } => {
                let look_at = now.plus(pause);
                Some(again_at.map_or(look_at, |at| at.min(look_at).max(MonotonicNs(now.0 + 1))))
            }
        }
    });
}

/// The longest pause between two looks for clients that have ended; it doubles while there are none.
const LOOK_NS_MAX: u64 = 400_000;
/// Doublings of that pause at most.
const LOOK_DOUBLINGS_MAX: u32 = 7;

/// A running server; it dies when dropped.
pub struct Node<K: Kind> {
    simulation: Simulation,
    address: String,
    host: Arc<SimHost<K>>,
    state: Arc<NodeState>,
}

impl<K: Kind> Node<K> {
    /// Starts a server at `address`; how its steps are cut follows from `seed`.
    ///
    /// # Panics
    /// If the options are none for a server, or somebody listens there.
    #[must_use]
    pub fn start(simulation: &Simulation, address: &str, options: &NodeOptions, seed: u64) -> Self {
        Self::start_parking(simulation, address, options, seed, None)
    }

    /// The same, with one call of so many parked.
    pub(crate) fn start_parking(
        simulation: &Simulation,
        address: &str,
        options: &NodeOptions,
        seed: u64,
        parks_one_in: Option<u64>,
    ) -> Self {
        let host = Arc::new(simulation.listen::<K>(address, FORMAT_VERSION));
        let listener: Arc<dyn farsight_fabric::Listener> = match parks_one_in {
            Some(one_in) => Arc::new(ParkingHost::new(&host, simulation, one_in, seed)),
            None => host.clone(),
        };
        let state = NodeState::new(vec![listener], options, simulation.now()).expect("a server");
        Self::run(simulation, address, options.workers, seed, (host, state))
    }

    /// Starts a server with a directory of data, and finds what stands there. Returns what has to take the
    /// steps of its log, too; or why it does not start.
    pub(crate) fn start_from_disk(
        simulation: &Simulation,
        address: &str,
        options: &NodeOptions,
        seed: u64,
    ) -> Result<(Self, Sequencer), String> {
        let host = Arc::new(simulation.listen::<K>(address, FORMAT_VERSION));
        let state = NodeState::new(vec![host.clone()], options, simulation.now());
        let state = state.map_err(|error| with_causes(&error))?;
        let sequencer = state.recover().map_err(|error| with_causes(&error))?;
        let sequencer = sequencer.ok_or("a server without a directory of data")?;
        // Nobody is connected yet.
        host.take_stores_as_shown();
        Ok((Self::run(simulation, address, options.workers, seed, (host, state)), sequencer))
    }

    fn run(
        simulation: &Simulation,
        address: &str,
        workers: usize,
        seed: u64,
        (host, state): (Arc<SimHost<K>>, Arc<NodeState>),
    ) -> Self {
        let calls = run_workers(&host, &state, workers, seed);
        run_background(&host, &state, calls, seed);
        Self { simulation: simulation.clone(), address: address.to_owned(), host, state }
    }

    /// What it is reached by.
    pub(crate) fn host(&self) -> &Arc<SimHost<K>> {
        &self.host
    }

    /// What makes the snapshots of its directory of data, if it has one.
    pub(crate) fn snapshots(&self) -> Option<Snapshots> {
        self.state.snapshots()
    }

    /// Has it hear of clients that have ended, as a pool's nodes must; when it looks follows from `seed`.
    pub fn hear_departed(&self, seed: u64) {
        let (own, clients) = (Arc::clone(&self.state), Arc::clone(&self.host));
        let mut random = SplitMix64::new(!seed);
        let mut doublings = 0;
        self.host.run(move |now| {
            let departed = clients.take_departed();
            doublings = if departed.is_empty() { LOOK_DOUBLINGS_MAX.min(doublings + 1) } else { 0 };
            own.note_departed(departed);
            Some(now.plus(Duration::from_nanos(1 + random.below(LOOK_NS_MAX << doublings))))
        });
    }

    /// It dies.
    pub(crate) fn end(&self) {
        self.host.kill();
    }

    /// Its processor dies, and its card so much later.
    pub(crate) fn freeze(&self, lasts: Duration) {
        self.host.freeze(lasts);
    }

    /// A new client of this server.
    ///
    /// # Errors
    /// As [`Simulation::connect`] and [`Client::new`].
    pub fn connect(&self) -> Result<Client, FabricError> {
        connect::<K>(&self.simulation, &self.address)
    }

    /// True until it, or its processor, dies.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.simulation.died_at(self.host.epoch()).is_none()
    }

    /// Its regions.
    #[must_use]
    pub fn regions(&self) -> Vec<Arc<SimRegion>> {
        self.host.regions()
    }

    /// Why the server refuses every call, if a bug made it so.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.state.failure()
    }

    /// Lets a table give no version up to `last`.
    ///
    /// # Panics
    /// If there is no such table.
    pub(crate) fn leave_out_versions(&self, table: &str, last: u64) {
        self.state.leave_out_versions(table, last).expect("a table that was made");
    }

    /// What the server counted, asked without a call.
    #[must_use]
    pub fn stats(&self) -> NodeStats {
        self.state.stats(self.simulation.now())
    }

    /// The simulation that it is part of.
    #[must_use]
    pub fn simulation(&self) -> &Simulation {
        &self.simulation
    }
}

impl<K: Kind> Drop for Node<K> {
    fn drop(&mut self) {
        self.end();
    }
}

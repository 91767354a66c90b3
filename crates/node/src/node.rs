//! The runner of a node's threads.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::Epoch;
use farsight_base::clock::{Clock, SystemClock};
use farsight_fabric::Listener;
use farsight_protocol::NodeStats;

use crate::{
    Background, BackgroundState, NodeOptions, NodeState, OwnMap, OwnPool, ShutdownError, StartError, Stop,
    Threads, prefault,
};

/// The longest sleep of the training thread with nothing to do. Whatever gives it something wakes it.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// Sub-models trained in one background step: a millisecond or two, for which a stop, or a worker on the same
/// core, may have to wait.
const BACKGROUND_BUDGET: usize = 512;
/// Pause between a wake of the background and its work, in which more work of the same kind is merged.
const BACKGROUND_PAUSE: Duration = Duration::from_millis(1);
/// That pause while training rests, for whose end the background need not be woken again and again.
const BACKGROUND_PAUSE_MAX: Duration = Duration::from_millis(5);

/// The way to start a node.
pub struct Node;

/// A running node; dropping it stops it, and its memory is gone.
pub struct NodeHandle {
    state: Arc<NodeState>,
    clock: SystemClock,
    threads: Threads,
}

impl Node {
    /// Starts a node that listens at all `listeners`, of which the first creates its regions: for each a
    /// control thread and workers, and one thread for training.
    ///
    /// # Errors
    /// [`StartError`]; whatever was started before is stopped again.
    pub fn start(listeners: Vec<Arc<dyn Listener>>, options: &NodeOptions) -> Result<NodeHandle, StartError> {
        Self::start_reporting(listeners, options, &mut |_| ControlFlow::Continue(()))
    }

    /// [`Node::start`] that says how many bytes it has taken of those that it is to take first, and asks
    /// whether to go on.
    ///
    /// # Errors
    /// As [`Node::start`]; [`StartError::Ended`].
    pub fn start_reporting(
        listeners: Vec<Arc<dyn Listener>>,
        options: &NodeOptions,
        taken_bytes: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<NodeHandle, StartError> {
        let clock = SystemClock::new();
        let state = NodeState::new(listeners, options, clock.now())?;
        prefault::take(&state, options, taken_bytes)?;
        let sequencer = state.recover().map_err(StartError::Data)?;
        // Not before: who connects would wait for what was to be taken first.
        state.listeners.open().map_err(StartError::Listen)?;
        let log_helper = sequencer.as_ref().map(|sequencer| Arc::new(sequencer.helper()));
        let wake = {
            let state = Arc::clone(&state);
            let log_helper = log_helper.clone();
            move || {
                state.listeners.wake();
                state.wake_background();
                state.durable.iter().for_each(|durable| durable.wake());
                if let Some(helper) = &log_helper {
                    helper.wake();
                }
            }
        };
        let mut threads = Threads::new(Arc::clone(&state.failure), wake);
        if let Some(sequencer) = sequencer {
            threads.spawn("log", move |stop| sequencer.run(stop))?;
        }
        if let Some(helper) = log_helper {
            let spare_helper = Arc::clone(&helper);
            threads.spawn("syncs", move |stop| helper.sync(stop))?;
            threads.spawn("spares", move |stop| spare_helper.make_spares(stop))?;
        }
        if let Some(mut snapshots) = state.snapshots() {
            threads.spawn("snapshots", move |stop| snapshots.run(stop))?;
        }
        threads.serve(&state, options.workers, &clock)?;
        let (training, by_clock) = (Arc::clone(&state), clock.clone());
        threads.spawn("training", move |stop| train(&training, &by_clock, stop))?;
        Ok(NodeHandle { state, clock, threads })
    }
}

fn train(state: &Arc<NodeState>, clock: &SystemClock, stop: &Stop) {
    let mut background = Background::new(Arc::clone(state));
    while !stop.is_raised() {
        let now = clock.now();
        let BackgroundState::Idle { again_at } = background.step(now, BACKGROUND_BUDGET) else {
            continue;
        };
        let rest = again_at.map(|at| at.since(now));
        if state.background.wait(rest.unwrap_or(SLEEP_MAX)) && !stop.is_raised() {
            let pause = rest.unwrap_or_default().clamp(BACKGROUND_PAUSE, BACKGROUND_PAUSE_MAX);
            std::thread::sleep(pause);
        }
    }
}

impl NodeHandle {
    /// This epoch of the node, whichever address it is reached by.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.state.epoch()
    }

    /// The node's statistics now.
    #[must_use]
    pub fn stats(&self) -> NodeStats {
        self.state.stats(self.clock.now())
    }

    /// The node as the pool of one node that it may be, for a thread that trains that.
    #[must_use]
    pub fn own_pool(&self) -> OwnPool {
        OwnPool::of(Arc::clone(&self.state))
    }

    /// The node as one who keeps its pool's map, for a thread that registers it elsewhere.
    #[must_use]
    pub fn own_map(&self) -> OwnMap {
        OwnMap::of(Arc::clone(&self.state))
    }

    /// Why the node refuses every call, if a bug made it so.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.state.failure()
    }

    /// Calls `told` when a bug makes the node refuse every call, at once if one has: then
    /// [`NodeHandle::failure`] says which. It runs in the thread that met the bug, and must not block.
    pub fn on_failure(&self, told: impl FnOnce() + Send + 'static) {
        self.state.failure.on_record(told);
    }

    /// Stops the threads and waits for them. Calls that were not executed yet are not executed any more.
    /// Clients notice it when the host is dropped by its last owner.
    ///
    /// # Errors
    /// [`ShutdownError`] if a thread does not end within 10 s.
    pub fn shutdown(mut self) -> Result<(), ShutdownError> {
        self.threads.stop()
    }
}

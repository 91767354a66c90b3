//! A memory node on the simulated fabric: workers without threads.

use std::sync::Arc;
use std::time::Duration;

use farsight_base::prng::SplitMix64;
use farsight_fabric::Host as _;
use farsight_fabric_sim::{Kind, SimHost, SimRegion, Simulation};
use farsight_layout::FORMAT_VERSION;
use farsight_memory_node::{MemoryNodeOptions, NodeState};
use farsight_node::Service as _;
use farsight_protocol::{MemoryNodeStats, ServerStats};

use crate::node::{run_background, run_workers};

/// The longest pause between two looks for clients that have ended; it doubles while there are none.
const LOOK_NS_MAX: u64 = 400_000;
/// Doublings of that pause at most.
const LOOK_DOUBLINGS_MAX: u32 = 7;

/// A running memory node; it dies when dropped.
pub(super) struct MemoryNode<K: Kind> {
    simulation: Simulation,
    host: Arc<SimHost<K>>,
    state: Arc<NodeState>,
}

impl<K: Kind> MemoryNode<K> {
    /// Starts a memory node at `address`; how its steps are cut follows from `seed`.
    pub(super) fn start(
        simulation: &Simulation,
        address: &str,
        options: &MemoryNodeOptions,
        seed: u64,
    ) -> Self {
        let host = Arc::new(simulation.listen::<K>(address, FORMAT_VERSION));
        let state = NodeState::new(vec![host.clone()], options, simulation.now()).expect("a memory node");
        let calls = run_workers(&host, &state, options.workers, seed);
        run_background(&host, state.parts(), calls, seed ^ 0x7061_7274);
        let (own, clients) = (Arc::clone(&state), Arc::clone(&host));
        let mut random = SplitMix64::new(!seed);
        let mut doublings = 0;
        host.run(move |now| {
            let departed = clients.take_departed();
            doublings = if departed.is_empty() { LOOK_DOUBLINGS_MAX.min(doublings + 1) } else { 0 };
            own.note_departed(departed);
            Some(now.plus(Duration::from_nanos(1 + random.below(LOOK_NS_MAX << doublings))))
        });
        Self { simulation: simulation.clone(), host, state }
    }

    /// It dies.
    pub(super) fn end(&self) {
        self.host.kill();
    }

    /// True until it dies.
    pub(super) fn is_alive(&self) -> bool {
        self.simulation.died_at(self.host.epoch()).is_none()
    }

    /// Its regions.
    pub(super) fn regions(&self) -> Vec<Arc<SimRegion>> {
        self.host.regions()
    }

    /// Why it refuses every call, if a bug made it so.
    pub(super) fn failure(&self) -> Option<&str> {
        self.state.failure()
    }

    /// What it counted, asked without a call.
    pub(super) fn stats(&self) -> MemoryNodeStats {
        self.state.stats(self.simulation.now())
    }

    /// What it counted of the parts that its processor keeps, of XStore-D tables.
    pub(super) fn stats_of_parts(&self) -> ServerStats {
        self.state.parts().stats(self.simulation.now())
    }
}

impl<K: Kind> Drop for MemoryNode<K> {
    fn drop(&mut self) {
        self.end();
    }
}

//! Machines of a pool's testbed that write for the others, beside their own threads.

use std::sync::Arc;
use std::time::Duration;

use farsight_base::sync::{AtomicUsize, Ordering};
use farsight_compute_node::{OFFER_PAUSE, Serving, ServingOptions};
use farsight_fabric_sim::{ReliableConnection, Simulation};
use farsight_layout::FORMAT_VERSION;
use farsight_layout::hash_index::HASH_PARTITIONS;
use farsight_node::{Service as _, Worker};

use super::pool::connect;
use crate::simulated::SimulatedPlan;

/// Virtual time within which the coordinator has all offers, and clients that loaded the table ask it again.
pub(super) const BEGUN_WITHIN: Duration = Duration::from_millis(600);
/// Calls that a worker gathers before it executes them.
const STEP_CALLS: usize = 64;
/// How long a worker sleeps without a call.
const IDLE_MAX: Duration = Duration::from_millis(20);

/// Has a machine write in its part of the partitions, until nobody has work `left`. It has one thread for
/// that, on its own core, and shares its cards with its clients.
pub(super) fn start(
    simulation: &Simulation,
    plan: &SimulatedPlan,
    machine: usize,
    addresses: &[String],
    left: &Arc<AtomicUsize>,
) {
    let partitions = HASH_PARTITIONS.div_ceil(plan.proxies) as u16;
    let prices = plan.profile.engine_prices();
    // As a thread that writes for itself.
    let write_ps = prices.thread_write_entry_ps + prices.thread_get_ps;
    let (own, left, addresses) = (simulation.clone(), Arc::clone(left), addresses.to_vec());
    simulation.process("writes for others", machine, move || {
        let client = connect(&own, &addresses).expect("memory nodes that live");
        let address = format!("sim://compute-node-{machine}");
        let host = Arc::new(own.listen::<ReliableConnection>(&address, FORMAT_VERSION));
        let (listener, clock) = (host.clone(), own.clock_of(machine));
        let options = ServingOptions { address, listener, partitions, percent: None, clock };
        let serving = Arc::new(Serving::new(client, options).expect("messages are long enough"));
        let mut worker = Worker::open(&serving, 0, "worker").expect("a port");
        // Relaxed: all of it happens on one thread.
        let is_needed = || left.load(Ordering::Relaxed) > 0;
        let mut offered = None;
        while is_needed() {
            let now = own.now();
            if offered.is_none_or(|at| now.since(at) >= OFFER_PAUSE) {
                serving.offer().expect("a pool that lives");
                offered = Some(now);
            }
            let (writes, combined) = serving.writes();
            worker.step(now, STEP_CALLS);
            let (writes_now, combined_now) = serving.writes();
            own.charge((writes_now - writes - (combined_now - combined)) * write_ps);
            own.catch_up();
            worker.wait(IDLE_MAX);
        }
        let failure = serving.failure().text();
        assert!(failure.is_none(), "a compute node that serves met a bug: {failure:?}");
        host.kill();
    });
}

//! Machines of a pool's testbed that write for the others, beside their own threads.

use std::sync::Arc;
use std::time::Duration;

use farsight::ReadsByOthers;
use farsight_base::sync::{AtomicU64, AtomicUsize, Ordering};
use farsight_compute_node::{Serving, ServingOptions};
use farsight_fabric_sim::{ReliableConnection, SimHost, Simulation};
use farsight_layout::FORMAT_VERSION;
use farsight_node::{Service as _, Worker};

use super::pool::connect;
use crate::simulated::{Proxying, SimulatedPlan};

/// Calls that a worker gathers before it executes them.
const STEP_CALLS: usize = 64;
/// How long a worker sleeps without a call.
const IDLE_MAX: Duration = Duration::from_millis(20);

/// What a machine executed for others, and how much of that it has been charged for.
#[derive(Default)]
pub(super) struct Executed {
    writes: AtomicU64,
    charged_ps: AtomicU64,
}

impl Executed {
    /// Writes so far.
    pub(super) fn writes(&self) -> u64 {
        // Relaxed, here and below: all of it happens on one thread.
        self.writes.load(Ordering::Relaxed)
    }

    /// Notes what was executed so far, which costs a thread so much; returns what of that is new.
    fn note(&self, writes: u64, cost_ps: u64) -> u64 {
        self.writes.store(writes, Ordering::Relaxed);
        cost_ps - self.charged_ps.swap(cost_ps, Ordering::Relaxed)
    }
}

/// A machine that serves.
struct ServingMachine {
    simulation: Simulation,
    proxying: Proxying,
    serving: Arc<Serving>,
    executed: Arc<Executed>,
    left: Arc<AtomicUsize>,
    /// A thread's work for a write, and for a key that it reads.
    write_ps: u64,
    read_ps: u64,
}

/// Has a machine write for others, until nobody has work `left`. It has threads for that, each on a core of
/// its own, and shares its cards with its clients.
pub(super) fn start(
    simulation: &Simulation,
    (plan, proxying): (&SimulatedPlan, Proxying),
    number: usize,
    addresses: &[String],
    left: &Arc<AtomicUsize>,
) -> Arc<Executed> {
    let prices = plan.profile.engine_prices();
    // As a thread that writes for itself.
    let write_ps = prices.thread_write_entry_ps + prices.thread_get_ps;
    // Who says where a key stands has only looked that up, as the call's price has it.
    let read_ps = if proxying.reads == ReadsByOthers::Values { prices.thread_get_ps } else { 0 };
    // Who reads for others has the memory for caches, too.
    let cache_bytes = plan.cache_bytes.filter(|_| proxying.reads == ReadsByOthers::Values);
    let executed = Arc::<Executed>::default();
    let (own, left, addresses) = (simulation.clone(), Arc::clone(left), addresses.to_vec());
    let counted = Arc::clone(&executed);
    simulation.process("writes for others", number, move || {
        let client = connect(&own, &addresses).expect("memory nodes that live");
        let address = format!("sim://compute-node-{number}");
        let host = Arc::new(own.listen::<ReliableConnection>(&address, FORMAT_VERSION));
        let (listener, clock) = (host.clone(), own.clock_of(number));
        let (partitions, percent) = (proxying.offered(), proxying.percent());
        let options = ServingOptions { address, listener, partitions, percent, cache_bytes, clock };
        let serving = Arc::new(Serving::new(client, options).expect("messages are long enough"));
        let machine =
            ServingMachine { simulation: own, proxying, serving, executed: counted, left, write_ps, read_ps };
        machine.serve(&host, number);
    });
    executed
}

impl ServingMachine {
    /// Serves with all its threads. This one offers, too.
    fn serve(self, host: &SimHost<ReliableConnection>, number: usize) {
        let machine = Arc::new(self);
        let open = |_| Worker::open(&machine.serving, 0, "worker").expect("a port");
        // All of them are there before the first call: the machine has as many cores for it.
        let mut workers: Vec<Worker<Serving>> = (0..machine.proxying.threads).map(open).collect();
        let own = workers.pop().expect("a thread at least");
        for worker in workers {
            let other = Arc::clone(&machine);
            machine.simulation.process("writes, too", number, move || other.work(worker, || {}));
        }
        let mut offered = None;
        machine.work(own, || {
            let now = machine.simulation.now();
            if offered.is_none_or(|at| now.since(at) >= machine.proxying.offer_pause()) {
                machine.serving.offer().expect("a pool that lives");
                offered = Some(now);
            }
        });
        let failure = machine.serving.failure().text();
        assert!(failure.is_none(), "a compute node that serves met a bug: {failure:?}");
        host.kill();
    }

    fn work(&self, mut worker: Worker<Serving>, mut before: impl FnMut()) {
        let idle_max = IDLE_MAX.min(self.proxying.offer_pause());
        // Relaxed: all of it happens on one thread.
        while self.left.load(Ordering::Relaxed) > 0 {
            before();
            worker.step(self.simulation.now(), STEP_CALLS);
            let work = self.serving.work();
            let cost_ps = (work.writes - work.combined) * self.write_ps + work.found * self.read_ps;
            self.simulation.charge(self.executed.note(work.writes, cost_ps));
            self.simulation.catch_up();
            worker.wait(idle_max);
        }
    }
}

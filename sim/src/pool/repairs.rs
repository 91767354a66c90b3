//! A memory node that was lost comes back empty, and is taken in again; then another one is lost.
//!
//! Invariant: a client that takes it in is killed at any point of that, or is one of two at once. Another
//! one begins anew, until one has ended.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicBool, AtomicUsize, Ordering};
use farsight_client::repair;
use farsight_fabric_sim::{Kind, Simulation};

use super::{JudgedPool, LOST_WITHIN_NS, Stage};
use crate::cluster::dial;
use crate::run::OPERATOR;
use crate::scenario::PoolShape;

/// The group of the first that takes a node in; those of the others are above.
const FIRST_GROUP: usize = usize::MAX / 4;
/// So many may be killed, and so many try at all.
const KILLED_MAX: usize = 6;
const LIVES_MAX: usize = 60;
/// One of them lives for at most as many nanoseconds as have so many bits.
const LIFE_BITS_MAX: u64 = 27;
/// Between two that no rule kills.
const PAUSE: Duration = Duration::from_millis(5);
/// Between two looks whether it has ended.
const LOOK: Duration = Duration::from_micros(300);

/// What became of those that take a node in.
#[derive(Default)]
struct Repairs {
    is_done: AtomicBool,
    /// Those that have ended by themselves, and the last error.
    ended: AtomicUsize,
    last: Mutex<String>,
}

impl<K: Kind, C: JudgedPool<K>> Stage<'_, K, C> {
    /// Starts who ends a node, has it taken in again, and ends another one.
    pub(super) fn lose_and_repair(&self, shape: PoolShape) {
        let (plan, pools) = (self.bystander.again(), Arc::clone(&self.pools));
        let simulation = plan.simulation.clone();
        let mut random = SplitMix64::new(self.scenario.seed ^ 0x7265_7061);
        self.bystander.simulation.process("fate", OPERATOR, move || {
            let nodes = shape.memory_nodes as u64;
            let first = random.below(nodes) as usize;
            super::lose(&simulation, &pools, first, &mut random);
            simulation.sleep(Duration::from_nanos(random.below(LOST_WITHIN_NS)));
            pools.replace(first);
            let repairs = Arc::new(Repairs::default());
            for life in 0..LIVES_MAX {
                if repairs.is_done.load(Ordering::Relaxed) {
                    break;
                }
                if life >= KILLED_MAX {
                    // No rule kills who does it here.
                    repairs.run::<K>(&simulation, plan.addresses);
                    simulation.sleep(PAUSE);
                    continue;
                }
                let group = FIRST_GROUP + life;
                let ended = repairs.ended.load(Ordering::Relaxed);
                let (own, own_simulation, addresses) =
                    (Arc::clone(&repairs), simulation.clone(), plan.addresses);
                simulation.process("repair", group, move || {
                    own.run::<K>(&own_simulation, addresses);
                });
                if random.below(4) > 0 {
                    let bits = random.below(LIFE_BITS_MAX);
                    simulation.sleep(Duration::from_nanos(random.below(1 << bits)));
                    if random.below(4) > 0 {
                        simulation.kill(group);
                    }
                    continue;
                }
                while repairs.ended.load(Ordering::Relaxed) == ended {
                    simulation.sleep(LOOK);
                }
            }
            if !repairs.is_done.load(Ordering::Relaxed) {
                let last = repairs.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
                plan.journal.complain(format!("node {first} is not taken in by {LIVES_MAX}: {last}"));
                return;
            }
            simulation.sleep(Duration::from_nanos(random.below(LOST_WITHIN_NS)));
            let second = (first + 1 + random.below(nodes - 1) as usize) % nodes as usize;
            super::lose(&simulation, &pools, second, &mut random);
        });
    }
}

impl Repairs {
    fn run<K: Kind>(&self, simulation: &Simulation, addresses: &[&'static str]) {
        let dial = dial::<K>(simulation, addresses);
        match repair(&dial, Vec::new(), &mut |_| {}) {
            // Relaxed, here and below: all of it happens on one thread.
            Ok(_) => self.is_done.store(true, Ordering::Relaxed),
            Err(error) => self.note(farsight_base::report::with_causes(&error)),
        }
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    fn note(&self, error: String) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }
}

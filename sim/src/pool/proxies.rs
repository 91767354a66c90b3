//! Compute nodes that serve: they write for the others of a FlexKV scenario.
//!
//! Invariant: each is a program of its own, which rules stop and kill like the others. What it was reached at
//! dies with it, so one that was killed answers nobody. Its successor listens at the same address.
//!
//! Protocol: one process is its worker, as the product's threads are; another one offers its services to the
//! coordinator. Some lives are short: then it takes its offers back, and ends.

use std::sync::Arc;
use std::time::Duration;

use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicBool, AtomicUsize, Ordering};
use farsight_compute_node::{OFFER_PAUSE, Serving, ServingOptions};
use farsight_fabric_sim::Kind;
use farsight_layout::FORMAT_VERSION;
use farsight_node::{Service as _, Worker};

use super::JudgedPool;
use crate::classes::Mark;
use crate::client::{End, Plan};

/// The group of the first of them; the others' and their successors' are above.
const FIRST_GROUP: usize = usize::MAX / 2;
/// Calls of one step at most; drawn anew for each.
const STEP_CALLS_MAX: u64 = 8;
/// How long its worker sleeps without a call.
const IDLE_MAX: Duration = Duration::from_millis(20);
/// The longest pause between two lives.
const AWAY_NS_MAX: u64 = 300_000_000;
/// The longest of short lives, and what of all lives are short.
const SHORT_LIFE_NS_MAX: u64 = 2_000_000_000;
const SHORT_LIFE_ONE_IN: u64 = 3;
/// For how many partitions one offers to write.
const PARTITIONS: [u16; 3] = [1024, 700, 300];
/// For which part of those clients are to send it writes, in percent.
const PERCENT: [Option<u8>; 3] = [None, Some(60), Some(5)];

/// What all lives of one of them have in common.
struct Place<C: crate::cluster::Cluster> {
    plan: Arc<Plan<C>>,
    /// Processes that have work left.
    left: Arc<AtomicUsize>,
    /// Which one it is, and of how many.
    number: usize,
    count: usize,
    partitions: u16,
    percent: Option<u8>,
}

/// Starts number `number` of so many, which serves until no process has work left.
pub(super) fn start<K: Kind, C: JudgedPool<K>>(
    plan: &Arc<Plan<C>>,
    (number, count): (usize, usize),
    left: &Arc<AtomicUsize>,
) {
    let mut random = SplitMix64::new(plan.seed ^ number as u64);
    let partitions = PARTITIONS[random.below(3) as usize];
    let percent = PERCENT[random.below(3) as usize];
    let (plan, left) = (Arc::clone(plan), Arc::clone(left));
    start_life::<K, C>(Place { plan, left, number, count, partitions, percent }, number);
}

/// Starts the program of this group, and when it was killed the next one.
fn start_life<K: Kind, C: JudgedPool<K>>(place: Place<C>, group: usize) {
    let simulation = place.plan.simulation.clone();
    simulation.process(&format!("compute node {group}"), FIRST_GROUP + group, move || {
        let simulation = place.plan.simulation.clone();
        let mut random = SplitMix64::new(place.plan.seed ^ (group as u64 + 1) << 40);
        while place.is_needed() {
            if simulation.is_killed() {
                let next = group + place.count;
                return start_life::<K, C>(place, next);
            }
            if matches!(place.serve::<K>(FIRST_GROUP + group, &mut random), Err(End::Wrong)) {
                return;
            }
            simulation.sleep(Duration::from_nanos(random.below(AWAY_NS_MAX)));
        }
    });
}

impl<C: crate::cluster::Cluster> Place<C> {
    fn is_needed(&self) -> bool {
        // Relaxed, here and below: all of it happens on one thread.
        self.left.load(Ordering::Relaxed) > 0
    }

    /// One life, until it is over or the program was killed.
    fn serve<K: Kind>(&self, group: usize, random: &mut SplitMix64) -> Result<(), End>
    where
        C: JudgedPool<K>,
    {
        let Self { plan, number, partitions, percent, .. } = self;
        let simulation = &plan.simulation;
        let client = C::connect(simulation, plan.addresses);
        let client =
            client.map_err(|error| plan.end("connecting", &error, plan.allowed.catalogue(&error)))?;
        if simulation.is_killed() {
            return Err(End::Lost);
        }
        let address = format!("sim://compute-node-{number}");
        let host = Arc::new(simulation.listen::<K>(&address, FORMAT_VERSION));
        let (listener, clock) = (host.clone(), simulation.clock_of(group));
        let options = ServingOptions {
            address,
            listener,
            partitions: *partitions,
            percent: *percent,
            cache_bytes: None,
            clock,
        };
        let serving = Arc::new(Serving::new(client, options).expect("messages are long enough"));
        let mut worker = Worker::open(&serving, 0, "worker").expect("a port");
        let is_over = Arc::new(AtomicBool::new(false));
        self.start_offers(group, &serving, &is_over);
        let life_ns =
            if random.below(SHORT_LIFE_ONE_IN) == 0 { random.below(SHORT_LIFE_NS_MAX) } else { u64::MAX };
        let ends_at = simulation.now().plus(Duration::from_nanos(life_ns));
        while self.is_needed() && !simulation.is_killed() && simulation.now() < ends_at {
            worker.step(simulation.now(), 1 + random.below(STEP_CALLS_MAX) as usize);
            worker.wait(IDLE_MAX);
        }
        is_over.store(true, Ordering::Relaxed);
        if let Some(failure) = serving.failure().text() {
            plan.journal.complain(format!("a compute node that serves met a bug: {failure}"));
        }
        let work = serving.work();
        plan.journal.mark(Mark::Proxied, work.writes);
        plan.journal.mark(Mark::Combined, work.combined);
        plan.journal.mark(Mark::FoundForOthers, work.found);
        host.kill();
        Ok(())
    }

    /// Starts who offers, until the life is over.
    fn start_offers(&self, group: usize, serving: &Arc<Serving>, is_over: &Arc<AtomicBool>) {
        let (plan, left) = (Arc::clone(&self.plan), Arc::clone(&self.left));
        let (serving, is_over) = (Arc::clone(serving), Arc::clone(is_over));
        let simulation = plan.simulation.clone();
        self.plan.simulation.process("offers", group, move || {
            let is_over = || {
                let is_needed = left.load(Ordering::Relaxed) > 0;
                !is_needed || is_over.load(Ordering::Relaxed) || simulation.is_killed()
            };
            while !is_over() {
                if let Err(error) = serving.offer() {
                    plan.complain_of("an offer", &error, plan.allowed.catalogue(&error.source));
                }
                simulation.sleep(OFFER_PAUSE);
            }
            serving.withdraw();
        });
    }
}

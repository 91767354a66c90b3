//! Who trains: a compute node that does nothing else. Several train the same table.

use std::sync::Arc;
use std::time::Duration;

use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicUsize, Ordering};
use farsight_client::{GroupSizes, Trained};
use farsight_fabric_sim::Kind;

use super::{JudgedPool, connect};
use crate::classes::Mark;
use crate::client::{End, Plan};
use crate::run::TABLE;

/// The group of the first trainer; the others' and their successors' are below.
const FIRST_GROUP: usize = usize::MAX - 16;
/// Groups of one step at most.
const BUDGET_MAX: u64 = 4;
/// The longest pause between two steps; it doubles while nothing is to be trained.
const PAUSE_NS_MAX: u64 = 50_000;
/// Doublings of that pause at most.
const DOUBLINGS_MAX: u32 = 8;
/// Of the steps, one in so many comes after a look at what ended compute nodes left.
const LOOKS_ONE_IN: u64 = 8;

/// Starts trainer `number` of so many, which trains until no process has work left.
pub(super) fn start<K: Kind, C: JudgedPool<K>>(
    plan: &Arc<Plan<C>>,
    number: usize,
    (trainers, sizes): (usize, GroupSizes),
    left: &Arc<AtomicUsize>,
) {
    let (plan, left) = (Arc::clone(plan), Arc::clone(left));
    let simulation = plan.simulation.clone();
    let name = format!("trainer {number}");
    simulation.process(&name, FIRST_GROUP - number, move || {
        let mut random = SplitMix64::new(plan.seed ^ (number as u64) << 48);
        // Relaxed: all of it happens on one thread.
        while left.load(Ordering::Relaxed) > 0 {
            if plan.simulation.is_killed() {
                return start::<K, C>(&plan, number + trainers, (trainers, sizes), &left);
            }
            if matches!(train::<K, C>(&plan, sizes, &mut random, &left), Err(End::Wrong)) {
                return;
            }
            plan.simulation.sleep(Duration::from_nanos(random.below(PAUSE_NS_MAX)));
        }
    });
}

/// Trains with one connection, until that is lost.
fn train<K: Kind, C: JudgedPool<K>>(
    plan: &Plan<C>,
    sizes: GroupSizes,
    random: &mut SplitMix64,
    left: &AtomicUsize,
) -> Result<(), End> {
    let refused = |error| plan.end("opening a trainer", &error, plan.allowed.catalogue(&error));
    let client = connect(plan).map_err(refused)?;
    let mut trainer = client.trainer(TABLE, sizes).map_err(refused)?;
    let (mut doublings, mut looks) = (0, 0);
    while left.load(Ordering::Relaxed) > 0 {
        let budget = 1 + random.below(BUDGET_MAX) as usize;
        let wrong = |error| plan.end("training", &error, plan.allowed.training(&error));
        // First, and with a new connection in any case: training may want the lines that dead trainers left.
        if looks == 0 || random.below(LOOKS_ONE_IN) == 0 {
            let found = trainer.reclaim().map_err(wrong)?;
            plan.journal.mark(Mark::Reclaimed, found.freed);
            looks += 1;
        }
        let Trained { groups, lost, directories, merged, .. } = trainer.step(budget).map_err(wrong)?;
        plan.journal.mark(Mark::Retrained, groups as u64);
        plan.journal.mark(Mark::LostPublication, lost as u64);
        plan.journal.mark(Mark::Merged, merged as u64);
        let is_idle = groups + lost + directories == 0;
        doublings = if is_idle { DOUBLINGS_MAX.min(doublings + 1) } else { 0 };
        plan.simulation.sleep(Duration::from_nanos(random.below(PAUSE_NS_MAX << doublings)));
    }
    Ok(())
}

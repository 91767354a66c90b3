//! Who drops, makes, renames and swaps the table of a scenario while clients work on it.
//!
//! Invariant: at the end there is the table, and no other. Each table is a life of its own in the journal:
//! what one holds, another knows nothing of. So a value of another table is a value that nobody wrote there.

use std::sync::Arc;
use std::time::Duration;

use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicUsize, Ordering};
use farsight_client::{CatalogueError, Client};

use crate::Scenario;
use crate::classes::Mark;
use crate::client::Plan;
use crate::cluster::Cluster;
use crate::run::{FILLED_AGAIN_ONE_IN, TABLE};

/// The other name.
const OTHER: &str = "other";
/// The longest pause between two changes.
const PAUSE_NS_MAX: u64 = 800_000;
/// Tries to leave the table, and no other, at the end.
const ENDINGS_MAX: usize = 200;

/// Changes names until no client is `left`, as the operator whose plan this is.
pub(crate) fn change<C: Cluster>(
    scenario: &Scenario,
    plan: &Arc<Plan<C>>,
    left: &AtomicUsize,
    make_table: impl Fn() -> Result<(), CatalogueError>,
) {
    let mut random = SplitMix64::new(!plan.seed);
    let explained = |what: &str, done: Result<(), CatalogueError>| {
        if let Err(error) = &done {
            plan.complain_of(what, error, plan.allowed.catalogue(error));
        }
        done.is_ok()
    };
    // Relaxed: all of it happens on one thread.
    while left.load(Ordering::Relaxed) > 0 {
        plan.simulation.sleep(Duration::from_nanos(random.below(PAUSE_NS_MAX)));
        let changed = C::connect(&plan.simulation, plan.addresses)
            .and_then(|client| change_once(&client, &mut random, &plan.simulation, &make_table));
        if explained("changing names", changed) {
            plan.journal.mark(Mark::NamesChanged, 1);
        }
        if random.below(3) == 0 && scenario.fill(plan, FILLED_AGAIN_ONE_IN).is_err() {
            // Another compute node fills it the next time.
            plan.programs.leave(plan.group);
        }
    }
    for _ in 0..ENDINGS_MAX {
        let client = C::connect(&plan.simulation, plan.addresses);
        if explained("ending", client.and_then(|client| end(&client, &make_table))) {
            return;
        }
        plan.simulation.sleep(Duration::from_nanos(PAUSE_NS_MAX));
    }
    plan.journal.complain(format!("the names are not in order after {ENDINGS_MAX} tries"));
}

fn has(client: &Client, name: &str) -> Result<bool, CatalogueError> {
    Ok(client.tables()?.iter().any(|info| info.definition.name == name))
}

fn change_once(
    client: &Client,
    random: &mut SplitMix64,
    simulation: &farsight_fabric_sim::Simulation,
    make_table: impl Fn() -> Result<(), CatalogueError>,
) -> Result<(), CatalogueError> {
    make_table()?;
    match random.below(4) {
        0 => {
            client.drop_table(TABLE)?;
            if random.below(2) == 0 {
                simulation.sleep(Duration::from_nanos(random.below(PAUSE_NS_MAX)));
            }
        }
        1 if !has(client, OTHER)? => client.rename_table(TABLE, OTHER)?,
        2 if has(client, OTHER)? => client.drop_table(OTHER)?,
        _ if has(client, OTHER)? => client.swap_tables(OTHER, TABLE)?,
        _ => {}
    }
    make_table()
}

fn end(client: &Client, make_table: impl Fn() -> Result<(), CatalogueError>) -> Result<(), CatalogueError> {
    if has(client, OTHER)? {
        client.drop_table(OTHER)?;
    }
    make_table()
}

//! What came of a run, as it is printed and kept.

use std::collections::BTreeMap;
use std::time::Duration;

use farsight_sim::{CLASSES, Campaign, Failure, SCENARIOS, Tally};
use serde::{Deserialize, Serialize};

/// A run of so many seeds of all scenarios meets every class of faults; fewer may miss one.
const SEEDS_FOR_ALL_CLASSES: u64 = 2_000;
/// The commit that this program was built from.
pub(super) const COMMIT: &str = env!("FARSIGHT_COMMIT");

/// A run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) commit: String,
    pub(super) scenario: String,
    pub(super) first_seed: u64,
    pub(super) seeds: u64,
    /// Operations whose answers were judged, by key.
    pub(super) operations: u64,
    pub(super) unknown_writes: u64,
    pub(super) splits: u64,
    pub(super) events: u64,
    pub(super) faults: u64,
    pub(super) virtual_s: f64,
    pub(super) elapsed_s: f64,
    pub(super) threads: usize,
    /// How often each class was met, by its number.
    pub(super) classes: BTreeMap<String, u64>,
    /// Classes that should have been met and were not.
    pub(super) unmet: Vec<String>,
    pub(super) failures: Vec<Failed>,
}

/// A seed that failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Failed {
    pub(super) seed: u64,
    pub(super) scenario: String,
    pub(super) what: String,
    pub(super) replay: String,
}

impl Record {
    pub(super) fn of(campaign: &Campaign, tally: &Tally, elapsed: Duration) -> Self {
        let met = CLASSES.iter().filter_map(|class| Some((class.id.to_owned(), tally.coverage.met(class)?)));
        let has_all = campaign.scenario.name == SCENARIOS[0].name && tally.seeds >= SEEDS_FOR_ALL_CLASSES;
        let unmet = tally.coverage.never_met().filter(|_| has_all);
        let failures = tally.failures.iter().map(|failure| Failed {
            seed: failure.seed,
            scenario: failure.scenario.to_owned(),
            what: failure.what.clone(),
            replay: replay(failure),
        });
        Self {
            commit: COMMIT.to_owned(),
            scenario: campaign.scenario.name.to_owned(),
            first_seed: campaign.first,
            seeds: tally.seeds,
            operations: tally.operations,
            unknown_writes: tally.unknown_writes,
            splits: tally.splits,
            events: tally.events,
            faults: tally.faults(),
            virtual_s: tally.lasted.as_secs_f64(),
            elapsed_s: elapsed.as_secs_f64(),
            threads: campaign.threads,
            classes: met.collect(),
            unmet: unmet.map(|class| class.id.to_owned()).collect(),
            failures: failures.collect(),
        }
    }

    /// The seed behind its last.
    pub(super) fn end(&self) -> u64 {
        self.first_seed.saturating_add(self.seeds)
    }

    /// No seed failed, and no class is missing.
    pub(super) fn has_passed(&self) -> bool {
        self.failures.is_empty() && self.unmet.is_empty()
    }
}

/// The line that repeats a failure and tells its trace: of the key whose answers contradict each other, if it
/// is one.
fn replay(failure: &Failure) -> String {
    let key = failure.entries.first().map(|entry| format!(" --key {}", entry.key));
    let (scenario, seed) = (failure.scenario, failure.seed);
    format!("farsight simulate --scenario {scenario} --seed {seed} --trace{}", key.unwrap_or_default())
}

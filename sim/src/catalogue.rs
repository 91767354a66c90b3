//! The scenarios by name, and how one seed of one of them is run.

use crate::{Failure, Report, Scenario};

/// A scenario that has a name.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// Its name.
    pub name: &'static str,
    /// What happens in it.
    pub about: &'static str,
    of_seed: fn(u64) -> Scenario,
}

/// What seeds choose from, the one of each seed by itself first.
pub const SCENARIOS: &[Named] = &[
    Named { name: "any", about: "one of the others, by the seed", of_seed: any },
    Named {
        name: "mixed",
        about: "a server, two client programs of four sessions each, three kinds of fault",
        of_seed: Scenario::of_seed,
    },
];

/// The scenario of this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Named> {
    SCENARIOS.iter().find(|scenario| scenario.name == name)
}

fn any(seed: u64) -> Scenario {
    let others = &SCENARIOS[1..];
    (others[seed as usize % others.len()].of_seed)(seed)
}

impl Named {
    /// All that `seed` decides.
    #[must_use]
    pub fn scenario(&self, seed: u64) -> Scenario {
        (self.of_seed)(seed)
    }
}

/// Runs `seed` of `scenario`.
///
/// # Errors
/// [`Failure`], with what happened in words if `keeps_trace`.
pub fn run_seed(seed: u64, scenario: &Named, keeps_trace: bool) -> Result<Report, Box<Failure>> {
    scenario.scenario(seed).run(keeps_trace)
}

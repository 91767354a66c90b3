//! The scenarios by name, and how one seed of one of them is run.

use std::sync::Arc;

use farsight_base::prng::mix;

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

/// What seeds choose from, the one of each seed by itself first; those of pools are the last.
pub const SCENARIOS: &[Named] = &[
    Named { name: "any", about: "one of the others, by the seed", of_seed: any },
    Named {
        name: "mixed",
        about: "a server, two client programs of four sessions each, three kinds of fault that last a moment",
        of_seed: Scenario::of_seed,
    },
    Named {
        name: "restarts",
        about: "servers die under load, at once or with a card that goes on; the next begin without memory",
        of_seed: Scenario::restarts,
    },
    Named {
        name: "network",
        about: "the network is cut, both ways or one, for all or some, again and again; or is slow",
        of_seed: Scenario::network,
    },
    Named { name: "clocks", about: "clocks drift by a tenth and leap by seconds", of_seed: Scenario::clocks },
    Named {
        name: "stalls",
        about: "clients and servers stop for longer than anybody waits, and go on",
        of_seed: Scenario::stalls,
    },
    Named {
        name: "frames",
        about: "requests and replies arrive without their ends",
        of_seed: Scenario::frames,
    },
    Named { name: "full", about: "the table has no room for all that is written", of_seed: Scenario::full },
    Named {
        name: "flips",
        about: "bits of stamps and sibling numbers flip on their way to a reader",
        of_seed: Scenario::flips,
    },
    Named {
        name: "decay",
        about: "bits of stamps and sibling numbers flip in memory, and stay so until they are scrubbed",
        of_seed: Scenario::decay,
    },
    Named {
        name: "wraps",
        about: "the versions and incarnations of all lines begin again from zero",
        of_seed: Scenario::wraps,
    },
    Named {
        name: "versions",
        about: "the table's versions of 48 bits end while it is written",
        of_seed: Scenario::versions,
    },
    Named {
        name: "parked",
        about: "the server answers calls later, in any order, and when their clients may have left",
        of_seed: Scenario::parked,
    },
    Named {
        name: "names",
        about: "the table is dropped, made again, renamed and swapped under its clients",
        of_seed: Scenario::names,
    },
    Named {
        name: "merges",
        about: "pairs come and go in waves, so that leaves are merged under old caches",
        of_seed: Scenario::merges,
    },
    Named {
        name: "budgets",
        about: "caches of many small sub-models have budgets, which change under their sessions",
        of_seed: Scenario::budgets,
    },
    Named {
        name: "conditional",
        about: "most writes compare with what was read, swap, or add to counters",
        of_seed: Scenario::conditional,
    },
    Named {
        name: "blocks",
        about: "values of any length, in blocks whose memory is used again, soon or late",
        of_seed: Scenario::blocks,
    },
    Named {
        name: "blocks-conditional",
        about: "values of any length, which most writes compare with what was read, swap, or add to",
        of_seed: Scenario::blocks_conditional,
    },
    Named {
        name: "blocks-long",
        about: "values that no message carries go and come in pieces, between which clients die",
        of_seed: Scenario::blocks_long,
    },
    Named {
        name: "kept",
        about: "servers die, or their machines, under additions; the next find tables and calls on their disks",
        of_seed: Scenario::kept,
    },
    Named { name: "pools", about: "one of those below, by the seed", of_seed: pools },
    Named {
        name: "pool",
        about: "memory nodes, compute nodes that join and leave, trainers; faults that last a moment",
        of_seed: Scenario::pool,
    },
    Named {
        name: "pool-deaths",
        about: "compute nodes die between any two verbs, locks in their hands, and queues break",
        of_seed: Scenario::pool_deaths,
    },
    Named {
        name: "pool-leases",
        about: "holders of locks stop, or their verbs are under way, for longer than a lease; clocks leap",
        of_seed: Scenario::pool_leases,
    },
    Named {
        name: "pool-network",
        about: "the network between compute nodes and memory nodes is cut, or slow",
        of_seed: Scenario::pool_network,
    },
    Named {
        name: "pool-trainers",
        about: "several trainers at once, which stop and die, and compute nodes that join with empty caches",
        of_seed: Scenario::pool_trainers,
    },
    Named {
        name: "pool-merges",
        about: "tables that are filled and emptied again and again, so that trainers merge leaves",
        of_seed: Scenario::pool_merges,
    },
    Named {
        name: "pool-groups",
        about: "the same, with trainers that cut groups into leaves and others that put them together",
        of_seed: Scenario::pool_groups,
    },
    Named {
        name: "pool-wraps",
        about: "leaves whose versions and incarnations begin again from zero, merged and used again",
        of_seed: Scenario::pool_wraps,
    },
    Named {
        name: "pool-repairs",
        about: "READs that are under way while leaves are repaired",
        of_seed: Scenario::pool_repairs,
    },
    Named {
        name: "pool-pressure",
        about: "leaves fill the memory of several nodes, empty and are merged",
        of_seed: Scenario::pool_pressure,
    },
    Named {
        name: "pool-restarts",
        about: "memory nodes die and come back empty, alone and all together",
        of_seed: Scenario::pool_restarts,
    },
    Named {
        name: "pool-full",
        about: "the pool has no room for all that is written",
        of_seed: Scenario::pool_full,
    },
    Named {
        name: "pool-names",
        about: "ROLEX's table is dropped, made again, renamed and swapped under its compute nodes and trainers",
        of_seed: Scenario::pool_names,
    },
    Named {
        name: "pool-conditional",
        about: "most writes of compute nodes compare with what was read, swap, or add to counters",
        of_seed: Scenario::pool_conditional,
    },
    Named {
        name: "parts",
        about: "XStore-D: parts of a table at several memory nodes; faults that last a moment",
        of_seed: Scenario::parts,
    },
    Named {
        name: "parts-network",
        about: "the network between XStore-D's clients and its parts is cut, or slow",
        of_seed: Scenario::parts_network,
    },
    Named {
        name: "parts-restarts",
        about: "XStore-D's memory nodes die, some with cards that go on, and come back empty",
        of_seed: Scenario::parts_restarts,
    },
    Named {
        name: "parts-stalls",
        about: "XStore-D's clients and memory nodes stop for longer than anybody waits, and go on",
        of_seed: Scenario::parts_stalls,
    },
    Named {
        name: "parts-names",
        about: "XStore-D's table is dropped, made again, renamed and swapped under its clients",
        of_seed: Scenario::parts_names,
    },
    Named {
        name: "parts-conditional",
        about: "most writes to XStore-D's parts compare with what was read, swap, or add to counters",
        of_seed: Scenario::parts_conditional,
    },
    Named {
        name: "parts-kept",
        about: "the same with XStore-D's parts at three nodes, each with a disk of its own",
        of_seed: Scenario::parts_kept,
    },
    Named {
        name: "hashed",
        about: "FlexKV: compute nodes that join and leave; faults that last a moment",
        of_seed: Scenario::hashed,
    },
    Named {
        name: "hashed-deaths",
        about: "FlexKV's compute nodes die between any two verbs, and queues break",
        of_seed: Scenario::hashed_deaths,
    },
    Named {
        name: "hashed-network",
        about: "the network between FlexKV's compute nodes and its memory nodes is cut, or slow",
        of_seed: Scenario::hashed_network,
    },
    Named {
        name: "hashed-stalls",
        about: "FlexKV's compute nodes stop for long, their verbs come late, and clocks leap",
        of_seed: Scenario::hashed_stalls,
    },
    Named {
        name: "hashed-restarts",
        about: "FlexKV's memory nodes die and come back empty",
        of_seed: Scenario::hashed_restarts,
    },
    Named {
        name: "hashed-conditional",
        about: "most writes of FlexKV's compute nodes compare, swap, or add to counters",
        of_seed: Scenario::hashed_conditional,
    },
    Named {
        name: "hashed-growth",
        about: "FlexKV's index is split while compute nodes write its keys, stop and die",
        of_seed: Scenario::hashed_growth,
    },
    Named {
        name: "hashed-walks",
        about: "compute nodes walk over all pairs of a FlexKV table while others write and split it",
        of_seed: Scenario::hashed_walks,
    },
    Named {
        name: "hashed-cached",
        about: "compute nodes keep values of a FlexKV table, which others write, split and remove",
        of_seed: Scenario::hashed_cached,
    },
    Named {
        name: "hashed-replicas",
        about: "each pair of a FlexKV table is on two or three nodes; compute nodes stop, die and are cut off",
        of_seed: Scenario::hashed_replicas,
    },
    Named {
        name: "hashed-losses",
        about: "a pool with replicas of a FlexKV table loses a memory node, perhaps with a card that goes on",
        of_seed: Scenario::hashed_losses,
    },
    Named {
        name: "hashed-repairs",
        about: "the same; the lost node comes back empty and is taken in, by clients that die; then another is lost",
        of_seed: Scenario::hashed_repairs,
    },
    Named {
        name: "hashed-names",
        about: "FlexKV's table is dropped, made again, renamed and swapped under its compute nodes",
        of_seed: Scenario::hashed_names,
    },
    Named {
        name: "hashed-strings",
        about: "FlexKV's keys are byte strings; compute nodes stop, die and are cut off",
        of_seed: Scenario::hashed_strings,
    },
    Named {
        name: "hashed-proxied",
        about: "compute nodes that serve write in a FlexKV table for others, stop, die and come back",
        of_seed: Scenario::hashed_proxied,
    },
];

/// The scenario of this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Named> {
    SCENARIOS.iter().find(|scenario| scenario.name == name)
}

/// Scenarios of servers, behind the first.
const OF_SERVERS: usize = 20;

/// A seed of a pool takes ten times as long as one of a server: one in twenty-one is.
fn any(seed: u64) -> Scenario {
    let of_servers = &SCENARIOS[1..=OF_SERVERS];
    match of_servers.get(seed as usize % (OF_SERVERS + 1)) {
        Some(scenario) => (scenario.of_seed)(seed),
        None => pools(seed),
    }
}

fn pools(seed: u64) -> Scenario {
    let of_pools = &SCENARIOS[OF_SERVERS + 2..];
    // Those of `any` are every twenty-first seed.
    (of_pools[mix(seed) as usize % of_pools.len()].of_seed)(seed)
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
    scenario.scenario(seed).run(keeps_trace, &Arc::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_has_its_name() {
        for scenario in SCENARIOS.iter().filter(|scenario| !["any", "pools"].contains(&scenario.name)) {
            assert_eq!(scenario.scenario(7).name, scenario.name);
        }
        let is_of_pool = |scenario: &&Named| scenario.scenario(7).pool.is_some();
        assert_eq!(SCENARIOS.iter().position(|scenario| is_of_pool(&scenario)), Some(OF_SERVERS + 1));
        let mut chosen: Vec<&str> = (1..6_000).map(|seed| any(seed).name).collect();
        chosen.sort_unstable();
        chosen.dedup();
        assert_eq!(chosen.len(), SCENARIOS.len() - 2, "{chosen:?}");
    }
}

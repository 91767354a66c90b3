//! What a CAS and a SEND cost by a WRITE, and what that ratio decides.
//!
//! Invariant: a WRITE keeps its price. A CAS that costs `k` WRITEs holds the card's one lock for as long as
//! `k` WRITEs take, and a message that costs `m` keeps the card as long as `m` WRITEs.

use farsight_fabric_sim::Profile;

use super::network::{Counts, Operations};
use super::popularity::Popularity;
use super::program::{Call, Stage, ThreadPlace, Verb};
use super::{System, VerbMixPlan};
use crate::driver::{Cancellation, DriverError};
use crate::report::RatioRecord;

/// Ratios to compare systems at.
#[derive(Clone, Debug)]
pub struct RatioPlan {
    /// WRITEs that a CAS costs.
    pub swaps: Vec<f64>,
    /// WRITEs that a message costs.
    pub messages: Vec<f64>,
}

impl RatioPlan {
    /// From a CAS as cheap as a WRITE to one as costly as on a card that has them wait for each other.
    #[must_use]
    pub fn usual() -> Self {
        Self { swaps: vec![1.0, 2.0, 4.0, 8.0, 16.0], messages: vec![1.0, 1.7, 3.0, 6.0] }
    }

    /// The throughput of each system at each pair of ratios; of FlexKV that of the best part offloaded.
    ///
    /// # Errors
    /// [`DriverError::Cancelled`].
    pub fn run(
        &self,
        base: &VerbMixPlan,
        popularity: &Popularity,
        cancellation: &Cancellation,
    ) -> Result<Vec<RatioRecord>, DriverError> {
        let mut records = Vec::new();
        for swap in &self.swaps {
            for message in &self.messages {
                let profile = at_ratio(&base.profile, *swap, *message);
                let mut ops_per_s = Vec::new();
                for system in System::ALL {
                    let plan = VerbMixPlan { profile: profile.clone(), system, ..base.clone() };
                    let (_, best) = plan.run_best(popularity, cancellation)?;
                    ops_per_s.push((best.system, best.throughput_ops_per_s));
                }
                records.push(RatioRecord {
                    workload: base.workload.name().to_owned(),
                    profile: base.profile.name.clone(),
                    writes_per_swap: *swap,
                    writes_per_message: *message,
                    ops_per_s,
                });
            }
        }
        Ok(records)
    }
}

/// The testbed on whose cards a CAS costs `swap` WRITEs and a message `message`.
fn at_ratio(profile: &Profile, swap: f64, message: f64) -> Profile {
    let write_rate = profile.value("card.write_served");
    // What an atomic takes of the engine is no more than its whole.
    let served_rate = profile.value("card.atomic_served").max(write_rate / swap);
    profile
        .with("card.atomic_locks", 1.0)
        .with("card.atomic_held", swap * 1e3 / write_rate)
        .with("card.atomic_served", served_rate)
        .with("card.message", write_rate / message)
}

/// What each kind of verb reaches when all clients post nothing else: the paper's figure 4.
#[derive(Clone, Copy, Debug)]
pub struct VerbRates {
    /// 8 B compare-and-swaps at memory nodes.
    pub swaps_per_s: f64,
    /// 8 B WRITEs to memory nodes.
    pub writes_per_s: f64,
    /// 8 B messages between compute nodes, each with its answer.
    pub calls_per_s: f64,
    /// READs of 128 B of memory nodes.
    pub reads_per_s: f64,
}

/// Posts one kind of verb.
struct OneVerb {
    plan: VerbMixPlan,
    make: fn(&VerbMixPlan, usize, ThreadPlace) -> Stage,
    number: usize,
}

impl Operations for OneVerb {
    fn next(&mut self, from: ThreadPlace) -> Vec<Stage> {
        self.number += 1;
        vec![(self.make)(&self.plan, self.number, from)]
    }
}

impl VerbRates {
    /// Measures them on the testbed of `plan`.
    #[must_use]
    pub fn of(plan: &VerbMixPlan) -> Self {
        let rate = |make| {
            let window_ps = (plan.seconds * 1e12) as u64;
            let mut verbs = OneVerb { plan: plan.clone(), make, number: 0 };
            let times = [window_ps / 4, window_ps / 4 + window_ps];
            let outcome = plan.network().run(&mut verbs, &plan.coroutines(), times);
            let Counts { reads, writes, swaps, calls, .. } = outcome.counts;
            (reads + writes + swaps + calls) as f64 / plan.seconds
        };
        Self {
            swaps_per_s: rate(|plan, number, _| {
                Stage::new(0).post(at(plan, number), Verb::Swap { lock: number })
            }),
            writes_per_s: rate(|plan, number, _| Stage::new(0).write(&[at(plan, number)], 8)),
            calls_per_s: rate(|plan, number, from| {
                let to = (from.machine + 1 + number % (plan.compute_nodes - 1)) % plan.compute_nodes;
                let thread = plan.client_threads + number % plan.proxy_threads;
                let (request_bytes, reply_bytes, work_ps) = (8, 8, 0);
                let call = Call { thread, request_bytes, reply_bytes, work_ps, stages: Vec::new() };
                Stage::new(0).post(to, Verb::Call(call))
            }),
            reads_per_s: rate(|plan, number, _| Stage::new(0).read(at(plan, number), 128)),
        }
    }
}

/// The memory node whose turn it is.
fn at(plan: &VerbMixPlan, number: usize) -> usize {
    plan.compute_nodes + number % plan.memory_nodes
}

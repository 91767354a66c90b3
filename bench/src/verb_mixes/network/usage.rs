//! How busy the parts of a testbed were.

use farsight_fabric_sim::{Station, Utilization};

use super::{Network, Role};

/// A part of a machine: its kind, its units, and the work that it had done.
pub(super) struct PartWork {
    name: &'static str,
    units: usize,
    done_ps: u64,
}

const PARTS: usize = 7;

impl Role {
    fn part_names(self) -> [&'static str; PARTS] {
        match self {
            Self::Compute => [
                "compute nodes: card",
                "compute nodes: link out",
                "compute nodes: link in",
                "compute nodes: atomics' locks",
                "compute nodes: cores",
                "compute nodes: client threads",
                "compute nodes: proxy threads",
            ],
            Self::Memory => [
                "memory nodes: card",
                "memory nodes: link out",
                "memory nodes: link in",
                "memory nodes: atomics' locks",
                "memory nodes: cores",
                "memory nodes: client threads",
                "memory nodes: threads",
            ],
            Self::Metadata => [
                "metadata server: card",
                "metadata server: link out",
                "metadata server: link in",
                "metadata server: atomics' locks",
                "metadata server: cores",
                "metadata server: client threads",
                "metadata server: threads",
            ],
        }
    }
}

impl Network {
    /// What every part has done until now.
    pub(super) fn work(&self) -> Vec<PartWork> {
        let mut work = Vec::new();
        for node in &self.nodes {
            let names = node.size.role.part_names();
            let mut push = |kind: usize, done_ps: u64, units: usize| {
                work.push(PartWork { name: names[kind], units, done_ps });
            };
            let parts: [&Station; 3] = [&node.engine, &node.link_out, &node.link_in];
            for (kind, part) in parts.into_iter().enumerate() {
                push(kind, part.done_ps(self.now_ps), part.units());
            }
            let locks = &node.atomic_locks;
            push(3, locks.done_ps(self.now_ps), locks.used_units().max(1));
            push(4, node.cores.done_ps(self.now_ps), node.cores.units());
            for (number, thread) in node.threads.iter().enumerate() {
                push(if number < node.size.client_threads { 5 } else { 6 }, thread.done_ps, 1);
            }
        }
        work
    }
}

/// How busy each kind of part was between two moments, `lasted_ps` apart.
pub(super) fn between(before: &[PartWork], after: &[PartWork], lasted_ps: u64) -> Vec<Utilization> {
    let mut usage: Vec<Utilization> = Vec::new();
    for (before, after) in before.iter().zip(after) {
        let busy =
            after.done_ps.saturating_sub(before.done_ps) as f64 / lasted_ps as f64 / after.units as f64;
        let Some(kind) = usage.iter_mut().find(|kind| kind.name == after.name) else {
            usage.push(Utilization { name: after.name, parts: 1, mean: busy, most: busy });
            continue;
        };
        kind.mean = (kind.mean * kind.parts as f64 + busy) / (kind.parts + 1) as f64;
        kind.parts += 1;
        kind.most = kind.most.max(busy);
    }
    usage
}

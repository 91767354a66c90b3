//! Draws operations, with what the caches have of their keys.
//!
//! Invariant: caches are not simulated. Whether a compute node has a key in its cache is drawn from the
//! closed form of a cache that drops its oldest entry first ([`Popularity::presence`]). Whether what it has
//! is still the newest is drawn, too. Of N compute nodes' accesses to a key a part u are updates. Only
//! those of one node and the updates of the others matter to that node. So the last of these was the node's
//! own with chance 1 / (1 + u (N - 1)), and the updates since then are geometric.

use farsight_base::prng::{SplitMix64, mix};

use super::VerbMixPlan;
use super::network::Operations;
use super::popularity::{Bin, PARTITIONS, Popularity, unit};
use super::program::{Machine, Stage, ThreadPlace};
use super::system::{Cached, Circumstances, Costs, Kind, System, program};

/// Bytes of a cached address: the key, the slot's place and word, and the entry's own.
const ADDRESS_ENTRY_BYTES: f64 = 64.0;
/// Bytes that a compute node needs of its own memory for a key of a partition that it proxies. The index is
/// 8 B a slot at a load of 65 %, beside the buckets' headers. Counters, sharers and tags are 16 B a slot.
const INDEX_BYTES_PER_KEY: f64 = 14.1 + 24.6;
/// Reads by writes from which a proxy grants copies of a value.
const READS_PER_WRITE_CACHEABLE: f64 = 4.0;

/// Cache hits within the operations so far.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Hits {
    pub(super) searches: u64,
    pub(super) values: u64,
    pub(super) addresses: u64,
}

/// A source of operations.
pub(super) struct Drawn<'a> {
    plan: &'a VerbMixPlan,
    popularity: &'a Popularity,
    costs: Costs,
    /// By partition: the compute node that owns it.
    owners: Vec<Option<Machine>>,
    /// By partition: the memory nodes of its replicas.
    replicas: Vec<Vec<Machine>>,
    presence: Vec<f64>,
    /// What is cached is the newest with this chance.
    newest: f64,
    are_values_cached: bool,
    random: SplitMix64,
    number: u32,
    pub(super) hits: Hits,
}

impl<'a> Drawn<'a> {
    pub(super) fn new(plan: &'a VerbMixPlan, popularity: &'a Popularity, seed: u64) -> Self {
        let nodes = plan.compute_nodes as f64;
        let updates = f64::from(plan.workload.mix().update) / 100.0;
        let are_values_cached =
            plan.system == System::FlexKv && updates * READS_PER_WRITE_CACHEABLE < 1.0 - updates;
        let replicas = |partition: usize| {
            let replica = |number| plan.compute_nodes + (partition + number) % plan.memory_nodes;
            (0..plan.replicas.min(plan.memory_nodes)).map(replica).collect()
        };
        let owners = owners(plan, popularity);
        let presence = presence(plan, popularity, &owners, are_values_cached);
        Self {
            plan,
            popularity,
            costs: plan.costs(),
            owners,
            replicas: (0..PARTITIONS).map(replicas).collect(),
            presence,
            newest: 1.0 / (1.0 + updates * (nodes - 1.0)),
            are_values_cached,
            random: SplitMix64::new(seed),
            number: 0,
            hits: Hits::default(),
        }
    }

    fn strikes(&mut self, chance: f64) -> bool {
        unit(&mut self.random) < chance
    }

    fn kind(&mut self) -> Kind {
        let mix = self.plan.workload.mix();
        let at = self.random.below(100) as u8;
        match at {
            _ if at < mix.update => Kind::Update,
            _ if at < mix.update + mix.insert => Kind::Insert,
            _ => Kind::Search,
        }
    }

    fn cached(&mut self, kind: Kind, bin: usize, is_proxied: bool) -> Cached {
        // FlexKV-OP caches at owners alone.
        if kind == Kind::Insert || self.plan.system == System::FlexKvOp || !self.strikes(self.presence[bin]) {
            return Cached::Nothing;
        }
        let mut newer = 0;
        while newer < 64 && !self.strikes(self.newest) {
            newer += 1;
        }
        match newer {
            0 if is_proxied && self.are_values_cached => Cached::Value,
            // A value that was invalidated is gone.
            _ if is_proxied && self.are_values_cached => Cached::Nothing,
            _ => Cached::Address { newer },
        }
    }

    fn sharers(&mut self, kind: Kind, bin: usize, from: Machine, is_proxied: bool) -> Vec<Machine> {
        if kind != Kind::Update || !is_proxied || !self.are_values_cached {
            return Vec::new();
        }
        let chance = self.presence[bin] * self.newest;
        let others = (0..self.plan.compute_nodes).filter(|node| *node != from);
        others.filter(|_| unit(&mut self.random) < chance).collect()
    }

    fn count(&mut self, kind: Kind, cached: Cached) {
        if kind == Kind::Search {
            self.hits.searches += 1;
            self.hits.values += u64::from(cached == Cached::Value);
            self.hits.addresses += u64::from(cached == Cached::Address { newer: 0 });
        }
    }
}

impl Operations for Drawn<'_> {
    fn next(&mut self, from: ThreadPlace) -> Vec<Stage> {
        let kind = self.kind();
        let key = self.popularity.draw(&mut self.random);
        let owner = self.owners[key.partition];
        let cached = self.cached(kind, key.bin, owner.is_some());
        let sharers = self.sharers(kind, key.bin, from.machine, owner.is_some());
        let is_value_at_owner = self.plan.system == System::FlexKvOp && self.strikes(self.presence[key.bin]);
        self.count(kind, cached);
        self.number = self.number.wrapping_add(1);
        let at = Circumstances {
            kind,
            cached,
            replicas: &self.replicas[key.partition],
            lock: mix(key.bin as u64 ^ (u64::from(self.number) << 32)) as usize,
            partition: key.partition,
            owner,
            is_value_at_owner,
            sharers: &sharers,
            metadata_server: self.plan.compute_nodes + self.plan.memory_nodes,
            number: self.number,
        };
        program(self.plan.system, &self.costs, &at)
    }
}

/// By partition: who proxies it. FlexKV gives each compute node one partition of each rank, and offloads the
/// first ranks; FlexKV-OP distributes all of them as they come.
fn owners(plan: &VerbMixPlan, popularity: &Popularity) -> Vec<Option<Machine>> {
    let ranks = PARTITIONS.div_ceil(plan.compute_nodes);
    let offloaded = (plan.offloaded * ranks as f64).ceil() as usize;
    let owner = |(partition, place): (usize, usize)| match plan.system {
        System::FlexKv if place / plan.compute_nodes < offloaded => Some(place % plan.compute_nodes),
        System::FlexKvOp => Some(partition % plan.compute_nodes),
        _ => None,
    };
    popularity.places().into_iter().enumerate().map(owner).collect()
}

/// By bin: how likely a compute node has a key of it in its cache.
fn presence(
    plan: &VerbMixPlan,
    popularity: &Popularity,
    owners: &[Option<Machine>],
    are_values_cached: bool,
) -> Vec<f64> {
    let value_bytes = ADDRESS_ENTRY_BYTES + plan.pair_bytes as f64;
    let keys_a_node = popularity.keys as f64 / plan.compute_nodes as f64;
    let owned = owners.iter().flatten().count() as f64 / PARTITIONS as f64;
    let left = plan.cache_bytes as f64 - owned * keys_a_node * INDEX_BYTES_PER_KEY;
    if plan.system == System::FlexKvOp {
        // A key is cached by its owner alone: together they are one cache.
        return popularity.presence(left.max(0.0) * plan.compute_nodes as f64, |_| value_bytes);
    }
    let valued = |bin: &Bin| match bin.partition() {
        _ if !are_values_cached => 0.0,
        Some(partition) => f64::from(u8::from(owners[partition].is_some())),
        None => owned,
    };
    popularity.presence(left.max(0.0), |bin| {
        ADDRESS_ENTRY_BYTES + valued(bin) * (value_bytes - ADDRESS_ENTRY_BYTES)
    })
}

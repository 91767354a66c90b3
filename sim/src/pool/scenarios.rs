//! The scenarios of pools: what a seed decides in each.

use std::ops::Range;

use farsight_base::Stamp;
use farsight_base::prng::SplitMix64;
use farsight_client::GroupSizes;
use farsight_fabric_sim::{Fault, Rule};
use farsight_index::ReadsByOthers;
use farsight_layout::hash_index::{HASH_PARTITIONS, KeyHash};
use farsight_oracles::{EightBytes, Embedding as _, Identity};

use crate::Scenario;
use crate::kept::Kept;
use crate::scenario::{self, Choice, HASHED_BYTES, PoolEngine, PoolShape, embedding_of};

/// What strikes verbs, calls, compute nodes and memory nodes for a moment.
const MOMENTARY: [Choice; 11] = [
    (Fault::SlowVerb, 20, 40_000),
    (Fault::SpreadRead, 8, 20_000),
    (Fault::LateCompletion, 20, 40_000),
    (Fault::BrokenQueue, 800, 0),
    (Fault::SlowCall, 4, 60_000),
    (Fault::LostCall, 20, 0),
    (Fault::SlowReply, 4, 60_000),
    (Fault::LostReply, 20, 0),
    (Fault::PausedClient, 400, 3_000_000),
    (Fault::KilledClient, 5_000, 0),
    (Fault::PausedServer, 10, 1_000_000),
];
/// Deaths, most of them under a lock.
const DEATHS: [Choice; 2] = [(Fault::KilledClient, 2_000, 0), (Fault::BrokenQueue, 400, 0)];
/// What lasts longer than a lease: holders that stop, or whose verbs are on their way; and clocks.
const LEASES: [Choice; 4] = [
    (Fault::PausedClient, 3_000, 3_000_000_000),
    (Fault::SlowVerb, 1_500, 1_500_000_000),
    (Fault::LeapingClock, 2_000, 2_000_000_000),
    (Fault::DriftingClock, 200, 0),
];
/// READs whose lines are of moments as far apart as a lease and a repair, beside deaths and stops that make
/// repairs.
const LONG_READS: [Choice; 3] = [
    (Fault::SpreadRead, 200, 1_500_000_000),
    (Fault::KilledClient, 2_000, 0),
    (Fault::PausedClient, 2_000, 2_000_000_000),
];
/// What lasts longer than anybody waits for a compute node that serves.
const STALLS: [Choice; 3] = [
    (Fault::PausedClient, 1_500, 3_000_000_000),
    (Fault::SlowVerb, 1_500, 1_500_000_000),
    (Fault::SlowCall, 300, 1_500_000_000),
];
/// What lasts longer than leases on values: compute nodes that stop, verbs that are late, and clocks that run
/// a tenth too fast or too slow. None leaps: a writer that waits counts on its own.
const VALUE_LEASES: [Choice; 3] = [
    (Fault::PausedClient, 150, 40_000_000),
    (Fault::SlowVerb, 100, 40_000_000),
    (Fault::DriftingClock, 50, 0),
];
/// What strikes the network: for less time than a card repeats, or for more.
const NETWORK: [Choice; 6] = [
    (Fault::CutServer, 8_000, 8_000_000),
    (Fault::CutProgram, 4_000, 8_000_000),
    (Fault::CutToServer, 4_000, 8_000_000),
    (Fault::CutToProgram, 4_000, 8_000_000),
    (Fault::FlappingLink, 4_000, 12_000_000),
    (Fault::GrayServer, 4_000, 3_000_000),
];
/// For so long a pool is struck that takes a node in.
const STRUCK_NS: u64 = 60_000_000;
/// What stops trainers between any two of their verbs.
const STOPS: [Choice; 2] = [(Fault::PausedClient, 100, 3_000_000), (Fault::KilledClient, 2_000, 0)];
const ENDS: [Choice; 1] = [(Fault::CrashedServer, 60, 0)];
/// When they die. Where they die more often than anybody can open a table nobody has to get anywhere; then
/// they stop dying, and everybody has to.
const ENDS_NS: Range<u64> = 0..100_000_000;
/// Ends of all that compute nodes which serve write for. Those go on in the next life.
const RARE_ENDS: [Choice; 1] = [(Fault::CrashedServer, 1_000, 0)];
/// When these are.
const RARE_ENDS_NS: Range<u64> = 0..3_000_000_000;
/// When the queues of a lonely compute node break.
const BREAKS_NS: Range<u64> = 0..15_000_000;
/// Blocks that a session takes at once.
const BLOCKS_AT_ONCE: usize = 64;
/// Sessions of a scenario, with those of successors, that take blocks of one node.
const SESSIONS_MAX: usize = 16;
/// Keys of a scenario whose leaves empty, at most.
const KEYS_OF_WAVES: usize = 60;
/// Leaves of each memory node where waves fill them: fewer than the keys of a wave take.
const LEAVES_UNDER_PRESSURE: usize = 4;
/// Writes of a wave there: enough to write, or to remove, nearly all keys.
const WAVE_WRITES: u64 = 250;
/// Groups of every second trainer, each of a leaf, and of the others, which put them together again.
const CONTRARY_GROUPS: [GroupSizes; 2] =
    [GroupSizes { leaves: 1, saved_min: usize::MAX }, GroupSizes { leaves: 16, saved_min: 1 }];
/// Where compute nodes serve, an operation of so many is behind a rest.
const RESTS_ONE_IN: u64 = 12;
/// Keys of a scenario whose index is split: of two partitions, each of which has 21 slots at first.
const KEYS_OF_GROWTH: usize = 160;
/// Bytes of the table of such a scenario: its index has room for the splits.
const HASHED_BYTES_OF_GROWTH: u64 = 8 << 20;
/// Of the reads, one in so many is a walk over all pairs, which looks at each of the partitions.
const WALKS_ONE_IN: u64 = 24;
/// Operations, counted by key: fewer than of a server's clients, because each is several verbs.
const OPERATIONS: usize = 600;

/// So many keys, each of which is in one of two partitions, or in the same one. `bytes_of` has the key of an
/// identity.
fn keys_of_partitions(seed: u64, count: usize, bytes_of: impl Fn(u64) -> Vec<u8>) -> Vec<Identity> {
    let mut random = SplitMix64::new(seed ^ 0x6772_6f77);
    let partitions = [(); 2].map(|()| random.below(HASH_PARTITIONS as u64) as usize);
    let first = random.next_u64() >> 1;
    let of_them = |key: &u64| partitions.contains(&KeyHash::of(&bytes_of(*key)).partition());
    (first..).filter(of_them).take(count).map(Identity).collect()
}

/// The bytes of an integer that is a key.
fn integer(key: u64) -> Vec<u8> {
    key.to_le_bytes().to_vec()
}

impl Scenario {
    /// Three kinds of fault in a pool, `count` of them from `special`.
    fn in_pool(name: &'static str, seed: u64, special: &[Choice], count: usize) -> Self {
        let plain = Self::with(name, seed, special, count, &MOMENTARY);
        let mut random = SplitMix64::new(seed ^ 0x706f_6f6c);
        let shape = PoolShape {
            memory_nodes: 1 + random.below(3) as usize,
            engine: PoolEngine::Rolex,
            trainers: 1 + random.below(2) as usize,
            proxies: 0,
            reads_by_others: ReadsByOthers::None,
            group_sizes: [GroupSizes::USUAL; 2],
            leaves_one_in: (random.below(2) == 0).then_some(100),
            hashed_bytes: HASHED_BYTES,
            reads_a_write: None,
            replicas: 1,
            loses_node: false,
            repairs_node: false,
        };
        let programs = 1 + random.below(4) as usize;
        Self {
            pool: Some(shape),
            programs,
            operations: OPERATIONS,
            leaves: BLOCKS_AT_ONCE * SESSIONS_MAX,
            writes_percent: plain.writes_percent.max(30),
            ..plain
        }
    }

    /// XStore's parts at two to four memory nodes; otherwise as at one server.
    fn in_parts(name: &'static str, seed: u64, special: &[Choice], count: usize) -> Self {
        let plain = Self::with(name, seed, special, count, &scenario::MOMENTARY);
        let mut random = SplitMix64::new(seed ^ 0x7061_7274);
        let shape = PoolShape {
            memory_nodes: 2 + random.below(3) as usize,
            engine: PoolEngine::XStoreD,
            trainers: 0,
            proxies: 0,
            reads_by_others: ReadsByOthers::None,
            group_sizes: [GroupSizes::USUAL; 2],
            leaves_one_in: (random.below(2) == 0).then_some(200),
            hashed_bytes: HASHED_BYTES,
            reads_a_write: None,
            replicas: 1,
            loses_node: false,
            repairs_node: false,
        };
        Self { pool: Some(shape), ..plain }
    }

    /// FlexKV at one to three memory nodes, whose memory is used again soon.
    fn in_hash(name: &'static str, seed: u64, special: &[Choice], count: usize) -> Self {
        let plain = Self::with(name, seed, special, count, &MOMENTARY);
        let mut random = SplitMix64::new(seed ^ 0x6861_7368);
        let shape = PoolShape {
            memory_nodes: 1 + random.below(3) as usize,
            engine: PoolEngine::FlexKv,
            trainers: 0,
            proxies: 0,
            reads_by_others: ReadsByOthers::None,
            group_sizes: [GroupSizes::USUAL; 2],
            leaves_one_in: (random.below(2) == 0).then_some(100),
            hashed_bytes: HASHED_BYTES,
            reads_a_write: None,
            replicas: 1,
            loses_node: false,
            repairs_node: false,
        };
        Self {
            pool: Some(shape),
            programs: 1 + random.below(4) as usize,
            operations: OPERATIONS,
            scan_ways: &[],
            writes_percent: plain.writes_percent.max(30),
            ..plain
        }
    }

    /// The sample by which an XStore-D table's ranges are cut: of all keys, of the first ones, so that most
    /// are the last node's, or none.
    pub(crate) fn sample(&self) -> Vec<u64> {
        let of_them = [self.keys.len(), self.keys.len().div_ceil(4), 0];
        let of_them = &self.keys[..of_them[(self.seed % 3) as usize]];
        of_them.iter().map(|key| self.embedding.key(*key)).collect()
    }

    pub(crate) fn hashed(seed: u64) -> Self {
        Self::in_hash("hashed", seed, &[], 0)
    }

    pub(crate) fn hashed_deaths(seed: u64) -> Self {
        Self::in_hash("hashed-deaths", seed, &DEATHS, 1 + seed as usize % 2)
    }

    pub(crate) fn hashed_network(seed: u64) -> Self {
        Self::in_hash("hashed-network", seed, &NETWORK, 1 + seed as usize % 2)
    }

    pub(crate) fn hashed_stalls(seed: u64) -> Self {
        Self::in_hash("hashed-stalls", seed, &LEASES, 1 + seed as usize % 2)
    }

    pub(crate) fn hashed_restarts(seed: u64) -> Self {
        let mut plain = Self::in_hash("hashed-restarts", seed, &ENDS, 1);
        for rule in plain.rules.iter_mut().filter(|rule| rule.fault == Fault::CrashedServer) {
            rule.during_ns = ENDS_NS;
        }
        plain
    }

    pub(crate) fn hashed_conditional(seed: u64) -> Self {
        Self::in_hash("hashed-conditional", seed, &[], 0).with_conditional_writes()
    }

    /// Keys of one or two partitions of FlexKV's index, which is split under all that strikes compute nodes:
    /// for a moment, for long, or for good.
    pub(crate) fn hashed_growth(seed: u64) -> Self {
        let special: &[Choice] = [&DEATHS[..], &LEASES, &NETWORK, &[]][seed as usize % 4];
        let plain = Self::in_hash("hashed-growth", seed, special, usize::from(!special.is_empty()));
        let keys = keys_of_partitions(seed, KEYS_OF_GROWTH, integer);
        Self {
            hot_keys: keys.len(),
            // A few, so that most splits happen under load.
            filled_keys: keys.len() / 8,
            writes_percent: 70,
            embedding: EightBytes::Plain,
            keys,
            pool: plain.pool.map(|shape| PoolShape { hashed_bytes: HASHED_BYTES_OF_GROWTH, ..shape }),
            ..plain
        }
    }

    /// Few keys, which compute nodes that serve write for the others, under all that strikes compute nodes,
    /// and over the ends of memory nodes. In a part of these, most writes look at the key. Processes rest now
    /// and then, so that leases end, and who left is found out.
    pub(crate) fn hashed_proxied(seed: u64) -> Self {
        let special: &[Choice] = [&DEATHS[..], &STALLS, &NETWORK, &RARE_ENDS, &[]][seed as usize % 5];
        let mut plain = Self::in_hash("hashed-proxied", seed, special, usize::from(!special.is_empty()));
        for rule in plain.rules.iter_mut().filter(|rule| rule.fault == Fault::CrashedServer) {
            rule.during_ns = RARE_ENDS_NS;
        }
        let mut random = SplitMix64::new(seed ^ 0x7072_6f78);
        let proxies = 1 + random.below(2) as usize;
        let hot_keys = 1 + random.below(4) as usize;
        let reads_by_others = ReadsByOthers::ALL[random.below(3) as usize];
        if random.below(4) == 0 {
            plain = plain.with_conditional_writes();
        }
        Self {
            hot_keys,
            writes_percent: 60,
            rests_one_in: Some(RESTS_ONE_IN),
            pool: plain.pool.map(|shape| PoolShape { proxies, reads_by_others, ..shape }),
            ..plain
        }
    }

    /// Compute nodes keep values of few keys, under all that strikes compute nodes. In a part of these, most
    /// writes are conditional, the index is split, compute nodes serve, or each pair is on several nodes.
    pub(crate) fn hashed_cached(seed: u64) -> Self {
        let name = "hashed-cached";
        let special: &[Choice] =
            [&DEATHS[..], &VALUE_LEASES, &NETWORK, &VALUE_LEASES, &[]][seed as usize % 5];
        let mut plain = Self::in_hash(name, seed, special, usize::from(!special.is_empty()));
        let mut random = SplitMix64::new(seed ^ 0x6b65_7074);
        let hot_keys = 1 + random.below(4) as usize;
        match random.below(6) {
            // Without what lasts: additions whose outcome nobody knows make too many orders to try.
            0 => plain = Self::in_hash(name, seed, &[], 0).with_conditional_writes(),
            1 => plain.keys = keys_of_partitions(seed, KEYS_OF_GROWTH, integer),
            _ => {}
        }
        let is_split = plain.keys.len() == KEYS_OF_GROWTH;
        let proxies = usize::from(random.below(6) == 0);
        let reads_a_write = Some([0, 1, 2, 8][random.below(4) as usize]);
        let writes_percent = [5, 20, 40][random.below(3) as usize];
        let replicas = 1 + random.below(3) as usize;
        let shape = |shape: PoolShape| PoolShape {
            memory_nodes: shape.memory_nodes.max(replicas),
            hashed_bytes: if is_split { HASHED_BYTES_OF_GROWTH } else { shape.hashed_bytes }
                * replicas as u64,
            replicas,
            proxies,
            reads_a_write,
            ..shape
        };
        Self {
            hot_keys: if is_split { plain.keys.len() } else { hot_keys },
            filled_keys: plain.keys.len() / 2,
            writes_percent,
            embedding: if is_split { EightBytes::Plain } else { plain.embedding },
            operations: if plain.conditional_percent > 0 { OPERATIONS } else { 2 * OPERATIONS },
            pool: plain.pool.map(shape),
            ..plain
        }
    }

    /// Each pair is on two or three nodes, under all that strikes compute nodes. A part of these has
    /// keys of one or two partitions, which are split, and another one compute nodes that serve.
    pub(crate) fn hashed_replicas(seed: u64) -> Self {
        let name = "hashed-replicas";
        let special: &[Choice] = [&DEATHS[..], &LEASES, &NETWORK, &[]][seed as usize % 4];
        let of = match seed / 4 % 4 {
            0 => Self { name, ..Self::hashed_growth(seed) },
            1 => Self { name, ..Self::hashed_conditional(seed) },
            _ => Self::in_hash(name, seed, special, usize::from(!special.is_empty())),
        };
        let mut random = SplitMix64::new(seed ^ 0x7265_706c);
        let memory_nodes = 2 + random.below(2) as usize;
        let replicas = 2 + random.below(memory_nodes as u64 - 1) as usize;
        let proxies = usize::from(seed / 4 % 4 == 2);
        let shape = |shape: PoolShape| {
            let hashed_bytes = shape.hashed_bytes * replicas as u64;
            PoolShape { memory_nodes, proxies, hashed_bytes, replicas, ..shape }
        };
        Self { pool: of.pool.map(shape), hot_keys: of.hot_keys.min(8), ..of }
    }

    /// A pool of three or four nodes that have each pair twice at least loses one of them: at once, or its
    /// processor while its card goes on. Now and then a compute node dies, too. In a part of these compute
    /// nodes keep values.
    pub(crate) fn hashed_losses(seed: u64) -> Self {
        let name = "hashed-losses";
        let of = match seed % 3 {
            0 => Self::in_hash(name, seed, &[], 0),
            1 => Self::in_hash(name, seed, &DEATHS, 1),
            _ => Self { name, ..Self::hashed_growth(seed / 4 * 4 + 3) },
        };
        let mut random = SplitMix64::new(seed ^ 0x6c6f_7374);
        let memory_nodes = 3 + random.below(2) as usize;
        let replicas = 2 + random.below(2) as usize;
        let reads_a_write = [None, None, Some(0), Some(2)][random.below(4) as usize];
        let shape = |shape: PoolShape| {
            let hashed_bytes = shape.hashed_bytes * replicas as u64;
            PoolShape { memory_nodes, hashed_bytes, replicas, reads_a_write, loses_node: true, ..shape }
        };
        Self { pool: of.pool.map(shape), seed, hot_keys: of.hot_keys.min(8), ..of }
    }

    /// Keys are byte strings, under all that strikes compute nodes. Parts of these have conditional writes,
    /// compute nodes that serve, kept values, replicas or splits of the index.
    pub(crate) fn hashed_strings(seed: u64) -> Self {
        let name = "hashed-strings";
        let special: &[Choice] = [&DEATHS[..], &LEASES, &NETWORK, &[]][seed as usize % 4];
        let of = match seed / 4 % 6 {
            0 => Self::hashed_conditional(seed),
            1 => Self::hashed_proxied(seed),
            2 => Self::hashed_cached(seed),
            3 => Self::hashed_replicas(seed),
            4 => Self::hashed_growth(seed),
            _ => Self::in_hash(name, seed, special, usize::from(!special.is_empty())),
        };
        let filler_bytes_max = [0, 8, 40, 150][SplitMix64::new(seed ^ 0x6279_7465).below(4) as usize];
        let mut of = Self { name, filler_bytes_max: Some(filler_bytes_max), ..of };
        if of.keys.len() == KEYS_OF_GROWTH
            && let Some(strings) = of.table_keys().strings()
        {
            of.keys = keys_of_partitions(seed, KEYS_OF_GROWTH, |key| strings.key(Identity(key)));
        }
        // An object takes some lines more.
        let shape = |shape: PoolShape| PoolShape { hashed_bytes: shape.hashed_bytes * 4, ..shape };
        Self { pool: of.pool.map(shape), ..of }
    }

    /// Compute nodes walk over all pairs of FlexKV's index while it is split, as in `hashed-growth`. In a
    /// part of these, each pair is on two or three nodes.
    pub(crate) fn hashed_walks(seed: u64) -> Self {
        let name = "hashed-walks";
        let of = match seed / 4 % 4 {
            0 => Self::hashed_replicas(seed),
            _ => Self::hashed_growth(seed),
        };
        Self { name, walks_one_in: Some(WALKS_ONE_IN), ..of }
    }

    /// The same, and the node comes back empty and is taken in again. Then another one dies.
    pub(crate) fn hashed_repairs(seed: u64) -> Self {
        let of = Self { name: "hashed-repairs", ..Self::hashed_losses(seed) };
        // Each attempt ends all compute nodes, with what they have in hand.
        let shape = |shape: PoolShape| PoolShape {
            repairs_node: true,
            hashed_bytes: 16 * shape.hashed_bytes,
            ..shape
        };
        // Nobody copies a pool over connections that break each millisecond. So they stop breaking.
        let rules = of.rules.iter().map(|rule| Rule { during_ns: 0..STRUCK_NS, ..*rule }).collect();
        // So long that some of it happens behind the repair.
        Self { pool: of.pool.map(shape), rules, operations: 3 * of.operations, ..of }
    }

    /// FlexKV's name leads to one table after another, or to none.
    pub(crate) fn hashed_names(seed: u64) -> Self {
        Self { changes_names: true, ..Self::in_hash("hashed-names", seed, &[], 0) }
    }

    pub(crate) fn parts(seed: u64) -> Self {
        Self::in_parts("parts", seed, &[], 0)
    }

    pub(crate) fn parts_network(seed: u64) -> Self {
        Self::in_parts("parts-network", seed, &scenario::NETWORK, 2)
    }

    pub(crate) fn parts_restarts(seed: u64) -> Self {
        Self::in_parts("parts-restarts", seed, &scenario::ENDS, 1 + seed as usize % 2)
    }

    pub(crate) fn parts_stalls(seed: u64) -> Self {
        Self::in_parts("parts-stalls", seed, &scenario::STALLS, 2)
    }

    /// The parts' name leads to the parts of one table after another, or to none.
    pub(crate) fn parts_names(seed: u64) -> Self {
        Self { changes_names: true, writes_percent: 60, ..Self::in_parts("parts-names", seed, &[], 0) }
    }

    /// The same of ROLEX.
    pub(crate) fn pool_names(seed: u64) -> Self {
        Self { changes_names: true, ..Self::in_pool("pool-names", seed, &[], 0) }
    }

    /// Three nodes keep their parts of a table: each dies for itself, or its machine does.
    pub(crate) fn parts_kept(seed: u64) -> Self {
        let plain = Self::in_parts("parts-kept", seed, &[], 0).with_conditional_writes();
        let pool = plain.pool.map(|shape| PoolShape { memory_nodes: 3, ..shape });
        Self { kept: Some(Kept::of_seed(seed)), pool, ..plain }
    }

    pub(crate) fn parts_conditional(seed: u64) -> Self {
        Self::in_parts("parts-conditional", seed, &[], 0).with_conditional_writes()
    }

    pub(crate) fn pool_conditional(seed: u64) -> Self {
        Self::in_pool("pool-conditional", seed, &[], 0).with_conditional_writes()
    }

    pub(crate) fn pool(seed: u64) -> Self {
        Self::in_pool("pool", seed, &[], 0)
    }

    /// Where there is one compute node, it stays the only one: its queues break, its connections do not, so
    /// nobody else takes its locks over. They break for a while: or who waits for a lock would be cut off,
    /// too.
    pub(crate) fn pool_deaths(seed: u64) -> Self {
        use Fault::{BrokenQueue, KilledClient, LostCall, LostReply};
        let mut plain = Self::in_pool("pool-deaths", seed, &DEATHS, 1 + seed as usize % 2);
        if let (1, Some(shape)) = (plain.programs, &mut plain.pool) {
            shape.leaves_one_in = None;
            plain
                .rules
                .retain(|rule| ![BrokenQueue, KilledClient, LostCall, LostReply].contains(&rule.fault));
            plain.rules.push(Rule { during_ns: BREAKS_NS, ..Rule::always(BrokenQueue, 200, 0) });
        }
        plain
    }

    pub(crate) fn pool_leases(seed: u64) -> Self {
        Self::in_pool("pool-leases", seed, &LEASES, 1 + seed as usize % 2)
    }

    pub(crate) fn pool_network(seed: u64) -> Self {
        Self::in_pool("pool-network", seed, &NETWORK, 1 + seed as usize % 2)
    }

    /// Several trainers, beside compute nodes that come with empty caches and ask for what is published.
    pub(crate) fn pool_trainers(seed: u64) -> Self {
        let plain = Self::in_pool("pool-trainers", seed, &STOPS, 1 + seed as usize % 2);
        let trainers = 3 + (seed / 2) as usize % 2;
        let shape = plain.pool.map(|shape| PoolShape { trainers, leaves_one_in: Some(25), ..shape });
        Self { pool: shape, writes_percent: 60, ..plain }
    }

    /// Few keys, which are all written and all removed in turns, so that leaves empty.
    pub(crate) fn pool_merges(seed: u64) -> Self {
        let plain = Self::in_pool("pool-merges", seed, &STOPS, seed as usize % 2);
        let keys: Vec<Identity> = plain.keys.into_iter().take(KEYS_OF_WAVES).collect();
        Self {
            pool: plain.pool.map(|shape| PoolShape { trainers: 4, leaves_one_in: None, ..shape }),
            hot_keys: keys.len(),
            filled_keys: keys.len(),
            writes_percent: 80,
            wave_writes: Some(WAVE_WRITES),
            operations: 3 * OPERATIONS,
            embedding: embedding_of(seed, &keys),
            keys,
            ..plain
        }
    }

    /// The same, with trainers that disagree: one cuts groups into leaves, the next puts them together.
    pub(crate) fn pool_groups(seed: u64) -> Self {
        let plain = Self::pool_merges(seed);
        let shape = plain.pool.map(|shape| PoolShape { group_sizes: CONTRARY_GROUPS, ..shape });
        Self { name: "pool-groups", pool: shape, ..plain }
    }

    /// Waves of keys in leaves whose versions and incarnations are near their ends, so that they begin again
    /// while readers, writers and trainers meet.
    pub(crate) fn pool_wraps(seed: u64) -> Self {
        let left = SplitMix64::new(seed ^ 0x7772_6170).below(40) as u32;
        let first_stamp = Stamp::new(u32::MAX - 1 - 2 * left, (1 << 24) - 1 - left % 4, 0);
        Self { name: "pool-wraps", first_stamp, ..Self::pool_merges(seed) }
    }

    /// READs that are under way while leaves are repaired.
    pub(crate) fn pool_repairs(seed: u64) -> Self {
        Self::in_pool("pool-repairs", seed, &LONG_READS, LONG_READS.len())
    }

    /// Waves that fill the memory of two or three nodes: splits go to whichever has room, and merges make
    /// some again.
    pub(crate) fn pool_pressure(seed: u64) -> Self {
        let plain = Self::pool_merges(seed);
        let shape = |shape: PoolShape| PoolShape { memory_nodes: 2 + seed as usize % 2, ..shape };
        Self {
            name: "pool-pressure",
            pool: plain.pool.map(shape),
            leaves: LEAVES_UNDER_PRESSURE,
            may_be_full: true,
            ..plain
        }
    }

    pub(crate) fn pool_restarts(seed: u64) -> Self {
        let mut plain = Self::in_pool("pool-restarts", seed, &ENDS, 1);
        for rule in plain.rules.iter_mut().filter(|rule| rule.fault == Fault::CrashedServer) {
            rule.during_ns = ENDS_NS;
        }
        plain
    }

    /// A pool with room for a part of what is written.
    pub(crate) fn pool_full(seed: u64) -> Self {
        let plain = Self::in_pool("pool-full", seed, &[], 0);
        Self { leaves: 2 + plain.keys.len() / 40, may_be_full: true, writes_percent: 60, ..plain }
    }
}

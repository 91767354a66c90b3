//! A scenario: all that one seed decides.

use farsight_base::prng::{SplitMix64, mix};
use farsight_base::{Line, Stamp};
use farsight_client::{EngineKind, GroupSizes};
use farsight_fabric_sim::{Fault, Rule};
use farsight_index::ReadsByOthers;
use farsight_layout::{NEXT_WORD, PAIR_VERSION_BITS};
use farsight_oracles::{EightBytes, Identity};
use farsight_protocol::Direction;

use crate::kept::Kept;
use crate::store::TableKeys;

/// What a scenario is made of.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name in the catalogue, with which a user runs it again.
    pub name: &'static str,
    /// The seed of all that happens in it.
    pub seed: u64,
    /// Client programs, each with a connection and a cache.
    pub programs: usize,
    /// Client processes, each with a session; they take turns in belonging to the programs.
    pub processes: usize,
    /// Operations of all of them, counted by key.
    pub operations: usize,
    /// Fault classes at work.
    pub rules: Vec<Rule>,
    /// A card that promises nothing beyond the contract, or a reliable connection.
    pub is_weakest: bool,
    /// The server's workers.
    pub workers: usize,
    /// Bytes of a value; where values have any length, of the reference in the leaf.
    pub value_bytes: u16,
    /// Values have any length, and bytes of blocks to this number.
    pub block_bytes: Option<u64>,
    /// Their lengths then.
    pub block_lengths: &'static [usize],
    /// Writes of a hundred operations.
    pub writes_percent: u64,
    /// Of a hundred writes, those that look at the key first. Where there are some, and values are integers,
    /// some of the keys are counters.
    pub conditional_percent: u64,
    /// Where what is written comes in waves: of so many writes, in every second one of which most are
    /// removals.
    pub wave_writes: Option<u64>,
    /// One operation in so many is behind a rest.
    pub rests_one_in: Option<u64>,
    /// Of the reads, one in so many is a walk over all pairs.
    pub walks_one_in: Option<u64>,
    /// The ways that scans go.
    pub scan_ways: &'static [Direction],
    /// Keys that may be written, ascending.
    pub keys: Vec<Identity>,
    /// Where they lie in the table's key space, if its keys are integers.
    pub embedding: EightBytes,
    /// Keys are byte strings, with so many bytes of filler at most.
    pub filler_bytes_max: Option<usize>,
    /// The first of them, which half of the operations go to.
    pub hot_keys: usize,
    /// Keys written before the processes begin.
    pub filled_keys: usize,
    /// Leaves that the table has room for.
    pub leaves: usize,
    /// True if they may not suffice.
    pub may_be_full: bool,
    /// The last version that the table leaves out.
    pub versions_left_out: u64,
    /// Of a server's calls, one in so many is parked, and answered after a while.
    pub parks_one_in: Option<u64>,
    /// The stamp of the table's lines before they are used.
    pub first_stamp: Stamp,
    /// The bits of a leaf's lines that may flip on their way to a reader.
    pub flips: Vec<Line>,
    /// The table is dropped, made again, renamed and swapped.
    pub changes_names: bool,
    /// What caches may take changes, up to so many bytes. Sub-models are small then, so that there are many.
    pub budget_bytes_max: Option<u64>,
    /// Servers keep their tables on disks, where the next ones find them.
    pub kept: Option<Kept>,
    /// A pool of memory nodes instead of a server.
    pub pool: Option<PoolShape>,
}

/// What the table of a pool is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolEngine {
    /// ROLEX.
    Rolex,
    /// XStore's parts, which the memory nodes' processors write and train.
    XStoreD,
    /// FlexKV.
    FlexKv,
}

impl PoolEngine {
    /// As tables are made.
    pub(crate) fn kind(self) -> &'static EngineKind {
        match self {
            Self::Rolex => EngineKind::ROLEX,
            Self::XStoreD => EngineKind::XSTORE_D,
            Self::FlexKv => EngineKind::FLEXKV,
        }
    }
}

/// A pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolShape {
    /// Memory nodes.
    pub memory_nodes: usize,
    /// What its table is of.
    pub engine: PoolEngine,
    /// Who trains, each a compute node of its own.
    pub trainers: usize,
    /// Compute nodes that write for the others of a FlexKV table.
    pub proxies: usize,
    /// What they do for GETs of the others.
    pub reads_by_others: ReadsByOthers,
    /// The sizes of groups that they make, in turns.
    pub group_sizes: [GroupSizes; 2],
    /// Of the operations, one in so many is a process's last in its compute node: a new one joins.
    pub leaves_one_in: Option<u64>,
    /// Bytes of a FlexKV table on each node.
    pub hashed_bytes: u64,
    /// Compute nodes keep values of a FlexKV table, once keys were read so many times as often as written.
    pub reads_a_write: Option<u32>,
    /// On how many of its nodes each pair of a FlexKV table is.
    pub replicas: usize,
    /// One of its nodes dies, and does not come back.
    pub loses_node: bool,
    /// It comes back empty and is taken in again, and another one dies.
    pub repairs_node: bool,
}

/// Bytes of a FlexKV table whose memory is used again soon: an index of the least size, and objects for a few
/// keys more than there are.
pub(crate) const HASHED_BYTES: u64 = 1 << 20;

/// A kind of fault: one occasion in so many, lasting up to so long.
pub(crate) type Choice = (Fault, u64, u64);

/// What strikes verbs, calls, clients and servers for a moment.
pub(crate) const MOMENTARY: [Choice; 12] = [
    (Fault::SlowVerb, 20, 40_000),
    (Fault::SpreadRead, 8, 20_000),
    (Fault::LateCompletion, 20, 40_000),
    (Fault::BrokenQueue, 150, 0),
    (Fault::SlowWriter, 150, 30_000),
    (Fault::SlowCall, 15, 60_000),
    (Fault::LostCall, 60, 0),
    (Fault::SlowReply, 15, 60_000),
    (Fault::LostReply, 60, 0),
    (Fault::PausedClient, 150, 3_000_000),
    (Fault::KilledClient, 1_500, 0),
    (Fault::PausedServer, 60, 1_000_000),
];
/// Ends of servers.
pub(crate) const ENDS: [Choice; 2] = [(Fault::CrashedServer, 800, 0), (Fault::FrozenServer, 800, 500_000)];
/// What strikes the network: for less time than a card repeats, or for more.
pub(crate) const NETWORK: [Choice; 6] = [
    (Fault::CutServer, 1_500, 8_000_000),
    (Fault::CutProgram, 600, 8_000_000),
    (Fault::CutToServer, 600, 8_000_000),
    (Fault::CutToProgram, 600, 8_000_000),
    (Fault::FlappingLink, 600, 12_000_000),
    (Fault::GrayServer, 1_000, 3_000_000),
];
/// What strikes clocks: leaps beyond every timeout.
const CLOCKS: [Choice; 2] = [(Fault::DriftingClock, 200, 0), (Fault::LeapingClock, 500, 9_000_000_000)];
/// Stops that are longer than anybody waits.
pub(crate) const STALLS: [Choice; 3] = [
    (Fault::PausedClient, 1_500, 20_000_000_000),
    (Fault::PausedServer, 800, 12_000_000_000),
    (Fault::SlowWriter, 400, 1_000_000),
];
/// Frames that are none.
const FRAMES: [Choice; 2] = [(Fault::TruncatedRequest, 80, 0), (Fault::TruncatedReply, 80, 0)];
const FLIPS: [Choice; 1] = [(Fault::FlippedBit, 12, 0)];
const DECAY: [Choice; 1] = [(Fault::DecayedBit, 60, 0)];
/// Faults of the first kind that a scenario draws.
const DRAWN: usize = 3;
/// The most versions that a table has left where they are to end.
const VERSIONS_LEFT_MAX: u64 = 1_200;
/// Keys that come and go in waves, at most, and the writes of a wave: enough to write or to remove most.
const KEYS_OF_WAVES: usize = 120;
const WAVE_WRITES: u64 = 200;
/// Hot keys at most where writes look at keys first: so few that what was read is often there still, or just
/// changed.
const HOT_KEYS_OF_CONDITIONS: usize = 6;
/// Bytes of a budget at most: more than the model of any table here takes.
const BUDGET_BYTES_MAX: u64 = 40 << 10;
/// Lengths of values that have any: a line, some, many, and more than a reference says.
const BLOCK_LENGTHS: [usize; 5] = [8, 100, 1_000, 3_000, 17_000];
/// The same where some go in pieces: short ones, what a message just carries, and two to four pieces.
const LONG_LENGTHS: [usize; 6] = [8, 100, 1_000, 65_400, 66_000, 200_000];
/// Operations where values are so long: each store of theirs is an event.
const OPERATIONS_OF_LONG: usize = 1_000;
/// Keys there at most.
const KEYS_OF_LONG: usize = 12;
/// Bytes of blocks of servers that keep their tables: twice what all values have that are the longest.
const BLOCK_BYTES_OF_KEPT: u64 = 4 << 20;
/// Leaves that a table has room for besides one for every four keys, where there shall be enough.
const LEAVES_SPARE: usize = 32;

/// Where the keys of a seed lie. Its randomness is its own: all else that a seed decides is as it was when
/// every key was plain.
pub(crate) fn embedding_of(seed: u64, keys: &[Identity]) -> EightBytes {
    let last = keys.last().copied().unwrap_or_default();
    EightBytes::draw(&mut SplitMix64::new(mix(seed ^ 0x6b65_7973)), last)
}

fn draw(random: &mut SplitMix64, from: &[Choice], count: usize, rules: &mut Vec<Rule>) {
    let enough = rules.len() + count;
    while rules.len() < enough {
        let (fault, one_in, lasts_ns) = from[random.below(from.len() as u64) as usize];
        if rules.iter().all(|rule| rule.fault != fault) {
            rules.push(Rule::always(fault, one_in, lasts_ns));
        }
    }
}

impl Scenario {
    /// The scenario of `seed`: faults that last a moment.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        Self::of_server("mixed", seed, &[], 0)
    }

    /// Three kinds of fault at a server, `count` of them from `special`.
    fn of_server(name: &'static str, seed: u64, special: &[Choice], count: usize) -> Self {
        Self::with(name, seed, special, count, &MOMENTARY)
    }

    /// Three kinds of fault, `count` of them from `special`, the others from `usual`.
    pub(crate) fn with(
        name: &'static str,
        seed: u64,
        special: &[Choice],
        count: usize,
        usual: &[Choice],
    ) -> Self {
        let mut random = SplitMix64::new(seed);
        let mut rules: Vec<Rule> = Vec::new();
        draw(&mut random, special, count, &mut rules);
        draw(&mut random, usual, DRAWN - count, &mut rules);
        let count = 40 + random.below(260);
        let gap_max = [1, 3, 1 << 20, 1 << 50][random.below(4) as usize];
        let mut key = random.below(2) * random.below(1 << 60);
        let keys: Vec<Identity> = (0..count)
            .map(|_| {
                key += 1 + random.below(gap_max);
                Identity(key)
            })
            .collect();
        Self {
            name,
            seed,
            programs: 2,
            processes: 8,
            operations: 2_000,
            rules,
            is_weakest: random.below(2) == 0,
            workers: 1 + random.below(2) as usize,
            value_bytes: [8, 8, 16, 56, 100][random.below(5) as usize],
            block_bytes: None,
            block_lengths: &BLOCK_LENGTHS,
            writes_percent: [5, 30, 60][random.below(3) as usize],
            hot_keys: 1 + random.below(count / 2) as usize,
            filled_keys: random.below(count) as usize,
            leaves: LEAVES_SPARE + keys.len() / 4,
            may_be_full: false,
            conditional_percent: 0,
            wave_writes: None,
            rests_one_in: None,
            walks_one_in: None,
            scan_ways: &Direction::ALL,
            versions_left_out: 0,
            parks_one_in: None,
            first_stamp: Stamp(0),
            flips: Vec::new(),
            changes_names: false,
            budget_bytes_max: None,
            kept: None,
            pool: None,
            embedding: embedding_of(seed, &keys),
            filler_bytes_max: None,
            keys,
        }
    }

    /// What its identities are as keys of its table.
    pub(crate) fn table_keys(&self) -> TableKeys {
        match self.filler_bytes_max {
            None => TableKeys::Integers(self.embedding),
            Some(filler_bytes_max) => TableKeys::Bytes { filler_bytes_max },
        }
    }

    pub(crate) fn restarts(seed: u64) -> Self {
        Self::of_server("restarts", seed, &ENDS, 1 + seed as usize % 2)
    }

    pub(crate) fn network(seed: u64) -> Self {
        Self::of_server("network", seed, &NETWORK, 2)
    }

    pub(crate) fn clocks(seed: u64) -> Self {
        Self::of_server("clocks", seed, &CLOCKS, 1 + seed as usize % 2)
    }

    pub(crate) fn stalls(seed: u64) -> Self {
        Self::of_server("stalls", seed, &STALLS, 2)
    }

    pub(crate) fn frames(seed: u64) -> Self {
        Self::of_server("frames", seed, &FRAMES, 1 + seed as usize % 2)
    }

    /// A table with room for a part of what is written.
    pub(crate) fn full(seed: u64) -> Self {
        let plain = Self::of_server("full", seed, &[], 0);
        Self { leaves: 2 + plain.keys.len() / 30, may_be_full: true, writes_percent: 60, ..plain }
    }

    /// Versions and incarnations of all lines end soon.
    pub(crate) fn wraps(seed: u64) -> Self {
        let left = seed as u32 % 8;
        let first_stamp = Stamp::new(u32::MAX - 1 - 2 * left, (1 << 24) - 1 - left % 4, 0);
        Self { first_stamp, writes_percent: 60, ..Self::of_server("wraps", seed, &[], 0) }
    }

    /// The table's versions end while it is written.
    pub(crate) fn versions(seed: u64) -> Self {
        let left = 100 + SplitMix64::new(!seed).below(VERSIONS_LEFT_MAX);
        let versions_left_out = (1 << PAIR_VERSION_BITS) - left;
        Self { versions_left_out, writes_percent: 60, ..Self::of_server("versions", seed, &[], 0) }
    }

    /// The server answers many calls later, in another order than they came, or when their clients have left.
    pub(crate) fn parked(seed: u64) -> Self {
        let parks_one_in = Some(1 + seed % 3);
        Self { parks_one_in, writes_percent: 60, ..Self::of_server("parked", seed, &[], 0) }
    }

    /// Pairs that come and go in waves, so that leaves fill, and are merged again, under old caches.
    pub(crate) fn merges(seed: u64) -> Self {
        let plain = Self::of_server("merges", seed, &[], 0);
        let keys: Vec<Identity> = plain.keys.into_iter().take(KEYS_OF_WAVES).collect();
        Self {
            hot_keys: keys.len(),
            filled_keys: keys.len(),
            writes_percent: 60,
            wave_writes: Some(WAVE_WRITES),
            embedding: embedding_of(seed, &keys),
            keys,
            ..plain
        }
    }

    /// Caches have budgets, which change, and drive out what others are using.
    pub(crate) fn budgets(seed: u64) -> Self {
        Self { budget_bytes_max: Some(BUDGET_BYTES_MAX), ..Self::of_server("budgets", seed, &[], 0) }
    }

    /// Writes that look at few keys first, and counters.
    pub(crate) fn conditional(seed: u64) -> Self {
        Self::of_server("conditional", seed, &[], 0).with_conditional_writes()
    }

    /// Most writes look at the key first; in every second seed there are counters.
    pub(crate) fn with_conditional_writes(self) -> Self {
        let value_bytes = if self.seed.is_multiple_of(2) { 8 } else { self.value_bytes };
        let hot_keys = self.hot_keys.min(HOT_KEYS_OF_CONDITIONS);
        Self { conditional_percent: 70, writes_percent: 60, hot_keys, value_bytes, ..self }
    }

    /// Values have any length. What blocks may take is so little that memory is used again at once, or so
    /// much that it waits in quarantine.
    pub(crate) fn blocks(seed: u64) -> Self {
        let plain = Self::of_server("blocks", seed, &[], 0);
        let keys: Vec<Identity> = plain.keys.into_iter().take(KEYS_OF_WAVES).collect();
        Self {
            value_bytes: 8,
            block_bytes: Some([256 << 10, 1 << 20, 4 << 20][seed as usize % 3]),
            may_be_full: true,
            writes_percent: 60,
            hot_keys: 1 + keys.len() / 8,
            filled_keys: keys.len(),
            embedding: embedding_of(seed, &keys),
            keys,
            ..plain
        }
    }

    /// Values of any length, and writes that look at them first.
    pub(crate) fn blocks_conditional(seed: u64) -> Self {
        let blocks = Self::blocks(seed).with_conditional_writes();
        // What leaves hold: references.
        Self { name: "blocks-conditional", value_bytes: 8, ..blocks }
    }

    /// Some values go in pieces, and come so where the server finds them. Clients die or lose their
    /// connections between any two pieces. In every second seed writes look at values first.
    pub(crate) fn blocks_long(seed: u64) -> Self {
        let blocks = Self::blocks(seed);
        let keys: Vec<Identity> = blocks.keys.into_iter().take(KEYS_OF_LONG).collect();
        let long = Self {
            block_bytes: Some([4 << 20, 16 << 20][(seed / 2) as usize % 2]),
            block_lengths: &LONG_LENGTHS,
            operations: OPERATIONS_OF_LONG,
            hot_keys: 1 + keys.len() / 4,
            filled_keys: keys.len() / 2,
            embedding: embedding_of(seed, &keys),
            keys,
            ..blocks
        };
        let long = if seed.is_multiple_of(2) { long.with_conditional_writes() } else { long };
        Self { name: "blocks-long", value_bytes: 8, ..long }
    }

    /// Servers die, or their machines do, under additions and comparisons. The next ones find their tables,
    /// and know the calls that are repeated. In some seeds values have any length.
    pub(crate) fn kept(seed: u64) -> Self {
        let plain = if seed % 4 == 3 {
            // Memory that was nearly full is cut up in another way by a recovery, and may not suffice.
            Self { block_bytes: Some(BLOCK_BYTES_OF_KEPT), ..Self::blocks_conditional(seed) }
        } else {
            Self::of_server("kept", seed, &[], 0).with_conditional_writes()
        };
        Self { name: "kept", kept: Some(Kept::of_seed(seed)), ..plain }
    }

    /// The table's name leads to one table after another, or to none.
    pub(crate) fn names(seed: u64) -> Self {
        Self { changes_names: true, writes_percent: 60, ..Self::of_server("names", seed, &[], 0) }
    }

    /// Bits flip in what leads a reader: the fields of stamps, and the number of the sibling. Bits do not
    /// flip where they would make another true leaf of one. A reader cannot tell a flipped bit of a key, a
    /// value, a fence or an occupancy. Nor can it tell one of the low bits of an incarnation, which is the
    /// next one then. A version's bit may hide that a value's lines are of two writes: such answers are
    /// counted ([`crate::hidden_tear`]).
    pub(crate) fn flips(seed: u64) -> Self {
        Self::of_server("flips", seed, &FLIPS, 1).with_flips(u32::MAX)
    }

    /// The same bits flip in memory and stay so, but of versions the lowest alone: lines of one value that
    /// count on from different numbers may meet at one.
    pub(crate) fn decay(seed: u64) -> Self {
        Self::of_server("decay", seed, &DECAY, 1).with_flips(1)
    }

    /// Whether memory loses bits.
    pub(crate) fn decays(&self) -> bool {
        self.rules.iter().any(|rule| rule.fault == Fault::DecayedBit)
    }

    /// With these bits of versions, the high ones of incarnations and the siblings' numbers.
    fn with_flips(self, version: u32) -> Self {
        let plain = self;
        let geometry = plain.geometry();
        let stamp = Stamp::new(version, 0xff_0000, 0).0;
        let mut lines = vec![Line([stamp, 0, 0, 0, 0, 0, 0, 0]); geometry.leaf_lines()];
        lines[0].0[NEXT_WORD] = u64::from(u32::MAX);
        Self { flips: lines, ..plain }
    }
}

//! GETs and SCANs whose every line may be of another moment, or torn: the worst interleavings, drawn at
//! random instead of waited for.

use std::collections::BTreeMap;

use farsight::{Access, WriteOperation};
use farsight_base::prng::SplitMix64;
use farsight_conformance::engine::harness::XStore;
use farsight_conformance::engine::model::{Model, random_value};
use farsight_conformance::engine::past_reads::{History, PastQueue};
use farsight_conformance::engine::raw_table::RawTable;
use farsight_conformance::engine::{EngineUnderTest, Seed, Stored, TableUnderTest};
use farsight_fabric::QueuePair;
use farsight_index::{Answers, Direction, Pairs, ScanRequest};
use farsight_index_xstore::client::{XCache, XClient};
use farsight_layout::Geometry;
use farsight_oracles::{EightBytes, Embedding as _, Identity};

/// Leaves whose history is kept: more than the tests' keys ever need.
const LEAVES: usize = 24;
/// Moments of the longest window.
const WINDOW_MAX: usize = 40;
const KEYS: u64 = 60;
/// Where the keys lie: those between them are never there.
const EMBEDDING: EightBytes = EightBytes::Spread { first: 0, stride: 1 << 20 };
const ROUNDS: usize = 4_000;
const READS_PER_ROUND: usize = 12;

/// What the table held at each moment of the history.
type States = Vec<BTreeMap<Identity, Stored>>;

struct Run {
    random: SplitMix64,
    value_bytes: usize,
    model: Model<EightBytes>,
    history: History,
    states: States,
    odd_lines: u64,
    one_sided: u64,
}

impl Run {
    /// One write, or a run of them that counts as one moment each.
    fn write(
        &mut self,
        table: &mut RawTable,
        session: &mut impl farsight_conformance::engine::SessionUnderTest<Key = u64>,
    ) {
        let start = self.random.below(KEYS);
        let length = if self.random.below(4) == 0 { 16 } else { 1 + self.random.below(3) };
        let operation = match self.random.below(5) {
            0 => WriteOperation::Update,
            1 | 2 => WriteOperation::Remove,
            _ => WriteOperation::Put,
        };
        for key in start..(start + length).min(KEYS) {
            let bytes = if operation == WriteOperation::Remove { 0 } else { self.value_bytes };
            let entry = (Identity(key), random_value(&mut self.random, bytes));
            self.model.write(session, operation, &[entry], false);
            self.record(table);
        }
    }

    fn record(&mut self, table: &mut RawTable) {
        let geometry = Geometry::new(self.value_bytes).expect("a value size");
        self.history.record(&mut table.queue, table.info.region(), LEAVES * geometry.leaf_lines());
        self.states.push(self.model.pairs().clone());
        if self.states.len() > 4 * WINDOW_MAX {
            self.history.keep_last(2 * WINDOW_MAX);
            self.states.drain(..self.states.len() - 2 * WINDOW_MAX);
        }
    }

    fn window(&mut self) -> usize {
        let longest = if self.random.below(2) == 0 { WINDOW_MAX } else { 4 };
        self.random.below(longest.min(self.history.len()) as u64) as usize
    }

    fn get(&mut self, table: &mut RawTable, client: &mut XClient) {
        let key = EMBEDDING.key(Identity(self.random.below(KEYS))) + u64::from(self.random.below(8) == 0);
        let window = self.window();
        let random = SplitMix64::new(self.random.next_u64());
        let calls = table.queue.meters().calls;
        let mut queue = PastQueue::new(&mut table.queue, &self.history, window, random);
        let found = if self.random.below(2) == 0 {
            let mut answers = Answers::default();
            client.multi_get(&mut queue, &[key], &mut answers).expect("a get in a batch");
            answers.get(0).map(|(value, version)| (value.to_vec(), version))
        } else {
            let mut value = vec![0; self.value_bytes];
            let version = client.get(&mut queue, key, &mut value).expect("a get alone");
            version.map(|version| (value, version))
        };
        self.odd_lines += queue.odd_lines();
        self.one_sided += u64::from(table.queue.meters().calls == calls);
        let states = &self.states[self.states.len() - 1 - window..];
        let Some(identity) = EMBEDDING.identity(&key) else {
            return assert_eq!(found, None, "key {key}, which nobody wrote");
        };
        let was_so = states.iter().any(|state| state.get(&identity) == found.as_ref());
        assert!(
            was_so,
            "{identity} never was {found:?} in {window} moments: {}",
            history_of(states, identity)
        );
    }

    fn scan(&mut self, table: &mut RawTable, client: &mut XClient) {
        let from = EMBEDDING.key(Identity(self.random.below(KEYS + 1)));
        let from = from.saturating_sub(self.random.below(2));
        let limit = [1, 7, 30, 100][self.random.below(4) as usize];
        let window = self.window();
        let random = SplitMix64::new(self.random.next_u64());
        let mut queue = PastQueue::new(&mut table.queue, &self.history, window, random);
        let mut pairs = Pairs::default();
        client
            .scan_batch(&mut queue, Direction::Ascending, &[ScanRequest { from, limit }], &mut pairs)
            .expect("a scan");
        self.odd_lines += queue.odd_lines();
        let states = &self.states[self.states.len() - 1 - window..];
        let found: Vec<_> =
            pairs.scan(0).map(|pair| (pair.key, (pair.value.to_vec(), pair.version))).collect();
        let end = if found.len() < limit { u64::MAX } else { found[found.len() - 1].0 };
        assert!(found.windows(2).all(|two| two[0].0 < two[1].0), "keys that do not ascend");
        assert!(found.first().is_none_or(|first| first.0 >= from), "a key before {from}");
        let whose = |key: &u64| EMBEDDING.identity(key).expect("a scan finds keys that were written");
        let found: BTreeMap<Identity, Stored> =
            found.into_iter().map(|(key, stored)| (whose(&key), stored)).collect();
        let passed = |key: &Identity| (from..=end).contains(&EMBEDDING.key(*key));
        for key in (0..KEYS).map(Identity).filter(passed) {
            let was_so = states.iter().any(|state| state.get(&key) == found.get(&key));
            let found = found.get(&key);
            assert!(was_so, "{key} never was {found:?} in {window} moments: {}", history_of(states, key));
        }
    }
}

fn history_of(states: &[BTreeMap<Identity, Stored>], key: Identity) -> String {
    let versions: Vec<_> = states.iter().map(|state| state.get(&key).map(|stored| stored.1)).collect();
    format!("versions {versions:?}")
}

fn run(value_bytes: usize) {
    let seed = Seed::new(&format!("interleavings, values of {value_bytes} B"));
    let server = XStore::start(1 << 20, 1);
    let made = server.table(value_bytes);
    let mut session = made.session(Access::Rpc);
    let mut table = RawTable::open(&server.socket(), made.name());
    let mut run = Run {
        random: seed.random(0),
        value_bytes,
        model: Model::new(EMBEDDING),
        history: History::default(),
        states: States::default(),
        odd_lines: 0,
        one_sided: 0,
    };
    run.record(&mut table);
    let new_client = |table: &RawTable| {
        let cache = XCache::new(&table.info, table.region_bytes).expect("a cache");
        XClient::new(cache, Access::OneSided)
    };
    let mut clients = [new_client(&table), new_client(&table)];
    for round in 0..ROUNDS {
        run.write(&mut table, &mut session);
        if round % 100 == 99 {
            // One of the caches grows older than the other.
            clients[0] = new_client(&table);
        }
        for _ in 0..READS_PER_ROUND {
            let client = &mut clients[run.random.below(2) as usize];
            if run.random.below(4) == 0 {
                run.scan(&mut table, client);
            } else {
                run.get(&mut table, client);
            }
        }
    }
    let leaves = server.server().stats().tables[0].leaves.used_bytes() / 64;
    let geometry = Geometry::new(value_bytes).expect("a value size");
    assert!(leaves <= (LEAVES * geometry.leaf_lines()) as u64, "the history misses leaves: {leaves} lines");
    let (odd_lines, one_sided) = (run.odd_lines, run.one_sided);
    println!("{value_bytes} B: {odd_lines} odd lines, {one_sided} gets without a call");
    assert!(
        odd_lines > 1_000 && one_sided > (ROUNDS * READS_PER_ROUND / 4) as u64,
        "{odd_lines}, {one_sided}"
    );
}

#[test]
fn values_of_one_word() {
    run(8);
}

#[test]
fn values_of_two_words() {
    run(16);
}

#[test]
fn values_of_a_line() {
    run(40);
}

#[test]
fn values_of_two_lines() {
    run(100);
}

#[test]
fn values_of_five_lines() {
    run(256);
}

//! A scenario: all that one seed decides, run to its end and judged.
//!
//! The judges: no value that nobody wrote; each key's answers explained by one order that respects real time,
//! scans included (every key that a scan passes is read by it); after the last fault the server answers, has
//! trained, holds as many pairs as are found, and no client; every process ended within its virtual time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::prng::SplitMix64;
use farsight_client::{Access, ScanRequest};
use farsight_fabric_sim::{Fault, Kind, ReliableConnection, Rule, Simulation, Timing, Weakest};
use farsight_layout::Geometry;
use farsight_protocol::{KeyKind, TableDefinition, TableStats, WriteOperation};
use farsight_server::ServerOptions;

use crate::classes::{Coverage, Mark};
use crate::client::{self, Client, Plan};
use crate::journal::{Action, Entry, Journal};
use crate::linear;
use crate::node::Node;
use crate::program::Programs;

const ADDRESS: &str = "sim://server";
const TABLE: &str = "table";
/// Leaves that a table's region holds besides one for every four keys: more than a scenario fills.
const LEAVES_SPARE: usize = 32;
/// No scenario lasts as long in virtual time.
const LASTS_MAX: Duration = Duration::from_secs(30);
/// Virtual time that training may take after the last write.
const TRAINING_MAX: Duration = Duration::from_secs(5);
/// Keys of one batch while looking back.
const BATCH_OF_READS: usize = 100;
/// Keys of one write while the table is filled.
const FILL_BATCH: usize = 64;

/// What a scenario is made of.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name in the catalogue, for whoever wants to see it again.
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
    /// Bytes of a value.
    pub value_bytes: u16,
    /// Writes of a hundred operations.
    pub writes_percent: u64,
    /// Keys that may be written, ascending.
    pub keys: Vec<u64>,
    /// The first of them, which half of the operations go to.
    pub hot_keys: usize,
    /// Keys written before the processes begin.
    pub filled_keys: usize,
}

/// What came of a scenario that passed.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// Entries of its journal.
    pub entries: usize,
    /// Writes that nobody knows the outcome of.
    pub unknown_writes: usize,
    /// Reads that found their key, and that did not.
    pub found: usize,
    /// Reads that did not find their key.
    pub absent: usize,
    /// Leaves that the server split.
    pub splits: u64,
    /// Events of the simulation.
    pub events: u64,
    /// Virtual time.
    pub lasted: Duration,
    /// The number of all that happened.
    pub trace_hash: u64,
    /// What it met.
    pub coverage: Coverage,
}

impl Report {
    fn of(entries: &[Entry], coverage: Coverage) -> Self {
        let count =
            |wanted: fn(&Action) -> bool| entries.iter().filter(|entry| wanted(&entry.action)).count();
        Self {
            entries: entries.len(),
            unknown_writes: count(|action| matches!(action, Action::Write { outcome: None, .. })),
            found: count(|action| matches!(action, Action::Read(Some(_)))),
            absent: count(|action| matches!(action, Action::Read(None))),
            coverage,
            ..Self::default()
        }
    }
}

/// Why a scenario failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The scenario's name.
    pub scenario: &'static str,
    /// Its seed.
    pub seed: u64,
    /// What was found.
    pub what: String,
    /// The entries that contradict each other.
    pub entries: Vec<Entry>,
    /// What happened, if it was kept.
    pub trace: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}scenario {} seed {}: {}", self.trace, self.scenario, self.seed, self.what)?;
        for Entry { key, process, begin, end, action } in &self.entries {
            write!(f, "\n  process {process} key {key} [{begin}, {end}] {action:?}")?;
        }
        Ok(())
    }
}

/// The faults of which a scenario draws three: one occasion in so many, lasting up to so long.
const FAULTS: [(Fault, u64, u64); 12] = [
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
const FAULTS_DRAWN: usize = 3;

impl Scenario {
    /// The scenario of `seed`.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let mut rules: Vec<Rule> = Vec::new();
        while rules.len() < FAULTS_DRAWN {
            let (fault, one_in, lasts_ns) = FAULTS[random.below(FAULTS.len() as u64) as usize];
            if rules.iter().all(|rule| rule.fault != fault) {
                rules.push(Rule::always(fault, one_in, lasts_ns));
            }
        }
        let count = 40 + random.below(260);
        let gap_max = [1, 3, 1 << 20, 1 << 50][random.below(4) as usize];
        let mut key = random.below(2) * random.below(1 << 60);
        let keys: Vec<u64> = (0..count)
            .map(|_| {
                key += 1 + random.below(gap_max);
                key
            })
            .collect();
        Self {
            name: "mixed",
            seed,
            programs: 2,
            processes: 8,
            operations: 2_000,
            rules,
            is_weakest: random.below(2) == 0,
            workers: 1 + random.below(2) as usize,
            value_bytes: [8, 8, 16, 56, 100][random.below(5) as usize],
            writes_percent: [5, 30, 60][random.below(3) as usize],
            hot_keys: 1 + random.below(count / 2) as usize,
            filled_keys: random.below(count) as usize,
            keys,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// [`Failure`], with what happened in words if `keeps_trace`.
    pub fn run(&self, keeps_trace: bool) -> Result<Report, Box<Failure>> {
        if self.is_weakest {
            self.run_on::<Weakest>(keeps_trace)
        } else {
            self.run_on::<ReliableConnection>(keeps_trace)
        }
    }

    fn table_memory_bytes(&self) -> u64 {
        let geometry = Geometry::new(usize::from(self.value_bytes)).expect("a size that the format knows");
        ((LEAVES_SPARE + self.keys.len() / 4) * geometry.leaf_bytes()) as u64
    }

    fn run_on<K: Kind>(&self, keeps_trace: bool) -> Result<Report, Box<Failure>> {
        let simulation = Simulation::new(self.seed, Timing::default(), Vec::new());
        if keeps_trace {
            simulation.keep_trace();
        }
        let journal = Journal::default();
        let fail = |what: String, entries: Vec<Entry>| {
            Box::new(Failure {
                scenario: self.name,
                seed: self.seed,
                what,
                entries,
                trace: simulation.trace(),
            })
        };
        let options = ServerOptions {
            workers: self.workers,
            table_memory_bytes: self.table_memory_bytes(),
            ..ServerOptions::default()
        };
        let node = Node::<K>::start(&simulation, ADDRESS, &options, self.seed);
        let programs = Arc::new(Programs::<K>::default());
        let keys = Arc::new(self.keys.clone());
        let plan = |process: usize| Plan {
            simulation: simulation.clone(),
            journal: journal.clone(),
            programs: Arc::clone(&programs),
            group: process % self.programs,
            address: ADDRESS,
            table: TABLE,
            keys: Arc::clone(&keys),
            hot_keys: self.hot_keys,
            writes_percent: self.writes_percent,
            access: if process % 4 == 3 { Access::Rpc } else { Access::OneSided },
            operations: self.operations / self.processes,
            process,
            seed: self.seed ^ (process as u64) << 32,
        };
        // Who fills the table and looks back is a program of its own, which no rule kills.
        let bystander = Arc::new(Plan { group: usize::MAX, ..plan(self.processes) });
        self.fill::<K>(&node, &bystander).map_err(|what| fail(what, Vec::new()))?;
        simulation.set_rules(self.rules.clone());
        for process in 0..self.processes {
            start(plan(process), self.programs);
        }
        let deadline = MonotonicNs(0).plus(LASTS_MAX);
        let all_ended = simulation.run_processes(deadline);
        let strikes = simulation.strikes();
        simulation.set_rules(Vec::new());
        if !all_ended {
            return Err(fail(format!("a process still waits after {LASTS_MAX:?}"), Vec::new()));
        }
        let pairs = self.look_back(&node, &bystander).map_err(|what| fail(what, Vec::new()))?;
        // What follows asks the server for its statistics, in which the machine's own time stands.
        let (events, trace_hash) = (simulation.events(), simulation.trace_hash());
        let stats = check_counts(&node, &bystander, pairs).map_err(|what| fail(what, Vec::new()))?;
        journal.mark(Mark::Retrained, stats.model.retrained + stats.model.generation.saturating_sub(1));
        if let Some(complaint) = journal.complaint() {
            return Err(fail(complaint, Vec::new()));
        }
        let entries = journal.entries();
        linear::check(&entries).map_err(|violation| {
            fail(format!("key {}: {}", violation.key, violation.what), violation.entries)
        })?;
        let mut coverage = journal.coverage();
        coverage.strikes = strikes;
        let lasted = simulation.now().since(MonotonicNs(0));
        Ok(Report { events, trace_hash, lasted, splits: stats.tree.splits, ..Report::of(&entries, coverage) })
    }

    /// Makes the table and writes some keys, before any fault.
    fn fill<K: Kind>(&self, node: &Node<K>, plan: &Arc<Plan<K>>) -> Result<(), String> {
        let definition =
            TableDefinition { name: TABLE.to_owned(), key_kind: KeyKind::U64, value_bytes: self.value_bytes };
        let client = node.connect().map_err(|error| error.to_string())?;
        client.create_table(definition).map_err(|error| error.to_string())?;
        let mut writer = Client::<K>::open(plan, self.seed).map_err(|_| "no session".to_owned())?;
        let mut random = SplitMix64::new(!self.seed);
        let filled: Vec<u64> =
            (0..self.filled_keys).map(|_| self.keys[random.below(self.keys.len() as u64) as usize]).collect();
        for keys in filled.chunks(FILL_BATCH) {
            writer.write_keys(WriteOperation::Put, keys).map_err(|_| "the table is not filled".to_owned())?;
        }
        Ok(())
    }

    /// After the last fault: training ends, and everything is read again. Returns the pairs found.
    fn look_back<K: Kind>(&self, node: &Node<K>, plan: &Arc<Plan<K>>) -> Result<usize, String> {
        if let Some(failure) = node.failure() {
            return Err(format!("the server met a bug: {failure}"));
        }
        let client = node.connect().map_err(|error| broken(&error))?;
        let deadline = node.simulation().now().plus(TRAINING_MAX);
        while client.pending_training().map_err(|error| broken(&error))? > 0 {
            if node.simulation().now() > deadline {
                return Err(format!("training does not end within {TRAINING_MAX:?}"));
            }
            node.simulation().sleep(Duration::from_micros(100));
        }
        let mut reader = Client::<K>::open(plan, self.seed).map_err(|_| broken(&"no session"))?;
        reader.prefill().map_err(|_| broken(&"the model cannot be fetched"))?;
        for keys in self.keys.chunks(BATCH_OF_READS) {
            reader.read_keys(keys).map_err(|_| broken(&"a read failed"))?;
        }
        let counters = reader.counters();
        if counters.sibling_steps + counters.fallbacks > 0 {
            return Err(format!("a model that has caught up leads astray: {counters:?}"));
        }
        let everything = [ScanRequest { from: 0, limit: usize::MAX }];
        reader.scan_from(&everything).map_err(|_| broken(&"a scan failed"))
    }
}

fn broken(error: &dyn fmt::Display) -> String {
    format!("looking back: {error}")
}

/// The server counts as many pairs as were found, and no client once all have gone. Returns what it
/// says of the table.
fn check_counts<K: Kind>(node: &Node<K>, plan: &Plan<K>, pairs: usize) -> Result<TableStats, String> {
    let client = node.connect().map_err(|error| broken(&error))?;
    let mut stats = client.stats().map_err(|error| broken(&error))?;
    let table = stats.tables.drain(..).next().ok_or("no table is left")?;
    if table.tree.pairs != pairs as u64 {
        return Err(format!("the server counts {} pairs, a scan finds {pairs}", table.tree.pairs));
    }
    drop(client);
    plan.programs.close();
    match node.client_count() {
        0 => Ok(table),
        left => Err(format!("the server still counts {left} clients")),
    }
}

/// Starts a process; if its program is killed, the rest of its plan goes to the program's successor.
fn start<K: Kind>(plan: Plan<K>, programs: usize) {
    let (simulation, name) = (plan.simulation.clone(), format!("process {}", plan.process));
    let plan = Arc::new(plan);
    simulation.process(&name, plan.group, move || {
        let left = client::run::<K>(&plan);
        if left > 0 {
            let Some(plan) = Arc::into_inner(plan) else { unreachable!("its clients are gone") };
            let group = plan.group + programs;
            start(Plan { group, operations: left, seed: !plan.seed, ..plan }, programs);
        }
    });
}

//! The suite of the engine contract over XStore on the simulated fabric: one thread, the real server and
//! client, READs that take their lines from many moments.

use std::time::Duration;

use farsight::{Access, Answers, WriteOperation, WriteOutcome};
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_client::{ScanCursor, ScanRequest, Session, Table, WriteError};
use farsight_conformance::engine::{EngineUnderTest, SessionUnderTest, Stored, TableUnderTest};
use farsight_fabric_sim::{Kind, ReliableConnection, SimConnection, Simulation, Timing, Weakest};
use farsight_index::Pairs;
use farsight_protocol::{KeyKind, TableDefinition};
use farsight_server::ServerOptions;
use farsight_sim::Node;

/// Virtual time that training may take.
const PATIENCE: Duration = Duration::from_secs(60);

struct SimStore<K: Kind> {
    node: Node<K>,
    tables: AtomicU64,
}

impl<K: Kind> SimStore<K> {
    fn start(seed: u64) -> Self {
        let simulation = Simulation::new(seed, Timing::default(), Vec::new());
        let options = ServerOptions { workers: 2, table_memory_bytes: 16 << 20, ..ServerOptions::default() };
        Self { node: Node::start(&simulation, "sim://server", &options, seed), tables: AtomicU64::new(0) }
    }
}

impl<K: Kind> EngineUnderTest for SimStore<K> {
    type Table = SimTable<K>;

    fn table(&self, value_bytes: usize) -> SimTable<K> {
        // Relaxed: the number only has to differ.
        let name = format!("t{}", self.tables.fetch_add(1, Ordering::Relaxed));
        let value_bytes = u16::try_from(value_bytes).expect("a short value");
        let definition = TableDefinition { name, key_kind: KeyKind::U64, value_bytes };
        let client = self.node.connect().expect("a client");
        let table = client.create_table(definition).expect("a new table");
        SimTable { simulation: self.node.simulation().clone(), table }
    }
}

struct SimTable<K: Kind> {
    simulation: Simulation,
    table: Table<SimConnection<K>>,
}

impl<K: Kind> TableUnderTest for SimTable<K> {
    type Session = SimSession<K>;

    fn session(&self, access: Access) -> SimSession<K> {
        let client = farsight_sim::connect(&self.simulation, "sim://server").expect("a client");
        let table = client.open_table(self.table.name()).expect("the table");
        let session = table.session(access).expect("a session");
        SimSession { session, answers: Answers::default(), pairs: Pairs::default() }
    }

    fn await_training(&self) {
        let deadline = self.simulation.now().plus(PATIENCE);
        let client = farsight_sim::connect::<K>(&self.simulation, "sim://server").expect("a client");
        while client.pending_training().expect("an answer") > 0 {
            assert!(self.simulation.now() < deadline, "training does not end");
            self.simulation.sleep(Duration::from_millis(1));
        }
    }
}

struct SimSession<K: Kind> {
    session: Session<SimConnection<K>>,
    answers: Answers,
    pairs: Pairs,
}

impl<K: Kind> SessionUnderTest for SimSession<K> {
    fn write(&mut self, operation: WriteOperation, entries: &[(u64, Vec<u8>)]) -> Vec<WriteOutcome> {
        if let [(key, value)] = entries {
            return vec![match self.session.write_one(operation, *key, value) {
                Ok(outcome) => outcome,
                Err(WriteError::Refused { code, .. }) => WriteOutcome::Failed(code),
                Err(error) => panic!("a write failed: {error}"),
            }];
        }
        let mut outcomes = Vec::new();
        let pairs = entries.iter().map(|(key, value)| (*key, value.as_slice()));
        self.session.write(operation, pairs, &mut outcomes).expect("a batch of writes");
        outcomes
    }

    fn get(&mut self, key: u64) -> Option<Stored> {
        let mut value = vec![0; self.session.table().value_bytes()];
        let version = self.session.get(key, &mut value).expect("a get");
        version.map(|version| (value, version))
    }

    fn multi_get(&mut self, keys: &[u64]) -> Vec<Option<Stored>> {
        self.session.multi_get(keys, &mut self.answers).expect("a batch of gets");
        self.answers.iter().map(|answer| answer.map(|(value, version)| (value.to_vec(), version))).collect()
    }

    fn scan_batch(&mut self, scans: &[(u64, usize)]) -> Vec<Vec<(u64, Stored)>> {
        let requests: Vec<ScanRequest> =
            scans.iter().map(|(from, limit)| ScanRequest { from: *from, limit: *limit }).collect();
        self.session.scan_batch(&requests, &mut self.pairs).expect("a batch of scans");
        let scan = |index| self.pairs.scan(index).map(|pair| (pair.key, (pair.value.to_vec(), pair.version)));
        (0..scans.len()).map(|index| scan(index).collect()).collect()
    }

    fn scan_all(&mut self, from: u64) -> Vec<(u64, Stored)> {
        let mut cursor = ScanCursor::new(from, u64::MAX);
        let mut all = Vec::new();
        while let Some(pair) = cursor.next(&mut self.session).expect("a scan") {
            all.push((pair.key, (pair.value.to_vec(), pair.version)));
        }
        all
    }
}

mod weakest {
    use super::{SimStore, Weakest};

    farsight_conformance::engine_suite!(SimStore::<Weakest>::start(1));
}

mod reliable_connection {
    use super::{ReliableConnection, SimStore};

    farsight_conformance::engine_suite!(SimStore::<ReliableConnection>::start(2));
}

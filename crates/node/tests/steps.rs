//! A server without threads: the test takes its steps, one after the other.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::local_host::{LocalClient, LocalHost};
use common::talk::{create_at, definition};
use farsight_base::clock::MonotonicNs;
use farsight_base::sync::Ordering;
use farsight_base::{LeafNumber, RegionId};
use farsight_fabric::Region;
use farsight_layout::Geometry;
use farsight_node::{Background, BackgroundState, NodeOptions, NodeState, PASS_PAUSE, Worker};
use farsight_protocol::{
    ControlRequest, ErrorCode, Reply, Request, TableDefinition, TableId, TableInfo, ValueEntries, ValueKind,
    WriteEntries, WriteEntry, WriteOperation,
};

const BUDGET: usize = 16;

struct Stepped {
    host: Arc<LocalHost>,
    state: Arc<NodeState>,
    worker: Worker,
    background: Background,
    client: LocalClient,
    now: MonotonicNs,
}

impl Stepped {
    fn new() -> Self {
        let host = LocalHost::new();
        let options = NodeOptions { table_memory_bytes: 8 << 20, ..NodeOptions::default() };
        let state = NodeState::new(vec![host.clone()], &options, MonotonicNs(0)).unwrap();
        let worker = Worker::open(&state, 0, "the worker").unwrap();
        let background = Background::new(Arc::clone(&state));
        let client = host.connect();
        Self { host, state, worker, background, client, now: MonotonicNs(0) }
    }

    fn call(&mut self, frame: &[u8]) -> Vec<u8> {
        self.client.send(frame);
        self.now = self.now.plus(Duration::from_micros(10));
        assert_eq!(self.worker.step(self.now, BUDGET), 1);
        self.client.receive()
    }

    fn create(&mut self, name: &str) -> TableInfo {
        self.create_as(definition(name, 8))
    }

    fn create_as(&mut self, definition: TableDefinition) -> TableInfo {
        let mut frame = Vec::new();
        let request = create_at(self.state.epoch().0, definition);
        Request::control(&mut frame, &request);
        Reply::decode(&self.call(&frame)).unwrap().unwrap().control().unwrap()
    }

    fn put(&mut self, table: &TableInfo, keys: impl Iterator<Item = u64>) {
        let keys: Vec<u64> = keys.collect();
        for keys in keys.chunks(500) {
            let mut frame = Vec::new();
            Request::begin_write(&mut frame, table.id, WriteOperation::Put, keys.len(), 8);
            for key in keys {
                let value = key.to_le_bytes();
                let entry = WriteEntry { key: *key, hint: LeafNumber::NONE, value: &value };
                WriteEntries::push(&mut frame, entry);
            }
            assert!(Reply::decode(&self.call(&frame)).unwrap().is_ok());
        }
    }

    /// Steps until nothing is left; returns how many steps that took.
    fn run_background(&mut self) -> usize {
        for steps in 1..100_000 {
            self.now = self.now.plus(Duration::from_micros(100));
            if self.background.step(self.now, BUDGET) == (BackgroundState::Idle { again_at: None }) {
                return steps;
            }
        }
        panic!("the background is never done");
    }

    /// Runs the pass that is due when its pause has passed; returns its pieces.
    fn run_pass(&mut self) -> usize {
        self.now = self.now.plus(PASS_PAUSE);
        for pieces in 0..1_000 {
            match self.background.step(self.now, BUDGET) {
                BackgroundState::Idle { again_at: Some(at) } => self.now = at,
                _ => return pieces,
            }
        }
        panic!("the pass never ends");
    }
}

#[test]
fn the_budget_bounds_a_worker_s_step() {
    let mut server = Stepped::new();
    let mut frame = Vec::new();
    Request::control(&mut frame, &ControlRequest::ListTables { from: TableId(0) });
    for _ in 0..BUDGET + 3 {
        server.client.send(&frame);
    }
    assert_eq!(server.worker.step(server.now, BUDGET), BUDGET);
    assert_eq!(server.worker.step(server.now, BUDGET), 3);
    assert_eq!(server.worker.step(server.now, BUDGET), 0);
    assert_eq!(server.state.stats(server.now).calls, BUDGET as u64 + 3);
}

#[test]
fn training_and_collapsing_go_on_in_steps_and_come_to_an_end() {
    let mut server = Stepped::new();
    let table = server.create("stepped");
    server.put(&table, (0..60_000).map(|key| key * 11));
    let due = server.state.stats(server.now);
    assert_eq!((due.tables[0].part().model.generation, due.tables[0].huge_page_bytes), (0, 0));
    let steps = server.run_background();
    assert!(steps > 10, "{steps} steps of {BUDGET} sub-models");
    let trained = server.state.stats(server.now);
    let (model, counted) = (trained.tables[0].part().model, &trained.tables[0]);
    assert!(model.generation == 1 && model.sub_models > 100 && model.pending == 0, "{model:?}");
    assert_eq!(counted.huge_page_bytes, counted.leaves.used_bytes() >> 21 << 21);
    assert_eq!(server.host.region(RegionId(0)).huge_page_bytes(), counted.huge_page_bytes);
    assert_eq!(server.run_background(), 1, "nothing is left");

    server.put(&table, (0..2_000).map(|key| key * 11 + 1));
    let waiting = server.state.stats(server.now).tables[0].part().model;
    assert!(waiting.pending > 0 && waiting.generation == 1, "{waiting:?}");
    server.now = server.now.plus(Duration::from_millis(7));
    assert!(server.state.stats(server.now).tables[0].part().model.lag_ns >= 7_000_000);
    server.run_background();
    let caught_up = server.state.stats(server.now).tables[0].part().model;
    assert!(caught_up.pending == 0 && caught_up.lag_ns == 0 && caught_up.retrained > 0, "{caught_up:?}");
}

/// Stamps that memory lost a bit of, in leaves for which nobody calls.
#[test]
fn a_pass_repairs_leaves_for_which_nobody_asks() {
    let mut server = Stepped::new();
    let table = server.create("stepped");
    server.put(&table, (0..20_000).map(|key| key * 11));
    server.run_background();
    let leaf_words = Geometry::new(8).expect("a size of the format").leaf_words();
    let damaged = [3, 4, 700];
    for leaf in damaged {
        // "Being written", by nobody.
        server.host.region(RegionId(0)).words()[leaf * leaf_words].fetch_xor(1, Ordering::Relaxed);
    }
    let scrubbed = |server: &Stepped| server.state.stats(server.now).tables[0].part().tree.scrubbed;
    server.run_background();
    assert_eq!(scrubbed(&server), 0, "no pass is due");
    let pieces = server.run_pass();
    assert!(pieces > 20, "{pieces} pieces of 20,000 pairs");
    assert_eq!(scrubbed(&server), damaged.len() as u64);
}

/// Blocks that memory lost a bit of: a pass goes on behind each, and clients are refused those pairs alone.
#[test]
fn a_pass_goes_on_behind_damaged_blocks() {
    let mut server = Stepped::new();
    let values = ValueKind::blocks(100);
    let table = server.create_as(TableDefinition { values, ..definition("blocks", 8) });
    let mut frame = Vec::new();
    Request::begin_write_values(&mut frame, table.id, WriteOperation::Put, 300);
    for key in 0..300_u64 {
        let value = [key as u8; 20];
        ValueEntries::push(&mut frame, WriteEntry { key, hint: LeafNumber::NONE, value: &value });
    }
    assert!(Reply::decode(&server.call(&frame)).unwrap().is_ok());
    server.run_background();
    let region = server.host.region(RegionId(1));
    // The values' first words, each in a line of its own.
    let of_value = |byte: u8| {
        let value = u64::from_le_bytes([byte; 8]);
        region.words().iter().find(|word| word.load(Ordering::Relaxed) == value).expect("its block")
    };
    for key in [7, 8, 255] {
        of_value(key).fetch_xor(1 << 40, Ordering::Relaxed);
    }
    assert!((5..12).contains(&server.run_pass()), "three pieces, and one behind each that is damaged");
    assert_eq!(server.state.stats(server.now).damage_found, 3);
    let mut get = |key: u64| {
        let mut frame = Vec::new();
        Request::get_values(&mut frame, table.id, &[key]);
        Reply::decode(&server.call(&frame)).unwrap().map(drop).map_err(|error| error.code)
    };
    assert_eq!(
        [6, 7, 8, 9].map(&mut get),
        [Ok(()), Err(ErrorCode::Damaged), Err(ErrorCode::Damaged), Ok(())]
    );
}

//! A node, with a log or without, whose steps a test takes.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::sync::{AtomicBool, Ordering};
use farsight_node::{Background, BackgroundState, NodeOptions, NodeState, Sequencer, Snapshots, Worker};
use farsight_protocol::{
    ControlRequest, PairsReader, Reply, Request, ServerError, TableDefinition, TableInfo,
};

use super::local_host::{LocalClient, LocalHost};
use super::talk::create_at;

/// Does `work` while another thread takes the steps of the log, for which it may wait.
pub fn beside_log<T>(sequencer: &mut Sequencer, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            // Relaxed: a flag.
            while !is_over.load(Ordering::Relaxed) {
                if !sequencer.step() {
                    thread::sleep(Duration::from_micros(50));
                }
            }
        });
        let outcome = catch_unwind(AssertUnwindSafe(work));
        is_over.store(true, Ordering::Relaxed);
        outcome
    });
    outcome.unwrap_or_else(|panic| resume_unwind(panic))
}

/// A node whose steps the test takes, in the test's own thread.
pub struct SteppedNode {
    pub state: Arc<NodeState>,
    worker: Worker,
    sequencer: Option<Sequencer>,
    snapshots: Option<Snapshots>,
    background: Background,
    client: LocalClient,
    pub host: Arc<LocalHost>,
    pub now: MonotonicNs,
}

impl SteppedNode {
    pub fn start(options: &NodeOptions) -> Self {
        let host = LocalHost::new();
        let state = NodeState::new(vec![host.clone()], options, MonotonicNs(0)).expect("a node");
        let sequencer = state.recover().expect("what a restart finds");
        let worker = Worker::open(&state, 0, "the worker").expect("a worker");
        // As long as a step takes by the node's clock.
        let background = Background::by_processor_time(Arc::clone(&state), || Duration::ZERO);
        let (snapshots, client) = (state.snapshots(), host.connect());
        Self { state, worker, sequencer, snapshots, background, client, host, now: MonotonicNs(0) }
    }

    pub fn call(&mut self, frame: &[u8]) -> Vec<u8> {
        self.client.send(frame);
        self.now = self.now.plus(Duration::from_micros(10));
        self.worker.step(self.now, 16);
        if let Some(sequencer) = &mut self.sequencer {
            sequencer.step();
            // What it answered is sent.
            self.worker.step(self.now, 16);
        }
        self.client.receive()
    }

    /// Calls that come together: their answers, in the order in which they come back.
    pub fn call_together(&mut self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        for frame in frames {
            self.client.send(frame);
        }
        self.worker.step(self.now, frames.len());
        if let Some(sequencer) = &mut self.sequencer {
            sequencer.step();
            self.worker.step(self.now, frames.len());
        }
        frames.iter().map(|_| self.client.receive()).collect()
    }

    pub fn create(&mut self, definition: TableDefinition) -> TableInfo {
        self.try_create(definition).expect("a table")
    }

    pub fn try_create(&mut self, definition: TableDefinition) -> Result<TableInfo, ServerError> {
        let mut frame = Vec::new();
        Request::control(&mut frame, &create_at(self.state.epoch().0, definition));
        let reply = self.call(&frame);
        Ok(Reply::decode(&reply).expect("a reply")?.control().expect("its description"))
    }

    /// Repairs what is damaged, and makes the snapshots that are due, in this thread.
    pub fn step_snapshots(&mut self) {
        let (sequencer, snapshots) = (self.sequencer.as_mut(), self.snapshots.as_mut());
        let step = || snapshots.expect("a log").step(&|| false);
        beside_log(sequencer.expect("a log"), step).expect("snapshots");
    }

    /// A round of snapshots.
    pub fn make_snapshots(&mut self) {
        let mut frame = Vec::new();
        Request::control(&mut frame, &ControlRequest::BeginSnapshots);
        assert!(Reply::decode(&self.call(&frame)).expect("a reply").is_ok());
        self.step_snapshots();
    }

    /// What is stored of a value of any length, and its version.
    pub fn stored(&mut self, table: &TableInfo, key: u64) -> Option<(u64, Vec<u8>)> {
        let mut frame = Vec::new();
        Request::get_values(&mut frame, table.id, &[key]);
        let reply = self.call(&frame);
        let reply = Reply::decode(&reply).expect("a reply").expect("an answer");
        let (version, value) = PairsReader::of_any_length(reply.words().unwrap()).value().unwrap();
        (version != 0).then(|| (version, value.to_vec()))
    }

    /// Lets so much time pass for the background.
    pub fn rest(&mut self, duration: Duration) {
        let end = self.now.plus(duration);
        while self.now < end {
            self.now = match self.background.step(self.now, 16) {
                BackgroundState::Idle { again_at } => again_at.map_or(end, |at| at.min(end)),
                BackgroundState::Working => self.now.plus(Duration::from_micros(100)),
            };
        }
    }
}

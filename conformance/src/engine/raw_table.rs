//! A table as the fabric shows it: a queue pair of one's own, an engine over it, and a server whose training
//! the test drives by hand.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use farsight_base::clock::{Clock, SystemClock};
use farsight_base::sync::{AtomicBool, Ordering};
use farsight_fabric::lane::Lane;
use farsight_fabric::{Connection, Host, QueuePair};
use farsight_fabric_shm::{ConnectOptions, ListenOptions, ShmConnection, ShmHost, ShmQueue};
use farsight_layout::FORMAT_VERSION;
use farsight_node::{Background, BackgroundState, NodeOptions, NodeState, Worker};
use farsight_protocol::{ControlRequest, Reply, Request, TableInfo};

/// Sub-models trained in one step.
const BUDGET: usize = 4_096;
const SLEEP: Duration = Duration::from_millis(100);

/// A table and a queue pair to it.
pub struct RawTable {
    /// What the server says of the table.
    pub info: TableInfo,
    /// Bytes of its region.
    pub region_bytes: u64,
    /// The connection.
    pub connection: ShmConnection,
    /// A queue pair, to which the table's regions are attached.
    pub queue: ShmQueue,
}

impl RawTable {
    /// Opens the table `name` of the server at `socket`.
    ///
    /// # Panics
    /// If that fails.
    #[must_use]
    pub fn open(socket: &Path, name: &str) -> Self {
        let options = ConnectOptions::new(FORMAT_VERSION);
        let connection = ShmConnection::connect(socket, options).expect("a connection");
        let mut queue = connection.open_queue().expect("a queue");
        let mut request = Vec::new();
        Request::control(&mut request, &ControlRequest::OpenTable(name.to_owned()));
        let mut reply = Vec::new();
        let called = Lane::new(&mut queue).block_on(async |slot| slot.call(&request, &mut reply).await);
        called.expect("the lane runs").expect("an answer");
        let info: TableInfo =
            Reply::decode(&reply).expect("a reply").expect("the table").control().expect("a table");
        let region_bytes = queue.attach(info.region()).expect("the region");
        for other in &info.regions[1..] {
            queue.attach(other.id()).expect("a region");
        }
        Self { info, region_bytes, connection, queue }
    }
}

/// A server that trains when the test says so, and else leaves its models behind.
pub struct UntrainedServer {
    state: Arc<NodeState>,
    background: Background,
    clock: SystemClock,
    stop: Arc<AtomicBool>,
    host: Arc<ShmHost>,
    threads: Vec<JoinHandle<()>>,
}

impl UntrainedServer {
    /// Starts one that listens at `socket`.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(socket: &Path, table_memory_bytes: u64) -> Self {
        let host = Arc::new(ShmHost::listen(socket, ListenOptions::new(FORMAT_VERSION)).expect("a server"));
        let clock = SystemClock::new();
        let options = NodeOptions { table_memory_bytes, ..NodeOptions::default() };
        let state = NodeState::new(vec![host.clone()], &options, clock.now()).expect("a server");
        let mut worker = Worker::open(&state, 0, "worker").expect("a worker");
        let stop = Arc::new(AtomicBool::new(false));
        // Relaxed: the flag carries nothing with it.
        let serving = {
            let (clock, stop) = (clock.clone(), Arc::clone(&stop));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if worker.step(clock.now(), 256) == 0 {
                        worker.wait(SLEEP);
                    }
                }
            })
        };
        let accepting = {
            let (host, stop) = (Arc::clone(&host), Arc::clone(&stop));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    host.step(SLEEP).expect("a step");
                }
            })
        };
        let background = Background::new(Arc::clone(&state));
        Self { state, background, clock, stop, host, threads: vec![serving, accepting] }
    }

    /// Trains until nothing is left to train.
    pub fn train(&mut self) {
        loop {
            match self.background.step(self.clock.now(), BUDGET) {
                BackgroundState::Working => {}
                BackgroundState::Idle { again_at: Some(_) } => std::thread::sleep(Duration::from_millis(1)),
                BackgroundState::Idle { again_at: None } => return,
            }
        }
    }

    /// Sub-models that wait for their training, over all tables.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.state.stats(self.clock.now()).tables.iter().map(|table| table.part().model.pending).sum()
    }
}

impl Drop for UntrainedServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.host.wake();
        for thread in self.threads.drain(..) {
            let outcome = thread.join();
            assert!(std::thread::panicking() || outcome.is_ok(), "a server thread panicked");
        }
    }
}

//! The runner: the one place that starts threads.
//!
//! Protocol of stopping: the stop flag is raised, then everything that may sleep is woken again and again
//! until the threads have ended or the bound is reached; a wake that comes just before a thread falls asleep
//! is thus followed by another.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farsight_base::clock::{Clock, SystemClock};
use farsight_base::sync::{AtomicBool, Ordering};
use farsight_fabric::{FabricError, Listener};
use farsight_protocol::ServerStats;

use crate::{Background, BackgroundState, ServerOptions, ServerState, Worker};

/// Calls of one worker step.
const STEP_CALLS: usize = 256;
/// The longest sleep of a thread with nothing to do. Whatever gives it something wakes it.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// Sub-models trained in one background step: a millisecond or two, for which a stop, or a worker on the same
/// core, may have to wait.
const BACKGROUND_BUDGET: usize = 512;
/// Pause between a wake of the background and its work, in which more work of the same kind is merged.
const BACKGROUND_PAUSE: Duration = Duration::from_millis(1);
/// That pause while training rests, for whose end the background need not be woken again and again.
const BACKGROUND_PAUSE_MAX: Duration = Duration::from_millis(5);
/// The longest that a stop waits for the threads.
const SHUTDOWN_MAX: Duration = Duration::from_secs(10);

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A number of workers that makes no sense.
    #[error("a server has 1 to {} worker threads at each address, not {got}", ServerOptions::WORKERS_MAX)]
    Workers {
        /// The number asked for.
        got: usize,
    },
    /// A number of listeners that makes no sense.
    #[error("a server listens at 1 to {} addresses, not {got}", ServerOptions::LISTENERS_MAX)]
    Listeners {
        /// The number asked for.
        got: usize,
    },
    /// A fabric whose messages cannot carry one pair.
    #[error("the fabric of {address} carries messages of {got} B, the server needs {expected} B")]
    MessagesTooShort {
        /// The listener's address.
        address: String,
        /// What the fabric carries.
        got: usize,
        /// What is needed.
        expected: usize,
    },
    /// A worker's port could not be opened.
    #[error("the port of {worker} cannot be opened: {source}")]
    Port {
        /// The worker's name.
        worker: String,
        /// The fabric's error.
        source: FabricError,
    },
    /// A thread could not be started.
    #[error("thread {thread} cannot be started: {source}. Are processes or threads limited (ulimit -u)?")]
    Thread {
        /// The thread's name.
        thread: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// A server's threads did not all end in time.
#[derive(Debug, thiserror::Error)]
#[error("after {waited:?} these threads of the server still run: {threads}")]
pub struct ShutdownError {
    /// Their names.
    pub threads: String,
    /// How long they were waited for.
    pub waited: Duration,
}

/// The way to start a server.
pub struct Server;

/// A running server; dropping it stops it.
pub struct ServerHandle {
    state: Arc<ServerState>,
    clock: SystemClock,
    stop: Arc<AtomicBool>,
    threads: Vec<(String, JoinHandle<()>)>,
}

impl Server {
    /// Starts a server that listens at all `listeners`, of which the first creates its regions: for each a
    /// control thread and workers, and one thread for training.
    ///
    /// # Errors
    /// [`StartError`]; whatever was started before is stopped again.
    pub fn start(
        listeners: Vec<Arc<dyn Listener>>,
        options: &ServerOptions,
    ) -> Result<ServerHandle, StartError> {
        let clock = SystemClock::new();
        let state = ServerState::new(listeners, options, clock.now())?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut handle = ServerHandle { state, clock, stop, threads: Vec::new() };
        // All ports before the first client: clients are spread over the ports that exist.
        let mut workers = Vec::new();
        for listener in 0..handle.state.listeners.len() {
            for _ in 0..options.workers {
                let name = format!("worker {}", workers.len());
                let worker = Worker::open(&handle.state, listener, &name)
                    .map_err(|source| StartError::Port { worker: name.clone(), source })?;
                workers.push((name, worker));
            }
        }
        for (name, worker) in workers {
            handle.spawn(&name, move |run| run.work(worker))?;
        }
        handle.spawn("training", Run::train)?;
        for listener in 0..handle.state.listeners.len() {
            handle.spawn(&format!("control {listener}"), move |run| run.control(listener))?;
        }
        Ok(handle)
    }
}

/// What a thread of the runner needs.
struct Run {
    state: Arc<ServerState>,
    clock: SystemClock,
    stop: Arc<AtomicBool>,
}

impl Run {
    fn is_stopping(&self) -> bool {
        // Acquire: partner is the Release store in `ServerHandle::stop_threads`.
        self.stop.load(Ordering::Acquire)
    }

    fn work(&self, mut worker: Worker) {
        while !self.is_stopping() {
            if worker.step(self.clock.now(), STEP_CALLS) == 0 {
                // How long to look for the next call before the sleep, the port knows best.
                worker.wait(SLEEP_MAX);
            }
        }
    }

    fn train(&self) {
        let mut background = Background::new(Arc::clone(&self.state));
        while !self.is_stopping() {
            let now = self.clock.now();
            let BackgroundState::Idle { again_at } = background.step(now, BACKGROUND_BUDGET) else {
                continue;
            };
            let rest = again_at.map(|at| at.since(now));
            if self.state.background.wait(rest.unwrap_or(SLEEP_MAX)) && !self.is_stopping() {
                let pause = rest.unwrap_or_default().clamp(BACKGROUND_PAUSE, BACKGROUND_PAUSE_MAX);
                std::thread::sleep(pause);
            }
        }
    }

    fn control(&self, listener: usize) {
        while !self.is_stopping() {
            match self.state.listeners[listener].step(SLEEP_MAX) {
                Ok(departed) => self.state.note_departed(listener, departed),
                Err(error) => {
                    return self.state.failure.record("accepting clients", &error.to_string());
                }
            }
        }
    }
}

impl ServerHandle {
    /// The server's statistics now.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        self.state.stats(self.clock.now())
    }

    /// Why the server refuses every call, if a bug made it so.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.state.failure()
    }

    /// Stops the threads and waits for them. Calls that were not executed yet are not executed any more.
    /// Clients notice it when the host is dropped by its last owner.
    ///
    /// # Errors
    /// [`ShutdownError`] if a thread does not end within 10 s.
    pub fn shutdown(mut self) -> Result<(), ShutdownError> {
        self.stop_threads()
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce(&Run) + Send + 'static) -> Result<(), StartError> {
        let run =
            Run { state: Arc::clone(&self.state), clock: self.clock.clone(), stop: Arc::clone(&self.stop) };
        let thread = name.to_owned();
        // The last net: a panic inside a call or a step was caught there.
        let guarded = move || {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| body(&run))) {
                run.state.failure.record_panic(&thread, payload.as_ref());
            }
        };
        let started = std::thread::Builder::new().name(name.to_owned()).spawn(guarded);
        let started = started.map_err(|source| StartError::Thread { thread: name.to_owned(), source })?;
        self.threads.push((name.to_owned(), started));
        Ok(())
    }

    fn stop_threads(&mut self) -> Result<(), ShutdownError> {
        // Release: partner is the Acquire load in `Run::is_stopping`.
        self.stop.store(true, Ordering::Release);
        let start = Instant::now();
        while self.threads.iter().any(|(_, thread)| !thread.is_finished()) {
            if start.elapsed() > SHUTDOWN_MAX {
                let running = self.threads.drain(..).filter(|(_, thread)| !thread.is_finished());
                let names: Vec<String> = running.map(|(name, _)| name).collect();
                return Err(ShutdownError { threads: names.join(", "), waited: start.elapsed() });
            }
            self.state.listeners.iter().for_each(|listener| listener.wake());
            self.state.background.raise();
            std::thread::sleep(Duration::from_millis(1));
        }
        for (_, thread) in self.threads.drain(..) {
            // A panic was caught and recorded inside the thread.
            drop(thread.join());
        }
        Ok(())
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        if let Err(error) = self.stop_threads() {
            eprintln!("farsight: {error}");
        }
    }
}

//! The one place that starts threads.
//!
//! Protocol of stopping: the server raises the stop flag, then wakes everything that may sleep, again and
//! again until the threads have ended or the bound is reached. So a wake that comes just before a thread
//! falls asleep is followed by another.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farsight_base::clock::{Clock, SystemClock};
use farsight_base::report::report;
use farsight_base::sync::{AtomicBool, Ordering};

use crate::{Failure, Listeners, Service, ShutdownError, StartError, Worker};

/// Calls of one worker step.
const STEP_CALLS: usize = 256;
/// The longest sleep of a thread with nothing to do. Whatever gives it something wakes it.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// The longest that a stop waits for the threads.
const SHUTDOWN_MAX: Duration = Duration::from_secs(10);

/// Whether the threads are to end.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

/// Running threads; dropping them stops them.
pub struct Threads {
    stop: Stop,
    failure: Arc<Failure>,
    /// Wakes whatever the threads may sleep in.
    wake: Box<dyn Fn() + Send + Sync>,
    running: Vec<(String, JoinHandle<()>)>,
}

impl Stop {
    /// True once the threads are to end.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        // Acquire: partner is the Release store in `Threads::stop`.
        self.0.load(Ordering::Acquire)
    }

    /// A worker's loop.
    fn work<S: Service>(&self, worker: &mut Worker<S>, clock: &SystemClock) {
        while !self.is_raised() {
            if worker.step(clock.now(), STEP_CALLS) == 0 {
                // The port knows best how long to poll for the next call before it sleeps.
                worker.wait(SLEEP_MAX);
            }
        }
    }

    /// A control thread's loop: accepts and dismisses clients of one listener, and says which have ended.
    fn control<S: Service>(&self, service: &S, listener: usize) {
        while !self.is_raised() {
            match service.listeners().get(listener).step(SLEEP_MAX) {
                Ok(clients) if clients.is_empty() => {}
                Ok(clients) => {
                    let numbered = clients.into_iter().map(|client| Listeners::client_of(listener, client));
                    service.note_departed(numbered.collect());
                }
                Err(error) => return service.failure().record("accepting clients", &error.to_string()),
            }
        }
    }
}

impl Threads {
    /// No threads yet. Panics of those to come are recorded as the `failure`; `wake` must wake whatever they
    /// may sleep in.
    pub fn new(failure: Arc<Failure>, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { stop: Stop::default(), failure, wake: Box::new(wake), running: Vec::new() }
    }

    /// Starts those that serve the clients of `service`: for each listener a control thread and so many
    /// workers.
    ///
    /// # Errors
    /// [`StartError::Port`], [`StartError::Thread`].
    pub fn serve<S: Service>(
        &mut self,
        service: &Arc<S>,
        workers: usize,
        clock: &SystemClock,
    ) -> Result<(), StartError> {
        // All ports before the first client: clients are spread over the ports that exist.
        let mut opened = Vec::new();
        for listener in 0..service.listeners().len() {
            for _ in 0..workers {
                let name = format!("worker {}", opened.len());
                let worker = Worker::open(service, listener, &name)
                    .map_err(|source| StartError::Port { worker: name.clone(), source })?;
                opened.push((name, worker));
            }
        }
        for (name, mut worker) in opened {
            let clock = clock.clone();
            self.spawn(&name, move |stop| stop.work(&mut worker, &clock))?;
        }
        for listener in 0..service.listeners().len() {
            let service = Arc::clone(service);
            self.spawn(&format!("control {listener}"), move |stop| stop.control(&*service, listener))?;
        }
        Ok(())
    }

    /// Starts one.
    ///
    /// # Errors
    /// [`StartError::Thread`].
    pub fn spawn(&mut self, name: &str, body: impl FnOnce(&Stop) + Send + 'static) -> Result<(), StartError> {
        let (stop, failure, thread) = (self.stop.clone(), Arc::clone(&self.failure), name.to_owned());
        // The last net: a panic inside a call or a step was caught there.
        let guarded = move || {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| body(&stop))) {
                failure.record_panic(&thread, payload.as_ref());
            }
        };
        let started = std::thread::Builder::new().name(name.to_owned()).spawn(guarded);
        let started = started.map_err(|source| StartError::Thread { thread: name.to_owned(), source })?;
        self.running.push((name.to_owned(), started));
        Ok(())
    }

    /// Stops all of them and waits for them.
    ///
    /// # Errors
    /// [`ShutdownError`] if one does not end within 10 s.
    pub fn stop(&mut self) -> Result<(), ShutdownError> {
        // Release: partner is the Acquire load in `Stop::is_raised`.
        self.stop.0.store(true, Ordering::Release);
        let start = Instant::now();
        while self.running.iter().any(|(_, thread)| !thread.is_finished()) {
            if start.elapsed() > SHUTDOWN_MAX {
                let running = self.running.drain(..).filter(|(_, thread)| !thread.is_finished());
                let names: Vec<String> = running.map(|(name, _)| name).collect();
                return Err(ShutdownError { threads: names.join(", "), waited: start.elapsed() });
            }
            (self.wake)();
            std::thread::sleep(Duration::from_millis(1));
        }
        for (_, thread) in self.running.drain(..) {
            // A panic was caught and recorded inside the thread.
            drop(thread.join());
        }
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            report(error);
        }
    }
}

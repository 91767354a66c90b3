//! Training of a pool's tables, by a thread of this process.
//!
//! Invariant: a pool answers rightly however long nobody trains it; it only gets slower while it grows. So a
//! trainer that fails connects again after a pause, for as long as it is wanted.
//!
//! Protocol: a server trains the tables of the pool that it is alone, by a client of its own
//! ([`PoolTraining::of_own`]). The pools of several nodes are trained by who is told their addresses. While a
//! table grows, each round of training is followed by a rest that is longer. When nothing grows, the rests
//! become longer and longer, until something is heard of. Without tables to train there is no client, and the
//! thread sleeps.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farsight_base::report::report;
use farsight_base::sync::{AtomicBool, Ordering};
use farsight_client::{CatalogueError, Training};
use farsight_node::{OwnPool, Signal};
use farsight_protocol::{ErrorCode, TableId};

use crate::{Addresses, Client, ConnectOptions, with_causes};

/// The rest after a round that had something to train, in rounds: training takes a quarter of a core at most.
const REST_ROUNDS: u32 = 3;
/// The bounds of that rest. At the least one more splits are trained together.
const REST_MIN: Duration = Duration::from_millis(1);
const REST_MAX: Duration = Duration::from_millis(50);
/// The pause when nothing was left to train. Each one after it is twice as long.
const IDLE_PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest.
const IDLE_PAUSE_MAX: Duration = Duration::from_secs(1);
/// The same after a failure.
const FAILURE_PAUSE_MIN: Duration = Duration::from_millis(500);
const FAILURE_PAUSE_MAX: Duration = Duration::from_secs(8);
/// How long a list of the tables is believed.
const LIST_AGE_MAX: Duration = Duration::from_secs(1);
/// The longest sleep of a thread that has nothing to train. Whatever gives it something wakes it.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// The longest that the end of the thread is awaited. In a forked child it never comes.
const STOP_MAX: Duration = Duration::from_secs(10);

/// A thread that trains all tables of a pool; dropping it ends it.
pub struct PoolTraining {
    stop: Arc<AtomicBool>,
    news: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread knows.
struct Trainer {
    pool: Addresses,
    options: ConnectOptions,
    /// The node whose own pool it is; none if it was told of a pool.
    own: Option<OwnPool>,
    stop: Arc<AtomicBool>,
    /// Ends a pause early.
    news: Arc<Signal>,
    /// What was reported last.
    told: String,
}

/// A pool's tables.
struct Tables {
    client: Client,
    /// By number; without a step those that the memory nodes train.
    trained: Vec<(TableId, Option<Box<dyn Training>>)>,
    /// Those of which groups wait for memory, as far as it was reported.
    full: HashSet<TableId>,
    /// When they were listed, unless they are to be listed again.
    listed: Option<Instant>,
    /// Why one of them is not trained, while others are.
    unopened: Option<CatalogueError>,
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

impl PoolTraining {
    /// The thread's name.
    pub(crate) const THREAD: &str = "pool training";

    /// Starts to train the tables of the pool at these addresses, when it can be reached.
    ///
    /// # Errors
    /// The system's, if no thread can be started.
    pub fn start(pool: Addresses, options: ConnectOptions) -> std::io::Result<Self> {
        Self::spawn(pool, options, None, Arc::default())
    }

    /// Starts to train the tables of a node of this process that is a pool alone, while it has any.
    pub(crate) fn of_own(pool: Addresses, options: ConnectOptions, own: OwnPool) -> std::io::Result<Self> {
        let news = own.news();
        Self::spawn(pool, options, Some(own), news)
    }

    fn spawn(
        pool: Addresses,
        options: ConnectOptions,
        own: Option<OwnPool>,
        news: Arc<Signal>,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let told = String::new();
        let trainer = Trainer { pool, options, own, stop: Arc::clone(&stop), news: Arc::clone(&news), told };
        let builder = std::thread::Builder::new().name(Self::THREAD.to_owned());
        let thread = builder.spawn(move || trainer.run())?;
        Ok(Self { stop, news, thread: Some(thread) })
    }
}

impl Drop for PoolTraining {
    fn drop(&mut self) {
        // Relaxed: nothing is handed over, and the signal orders it before the wait's end.
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        let begun = Instant::now();
        while !thread.is_finished() {
            if begun.elapsed() > STOP_MAX {
                return report(format_args!("the thread {:?} did not end within {STOP_MAX:?}", Self::THREAD));
            }
            self.news.raise();
            std::thread::sleep(Duration::from_millis(1));
        }
        // A panic was printed by the thread itself.
        drop(thread.join());
    }
}

/// A pause that is twice as long each time.
struct Growing {
    next: Duration,
    min: Duration,
    max: Duration,
}

impl Growing {
    const fn new(min: Duration, max: Duration) -> Self {
        Self { next: min, min, max }
    }

    fn next(&mut self) -> Duration {
        let next = self.next;
        self.next = (next * 2).min(self.max);
        next
    }

    fn reset(&mut self) {
        self.next = self.min;
    }
}

impl Trainer {
    fn run(mut self) {
        let mut tables: Option<Tables> = None;
        let mut idle = Growing::new(IDLE_PAUSE_MIN, IDLE_PAUSE_MAX);
        let mut failing = Growing::new(FAILURE_PAUSE_MIN, FAILURE_PAUSE_MAX);
        // Relaxed: partner is the store in `drop`, and nothing comes with it.
        while !self.stop.load(Ordering::Relaxed) {
            if self.own.as_ref().is_some_and(|own| !own.has_tables()) {
                tables = None;
                self.news.wait(SLEEP_MAX);
                continue;
            }
            let begun = Instant::now();
            let round = self.round(&mut tables);
            let pause = match round {
                Ok(true) => {
                    idle.reset();
                    failing.reset();
                    // More news may come all the time: it does not end this rest.
                    let rest = begun.elapsed() * REST_ROUNDS;
                    std::thread::sleep(rest.clamp(REST_MIN, REST_MAX));
                    continue;
                }
                Ok(false) => {
                    failing.reset();
                    idle.next()
                }
                Err(error) => {
                    self.tell(&*error);
                    tables = None;
                    // The end of its own client is news, too, and does not end this pause.
                    self.pause(failing.next());
                    continue;
                }
            };
            if self.news.wait(pause) {
                idle.reset();
                if let Some(tables) = &mut tables {
                    tables.listed = None;
                }
            }
        }
    }

    /// One step for each table. True if any of them had something to train.
    fn round(&mut self, tables: &mut Option<Tables>) -> Result<bool, Failed> {
        if tables.is_none() {
            *tables = Some(Tables::connect(&self.pool, &self.options)?);
        }
        let Some(found) = tables else { return Ok(false) };
        let round = found.round();
        let full = found.newly_full();
        if let Some(error) = found.unopened.take() {
            self.tell(&error);
        }
        for (table, groups) in full {
            report(format_args!(
                "training of {}: {groups} groups of table {} wait, because the first node has no memory \
                 left for directory and models; other groups are trained. Give that node more memory",
                self.pool, table.0
            ));
        }
        round
    }

    /// Pauses whatever is heard, but for the end.
    fn pause(&self, pause: Duration) {
        let begun = Instant::now();
        // Relaxed: as in `run`.
        while begun.elapsed() < pause && !self.stop.load(Ordering::Relaxed) {
            self.news.wait(pause.saturating_sub(begun.elapsed()));
        }
    }

    fn tell(&mut self, error: &(dyn std::error::Error + 'static)) {
        let why = with_causes(error);
        if why != self.told {
            report(format_args!("training of {} waits: {why}", self.pool));
            self.told = why;
        }
    }
}

impl Tables {
    fn connect(pool: &Addresses, options: &ConnectOptions) -> Result<Self, Failed> {
        let client = Client::connect_with(pool, options)?;
        Ok(Self { client, trained: Vec::new(), full: HashSet::new(), listed: None, unopened: None })
    }

    /// One step for each table. True if any of them had something to train.
    fn round(&mut self) -> Result<bool, Failed> {
        if self.listed.is_none_or(|listed| listed.elapsed() > LIST_AGE_MAX) {
            self.list()?;
        }
        let mut is_busy = false;
        let mut failed = None;
        for (id, training) in &mut self.trained {
            match training.as_mut().map_or(Ok(false), |training| training.step()) {
                Ok(is_more) => is_busy |= is_more,
                Err(error) => failed = Some((*id, error)),
            }
        }
        let Some((id, error)) = failed else { return Ok(is_busy) };
        self.list()?;
        // A table that was dropped needs no training.
        if self.trained.iter().any(|(other, _)| *other == id) { Err(error) } else { Ok(true) }
    }

    /// Tables of which groups wait for memory since this was asked last, and how many.
    fn newly_full(&mut self) -> Vec<(TableId, usize)> {
        let full = self.trained.iter().filter_map(|(id, training)| Some((*id, training.as_ref()?.full())));
        let full: Vec<(TableId, usize)> = full.filter(|(_, groups)| *groups > 0).collect();
        let before = std::mem::replace(&mut self.full, full.iter().map(|(id, _)| *id).collect());
        full.into_iter().filter(|(id, _)| !before.contains(id)).collect()
    }

    /// Takes up the tables that are new, and lets go of those that are gone.
    fn list(&mut self) -> Result<(), CatalogueError> {
        let listed = self.client.tables()?;
        self.trained.retain(|(id, _)| listed.iter().any(|table| table.id == *id));
        for table in listed {
            if !self.trained.iter().any(|(id, _)| *id == table.id) {
                match self.client.training(&table.definition.name) {
                    Ok(training) => self.trained.push(training),
                    // It was dropped or renamed meanwhile: the next list shows it.
                    Err(CatalogueError::Refused { source, .. }) if source.code == ErrorCode::UnknownTable => {
                    }
                    // There may be no descriptors for so many: the others are trained.
                    Err(error) if self.trained.iter().any(|(_, training)| training.is_some()) => {
                        self.unopened = Some(error);
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        self.listed = Some(Instant::now());
        Ok(())
    }
}

//! Training of a pool's tables, by a thread of this process.
//!
//! Invariant: a pool answers rightly however long nobody trains it; it only gets slower while it grows. So a
//! trainer that fails connects again after a pause, for as long as it is wanted.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use farsight_base::report::report;
use farsight_base::sync::{AtomicBool, Ordering};
use farsight_client::{CatalogueError, Training};
use farsight_protocol::{ErrorCode, TableId};

use crate::{Addresses, Client, ConnectOptions, with_causes};

/// The pause when nothing was left to train.
const IDLE_PAUSE: Duration = Duration::from_millis(20);
/// The pause after a failure.
const FAILURE_PAUSE: Duration = Duration::from_millis(500);
/// After so many rounds the tables are listed again.
const ROUNDS_A_LIST: u32 = 50;

/// A thread that trains all tables of a pool; dropping it ends it.
pub struct PoolTraining {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A pool's tables.
struct Tables {
    client: Client,
    /// By number; without a step those that the memory nodes train.
    trained: Vec<(TableId, Option<Box<dyn Training>>)>,
    /// Those of which groups wait for memory, as far as it was reported.
    full: HashSet<TableId>,
    rounds: u32,
}

impl PoolTraining {
    /// Starts to train the tables of the pool at these addresses, when it can be reached.
    ///
    /// # Errors
    /// The system's, if no thread can be started.
    pub fn start(pool: Addresses, options: ConnectOptions) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let run = move || run(&pool, &options, &stopped);
        let thread = std::thread::Builder::new().name("pool training".to_owned()).spawn(run)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for PoolTraining {
    fn drop(&mut self) {
        // Relaxed: nothing is handed over.
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic was printed by the thread itself.
            drop(thread.join());
        }
    }
}

fn run(pool: &Addresses, options: &ConnectOptions, stop: &AtomicBool) {
    let mut tables: Option<Tables> = None;
    let mut told = String::new();
    // Relaxed: partner is the store in `drop`, and nothing comes with it.
    while !stop.load(Ordering::Relaxed) {
        let round = match &mut tables {
            None => Tables::connect(pool, options).map(|found| {
                tables = Some(found);
                true
            }),
            Some(found) => found.round(),
        };
        for (table, groups) in tables.as_mut().map(Tables::newly_full).unwrap_or_default() {
            report(format_args!(
                "training of {pool}: {groups} groups of table {} wait, because the first node has no memory \
                 left for directory and models; other groups are trained. Give that node more memory",
                table.0
            ));
        }
        match round {
            Ok(true) => {}
            Ok(false) => std::thread::sleep(IDLE_PAUSE),
            Err(error) => {
                let why = with_causes(&*error);
                if why != told {
                    report(format_args!("training of {pool} waits: {why}"));
                    told = why;
                }
                tables = None;
                std::thread::sleep(FAILURE_PAUSE);
            }
        }
    }
}

impl Tables {
    fn connect(
        pool: &Addresses,
        options: &ConnectOptions,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let client = Client::connect_with(pool, options)?;
        Ok(Self { client, trained: Vec::new(), full: HashSet::new(), rounds: 0 })
    }

    /// One step for each table. True if any of them had something to train.
    fn round(&mut self) -> Result<bool, Box<dyn std::error::Error + Send + Sync>> {
        if self.rounds.is_multiple_of(ROUNDS_A_LIST) {
            self.list()?;
        }
        self.rounds = self.rounds.wrapping_add(1);
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
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

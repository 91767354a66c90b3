//! A compute node that serves: it writes for others, in the partitions of FlexKV tables that it was given.
//!
//! Invariant: it is a client of the pool, like those for which it writes, and keeps nothing of theirs. So it
//! may end, or stop, at any time. What it was executing then is indeterminate to its callers, and they write
//! one-sided from then on.
//!
//! Protocol: a thread offers the coordinator to write, for each table of FlexKV, and renews that. Clients ask
//! the coordinator who writes, and send calls here. A worker gathers the calls that are waiting, and executes
//! those of one table as one batch ([`calls`]).

mod calls;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use farsight_base::ClientId;
use farsight_base::clock::SystemClock;
use farsight_base::report::report;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_node::{Failure, Listeners, Service, ShutdownError, Signal, Threads, WORKERS_MAX};
use farsight_protocol::{HEADER_BYTES, OPERATIONS_MAX, ProxyOffer, TableId};

use crate::server::Listening;
use crate::{
    Addresses, CatalogueError, Client, ConnectError, ConnectOptions, EngineKind, ServerBuilder, ServerUrl,
    StartError, with_causes,
};
use calls::ProxyCalls;

/// From one offer to the next: several come before a lease is over.
const OFFER_PAUSE: Duration = Duration::from_millis(400);

/// Settings of a compute node that serves.
#[derive(Clone, Debug)]
pub struct ComputeNodeOptions {
    /// How it reaches the pool.
    pub connect: ConnectOptions,
    /// Of each table's 1,024 partitions, for how many it offers to write. It gets those that are no other
    /// compute node's. Default: all.
    pub partitions: u16,
}

impl Default for ComputeNodeOptions {
    fn default() -> Self {
        Self { connect: ConnectOptions::default(), partitions: 1024 }
    }
}

/// Why a compute node that serves did not start.
#[derive(Debug, thiserror::Error)]
pub enum ComputeNodeError {
    /// It cannot listen.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It does not reach the pool.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The pool does not say which tables it has, or whose partitions are whose.
    #[error(transparent)]
    Pool(#[from] CatalogueError),
    /// Clients of the pool could not reach it.
    #[error(
        "a compute node that serves listens at one address, of the pool's fabric: the pool is at {pool}, and it \
         would listen at {got}"
    )]
    Address {
        /// The pool.
        pool: Addresses,
        /// Where it would listen.
        got: Addresses,
    },
}

/// A running compute node that serves. Dropping it stops it: its clients write one-sided then.
pub struct ComputeNode {
    url: ServerUrl,
    serving: Arc<Serving>,
    threads: Threads,
}

/// The clock that its replies tell.
struct Clock(Instant);

impl Clock {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The moment at which it shows so many nanoseconds; `None` if the system knows no such one.
    fn when(&self, ns: u64) -> Option<Instant> {
        self.0.checked_add(Duration::from_nanos(ns))
    }
}

/// What its threads share.
struct Serving {
    url: ServerUrl,
    client: Client,
    partitions: u16,
    listeners: Listeners,
    failure: Arc<Failure>,
    clock: Clock,
    /// Ends the pause between two offers.
    news: Signal,
    /// The tables for which it offers to write.
    tables: Mutex<HashMap<TableId, Arc<ServedTable>>>,
}

/// A table, and what was done for others there.
struct ServedTable {
    table: farsight_client::Table,
    writes: AtomicU64,
    combined: AtomicU64,
}

impl ComputeNode {
    /// Starts one of the `pool`, which listens as `listening` says. It writes for others when this returns,
    /// in the tables that there are; in others, soon after they were made.
    ///
    /// # Errors
    /// [`ComputeNodeError`].
    pub fn start(
        listening: ServerBuilder,
        pool: &Addresses,
        options: &ComputeNodeOptions,
    ) -> Result<Self, ComputeNodeError> {
        let client = Client::connect_with(pool, &options.connect)?;
        let workers = listening.workers_of_each();
        if !(1..=WORKERS_MAX).contains(&workers) {
            let got = workers;
            return Err(StartError::Serve(farsight_node::StartError::Workers { got }).into());
        }
        let mut listening = listening.listen_at_all()?;
        let is_fit = listening.len() == 1
            && std::mem::discriminant(&listening[0].url) == std::mem::discriminant(&pool.urls()[0]);
        if !is_fit {
            let got = Addresses::new(listening.into_iter().map(|at| at.url).collect());
            return Err(ComputeNodeError::Address { pool: pool.clone(), got });
        }
        let Listening { url, listener, .. } = listening.swap_remove(0);
        let message_bytes_min = HEADER_BYTES + 8 * OPERATIONS_MAX;
        let listeners = Listeners::new(vec![listener], message_bytes_min).map_err(StartError::Serve)?;
        let serving = Arc::new(Serving {
            url: url.clone(),
            client,
            partitions: options.partitions,
            listeners,
            failure: Arc::default(),
            clock: Clock(Instant::now()),
            news: Signal::default(),
            tables: Mutex::default(),
        });
        let waking = Arc::clone(&serving);
        let wake = move || {
            waking.listeners.wake();
            waking.news.raise();
        };
        let mut threads = Threads::new(Arc::clone(&serving.failure), wake);
        serving.listeners.open().map_err(StartError::Fabric)?;
        threads.serve(&serving, workers, &SystemClock::new()).map_err(StartError::Serve)?;
        serving.offer()?;
        let offering = Arc::clone(&serving);
        threads.spawn("offers", move |stop| offering.keep_offering(stop)).map_err(StartError::Serve)?;
        Ok(Self { url, serving, threads })
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> &ServerUrl {
        &self.url
    }

    /// Why it refuses every call, if a bug in it made it so.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.serving.failure.text()
    }

    /// Calls `told` when a bug makes it refuse every call, as [`Server::on_failure`](crate::Server).
    pub fn on_failure(&self, told: impl FnOnce() + Send + 'static) {
        self.serving.failure.on_record(told);
    }

    /// Lets its partitions go, and stops it.
    ///
    /// # Errors
    /// [`ShutdownError`] if a thread does not end within 10 s.
    pub fn shutdown(mut self) -> Result<(), ShutdownError> {
        self.threads.stop()
    }
}

impl Serving {
    /// Offers to write in each table of FlexKV, or renews that.
    fn offer(&self) -> Result<(), CatalogueError> {
        let of_engine = |name: &str| name == EngineKind::FLEXKV.name;
        let infos = self.client.tables()?;
        let infos: Vec<_> = infos.into_iter().filter(|info| of_engine(&info.engine.name)).collect();
        self.tables().retain(|id, _| infos.iter().any(|info| info.id == *id));
        for info in infos {
            let known = self.tables().get(&info.id).cloned();
            let served = match known {
                Some(known) if known.table.name() == info.definition.name => known,
                _ => Arc::new(ServedTable::new(self.client.inner().open_table(&info.definition.name)?)),
            };
            // Known before the coordinator tells clients of it. A name may lead elsewhere by now.
            let id = served.table.info().id;
            self.tables().insert(id, Arc::clone(&served));
            self.offer_for(&served, self.partitions)?;
        }
        Ok(())
    }

    fn offer_for(&self, served: &ServedTable, partitions: u16) -> Result<(), CatalogueError> {
        let offer = ProxyOffer {
            table: served.table.info().id,
            partitions,
            address: self.url.to_string(),
            epoch: self.listeners.get(0).epoch().0,
            // Relaxed: statistics.
            writes: served.writes.load(Ordering::Relaxed),
            combined: served.combined.load(Ordering::Relaxed),
        };
        self.client.inner().offer_proxy(&offer).map(drop)
    }

    /// Renews the offers until the threads are to end, then takes them back.
    fn keep_offering(&self, stop: &farsight_node::Stop) {
        let mut told = String::new();
        while !stop.is_raised() {
            self.news.wait(OFFER_PAUSE);
            let failed = self.offer().err().map(|error| with_causes(&error)).unwrap_or_default();
            // The pool may be back later. Until then clients write one-sided.
            if failed != told && !failed.is_empty() {
                report(format_args!("this compute node writes for nobody: {failed}"));
            }
            told = failed;
        }
        let tables: Vec<_> = self.tables().values().cloned().collect();
        for served in tables {
            // A coordinator that does not hear it finds the connections closed.
            let _ = self.offer_for(&served, 0);
        }
    }

    fn tables(&self) -> MutexGuard<'_, HashMap<TableId, Arc<ServedTable>>> {
        // Each change is one insertion or one removal.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServedTable {
    fn new(table: farsight_client::Table) -> Self {
        Self { table, writes: AtomicU64::new(0), combined: AtomicU64::new(0) }
    }

    /// Notes that so many writes were executed, of so many different keys.
    fn count(&self, writes: usize, keys: usize) {
        // Relaxed: statistics.
        self.writes.fetch_add(writes as u64, Ordering::Relaxed);
        self.combined.fetch_add((writes - keys) as u64, Ordering::Relaxed);
    }
}

impl Service for Serving {
    type Calls = ProxyCalls;

    fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    fn failure(&self) -> &Arc<Failure> {
        &self.failure
    }

    fn calls(self: &Arc<Self>, listener: usize, name: &str) -> ProxyCalls {
        ProxyCalls::new(Arc::clone(self), listener, name.to_owned())
    }

    fn note_departed(&self, _: Vec<ClientId>) {
        // Nothing is kept of them.
    }
}

//! A compute node that serves: it writes for others, in the partitions of FlexKV tables that it was given.
//!
//! Invariant: it is a client of the pool, like those for which it writes, and keeps nothing of theirs. So it
//! may end, or stop, at any time. What it was executing then is indeterminate to its callers, and they write
//! one-sided from then on.
//!
//! Protocol: a thread offers the coordinator to write, for each table of FlexKV, and renews that. Workers
//! execute the calls of clients, as [`farsight_compute_node`] says.

use std::sync::Arc;

use farsight_base::clock::SystemClock;
use farsight_base::report::report;
use farsight_compute_node::{OFFER_PAUSE, OfferError, Serving, ServingOptions};
use farsight_node::{Service as _, ShutdownError, Signal, Threads, WORKERS_MAX};

use crate::server::Listening;
use crate::{
    Addresses, CatalogueError, Client, ConnectError, ConnectOptions, ServerBuilder, ServerUrl, StartError,
    with_causes,
};

/// Settings of a compute node that serves.
#[derive(Clone, Debug)]
pub struct ComputeNodeOptions {
    /// How it reaches the pool.
    pub connect: ConnectOptions,
    /// Of each table's 1,024 partitions, for how many it offers to write. It gets those that are no other
    /// compute node's. Default: all.
    pub partitions: u16,
    /// For how many percent of those that are served clients are to send writes, those that are written most
    /// first. Where several compute nodes say a number, the greatest counts. By default the coordinator sees
    /// by what writes cost which part is best.
    pub percent: Option<u8>,
}

impl Default for ComputeNodeOptions {
    fn default() -> Self {
        Self { connect: ConnectOptions::default(), partitions: 1024, percent: None }
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
    /// The pool does not say which tables it has.
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

/// What its threads share.
struct Offering {
    serving: Arc<Serving>,
    /// Ends the pause between two offers.
    news: Signal,
}

impl ComputeNode {
    /// Starts one of the `pool`, which listens as `listening` says. It writes for others when this returns,
    /// in the tables that there are; in others, soon after they were made. If a table has as many compute
    /// nodes as may write there, a report names it, and the others are served.
    ///
    /// # Errors
    /// [`ComputeNodeError`].
    pub fn start(
        listening: ServerBuilder,
        pool: &Addresses,
        options: &ComputeNodeOptions,
    ) -> Result<Self, ComputeNodeError> {
        let pool = &pool.resolve(&options.connect)?;
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
        let clock = SystemClock::new();
        let options = ServingOptions {
            address: url.to_string(),
            listener,
            partitions: options.partitions,
            percent: options.percent,
            cache_bytes: None,
            clock: Arc::new(clock.clone()),
        };
        let serving = Serving::new(client.inner().clone(), options).map_err(StartError::Serve)?;
        let serving = Arc::new(serving);
        let offering = Arc::new(Offering { serving: Arc::clone(&serving), news: Signal::default() });
        let waking = Arc::clone(&offering);
        let wake = move || {
            waking.serving.listeners().wake();
            waking.news.raise();
        };
        let mut threads = Threads::new(Arc::clone(serving.failure()), wake);
        serving.listeners().open().map_err(StartError::Fabric)?;
        threads.serve(&serving, workers, &clock).map_err(StartError::Serve)?;
        let told = match serving.offer() {
            Err(OfferError { table: None, source }) => return Err((*source).into()),
            // It may write in the others at once, and in that one later.
            offered => tell("", offered),
        };
        threads.spawn("offers", move |stop| offering.keep_offering(stop, told)).map_err(StartError::Serve)?;
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
        self.serving.failure().text()
    }

    /// Calls `told` when a bug makes it refuse every call, as [`Server::on_failure`](crate::Server).
    pub fn on_failure(&self, told: impl FnOnce() + Send + 'static) {
        self.serving.failure().on_record(told);
    }

    /// Lets its partitions go, and stops it.
    ///
    /// # Errors
    /// [`ShutdownError`] if a thread does not end within 10 s.
    pub fn shutdown(mut self) -> Result<(), ShutdownError> {
        self.threads.stop()
    }
}

impl Offering {
    /// Renews the offers until the threads are to end, then takes them back. `told` was reported of the
    /// first.
    fn keep_offering(&self, stop: &farsight_node::Stop, mut told: String) {
        while !stop.is_raised() {
            self.news.wait(OFFER_PAUSE);
            told = tell(&told, self.serving.offer());
        }
        self.serving.withdraw();
    }
}

/// Reports why it does not write, unless that was `told`; returns what is told by now.
fn tell(told: &str, offered: Result<(), OfferError>) -> String {
    let failed = offered.err().map(|error| with_causes(&error)).unwrap_or_default();
    // The pool may be back later. Until then clients write one-sided.
    if failed != told && !failed.is_empty() {
        report(format_args!("this compute node cannot do its work: {failed}"));
    }
    failed
}

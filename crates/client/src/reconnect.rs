//! Connecting again after the server has gone.
//!
//! Invariant: at any time a client has one current backend. The first session that finds it lost replaces it
//! for all of them. A server's client that was dismissed (fenced, or thrown out for breaking a rule) is never
//! connected again by itself; nor is one that was forked. A pool's is, under another number: its nodes fence
//! a compute node because another one waits for a lock of it.
//!
//! Protocol: the loss is noticed by a call. Until the *reconnect timeout* has passed since then, a call that
//! needs the server tries to connect, with pauses that grow; calls after that try once each. So nobody waits
//! longer than that for a server that stays away, and the first call after its return finds it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use farsight_fabric::FabricError;
use farsight_index::{CachePolicy, EngineError, ReadsByOthers, ValueCache};

use crate::backend::Backend;
#[cfg(injected)]
use crate::injected;
use crate::{CatalogueError, ClientOptions, OpenError};

/// Attempts of one call: that many times it may find its connection lost, and no more.
pub(crate) const ATTEMPTS_MAX: u32 = 3;
/// Times that a pool becomes another one under a call, at most.
const CHANGES_MAX: u32 = 8;
/// Times that a client that connects finds its pool to be another one than it has reached, at most.
const VIEWS_MAX: usize = 4;
/// The first pause between two attempts; it doubles.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// How long an attempt may take at least, however little time is left: a server under load needs some.
const ATTEMPT_MIN: Duration = Duration::from_millis(250);

/// What the clones of a client, its tables and their sessions share.
pub(crate) struct Shared {
    pub(crate) peer: String,
    options: ClientOptions,
    current: Mutex<Arc<dyn Backend>>,
    /// Held by the session that reconnects; the others wait for its outcome.
    outage: Mutex<Outage>,
    /// What the caches of tables may take, by the tables' names: for the caches of each epoch.
    cache_bytes: Mutex<HashMap<String, u64>>,
    /// What may be kept of tables' values, likewise.
    value_caches: Mutex<HashMap<String, ValueCache>>,
    /// Which entries full caches let go, by table.
    cache_policies: Mutex<HashMap<String, CachePolicy>>,
    /// What compute nodes that serve do for GETs, by table.
    reads_by_others: Mutex<HashMap<String, ReadsByOthers>>,
    /// The tables for which somebody hears what nodes recall.
    keeping: Mutex<HashSet<String>>,
}

/// What is known of the server's absence.
#[derive(Default)]
struct Outage {
    /// When a call first noticed it.
    since: Option<Instant>,
    /// How the last attempts ended, and when.
    failed: Option<(Instant, FabricError)>,
}

/// What one call has lost. Each loss is an attempt, but not, within a bound, that its pool has become another
/// one meanwhile: it goes on without a node, or with a new one.
#[derive(Default)]
pub(crate) struct Losses {
    /// Attempts that are over.
    pub(crate) attempts: u32,
    changes: u32,
}

impl Losses {
    /// Those of a call so many of whose attempts are over.
    pub(crate) fn behind(attempts: u32) -> Self {
        Self { attempts, changes: 0 }
    }

    /// Counts a loss of this backend.
    pub(crate) fn count(&mut self, backend: &dyn Backend) {
        if backend.check_usable().is_err() && self.changes < CHANGES_MAX {
            self.changes += 1;
        } else {
            self.attempts += 1;
        }
    }
}

/// Errors that may be the fabric's.
pub(crate) trait OfFabric {
    /// The fabric's error, if it is one.
    fn fabric(&self) -> Option<&FabricError>;

    /// The fabric's error, if it is one that a new connection to such peers may repair.
    fn loss(&self, backend: &dyn Backend) -> Option<&FabricError> {
        self.fabric().filter(|error| backend.is_loss(error))
    }
}

impl OfFabric for FabricError {
    fn fabric(&self) -> Option<&FabricError> {
        Some(self)
    }
}

impl OfFabric for CatalogueError {
    fn fabric(&self) -> Option<&FabricError> {
        if let Self::Fabric(error) = self { Some(error) } else { None }
    }
}

impl OfFabric for OpenError {
    fn fabric(&self) -> Option<&FabricError> {
        if let Self::Catalogue(error) = self { error.fabric() } else { None }
    }
}

impl OfFabric for EngineError {
    fn fabric(&self) -> Option<&FabricError> {
        if let Self::Fabric(error) = self { Some(error) } else { None }
    }
}

impl Shared {
    pub(crate) fn new(backend: Arc<dyn Backend>, options: ClientOptions) -> Self {
        Self {
            peer: backend.peer(),
            options,
            current: Mutex::new(backend),
            outage: Mutex::default(),
            cache_bytes: Mutex::default(),
            value_caches: Mutex::default(),
            cache_policies: Mutex::default(),
            reads_by_others: Mutex::default(),
            keeping: Mutex::default(),
        }
    }

    /// What the cache of this table may take, if that was ever said.
    pub(crate) fn cache_bytes(&self, table: &str) -> Option<u64> {
        lock(&self.cache_bytes).get(table).copied()
    }

    /// What may be kept of this table's values, if that was ever said.
    pub(crate) fn value_cache(&self, table: &str) -> Option<ValueCache> {
        lock(&self.value_caches).get(table).copied()
    }

    pub(crate) fn keep_cache_policy(&self, table: &str, policy: CachePolicy) {
        lock(&self.cache_policies).insert(table.to_owned(), policy);
    }

    pub(crate) fn cache_policy(&self, table: &str) -> Option<CachePolicy> {
        lock(&self.cache_policies).get(table).copied()
    }

    pub(crate) fn keep_reads_by_others(&self, table: &str, reads: ReadsByOthers) {
        lock(&self.reads_by_others).insert(table.to_owned(), reads);
    }

    pub(crate) fn reads_by_others(&self, table: &str) -> Option<ReadsByOthers> {
        lock(&self.reads_by_others).get(table).copied()
    }

    pub(crate) fn keep_value_cache(&self, table: &str, cache: ValueCache) {
        lock(&self.value_caches).insert(table.to_owned(), cache);
    }

    /// True for the first who is to hear what nodes recall of this table.
    pub(crate) fn begin_keeping(&self, table: &str) -> bool {
        lock(&self.keeping).insert(table.to_owned())
    }

    pub(crate) fn keep_cache_bytes(&self, table: &str, bytes: u64) {
        lock(&self.cache_bytes).insert(table.to_owned(), bytes);
    }

    /// The newest backend. It may be lost already.
    pub(crate) fn current(&self) -> Arc<dyn Backend> {
        Arc::clone(&lock(&self.current))
    }

    /// A backend with a connection, as far as is known: for what cannot be repeated.
    pub(crate) fn connected(&self) -> Result<Arc<dyn Backend>, FabricError> {
        let backend = self.current();
        match backend.check() {
            Err(error) if backend.is_loss(&error) => self.renew(&error),
            checked => checked.map(|()| backend),
        }
    }

    /// Runs something that can be repeated by the current backend, and again by the next if that is lost.
    pub(crate) fn in_one_epoch<T, E: OfFabric + From<FabricError>>(
        &self,
        mut run: impl FnMut(&Arc<dyn Backend>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut backend = self.current();
        let mut losses = Losses::default();
        loop {
            let error = match run(&backend) {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let Some(loss) = error.loss(&*backend) else { return Err(error) };
            losses.count(&*backend);
            if losses.attempts >= ATTEMPTS_MAX {
                return Err(error);
            }
            backend = self.renew(loss)?;
        }
    }

    /// A backend with a connection, after a session saw `loss`: the current one if it stands, or a new one.
    #[cold]
    pub(crate) fn renew(&self, loss: &FabricError) -> Result<Arc<dyn Backend>, FabricError> {
        let mut backend = self.renew_once(loss)?;
        // Nobody waits for an answer under the lock of an outage.
        for _ in 1..VIEWS_MAX {
            let Err(error) = backend.agree_on_view() else { break };
            backend = self.renew_once(&error)?;
        }
        Ok(backend)
    }

    fn renew_once(&self, loss: &FabricError) -> Result<Arc<dyn Backend>, FabricError> {
        let asked = Instant::now();
        let mut outage = lock(&self.outage);
        let current = self.current();
        current.note_loss(loss);
        match current.check() {
            // Another session has connected again, or a queue pair broke and not the connection.
            Ok(()) => return Ok(current),
            Err(error) if error.loss(&*current).is_none() => return Err(error),
            #[cfg(injected)]
            Err(_) if injected::LOST_BACKEND_KEPT.is_injected() => return Ok(current),
            Err(_) => {}
        }
        if let Some((_, failure)) = outage.failed.as_ref().filter(|(at, _)| *at > asked) {
            return Err(failure.clone());
        }
        let until = *outage.since.get_or_insert(asked) + self.options.reconnect_timeout;
        match connect_again(&*current, loss, until) {
            Ok(backend) => {
                *outage = Outage::default();
                *lock(&self.current) = Arc::clone(&backend);
                Ok(backend)
            }
            Err(error) => {
                outage.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }
}

fn connect_again(
    former: &dyn Backend,
    loss: &FabricError,
    until: Instant,
) -> Result<Arc<dyn Backend>, FabricError> {
    let mut pause = PAUSE_MIN;
    let mut attempts = 1;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let failure = match former.reconnect(left.max(ATTEMPT_MIN)) {
            Ok(backend) => return Ok(backend),
            Err(error @ (FabricError::Refused { .. } | FabricError::Forked)) => return Err(error),
            Err(error) => error,
        };
        if Instant::now() + pause >= until {
            return Err(unreachable(loss, attempts, &failure));
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(PAUSE_MAX);
        attempts += 1;
    }
}

fn unreachable(loss: &FabricError, attempts: u32, failure: &FabricError) -> FabricError {
    let (FabricError::Disconnected { peer, reason } | FabricError::Dismissed { peer, reason }) = loss else {
        return failure.clone();
    };
    let times = if attempts == 1 { "time" } else { "times" };
    let reason = format!("{reason}. Connecting again failed {attempts} {times}, at last so: {failure}");
    FabricError::Disconnected { peer: peer.clone(), reason }
}

/// The lock, whatever happened to its last holder: nothing is ever half done under these.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

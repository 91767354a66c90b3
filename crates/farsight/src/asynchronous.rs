//! Reads and writes as futures, for programs of any asynchronous runtime.
//!
//! Invariant: a future never blocks its thread. A table's futures hand their requests to one *driver*, a
//! thread with a session of its own, and are woken when it has answered.
//!
//! Protocol:
//! 1. The driver takes the requests that wait, at most a few hundred.
//! 2. It executes the GETs among them as one staged batch and the writes as one call a kind.
//! 3. It hands in the answers, wakes their tasks, and looks again. With nothing to do it sleeps.
//!
//! While the driver is busy, other tasks' requests gather. So the more tasks there are, the better their
//! READs share doorbells. A request lives in the queue only as long as its future does: the program's own
//! futures bound the memory. A future that must wait for its turn simply waits.

mod driver;
pub(crate) mod held_key;
mod operation;
mod ordered;
mod queue;
mod round;
mod shared;

use std::marker::PhantomData;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use farsight_client::{Lifetime, OpenError, ReadError, WriteError};
use farsight_fabric::{FabricError, Meters};
use farsight_index::{Answers, Counters};
use farsight_protocol::{ValueKind, WriteOperation, WriteOutcome};

use self::held_key::HeldKey;
use self::operation::Operation;
use self::queue::{Completion, Request};
use self::shared::Shared;
use crate::conditional::{added, push_compare, push_compare_value, swapped};
use crate::{Added, Entry, KeyType, Swapped};

/// A table for asynchronous programs: its operations are futures, which any runtime can poll. Made by
/// [`crate::Table::asynchronous`].
///
/// Clones share one driver thread, so clone it into as many tasks as there are. The driver reads what they
/// request at the same time in one batch. The driver executes as much as one synchronous session with batches
/// does; a program that needs more opens the table several times.
///
/// ```
/// # use farsight::{Options, Server};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let server = Server::builder().socket(directory.path().join("s")).table_memory_bytes(1 << 20).start()?;
/// # let url = server.url().to_string();
/// let client = farsight::connect(&url)?;
/// let prices = client.create_table::<u64>("prices", 8)?.asynchronous(Options::default())?;
/// # pollster::block_on(async {
/// prices.put(4711, b"8 bytes.").await?;
/// assert_eq!(prices.get(4711).await?.unwrap().value, b"8 bytes.");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })
/// # }
/// ```
///
/// # Order and cancellation
///
/// Each operation takes effect between its future's first poll and its end; operations that are in flight
/// together have no order among them. A future that is dropped is forgotten: if its request still waited, it
/// never happens. If the driver already had it, a write may happen, or have happened.
///
/// When the server is gone, the driver connects again as a session does ([Restarts](crate#restarts)); futures
/// wait meanwhile. All pairs of one answer are of one epoch of the server.
///
/// # Blocking
///
/// Connecting and opening tables block, up to seconds if the server is in trouble. So does dropping the last
/// clone, which waits for the driver to finish its round. Do these where blocking is allowed.
pub struct AsyncTable<K: KeyType + ?Sized> {
    handle: Arc<Handle<K::Held>>,
    key: PhantomData<fn(&K)>,
}

/// The driver, and what is shared with it.
struct Handle<H: HeldKey> {
    shared: Arc<Shared<H>>,
    driver: Option<JoinHandle<()>>,
    table: String,
    values: ValueKind,
}

/// Why a table could not be opened for futures.
#[derive(Debug, thiserror::Error)]
pub enum AsyncError {
    /// No session can be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No thread can be started.
    #[error("cannot start the driver thread of table {table:?}")]
    Thread {
        /// The table.
        table: String,
        /// What the system says.
        source: std::io::Error,
    },
}

impl<K: KeyType + ?Sized> Clone for AsyncTable<K> {
    fn clone(&self) -> Self {
        Self { handle: Arc::clone(&self.handle), key: PhantomData }
    }
}

impl<H: HeldKey> Drop for Handle<H> {
    fn drop(&mut self) {
        let Some(driver) = self.driver.take() else { return };
        if self.shared.is_forked() {
            return;
        }
        self.shared.close();
        // A task that owned the last clone may end in the driver, which wakes it and lets it go.
        if driver.thread().id() != std::thread::current().id() {
            // One that panicked has said so, and told its futures.
            let _ = driver.join();
        }
    }
}

impl<K: KeyType + ?Sized> AsyncTable<K> {
    pub(crate) fn new(table: &str, session: farsight_client::Session) -> Result<Self, AsyncError> {
        let table = table.to_owned();
        let values = session.table().values();
        let thread_error = |source| AsyncError::Thread { table: table.clone(), source };
        let shared = Arc::new(Shared::new().map_err(thread_error)?);
        let (for_driver, name) = (Arc::clone(&shared), table.clone());
        let driver = std::thread::Builder::new()
            .name("farsight-driver".to_owned())
            .spawn(move || driver::run(&for_driver, session, name))
            .map_err(thread_error)?;
        let handle = Handle { shared, driver: Some(driver), table, values };
        Ok(Self { handle: Arc::new(handle), key: PhantomData })
    }

    /// The value of `key` and its version; `None` if the key is absent.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn get(&self, key: K::Ref<'_>) -> Result<Option<Entry>, ReadError> {
        match self.ask(Request::Get(K::held(key)), &[]).await {
            Ok((Completion::Get(found), value)) => {
                found.map(|version| version.map(|version| Entry { value: value.into(), version }))
            }
            Ok((other, _)) => unreachable!("a get was answered with {other:?}"),
            Err(error) => Err(self.read_error(error)),
        }
    }

    /// Values and versions of `keys`, any number of them, in their order. The driver fetches them piece by
    /// piece, between other tasks' requests.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn multi_get(&self, keys: &[K::Ref<'_>]) -> Result<Answers, ReadError> {
        let keys = keys.iter().map(|key| K::held(*key)).collect();
        match self.ask(Request::MultiGet(keys), &[]).await {
            Ok((Completion::MultiGet(answers), _)) => answers,
            Ok((other, _)) => unreachable!("a multi-get was answered with {other:?}"),
            Err(error) => Err(self.read_error(error)),
        }
    }

    /// Stores a pair whose key is absent: [`WriteOutcome::Inserted`], or [`WriteOutcome::Exists`] and no
    /// change.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn insert(&self, key: K::Ref<'_>, value: &[u8]) -> Result<WriteOutcome, WriteError> {
        self.write(WriteOperation::Insert, key, value).await
    }

    /// Replaces the value of a present key: [`WriteOutcome::Replaced`], or [`WriteOutcome::Absent`] and no
    /// change.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn update(&self, key: K::Ref<'_>, value: &[u8]) -> Result<WriteOutcome, WriteError> {
        self.write(WriteOperation::Update, key, value).await
    }

    /// Stores a pair, present or not: [`WriteOutcome::Inserted`] or [`WriteOutcome::Replaced`].
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn put(&self, key: K::Ref<'_>, value: &[u8]) -> Result<WriteOutcome, WriteError> {
        self.write(WriteOperation::Put, key, value).await
    }

    /// [`AsyncTable::put`] of a pair that stays so long, in whole milliseconds.
    ///
    /// # Errors
    /// [`WriteError`]; [`WriteError::NoDeadlines`] in a table whose pairs have none.
    pub async fn put_for(
        &self,
        key: K::Ref<'_>,
        value: &[u8],
        stays: Duration,
    ) -> Result<WriteOutcome, WriteError> {
        let put = self.exchange_for(WriteOperation::Put, key, value, Lifetime::For(stays)).await;
        put.map(|(outcome, _)| outcome)
    }

    /// Removes a key: [`WriteOutcome::Removed`], or [`WriteOutcome::Absent`] and no change.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn remove(&self, key: K::Ref<'_>) -> Result<WriteOutcome, WriteError> {
        self.write(WriteOperation::Remove, key, &[]).await
    }

    /// Stores a value if the key has this version, as [`crate::Session::compare_and_set`] does.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn compare_and_set(
        &self,
        key: K::Ref<'_>,
        expected: u64,
        value: &[u8],
    ) -> Result<WriteOutcome, WriteError> {
        let mut operand = Vec::with_capacity(size_of::<u64>() + value.len());
        push_compare(&mut operand, expected, value);
        self.write(WriteOperation::CompareAndSet, key, &operand).await
    }

    /// Replaces the value if it equals `expected`, as [`crate::Session::compare_and_set_value`] does.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn compare_and_set_value(
        &self,
        key: K::Ref<'_>,
        expected: &[u8],
        value: &[u8],
    ) -> Result<WriteOutcome, WriteError> {
        let mut operand = Vec::with_capacity(2 * value.len());
        push_compare_value(&mut operand, (self.name(), self.handle.values), 0, (expected, value))?;
        self.write(WriteOperation::CompareAndSetValue, key, &operand).await
    }

    /// Removes a key if it has this version, as [`crate::Session::remove_if`] does.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn remove_if(&self, key: K::Ref<'_>, expected: u64) -> Result<WriteOutcome, WriteError> {
        self.write(WriteOperation::RemoveIf, key, &expected.to_le_bytes()).await
    }

    /// Adds to the integer that is the key's value, as [`crate::Session::fetch_add`] does.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn fetch_add(&self, key: K::Ref<'_>, delta: i64) -> Result<Added, WriteError> {
        let (outcome, old) = self.exchange(WriteOperation::FetchAdd, key, &delta.to_le_bytes()).await?;
        Ok(added(outcome, &old))
    }

    /// Stores a pair, present or not, and returns the value before.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn swap(&self, key: K::Ref<'_>, value: &[u8]) -> Result<Swapped, WriteError> {
        let (outcome, old) = self.exchange(WriteOperation::Swap, key, value).await?;
        Ok(swapped(outcome, &old))
    }

    /// The table's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.handle.table
    }

    /// Bytes of each value of the table; of the longest, if they have any length.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        self.handle.values.bytes_max()
    }

    /// What the driver's session did, up to its last round: operations, retries, fallbacks to the server.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.handle.shared.counters()
    }

    /// What went over its queue pair, up to its last round: verbs, bytes, round trips.
    #[must_use]
    pub fn meters(&self) -> Meters {
        self.handle.shared.meters()
    }

    fn ask<'a>(&'a self, request: Request<K::Held>, value: &'a [u8]) -> Operation<'a, K::Held> {
        Operation::new(&self.handle.shared, request, value)
    }

    async fn write(
        &self,
        operation: WriteOperation,
        key: K::Ref<'_>,
        operand: &[u8],
    ) -> Result<WriteOutcome, WriteError> {
        self.exchange(operation, key, operand).await.map(|(outcome, _)| outcome)
    }

    /// Executes a write; the value before comes with its outcome if the operation returns it and there was
    /// one.
    async fn exchange(
        &self,
        operation: WriteOperation,
        key: K::Ref<'_>,
        operand: &[u8],
    ) -> Result<(WriteOutcome, Vec<u8>), WriteError> {
        self.exchange_for(operation, key, operand, Lifetime::OfTable).await
    }

    /// The same of a pair that stays so long.
    async fn exchange_for(
        &self,
        operation: WriteOperation,
        key: K::Ref<'_>,
        operand: &[u8],
        lifetime: Lifetime,
    ) -> Result<(WriteOutcome, Vec<u8>), WriteError> {
        WriteError::check_operand((self.name(), self.handle.values), operation, 0, operand)?;
        match self.ask(Request::Write(operation, K::held(key), lifetime), operand).await {
            Ok((Completion::Write(outcome), old)) => outcome.map(|outcome| (outcome, old)),
            Ok((other, _)) => unreachable!("a write was answered with {other:?}"),
            Err(error) => {
                Err(WriteError::Engine { table: self.name().to_owned(), source: Box::new(error.into()) })
            }
        }
    }

    fn read_error(&self, error: FabricError) -> ReadError {
        ReadError::Engine { table: self.name().to_owned(), source: Box::new(error.into()) }
    }
}

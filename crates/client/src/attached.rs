//! An engine attached to its queue pairs: the operations of one session, whatever its fabric and engine.
//!
//! Invariant: a call crosses from a session into an engine once, however many keys it carries. Behind that
//! call fabric and engine are known to the compiler. So what a read found comes back with the news whether
//! names have changed.

use std::sync::Arc;

use farsight_base::clock::Deadline;
use farsight_fabric::{FabricError, Meters, QueuePair};
use farsight_index::{
    Answers, Counters, Direction, EngineError, EnumeratedPage, Key, MixedWrites, OldValues, Ordered, Pairs,
    ScanRequest, Unfinished, Writes,
};
use farsight_protocol::{SentAddress, TableInfo, WriteOutcome};

use crate::CatalogueError;
use crate::backend::Backend;

/// What a read found, in the table to which the name led at some time.
pub struct Found<T> {
    pub(crate) found: T,
    /// True if no more names have changed than the session knew: the table is the right one.
    pub(crate) is_settled: bool,
}

/// What came of a read.
pub(crate) type Read<T> = Result<Found<T>, EngineError>;

/// What came of a GET of one key. It comes back in two registers: a session takes it from no memory.
pub enum Got {
    /// The version, zero if the key is absent. No more names have changed than the session knew.
    Settled(u64),
    /// The same, in a table to which the name may lead no more.
    Unsettled(u64),
    /// It failed.
    Failed(Box<EngineError>),
}

const _: () = assert!(size_of::<Got>() == 16);

impl Got {
    /// As other reads.
    pub(crate) fn into_read(self) -> Read<Option<u64>> {
        let (version, is_settled) = match self {
            Self::Settled(version) => (version, true),
            Self::Unsettled(version) => (version, false),
            Self::Failed(error) => return Err(*error),
        };
        Ok(Found { found: (version != 0).then_some(version), is_settled })
    }

    #[cold]
    #[inline(never)]
    fn failed(error: EngineError) -> Self {
        Self::Failed(Box::new(error))
    }
}

/// What a session does with its table; as the methods of [`Engine`](farsight_index::Engine) and [`Ordered`].
/// Reads are told the count of name changes that the session knows.
pub trait Operations: Send {
    /// Fails if the queue pairs are known to be lost, or their client to be over. Free where they are not.
    fn check(&mut self) -> Result<(), FabricError>;
    /// One value.
    fn get(&mut self, knows: u64, key: u64, value: &mut [u8]) -> Got;
    /// Many values.
    fn multi_get(&mut self, knows: u64, keys: &[u64], answers: &mut Answers) -> Read<()>;
    /// Many values of a table whose keys are bytes.
    fn multi_get_byte_keys(&mut self, knows: u64, keys: &[&[u8]], answers: &mut Answers) -> Read<()>;
    /// Many scans.
    fn scan_batch(
        &mut self,
        knows: u64,
        direction: Direction,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Read<()>;
    /// Many scans, without values.
    fn scan_keys(
        &mut self,
        knows: u64,
        direction: Direction,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Read<()>;
    /// A page of all pairs, in no order.
    fn enumerate(&mut self, knows: u64, at: &[u64], page: &mut EnumeratedPage) -> Read<()>;
    /// Writes of one kind.
    fn write(
        &mut self,
        writes: Writes<'_>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), EngineError>;
    /// The same in a table whose keys are bytes.
    fn write_byte_keys(
        &mut self,
        writes: Writes<'_, &[u8]>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), EngineError>;
    /// As [`Engine::take_unfinished`](farsight_index::Engine::take_unfinished).
    fn take_unfinished(&mut self) -> Option<Unfinished>;
    /// As [`Engine::resume`](farsight_index::Engine::resume).
    fn resume(&mut self, unfinished: Unfinished);
    /// Fills the cache.
    fn prefill(&mut self, knows: u64) -> Read<()>;
    /// As [`Engine::locate`](farsight_index::Engine::locate).
    fn locate(&mut self, keys: &[Key<'_>], found: &mut Vec<SentAddress>) -> Result<(), EngineError>;
    /// As [`Engine::write_for_others`](farsight_index::Engine::write_for_others).
    fn write_for_others(
        &mut self,
        until: Deadline,
        writes: MixedWrites<'_>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), EngineError>;
    /// What the engine counted.
    fn counters(&self) -> Counters;
    /// What went over the queue pairs.
    fn meters(&self) -> Meters;
    /// How often names of the coordinator's tables had come to lead elsewhere a second ago, or later. Free
    /// where the fabric tells unasked. `None` if there is no table whose name may have changed.
    fn name_changes(&mut self) -> Result<Option<u64>, CatalogueError>;
}

/// What a session works with in one epoch of its backend.
pub(crate) struct Working {
    /// The table.
    pub(crate) info: Arc<TableInfo>,
    /// The count of name changes at which its name led to it.
    pub(crate) name_changes: u64,
    pub(crate) engine: Box<dyn Operations>,
    pub(crate) backend: Arc<dyn Backend>,
}

/// An engine and its queue pairs, one a node.
pub(crate) struct Attached<Q, E> {
    pub(crate) queues: Vec<Q>,
    pub(crate) engine: E,
    /// The queue pairs end with it.
    pub(crate) backend: Arc<dyn Backend>,
}

impl<Q: QueuePair, E> Attached<Q, E> {
    /// What was found, with a look at the count of name changes.
    #[inline(always)]
    fn looked<T>(&mut self, knows: u64, found: T) -> Found<T> {
        Found { found, is_settled: self.is_settled(knows) }
    }

    /// True if no more names have changed than the session knows.
    #[inline(always)]
    fn is_settled(&mut self, knows: u64) -> bool {
        matches!(self.count_of_changes(), Ok(count) if count <= knows)
    }

    #[inline(always)]
    fn count_of_changes(&mut self) -> Result<u64, CatalogueError> {
        if Q::GUARANTEES.tells_unasked {
            return Ok(self.queues[0].notice());
        }
        self.backend.asked_name_changes()
    }
}

impl<Q: QueuePair + Send, E: Ordered<Q>> Operations for Attached<Q, E> {
    fn check(&mut self) -> Result<(), FabricError> {
        self.backend.prepare_to_write()?;
        // Nothing is in flight between two calls: to poll is to look whether the queue lives.
        self.queues.iter_mut().try_for_each(|queue| queue.poll().map(drop))
    }

    fn get(&mut self, knows: u64, key: u64, value: &mut [u8]) -> Got {
        match self.engine.get(&mut self.queues, key, value) {
            Ok(found) => {
                let version = found.unwrap_or(0);
                if self.is_settled(knows) { Got::Settled(version) } else { Got::Unsettled(version) }
            }
            Err(error) => Got::failed(error),
        }
    }

    fn multi_get(&mut self, knows: u64, keys: &[u64], answers: &mut Answers) -> Read<()> {
        self.engine.multi_get(&mut self.queues, keys, answers)?;
        Ok(self.looked(knows, ()))
    }

    fn multi_get_byte_keys(&mut self, knows: u64, keys: &[&[u8]], answers: &mut Answers) -> Read<()> {
        self.engine.multi_get_byte_keys(&mut self.queues, keys, answers)?;
        Ok(self.looked(knows, ()))
    }

    fn scan_batch(
        &mut self,
        knows: u64,
        direction: Direction,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Read<()> {
        self.engine.scan_batch(&mut self.queues, direction, scans, pairs)?;
        Ok(self.looked(knows, ()))
    }

    fn scan_keys(
        &mut self,
        knows: u64,
        direction: Direction,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Read<()> {
        self.engine.scan_keys(&mut self.queues, direction, scans, pairs)?;
        Ok(self.looked(knows, ()))
    }

    fn enumerate(&mut self, knows: u64, at: &[u64], page: &mut EnumeratedPage) -> Read<()> {
        self.engine.enumerate(&mut self.queues, at, page)?;
        Ok(self.looked(knows, ()))
    }

    fn write(
        &mut self,
        writes: Writes<'_>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), EngineError> {
        self.engine.write(&mut self.queues, writes, outcomes, old_values)
    }

    fn write_byte_keys(
        &mut self,
        writes: Writes<'_, &[u8]>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), EngineError> {
        self.engine.write_byte_keys(&mut self.queues, writes, outcomes, old_values)
    }

    fn take_unfinished(&mut self) -> Option<Unfinished> {
        self.engine.take_unfinished()
    }

    fn resume(&mut self, unfinished: Unfinished) {
        self.engine.resume(unfinished);
    }

    fn prefill(&mut self, knows: u64) -> Read<()> {
        self.engine.prefill(&mut self.queues)?;
        Ok(self.looked(knows, ()))
    }

    fn locate(&mut self, keys: &[Key<'_>], found: &mut Vec<SentAddress>) -> Result<(), EngineError> {
        self.engine.locate(&mut self.queues, keys, found)
    }

    fn write_for_others(
        &mut self,
        until: Deadline,
        writes: MixedWrites<'_>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), EngineError> {
        self.engine.write_for_others(&mut self.queues, until, writes, outcomes, old_values)
    }

    fn counters(&self) -> Counters {
        self.engine.counters()
    }

    fn meters(&self) -> Meters {
        self.queues.iter().fold(Meters::default(), |mut sum, queue| {
            sum += queue.meters();
            sum
        })
    }

    fn name_changes(&mut self) -> Result<Option<u64>, CatalogueError> {
        self.count_of_changes().map(Some)
    }
}

/// In place of an engine whose table is gone: its queue pairs, and what they reach, are let go.
pub(crate) struct LetGo;

/// There is nothing to work with.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the session has let go of a table that is gone")]
struct NothingLeft;

impl LetGo {
    /// True if an operation failed because there is nothing to work with.
    pub(crate) fn is_cause_of(error: &EngineError) -> bool {
        error.of::<NothingLeft>().is_some()
    }

    fn failure() -> EngineError {
        EngineError::Engine(Arc::new(NothingLeft))
    }

    fn failed<T>() -> Result<T, EngineError> {
        Err(Self::failure())
    }
}

impl Operations for LetGo {
    fn check(&mut self) -> Result<(), FabricError> {
        Ok(())
    }

    fn get(&mut self, _: u64, _: u64, _: &mut [u8]) -> Got {
        Got::failed(Self::failure())
    }

    fn multi_get(&mut self, _: u64, _: &[u64], _: &mut Answers) -> Read<()> {
        Self::failed()
    }

    fn multi_get_byte_keys(&mut self, _: u64, _: &[&[u8]], _: &mut Answers) -> Read<()> {
        Self::failed()
    }

    fn scan_batch(&mut self, _: u64, _: Direction, _: &[ScanRequest], _: &mut Pairs) -> Read<()> {
        Self::failed()
    }

    fn scan_keys(&mut self, _: u64, _: Direction, _: &[ScanRequest], _: &mut Pairs) -> Read<()> {
        Self::failed()
    }

    fn enumerate(&mut self, _: u64, _: &[u64], _: &mut EnumeratedPage) -> Read<()> {
        Self::failed()
    }

    fn write(
        &mut self,
        _: Writes<'_>,
        _: &mut Vec<WriteOutcome>,
        _: &mut OldValues,
    ) -> Result<(), EngineError> {
        Self::failed()
    }

    fn write_byte_keys(
        &mut self,
        _: Writes<'_, &[u8]>,
        _: &mut Vec<WriteOutcome>,
        _: &mut OldValues,
    ) -> Result<(), EngineError> {
        Self::failed()
    }

    fn take_unfinished(&mut self) -> Option<Unfinished> {
        None
    }

    fn resume(&mut self, _: Unfinished) {}

    fn prefill(&mut self, _: u64) -> Read<()> {
        Self::failed()
    }

    fn locate(&mut self, _: &[Key<'_>], _: &mut Vec<SentAddress>) -> Result<(), EngineError> {
        Self::failed()
    }

    fn write_for_others(
        &mut self,
        _: Deadline,
        _: MixedWrites<'_>,
        _: &mut Vec<WriteOutcome>,
        _: &mut OldValues,
    ) -> Result<(), EngineError> {
        Self::failed()
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn meters(&self) -> Meters {
        Meters::default()
    }

    fn name_changes(&mut self) -> Result<Option<u64>, CatalogueError> {
        Ok(None)
    }
}

//! What an engine is to a session: the operations on one table, over the queue pairs that a client opened to
//! the table's nodes.
//!
//! Invariant: sessions, facade and harnesses know engines by these traits alone. An engine knows neither its
//! client nor a provider of the fabric.

use std::error::Error;
use std::ops::AddAssign;
use std::sync::Arc;

use farsight_base::clock::Deadline;
use farsight_fabric::{FabricError, QueuePair};
use farsight_protocol::{Direction, ErrorCode, SentAddress, ServerError, WriteOperation, WriteOutcome};

use crate::{Answers, Counters, EnumeratedPage, Key, OldValues, Pairs, Unfinished};

/// Who searches the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The client, by READs.
    OneSided,
    /// The server, by calls: the server-centric design that one-sided ones are compared with.
    Rpc,
}

/// One session's engine for one table. `queues` is always one queue pair a node of the table, in the nodes'
/// order.
pub trait Engine<Q: QueuePair>: Send {
    /// Copies the value of `key` into `value`, which is as long as the table's values, and returns its
    /// version. Returns `None`, with `value` undefined, if the key is absent.
    ///
    /// # Errors
    /// [`EngineError`].
    ///
    /// # Panics
    /// If the table's values have any length: those are got by [`Engine::multi_get`].
    fn get(&mut self, queues: &mut [Q], key: u64, value: &mut [u8]) -> Result<Option<u64>, EngineError>;

    /// The values of `keys`, in their order, into `answers`.
    ///
    /// # Errors
    /// [`EngineError`]; then `answers` is undefined.
    fn multi_get(&mut self, queues: &mut [Q], keys: &[u64], answers: &mut Answers)
    -> Result<(), EngineError>;

    /// Executes writes, those of one key in their order, and appends what became of each to `outcomes`.
    /// Operations that return the value before ([`WriteOperation::returns_value`]) also append one value an
    /// outcome to `old_values`. It means something if the outcome is [`WriteOutcome::Replaced`].
    ///
    /// # Errors
    /// [`EngineError`]; then `outcomes` has the first ones of which something is known.
    fn write(
        &mut self,
        queues: &mut [Q],
        writes: Writes<'_>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), EngineError>;

    /// Takes what the last batch of writes has left, if it failed with its connection. Another engine can go
    /// on with it, of the same table and over another connection.
    fn take_unfinished(&mut self) -> Option<Unfinished> {
        None
    }

    /// Lets the next batch of writes go on where another engine's was cut off: it is the same batch, and its
    /// `outcomes` begin empty. Only for an engine that leaves such batches.
    fn resume(&mut self, _unfinished: Unfinished) {}

    /// Fetches everything that the cache can learn of the table, instead of piece by piece on demand.
    ///
    /// # Errors
    /// [`EngineError`].
    fn prefill(&mut self, queues: &mut [Q]) -> Result<(), EngineError>;

    /// [`Engine::multi_get`] in a table whose keys are bytes of any length.
    ///
    /// # Errors
    /// [`EngineError`]; [`NoByteKeys`] of an engine that has no such tables.
    fn multi_get_byte_keys(
        &mut self,
        _queues: &mut [Q],
        _keys: &[&[u8]],
        _answers: &mut Answers,
    ) -> Result<(), EngineError> {
        Err(NoByteKeys.into())
    }

    /// [`Engine::write`] in such a table.
    ///
    /// # Errors
    /// As there.
    fn write_byte_keys(
        &mut self,
        _queues: &mut [Q],
        _writes: Writes<'_, &[u8]>,
        _outcomes: &mut Vec<WriteOutcome>,
        _old_values: &mut OldValues,
    ) -> Result<(), EngineError> {
        Err(NoByteKeys.into())
    }

    /// What this session did besides the fabric's verbs.
    fn counters(&self) -> Counters;

    /// Executes writes of any kinds for other compute nodes, those of one key in their order. It appends what
    /// became of each to `outcomes`, and to `old_values` the value before, if its operation returns that. A
    /// write that has not found out by `until` what it changes fails, and changes nothing.
    ///
    /// # Errors
    /// As [`Engine::write`]; [`NoWritesForOthers`] of an engine that has none.
    fn write_for_others(
        &mut self,
        _queues: &mut [Q],
        _until: Deadline,
        _writes: MixedWrites<'_>,
        _outcomes: &mut Vec<WriteOutcome>,
        _old_values: &mut OldValues,
    ) -> Result<(), EngineError> {
        Err(EngineError::Engine(Arc::new(NoWritesForOthers)))
    }

    /// Where keys stand, for another compute node, appended to `found`.
    ///
    /// # Errors
    /// As [`Engine::write_for_others`].
    fn locate(
        &mut self,
        _queues: &mut [Q],
        _keys: &[Key<'_>],
        _found: &mut Vec<SentAddress>,
    ) -> Result<(), EngineError> {
        Err(EngineError::Engine(Arc::new(NoWritesForOthers)))
    }

    /// Replaces what `page` holds by the pairs at this place of an [enumeration](crate::Enumeration). Only
    /// engines without order have it: others have scans.
    ///
    /// # Errors
    /// [`EngineError`]; then `page` is undefined.
    fn enumerate(
        &mut self,
        _queues: &mut [Q],
        _at: &[u64],
        _page: &mut EnumeratedPage,
    ) -> Result<(), EngineError> {
        Err(EngineError::Engine(Arc::new(NoEnumeration)))
    }
}

/// What other compute nodes that serve do for this one's GETs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReadsByOthers {
    /// Nothing: it finds all keys by its own READs.
    #[default]
    None,
    /// They say where a key stands whose address it does not know.
    Addresses,
    /// They read all keys of their partitions. That is ownership partitioning, as of DINOMO and DEX, where
    /// they have all partitions.
    Values,
}

/// Which entry a full cache of addresses or values lets go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CachePolicy {
    /// The first, from a hand on, that was not used since the hand came by: SIEVE (Zhang et al., NSDI'24).
    #[default]
    Sieve,
    /// The oldest, as in the published FlexKV.
    Fifo,
}

impl CachePolicy {
    /// True if entries are marked that are used. Without marks the hand of SIEVE takes the oldest.
    #[must_use]
    pub const fn marks_uses(self) -> bool {
        matches!(self, Self::Sieve)
    }
}

impl ReadsByOthers {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::Addresses, Self::Values];
}

/// Writes for other compute nodes, of an engine that has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("compute nodes write for others in tables of FlexKV alone")]
pub struct NoWritesForOthers;

/// An enumeration of an engine that has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the engine of this table enumerates no pairs: scan it")]
pub struct NoEnumeration;

/// An engine that keeps its keys in order.
pub trait Ordered<Q: QueuePair>: Engine<Q> {
    /// For each of `scans` the first pairs on the way from its start on, at most its limit.
    ///
    /// # Errors
    /// [`EngineError`]; then `pairs` is undefined.
    fn scan_batch(
        &mut self,
        queues: &mut [Q],
        direction: Direction,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), EngineError>;

    /// The same of keys alone: values are empty then, and versions mean nothing.
    ///
    /// # Errors
    /// As there.
    fn scan_keys(
        &mut self,
        queues: &mut [Q],
        direction: Direction,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), EngineError> {
        self.scan_batch(queues, direction, scans, pairs)?;
        pairs.drop_values();
        Ok(())
    }
}

/// One scan of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanRequest {
    /// The first key on the way: the least one wanted, or, downwards, the greatest.
    pub from: u64,
    /// Pairs wanted at most.
    pub limit: usize,
}

/// Keys of bytes, where they are integers.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the keys of this table are integers of eight bytes, not bytes of any length")]
pub struct NoByteKeys;

/// Writes of one kind, in their order, of keys that are integers, or as `K` has them.
#[derive(Clone, Copy, Debug)]
pub struct Writes<'a, K = u64> {
    /// What is done with each key.
    pub operation: WriteOperation,
    /// The keys.
    pub keys: &'a [K],
    /// Their operands, one behind the other: mostly values ([`Operand`](farsight_protocol::Operand)).
    pub values: &'a [u8],
    /// Where in `values` each begins, and behind that where the last ends, if they have any length. Empty if
    /// each is as long as the table's are, or there are none.
    pub bounds: &'a [usize],
}

impl<'a, K: Copy> Writes<'a, K> {
    /// Each key with its value.
    ///
    /// # Panics
    /// If the values are not the same number of whole bytes for each key.
    #[inline]
    #[must_use]
    pub fn iter(self) -> impl ExactSizeIterator<Item = (K, &'a [u8])> + Clone {
        (0..self.keys.len()).map(self.by_index())
    }

    /// A key with its value, by its number.
    ///
    /// # Panics
    /// As [`Writes::iter`].
    #[inline]
    pub fn by_index(self) -> impl Fn(usize) -> (K, &'a [u8]) + Copy {
        let Self { keys, values, bounds, .. } = self;
        let bytes = self.value_bytes();
        move |index| {
            let value = match bounds {
                [] => &values[index * bytes..][..bytes],
                bounds => &values[bounds[index]..bounds[index + 1]],
            };
            (keys[index], value)
        }
    }

    /// The first `count` writes, and the others.
    ///
    /// # Panics
    /// As [`Writes::iter`], and if there are fewer.
    #[must_use]
    pub fn split_at(self, count: usize) -> (Self, Self) {
        let (keys, later_keys) = self.keys.split_at(count);
        if !self.bounds.is_empty() {
            let first = Self { keys, bounds: &self.bounds[..=count], ..self };
            return (first, Self { keys: later_keys, bounds: &self.bounds[count..], ..self });
        }
        let (values, later_values) = self.values.split_at(count * self.value_bytes());
        (Self { keys, values, ..self }, Self { keys: later_keys, values: later_values, ..self })
    }

    fn value_bytes(self) -> usize {
        if !self.bounds.is_empty() {
            assert_eq!(self.bounds.len(), self.keys.len() + 1, "bounds of values");
            return 0;
        }
        let bytes = self.values.len() / self.keys.len().max(1);
        assert_eq!(bytes * self.keys.len(), self.values.len(), "values of one size");
        bytes
    }
}

/// Writes of any kinds, in their order.
#[derive(Clone, Copy, Debug)]
pub struct MixedWrites<'a> {
    /// What is done with each key.
    pub operations: &'a [WriteOperation],
    /// The keys.
    pub keys: &'a [Key<'a>],
    /// Their operands, one behind the other ([`Operand`](farsight_protocol::Operand)).
    pub operands: &'a [u8],
    /// Where each of those begins, and behind that where the last ends.
    pub bounds: &'a [usize],
}

impl<'a> MixedWrites<'a> {
    /// The operand of the write with this number.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn operand(self, index: usize) -> &'a [u8] {
        &self.operands[self.bounds[index]..self.bounds[index + 1]]
    }
}

/// What the cache holds that a process's sessions share on a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStats {
    /// The generation of the model; zero: none yet.
    pub generation: u64,
    /// Sub-models of that generation.
    pub sub_models: u64,
    /// Sub-models fetched so far.
    pub sub_models_filled: u64,
    /// Bytes of the models.
    pub model_bytes: u64,
    /// Bytes of the tables that translate a model's answer to a leaf.
    pub table_bytes: u64,
    /// Bytes of values that are kept, with what says how often keys are read.
    pub value_bytes: u64,
    /// Bytes of memory that the process gives for all of it. They include what is free, what stands ready,
    /// and what sessions hold that have not taken up the newest yet.
    pub memory_bytes: u64,
}

/// What a process may keep of a table's values, to answer GETs without a verb.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueCache {
    /// Bytes of memory; zero: nothing is kept.
    pub bytes: u64,
    /// A value is kept once its key was read so many times as often as it was written. A write of a value
    /// that anybody keeps takes as long as 10 to 100 GETs, and a GET of it saves a round trip.
    pub reads_a_write: u32,
}

impl ValueCache {
    /// So many bytes, for keys that are read 64 times as often as they are written.
    #[must_use]
    pub const fn of_bytes(bytes: u64) -> Self {
        Self { bytes, reads_a_write: 64 }
    }
}

impl AddAssign for CacheStats {
    /// What several caches hold; the newest generation of any.
    fn add_assign(&mut self, other: Self) {
        self.generation = self.generation.max(other.generation);
        self.sub_models += other.sub_models;
        self.sub_models_filled += other.sub_models_filled;
        self.model_bytes += other.model_bytes;
        self.table_bytes += other.table_bytes;
        self.value_bytes += other.value_bytes;
        self.memory_bytes += other.memory_bytes;
    }
}

/// What went wrong in an operation, whatever the engine.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EngineError {
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The engine failed: [`EngineError::of`] has its own error.
    #[error(transparent)]
    Engine(Arc<dyn Error + Send + Sync>),
    /// A write was under way in the engine, and may have happened or not.
    #[error(transparent)]
    Indeterminate(Arc<dyn Error + Send + Sync>),
}

impl From<NoByteKeys> for EngineError {
    fn from(error: NoByteKeys) -> Self {
        Self::Engine(Arc::new(error))
    }
}

impl EngineError {
    /// True if a write may have been executed although it failed.
    #[must_use]
    pub fn is_indeterminate(&self) -> bool {
        match self {
            Self::Fabric(error) => leaves_calls_unknown(error),
            Self::Engine(_) => false,
            Self::Indeterminate(_) => true,
        }
    }

    /// Its cause, that one's cause, and so on.
    fn causes(&self) -> impl Iterator<Item = &(dyn Error + 'static)> {
        let first: &(dyn Error + 'static) = match self {
            Self::Fabric(error) => error,
            Self::Engine(error) | Self::Indeterminate(error) => &**error,
        };
        std::iter::successors(Some(first), |error: &&(dyn Error + 'static)| Error::source(*error))
    }

    /// True if the operation met a table that was dropped.
    #[must_use]
    pub fn is_of_dropped_table(&self) -> bool {
        self.causes().any(|error| {
            let withdrawn = error.downcast_ref();
            let refused: Option<&ServerError> = error.downcast_ref();
            matches!(withdrawn, Some(FabricError::RegionWithdrawn { .. } | FabricError::UnknownRegion { .. }))
                || refused.is_some_and(|error| error.code == ErrorCode::UnknownTable)
        })
    }

    /// The code with which a node refused what the operation asked it, if that is why it failed.
    #[must_use]
    pub fn refusal(&self) -> Option<ErrorCode> {
        self.causes().find_map(|error| error.downcast_ref().map(|refused: &ServerError| refused.code))
    }

    /// The engine's own error, if it is an `E`.
    #[must_use]
    pub fn of<E: Error + 'static>(&self) -> Option<&E> {
        match self {
            Self::Fabric(_) => None,
            Self::Engine(source) | Self::Indeterminate(source) => source.downcast_ref(),
        }
    }
}

/// True if a call that ended so may have been executed: it was sent, and no answer came.
#[must_use]
pub fn leaves_calls_unknown(error: &FabricError) -> bool {
    matches!(
        error,
        FabricError::Disconnected { .. }
            | FabricError::Dismissed { .. }
            | FabricError::TimedOut { .. }
            | FabricError::Protocol { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_keys_with_values_of_one_size() {
        let writes = Writes { operation: WriteOperation::Put, keys: &[3, 9], values: b"onetwo", bounds: &[] };
        assert_eq!(writes.iter().collect::<Vec<_>>(), [(3, &b"one"[..]), (9, b"two")]);
        let removes = Writes { operation: WriteOperation::Remove, values: &[], ..writes };
        assert_eq!(removes.iter().collect::<Vec<_>>(), [(3, &[][..]), (9, &[])]);
        assert_eq!(Writes { keys: &[], ..removes }.iter().len(), 0);
        let (first, second) = writes.split_at(1);
        assert_eq!(
            (first.keys, first.values, second.keys, second.values),
            (&[3][..], &b"one"[..], &[9][..], &b"two"[..])
        );
        assert_eq!(second.by_index()(0), (9, &b"two"[..]));
    }

    #[test]
    fn values_of_any_length_have_bounds() {
        let bounds = &[0, 0, 3, 7];
        let writes = Writes { operation: WriteOperation::Put, keys: &[1, 2, 3], values: b"onelong", bounds };
        assert_eq!(writes.iter().collect::<Vec<_>>(), [(1, &b""[..]), (2, b"one"), (3, b"long")]);
        let (first, second) = writes.split_at(2);
        assert_eq!(first.iter().collect::<Vec<_>>(), [(1, &b""[..]), (2, b"one")]);
        assert_eq!(second.iter().collect::<Vec<_>>(), [(3, &b"long"[..])]);
        assert_eq!(second.split_at(0).0.iter().len(), 0);
    }

    #[test]
    fn an_engines_own_error_is_found_again() {
        let own = || Arc::new(std::fmt::Error);
        assert!(EngineError::Engine(own()).of::<std::fmt::Error>().is_some());
        assert!(EngineError::Indeterminate(own()).is_indeterminate());
        assert!(!EngineError::Engine(own()).is_indeterminate());
        assert!(EngineError::Engine(own()).of::<FabricError>().is_none());
    }

    #[test]
    fn a_dropped_table_is_found_among_the_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("asking")]
        struct Asking {
            source: ServerError,
        }
        let asking = |code| EngineError::Engine(Arc::new(Asking { source: ServerError::new(code, "no") }));
        assert!(asking(ErrorCode::UnknownTable).is_of_dropped_table());
        assert!(!asking(ErrorCode::RegionFull).is_of_dropped_table());
        let withdrawn =
            FabricError::RegionWithdrawn { peer: "p".to_owned(), region: farsight_base::RegionId(1) };
        assert!(EngineError::from(withdrawn).is_of_dropped_table());
        assert!(!EngineError::from(FabricError::Forked).is_of_dropped_table());
    }
}

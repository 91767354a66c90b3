//! ROLEX over queue pairs to every node.
//!
//! Invariant: what the engine asks of the nodes' processors (leaves, fences) goes over queue pairs of its
//! own, never over the session's, whose operations are under way meanwhile.

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;

#[cfg(planted)]
use farsight_base::sync::planted::{Bug, is_planted};
use farsight_fabric::{Connection, FabricError, QueuePair};
use farsight_index::{Answers, Counters, Pairs};
use farsight_index_rolex::{CacheSession, CallResult, LeafPlace, PoolCalls, RolexError, RolexSession, Write};
use farsight_index_xstore::client::ScanRequest;
use farsight_layout::pool::LockWord;
use farsight_protocol::{
    Blocks, ComputeNode, ErrorCode, Fenced, LockSeen, PoolRequest, Space, TableId, WriteOperation,
    WriteOutcome,
};
use serde::de::DeserializeOwned;

use super::given_up::GivenUp;
use super::nodes::{Nodes, OpenTable};
use crate::{CatalogueError, EngineError};

/// Leaves that a session takes at once, so that it hardly ever asks.
const CHUNK_LEAVES: u32 = 64;
/// One session's engine, with buffers that are reused.
pub struct RolexEngine {
    session: RolexSession,
    given_up: GivenUp,
    expected_bytes: usize,
    answers: Answers,
    scans: Vec<(u64, usize)>,
    done: Vec<Result<WriteOutcome, RolexError>>,
}

/// What the engine asks of the nodes' processors.
struct Calls<C: Connection> {
    nodes: Arc<Nodes<C>>,
    table: TableId,
    /// Leaves that are asked for at once.
    chunk_leaves: u32,
}

/// A session of this compute node that asks for so many leaves at once.
pub(super) fn session<C: Connection + 'static>(
    nodes: &Arc<Nodes<C>>,
    open: &OpenTable,
    chunk_leaves: u32,
) -> Result<RolexSession, CatalogueError> {
    let calls = Calls { nodes: Arc::clone(nodes), table: open.info.id, chunk_leaves };
    let hints = CacheSession::new(Arc::clone(open.rolex_cache()?));
    Ok(RolexSession::new(hints, nodes.locks()?, Box::new(calls)))
}

impl<C: Connection> Calls<C> {
    fn ask<T: DeserializeOwned>(&self, node: usize, request: &PoolRequest) -> CallResult<T> {
        self.nodes.ask(node, request).map_err(call_error)
    }
}

/// A failure of the fabric as it is, because the engine knows what it means for its operation.
fn call_error(error: CatalogueError) -> Box<dyn Error + Send + Sync> {
    match error {
        CatalogueError::Fabric(error) => error.into(),
        other => other.into(),
    }
}

impl<C: Connection> PoolCalls for Calls<C> {
    fn standing(&self) -> Result<(), FabricError> {
        self.nodes.standing()
    }

    fn more_leaves(&self, node: usize) -> CallResult<Range<u32>> {
        let (space, count) = (Space::Leaves, self.chunk_leaves);
        let request = PoolRequest::Allocate { table: self.table, space, count };
        match self.nodes.ask::<Blocks>(node, &request) {
            Ok(blocks) => Ok(blocks.first..blocks.first.saturating_add(blocks.count)),
            Err(CatalogueError::Refused { source, .. }) if source.code == ErrorCode::RegionFull => Ok(0..0),
            Err(error) => Err(call_error(error)),
        }
    }

    /// Asks the leaf's own memory node first, which alone knows the lock's lease: where a process has to be
    /// ended, it does that, and the others find it gone.
    fn fence(&self, compute_node: u32, seen: Option<(LeafPlace, LockWord)>) -> CallResult<Fenced> {
        let home = self.nodes.epochs()?[0];
        let leaf_node = seen.map(|(place, _)| place.node());
        let others = (0..self.nodes.count()).filter(|node| Some(*node) != leaf_node);
        for node in leaf_node.into_iter().chain(others) {
            let (table, compute_node) = (self.table, ComputeNode(compute_node));
            let of_leaf = |(place, lock): (LeafPlace, LockWord)| {
                (place.node() == node).then(|| LockSeen { table, block: place.number(), word: lock.0 })
            };
            let request = PoolRequest::Fence { home, compute_node, seen: seen.and_then(of_leaf) };
            match self.ask(node, &request)? {
                Fenced::Done => {}
                wait @ Fenced::Wait { .. } => return Ok(wait),
            }
        }
        Ok(Fenced::Done)
    }

    fn adopt(&self, node: usize, space: Space, blocks: &[Blocks]) -> CallResult<()> {
        self.ask(node, &PoolRequest::Adopt { table: self.table, space, blocks: blocks.to_vec() })
    }

    fn settle(&self, node: usize, space: Space, blocks: &[Blocks]) -> CallResult<()> {
        self.ask(node, &PoolRequest::Settle { table: self.table, space, blocks: blocks.to_vec() })
    }

    fn free(&self, node: usize, space: Space, blocks: &[Blocks]) -> CallResult<()> {
        let request = PoolRequest::Free { table: self.table, space, blocks: blocks.to_vec() };
        self.ask::<u64>(node, &request).map(drop)
    }

    fn ended(&self, node: usize, space: Space) -> CallResult<Vec<u32>> {
        let ended: Vec<ComputeNode> = self.ask(node, &PoolRequest::Ended { table: self.table, space })?;
        Ok(ended.into_iter().map(|compute_node| compute_node.0).collect())
    }

    fn take_orphans(&self, node: usize, space: Space, of: u32) -> CallResult<Vec<Blocks>> {
        self.ask(node, &PoolRequest::TakeOrphans { table: self.table, space, of: ComputeNode(of) })
    }
}

impl RolexEngine {
    pub(crate) fn new<C: Connection + 'static>(
        nodes: &Arc<Nodes<C>>,
        open: &OpenTable,
    ) -> Result<Self, CatalogueError> {
        Ok(Self {
            session: session(nodes, open, CHUNK_LEAVES)?,
            given_up: nodes.given_up().clone(),
            expected_bytes: usize::from(open.info.definition.value_bytes),
            answers: Answers::default(),
            scans: Vec::new(),
            done: Vec::new(),
        })
    }

    pub(crate) fn counters(&self) -> Counters {
        self.session.counters()
    }

    pub(crate) fn prefill<Q: QueuePair>(&mut self, queues: &mut [Q]) -> Result<(), RolexError> {
        self.session.prefill(queues).inspect_err(|error| self.given_up.note(error))
    }

    pub(crate) fn get<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        key: u64,
        value: &mut [u8],
    ) -> Result<Option<u64>, RolexError> {
        let got = self.session.multi_get(queues, &[key], &mut self.answers);
        got.inspect_err(|error| self.given_up.note(error))?;
        Ok(self.answers.get(0).map(|(found, version)| {
            value.copy_from_slice(found);
            version
        }))
    }

    pub(crate) fn multi_get<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        keys: &[u64],
        answers: &mut Answers,
    ) -> Result<(), RolexError> {
        self.session.multi_get(queues, keys, answers).inspect_err(|error| self.given_up.note(error))
    }

    pub(crate) fn scan_batch<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), RolexError> {
        self.scans.clear();
        self.scans.extend(scans.iter().map(|scan| (scan.from, scan.limit)));
        let scanned = self.session.scan_batch(queues, &self.scans, pairs);
        scanned.inspect_err(|error| self.given_up.note(error))
    }

    pub(crate) fn write<'v, Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        operation: WriteOperation,
        entries: impl ExactSizeIterator<Item = (u64, &'v [u8])>,
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<(), EngineError> {
        let expected = if operation.has_value() { self.expected_bytes } else { 0 };
        let mut writes = Vec::with_capacity(entries.len());
        for (index, (key, value)) in entries.enumerate() {
            if value.len() != expected {
                return Err(EngineError::ValueSize { index, expected, got: value.len() });
            }
            writes.push(Write { operation, key, value });
        }
        #[cfg(planted)]
        let old = self.old_value(queues, &writes)?;
        #[cfg(planted)]
        if let (Some(old), [write]) = (&old, &mut writes[..]) {
            write.value = old;
        }
        self.done.clear();
        self.session.write_many(queues, &writes, &mut self.done);
        self.done.iter().filter_map(|done| done.as_ref().err()).for_each(|error| self.given_up.note(error));
        gather(self.done.drain(..), outcomes)
    }
}

#[cfg(planted)]
impl RolexEngine {
    /// What the key of a lone update holds, if that is to be what it holds afterwards.
    fn old_value<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        writes: &[Write<'_>],
    ) -> Result<Option<Vec<u8>>, EngineError> {
        let [Write { operation: WriteOperation::Update, key, .. }] = *writes else { return Ok(None) };
        if !is_planted(Bug::LoneUpdateLost) {
            return Ok(None);
        }
        let mut old = vec![0; self.expected_bytes];
        let found = self.get(queues, key, &mut old).map_err(EngineError::from)?;
        Ok(found.map(|_| old))
    }
}

/// Appends outcomes up to the first write whose outcome is unknown: that is the error. A write that failed
/// and changed nothing is an outcome beside others; if all of them are such, the first one's reason is the
/// call's.
fn gather(
    done: impl ExactSizeIterator<Item = Result<WriteOutcome, RolexError>>,
    outcomes: &mut Vec<WriteOutcome>,
) -> Result<(), EngineError> {
    let mut refused: Option<EngineError> = None;
    let (calls, before) = (done.len(), outcomes.len());
    let mut refusals = 0;
    for outcome in done {
        let failed = match outcome.map_err(EngineError::from) {
            Ok(outcome) => outcome,
            Err(error) if error.is_indeterminate() => return Err(error),
            Err(error) => {
                let is_contended = matches!(
                    &error,
                    EngineError::Rolex(error) if matches!(**error, RolexError::Contended { .. })
                );
                refusals += 1;
                refused.get_or_insert(error);
                let code = if is_contended { ErrorCode::Contended } else { ErrorCode::OutOfResources };
                WriteOutcome::Failed(code)
            }
        };
        outcomes.push(failed);
    }
    match refused {
        Some(error) if refusals == calls => {
            outcomes.truncate(before);
            Err(error)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: WriteOutcome = WriteOutcome::Inserted(7);

    /// No descriptors are left to ask a memory node for leaves.
    fn refused() -> Result<WriteOutcome, RolexError> {
        let [what, source_text, remedy] =
            ["opening a queue", "none left", "raise the limit"].map(str::to_owned);
        Err(FabricError::System { what, source_text, remedy }.into())
    }

    fn unknown(key: u64) -> Result<WriteOutcome, RolexError> {
        let source = FabricError::Disconnected { peer: "p".to_owned(), reason: "it died".to_owned() };
        Err(RolexError::Indeterminate { key, source })
    }

    fn gathered(done: Vec<Result<WriteOutcome, RolexError>>) -> (Vec<WriteOutcome>, Option<EngineError>) {
        let mut outcomes = vec![DONE];
        let error = gather(done.into_iter(), &mut outcomes).err();
        assert_eq!(outcomes.remove(0), DONE, "what was there stays");
        (outcomes, error)
    }

    #[test]
    fn a_write_that_changed_nothing_hides_no_other_one() {
        let failed = WriteOutcome::Failed(ErrorCode::OutOfResources);
        let (outcomes, error) = gathered(vec![refused(), Ok(DONE)]);
        assert_eq!(outcomes, [failed, DONE]);
        assert!(error.is_none(), "{error:?}");
        // The outcome of one is unknown: the error must not say that nothing was executed.
        let (outcomes, error) = gathered(vec![refused(), unknown(2), Ok(DONE)]);
        assert_eq!(outcomes, [failed]);
        assert!(error.is_some_and(|error| error.is_indeterminate()));
    }

    #[test]
    fn a_call_of_which_nothing_was_done_has_its_reason() {
        for count in [1, 3] {
            let (outcomes, error) = gathered((0..count).map(|_| refused()).collect());
            assert_eq!(outcomes, []);
            assert!(matches!(error, Some(EngineError::Fabric(FabricError::System { .. }))), "{error:?}");
        }
    }
}

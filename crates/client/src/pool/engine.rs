//! A pool as what a client is connected to: ROLEX over queue pairs to every node.
//!
//! Invariant: what the engine asks of the nodes' processors (leaves, fences) goes over queue pairs of its
//! own, never over the session's, whose operations are under way meanwhile.

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::Epoch;
use farsight_fabric::{Connection, FabricError, Meters, QueuePair};
use farsight_index::{Answers, Counters, Pairs};
use farsight_index_rolex::{CacheSession, PoolCalls, RolexError, RolexSession, Write};
use farsight_index_xstore::client::{Access, CacheStats, ScanRequest};
use farsight_protocol::{
    Blocks, ComputeNode, ErrorCode, PoolRequest, Space, TableDefinition, TableId, TableInfo, WriteOperation,
    WriteOutcome,
};

use super::nodes::{Nodes, OpenTable};
use crate::peers::Peers;
use crate::{CatalogueError, EngineError};

/// Leaves that a session takes at once, so that it hardly ever asks.
const CHUNK_LEAVES: u32 = 64;
/// How often a fence is asked for while the node has another one under way.
const FENCE_TRIES: u32 = 200;
/// The pause between.
const FENCE_PAUSE: Duration = Duration::from_millis(10);

/// One session's engine, with buffers that are reused.
pub struct PoolEngine {
    session: RolexSession,
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
    let hints = CacheSession::new(Arc::clone(&open.cache));
    Ok(RolexSession::new(hints, nodes.locks()?, Box::new(calls)))
}

type CallError = Box<dyn Error + Send + Sync>;

impl<C: Connection> PoolCalls for Calls<C> {
    fn more_leaves(&self, node: usize) -> Result<Range<u32>, CallError> {
        let (space, count) = (Space::Leaves, self.chunk_leaves);
        let request = PoolRequest::Allocate { table: self.table, space, count };
        match self.nodes.ask::<Blocks>(node, &request) {
            Ok(blocks) => Ok(blocks.first..blocks.first.saturating_add(blocks.count)),
            Err(CatalogueError::Refused { source, .. }) if source.code == ErrorCode::RegionFull => Ok(0..0),
            Err(error) => Err(error.into()),
        }
    }

    fn fence(&self, compute_node: u16) -> Result<(), CallError> {
        let home = self.nodes.epochs()?[0];
        let request = PoolRequest::Fence { home, compute_node: ComputeNode(compute_node) };
        for node in 0..self.nodes.count() {
            let mut tries = 1;
            while let Err(error) = self.nodes.ask::<()>(node, &request) {
                let is_busy = matches!(
                    &error,
                    CatalogueError::Refused { source, .. } if source.code == ErrorCode::Contended
                );
                if !is_busy || tries == FENCE_TRIES {
                    return Err(error.into());
                }
                tries += 1;
                std::thread::sleep(FENCE_PAUSE);
            }
        }
        Ok(())
    }
}

impl<C: Connection + 'static> Peers for Nodes<C> {
    type Open = OpenTable;
    type Links = Vec<C::Queue>;
    type Engine = PoolEngine;

    fn peer(&self) -> String {
        let peers: Vec<&str> = (0..self.count()).map(|node| self.connection(node).peer()).collect();
        peers.join(",")
    }

    fn epoch(&self) -> Epoch {
        self.connection(0).epoch()
    }

    fn check(&self) -> Result<(), FabricError> {
        (0..self.count()).try_for_each(|node| self.connection(node).check())
    }

    fn again(&self, timeout: Duration) -> Result<Self, FabricError> {
        let connections = (0..self.count()).map(|node| self.connection(node).reconnect(timeout));
        Self::new(connections.collect::<Result<_, _>>()?)
    }

    fn create(&self, definition: &TableDefinition) -> Result<Arc<OpenTable>, CatalogueError> {
        self.create_table(definition)
    }

    fn open(&self, name: &str) -> Result<Arc<OpenTable>, CatalogueError> {
        self.open_table(name)
    }

    fn opened(&self, name: &str) -> Option<Arc<OpenTable>> {
        self.known_table(name)
    }

    fn describe(&self, name: &str) -> Result<TableInfo, CatalogueError> {
        Ok((*self.open_table(name)?.info).clone())
    }

    fn list(&self) -> Result<Vec<TableInfo>, CatalogueError> {
        self.table_infos()
    }

    fn info(open: &OpenTable) -> &Arc<TableInfo> {
        &open.info
    }

    fn cache_stats(open: &OpenTable) -> CacheStats {
        let bytes = open.cache.bytes();
        CacheStats {
            sub_models: bytes.segments,
            sub_models_filled: bytes.segments,
            model_bytes: bytes.learned,
            table_bytes: bytes.synonyms,
            ..CacheStats::default()
        }
    }

    fn links(&self, open: &OpenTable) -> Result<Vec<C::Queue>, FabricError> {
        self.queues(open)
    }

    fn engine(
        self: &Arc<Self>,
        open: &Arc<OpenTable>,
        _access: Access,
    ) -> Result<PoolEngine, CatalogueError> {
        Ok(PoolEngine {
            session: session(self, open, CHUNK_LEAVES)?,
            expected_bytes: usize::from(open.info.definition.value_bytes),
            answers: Answers::default(),
            scans: Vec::new(),
            done: Vec::new(),
        })
    }

    fn poll(queues: &mut Vec<C::Queue>) -> Result<(), FabricError> {
        queues.iter_mut().try_for_each(|queue| queue.poll().map(drop))
    }

    fn meters(queues: &Vec<C::Queue>) -> Meters {
        queues.iter().fold(Meters::default(), |mut sum, queue| {
            sum += queue.meters();
            sum
        })
    }

    fn counters(engine: &PoolEngine) -> Counters {
        engine.session.counters()
    }

    fn get(
        engine: &mut PoolEngine,
        queues: &mut Vec<C::Queue>,
        key: u64,
        value: &mut [u8],
    ) -> Result<Option<u64>, EngineError> {
        engine.session.multi_get(queues, &[key], &mut engine.answers)?;
        Ok(engine.answers.get(0).map(|(found, version)| {
            value.copy_from_slice(found);
            version
        }))
    }

    fn multi_get(
        engine: &mut PoolEngine,
        queues: &mut Vec<C::Queue>,
        keys: &[u64],
        answers: &mut Answers,
    ) -> Result<(), EngineError> {
        Ok(engine.session.multi_get(queues, keys, answers)?)
    }

    fn scan_batch(
        engine: &mut PoolEngine,
        queues: &mut Vec<C::Queue>,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), EngineError> {
        engine.scans.clear();
        engine.scans.extend(scans.iter().map(|scan| (scan.from, scan.limit)));
        Ok(engine.session.scan_batch(queues, &engine.scans, pairs)?)
    }

    fn write<'v>(
        engine: &mut PoolEngine,
        queues: &mut Vec<C::Queue>,
        operation: WriteOperation,
        entries: impl ExactSizeIterator<Item = (u64, &'v [u8])> + Clone,
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<(), EngineError> {
        let expected = if operation.has_value() { engine.expected_bytes } else { 0 };
        let mut writes = Vec::with_capacity(entries.len());
        for (index, (key, value)) in entries.enumerate() {
            if value.len() != expected {
                return Err(EngineError::ValueSize { index, expected, got: value.len() });
            }
            writes.push(Write { operation, key, value });
        }
        engine.done.clear();
        engine.session.write_many(queues, &writes, &mut engine.done);
        gather(engine.done.drain(..), outcomes)
    }

    /// Nothing to do: groups are fetched with the first key that needs them, in one round trip.
    fn prefill(_engine: &mut PoolEngine, _queues: &mut Vec<C::Queue>) -> Result<(), EngineError> {
        Ok(())
    }
}

/// Appends outcomes up to the first write whose outcome the fabric's failure left unknown, or that failed
/// alone in its call: that is the error. What failed for a reason of its own beside others is an outcome.
fn gather(
    done: impl ExactSizeIterator<Item = Result<WriteOutcome, RolexError>>,
    outcomes: &mut Vec<WriteOutcome>,
) -> Result<(), EngineError> {
    let is_alone = done.len() == 1;
    for outcome in done {
        match outcome {
            Ok(outcome) => outcomes.push(outcome),
            Err(RolexError::Contended { .. }) => {
                outcomes.push(WriteOutcome::Failed(ErrorCode::Contended));
            }
            Err(RolexError::Astray { .. } | RolexError::Call { .. }) if !is_alone => {
                outcomes.push(WriteOutcome::Failed(ErrorCode::OutOfResources));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

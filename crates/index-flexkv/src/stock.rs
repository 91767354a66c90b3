//! Memory for objects: what a compute node has in hand, and what it says of the rest.
//!
//! Invariant: memory in stock is named by no slot, and no other compute node has it. A node hears that memory
//! is published before, or with, that it is freed. What it has not heard of when the compute node ends, it
//! looks at itself.
//!
//! All sessions of a compute node share the stock of a table. So what one of them leaves behind the others
//! use.

use std::error::Error;
use std::sync::{Mutex, MutexGuard, PoisonError};

use farsight_layout::hash_index::OBJECT_LINES_MAX;
use farsight_protocol::{ObjectMemory, POOL_BLOCKS_MAX, SplitGrant};

use crate::FlexError;

/// Bytes of a batch of memory that is taken at once, unless one has more.
const BATCH_LINES: usize = 1 << 10;
/// Objects of a batch at most.
const BATCH_MAX: usize = 64;
/// So many objects are published, or freed, before their node hears of it.
const REPORTED_AT: usize = 256;

/// What a call came to; an error is the node's, or the fabric's.
pub type CallResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What operations ask of the nodes' processors.
pub trait ObjectCalls: Send + Sync {
    /// Tells `node` what became of memory that it gave, and takes memory of so many lines, `count` times at
    /// most.
    ///
    /// # Errors
    /// The call's.
    fn exchange(
        &self,
        node: usize,
        wanted: (u8, u16),
        published: &[ObjectMemory],
        freed: &[ObjectMemory],
    ) -> CallResult<Vec<ObjectMemory>>;

    /// Asks `node` for the units into which a subtable of a partition is to be split.
    ///
    /// # Errors
    /// The call's.
    fn begin_split(&self, node: usize, partition: u16, subtable: u16) -> CallResult<SplitGrant>;

    /// Tells `node` that this compute node writes these units no more.
    ///
    /// # Errors
    /// The call's.
    fn end_split(&self, node: usize, units: [u32; 2]) -> CallResult<()>;
}

/// What a compute node has in hand of one table.
pub struct Stock {
    nodes: Vec<Mutex<NodeStock>>,
}

/// The same, of one node.
#[derive(Default)]
struct NodeStock {
    /// By lines, less one.
    ready: Vec<Vec<ObjectMemory>>,
    published: Vec<ObjectMemory>,
    freed: Vec<ObjectMemory>,
}

impl Stock {
    /// Nothing of so many nodes.
    #[must_use]
    pub fn new(nodes: usize) -> Self {
        Self { nodes: (0..nodes).map(|_| Mutex::default()).collect() }
    }

    /// Takes memory of so many lines of `node`.
    pub(crate) fn take(
        &self,
        calls: &dyn ObjectCalls,
        node: usize,
        lines: u8,
    ) -> Result<ObjectMemory, FlexError> {
        if let Some(memory) = self.lock(node).of(lines).pop() {
            return Ok(memory);
        }
        let count = (BATCH_LINES / usize::from(lines)).clamp(1, BATCH_MAX) as u16;
        let given = self.exchange(calls, node, (lines, count))?;
        let mut stock = self.lock(node);
        let ready = stock.of(lines);
        // The first is taken first.
        ready.extend(given.into_iter().filter(|memory| memory.lines == lines).rev());
        ready.pop().ok_or_else(|| FlexError::Call { source: "the node gave no memory".into() })
    }

    /// Puts memory back that no slot names, nor ever named as live.
    pub(crate) fn give_back(&self, node: usize, memory: ObjectMemory) {
        self.lock(node).of(memory.lines).push(memory);
    }

    /// Notes what a write did: a slot names `published` now, and none names `freed` any more.
    pub(crate) fn note(
        &self,
        calls: &dyn ObjectCalls,
        node: usize,
        published: Option<ObjectMemory>,
        freed: Option<ObjectMemory>,
    ) {
        let mut stock = self.lock(node);
        stock.published.extend(published);
        stock.freed.extend(freed);
        let is_due = stock.freed.len() >= REPORTED_AT || stock.published.len() >= REPORTED_AT;
        drop(stock);
        if is_due {
            // The write is done. A node that cannot be reached hears of it with the next call, or finds out.
            let _ = self.exchange(calls, node, (1, 0));
        }
    }

    /// Tells what is to be told, and takes what is wanted. No lock is held meanwhile.
    fn exchange(
        &self,
        calls: &dyn ObjectCalls,
        node: usize,
        wanted: (u8, u16),
    ) -> Result<Vec<ObjectMemory>, FlexError> {
        let mut stock = self.lock(node);
        let (published, freed) = (told(&mut stock.published), told(&mut stock.freed));
        drop(stock);
        let given = calls.exchange(node, wanted, &published, &freed).map_err(FlexError::of_call);
        // A node that has no memory to give has heard the rest all the same.
        if matches!(given, Err(FlexError::Fabric(_))) {
            let mut stock = self.lock(node);
            stock.published.extend(published);
            stock.freed.extend(freed);
        }
        given
    }

    fn lock(&self, node: usize) -> MutexGuard<'_, NodeStock> {
        // Each change is complete.
        self.nodes[node].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeStock {
    fn of(&mut self, lines: u8) -> &mut Vec<ObjectMemory> {
        if self.ready.is_empty() {
            self.ready.resize_with(OBJECT_LINES_MAX.into(), Vec::new);
        }
        &mut self.ready[usize::from(lines) - 1]
    }
}

/// The first of what is to be told, as many as a call names.
fn told(notes: &mut Vec<ObjectMemory>) -> Vec<ObjectMemory> {
    let count = notes.len().min(POOL_BLOCKS_MAX);
    notes.drain(..count).collect()
}

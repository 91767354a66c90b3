//! Memory for objects: what a compute node has in hand, and what it says of the rest.
//!
//! Invariant: memory in stock is named by no slot, and no other compute node has it. A node hears that memory
//! is published before, or with, that it is freed. What it has not heard of when the compute node ends, it
//! looks at itself.
//!
//! All sessions of a compute node share the stock of a table. So what one of them leaves behind the others
//! use. The last one gives back what is left.

use std::error::Error;
use std::sync::{Mutex, MutexGuard, PoisonError};

use farsight_base::clock::MonotonicNs;
use farsight_base::sync::{AtomicBool, AtomicUsize, Ordering};
use farsight_layout::hash_index::OBJECT_LINES_MAX;
use farsight_protocol::{
    ComputeNode, ErrorCode, Fenced, ObjectGrant, ObjectMemory, POOL_BLOCKS_MAX, Recalled, ServerError,
    SplitGrant,
};

use crate::{FlexError, FlexTable};

/// Bytes of a batch of memory that is taken at once, unless one has more.
const BATCH_LINES: usize = 1 << 10;
/// Objects of the first batch of a length, and of any at most: each is twice the one before. So who writes
/// much calls rarely, and who writes little has little in hand.
const BATCH_FIRST: usize = 64;
const BATCH_MAX: usize = 512;
/// A later one is no more than this part of its shard's memory. Where pairs have deadlines all are as the
/// first: with each the node names pairs to be removed, about as many as it gives memory for.
const BATCHES_MIN: usize = 1 << 10;
/// So many objects are published, or freed, before their node hears of it: as many as a call names. Mostly it
/// hears with the next batch.
const REPORTED_AT: usize = POOL_BLOCKS_MAX;

/// Attempts to take memory: one more once those are fenced that have the last of it.
const EXCHANGES: usize = 2;

/// What a call came to; an error is the node's, or the fabric's.
pub type CallResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What operations ask of the nodes' processors.
pub trait ObjectCalls: Send + Sync {
    /// Tells `node`, the head of `shard`, what became of memory that it gave, and takes memory of so many
    /// lines, `count` times at most.
    ///
    /// # Errors
    /// The call's.
    fn exchange(
        &self,
        head: (usize, usize),
        wanted: (u8, u16),
        published: &[ObjectMemory],
        freed: &[ObjectMemory],
    ) -> CallResult<ObjectGrant>;

    /// Until when reads are believed that begin `now`, of a table with replicas.
    ///
    /// # Errors
    /// The call's; the fabric's if the pool goes on without other nodes than this session.
    fn renew(&self, now: MonotonicNs) -> CallResult<MonotonicNs>;

    /// The nodes' time of day, in milliseconds since 1970: that by which pairs end.
    ///
    /// # Errors
    /// The call's.
    fn unix_ms(&self) -> CallResult<u64>;

    /// Tells all nodes that this compute node keeps values of the table.
    ///
    /// # Errors
    /// The call's.
    fn keep_values(&self) -> CallResult<()>;

    /// Writes the request into `frame` that has all others let go of values that they keep.
    fn write_recall(&self, recalled: Recalled, frame: &mut Vec<u8>);

    /// Tells the head of a shard, a node, that all replicas have what the head had when it requested that
    /// under this number.
    ///
    /// # Errors
    /// The call's.
    fn settled(&self, head: (usize, usize), number: u32) -> CallResult<()>;

    /// Ends every connection of a compute node with any node, or says when to ask again.
    ///
    /// # Errors
    /// The call's.
    fn fence(&self, compute_node: ComputeNode) -> CallResult<Fenced>;

    /// Tells the head of a shard, a node, that these compute nodes have ended at all nodes.
    ///
    /// # Errors
    /// The call's.
    fn fenced(&self, head: (usize, usize), owners: &[ComputeNode]) -> CallResult<()>;

    /// Asks `node` for the units into which a subtable of a partition is to be split.
    ///
    /// # Errors
    /// The call's.
    fn begin_split(&self, node: usize, partition: u16, subtable: u16) -> CallResult<SplitGrant>;

    /// Tells the head of a shard, a node, that this compute node writes these units no more.
    ///
    /// # Errors
    /// The call's.
    fn end_split(&self, head: (usize, usize), units: [u32; 2]) -> CallResult<()>;
}

/// What a compute node has in hand of one table.
pub struct Stock {
    shards: Vec<ShardStock>,
    /// A shard may have to be settled.
    has_wants: AtomicBool,
    /// Pairs may have ended that are to be removed.
    has_ended: AtomicBool,
    sessions: AtomicUsize,
}

/// The same, of one shard.
struct ShardStock {
    /// The node that gives memory.
    head: usize,
    /// Objects of a batch at most.
    batch_max: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// The number under which the head's node has requested the shard to be settled.
    wanted: Option<u32>,
    /// Whom to fence, by the head's node.
    to_fence: Vec<ComputeNode>,
    /// Objects whose pairs have ended, by the head's node.
    ended: Vec<ObjectMemory>,
    /// The node may ask before it gives any memory.
    is_fresh: bool,
    /// By lines, less one: memory, and how much of it is to be taken next.
    ready: Vec<Ready>,
    published: Vec<ObjectMemory>,
    freed: Vec<ObjectMemory>,
}

/// Objects of one length.
#[derive(Default)]
struct Ready {
    memory: Vec<ObjectMemory>,
    /// The batch before had so many.
    batch: usize,
}

impl Stock {
    /// Nothing of this table.
    #[must_use]
    pub fn new(table: &FlexTable) -> Self {
        let shard = |shard| {
            // Its head may be another one than it was: a node was lost, or a new one has taken its place.
            let is_fresh = table.is_replicated(shard) || table.is_shortened(shard);
            let held = Held { is_fresh, ..Held::default() };
            let has_deadlines = table.values().expiry().is_some();
            let batch_max = if has_deadlines { 0 } else { table.object_lines(shard) / BATCHES_MIN };
            let batch_max = batch_max.clamp(BATCH_FIRST, BATCH_MAX);
            ShardStock { head: table.head(shard).node, batch_max, held: Mutex::new(held) }
        };
        let shards: Vec<ShardStock> = (0..table.shards()).map(shard).collect();
        // Relaxed, here and below: a hint to look.
        let has_wants = AtomicBool::new(shards.iter().any(|shard| lock(&shard.held).is_fresh));
        Self { shards, has_wants, has_ended: AtomicBool::new(false), sessions: AtomicUsize::new(0) }
    }

    /// Notes a session that uses it.
    pub(crate) fn begin_session(&self) {
        // Relaxed, here and below: who takes memory meanwhile does so under the lock.
        self.sessions.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells what is to be told once a session has ended, and gives back what is in stock if none is left.
    pub(crate) fn end_session(&self, calls: &dyn ObjectCalls) {
        if self.sessions.fetch_sub(1, Ordering::Relaxed) == 1 {
            for shard in 0..self.shards.len() {
                let mut stock = self.lock(shard);
                let ready: Vec<_> = stock.ready.drain(..).flat_map(|ready| ready.memory).collect();
                stock.freed.extend(ready);
            }
        }
        self.tell(calls);
    }

    /// The shards of which it is not known that nobody has requested them to be settled.
    pub(crate) fn unsettled(&self) -> Vec<usize> {
        if !self.has_wants.swap(false, Ordering::Relaxed) {
            return Vec::new();
        }
        let is_unsettled = |shard: &usize| {
            let held = self.lock(*shard);
            held.is_fresh || held.wanted.is_some() || !held.to_fence.is_empty()
        };
        let unsettled: Vec<usize> = (0..self.shards.len()).filter(is_unsettled).collect();
        // All of them, until they are settled: other sessions must not write before.
        if unsettled.iter().any(|shard| self.lock(*shard).is_fresh) {
            self.has_wants.store(true, Ordering::Relaxed);
        }
        unsettled
    }

    /// Objects whose pairs have ended, each with its shard: the caller's from now on.
    pub(crate) fn take_ended(&self) -> Vec<(usize, ObjectMemory)> {
        // Relaxed: a hint to look.
        if !self.has_ended.load(Ordering::Relaxed) || !self.has_ended.swap(false, Ordering::Relaxed) {
            return Vec::new();
        }
        let of_shard = |shard| {
            let ended = std::mem::take(&mut self.lock(shard).ended);
            ended.into_iter().map(move |memory| (shard, memory))
        };
        (0..self.shards.len()).flat_map(of_shard).collect()
    }

    /// The number under which a shard is to be settled now; `None`: it is settled, or others do that.
    pub(crate) fn take_wanted(
        &self,
        calls: &dyn ObjectCalls,
        shard: usize,
    ) -> Result<Option<u32>, FlexError> {
        if self.lock(shard).is_fresh {
            self.exchange(calls, shard, (1, 0))?;
            let mut held = self.lock(shard);
            held.is_fresh = held.wanted.is_some();
        }
        Ok(self.lock(shard).wanted.take())
    }

    /// Fences the compute nodes of which a shard's head has told, and says so. One that cannot be fenced yet
    /// the head names again.
    pub(crate) fn fence_ended(&self, calls: &dyn ObjectCalls, shard: usize) -> Result<(), FlexError> {
        let mut fenced = std::mem::take(&mut self.lock(shard).to_fence);
        let mut failure = None;
        fenced.retain(|compute_node| match calls.fence(*compute_node) {
            Ok(fenced) => fenced == Fenced::Done,
            Err(error) => {
                failure.get_or_insert(error);
                false
            }
        });
        if !fenced.is_empty() {
            calls.fenced((self.shards[shard].head, shard), &fenced).map_err(FlexError::of_call)?;
        }
        failure.map_or(Ok(()), |error| Err(FlexError::of_call(error)))
    }

    /// Tells the head's node that a shard is settled.
    pub(crate) fn note_settled(
        &self,
        calls: &dyn ObjectCalls,
        shard: usize,
        number: u32,
    ) -> Result<(), FlexError> {
        calls.settled((self.shards[shard].head, shard), number).map_err(FlexError::of_call)
    }

    /// Takes memory of so many lines of a shard.
    pub(crate) fn take(
        &self,
        calls: &dyn ObjectCalls,
        shard: usize,
        lines: u8,
    ) -> Result<ObjectMemory, FlexError> {
        let batch_max = self.shards[shard].batch_max.min(BATCH_LINES / usize::from(lines)).max(1);
        let count = match self.lock(shard).of(lines).take(batch_max) {
            Ok(memory) => return Ok(memory),
            Err(count) => count as u16,
        };
        for _ in 0..EXCHANGES {
            let given = self.exchange(calls, shard, (lines, count))?;
            let mut stock = self.lock(shard);
            let ready = &mut stock.of(lines).memory;
            // The first is taken first.
            ready.extend(given.into_iter().filter(|memory| memory.lines == lines).rev());
            if let Some(memory) = ready.pop() {
                return Ok(memory);
            }
            drop(stock);
            // What ended compute nodes have in hand may be all that there is.
            self.fence_ended(calls, shard)?;
        }
        let text = "the shard's memory is used up, but for what its node frees once the shard is settled. The \
                    next write settles it";
        Err(FlexError::Call { source: ServerError::new(ErrorCode::RegionFull, text).into() })
    }

    /// Puts memory back that no slot names, nor ever named as live.
    pub(crate) fn give_back(&self, shard: usize, memory: ObjectMemory) {
        self.lock(shard).of(memory.lines).memory.push(memory);
    }

    /// Notes what a write did: a slot names `published` now, and none names `freed` any more.
    pub(crate) fn note(
        &self,
        calls: &dyn ObjectCalls,
        shard: usize,
        published: Option<ObjectMemory>,
        freed: Option<ObjectMemory>,
    ) {
        let mut stock = self.lock(shard);
        stock.published.extend(published);
        stock.freed.extend(freed);
        let is_due = stock.freed.len() >= REPORTED_AT || stock.published.len() >= REPORTED_AT;
        drop(stock);
        if is_due {
            // The write is done. A node that cannot be reached hears of it with the next call, or finds out.
            let _ = self.exchange(calls, shard, (1, 0));
        }
    }

    /// Tells what is to be told of each shard. A node that cannot be reached finds out.
    fn tell(&self, calls: &dyn ObjectCalls) {
        for shard in 0..self.shards.len() {
            let is_told = || {
                let stock = self.lock(shard);
                stock.published.is_empty() && stock.freed.is_empty()
            };
            // Each call has some of it.
            while !is_told() && self.exchange(calls, shard, (1, 0)).is_ok() {}
        }
    }

    /// Tells what is to be told, and takes what is wanted. No lock is held meanwhile.
    fn exchange(
        &self,
        calls: &dyn ObjectCalls,
        shard: usize,
        wanted: (u8, u16),
    ) -> Result<Vec<ObjectMemory>, FlexError> {
        let mut stock = self.lock(shard);
        let (published, freed) = (told(&mut stock.published), told(&mut stock.freed));
        drop(stock);
        let head = (self.shards[shard].head, shard);
        let given = calls.exchange(head, wanted, &published, &freed).map_err(FlexError::of_call);
        // A node that has no memory to give has heard the rest all the same.
        if matches!(given, Err(FlexError::Fabric(_))) {
            let mut stock = self.lock(shard);
            stock.published.extend(published);
            stock.freed.extend(freed);
        }
        let ObjectGrant { given, settle, fence, ended } = given?;
        if !ended.is_empty() {
            self.lock(shard).ended = ended;
            // Relaxed: as in `take_ended`.
            self.has_ended.store(true, Ordering::Relaxed);
        }
        if settle.is_some() || !fence.is_empty() {
            let mut stock = self.lock(shard);
            stock.wanted = settle.or(stock.wanted);
            stock.to_fence = fence;
            self.has_wants.store(true, Ordering::Relaxed);
        }
        Ok(given)
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, Held> {
        lock(&self.shards[shard].held)
    }
}

impl Held {
    fn of(&mut self, lines: u8) -> &mut Ready {
        if self.ready.is_empty() {
            self.ready.resize_with(OBJECT_LINES_MAX.into(), Ready::default);
        }
        &mut self.ready[usize::from(lines) - 1]
    }
}

impl Ready {
    /// Some of it, or how much is to be taken from the node.
    fn take(&mut self, batch_max: usize) -> Result<ObjectMemory, usize> {
        self.memory.pop().ok_or_else(|| {
            self.batch = (2 * self.batch).max(BATCH_FIRST).min(batch_max);
            self.batch
        })
    }
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    // Each change is complete.
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first of what is to be told, as many as a call names.
fn told(notes: &mut Vec<ObjectMemory>) -> Vec<ObjectMemory> {
    let count = notes.len().min(POOL_BLOCKS_MAX);
    notes.drain(..count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_batch_is_twice_the_one_before_up_to_the_most() {
        let mut ready = Ready::default();
        let mut batch = |most| ready.take(most).expect_err("nothing is ready");
        assert_eq!([512; 5].map(&mut batch), [64, 128, 256, 512, 512]);
        assert_eq!(batch(3), 3, "long objects come a few at a time");
    }
}

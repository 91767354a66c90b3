//! The contract between a node and the engines of its tables.
//!
//! Invariant: nothing else in this crate asks which engine a table has. The node decodes requests, numbers
//! and names tables, and bounds replies. What a table is made of, and what a request does with it, is its
//! engine's ([`HostedTable`]).

use std::sync::Arc;
use std::time::Duration;

use farsight_base::ClientId;
use farsight_base::clock::MonotonicNs;
use farsight_fabric::{Answer, Ticket};
use farsight_index::{Answers, EngineKind, Engines, Pairs, Registered, Registry, UnknownEngine};
use farsight_protocol::{
    BlockSpaceStats, ComputeNode, ErrorCode, HashIndexStats, LostNodes, PartStats, RegionInfo, ReplyWriter,
    Request, ServerError, Space, SpaceStats, TableLayout,
};

use crate::authors::Noting;
use crate::flexkv::FlexTable;
use crate::late_reply::LateReplies;
use crate::logged::LoggedTable;
use crate::new_table::NewTable;
use crate::rolex::PooledTable;
use crate::scrub::Checked;
use crate::x_store::{BlockPart, Part};
use crate::{BackgroundState, LateReply};

/// An engine whose tables nodes can have.
pub trait NodeEngine: Registered {
    /// An empty table, or a node's part of one.
    ///
    /// # Errors
    /// [`ServerError`] for what this node cannot give it.
    fn host(new: &NewTable<'_>) -> Result<Arc<dyn HostedTable>, ServerError>;
}

/// Engines whose tables nodes can have.
pub trait NodeEngines: Registry {
    /// How tables of the engine of this name are made.
    ///
    /// # Errors
    /// [`UnknownEngine`].
    fn hosting(name: &str) -> Result<Hosting, UnknownEngine> {
        Self::find(name).ok_or_else(|| UnknownEngine { got: name.to_owned(), known: Self::kinds() })
    }

    /// The same; `None` for a name of none.
    fn find(name: &str) -> Option<Hosting>;
}

/// An engine of a list, and how its tables are made.
#[derive(Clone, Copy)]
pub struct Hosting {
    /// The engine.
    pub(crate) kind: &'static EngineKind,
    pub(crate) host: fn(&NewTable<'_>) -> Result<Arc<dyn HostedTable>, ServerError>,
}

/// What a node looks the engines of its tables up by: [`NodeEngines::hosting`] of a list.
pub type FindHosting = fn(&str) -> Result<Hosting, UnknownEngine>;

/// The engines that there are.
pub(crate) const REGISTERED: FindHosting = <Engines as NodeEngines>::hosting;

impl NodeEngines for () {
    fn find(_: &str) -> Option<Hosting> {
        None
    }
}

impl<E: NodeEngine, Rest: NodeEngines> NodeEngines for (E, Rest) {
    fn find(name: &str) -> Option<Hosting> {
        if E::KIND.name == name {
            return Some(Hosting { kind: E::KIND, host: E::host });
        }
        Rest::find(name)
    }
}

impl NodeEngine for farsight_index::XStore {
    fn host(new: &NewTable<'_>) -> Result<Arc<dyn HostedTable>, ServerError> {
        if new.values().are_blocks() {
            return Ok(Arc::new(BlockPart::new(new)?));
        }
        Ok(Arc::new(Part::fixed(new)?))
    }
}

impl NodeEngine for farsight_index::XStoreD {
    fn host(new: &NewTable<'_>) -> Result<Arc<dyn HostedTable>, ServerError> {
        farsight_index::XStore::host(new)
    }
}

impl NodeEngine for farsight_index::Rolex {
    fn host(new: &NewTable<'_>) -> Result<Arc<dyn HostedTable>, ServerError> {
        Ok(Arc::new(PooledTable::new(new)?))
    }
}

impl NodeEngine for farsight_index::FlexKv {
    fn host(new: &NewTable<'_>) -> Result<Arc<dyn HostedTable>, ServerError> {
        Ok(Arc::new(FlexTable::new(new)?))
    }
}

/// A table on a node, as its engine keeps it.
pub trait HostedTable: Send + Sync {
    /// Its regions on this node: one of each space that its [`EngineKind`] names, in that order.
    fn regions(&self) -> Vec<RegionInfo>;

    /// Executes a request for the table: writes the answer that [`Request`] says it has. Values are of the
    /// table's size, and no more of one size are got than an answer carries. Requests for values of any
    /// length come to tables of such values alone, and writes of values of one size to the others.
    ///
    /// # Errors
    /// [`ServerError`] for what cannot be done, and for requests that the engine has not; then nothing that
    /// was written of the answer is sent.
    fn execute(&self, request: &Request<'_>, call: &mut Call<'_, '_>) -> Result<Executed, ServerError>;

    /// How it uses its memory, and what this node's processor keeps of it, at `now`.
    fn stats(&self, now: MonotonicNs) -> HostedStats;

    /// Gives back what was kept for a client that has ended: none of its requests executes any more.
    fn forget(&self, _client: ClientId) {}

    /// Its blocks, if compute nodes are given them.
    fn blocks(&self) -> Option<&PooledTable> {
        None
    }

    /// Its objects, if compute nodes are given memory for them.
    fn objects(&self) -> Option<&FlexTable> {
        None
    }

    /// Takes over what a compute node had, none of whose verbs can execute any more.
    fn end(&self, _owner: ComputeNode) {}

    /// Goes on without these nodes of its pool. No compute node is connected.
    fn leave_out(&self, _lost: LostNodes) {}

    /// Goes on with a new node in the place of a lost one, and without these. No compute node is connected.
    /// On the new node itself it `is_new`.
    fn take_in(&self, _lost: LostNodes, _is_new: bool) {}

    /// Takes lines of a region, as another node has them. No compute node is connected.
    ///
    /// # Errors
    /// [`ErrorCode::BadRequest`] for lines that the region has not, and for tables without replicas.
    fn receive(&self, _space: Space, _first_line: u32, _bytes: &[u8]) -> Result<(), ServerError> {
        Err(ServerError::new(ErrorCode::BadRequest, "a table without replicas is not brought to a new node"))
    }

    /// What the log needs of it, if its engine has a log.
    fn logged(&self) -> Option<&dyn LoggedTable> {
        None
    }

    /// Looks at up to `limit` pairs from the key `from` on, and repairs what it can. `None` if this node's
    /// processor does not read its pairs.
    fn check(&self, _from: u64, _limit: usize) -> Option<Checked> {
        None
    }

    /// What the background does for it, if anything. Called once.
    fn background(self: Arc<Self>) -> Option<Box<dyn BackgroundWork>> {
        None
    }

    /// How much training waits; zero: none.
    fn pending_training(&self) -> u64 {
        0
    }

    /// Gives no version up to `last` from now on. False if its clients give versions.
    fn leave_out_versions(&self, _last: u64) -> bool {
        false
    }
}

/// What the background does for one table.
pub trait BackgroundWork: Send {
    /// Does a bounded piece of it: about as much as training `budget` sub-models. `processor_time` is what
    /// the thread has used so far.
    fn step(&mut self, now: MonotonicNs, budget: usize, processor_time: fn() -> Duration) -> BackgroundState;
}

/// What a call is executed with.
pub struct Call<'c, 'a> {
    /// Whose it is.
    pub client: ClientId,
    /// The worker's buffers.
    pub scratch: &'c mut Scratch,
    /// What it is answered.
    pub answer: &'c mut ReplyWriter<'a>,
    /// Bytes of an answer at most.
    pub(crate) message_bytes_max: usize,
    pub(crate) ticket: Ticket,
    pub(crate) late_replies: &'c Arc<LateReplies>,
    /// Where its reply is noted, if it may be repeated.
    pub(crate) noting: Option<&'c Noting>,
    /// When it is answered.
    pub(crate) when: Answer,
}

/// Buffers that a worker's calls reuse.
#[derive(Default)]
pub struct Scratch {
    /// The keys of a request.
    pub keys: Vec<u64>,
    /// A value.
    pub value: Vec<u8>,
    /// What was found of keys.
    pub answers: Answers,
    /// What a scan found.
    pub pairs: Pairs,
}

/// What a call did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Executed {
    /// Operations that it held, for the statistics.
    pub operations: u64,
    /// Something is left for the background.
    pub wakes_background: bool,
}

impl Executed {
    /// So many operations, and nothing for the background.
    #[must_use]
    pub const fn operations(operations: u64) -> Self {
        Self { operations, wakes_background: false }
    }
}

impl Call<'_, '_> {
    /// Bytes that the answer may still grow by.
    #[must_use]
    pub fn room_bytes(&self) -> usize {
        self.message_bytes_max - self.answer.len()
    }

    /// Puts off what stands in the answer by now, all of it: the client gets it when the reply is sent.
    pub fn answer_later(&mut self) -> LateReply {
        let (reply, worker) = (self.answer.to_vec(), Arc::clone(self.late_replies));
        let reply = LateReply::new(self.ticket, reply, worker, self.noting.cloned());
        self.when = Answer::Later { reply_bytes_max: reply.bytes_max() };
        reply
    }
}

/// A table's statistics but for what its node knows of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostedStats {
    /// How its leaves are used.
    pub leaves: SpaceStats,
    /// How directory and models are, where a region holds them.
    pub meta: SpaceStats,
    /// Where the bytes of blocks are, if values have any length.
    pub blocks: Option<BlockSpaceStats>,
    /// Its hash index, if it has one.
    pub hash_index: Option<HashIndexStats>,
    /// Bytes of its regions on huge pages.
    pub huge_page_bytes: u64,
    /// Tree and model, if this node's processor keeps them.
    pub part: Option<PartStats>,
}

/// Refuses a table that its engine does not make so.
pub(crate) fn check(hosting: &Hosting, layout: &TableLayout, nodes: usize) -> Result<(), ServerError> {
    use farsight_index::UnfitTable;
    hosting.kind.check(layout, nodes).map_err(|error| {
        let code = match error {
            UnfitTable::Value(_) | UnfitTable::Limit { .. } => ErrorCode::WrongValueSize,
            UnfitTable::Blocks { .. }
            | UnfitTable::ByteKeys { .. }
            | UnfitTable::Nodes { .. }
            | UnfitTable::Ranges { .. }
            | UnfitTable::Leaves { .. }
            | UnfitTable::Replicas { .. }
            | UnfitTable::TooManyReplicas { .. } => ErrorCode::BadRequest,
        };
        ServerError::new(code, format!("table {:?}: {error}", layout.definition.name))
    })
}

//! The client's half: reads by one-sided READs through the learned cache, writes by calls.
//!
//! Steps of a GET, each a small function (docs/protocol/xstore.md):
//! 1. *Predict*: top model to sub-model to a window of positions.
//! 2. *Resolve*: hints to one table entry to an address.
//! 3. READ the key lines, and *search* them: hit, absent, or where else to look.
//! 4. READ the value, and *accept* it.
//!
//! Three drivers compose them. The staged batch ([`multi_get`]) runs each step over an array of keys with one
//! doorbell between steps. A single GET ([`get`]) takes one key through them and fetches key and value lines
//! at once. Keys that these do not answer go to the lane ([`lookup`]), which walks siblings, repeats READs
//! and at last calls the server.
//!
//! Bounds: a lookup takes at most [`READS_MAX`] READs before it calls the server, and more where they are
//! of the process's own memory. The server's answer is final.

mod arena;
mod authorship;
mod block;
mod blocks;
mod branch;
mod cache;
mod engine;
mod error;
mod fetch;
mod fill;
mod get;
mod hints;
mod leaf;
mod lookup;
mod multi_get;
mod own_lines;
mod parts;
mod pieces;
mod published;
mod refresh;
mod route;
mod scan;
mod trail;
mod whole_leaves;
mod write;

use std::collections::VecDeque;
use std::sync::Arc;

use farsight_base::LeafNumber;
use farsight_base::pinned::PinnedMemory;
use farsight_index::{Access, Answers, Counters, Extent, Kept, LostCall, Pairs};

pub use blocks::{BLOCK_TURNS, XBlocks, block_reads_max};
pub use cache::{Asked, Predictor, XCache};
pub use error::XStoreError;
pub use parts::XParts;

use authorship::Authorship;
use cache::CachedModel;
use fetch::FetchBuffers;
use lookup::{Frames, Start};
use multi_get::Scratch;
use published::Published;
use refresh::Refreshes;
use trail::Trail;
use write::Sent;

/// Operations in a staged batch.
pub const BATCH: usize = 64;
/// READs that one lookup takes at most before it calls the server, but where leaves lie in the process's own
/// memory.
pub const READS_MAX: usize = 12;

/// One session's engine for one table.
///
/// Invariant: with [`Access::Rpc`] there is never a model here, whatever other sessions put into the cache.
/// Each way to a READ begins with a leaf that the model names, so none of them looks at the access.
pub struct XClient {
    cache: Arc<XCache>,
    access: Access,
    /// Calls for reads bring values of any length. Otherwise they bring what the leaves hold.
    by_values: bool,
    /// What scans READ of each leaf.
    extent: Extent,
    model: Option<Arc<CachedModel>>,
    /// The edition last looked at; zero before the first.
    pinned: u64,
    refreshes: Refreshes,
    trail: Trail,
    published: Published,
    sent: Box<Sent>,
    authorship: Authorship,
    /// The calls of the last batch that were lost with its connection; `None` if they cannot be repeated.
    lost: Option<VecDeque<LostCall>>,
    /// Where a value that comes in pieces is put.
    fetched: Vec<u8>,
    /// Of values that the server finds.
    fetching: FetchBuffers,
    scratch: Box<Scratch>,
    single: Answers,
    /// The whole leaves that a batch of GETs or a group of scans reads, by slot; and its keys that go by the
    /// slow path.
    leaves: Vec<LeafNumber>,
    slow_path: Vec<(usize, Start)>,
    /// Of the lane: its operations, and their frames.
    lane_memory: PinnedMemory,
    frames: Kept<Frames>,
    request: Vec<u8>,
    reply: Vec<u8>,
    counters: Counters,
}

impl XClient {
    /// An engine over `cache`, which other sessions may share.
    #[must_use]
    pub fn new(cache: Arc<XCache>, access: Access) -> Self {
        let scratch = Box::new(Scratch::new(cache.reader()));
        let mut client = Self {
            by_values: false,
            extent: Extent::Pairs,
            pinned: 0,
            model: None,
            published: Published::new(cache.table()),
            cache,
            access,
            refreshes: Refreshes::default(),
            trail: Trail::default(),
            sent: Box::new(Sent::new()),
            authorship: Authorship::default(),
            lost: Some(VecDeque::new()),
            fetched: Vec::new(),
            fetching: FetchBuffers::default(),
            scratch,
            single: Answers::default(),
            leaves: Vec::new(),
            slow_path: Vec::new(),
            lane_memory: PinnedMemory::default(),
            frames: Kept::default(),
            request: Vec::new(),
            reply: Vec::new(),
            counters: Counters::default(),
        };
        client.pin();
        client
    }

    /// An engine whose server searches a table of values of any length, and sends them.
    #[must_use]
    pub fn of_values(cache: Arc<XCache>) -> Self {
        Self { by_values: true, ..Self::new(cache, Access::Rpc) }
    }

    /// Empties `answers` for `count` keys, and for values as this client finds them.
    fn reset_answers(&self, answers: &mut Answers, count: usize) {
        if self.by_values {
            answers.reset_any_length(count);
        } else {
            answers.reset(count, self.cache.reader().value_bytes());
        }
    }

    /// Empties `pairs`, for values as this client finds them.
    fn reset_pairs(&self, pairs: &mut Pairs) {
        if self.by_values {
            pairs.reset_any_length();
        } else {
            pairs.reset(if self.extent == Extent::Keys { 0 } else { self.cache.reader().value_bytes() });
        }
    }

    /// What this session did besides the fabric's verbs.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The cache.
    #[must_use]
    pub fn cache(&self) -> &Arc<XCache> {
        &self.cache
    }

    /// True if the model is the newest: one comparison a batch.
    #[inline(always)]
    fn is_pinned(&self) -> bool {
        self.cache.edition() == self.pinned
    }

    /// Takes up the newest generation, unless the server searches.
    #[inline]
    fn pin(&mut self) {
        // The edition before the model: one installed in between is seen the next time.
        let edition = self.cache.edition();
        if edition != self.pinned {
            self.model = if self.access == Access::OneSided { self.cache.current() } else { None };
            self.pinned = edition;
        }
    }
}

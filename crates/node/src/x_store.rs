//! An XStore table on a node: a tree of leaves in a region, and what the calls and the background ask of it.

mod background;
mod block_part;
mod block_pieces;
mod call;
mod check;
mod damaged;
mod in_pieces;
mod load;
mod logged;
mod sweep;

use std::sync::Arc;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::{ClientId, LINE_BYTES};
use farsight_blocks::BlockSpace;
use farsight_fabric::Region;
use farsight_index::{Contended, LeafFormat, LeafListener, RegionFull, Undecided};
use farsight_index_xstore::server::{ModelStore, Trainer, WriteError, XStoreLeaf, XTree};
use farsight_model::TrainOptions;
use farsight_protocol::{
    ErrorCode, ModelStats, PartStats, RegionInfo, Request, ServerError, Space, SpaceStats,
};

use crate::bulk_load::Loading;
use crate::engine::{BackgroundWork, Call, Executed, HostedStats, HostedTable};
use crate::logged::LoggedTable;
use crate::memory_limit::MemoryLimit;
use crate::new_table::NewTable;
use crate::scrub::Checked;
use crate::table_name::TableName;
use background::Work;
pub(crate) use block_part::BlockPart;
use load::PartLoad;

/// What a node keeps of an XStore table, or of its part of one.
pub(crate) struct Part<F: LeafFormat = XStoreLeaf> {
    name: Arc<TableName>,
    /// Bytes that a leaf holds of each value.
    value_bytes: usize,
    tree: Arc<XTree<F>>,
    loading: Loading<PartLoad<F>>,
    /// Where values stand whose references the leaves hold.
    blocks: Option<Arc<BlockSpace>>,
    models: Arc<ModelStore>,
    memory: Arc<MemoryLimit>,
    train_options: TrainOptions,
    /// Counts the occasions to train; the newest of them that has been dealt with is `training_done`.
    training_wanted: AtomicU64,
    training_done: AtomicU64,
    training_ns: AtomicU64,
}

/// The refusal of a region without room for a leaf.
fn too_small(new: &NewTable<'_>, error: &RegionFull) -> ServerError {
    ServerError::new(ErrorCode::OutOfResources, format!("table {:?}: {error}", new.name()))
}

impl Part {
    /// An empty part of values of one size, with a region of its own.
    pub(crate) fn fixed(new: &NewTable<'_>) -> Result<Self, ServerError> {
        let format = XStoreLeaf::new(new.value_bytes()).map_err(|error| {
            ServerError::new(ErrorCode::WrongValueSize, format!("table {:?}: {error}", new.name()))
        })?;
        let leaves = new.read_only_region()?;
        let models = Arc::new(ModelStore::beside(new.model_region()?, new.publishes_models()));
        let tree = XTree::new(format, leaves, Arc::clone(&models) as Arc<dyn LeafListener>);
        let tree = Arc::new(tree.map_err(|error| too_small(new, &error))?);
        Ok(Self::new(new, tree, models, None))
    }
}

impl<F: LeafFormat> Part<F> {
    /// A part whose `tree` is empty and tells `models` of its leaves. These hold references to `blocks`, or
    /// values.
    fn new(
        new: &NewTable<'_>,
        tree: Arc<XTree<F>>,
        models: Arc<ModelStore>,
        blocks: Option<Arc<BlockSpace>>,
    ) -> Self {
        Self {
            name: Arc::clone(new.name()),
            value_bytes: new.value_bytes(),
            tree,
            loading: Loading::default(),
            blocks,
            models,
            memory: Arc::clone(new.memory()),
            train_options: new.train_options(),
            training_wanted: AtomicU64::new(1),
            training_done: AtomicU64::new(0),
            training_ns: AtomicU64::new(0),
        }
    }

    /// A trainer of its model, for the background.
    fn trainer(&self) -> Trainer<F> {
        Trainer::new(Arc::clone(&self.tree), Arc::clone(&self.models), self.train_options)
    }

    /// Asks for training: the leaves have changed. The call that does so wakes the background.
    fn want_training(&self) {
        // Release: the change comes first. Partner: the Acquire load in `training_wanted`.
        self.training_wanted.fetch_add(1, Ordering::Release);
    }

    /// The number of the newest occasion to train.
    fn training_wanted(&self) -> u64 {
        // Acquire: the change behind it is seen. Partner: the Release addition in `want_training`.
        self.training_wanted.load(Ordering::Acquire)
    }

    /// Notes that nothing was left to train for the occasions up to `wanted`.
    fn set_training_done(&self, wanted: u64) {
        // Release: the models come first. Partner: the Acquire load in `pending_training`.
        self.training_done.store(wanted, Ordering::Release);
    }

    /// Counts processor time that training has used.
    fn add_training_time(&self, time: Duration) {
        // Relaxed: statistics.
        self.training_ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// The region of the leaves.
    fn region(&self) -> &Arc<dyn Region> {
        self.tree.slab().region()
    }

    /// Bytes of the region, from its start, that leaves have used.
    fn touched_bytes(&self) -> u64 {
        self.tree.slab().touched_bytes()
    }

    /// How its leaves are used.
    fn leaves(&self) -> SpaceStats {
        let slab = self.tree.slab();
        SpaceStats {
            capacity: slab.capacity_leaves().into(),
            block_bytes: slab.block_bytes(),
            used: slab.used_leaves().into(),
            ..SpaceStats::default()
        }
    }

    /// How the region of models is used.
    fn meta(&self) -> SpaceStats {
        SpaceStats {
            capacity: self.models.region().map_or(0, |(_, lines)| lines.into()),
            block_bytes: LINE_BYTES as u64,
            used: self.models.used_lines(),
            ..SpaceStats::default()
        }
    }

    /// What tree and model count, at `now`.
    fn counts(&self, now: MonotonicNs) -> PartStats {
        // Relaxed: statistics.
        let training_ns = self.training_ns.load(Ordering::Relaxed);
        let model = ModelStats { training_s: training_ns as f64 * 1e-9, ..self.models.stats(now) };
        PartStats { tree: self.tree.stats(), model }
    }

    fn contended(&self, error: &Contended) -> ServerError {
        let text = format!("table {:?}, {error}: try again", self.name);
        ServerError::new(ErrorCode::Contended, text)
    }
}

impl<F: LeafFormat + 'static> HostedTable for Part<F> {
    fn regions(&self) -> Vec<RegionInfo> {
        let capacity = self.tree.slab().capacity_leaves();
        let leaves = RegionInfo { space: Space::Leaves, id: self.region().id().0, capacity };
        let meta = self.models.region().map(|(region, capacity)| RegionInfo {
            space: Space::Meta,
            id: region.id().0,
            capacity,
        });
        std::iter::once(leaves).chain(meta).collect()
    }

    fn execute(&self, request: &Request<'_>, call: &mut Call<'_, '_>) -> Result<Executed, ServerError> {
        self.execute_request(request, call)
    }

    fn stats(&self, now: MonotonicNs) -> HostedStats {
        HostedStats {
            leaves: self.leaves(),
            meta: self.meta(),
            huge_page_bytes: self.region().huge_page_bytes(),
            part: Some(self.counts(now)),
            ..HostedStats::default()
        }
    }

    fn forget(&self, client: ClientId) {
        self.loading.end_of(client);
    }

    fn check(&self, from: u64, limit: usize) -> Option<Checked> {
        Some(self.check_leaves(from, limit))
    }

    fn background(self: Arc<Self>) -> Option<Box<dyn BackgroundWork>> {
        Some(Box::new(Work::new(self)))
    }

    /// Sub-models that wait to be trained, at least one while any training is due; zero: the model is
    /// current.
    fn pending_training(&self) -> u64 {
        // Acquire: partner is the Release store in `set_training_done`.
        let done = self.training_done.load(Ordering::Acquire);
        (self.models.pending() as u64).max(u64::from(done != self.training_wanted()))
    }

    fn logged(&self) -> Option<&dyn LoggedTable> {
        Some(self)
    }

    fn leave_out_versions(&self, last: u64) -> bool {
        self.tree.leave_out_versions(last);
        true
    }
}

/// The code by which clients know this failure of one write.
fn code_of(error: &WriteError) -> ErrorCode {
    match error {
        WriteError::ValueSize { .. } | WriteError::NotInteger { .. } => ErrorCode::WrongValueSize,
        WriteError::Undecided { source: Undecided::Damaged, .. } => ErrorCode::Damaged,
        WriteError::Undecided { source: Undecided::NotInteger { .. }, .. } => ErrorCode::NotInteger,
        WriteError::Undecided { source: Undecided::NoRoom { .. }, .. } => ErrorCode::OutOfResources,
        WriteError::RegionFull { full, .. } if full.no_memory.is_some() => ErrorCode::NoMemory,
        WriteError::RegionFull { .. } => ErrorCode::RegionFull,
        WriteError::VersionsExhausted { .. } => ErrorCode::VersionsExhausted,
        WriteError::Contended(_) => ErrorCode::Contended,
    }
}

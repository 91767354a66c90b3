//! An XStore table on a node: a tree of leaves in a region, and what the calls and the background ask of it.

mod bulk;

use std::sync::Arc;
use std::time::Duration;

use farsight_base::ClientId;
use farsight_base::clock::MonotonicNs;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_fabric::Region;
use farsight_index::{Answers, Contended, LeafListener, Pairs, RegionFull};
use farsight_index_xstore::server::{ModelStore, PublishedModel, Trainer, WriteError, XStoreLeaf, XTree};
use farsight_model::TrainOptions;
use farsight_protocol::{
    ErrorCode, ModelStats, PartStats, SentOutcome, ServerError, SpaceStats, TableDefinition, WriteEntries,
    WriteOperation, WriteOutcome,
};

use crate::table_name::TableName;
use bulk::Loading;
pub(crate) use bulk::Piece;

/// The tree of a table.
pub(crate) type Tree = Arc<XTree<XStoreLeaf>>;

/// What a node keeps of an XStore table, or of its part of one.
pub(crate) struct Part {
    name: Arc<TableName>,
    value_bytes: usize,
    tree: Tree,
    loading: Loading,
    models: Arc<ModelStore>,
    train_options: TrainOptions,
    /// Counts the occasions to train; the newest of them that has been dealt with is `training_done`.
    training_wanted: AtomicU64,
    training_done: AtomicU64,
    training_ns: AtomicU64,
}

impl Part {
    /// An empty part with a region of its own, and the lines of its leaves.
    pub(crate) fn new(
        definition: &TableDefinition,
        name: &Arc<TableName>,
        region: impl FnOnce() -> Result<Arc<dyn Region>, ServerError>,
        train_options: TrainOptions,
    ) -> Result<Self, ServerError> {
        let name = Arc::clone(name);
        let value_bytes = usize::from(definition.value_bytes);
        let format = XStoreLeaf::new(value_bytes).map_err(|error| {
            ServerError::new(ErrorCode::WrongValueSize, format!("table {name:?}: {error}"))
        })?;
        let models = Arc::new(ModelStore::new());
        let tree = XTree::new(format, region()?, Arc::clone(&models) as Arc<dyn LeafListener>);
        let too_small = |error: RegionFull| {
            ServerError::new(ErrorCode::OutOfResources, format!("table {name:?}: {error}"))
        };
        let tree = Arc::new(tree.map_err(too_small)?);
        Ok(Self {
            name,
            value_bytes,
            tree,
            loading: Loading::default(),
            models,
            train_options,
            training_wanted: AtomicU64::new(1),
            training_done: AtomicU64::new(0),
            training_ns: AtomicU64::new(0),
        })
    }

    /// The table's name.
    pub(crate) fn name(&self) -> &TableName {
        &self.name
    }

    /// Bytes of a value.
    pub(crate) fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Leaves that its region holds.
    pub(crate) fn capacity_leaves(&self) -> u32 {
        self.tree.slab().capacity_leaves()
    }

    /// Refuses values of another size than the table's.
    pub(crate) fn check_value_bytes(&self, got: usize) -> Result<(), ServerError> {
        if got == self.value_bytes {
            return Ok(());
        }
        let text =
            format!("table {:?} has values of {} B, got values of {got} B", self.name, self.value_bytes);
        Err(ServerError::new(ErrorCode::WrongValueSize, text))
    }

    /// Copies the value of `key` `into` place and returns its version; by the tree.
    pub(crate) fn get(&self, key: u64, into: &mut [u8]) -> Result<Option<u64>, ServerError> {
        self.tree.get(key, into).map_err(|error| self.contended(&error))
    }

    /// Looks keys up together, by the tree.
    pub(crate) fn get_many(&self, keys: &[u64], answers: &mut Answers) -> Result<(), ServerError> {
        self.tree.get_many(keys, answers).map_err(|error| self.contended(&error))
    }

    /// Appends up to `limit` pairs from `from` on, by the tree.
    pub(crate) fn scan(&self, from: u64, limit: usize, pairs: &mut Pairs) -> Result<(), ServerError> {
        self.tree.scan(from, limit, pairs).map_err(|error| self.contended(&error))
    }

    /// Does the writes in order and hands over an outcome each.
    pub(crate) fn write(
        &self,
        operation: WriteOperation,
        entries: WriteEntries<'_>,
        mut done: impl FnMut(SentOutcome),
    ) {
        self.tree.write_many(operation, entries.iter(), |outcome, is_hint_wrong| {
            let outcome = outcome.unwrap_or_else(|error| WriteOutcome::Failed(code_of(&error)));
            done(SentOutcome { outcome, is_hint_wrong });
        });
        self.loading.end_by_write();
    }

    /// Gives no version up to `last` from now on.
    pub(crate) fn leave_out_versions(&self, last: u64) {
        self.tree.leave_out_versions(last);
    }

    /// Takes one piece of a bulk load; returns the pairs of the load so far.
    pub(crate) fn load(&self, piece: Piece<'_>) -> Result<u64, ServerError> {
        self.loading.take(&self.name, &self.tree, piece)
    }

    /// Gives back what was kept for a client that has ended.
    pub(crate) fn forget(&self, client: ClientId) {
        self.loading.end_of(client);
    }

    /// The newest model; `None` before the first training.
    pub(crate) fn model(&self) -> Option<Arc<PublishedModel>> {
        self.models.current()
    }

    /// A trainer of its model, for the background.
    pub(crate) fn trainer(&self) -> Trainer<XStoreLeaf> {
        Trainer::new(Arc::clone(&self.tree), Arc::clone(&self.models), self.train_options)
    }

    /// Asks for training if anything is pending; true if something is. Raise the signal then.
    pub(crate) fn want_training_if_pending(&self) -> bool {
        let is_pending = self.models.pending() > 0;
        if is_pending {
            self.want_training();
        }
        is_pending
    }

    /// Asks for training: the leaves have changed.
    pub(crate) fn want_training(&self) {
        // Release: the change comes first. Partner: the Acquire load in `training_wanted`.
        self.training_wanted.fetch_add(1, Ordering::Release);
    }

    /// The number of the newest occasion to train.
    pub(crate) fn training_wanted(&self) -> u64 {
        // Acquire: the change behind it is seen. Partner: the Release addition in `want_training`.
        self.training_wanted.load(Ordering::Acquire)
    }

    /// Notes that nothing was left to train for the occasions up to `wanted`.
    pub(crate) fn set_training_done(&self, wanted: u64) {
        // Release: the models come first. Partner: the Acquire load in `pending_training`.
        self.training_done.store(wanted, Ordering::Release);
    }

    /// Sub-models that wait to be trained, at least one while any training is due; zero: the model is
    /// current.
    pub(crate) fn pending_training(&self) -> u64 {
        // Acquire: partner is the Release store in `set_training_done`.
        let done = self.training_done.load(Ordering::Acquire);
        (self.models.pending() as u64).max(u64::from(done != self.training_wanted()))
    }

    /// Counts processor time that training has used.
    pub(crate) fn add_training_time(&self, time: Duration) {
        // Relaxed: statistics.
        self.training_ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// The region of the leaves.
    pub(crate) fn region(&self) -> &Arc<dyn Region> {
        self.tree.slab().region()
    }

    /// Bytes of the region, from its start, that leaves have used.
    pub(crate) fn touched_bytes(&self) -> u64 {
        self.tree.slab().touched_bytes()
    }

    /// How its leaves are used.
    pub(crate) fn leaves(&self) -> SpaceStats {
        let slab = self.tree.slab();
        SpaceStats {
            capacity: slab.capacity_leaves().into(),
            block_bytes: slab.block_bytes(),
            used: slab.used_leaves().into(),
            ..SpaceStats::default()
        }
    }

    /// What tree and model count, at `now`.
    pub(crate) fn stats(&self, now: MonotonicNs) -> PartStats {
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

/// The code by which clients know this failure of one write.
pub(crate) fn code_of(error: &WriteError) -> ErrorCode {
    match error {
        WriteError::ValueSize { .. } => ErrorCode::WrongValueSize,
        WriteError::RegionFull { .. } => ErrorCode::RegionFull,
        WriteError::VersionsExhausted { .. } => ErrorCode::VersionsExhausted,
        WriteError::Contended(_) => ErrorCode::Contended,
    }
}

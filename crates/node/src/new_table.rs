//! What an engine is told of a table to be made, and the regions that it makes it of.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use farsight_base::RegionId;
use farsight_base::clock::UnixTime;
use farsight_fabric::{FabricError, Region, RegionRights};
use farsight_model::TrainOptions;
use farsight_protocol::{ErrorCode, PoolPlace, ProxyPace, ServerError, TableId, TableLayout, ValueKind};

use crate::memory_limit::MemoryLimit;
use crate::table_name::TableName;
use crate::{Listeners, NodeOptions};

/// Models take one part in so many of a table's memory at most: two generations of them, one of which is
/// being written.
const MODELS_ONE_IN: u64 = 8;
/// Bytes that a region of models has at least; it has a multiple of them.
const MODEL_BYTES_MIN: u64 = 64 << 10;

/// A table to be made on this node.
pub struct NewTable<'a> {
    layout: &'a TableLayout,
    id: TableId,
    name: Arc<TableName>,
    place: &'a PoolPlace,
    listeners: &'a Listeners,
    options: &'a NodeOptions,
    memory: &'a Arc<MemoryLimit>,
    /// Regions that were made before their tables.
    prepared: &'a Mutex<VecDeque<Arc<dyn Region>>>,
    /// Regions that were given to the table.
    given: RefCell<Vec<RegionId>>,
}

impl<'a> NewTable<'a> {
    /// A table of this layout and number, on the node with this place, by what `options` say.
    pub(crate) fn new(
        layout: &'a TableLayout,
        id: TableId,
        place: &'a PoolPlace,
        listeners: &'a Listeners,
        (options, memory): (&'a NodeOptions, &'a Arc<MemoryLimit>),
        prepared: &'a Mutex<VecDeque<Arc<dyn Region>>>,
    ) -> Self {
        let name = Arc::new(TableName::new(&layout.definition.name));
        let given = RefCell::default();
        Self { layout, id, name, place, listeners, options, memory, prepared, given }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> TableId {
        self.id
    }

    /// Its name, which may change.
    #[must_use]
    pub fn name(&self) -> &Arc<TableName> {
        &self.name
    }

    /// What its values are.
    #[must_use]
    pub fn values(&self) -> ValueKind {
        self.layout.definition.values
    }

    /// Bytes that a leaf holds of each value.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        self.values().leaf_bytes()
    }

    /// True on the first of its nodes.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.place.index == 0
    }

    /// How fast it is decided which compute nodes write for others.
    pub(crate) fn proxy_pace(&self) -> ProxyPace {
        self.options.proxy_pace
    }

    /// The index of this node among them.
    #[must_use]
    pub fn index(&self) -> usize {
        self.place.index.into()
    }

    /// How many nodes it has.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.place.epochs.len()
    }

    /// On how many of them each pair is.
    #[must_use]
    pub fn replicas(&self) -> usize {
        self.layout.definition.replicas()
    }

    /// Bytes of a table's leaves, or of its index and objects, on this node: no more than the node gives any
    /// table.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let most = self.options.table_memory_bytes;
        self.layout.definition.memory_bytes.map_or(most, |wanted| wanted.min(most))
    }

    /// The clock by which its pairs end, if they have deadlines.
    #[must_use]
    pub fn unix_time(&self) -> Option<Arc<dyn UnixTime>> {
        self.values().expiry().map(|_| Arc::clone(&self.options.unix_time))
    }

    /// What limits the memory of the process.
    pub(crate) fn memory(&self) -> &'a Arc<MemoryLimit> {
        self.memory
    }

    /// How models are trained.
    pub(crate) fn train_options(&self) -> TrainOptions {
        self.options.training
    }

    /// A region for leaves that clients read and this node's processor writes: one that was prepared, if
    /// there is one.
    ///
    /// # Errors
    /// [`ErrorCode::OutOfResources`].
    pub fn read_only_region(&self) -> Result<Arc<dyn Region>, ServerError> {
        let is_usual = self.memory_bytes() == self.options.table_memory_bytes;
        // Nothing is ever half done under it.
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let prepared = is_usual.then(|| prepared.pop_front()).flatten();
        if let Some(region) = prepared {
            self.given.borrow_mut().push(region.id());
            return Ok(region);
        }
        self.growing_region()
    }

    /// A region that clients read and this node's processor writes, of [`NewTable::memory_bytes`], which gets
    /// memory as it is used.
    ///
    /// # Errors
    /// [`ErrorCode::OutOfResources`].
    pub fn growing_region(&self) -> Result<Arc<dyn Region>, ServerError> {
        self.region(self.memory_bytes(), |bytes| self.listeners.create_growing_region(bytes))
    }

    /// True if its models are published in their region.
    pub(crate) fn publishes_models(&self) -> bool {
        self.options.publishes_models
    }

    /// A region for what clients read of a table's models: a small part of [`NewTable::memory_bytes`].
    ///
    /// # Errors
    /// [`ErrorCode::OutOfResources`].
    pub fn model_region(&self) -> Result<Arc<dyn Region>, ServerError> {
        let part_bytes = self.memory_bytes() / MODELS_ONE_IN;
        let length_bytes = part_bytes.max(MODEL_BYTES_MIN).next_multiple_of(MODEL_BYTES_MIN);
        self.region(length_bytes, |bytes| self.listeners.create_growing_region(bytes))
    }

    /// A region that clients read and write.
    ///
    /// # Errors
    /// [`ErrorCode::OutOfResources`]; [`ErrorCode::BadRequest`] where no client can write.
    pub fn writable_region(&self, length_bytes: u64) -> Result<Arc<dyn Region>, ServerError> {
        if let Some(why) = &self.options.read_only {
            let text = format!("table {:?} cannot be of {} here: {why}", self.name, self.layout.engine);
            return Err(ServerError::new(ErrorCode::BadRequest, text));
        }
        self.region(length_bytes, |bytes| self.listeners.create_region(bytes, RegionRights::ReadWrite))
    }

    fn region(
        &self,
        length_bytes: u64,
        create: impl FnOnce(u64) -> Result<Arc<dyn Region>, FabricError>,
    ) -> Result<Arc<dyn Region>, ServerError> {
        let region = create(length_bytes).map_err(|error| {
            let text = format!(
                "table {:?} needs a region of {length_bytes} B: {error}. Give tables less memory, or the node more",
                self.name
            );
            ServerError::new(ErrorCode::OutOfResources, text)
        })?;
        self.given.borrow_mut().push(region.id());
        Ok(self.memory.of_region(region))
    }

    /// Withdraws the regions that were given to a table of which nothing came.
    pub(crate) fn withdraw_regions(&self) {
        for region in self.given.take() {
            // A listener that does not serve it any more has nothing to withdraw.
            let _ = self.listeners.withdraw_region(region);
        }
    }
}

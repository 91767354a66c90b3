//! A load of an empty part, in bulk by a client or by what recovers the part.
//!
//! Invariant: dropped before its end, it gives back leaves and blocks. Nobody has seen any of them.

use std::sync::Arc;

use farsight_blocks::BlockWriter;
use farsight_fabric::Reserved;
use farsight_index::LeafFormat;
use farsight_index_xstore::server::{BlockTree, BulkLoadError, BulkLoader, StagedReference};
use farsight_protocol::{ErrorCode, ServerError};

use super::block_part::refused_block;
use super::{Part, code_of};
use crate::bulk_load::Loader;
use crate::logged::VersionedLoad;
use crate::memory_limit::MemoryLimit;
use crate::table_name::TableName;

/// A load under way.
pub(super) struct PartLoad<F: LeafFormat> {
    name: Arc<TableName>,
    loader: BulkLoader<F>,
    /// Where values go whose references are loaded in their places; `None` where leaves hold values.
    blocks: Option<BlockWriter>,
    memory: Arc<MemoryLimit>,
}

impl<F: LeafFormat> Part<F> {
    /// Begins to load the part, which is empty, with so many pairs, if that is known. Leaves are filled to
    /// their end if the pairs have no room otherwise.
    pub(super) fn begin_load(&self, pairs: Option<u64>) -> Result<PartLoad<F>, ServerError> {
        let mut loader = self.tree.begin_bulk_load().map_err(|error| refused_load(&error))?;
        if pairs.is_some_and(|pairs| !loader.has_room_for(pairs)) {
            loader.fill_leaves();
        }
        let blocks = self.blocks.clone().map(BlockWriter::new);
        Ok(PartLoad { name: Arc::clone(&self.name), loader, blocks, memory: Arc::clone(&self.memory) })
    }
}

impl<F: LeafFormat> PartLoad<F> {
    /// Hands `push` what a leaf holds of the value: the value, or the reference to its block.
    fn push_stored(
        &mut self,
        key: u64,
        value: &[u8],
        push: impl FnOnce(&mut BulkLoader<F>, &[u8]) -> Result<(), BulkLoadError>,
    ) -> Result<(), ServerError> {
        let Some(writer) = &mut self.blocks else {
            return push(&mut self.loader, value).map_err(|error| refused_load(&error));
        };
        let staged: StagedReference =
            BlockTree::stage(writer, key, value).map_err(|error| refused_block(&self.name, &error))?;
        push(&mut self.loader, &staged).map_err(|error| {
            BlockTree::unstage(writer, staged);
            refused_load(&error)
        })
    }
}

impl<F: LeafFormat> Loader for PartLoad<F> {
    fn push(&mut self, key: u64, value: &[u8]) -> Result<(), ServerError> {
        self.push_stored(key, value, |loader, stored| loader.push(key, stored))
    }

    fn set_aside(&self, value_bytes: u64) -> Result<Option<Reserved>, ServerError> {
        Ok(Some(Box::new(self.memory.of_load(value_bytes)?)))
    }

    fn finish(self) -> Result<u64, ServerError> {
        self.loader.finish().map(|loaded| loaded.pairs).map_err(|error| refused_load(&error))
    }
}

impl<F: LeafFormat> VersionedLoad for PartLoad<F> {
    fn push(&mut self, key: u64, version: u64, value: &[u8]) -> Result<(), ServerError> {
        self.push_stored(key, value, |loader, stored| loader.push_versioned(key, version, stored))
    }

    fn set_aside(&self, value_bytes: u64) -> Result<Option<Reserved>, ServerError> {
        Loader::set_aside(self, value_bytes)
    }

    fn finish(self: Box<Self>) -> Result<u64, ServerError> {
        Loader::finish(*self)
    }
}

/// The refusal of a load, or of a pair of it.
fn refused_load(error: &BulkLoadError) -> ServerError {
    let code = match error {
        BulkLoadError::Write { error, .. } => code_of(error),
        BulkLoadError::NotEmpty { .. } | BulkLoadError::Unsorted { .. } | BulkLoadError::Duplicate { .. } => {
            ErrorCode::BadLoad
        }
    };
    ServerError::new(code, error.to_string())
}

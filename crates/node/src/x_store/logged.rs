//! What the log needs of an XStore table.

use farsight_base::LeafNumber;
use farsight_index::Pairs;
use farsight_index_xstore::server::{BulkLoader, WriteError, XStoreLeaf};
use farsight_layout::VALUE_BYTES_MAX;
use farsight_protocol::{Direction, ServerError};

use super::{Part, code_of, refused_load};
use crate::logged::{LoggedTable, VersionedLoad};

impl Part {
    fn refused(&self, error: &WriteError) -> ServerError {
        ServerError::new(code_of(error), format!("table {:?}, {error}", self.name))
    }
}

impl LoggedTable for Part {
    fn version_of(&self, key: u64) -> Result<Option<u64>, ServerError> {
        let mut value = [0; VALUE_BYTES_MAX];
        self.tree.get(key, &mut value[..self.value_bytes]).map_err(|error| self.contended(&error))
    }

    fn insertable(&self) -> u64 {
        let slab = self.tree.slab();
        // One insert splits one leaf at most.
        u64::from(slab.capacity_leaves().saturating_sub(slab.used_leaves()))
    }

    fn draw_version(&self, key: u64) -> Result<u64, ServerError> {
        self.tree.draw_version(key).map_err(|error| self.refused(&error))
    }

    fn version_max(&self) -> u64 {
        self.tree.version_max()
    }

    fn apply(
        &self,
        key: u64,
        version: u64,
        value: Option<&[u8]>,
        hint: LeafNumber,
    ) -> Result<bool, ServerError> {
        self.tree.apply(key, version, value, hint).map_err(|error| self.refused(&error))
    }

    fn scan(&self, from: u64, limit: usize, into: &mut Pairs) -> Result<Option<u64>, ServerError> {
        into.reset(self.value_bytes);
        self.tree.scan(Direction::Ascending, from, limit, into).map_err(|error| self.contended(&error))
    }

    fn begin_load(&self) -> Result<Box<dyn VersionedLoad>, ServerError> {
        let loader = self.tree.begin_bulk_load().map_err(|error| refused_load(&error))?;
        Ok(Box::new(loader))
    }

    fn want_training(&self) {
        Self::want_training(self);
    }

    fn wants_training(&self) -> bool {
        self.models.pending() > 0
    }
}

impl VersionedLoad for BulkLoader<XStoreLeaf> {
    fn push(&mut self, key: u64, version: u64, value: &[u8]) -> Result<(), ServerError> {
        self.push_versioned(key, version, value).map_err(|error| refused_load(&error))
    }

    fn finish(self: Box<Self>) -> Result<u64, ServerError> {
        BulkLoader::finish(*self).map(|loaded| loaded.pairs).map_err(|error| refused_load(&error))
    }
}

//! What the log needs of an XStore table.

use farsight_base::LeafNumber;
use farsight_index::{LeafFormat, Pairs};
use farsight_index_xstore::server::{BulkLoader, WriteError};
use farsight_protocol::{Direction, ServerError};

use super::{Part, code_of, refused_load};
use crate::logged::{LoggedTable, VersionedLoad};

impl<F: LeafFormat> Part<F> {
    fn refused(&self, error: &WriteError) -> ServerError {
        ServerError::new(code_of(error), format!("table {:?}, {error}", self.name))
    }
}

impl<F: LeafFormat + 'static> LoggedTable for Part<F> {
    fn pair_of(&self, key: u64, value: &mut Vec<u8>) -> Result<Option<u64>, ServerError> {
        value.resize(self.value_bytes, 0);
        self.tree.get(key, value).map_err(|error| self.contended(&error))
    }

    fn reserve(&self, inserts: u64) -> Result<(), ServerError> {
        // One insert splits one leaf at most.
        let reserved = self.tree.slab().reserve(inserts);
        reserved.map_err(|full| self.refused(&WriteError::RegionFull { key: 0, full }))
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

    fn begin_load(&self, pairs: Option<u64>) -> Result<Box<dyn VersionedLoad>, ServerError> {
        let mut loader = self.tree.begin_bulk_load().map_err(|error| refused_load(&error))?;
        if pairs.is_some_and(|pairs| !loader.has_room_for(pairs)) {
            loader.fill_leaves();
        }
        Ok(Box::new(loader))
    }

    fn want_training(&self) {
        Self::want_training(self);
    }

    fn wants_training(&self) -> bool {
        self.models.pending() > 0
    }
}

impl<F: LeafFormat> VersionedLoad for BulkLoader<F> {
    fn push(&mut self, key: u64, version: u64, value: &[u8]) -> Result<(), ServerError> {
        self.push_versioned(key, version, value).map_err(|error| refused_load(&error))
    }

    fn finish(self: Box<Self>) -> Result<u64, ServerError> {
        BulkLoader::finish(*self).map(|loaded| loaded.pairs).map_err(|error| refused_load(&error))
    }
}

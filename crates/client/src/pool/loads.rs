//! A bulk load of a pool's table, by its engine.

use std::sync::Arc;

use farsight_fabric::Connection;

use super::bulk_load::RolexBulkLoad;
use super::nodes::{Caches, Nodes};
use super::parts_load::PartsLoad;
use crate::table::Table;
use crate::{LoadError, OpenError};

/// A load under way. Dropped before [`PoolBulkLoad::finish`], it leaves the table empty. It belongs to one
/// life of every node and ends with that.
pub struct PoolBulkLoad<C: Connection + 'static>(Load<C>);

enum Load<C: Connection + 'static> {
    Rolex(Box<RolexBulkLoad<C>>),
    XStoreD(PartsLoad<C>),
}

impl<C: Connection + 'static> PoolBulkLoad<C> {
    pub(crate) fn new(table: &Table<Nodes<C>>) -> Result<Self, OpenError> {
        table.shared().in_a_life(|nodes| {
            let place = table.place_in(nodes)?;
            let boundaries = match &place.open.caches {
                Caches::Rolex(_) => None,
                Caches::XStoreD(_, boundaries) => Some(Arc::clone(boundaries)),
            };
            Ok(Self(match boundaries {
                None => Load::Rolex(Box::new(RolexBulkLoad::new(place)?)),
                Some(boundaries) => Load::XStoreD(PartsLoad::new(place, boundaries)),
            }))
        })
    }

    /// Adds a pair, whose key must be greater than that of the pair before.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn push(&mut self, key: u64, value: &[u8]) -> Result<(), LoadError> {
        match &mut self.0 {
            Load::Rolex(load) => load.push(key, value),
            Load::XStoreD(load) => load.push(key, value),
        }
    }

    /// Writes what is left and makes the pairs visible: a ROLEX table's all at once, an XStore-D table's part
    /// by part. Returns their number.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn finish(self) -> Result<u64, LoadError> {
        match self.0 {
            Load::Rolex(load) => load.finish(),
            Load::XStoreD(load) => load.finish(),
        }
    }
}

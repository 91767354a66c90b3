//! Who has a pool's map.
//!
//! Invariant: of two maps of one pool the one with the greater number counts, and of one number the
//! addresses that the registered nodes say. A keeper that is offered another pool's map, or an older one,
//! keeps its own.

use crate::{ClusterError, Known, MapRecord};

/// One who keeps the map of a pool: a node in its memory, or etcd under the pool's name.
pub trait Keeper {
    /// The map, if this keeper has one.
    ///
    /// # Errors
    /// [`ClusterError`].
    fn map(&mut self) -> Result<Option<MapRecord>, ClusterError>;

    /// Offers it a map, beside which etcd had what is `known`.
    ///
    /// # Errors
    /// [`ClusterError`].
    fn offer(&mut self, map: &MapRecord, known: &Known) -> Result<Offered, ClusterError>;
}

/// What became of an offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offered {
    /// The keeper has the map now, or had it.
    Has,
    /// It has changed since it was asked: ask again.
    Changed,
    /// It keeps its own.
    KeepsIts,
}
